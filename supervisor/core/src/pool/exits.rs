//! How processes end, or fail to start: the cause, the blame, and what follows for the slot, the service
//! and the jobs. `losses` decides what happens to lost attempts.

use std::sync::Arc;
use std::time::Duration;

use gridpool_protocol::exit::worker as exit_code;
use gridpool_protocol::fault::{FaultCode, Response};
use gridpool_protocol::ids::WorkerId;
use gridpool_protocol::metrics::RestartReason;
use gridpool_protocol::receipt::DeviceInfo;

use super::Pool;
use super::kill::{KillCause, KillReason};
use super::losses::{Loss, LossKind};
use super::meters::{self, End};
use super::process::Process;
use super::slots::Blame;
use super::starts::Vacated;
use crate::event::{Exit, Timestamp};
use crate::policy::PolicyTable;

/// How long a process that has closed its channel may take to end by itself.
const EXIT_GRACE: Duration = Duration::from_secs(1);

/// The end of a process, with all that decides the blame.
struct Ending<'a> {
    worker: WorkerId,
    exit: &'a Exit,
    device: Arc<DeviceInfo>,
    /// Why the pool killed it; `None` if it was ending by itself.
    cause: Option<KillCause>,
    /// The same in words.
    reason: Option<KillReason>,
    /// The first sign of the end.
    since: Timestamp,
    was_ready: bool,
    is_changing: bool,
    /// The pool had asked it to end, and perhaps killed it when it did not: no evidence against the device.
    was_asked: bool,
    /// The policy's response to how it ended.
    of_exit: Response,
    /// The policy's response to why it ended.
    response: Response,
}

impl<'a> Ending<'a> {
    fn of(now: Timestamp, process: &Process, exit: &'a Exit, policy: &PolicyTable) -> Self {
        let killed = process.killed();
        let by_pool = killed.filter(|killed| killed.cause != KillCause::Beacon);
        let cause = by_pool.map(|killed| killed.cause);
        let was_ready = process.was_ready();
        let of_exit = policy.response_to_exit(exit.code(), exit.fault);
        let own_fault = cause.and_then(|cause| cause.own_fault(was_ready));
        Self {
            worker: process.worker,
            exit,
            device: process.device_info(),
            cause,
            reason: by_pool.map(|killed| killed.reason),
            since: killed.map_or(now, |killed| killed.since),
            was_ready,
            is_changing: process.is_changing,
            was_asked: process.is_stopping() || cause == Some(KillCause::Leaving),
            of_exit,
            response: own_fault.map_or(of_exit, |fault| policy.response(fault)),
        }
    }

    /// The worker's fault. `None` if the pool killed it to free its device, or for a fault of the device,
    /// which was counted before.
    fn fault(&self) -> Option<FaultCode> {
        match self.cause {
            None => Some(self.exit.fault.unwrap_or_else(|| self.exit.code())),
            Some(cause) => cause.own_fault(self.was_ready),
        }
    }

    /// The last fault that its device shows, if the worker is at fault.
    fn last_fault(&self) -> Option<String> {
        let (Some(cause), Some(reason)) = (self.cause, self.reason) else {
            return Some(format!("{} died: {}", self.worker, self.exit));
        };
        cause.own_fault(self.was_ready)?;
        let why = reason.sentence();
        Some(why.replacen("its worker", &self.worker.to_string(), 1))
    }

    /// Whose fault it is. `has_suspects`: a worker was lost before with a job that it ran.
    fn blame(&self, has_suspects: bool) -> Blame {
        match self.cause {
            Some(KillCause::FreeDevice(_) | KillCause::Leaving) => Blame::Pool,
            Some(KillCause::Breach(_) | KillCause::Hang | KillCause::Mute) | None
                if self.response == Response::Retry =>
            {
                Blame::Outside
            }
            Some(
                KillCause::Beacon
                | KillCause::Breach(_)
                | KillCause::DeviceFault(_)
                | KillCause::Hang
                | KillCause::Mute,
            )
            | None => match has_suspects {
                true => Blame::Pool,
                false => Blame::Device,
            },
        }
    }

    /// Whether the next process would end the same way.
    fn is_final(&self) -> bool {
        [self.response, self.of_exit].contains(&Response::Halt)
    }

    /// What the end means for its outstanding attempts.
    fn loss(self, policy: &PolicyTable) -> Loss {
        let kind = match self.cause {
            Some(cause) => cause.loss(policy),
            None if self.exit.code() == FaultCode::Exit(exit_code::WORN) => LossKind::Unbegun,
            None if self.response == Response::Retry => LossKind::Killed,
            None => LossKind::Died { evidence: self.response == Response::Suspect },
        };
        let kind = if self.is_changing { kind.without_evidence() } else { kind };
        let (why, detail) = match self.reason {
            None => (format!("its worker ended with {}", self.exit), self.exit.to_string()),
            Some(reason) => (reason.sentence(), reason.sentence()),
        };
        let (device, since, is_ordered) = (self.device, self.since, self.exit.is_ordered);
        Loss { device, kind, detail, why, may_write: false, since, is_ordered, capsule: None }
    }
}

impl Pool {
    /// A process is ending: its cause is known when it is gone. A standby takes over now.
    pub(super) fn on_beacon_lost(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        last_words: Option<String>,
    ) {
        let Some(index) = self.hear(now, worker) else { return };
        if self.slots.process(index).is_ending() {
            return;
        }
        let why = match last_words {
            Some(words) => format!("its worker ended: {words}"),
            None => "its worker ended".to_owned(),
        };
        self.kill_because(now, index, KillCause::Beacon, why);
    }

    /// A process has closed its channel. It has a moment to end by itself.
    pub(super) fn on_channel_closed(&mut self, now: Timestamp, worker: WorkerId) {
        let Some(index) = self.hear(now, worker) else { return };
        self.slots.process_mut(index).must_end_by(now.after(EXIT_GRACE));
    }

    pub(super) fn on_spawn_failed(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        detail: &str,
        is_final: bool,
    ) {
        let Some(index) = self.hear(now, worker) else { return };
        self.slots[index].vacate(now);
        self.ended.push(worker);
        self.devices.service_of(worker).last_fault =
            format!("{worker}: could not be started: {detail}");
        self.slots[index].end.by(now, RestartReason::SpawnFailed);
        if self.groups[worker.group].is_leaving() {
            return;
        }
        let code = if is_final { FaultCode::NoBinary } else { FaultCode::SpawnFailed };
        self.faults.note(code);
        let response = self.policy.response(code);
        let blame = match response == Response::Restart {
            true => Blame::Device,
            // The system was out of processes or descriptors: not the device's fault.
            false => Blame::Outside,
        };
        let vacated = Vacated {
            worker,
            blame,
            is_final: response == Response::Halt,
            reclaims: false,
            was_ready: false,
            served: false,
            worked: false,
        };
        self.on_vacated(now, index, vacated);
        if response == Response::Quarantine {
            let fault = self.devices.service_of(worker).last_fault.clone();
            self.give_up_device(now, worker.device, &fault);
        }
    }

    pub(super) fn on_exited(&mut self, now: Timestamp, worker: WorkerId, exit: &Exit) {
        let Some(index) = self.hear(now, worker) else { return };
        self.begin_death_report(now, index, exit);
        self.ended.push(worker);
        let is_leaving = self.groups[worker.group].is_leaving();
        let Some(process) = self.slots[index].vacate(now) else { return };
        let ending = Ending::of(now, &process, exit, &self.policy);
        self.note_end(index, &process, &ending);
        // While the pool leaves, the slot stays closed.
        if ending.was_asked && !is_leaving {
            self.on_ended_as_asked(now, index, worker);
        } else if !is_leaving {
            self.judge(now, index, &process, &ending);
        }
        if let Some(outstanding) = process.into_outstanding() {
            let loss = ending.loss(&self.policy);
            self.on_lost(now, worker, outstanding, loss);
        }
    }

    /// Records why the process ended, for the metrics of the next one.
    fn note_end(&mut self, index: usize, process: &Process, ending: &Ending<'_>) {
        let killed = process.killed().map(|killed| killed.reason);
        let end = &mut self.slots[index].end;
        match meters::reason(killed, ending.exit).filter(|_| !ending.was_asked) {
            Some(reason) => end.by(ending.since, reason),
            None => *end = End::default(),
        }
    }

    /// Judges the device by the death of a process, and decides when the next one starts.
    fn judge(&mut self, now: Timestamp, index: usize, process: &Process, ending: &Ending<'_>) {
        let worker = ending.worker;
        if let Some(fault) = ending.fault() {
            self.faults.note(fault);
        }
        let last_fault = ending.last_fault();
        if let Some(last_fault) = &last_fault {
            self.devices.service_of(worker).last_fault.clone_from(last_fault);
        }
        let has_suspects = process.outstanding().is_some_and(|all| all.front.has_suspects);
        self.promote(now, worker.device, worker.group);
        let vacated = Vacated {
            worker,
            blame: ending.blame(has_suspects),
            is_final: ending.is_final(),
            reclaims: true,
            was_ready: ending.was_ready,
            served: process.has_served(),
            worked: process.answered_count() > 0,
        };
        self.on_vacated(now, index, vacated);
        if ending.response == Response::Quarantine
            && let Some(last_fault) = last_fault
        {
            self.give_up_device(now, worker.device, &last_fault);
        }
    }
}
