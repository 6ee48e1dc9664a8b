//! What a rig shows: its workers, their attempts, and what the pool has done.

use gridpool_protocol::receipt::AttemptOutcome;

use super::*;

impl Rig {
    pub(super) fn rows(&self) -> Vec<WorkerStatus> {
        self.core.workers().into_iter().map(|(_, row)| row).collect()
    }

    pub(super) fn devices(&self) -> u32 {
        u32::try_from(self.rows().len()).unwrap()
    }

    pub(super) fn worker(&self, index: u32) -> WorkerId {
        self.core.worker_on(device(index), None).expect("the device has a process")
    }

    pub(super) fn state(&self, index: u32) -> WorkerState {
        self.rows()[index as usize].state
    }

    /// The first attempt that the device's worker runs.
    pub(super) fn attempt(&self, index: u32) -> Option<AttemptId> {
        let worker = self.core.worker_on(device(index), None)?;
        Some(self.running.get(&worker)?.front()?.first()?.attempt)
    }

    /// The attempts that run, by device.
    pub(super) fn runs(&self, index: u32) -> Option<(u64, u32)> {
        self.attempt(index).map(|attempt| (attempt.job.0, attempt.number))
    }

    /// The jobs of every dispatch that the device's worker has, front first.
    pub(super) fn dispatches(&self, index: u32) -> Vec<Vec<u64>> {
        let jobs =
            |dispatch: &Vec<Assignment>| dispatch.iter().map(|sent| sent.attempt.job.0).collect();
        let worker = self.core.worker_on(device(index), None);
        let dispatches = worker.and_then(|worker| self.running.get(&worker));
        dispatches.into_iter().flatten().map(jobs).collect()
    }

    /// Every verdict given under `key`.
    pub(super) fn verdicts(&self, key: u128) -> Vec<Verdict> {
        self.receipts(key).iter().map(|receipt| receipt.verdict).collect()
    }

    pub(super) fn receipt(&self, key: u128) -> &Receipt {
        let receipts = self.receipts(key);
        let [receipt] = receipts[..] else { panic!("{} verdicts", receipts.len()) };
        receipt
    }

    /// How the attempts of a job with a verdict ended.
    pub(super) fn outcomes(&self, key: u128) -> Vec<AttemptOutcome> {
        self.receipt(key).attempts.iter().map(|attempt| attempt.outcome).collect()
    }

    pub(super) fn receipts(&self, key: u128) -> Vec<&Receipt> {
        let mut receipts = Vec::new();
        for action in self.actions() {
            if let Action::Finish { key: of, receipt, .. } = action
                && *of == JobKey(key)
            {
                receipts.push(&**receipt);
            }
        }
        receipts
    }

    pub(super) fn refusals(&self) -> Vec<&Refusal> {
        let mut refusals = Vec::new();
        for action in self.actions() {
            if let Action::Refuse { refusal, .. } = action {
                refusals.push(refusal);
            }
        }
        refusals
    }

    pub(super) fn actions(&self) -> impl Iterator<Item = &Action> {
        self.seen.iter().map(|(_, action)| action)
    }

    pub(super) fn count(&self, what: impl Fn(&Action) -> bool) -> usize {
        self.actions().filter(|action| what(action)).count()
    }

    pub(super) fn kills(&self) -> usize {
        self.count(|action| matches!(action, Action::Kill { .. }))
    }

    /// When each process of the device started, in milliseconds.
    pub(super) fn spawns(&self, index: u32) -> Vec<u128> {
        let spawned = |(at, action): &(Timestamp, Action)| {
            let Action::Spawn { worker, .. } = action else { return None };
            (worker.device == device(index)).then_some(at.0.as_millis())
        };
        self.seen.iter().filter_map(spawned).collect()
    }

    /// The latest death report, once.
    pub(super) fn take_death(&mut self) -> Option<DeathReport> {
        self.death.take()
    }

    /// Why the device's worker was killed.
    pub(super) fn kill_reason(&self, index: u32) -> Option<KillReason> {
        let own = self.worker(index);
        self.actions().find_map(|action| {
            let Action::Kill { worker, reason } = action else { return None };
            (*worker == own).then_some(*reason)
        })
    }

    /// Why a device is out of service, if it is.
    pub(super) fn quarantine(&self, index: u32) -> Option<Quarantine<'_>> {
        self.core.quarantines().find(|out| out.device == device(index))
    }

    /// The rule that took a device out of service last.
    pub(super) fn rule(&self, index: u32) -> Option<Rule> {
        self.core.pool.devices.at(device(index)).service(self.group).rule()
    }

    /// Whether every accepted job has its verdict or is live, and none is counted twice.
    pub(super) fn assert_counters_add_up(&self, live: u64) {
        let c = self.core.counters();
        let verdicts = c.ok + c.failed + c.deadline + c.poison + c.cancelled + c.device_lost;
        assert_eq!(c.accepted, verdicts + live, "{c:?}");
        let finished = self.count(|action| matches!(action, Action::Finish { .. }));
        assert_eq!(verdicts, finished as u64);
    }
}
