//! What clients do: submit, cancel, go away.

use std::collections::BTreeSet;

use gridpool_protocol::ids::{ClientId, JobKey};
use gridpool_protocol::message::{Limit, Refusal};
use gridpool_protocol::receipt::{AttemptOutcome, Verdict};

use super::event::{Action, JobRequest, Timestamp};
use super::job::Job;
use super::{Phase, Pool, part};

/// Why nothing is accepted where nothing could be done with it.
const RESTS: &str = "this pool has no models: `gridpool model load NAME=PATH` gives it one";

impl Pool {
    /// Whether a key is that of a live job, or of one whose verdict is remembered.
    #[must_use]
    pub fn knows(&self, key: JobKey) -> bool {
        self.keys.contains_key(&key) || self.verdicts.find(key).is_some()
    }

    pub(super) fn on_submitted(&mut self, now: Timestamp, client: ClientId, request: JobRequest) {
        let (job, key) = (request.job, request.key);
        if let Some(live) = self.keys.get(&key) {
            let live = &self.jobs[live];
            let same = live.client == client
                && live.request.program_hash == request.program_hash
                && live.request.items == request.items;
            if same {
                self.actions.push_back(Action::Discard { job });
                self.actions.push_back(Action::Accept { client, key });
            } else {
                self.refuse(client, &request, Refusal::KeyInUse(key));
            }
            return;
        }
        if let Some(receipt) = self.verdicts.find(key) {
            if *receipt.program_hash == *request.program_hash && receipt.items == request.items {
                let receipt = Box::new(receipt.clone());
                self.actions.push_back(Action::Discard { job });
                self.actions.push_back(Action::Replay { client, key, receipt });
            } else {
                let text = format!("key {key} was used for another job; choose a new key");
                self.refuse(client, &request, Refusal::Invalid(text));
            }
            return;
        }
        if let Some(content) = request.content.filter(|&content| self.convicts.has(content)) {
            self.counters.refused_poison += 1;
            self.refuse(client, &request, Refusal::Poison(content));
            return;
        }
        if let Some(refusal) = self.full(client, &request) {
            self.refuse(client, &request, refusal);
            return;
        }
        self.counters.accepted += 1;
        self.inline_bytes += request.inline_bytes;
        self.keys.insert(key, job);
        self.client_jobs.entry(client).or_default().insert(job);
        self.bytes_high = self.bytes_high.max(self.inline_bytes);
        let parts = part::cut(&request, self.devices_that_may_serve(), &self.config);
        let new = Job::new(now, client, request, parts);
        self.deadlines.insert((new.deadline, job));
        let parts = new.parts.len();
        self.jobs.insert(job, new);
        (0..parts).for_each(|part| self.enqueue(job, part));
        self.actions.push_back(Action::Accept { client, key });
    }

    /// The limit that a submission would break.
    fn full(&self, client: ClientId, request: &JobRequest) -> Option<Refusal> {
        match self.phase {
            Phase::Serving => {}
            Phase::Draining { .. } | Phase::Leaving | Phase::Left => {
                return Some(Refusal::Draining);
            }
            Phase::Resting => return Some(Refusal::Invalid(RESTS.to_owned())),
        }
        let own = self.client_jobs.get(&client).map_or(0, BTreeSet::len);
        let limit = if own >= self.config.client_jobs_max {
            Limit::ClientJobs
        } else if self.queue.jobs() >= self.config.queue_jobs_max {
            Limit::QueueJobs
        } else if self.inline_bytes + request.inline_bytes > self.config.queue_bytes_max {
            Limit::QueueBytes
        } else {
            return None;
        };
        Some(Refusal::Busy(limit))
    }

    fn refuse(&mut self, client: ClientId, request: &JobRequest, refusal: Refusal) {
        if matches!(refusal, Refusal::Busy(_)) {
            self.counters.refused_busy += 1;
        }
        let (job, key) = (request.job, request.key);
        self.actions.push_back(Action::Refuse { client, job, key, refusal });
    }

    pub(super) fn on_cancel(&mut self, now: Timestamp, client: ClientId, key: JobKey) {
        // A key that is unknown here has its verdict already: cancel and completion have crossed.
        let Some(&job) = self.keys.get(&key) else { return };
        if self.jobs[&job].client != client {
            return;
        }
        self.end_early(now, job, AttemptOutcome::Cancelled);
        self.finish(now, job, Verdict::Cancelled, "cancelled by its client".to_owned());
    }

    pub(super) fn on_client_gone(&mut self, now: Timestamp, client: ClientId) {
        let Some(jobs) = self.client_jobs.remove(&client) else { return };
        for id in jobs {
            let job = self.jobs.get_mut(&id).expect("a client's jobs are live");
            job.orphaned = true;
            // What runs ends by itself and frees its device; its result goes nowhere.
            if self.window > 1 {
                let withdrawn =
                    job.running().map(|(_, attempt, worker)| Action::Withdraw { worker, attempt });
                self.actions.extend(withdrawn);
            }
            self.unqueue(id);
            self.finish_if_ended(now, id);
        }
        self.queue.forget(client);
    }
}
