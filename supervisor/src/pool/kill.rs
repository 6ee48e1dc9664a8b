//! Why a worker is killed: the cause decides what its death counts as, the reason is told.

use std::fmt;
use std::time::Duration;

use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::metrics::RestartReason;
use gridpool_protocol::receipt::AttemptOutcome;

use super::config::PoolConfig;

/// Why a worker was killed: decides what its death counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KillCause {
    /// Its beacon was lost: it is ending by itself, and how will be known when it has.
    Beacon,
    /// The driver told of this fault of its device: what it ran may have brought that about.
    DeviceFault(FaultCode),
    /// A job it ran has its verdict already, or others wait behind it while a device idles, and the
    /// worker would not come to its end; or its device is out of service.
    FreeDevice(Freed),
    /// It said nothing for too long, or was not READY in time.
    Hang,
    /// The pool ends, or has nothing to do.
    Leaving,
}

/// For whose sake a device is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freed {
    /// The device is out of service.
    DeviceOut,
    /// An attempt of this outcome has run on for too long.
    Ended(AttemptOutcome),
    /// Others wait behind what it runs, and another device idles.
    OthersWait,
}

impl KillCause {
    /// What is told of it.
    pub(super) fn reason(self, was_ready: bool, config: &PoolConfig) -> KillReason {
        match self {
            Self::Beacon => KillReason::BeaconLost,
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
            Self::Hang => KillReason::NotReady { after: config.ready_timeout },
            Self::Leaving => KillReason::Leaving,
        }
    }
}

/// Why the pool has killed a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillReason {
    /// It is ending by itself: this only makes sure of it.
    BeaconLost,
    /// A job that it ran was cancelled, and it did not come to that job's end.
    Cancelled,
    /// The driver told of this fault of its device.
    DeviceFault(FaultCode),
    /// Its device is out of service.
    DeviceOut,
    /// The deadline of a job that it ran has passed.
    Late,
    /// The pool ends, or has nothing for it to do.
    Leaving,
    /// It was not READY in time.
    NotReady {
        /// The time that it had.
        after: Duration,
    },
    /// Others waited behind what it ran while another device was idle.
    OthersWait,
    /// It gave no sign of life.
    Silent {
        /// For so long.
        after: Duration,
    },
    /// A part that it ran is of a job that another part has ended.
    Unwound,
}

impl KillReason {
    /// What the next process in its place is counted under. `None` where there is none, or where how the
    /// process ended says more.
    pub(super) fn restart(self) -> Option<RestartReason> {
        match self {
            Self::BeaconLost | Self::Leaving => None,
            Self::Cancelled => Some(RestartReason::Cancelled),
            Self::DeviceFault(_) => Some(RestartReason::DeviceFault),
            Self::DeviceOut => Some(RestartReason::DeviceOut),
            Self::Late => Some(RestartReason::Late),
            Self::NotReady { .. } => Some(RestartReason::NotReady),
            Self::OthersWait => Some(RestartReason::OthersWait),
            Self::Silent { .. } => Some(RestartReason::Silent),
            Self::Unwound => Some(RestartReason::Unwound),
        }
    }

    /// A word for it, which stays; the label of the restart that it brings about.
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
            Self::DeviceFault(fault) => {
                let meaning = fault.meaning();
                write!(f, "the driver says {fault} ({}): {}", meaning.name, meaning.sentence)
            }
            Self::DeviceOut => f.write_str("its device is out of service"),
            Self::Late => f.write_str("the deadline of its job has passed"),
            Self::Leaving => f.write_str("the pool ends, or has nothing for it to do"),
            Self::NotReady { after } => write!(f, "it was not READY in {} s", after.as_secs_f64()),
            Self::OthersWait => f.write_str("others waited behind its job while a device was idle"),
            Self::Silent { after } => write!(f, "it said nothing for {} s", after.as_secs_f64()),
            Self::Unwound => f.write_str("another part of its job has failed and it ran on"),
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
