//! What clients ask for, and the replies.

use std::collections::BTreeSet;

use gridpool_core::event::{JobRequest, Timestamp};
use gridpool_protocol::ids::{ClientId, Group, JobId, JobKey};
use gridpool_protocol::message::{Limit, Refusal};
use gridpool_protocol::principal::Principal;
use gridpool_protocol::receipt::{AttemptOutcome, Receipt, Verdict};

use super::jobs::Job;
use super::outstanding::Dispatch;
use super::{Broken, Model, holds};

/// The due reply to a submission.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    Accept(ClientId, JobId, JobKey),
    Refuse(ClientId, JobId, JobKey, Refusal),
    Replay(ClientId, JobKey, Verdict),
}

/// How many jobs these stand for.
fn count<'a>(jobs: impl Iterator<Item = &'a Job>) -> usize {
    usize::try_from(jobs.map(Job::count).sum::<u64>()).expect("there are few")
}

impl Model {
    pub(super) fn submitted(&mut self, now: Timestamp, client: ClientId, request: &JobRequest) {
        let (job, key) = (request.job, request.key);
        if self.goes_over(client) {
            self.coverage.hit("hand over: a submission crosses");
            self.due.discards.insert(job);
            return;
        }
        let name = (request.principal.clone(), key);
        let mut live = self.jobs.values().filter(|job| job.request.key == key);
        let is_own = |job: &&Job| job.request.principal == request.principal;
        if let Some(live) = live.clone().find(is_own) {
            if live.request.fingerprint != request.fingerprint {
                self.coverage.hit("refuse: key of another live job");
                let refusal = Refusal::Invalid(String::new());
                self.due.replies.push_back(Reply::Refuse(client, job, key, refusal));
            } else if live.client == client {
                self.coverage.hit("accept: same key again");
                self.due.discards.insert(job);
                self.due.replies.push_back(Reply::Accept(client, job, key));
            } else {
                self.coverage.hit("refuse: key in use");
                self.due.replies.push_back(Reply::Refuse(client, job, key, Refusal::KeyInUse(key)));
            }
            return;
        }
        if live.any(|job| job.client == client) {
            self.coverage.hit("refuse: key of another principal on the same connection");
            self.due.replies.push_back(Reply::Refuse(client, job, key, Refusal::KeyInUse(key)));
            return;
        }
        if let Some(known) = self.memory.get(&name) {
            if known.fingerprint == request.fingerprint {
                self.coverage.hit("replay");
                self.due.discards.insert(job);
                self.due.replies.push_back(Reply::Replay(client, key, known.verdict));
            } else {
                self.coverage.hit("refuse: key of another job");
                let refusal = Refusal::Invalid(String::new());
                self.due.replies.push_back(Reply::Refuse(client, job, key, refusal));
            }
            return;
        }
        let group = match self.group_for(&request.work) {
            Ok(group) => group,
            Err(why) => {
                let ends = self.is_draining() && !self.is_replaced();
                self.coverage.hit(if ends { "refuse: draining" } else { why });
                let invalid = Refusal::Invalid(String::new());
                let refusal = if ends { Refusal::Draining } else { invalid };
                self.account_of(&request.principal).refused += u64::from(request.jobs);
                self.due.replies.push_back(Reply::Refuse(client, job, key, refusal));
                return;
            }
        };
        if let Some(content) = request.content.filter(|&content| self.denylist.knows(content)) {
            self.coverage.hit("refuse: POISON");
            self.counters.refused_poison += u64::from(request.jobs);
            self.account_of(&request.principal).refused += u64::from(request.jobs);
            self.due.replies.push_back(Reply::Refuse(client, job, key, Refusal::Poison(content)));
            return;
        }
        if request.is_bundle() && self.denylist.knows_one_of(&request.work) {
            self.coverage.hit("bundle: one of its jobs may be denylisted");
            self.account_of(&request.principal).refused += u64::from(request.jobs);
            self.due.replies.push_back(Reply::Refuse(client, job, key, Refusal::Bundled));
            return;
        }
        if let Some(refusal) = self.limit_reached(now, client, request, group) {
            if matches!(refusal, Refusal::Busy(_)) {
                self.counters.refused_busy += u64::from(request.jobs);
            }
            self.account_of(&request.principal).refused += u64::from(request.jobs);
            self.due.replies.push_back(Reply::Refuse(client, job, key, refusal));
            return;
        }
        if self.forgotten.contains(&name) {
            self.coverage.hit("replay: forgotten");
        }
        self.counters.accepted += u64::from(request.jobs);
        self.accepted.insert(job, request.principal.clone());
        // It has an account from now on.
        self.account_of(&request.principal);
        let own = self.devices.iter().filter(|(at, _)| at.group == group);
        let serves =
            own.filter(|(at, device)| device.may_serve() && !self.is_given_away(at.device));
        let devices = serves.count();
        let request = JobRequest { work: self.bound(&request.work), ..request.clone() };
        let others = || self.jobs.values().filter(|job| job.group == group);
        let same = others().filter(|job| job.request.principal == request.principal);
        let cost = same.map(|job| job.request.cost).sum::<u64>() + request.cost;
        let principals = others().map(|job| &job.request.principal).chain([&request.principal]);
        let live = cost * principals.collect::<BTreeSet<_>>().len() as u64;
        let new = Job::new(now, client, request, group, (devices, live), &self.config);
        if new.shards_due > 1 {
            self.coverage.hit("split: accepted");
        }
        let fair = &mut self.group_mut(group).fair;
        fair.waits(&new);
        self.jobs.insert(job, new);
        let own = self.jobs.values().filter(|job| job.group == group);
        let bytes = own.map(|job| job.request.inline_bytes).sum();
        let state = self.group_mut(group);
        state.bytes_high = state.bytes_high.max(bytes);
        self.due.replies.push_back(Reply::Accept(client, job, key));
    }

    /// The model itself counts the waiting jobs and the jobs of each client.
    fn limit_reached(
        &mut self,
        now: Timestamp,
        client: ClientId,
        request: &JobRequest,
        group: Group,
    ) -> Option<Refusal> {
        if self.is_draining() && !self.is_closed(group) {
            self.coverage.hit("hand over: the gateway submits");
        }
        if self.is_closed(group) {
            self.coverage.hit("refuse: draining");
            return Some(Refusal::Draining);
        }
        if self.never_has_the_quota(request) {
            let invalid = Refusal::Invalid(String::new());
            return Some(if request.is_bundle() { Refusal::Bundled } else { invalid });
        }
        let back_at = self.kills_back_at(now, group, &request.principal);
        let quota = match back_at {
            None => self.quota_reached(now, request),
            Some(_) => None,
        };
        let jobs = || self.jobs.values().filter(|job| job.group == group);
        let own = count(jobs().filter(|job| job.client == client));
        let waiting = count(jobs().filter(|job| job.waits()));
        // The bytes of all groups of models are counted together.
        let of_role = || self.jobs.values().filter(|job| job.group.role() == group.role());
        let bytes: u64 = of_role().map(|job| job.request.inline_bytes).sum();
        let fair = &self.group(group).fair;
        let principals = fair.principals_with(&request.principal);
        let jobs_max = (self.config.principal_jobs_max / principals).max(1);
        let bytes_max = self.config.principal_bytes_max / principals as u64;
        let principals_own = || jobs().filter(|job| job.request.principal == request.principal);
        let own_of_role = of_role().filter(|job| job.request.principal == request.principal);
        let own_bytes: u64 = own_of_role.map(|job| job.request.inline_bytes).sum();
        let own_waiting = count(principals_own().filter(|job| job.waits()));
        let new = request.jobs as usize;
        let most = self.config.client_jobs_max.min(self.config.queue_jobs_max).min(jobs_max);
        if request.is_bundle() && new > most {
            self.coverage.hit("bundle: larger than a limit");
            return Some(Refusal::Bundled);
        }
        let limit = if let Some(at) = back_at {
            self.coverage.hit("refuse: BUSY kills");
            let seconds = at.since(now).as_micros().div_ceil(1_000_000);
            Limit::Kills { back_s: u32::try_from(seconds).expect("it is soon") }
        } else if let Some(quota) = quota {
            quota
        } else if own + new > self.config.client_jobs_max {
            self.coverage.hit("refuse: BUSY client");
            Limit::ClientJobs
        } else if waiting + new > self.config.queue_jobs_max {
            self.coverage.hit("refuse: BUSY queue");
            Limit::QueueJobs
        } else if own_waiting + new > jobs_max {
            self.coverage.hit(match principals {
                1 => "refuse: BUSY principal",
                _ => "refuse: BUSY principal beside others",
            });
            Limit::PrincipalJobs
        } else if bytes + request.inline_bytes > self.config.queue_bytes_max {
            self.coverage.hit("refuse: BUSY bytes");
            Limit::QueueBytes
        } else if own_bytes + request.inline_bytes > bytes_max {
            self.coverage.hit("refuse: BUSY bytes of a principal");
            Limit::PrincipalBytes
        } else {
            return None;
        };
        Some(Refusal::Busy(limit))
    }

    /// A kill of a worker of a group costs every principal whose attempt was not stopped in time.
    pub(super) fn kills_are_charged(&mut self, now: Timestamp, group: Group, front: &Dispatch) {
        let overdue = front.attempts.iter().filter(|sent| {
            let wanted = [AttemptOutcome::Cancelled, AttemptOutcome::Deadline];
            sent.free_at.is_some_and(|(at, why)| at <= now && wanted.contains(&why))
        });
        let owners: BTreeSet<_> =
            overdue.map(|sent| self.accepted[&sent.attempt.job].clone()).collect();
        for owner in owners {
            let own = self.kills.entry((group, owner)).or_default();
            own.retain(|&at| at > now);
            if own.len() < self.config.kills_max {
                let from = own.last().copied().unwrap_or(now).max(now);
                own.push(from.after(self.config.kill_refill));
            }
        }
    }

    /// When a principal that has spent its budget of kills in a group has one again.
    fn kills_back_at(
        &self,
        now: Timestamp,
        group: Group,
        principal: &Principal,
    ) -> Option<Timestamp> {
        let own = self.kills.get(&(group, principal.clone())).into_iter().flatten().copied();
        let later: Vec<_> = own.filter(|&at| at > now).collect();
        later.get(later.len().checked_sub(self.config.kills_max)?).copied()
    }

    /// Whether a job waits until its principal has a budget of kills again.
    pub(super) fn is_held(&self, now: Timestamp, job: &Job) -> bool {
        self.kills_back_at(now, job.group, &job.request.principal).is_some()
    }

    /// Once time has passed: who gets no turn.
    pub(super) fn principals_are_held(&mut self, now: Timestamp) {
        for group in self.groups.keys().copied().collect::<Vec<_>>() {
            let all = self.kills.keys().filter(|(own, _)| *own == group).map(|(_, who)| who);
            let is_held = |who: &&Principal| self.kills_back_at(now, group, who).is_some();
            let held: BTreeSet<_> = all.filter(is_held).cloned().collect();
            let mut waiting = self.jobs.values().filter(|job| job.waits());
            if waiting.any(|job| job.group == group && held.contains(&job.request.principal)) {
                self.coverage.hit("held: a job waits for its principal's budget of kills");
            }
            let mut waiting = self.jobs.values().filter(|job| job.waits());
            if waiting.any(|job| job.group != group && held.contains(&job.request.principal)) {
                self.coverage.hit("held: in one group and not in another");
            }
            if self.group_mut(group).fair.hold(&held) {
                self.coverage.hit("held: jobs have their turn again");
            }
        }
    }

    /// When a principal with jobs that are held has a budget of kills again.
    pub(super) fn held_until(&self, now: Timestamp) -> Option<Timestamp> {
        let waiting = self.jobs.values().filter(|job| job.waits());
        let back = |job: &Job| self.kills_back_at(now, job.group, &job.request.principal);
        waiting.filter_map(back).min()
    }

    pub(super) fn no_job_begins_whose_principal_has_spent_its_kills(
        &self,
        now: Timestamp,
        job: &Job,
    ) -> Result<(), Broken> {
        let rule = "no_job_begins_whose_principal_has_spent_its_kills";
        holds(rule, !self.is_held(now, job), || format!("{}: {:?}", job.request.job, self.kills))
    }

    pub(super) fn cancel_requested(&mut self, now: Timestamp, client: ClientId, key: JobKey) {
        let mut live = self.jobs.iter().filter(|(_, job)| job.request.key == key);
        let Some((&id, job)) = live.clone().find(|(_, job)| job.client == client) else {
            self.coverage.hit(match live.next() {
                Some(_) => "cancel: job of another client",
                None => "cancel: crossed the verdict",
            });
            return;
        };
        self.coverage.hit(match (job.runs(), job.shards_due) {
            (true, 1) => "cancel: running",
            (true, _) => "cancel: shards running",
            (false, _) if job.denylisted => "cancel: before its content was known",
            (false, _) => "cancel: queued",
        });
        self.cut_off(now, id, AttemptOutcome::Cancelled);
        self.end(id, Verdict::Cancelled);
    }

    pub(super) fn client_gone(&mut self, client: ClientId) {
        self.clients.remove(&client);
        self.loader_is_gone(client);
        self.leaves_for_good(client);
        let own: Vec<_> =
            self.jobs.iter().filter(|(_, job)| job.client == client).map(|(&id, _)| id).collect();
        for id in own {
            let job = self.jobs.get_mut(&id).expect("it was just listed");
            job.orphaned = true;
            self.groups.get_mut(&job.group).expect("groups stay").fair.leaves(job);
            let asked = job.shards.iter().filter(|shard| !shard.makes_room);
            let running: Vec<_> = asked.filter_map(|shard| shard.running).collect();
            for (attempt, worker) in running {
                self.withdraws(worker, attempt);
            }
            let job = &self.jobs[&id];
            if job.runs() {
                let split = job.shards_due > 1;
                self.coverage.hit(if split {
                    "client gone: shards running"
                } else {
                    "client gone: running job"
                });
            } else {
                self.coverage.hit(if job.denylisted {
                    "client gone: before a job's content was known"
                } else {
                    "client gone: queued job"
                });
                self.end(id, Verdict::Cancelled);
            }
        }
        self.groups.values_mut().for_each(|group| group.fair.gone(client));
    }

    pub(super) fn accepted(
        &mut self,
        client: ClientId,
        job: JobId,
        key: JobKey,
    ) -> Result<(), Broken> {
        self.coverage.hit("accept");
        let said = Reply::Accept(client, job, key);
        self.a_submission_is_refused_if_and_only_if_a_limit_is_reached(&said)?;
        self.due.replies.pop_front();
        Ok(())
    }

    pub(super) fn refused(
        &mut self,
        client: ClientId,
        job: JobId,
        key: JobKey,
        refusal: &Refusal,
    ) -> Result<(), Broken> {
        let refusal = match refusal {
            Refusal::Invalid(_) => Refusal::Invalid(String::new()),
            Refusal::Bundled if self.due.apart.contains(&job) => {
                return self.a_bundle_is_given_back_after_its_end(job);
            }
            Refusal::Bundled
            | Refusal::Busy(_)
            | Refusal::Draining
            | Refusal::KeyInUse(_)
            | Refusal::NotAllowed(_)
            | Refusal::Poison(_)
            | Refusal::Unable(_) => refusal.clone(),
        };
        let said = Reply::Refuse(client, job, key, refusal);
        self.a_submission_is_refused_if_and_only_if_a_limit_is_reached(&said)?;
        self.due.replies.pop_front();
        Ok(())
    }

    fn a_bundle_is_given_back_after_its_end(&mut self, job: JobId) -> Result<(), Broken> {
        let rule = "a_bundle_is_given_back_after_its_end";
        let ended = !self.due.verdicts.contains_key(&job) && self.due.apart.remove(&job);
        holds(rule, ended, || format!("{job}: {:?}", self.due))
    }

    fn a_submission_is_refused_if_and_only_if_a_limit_is_reached(
        &self,
        said: &Reply,
    ) -> Result<(), Broken> {
        let rule = "a_submission_is_refused_if_and_only_if_a_limit_is_reached";
        let due = self.due.replies.front();
        holds(rule, due == Some(said), || format!("{said:?} where {due:?} is due"))
    }

    pub(super) fn replayed(
        &mut self,
        client: ClientId,
        key: JobKey,
        receipt: &Receipt,
    ) -> Result<(), Broken> {
        let said = Reply::Replay(client, key, receipt.verdict);
        self.a_key_that_has_its_verdict_is_answered_from_memory(&said)?;
        self.due.replies.pop_front();
        Ok(())
    }

    fn a_key_that_has_its_verdict_is_answered_from_memory(
        &self,
        said: &Reply,
    ) -> Result<(), Broken> {
        let rule = "a_key_that_has_its_verdict_is_answered_from_memory";
        let due = self.due.replies.front();
        holds(rule, due == Some(said), || format!("{said:?} where {due:?} is due"))
    }

    pub(super) fn discarded(&mut self, job: JobId) -> Result<(), Broken> {
        self.a_payload_is_discarded_if_its_submission_is_a_duplicate(job)?;
        self.due.discards.remove(&job);
        Ok(())
    }

    fn a_payload_is_discarded_if_its_submission_is_a_duplicate(
        &self,
        job: JobId,
    ) -> Result<(), Broken> {
        let rule = "a_payload_is_discarded_if_its_submission_is_a_duplicate";
        let due = &self.due.discards;
        holds(rule, due.contains(&job), || format!("{job} was discarded where {due:?} is due"))
    }
}
