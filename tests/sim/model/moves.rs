//! Which attempts run elsewhere before the killed process is gone: only those whose results it cannot
//! write, and never so often that a job kills more workers than its denylisting takes.

use gridpool_protocol::ids::{AttemptId, JobId, WorkerId};
use gridpool_protocol::receipt::AttemptOutcome;

use super::Model;
use super::slots::{SlotId, State, Why};

impl Model {
    /// Moves the attempts that may move from a worker that was just killed.
    pub(super) fn attempts_move(&mut self, at: SlotId, why: Why) {
        let worker = self.worker(at);
        let outstanding = self.slot(at).outstanding().to_vec();
        let Some((front, rest)) = outstanding.split_first() else { return };
        for sent in rest.iter().flat_map(|dispatch| &dispatch.attempts) {
            if self.may_move(sent.attempt) {
                self.coverage.hit("move: it had not begun");
                self.is_marked_as_moved(at, sent.attempt);
                self.attempt_preempted(sent.attempt, worker);
            }
        }
        let shared = front.attempts.len() > 1;
        for sent in &front.attempts {
            if !self.may_move(sent.attempt) {
                continue;
            }
            let outcome = match why {
                Why::Beacon | Why::Channel | Why::Command { .. } | Why::Driver { .. } => {
                    AttemptOutcome::WorkerDied
                }
                Why::Hang | Why::Mute => AttemptOutcome::Hang,
                Why::FreeDevice(_) | Why::Leaving => {
                    self.coverage.hit("move: its device is freed");
                    self.is_marked_as_moved(at, sent.attempt);
                    self.attempt_preempted(sent.attempt, worker);
                    continue;
                }
            };
            if !shared && self.must_wait_for_the_end(at, sent.attempt.job) {
                continue;
            }
            self.coverage.hit(match (outcome == AttemptOutcome::WorkerDied, shared) {
                (true, false) => "move: its worker is ending",
                (true, true) => "move: one of several whose worker is ending",
                (false, false) => "move: its worker hangs",
                (false, true) => "move: one of several whose worker hangs",
            });
            self.is_marked_as_moved(at, sent.attempt);
            self.attempt_moved(sent.attempt, worker, outcome, shared);
        }
    }

    /// Whether another process may run it beside the old one.
    fn may_move(&mut self, attempt: AttemptId) -> bool {
        let Some(job) = self.jobs.get(&attempt.job).filter(|job| job.runs_attempt(attempt)) else {
            return false;
        };
        if job.is_written_in_place() {
            self.coverage.hit("move: not while its result may be written");
            return false;
        }
        if !job.request.idempotent || job.orphaned {
            self.coverage.hit("move: not a job that must not or need not run again");
            return false;
        }
        true
    }

    /// Whether the death of the worker, which ran only this job, may denylist the job.
    fn must_wait_for_the_end(&mut self, at: SlotId, id: JobId) -> bool {
        let pending = self.deaths_pending(at, id);
        let job = &self.jobs[&id];
        if job.shards[0].tries >= self.config.attempts_max {
            self.coverage.hit("move: not after the last attempt");
            return true;
        }
        let enough = self.deaths_max(job);
        if job.evidence + 1 >= enough {
            self.coverage.hit("move: not if this death may denylist it");
            return true;
        }
        if job.evidence + pending + 1 >= enough {
            self.coverage.hit("move: not if deaths to come may denylist it");
            return true;
        }
        false
    }

    /// Other processes whose end may be evidence against only this job.
    fn deaths_pending(&self, at: SlotId, id: JobId) -> u32 {
        let speaks = self.slots().filter(|&(other, slot)| {
            let State::Killed { outstanding, .. } = &slot.state else { return false };
            let front = outstanding.0.first().map_or(&[][..], |front| &front.attempts);
            let alone = matches!(front, [sent] if sent.moved && sent.attempt.job == id);
            alone && other != at
        });
        u32::try_from(speaks.count()).expect("there are few")
    }

    fn is_marked_as_moved(&mut self, at: SlotId, attempt: AttemptId) {
        if let State::Killed { outstanding, .. } = &mut self.slot_mut(at).state {
            let own = outstanding.all().filter(|sent| sent.attempt == attempt);
            own.for_each(|sent| sent.moved = true);
        }
    }

    /// It was lost with its worker, and its shard waits again. A shared loss does not count.
    fn attempt_moved(
        &mut self,
        attempt: AttemptId,
        worker: WorkerId,
        outcome: AttemptOutcome,
        shared: bool,
    ) {
        let job = self.jobs.get_mut(&attempt.job).expect("what may move is live");
        let shard = job.shard_of(attempt);
        shard.running = None;
        shard.tries -= u32::from(shared);
        shard.failed_on = Some(worker.device);
        let items = shard.items;
        job.attempts.push((worker, outcome, items));
        self.group_mut(worker.group).retries += 1;
        self.goes_back(attempt.job);
    }
}
