//! What clients do: submit, cancel, go away.

use gridpool_protocol::handover::JobNews;
use gridpool_protocol::ids::{ClientId, Group, JobKey};
use gridpool_protocol::message::{Limit, Refusal};
use gridpool_protocol::receipt::{AttemptOutcome, Verdict};

use super::job::Job;
use super::{Pool, shard};
use crate::action::Action;
use crate::event::{JobRequest, Timestamp};

impl Pool {
    /// A client submits a job for workers of a group; the error is why no group runs it.
    pub(crate) fn on_submitted(
        &mut self,
        now: Timestamp,
        client: ClientId,
        request: Box<JobRequest>,
        group: Result<Group, String>,
    ) {
        if self.goes_over(client) {
            // It hears nothing more of this job, and submits it to the successor.
            return self.act(Action::Discard { job: request.job });
        }
        if self.is_known(client, &request) {
            return;
        }
        let group = match group {
            Ok(group) => group,
            Err(_) if self.is_draining() && !self.is_replaced() => {
                return self.turn_down(now, client, &request, Refusal::Draining);
            }
            Err(why) => return self.turn_down(now, client, &request, Refusal::Invalid(why)),
        };
        if let Some(refusal) = self.refusal(now, client, &request, group) {
            let counters = &mut self.groups[group].counters;
            let count = |is_so: bool| if is_so { u64::from(request.jobs) } else { 0 };
            counters.refused_busy += count(matches!(refusal, Refusal::Busy(_)));
            counters.refused_poison += count(matches!(refusal, Refusal::Poison(_)));
            return self.turn_down(now, client, &request, refusal);
        }
        let (id, key) = (request.job, request.key);
        self.groups[group].accept(&request);
        self.accounts.accept(now, &request);
        let devices = if request.divisible { self.devices_that_may_serve(group) } else { 1 };
        let shards = shard::cut(
            &request,
            devices,
            self.groups[group].live_cost(&request.principal),
            &self.config,
        );
        let count = shards.len();
        let job = Job::new(now, client, request, group, shards);
        if self.has_successor() {
            self.act(Action::Tell(JobNews::Live(job.name())));
        }
        self.jobs.insert(job);
        (0..count).for_each(|shard| self.enqueue(id, shard));
        self.act(Action::Accept { client, job: id, key });
    }

    /// Answers a submission whose key has a live job or a remembered verdict.
    fn is_known(&mut self, client: ClientId, request: &JobRequest) -> bool {
        let (job, key) = (request.job, request.key);
        let another =
            || Refusal::Invalid(format!("key {key} was used for another job; choose a new key"));
        if let Some(live) = self.jobs.by_key(&request.principal, key) {
            let live = &self.jobs[live];
            if live.request.fingerprint != request.fingerprint {
                self.refuse(client, request, another());
            } else if live.client == client {
                self.act(Action::Accept { client, job, key });
                self.act(Action::Discard { job });
            } else {
                self.refuse(client, request, Refusal::KeyInUse(key));
            }
            return true;
        }
        if self.jobs.own(client, key).is_some() {
            // Of another principal on the gateway's connection: a message could mean either.
            self.refuse(client, request, Refusal::KeyInUse(key));
            return true;
        }
        match self.verdicts.find(&request.principal, key) {
            None => return false,
            Some((fingerprint, receipt)) if fingerprint == request.fingerprint => {
                self.act(Action::Discard { job });
                self.act(Action::Replay { client, key, receipt: Box::new(receipt) });
            }
            Some(_) => self.refuse(client, request, another()),
        }
        true
    }

    /// Refuses a job, and counts that against its principal.
    fn turn_down(
        &mut self,
        now: Timestamp,
        client: ClientId,
        request: &JobRequest,
        refusal: Refusal,
    ) {
        self.accounts.refuse(now, &request.principal, request.jobs);
        self.refuse(client, request, refusal);
    }

    /// Why a submission is refused, if it is.
    fn refusal(
        &self,
        now: Timestamp,
        client: ClientId,
        request: &JobRequest,
        group: Group,
    ) -> Option<Refusal> {
        if let Some(content) = request.content.filter(|&content| self.denylist.has(content)) {
            return Some(Refusal::Poison(content));
        }
        if request.is_bundle() && self.denylist.has_of(&request.work) {
            // One of its jobs may be such a one: their contents are compared one by one.
            return Some(Refusal::Bundled);
        }
        let state = &self.groups[group];
        // The connections that stay with a replaced pool may submit as long as there are workers.
        if self.is_draining() && (!self.is_replaced() || state.is_leaving()) {
            return Some(Refusal::Draining);
        }
        if let Some(why) = self.accounts.why_never(request) {
            return Some(if request.is_bundle() {
                Refusal::Bundled
            } else {
                Refusal::Invalid(why)
            });
        }
        let (config, own) = (&self.config, &request.principal);
        // What one principal may have while others wait.
        let principals = state.queue.principals_with(own);
        let jobs_max = (config.principal_jobs_max / principals).max(1);
        let bytes_max = config.principal_bytes_max / principals as u64;
        let jobs = request.jobs as usize;
        let most = [config.client_jobs_max, config.queue_jobs_max, jobs_max];
        if request.is_bundle() && most.into_iter().any(|most| jobs > most) {
            return Some(Refusal::Bundled);
        }
        let limit = if let Some(at) = state.kills.back_at(now, own, config.kills_max) {
            let seconds = at.since(now).as_micros().div_ceil(1_000_000);
            Limit::Kills { back_s: u32::try_from(seconds).unwrap_or(u32::MAX) }
        } else if let Some(quota) = self.accounts.limit(now, request) {
            quota
        } else if self.jobs.count_of(client, group) + jobs > config.client_jobs_max {
            Limit::ClientJobs
        } else if state.queue.jobs() + jobs > config.queue_jobs_max {
            Limit::QueueJobs
        } else if state.queue.jobs_of(own) + jobs > jobs_max {
            Limit::PrincipalJobs
        } else if self.inline_bytes(group.role()) + request.inline_bytes > config.queue_bytes_max {
            Limit::QueueBytes
        } else if self.inline_bytes_of(group.role(), own) + request.inline_bytes > bytes_max {
            Limit::PrincipalBytes
        } else {
            return None;
        };
        Some(Refusal::Busy(limit))
    }

    fn refuse(&mut self, client: ClientId, request: &JobRequest, refusal: Refusal) {
        let (job, key) = (request.job, request.key);
        self.act(Action::Refuse { client, job, key, refusal });
    }

    pub(crate) fn on_cancel(&mut self, now: Timestamp, client: ClientId, key: JobKey) {
        // Another's job, or one that has its verdict already: cancel and completion have crossed.
        let Some(job) = self.jobs.own(client, key) else { return };
        self.end_early(now, job, AttemptOutcome::Cancelled);
        self.finish(now, job, Verdict::Cancelled, "cancelled by its client".to_owned());
    }

    pub(crate) fn on_client_gone(&mut self, now: Timestamp, client: ClientId) {
        self.for_each_group(|pool, group| pool.orphan_jobs(now, client, group));
        self.forget_client(client);
    }

    /// Begins no more attempts of a client's jobs. Workers are asked to stop those that run; their results are
    /// dropped.
    fn orphan_jobs(&mut self, now: Timestamp, client: ClientId, group: Group) {
        for id in self.jobs.take_of(client, group) {
            let job = &mut self.jobs[id];
            job.orphaned = true;
            let asked = job.running().filter(|&(shard, ..)| !job.shards[shard].makes_room);
            let withdrawn = asked.map(|(_, attempt, worker)| Action::Withdraw { worker, attempt });
            self.actions.extend(withdrawn);
            self.unqueue(id);
            self.finish_if_ended(now, id);
        }
    }
}
