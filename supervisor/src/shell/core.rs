//! What the shell's one lock guards: the pool's core, and everything that its actions act on.
//! Performing an action never blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gridpool_protocol::ids::{ArenaId, AttemptId, ClientId, JobId, WorkerId};
use gridpool_protocol::message::{Inline, Member, Run, ServerMessage, Submission};
use gridpool_protocol::receipt::{ItemRange, Verdict};
use gridpool_protocol::{codec, frame};
use nix::libc::SIGKILL;

use super::Shared;
use super::arenas::ClientArena;
use super::link::{Link, LinkError};
use super::outbox::Outbox;
use crate::pool::Pool;
use crate::pool::event::{Action, Event, Timestamp};

/// What the lock guards: the core and everything that its actions act on.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) pool: Pool,
    pub(super) clients: BTreeMap<ClientId, Outbox>,
    pub(super) payloads: BTreeMap<JobId, Held>,
    /// The inline result of the answer that is being handled, for the verdict that it brings about.
    pub(super) output: Option<Inline>,
    /// Arenas that their connection has not given back.
    pub(super) arenas: BTreeSet<ArenaId>,
    pub(super) workers: BTreeMap<WorkerId, Link>,
    /// Workers that were ordered to end before their process was there.
    pub(super) doomed: BTreeSet<WorkerId>,
    /// The moment that the timing thread sleeps until.
    pub(super) armed: Option<Timestamp>,
    pub(super) left: bool,
}

/// What the core does not look at: the job itself.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) submission: Submission,
    /// The arenas of its slices, kept whatever the client does.
    pub(super) arenas: BTreeMap<ArenaId, Arc<ClientArena>>,
}

impl Core {
    pub(super) fn new(pool: Pool) -> Self {
        Self {
            pool,
            clients: BTreeMap::new(),
            payloads: BTreeMap::new(),
            output: None,
            arenas: BTreeSet::new(),
            workers: BTreeMap::new(),
            doomed: BTreeSet::new(),
            armed: None,
            left: false,
        }
    }

    /// Hands one event to the core and performs what comes out, in order.
    pub(super) fn handle(&mut self, shared: &Shared, now: Timestamp, event: Event) {
        self.pool.handle(now, event);
        while let Some(action) = self.pool.poll_action() {
            self.perform(shared, action);
        }
        if self.pool.misconfigured().is_some() {
            shared.ended.notify_all();
        }
        shared.timer.rearm(self.armed, self.pool.poll_deadline());
    }

    fn perform(&mut self, shared: &Shared, action: Action) {
        match action {
            Action::Accept { client, key } => self.tell(client, &ServerMessage::Accepted { key }),
            Action::Discard { job } => self.discard(job),
            Action::Dispatch { worker, attempt } => self.dispatch(worker, attempt),
            Action::Finish { client, job, key, receipt } => {
                self.discard(job);
                // At most one verdict is OK for each answer, and none without one.
                let ok = receipt.verdict == Verdict::Ok;
                let output = if ok { self.output.take() } else { None };
                tracing::debug!(%job, verdict = %receipt.verdict, reason = receipt.reason, "done");
                if let Some(client) = client {
                    let replayed = false;
                    self.tell(client, &ServerMessage::Done { key, receipt, output, replayed });
                }
            }
            Action::Kill { worker } => {
                tracing::warn!(%worker, "killing worker");
                match self.workers.get(&worker) {
                    Some(link) => kill(worker, link),
                    None => {
                        self.doomed.insert(worker);
                    }
                }
            }
            Action::Leave => {
                self.left = true;
                shared.timer.stop();
                shared.ended.notify_all();
            }
            Action::Refuse { client, job, key, refusal } => {
                self.discard(job);
                self.tell(client, &ServerMessage::Refused { key, refusal });
            }
            Action::Replay { client, key, receipt } => {
                let message = ServerMessage::Done { key, receipt, output: None, replayed: true };
                self.tell(client, &message);
            }
            Action::Spawn { worker } => {
                // The order queue has room for two orders per device; the core gives one at a time.
                shared.spawner.try_send(worker).expect("the spawner takes every order");
            }
            Action::Stop { worker } => match self.workers.get(&worker) {
                Some(_) => self.with_link(worker, |link| link.stop()),
                None => {
                    self.doomed.insert(worker);
                }
            },
        }
    }

    fn dispatch(&mut self, worker: WorkerId, attempt: AttemptId) {
        let held = self.payloads.get(&attempt.job).expect("a dispatched job has its payload");
        let call = &held.submission.call;
        let part = ItemRange { start: 0, end: call.payload.items };
        let members = vec![Member { attempt, payload: call.payload.clone(), part }];
        let run = Run { program: call.program.clone(), ties: call.ties, members };
        let arenas = held.arenas.clone();
        tracing::debug!(%attempt, %worker, "dispatch");
        self.with_link(worker, |link| link.run(run, &arenas));
    }

    /// Forgets a job, and the arenas that only it still used.
    fn discard(&mut self, job: JobId) {
        let Some(held) = self.payloads.remove(&job) else { return };
        held.arenas.into_keys().for_each(|arena| self.forget(arena));
    }

    /// Lets every worker unmap an arena, if neither its connection nor a job uses it any more.
    pub(super) fn forget(&mut self, arena: ArenaId) {
        let is_used = |held: &Held| held.arenas.contains_key(&arena);
        if self.arenas.contains(&arena) || self.payloads.values().any(is_used) {
            return;
        }
        for worker in self.workers.keys().copied().collect::<Vec<_>>() {
            self.with_link(worker, |link| link.forget(arena));
        }
    }

    /// A worker's process is there now.
    pub(super) fn link(&mut self, worker: WorkerId, link: Link) {
        if self.doomed.remove(&worker) {
            kill(worker, &link);
        }
        self.workers.insert(worker, link);
    }

    /// Does something with a worker's link; a worker that lives and cannot be spoken to is killed. In
    /// either case its attendant reports the end.
    pub(super) fn with_link(
        &mut self,
        worker: WorkerId,
        act: impl FnOnce(&mut Link) -> Result<(), LinkError>,
    ) {
        let Some(link) = self.workers.get_mut(&worker) else { return };
        match act(link) {
            Ok(()) => {}
            Err(LinkError::Gone) => tracing::debug!(%worker, "worker is gone"),
            Err(error @ LinkError::Stuck(_)) => {
                tracing::warn!(%worker, %error, "worker cannot be spoken to");
                link.is_rejected = true;
                kill(worker, link);
            }
        }
    }

    /// Sends a message to a client that is still there.
    fn tell(&self, client: ClientId, message: &ServerMessage) {
        let Some(outbox) = self.clients.get(&client) else { return };
        match codec::encode(message) {
            Ok(body) => outbox.send(frame::pack(&body, 0), None),
            Err(error) => {
                tracing::error!(%client, %error, "a message that cannot be sent");
                outbox.close();
            }
        }
    }
}

fn kill(worker: WorkerId, link: &Link) {
    if let Err(error) = link.signal(SIGKILL) {
        tracing::error!(%worker, %error, "SIGKILL could not be sent");
    }
}
