//! The jobs without a verdict as their clients submitted them, and the users of each arena.

use std::collections::BTreeMap;
use std::sync::Arc;

use gridpool_core::action;
use gridpool_core::event::{self, ClientEvent, Event, JobRequest};
use gridpool_protocol::ids::{ArenaId, ClientId, JobId};
use gridpool_protocol::message::{Assignment, Payload, Submission};
use gridpool_protocol::principal::Principal;

use super::Shared;
use super::arenas::ClientArena;
use super::core::Core;
use crate::gateway::Holders;
use crate::traces::JobSpan;

/// A job as it was submitted, and the arenas that it uses. The core does not look at these.
#[derive(Debug)]
pub(super) struct HeldJob {
    pub(super) client: ClientId,
    /// Whose it is.
    pub(super) principal: Principal,
    /// The tokens as they were when it came, if it is of one: another may have its name at the verdict.
    pub(super) holders: Option<Arc<Holders>>,
    pub(super) submission: Submission,
    /// Its span, if this pool sends traces.
    pub(super) span: Option<JobSpan>,
    /// Its work as the core knows it: the same for every spelling of a program.
    pub(super) work: event::Work,
    /// The arenas of its slices. They live as long as the job, even if the client drops them.
    pub(super) arenas: BTreeMap<ArenaId, Arc<ClientArena>>,
}

impl HeldJob {
    /// The assignment that tells a worker of an attempt at this job.
    pub(super) fn assign(&self, sent: &action::Assignment) -> Assignment<&Payload> {
        let &action::Assignment { attempt, shard, drop_after } = sent;
        let Submission { payload, terms, .. } = &self.submission;
        Assignment {
            attempt,
            client: self.client,
            priority: terms.priority,
            payload,
            shard,
            deadline_ms: u64::try_from(drop_after.as_millis()).unwrap_or(u64::MAX),
            trace: self.submission.trace.map(|context| context.trace),
            chaos: terms.chaos.and_then(|chaos| chaos.strikes(attempt.number)),
        }
    }
}

impl Core {
    /// Submits a job.
    pub(super) fn submit(
        &mut self,
        shared: &Shared,
        client: ClientId,
        request: Box<JobRequest>,
        held: Arc<HeldJob>,
    ) {
        let event = self.hold(client, request, held);
        self.handle_quietly(shared, shared.timestamp(), [event]);
    }

    /// Keeps a job and its arenas until it is discarded; the core must get this event.
    pub(super) fn hold(
        &mut self,
        client: ClientId,
        request: Box<JobRequest>,
        held: Arc<HeldJob>,
    ) -> Event {
        held.arenas.keys().for_each(|&arena| self.use_arena(arena));
        self.payloads.insert(request.job, held);
        Event::Client(client, ClientEvent::Submitted(request))
    }

    /// A job that has no verdict yet.
    pub(super) fn held(&self, job: JobId) -> Option<&HeldJob> {
        self.payloads.get(&job).map(|held| &**held)
    }

    /// Drops a job, and the arenas that no other user has.
    pub(super) fn discard(&mut self, job: JobId) -> Option<Arc<HeldJob>> {
        let held = self.payloads.remove(&job)?;
        held.arenas.keys().for_each(|&arena| self.forget(arena));
        Some(held)
    }

    /// Counts a user of an arena, a connection or a job, until [`Core::forget`].
    pub(super) fn use_arena(&mut self, arena: ArenaId) {
        *self.arenas.entry(arena).or_default() += 1;
    }

    /// A connection or a job no longer uses an arena. After the last one, every worker unmaps the arena.
    pub(super) fn forget(&mut self, arena: ArenaId) {
        let uses = self.arenas.get_mut(&arena).expect("only a user of an arena forgets it");
        *uses -= 1;
        if *uses > 0 {
            return;
        }
        self.arenas.remove(&arena);
        for worker in self.workers.keys().copied().collect::<Vec<_>>() {
            self.with_link(worker, |link| link.forget(arena));
        }
    }
}
