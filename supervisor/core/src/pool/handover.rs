//! How a pool is replaced by its successor without losing a job.
//!
//! From [`HandOver::Begun`] on the successor is told of every job, so that it never begins one that runs here. Until
//! [`HandOver::Done`] nothing else changes. Then this pool accepts nothing more, gives back what it has not begun,
//! and lets each client go once all jobs of the client have their verdicts. The client submits what it got back to
//! the successor, under the same keys. The gateway's connections stay to its end: it has requests to answer.

use std::collections::BTreeSet;

use gridpool_protocol::handover::{JobName, JobNews};
use gridpool_protocol::ids::{ClientId, JobId};
use gridpool_protocol::receipt::Verdict;

use super::Pool;
use super::job::Job;
use crate::action::Action;
use crate::event::{HandOver, Timestamp};

/// How far this pool is replaced.
#[derive(Debug, Default)]
pub(super) enum Replaced {
    /// It has no successor.
    #[default]
    No,
    /// A successor is told of all jobs.
    Soon,
    /// The successor serves. These connections stay. Those that are quiet go over without a word about jobs that are
    /// given back: they would take it for a verdict.
    Yes { stay: BTreeSet<ClientId>, quiet: BTreeSet<ClientId> },
}

impl Pool {
    /// A step of handing everything over.
    pub(crate) fn on_hand_over(&mut self, now: Timestamp, step: HandOver) {
        if step == HandOver::Failed && !self.is_replaced() {
            self.take_devices_back();
        }
        match (step, &self.replaced) {
            (HandOver::OneByOne, Replaced::No) if !self.gives_devices => self.begin_giving(now),
            (HandOver::Begun, Replaced::No) => {
                self.replaced = Replaced::Soon;
                let remembered = self.verdicts.entries().map(Action::Tell);
                let live = self.jobs.iter().map(|job| Action::Tell(JobNews::Live(job.name())));
                self.actions.extend(remembered.chain(live));
            }
            (HandOver::Failed, Replaced::Soon) => self.replaced = Replaced::No,
            (HandOver::Done { stay }, Replaced::Soon) => {
                let stay = stay.into_iter().collect();
                // One by one, no worker can stay for them.
                self.replaced = match self.gives_devices {
                    true => Replaced::Yes { stay: BTreeSet::new(), quiet: stay },
                    false => Replaced::Yes { stay, quiet: BTreeSet::new() },
                };
                self.drain(now);
                for id in self.jobs.ids() {
                    if self.may_begin_elsewhere(&self.jobs[id]) {
                        let reason = "the pool was upgraded before it was begun".to_owned();
                        self.give_back(now, id, reason);
                    }
                }
                for client in self.clients.clone() {
                    self.let_go(client);
                }
            }
            (
                HandOver::Begun | HandOver::Failed | HandOver::Done { .. } | HandOver::OneByOne,
                _,
            ) => {}
        }
    }

    /// Whether a successor is told of all jobs.
    pub(super) fn has_successor(&self) -> bool {
        !matches!(self.replaced, Replaced::No)
    }

    /// Whether the successor has taken this pool's place.
    pub(crate) fn is_replaced(&self) -> bool {
        matches!(self.replaced, Replaced::Yes { .. })
    }

    /// Whether a client goes over to the successor, and may submit nothing here.
    pub(crate) fn goes_over(&self, client: ClientId) -> bool {
        matches!(&self.replaced, Replaced::Yes { stay, .. } if !stay.contains(&client))
    }

    /// Whether connections stay that may submit.
    pub(super) fn awaits_submissions(&self) -> bool {
        matches!(&self.replaced, Replaced::Yes { stay, .. } if !stay.is_empty())
    }

    /// Whether the successor can run a job as if it had never been here. Its client submits a job again only if that
    /// may run more than once.
    fn may_begin_elsewhere(&self, job: &Job) -> bool {
        self.goes_over(job.client)
            && job.request.idempotent
            && job.shards.iter().all(|shard| !shard.was_begun)
    }

    /// Ends a job that its client is to submit to the successor.
    pub(super) fn give_back(&mut self, now: Timestamp, id: JobId, reason: String) {
        self.jobs[id].is_given_back = true;
        self.finish(now, id, Verdict::Cancelled, reason);
    }

    /// Ends a job that no device can run: the successor may have one for it.
    pub(super) fn finish_without_device(&mut self, now: Timestamp, id: JobId, why: String) {
        match self.is_served_elsewhere(self.jobs[id].group) {
            true => {
                let reason = "the pool was upgraded, and the new one has the device".to_owned();
                self.give_back(now, id, reason);
            }
            false => self.finish(now, id, Verdict::DeviceLost, why),
        }
    }

    /// Whether a client hears nothing of jobs that are given back.
    pub(super) fn is_quiet(&self, client: ClientId) -> bool {
        matches!(&self.replaced, Replaced::Yes { quiet, .. } if quiet.contains(&client))
    }

    /// Lets a client go that has no job here.
    pub(super) fn let_go(&mut self, client: ClientId) {
        if self.goes_over(client) && self.jobs.count_of_client(client) == 0 {
            self.clients.remove(&client);
            self.act(Action::LetGo { client });
        }
    }

    pub(crate) fn on_connected(&mut self, client: ClientId) {
        self.clients.insert(client);
        self.let_go(client);
    }

    /// A connection has ended. Its jobs are orphans already.
    pub(super) fn forget_client(&mut self, client: ClientId) {
        self.clients.remove(&client);
        if let Replaced::Yes { stay, .. } = &mut self.replaced {
            stay.remove(&client);
        }
    }
}

impl Job {
    /// Its name in every pool.
    pub(super) fn name(&self) -> JobName {
        (self.request.principal.clone(), self.request.key)
    }
}
