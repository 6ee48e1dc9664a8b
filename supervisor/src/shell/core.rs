//! What the shell's one lock guards: the pool's core, and everything that its actions act on.
//! Performing an action never blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use gridpool_protocol::clock;
use gridpool_protocol::fault::{FaultCode, Response};
use gridpool_protocol::ids::{ArenaId, AttemptId, ClientId, DeviceId, JobId, Role, WorkerId};
use gridpool_protocol::message::{
    Call, InferMember, Inline, Member, ModelCall, Run, ServerMessage, Submission, ToWorker,
};
use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::status::Counters;
use gridpool_protocol::{codec, frame};
use nix::libc::SIGKILL;

use super::Shared;
use super::arenas::ClientArena;
use super::link::{Link, LinkError};
use super::models::Catalogue;
use super::outbox::Outbox;
use crate::pool::Pools;
use crate::pool::event::{Action, Assignment, Event, Timestamp};

/// What the lock guards: the core and everything that its actions act on.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) pool: Pools,
    pub(super) clients: BTreeMap<ClientId, Outbox>,
    pub(super) payloads: BTreeMap<JobId, Arc<Held>>,
    /// The inline result of the answer that is being handled, for the verdict that it brings about.
    pub(super) output: Option<Inline>,
    /// How many use an arena: the connection that has not given it back, and every job over it.
    arenas: BTreeMap<ArenaId, usize>,
    pub(super) workers: BTreeMap<WorkerId, Link>,
    pub(super) catalogue: Catalogue,
    /// Workers that were ordered to end before their process was there.
    pub(super) doomed: BTreeSet<WorkerId>,
    /// What is done once the runs of an event are on their way; empty between events.
    rest: Vec<Action>,
    /// The moment that the timing thread sleeps until.
    pub(super) armed: Option<Timestamp>,
    /// What was done before the order to drain.
    before_drain: Option<Counters>,
    pub(super) left: bool,
    /// Of the latest event.
    pub(super) now: Timestamp,
    /// Deaths that are dealt with and not in the log yet.
    pub(super) untold: usize,
    /// What the driver has said of a dead worker, so that it is told once.
    driver_said: Option<(WorkerId, FaultCode)>,
    /// Devices that were said to be out of service for a role.
    out: BTreeSet<(DeviceId, Role)>,
}

/// What lines about a job say of its worker where it has none, with 0 for its attempt.
pub(super) const NO_WORKER: &str = "none";
/// A worker takes a request for late so much later than the core does.
const LATER: Duration = Duration::from_millis(50);

/// What a client wants done.
#[derive(Debug)]
pub(super) enum Work {
    /// A program over grids.
    Grid(Submission),
    /// A request of a model, and its deadline, from acceptance.
    Infer(ModelCall, Duration),
}

/// What the core does not look at: the job itself.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) client: ClientId,
    pub(super) work: Work,
    /// Of the program as the core knows it: the same for every way to write it.
    pub(super) program_hash: Arc<str>,
    /// The arenas of its slices, kept whatever the client does.
    pub(super) arenas: BTreeMap<ArenaId, Arc<ClientArena>>,
    /// When it was handed to the core: what is done before that takes its time.
    pub(super) accepted: OnceLock<Instant>,
}

impl Core {
    pub(super) fn new(pool: Pools, catalogue: Catalogue) -> Self {
        Self {
            pool,
            clients: BTreeMap::new(),
            payloads: BTreeMap::new(),
            output: None,
            arenas: BTreeMap::new(),
            workers: BTreeMap::new(),
            catalogue,
            doomed: BTreeSet::new(),
            rest: Vec::new(),
            armed: None,
            before_drain: None,
            left: false,
            now: Timestamp::default(),
            untold: 0,
            driver_said: None,
            out: BTreeSet::new(),
        }
    }

    /// Hands one event to the core and performs what comes out: the runs first, since a device waits
    /// for them, then the rest. Both in order; none of the rest undoes what a run needs, because the
    /// core finishes no job that it sends.
    pub(super) fn handle(&mut self, shared: &Shared, now: Timestamp, event: Event) {
        self.now = now;
        let quarantines = self.pool.quarantine_count();
        // Nothing else brings a device back.
        let may_be_back = matches!(event, Event::WorkerReady { .. });
        if matches!(event, Event::DrainRequested | Event::StopRequested) {
            self.before_drain.get_or_insert_with(|| self.pool.counters());
        }
        self.pool.handle(now, event);
        if (may_be_back && !self.out.is_empty()) || self.pool.quarantine_count() != quarantines {
            self.log_quarantines(now);
        }
        let mut rest = std::mem::take(&mut self.rest);
        while let Some(action) = self.pool.poll_action() {
            match action {
                Action::Dispatch { worker, attempts } => self.dispatch(worker, &attempts),
                other @ (Action::Accept { .. }
                | Action::Discard { .. }
                | Action::Finish { .. }
                | Action::HashContent { .. }
                | Action::Kill { .. }
                | Action::Leave
                | Action::Refuse { .. }
                | Action::Replay { .. }
                | Action::Spawn { .. }
                | Action::Stop { .. }
                | Action::Withdraw { .. }) => rest.push(other),
            }
        }
        rest.drain(..).for_each(|action| self.perform(shared, action));
        self.rest = rest;
        if self.pool.is_misconfigured() {
            shared.ended.notify_all();
        }
        let next = self.pool.poll_deadline();
        if shared.timer.rearm(self.armed, next) {
            self.armed = next;
        }
        self.go_on_with_models(shared);
    }

    /// Tells what the driver says of a device. What it says soon after a death is about the worker that
    /// has died, while there is no other, and is said again for each of its channels.
    pub(super) fn log_driver(
        &mut self,
        now: Timestamp,
        device: DeviceId,
        fault: FaultCode,
        response: Response,
    ) {
        let (meaning, lost) = (fault.meaning(), self.pool.lost_lately(now, device));
        let (name, says) = (&*meaning.name, meaning.sentence);
        let of = |alone| lost.filter(|&(_, is_alone)| is_alone == alone).map(|(worker, _)| worker);
        let worker = of(true).map(tracing::field::display);
        let after_death_of = of(false).map(tracing::field::display);
        let told = lost.map(|(worker, _)| (worker, fault));
        if !self.pool.is_expected(now, device, fault) {
            tracing::warn!(
                %device, %fault, name, says, %response, worker, after_death_of, "the driver says"
            );
        } else if told != self.driver_said {
            tracing::info!(
                %device, %fault, name, says, worker, after_death_of,
                "the driver says, as expected"
            );
        } else {
            tracing::debug!(
                %device, %fault, name, says, worker, after_death_of, "the driver says it again"
            );
        }
        self.driver_said = told;
    }

    /// Tells of devices that have gone out of service, and of those that are back.
    fn log_quarantines(&mut self, now: Timestamp) {
        for device in self.pool.devices().collect::<Vec<_>>() {
            let now_out: Vec<_> = self.pool.quarantines(device).collect();
            for (role, quarantine) in now_out {
                if !self.out.insert((device, role)) {
                    continue;
                }
                let (role, why) = (role.name(), quarantine.why);
                let rule = quarantine.rule.map(|rule| rule.to_string());
                match quarantine.tried_at {
                    Some(at) => {
                        let seconds = at.since(now).as_secs();
                        tracing::error!(%device, role, why, rule, seconds, "device is out of service");
                    }
                    None => tracing::error!(
                        %device, role, why, rule,
                        "device is out of service until `gridpool release {device}`"
                    ),
                }
            }
            for role in [Role::Grid, Role::Infer] {
                let is_back = self.pool.is_open(device, role);
                if is_back && self.out.remove(&(device, role)) {
                    tracing::info!(%device, role = role.name(), "device is back in service");
                }
            }
        }
    }

    fn perform(&mut self, shared: &Shared, action: Action) {
        match action {
            Action::Accept { client, key } => self.tell(client, &ServerMessage::Accepted { key }),
            Action::Discard { job } => self.discard(job),
            Action::Dispatch { worker, attempts } => self.dispatch(worker, &attempts),
            Action::Finish { client, job, key, receipt } => {
                self.discard(job);
                // At most one verdict is OK for each answer, and none without one.
                let ok = receipt.verdict == Verdict::Ok;
                let output = if ok { self.output.take() } else { None };
                let (verdict, reason) = (receipt.verdict, &*receipt.reason);
                let attempt = receipt.attempts.len();
                let worker = receipt.attempts.last().map_or(NO_WORKER, |last| &*last.worker);
                match verdict == Verdict::Poison {
                    true => tracing::error!(%job, attempt, worker, reason, "job is convicted"),
                    false => tracing::debug!(%job, attempt, worker, %verdict, reason, "done"),
                }
                if let Some(client) = client {
                    let replayed = false;
                    self.tell(client, &ServerMessage::Done { key, receipt, output, replayed });
                }
            }
            Action::HashContent { job } => {
                let held = Arc::clone(&self.payloads[&job]);
                shared
                    .hasher
                    .send((job, held))
                    .expect("the hashing thread lives as long as the pool");
            }
            Action::Kill { worker } => {
                self.catalogue.gone(worker);
                match self.workers.get(&worker) {
                    Some(link) => {
                        let reason = self.pool.kill_reason(worker);
                        if let Some(reason) = reason.filter(|_| !link.is_ending) {
                            let why = reason.name();
                            tracing::warn!(%worker, why, %reason, "killing worker");
                        }
                        kill(worker, link);
                    }
                    None => {
                        self.doomed.insert(worker);
                    }
                }
            }
            Action::Leave => {
                self.say_what_was_drained();
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
            Action::Withdraw { worker, attempt } => {
                self.with_link(worker, |link| link.withdraw(attempt));
            }
            Action::Stop { worker } => {
                self.catalogue.gone(worker);
                match self.workers.get(&worker) {
                    Some(_) => self.with_link(worker, |link| link.stop()),
                    None => {
                        self.doomed.insert(worker);
                    }
                }
            }
        }
    }

    fn dispatch(&mut self, worker: WorkerId, attempts: &[Assignment]) {
        let payloads = &self.payloads;
        let held = |job| payloads.get(&job).expect("a dispatched job has its payload");
        let work = || attempts.iter().map(|sent| (sent, &**held(sent.attempt.job)));
        let mut grids = work().filter_map(|(sent, held)| grid_member(sent, held)).peekable();
        let message = match grids.peek() {
            Some((call, _)) => {
                let (program, ties) = (call.program.clone(), call.ties);
                let members = grids.map(|(_, member)| member).collect();
                ToWorker::Run(Box::new(Run { program, ties, members }))
            }
            None => ToWorker::Infer(
                work().filter_map(|(sent, held)| model_member(sent, held)).collect(),
            ),
        };
        let arenas = attempts.iter().flat_map(|sent| &held(sent.attempt.job).arenas);
        for sent in attempts {
            let AttemptId { job, number: attempt } = sent.attempt;
            tracing::debug!(%job, attempt, %worker, joined = attempts.len(), "dispatch");
        }
        act(&mut self.workers, worker, |link| link.run(&message, arenas));
    }

    /// Keeps a job, and its arenas for as long.
    pub(super) fn hold(&mut self, job: JobId, held: Arc<Held>) {
        held.accepted.get_or_init(clock::now);
        held.arenas.keys().for_each(|&arena| self.use_arena(arena));
        self.payloads.insert(job, held);
    }

    /// What a client wants done, if that has no verdict yet.
    pub(super) fn work_of(&self, job: JobId) -> Option<&Work> {
        self.payloads.get(&job).map(|held| &held.work)
    }

    /// Forgets a job, and the arenas that only it still used.
    fn discard(&mut self, job: JobId) {
        let Some(held) = self.payloads.remove(&job) else { return };
        held.arenas.keys().for_each(|&arena| self.forget(arena));
    }

    /// Somebody uses an arena, until [`Core::forget`].
    pub(super) fn use_arena(&mut self, arena: ArenaId) {
        *self.arenas.entry(arena).or_default() += 1;
    }

    /// Somebody uses an arena no more. The last one lets every worker unmap it.
    pub(super) fn forget(&mut self, arena: ArenaId) {
        let uses = self.arenas.get_mut(&arena).expect("an arena is given back by who uses it");
        *uses -= 1;
        if *uses > 0 {
            return;
        }
        self.arenas.remove(&arena);
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

    /// Does something with a worker's link.
    pub(super) fn with_link(
        &mut self,
        worker: WorkerId,
        what: impl FnOnce(&mut Link) -> Result<(), LinkError>,
    ) {
        act(&mut self.workers, worker, what);
    }

    /// Tells every client what became of the jobs that the pool had when it was told to drain.
    fn say_what_was_drained(&self) {
        let (before, now) = (self.before_drain.unwrap_or_default(), self.pool.counters());
        let verdicts = now.verdicts().into_iter().zip(before.verdicts());
        let verdicts = verdicts.map(|((verdict, now), (_, before))| (verdict, now - before));
        let verdicts: Vec<_> = verdicts.filter(|&(_, count)| count > 0).collect();
        tracing::info!(?verdicts, "drained");
        let message = ServerMessage::Drained { verdicts };
        self.clients.keys().for_each(|&client| self.tell(client, &message));
    }

    /// Sends a message to a client that is still there.
    pub(super) fn tell(&self, client: ClientId, message: &ServerMessage) {
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

/// An attempt at a program, as a worker is told of it, beside what it has in common with others.
fn grid_member<'a>(sent: &Assignment, held: &'a Held) -> Option<(&'a Call, Member)> {
    let Work::Grid(Submission { call, chaos, .. }) = &held.work else { return None };
    let &Assignment { attempt, part } = sent;
    let chaos = chaos.and_then(|chaos| chaos.strikes(attempt.number));
    Some((call, Member { attempt, payload: call.payload.clone(), part, chaos }))
}

/// An attempt at a request of a model, likewise.
fn model_member(sent: &Assignment, held: &Held) -> Option<InferMember> {
    let Work::Infer(call, deadline) = &held.work else { return None };
    let late_at = *held.accepted.get_or_init(clock::now) + *deadline;
    // A little later than here: who drops it as late drops what has its verdict.
    let left = (clock::until(late_at) + LATER).as_millis();
    let deadline_ms = u64::try_from(left).unwrap_or(u64::MAX);
    let (attempt, client, call) = (sent.attempt, held.client, call.clone());
    Some(InferMember { attempt, client, call, deadline_ms })
}

/// Does something with a worker's link; a worker that lives and cannot be spoken to is killed. In
/// either case its attendant reports the end.
fn act(
    workers: &mut BTreeMap<WorkerId, Link>,
    worker: WorkerId,
    what: impl FnOnce(&mut Link) -> Result<(), LinkError>,
) {
    let Some(link) = workers.get_mut(&worker) else { return };
    match what(link) {
        Ok(()) => {}
        Err(LinkError::Gone) => tracing::debug!(%worker, "worker is gone"),
        Err(error @ LinkError::Stuck(_)) => {
            tracing::warn!(%worker, why = "stuck", reason = %error, "killing worker");
            link.rejected = Some(error.to_string());
            kill(worker, link);
        }
    }
}

fn kill(worker: WorkerId, link: &Link) {
    if let Err(error) = link.signal(SIGKILL) {
        tracing::error!(%worker, %error, "SIGKILL could not be sent");
    }
}
