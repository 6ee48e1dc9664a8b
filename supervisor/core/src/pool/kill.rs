//! Why a worker is killed: the cause decides what its death counts as; the reason is for logs and receipts.

use std::fmt;
use std::time::Duration;

use gridpool_protocol::fault::{FaultCode, Response};
use gridpool_protocol::ids::WorkerId;
use gridpool_protocol::metrics::RestartReason;
use gridpool_protocol::receipt::AttemptOutcome;

use super::Pool;
use super::losses::{Loss, LossKind};
use crate::action::Action;
use crate::config::PoolConfig;
use crate::event::Timestamp;
use crate::policy::PolicyTable;

/// Why a worker was killed: decides what its death counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KillCause {
    /// Its beacon was lost: it is ending by itself, and the cause is known when it has ended.
    Beacon,
    /// It broke the protocol.
    Breach(Breach),
    /// The driver reported this fault of its device: its jobs may have caused it.
    DeviceFault(FaultCode),
    /// To free the device: an attempt ran on after its job's verdict, others wait behind it while a device
    /// idles, or the device is out of service.
    FreeDevice(Freed),
    /// It was silent for too long, or was not READY in time.
    Hang,
    /// It was silent for too long before it was READY.
    Mute,
    /// The pool ends, or its group has no work.
    Leaving,
}

/// How a worker broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breach {
    /// It closed its channel and did not end.
    ClosedChannel,
    /// It has not answered its command in time.
    LateCommand {
        /// The time that it had.
        after: Duration,
    },
    /// It has answered a command of this number, which it was not sent.
    UnknownCommand(u64),
}

/// Why a device is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freed {
    /// The device is out of service.
    DeviceOut,
    /// An attempt that was cut off with this outcome ran on for too long.
    Ended(AttemptOutcome),
    /// Others wait behind its dispatch, and another device idles.
    OthersWait,
}

impl KillCause {
    /// What the loss counts as while the killed worker is not gone yet.
    pub(super) fn loss(self, policy: &PolicyTable) -> LossKind {
        match self {
            Self::Beacon | Self::Breach(_) => LossKind::Died { evidence: false },
            Self::DeviceFault(fault) => LossKind::Died { evidence: fault.may_be_a_jobs_doing() },
            Self::FreeDevice(Freed::Ended(_)) => LossKind::RanOn,
            Self::FreeDevice(Freed::DeviceOut | Freed::OthersWait) | Self::Leaving => {
                LossKind::Freed
            }
            Self::Hang | Self::Mute => {
                LossKind::Hung { evidence: policy.response(FaultCode::Hang) == Response::Suspect }
            }
        }
    }

    /// The reason, for logs.
    pub(super) fn reason(
        self,
        was_ready: bool,
        ready_timeout: Duration,
        config: &PoolConfig,
    ) -> KillReason {
        match self {
            Self::Beacon => KillReason::BeaconLost,
            Self::Breach(Breach::ClosedChannel) => KillReason::ClosedChannel,
            Self::Breach(Breach::LateCommand { after }) => KillReason::LateWithCommand { after },
            Self::Breach(Breach::UnknownCommand(number)) => KillReason::UnknownCommand { number },
            Self::DeviceFault(fault) => KillReason::DeviceFault(fault),
            Self::FreeDevice(Freed::DeviceOut) => KillReason::DeviceOut,
            Self::FreeDevice(Freed::OthersWait) => KillReason::OthersWait,
            Self::FreeDevice(Freed::Ended(outcome)) => match outcome {
                AttemptOutcome::Cancelled => KillReason::Cancelled,
                AttemptOutcome::Deadline => KillReason::Late,
                AttemptOutcome::DeviceError
                | AttemptOutcome::Hang
                | AttemptOutcome::Ok
                | AttemptOutcome::Preempted
                | AttemptOutcome::Refused
                | AttemptOutcome::WorkerDied => KillReason::Unwound,
            },
            Self::Hang if was_ready => KillReason::Silent { after: config.heartbeat_kill },
            Self::Hang => KillReason::NotReady { after: ready_timeout },
            Self::Leaving => KillReason::Leaving,
            Self::Mute => KillReason::Silent { after: config.heartbeat_start },
        }
    }

    /// The fault that the worker was killed for, if it was its own.
    pub(super) fn own_fault(self, was_ready: bool) -> Option<FaultCode> {
        match self {
            Self::Breach(_) => Some(FaultCode::Rejected),
            Self::Hang if was_ready => Some(FaultCode::Hang),
            Self::Hang | Self::Mute => Some(FaultCode::NotReady),
            Self::Beacon | Self::DeviceFault(_) | Self::FreeDevice(_) | Self::Leaving => None,
        }
    }
}

impl Pool {
    /// Sends SIGKILL to the process of a slot. Attempts that may be retried at once are queued, and a
    /// standby takes over.
    pub(super) fn kill(&mut self, now: Timestamp, index: usize, cause: KillCause) {
        let why = self.kill_reason(index, cause).sentence();
        self.kill_because(now, index, cause, why);
    }

    /// The same, where more is known about `why`.
    pub(super) fn kill_because(
        &mut self,
        now: Timestamp,
        index: usize,
        cause: KillCause,
        why: String,
    ) {
        let reason = self.kill_reason(index, cause);
        let process = self.slots.process_mut(index);
        let (worker, device) = (process.worker, process.device_info());
        let mut outstanding = process.kill(now, (cause, reason), self.config.kill_timeout);
        if let Some(outstanding) = &mut outstanding
            && cause != KillCause::Leaving
        {
            let kind = cause.loss(&self.policy);
            let detail = why.clone();
            let (may_write, since, is_ordered) = (false, now, false);
            let loss =
                Loss { device, kind, detail, why, may_write, since, is_ordered, capsule: None };
            self.requeue_at_once(now, worker, outstanding, &loss);
        }
        self.slots.process_mut(index).may_still_answer(outstanding);
        self.devices.at_mut(worker.device).loses(now, worker);
        self.promote(now, worker.device, worker.group);
        self.touch(worker.group);
        self.ended.push(worker);
        self.act(Action::Kill { worker, reason });
    }

    /// The reason for a kill now, by the limits now.
    fn kill_reason(&self, index: usize, cause: KillCause) -> KillReason {
        let process = self.slots.process(index);
        let ready_timeout = self.groups[process.worker.group].limits.ready_timeout;
        cause.reason(process.was_ready(), ready_timeout, &self.config)
    }

    /// A worker has broken the protocol.
    pub(crate) fn on_breach(&mut self, now: Timestamp, worker: WorkerId, how: Breach) {
        let Some(index) = self.slots.find(worker) else { return };
        if !self.slots.process(index).is_ending() {
            self.kill(now, index, KillCause::Breach(how));
        }
    }
}

/// Why the pool killed a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillReason {
    /// It is ending by itself: the kill only makes sure.
    BeaconLost,
    /// It did not finish a cancelled job in time.
    Cancelled,
    /// It closed its channel and did not end.
    ClosedChannel,
    /// The driver reported this fault of its device.
    DeviceFault(FaultCode),
    /// Its device is out of service.
    DeviceOut,
    /// The deadline of a job that it ran has passed.
    Late,
    /// It has not answered a command in time.
    LateWithCommand {
        /// The time that it had.
        after: Duration,
    },
    /// The pool ends, or its group has no work.
    Leaving,
    /// It was not READY in time.
    NotReady {
        /// The time that it had.
        after: Duration,
    },
    /// It has answered a command that it was not sent.
    UnknownCommand {
        /// The number that it named.
        number: u64,
    },
    /// Others waited behind its dispatch while another device was idle.
    OthersWait,
    /// It gave no sign of life.
    Silent {
        /// How long it was silent.
        after: Duration,
    },
    /// It ran a shard of a job that failed with another shard.
    Unwound,
}

impl KillReason {
    /// What receipts and the reasons of verdicts say of a worker that was killed for it.
    pub(super) fn sentence(self) -> String {
        match self {
            Self::BeaconLost => "its worker ended".to_owned(),
            Self::ClosedChannel | Self::LateWithCommand { .. } | Self::UnknownCommand { .. } => {
                format!("its worker was killed: {self}")
            }
            Self::DeviceFault(fault) => {
                let (name, sentence) = (fault.meaning().name, fault.meaning().sentence);
                format!("its worker was killed over {fault} ({name}): {sentence}")
            }
            Self::Cancelled
            | Self::DeviceOut
            | Self::Late
            | Self::Leaving
            | Self::OthersWait
            | Self::Unwound => "its worker was killed for another".to_owned(),
            Self::Silent { after } => {
                format!("its worker said nothing for {} s and was killed", after.as_secs_f64())
            }
            Self::NotReady { after } => {
                format!("its worker was not READY in {} s and was killed", after.as_secs_f64())
            }
        }
    }

    /// The reason that the next process counts as its restart. `None` if there is no next one, or if the
    /// exit says more.
    pub(super) fn restart(self) -> Option<RestartReason> {
        match self {
            Self::BeaconLost | Self::Leaving => None,
            Self::Cancelled => Some(RestartReason::Cancelled),
            Self::DeviceFault(_) => Some(RestartReason::DeviceFault),
            Self::DeviceOut => Some(RestartReason::DeviceOut),
            Self::Late => Some(RestartReason::Late),
            Self::ClosedChannel | Self::LateWithCommand { .. } | Self::UnknownCommand { .. } => {
                Some(RestartReason::Rejected)
            }
            Self::NotReady { .. } => Some(RestartReason::NotReady),
            Self::OthersWait => Some(RestartReason::OthersWait),
            Self::Silent { .. } => Some(RestartReason::Silent),
            Self::Unwound => Some(RestartReason::Unwound),
        }
    }

    /// A stable word for it: the label of the restart that it causes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.restart() {
            Some(reason) => reason.name(),
            None if self == Self::BeaconLost => "beacon_lost",
            None => "leaving",
        }
    }
}

impl fmt::Display for KillReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BeaconLost => f.write_str("its beacon is lost"),
            Self::Cancelled => f.write_str("its job was cancelled and ran on"),
            Self::ClosedChannel => f.write_str("it closed its channel and lived on"),
            Self::DeviceFault(fault) => {
                let meaning = fault.meaning();
                write!(f, "the driver says {fault} ({}): {}", meaning.name, meaning.sentence)
            }
            Self::DeviceOut => f.write_str("its device is out of service"),
            Self::Late => f.write_str("the deadline of its job has passed"),
            Self::LateWithCommand { after } => {
                let wait = after.as_secs_f64();
                write!(f, "it did not answer a command about its models in {wait} s")
            }
            Self::Leaving => f.write_str("the pool ends, or has nothing for it to do"),
            Self::NotReady { after } => write!(f, "it was not READY in {} s", after.as_secs_f64()),
            Self::UnknownCommand { number } => {
                write!(f, "it has answered command {number}, which it was not sent")
            }
            Self::OthersWait => f.write_str("others waited behind its job while a device was idle"),
            Self::Silent { after } => write!(f, "it said nothing for {} s", after.as_secs_f64()),
            Self::Unwound => f.write_str("another shard of its job has failed and it ran on"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_word_of_its_own_in_the_log() {
        let after = Duration::from_secs(1);
        let mut names = [
            KillReason::BeaconLost,
            KillReason::Cancelled,
            KillReason::DeviceFault(FaultCode::Xid(79)),
            KillReason::DeviceOut,
            KillReason::Late,
            KillReason::Leaving,
            KillReason::NotReady { after },
            KillReason::OthersWait,
            KillReason::Silent { after },
            KillReason::Unwound,
        ]
        .map(KillReason::name);
        names.sort_unstable();
        assert!(names.windows(2).all(|two| two[0] != two[1]), "{names:?}");
    }
}
