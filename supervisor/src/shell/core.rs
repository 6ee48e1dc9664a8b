//! The data under the shell's one lock: the pool's core, and everything that its actions change.
//! Performing an action never blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gridpool_protocol::codec;
use gridpool_protocol::handover::FromPredecessor;
use gridpool_protocol::ids::{ArenaId, AttemptId, ClientId, JobId, JobKey, Role, WorkerId};
use gridpool_protocol::message::{
    BorrowedDispatch, EncodedDone, Inline, ServerMessage, ToWorker, Work,
};
use gridpool_protocol::receipt::{Receipt, Verdict};
use gridpool_protocol::status::MissingModel;
use nix::libc::SIGKILL;
use serde::Serialize;

use super::audit::Order;
use super::capsules::{Begun, Suspicion};
use super::descriptors::Taken;
use super::held::HeldJob;
use super::inbox::Output;
use super::link::{Link, LinkError};
use super::outbox::Outbox;
use super::told::Told;
use super::tracer::TracedJob;
use super::{Shared, clients, notes};
use crate::job_log::Admission;
use gridpool_core::action::{self, Action, DeathReport, EncodedReceipt, KillReason};
use gridpool_core::event::{Event, Timestamp};
use gridpool_core::maps::ByNumber;

/// The data under the lock.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) pool: gridpool_core::Core,
    /// Groups that the pool had at its start. Descriptors for their workers are set aside.
    pub(super) groups: usize,
    /// Those for the workers of each group more.
    pub(super) of_groups: Vec<Taken>,
    pub(super) clients: BTreeMap<ClientId, Outbox>,
    /// Those of the gateway.
    pub(super) of_gateway: BTreeSet<ClientId>,
    /// The pool whose place this one has taken still finishes jobs.
    pub(super) has_predecessor: bool,
    /// The link to the pool that takes this one's place.
    pub(super) successor: Option<Outbox>,
    pub(super) payloads: ByNumber<JobId, Arc<HeldJob>>,
    /// The inline results of the answers that the core handles now. They go out with the verdicts.
    pub(super) outputs: ByNumber<JobId, Output>,
    /// Users of each arena: the connection until it drops the arena, and every job that uses it.
    pub(super) arenas: BTreeMap<ArenaId, usize>,
    pub(super) workers: BTreeMap<WorkerId, Link>,
    /// Death reports from the core, for the readers of the processes.
    pub(super) reports: BTreeMap<WorkerId, Box<DeathReport>>,
    /// The same for deaths that are worth a capsule.
    pub(super) suspicions: BTreeMap<WorkerId, Suspicion>,
    /// Workers that the core stopped or killed before their process existed.
    pub(super) doomed: BTreeSet<WorkerId>,
    /// Actions to perform after the dispatches of an event. Empty between events.
    rest: Vec<Action>,
    /// What waits until the lock is released.
    told: Told,
    /// Orders that the core has not answered, by the number that it knows, with the client's number.
    pub(super) orders: BTreeMap<u64, (u64, Order)>,
    /// The time at which the timing thread wakes.
    pub(super) armed: Option<Timestamp>,
    /// Why no worker can ever start, one sentence for each.
    pub(super) misconfigured: Option<Vec<String>>,
    /// A model that the pool must have, and that cannot be loaded.
    pub(super) missing: Option<MissingModel>,
    /// Why the pool has lost its socket.
    pub(super) displaced: Option<String>,
    /// The pool has drained or stopped.
    pub(super) left: bool,
    /// [`Shell::wait`](super::Shell::wait) has returned.
    pub(super) is_over: bool,
    /// Which verdicts are logged; none without a log.
    pub(super) admission: Option<Admission>,
    /// Deaths that the core has handled and that are not in the log yet.
    pub(super) untold: usize,
}

/// The worker in a log line about a job that has none. The attempt is then 0.
pub(super) const NO_WORKER: &str = "none";

impl Core {
    /// `groups` have the descriptors for their workers.
    pub(super) fn new(pool: gridpool_core::Core, groups: usize) -> Self {
        Self {
            pool,
            groups,
            of_groups: Vec::new(),
            clients: BTreeMap::new(),
            of_gateway: BTreeSet::new(),
            has_predecessor: false,
            successor: None,
            payloads: ByNumber::default(),
            outputs: ByNumber::default(),
            arenas: BTreeMap::new(),
            workers: BTreeMap::new(),
            reports: BTreeMap::new(),
            suspicions: BTreeMap::new(),
            doomed: BTreeSet::new(),
            rest: Vec::new(),
            told: Told::default(),
            orders: BTreeMap::new(),
            armed: None,
            misconfigured: None,
            missing: None,
            displaced: None,
            left: false,
            is_over: false,
            admission: None,
            untold: 0,
        }
    }

    /// Hands one event to the core and performs its actions: first the dispatches, because devices wait for
    /// them, then the rest, each in order. No other action undoes what a dispatch needs: the core never
    /// dispatches a job and finishes it in the same event.
    pub(super) fn handle(&mut self, shared: &Shared, now: Timestamp, event: Event) {
        self.handle_quietly(shared, now, [event]);
        self.rearm(shared);
        self.take_told().send(shared);
    }

    /// As [`Core::handle`], with events that have come together, but what clients hear waits for [`Told::send`], best
    /// without the lock, and the timer for [`Core::rearm`].
    pub(super) fn handle_quietly(
        &mut self,
        shared: &Shared,
        now: Timestamp,
        events: impl IntoIterator<Item = Event>,
    ) {
        self.pool.handle_together(now, events);
        let mut rest = std::mem::take(&mut self.rest);
        while let Some(action) = self.pool.poll_action() {
            if let Action::Dispatch { worker, attempts } = &action {
                self.dispatch(shared, *worker, attempts);
            } else {
                rest.push(action);
            }
        }
        rest.drain(..).for_each(|action| self.perform(shared, now, action));
        self.rest = rest;
        let denies_any = self.pool.denies_any();
        if denies_any != shared.inbox.denies_any.load(Ordering::Relaxed) {
            // Before any client hears of it.
            shared.inbox.denies_any.store(denies_any, Ordering::Release);
        }
    }

    /// Sets the timer for what the core does next if nothing happens.
    pub(super) fn rearm(&mut self, shared: &Shared) {
        let next = self.pool.poll_deadline();
        if shared.timer.rearm(self.armed, next) {
            self.armed = next;
        }
    }

    /// The clients that have not been told everything yet.
    pub(super) fn take_told(&mut self) -> Told {
        std::mem::take(&mut self.told)
    }

    fn perform(&mut self, shared: &Shared, now: Timestamp, action: Action) {
        match action {
            Action::Accept { client, job, key } => {
                // Otherwise its client waits for the verdict alone.
                if self.held(job).is_some_and(|held| held.submission.tell_acceptance) {
                    self.tell(client, &ServerMessage::Accepted { key });
                }
            }
            Action::Capsule { worker, name, attempts } => {
                self.suspicions.insert(worker, Suspicion { name, attempts });
            }
            Action::Command { worker, number, command } => {
                tracing::debug!(%worker, number, name = command.name(), "command about a model");
                let message = ToWorker::Model { number, command };
                self.with_link(worker, |link| link.send(&message));
            }
            Action::DeathReport(report) => {
                self.reports.insert(report.worker, report);
            }
            Action::Discard { job } => drop(self.discard(job)),
            Action::Dispatch { worker, attempts } => self.dispatch(shared, worker, &attempts),
            Action::Finish { client, job, key, receipt, encoded } => {
                self.finish(now, client, (job, key), receipt, encoded);
            }
            Action::Free { device } => {
                tracing::info!(%device, "upgrade: the device is free for the successor");
                self.tell_successor(&FromPredecessor::Freed { device });
            }
            Action::HashContent { job, work } => {
                let request = (job, work, Arc::clone(&self.payloads[&job]));
                shared.hasher.send(request).expect("the hashing thread lives as long as the pool");
            }
            Action::Helper(helper, action) => {
                shared.perform_helper(helper, action);
                // The end of the pool waits while the gateway stops.
                shared.ended.notify_all();
            }
            Action::Kill { worker, reason } => self.kill(shared, worker, reason),
            Action::Leave { verdicts } => {
                tracing::info!(?verdicts, "drained");
                let message = ServerMessage::Drained { verdicts };
                self.clients.values().for_each(|outbox| outbox.tell(&message));
                self.left = true;
                shared.ended.notify_all();
            }
            Action::LetGo { client } => {
                if let Some(outbox) = self.clients.get(&client) {
                    outbox.tell(&ServerMessage::Drained { verdicts: Vec::new() });
                    outbox.finish();
                }
            }
            Action::Misconfigured { faults } => {
                self.misconfigured = Some(faults);
                shared.ended.notify_all();
            }
            Action::ModelMissing(missing) => {
                self.missing = Some(missing);
                shared.ended.notify_all();
            }
            Action::Note(note) => notes::write(note),
            Action::Refuse { client, job, key, refusal } => {
                drop(self.discard(job));
                self.tell(client, &ServerMessage::Refused { key, refusal });
            }
            Action::Replay { client, key, receipt } => {
                let message = ServerMessage::Done { key, receipt, output: None, replayed: true };
                self.tell(client, &message);
            }
            Action::Reply { client, request, result } => {
                let (request, order) =
                    self.orders.remove(&request).expect("the core answers an order once");
                order.ended(result.as_deref());
                self.tell(client, &clients::answer(request, result));
            }
            Action::Spawn { worker, models } => {
                // The core starts one worker of a slot at a time, so there are few.
                let request = (worker, models);
                shared.spawner.send(request).expect("the spawner lives as long as the pool");
            }
            Action::Stop { worker } => match self.workers.get(&worker) {
                None => drop(self.doomed.insert(worker)),
                Some(link) if !link.is_connected() => kill(worker, link),
                Some(_) => self.with_link(worker, |link| link.send(&ToWorker::Stop)),
            },
            Action::Tell(news) => self.tell_successor(&FromPredecessor::Job(news)),
            Action::Withdraw { worker, attempt } => {
                self.with_link(worker, |link| link.cancel(attempt));
            }
        }
    }

    /// Sends a verdict to its client, and drops the job.
    fn finish(
        &mut self,
        now: Timestamp,
        client: Option<ClientId>,
        (job, key): (JobId, JobKey),
        receipt: Box<Receipt>,
        encoded: Option<EncodedReceipt>,
    ) {
        let held = self.discard(job);
        // Each answer brings about at most one OK verdict, and there is no OK verdict without an answer.
        let ok = receipt.verdict == Verdict::Ok;
        let output = if ok { self.outputs.remove(&job) } else { None };
        let (verdict, reason) = (receipt.verdict, &*receipt.reason);
        let attempt = receipt.attempts.len();
        let worker = receipt.attempts.last().map_or(NO_WORKER, |last| &*last.worker);
        match verdict == Verdict::Poison {
            true => tracing::error!(%job, attempt, worker, reason, "job is denylisted"),
            false => tracing::debug!(%job, attempt, worker, %verdict, reason, "done"),
        }
        let encoded = encoded.as_ref().map(|receipt| self.pool.encoded(receipt));
        match (client, encoded) {
            (None, _) => {}
            (Some(client), Some(receipt)) => {
                let done = EncodedDone {
                    key,
                    receipt,
                    output: output.as_ref().map(Output::bytes),
                    replayed: false,
                };
                tell(&self.clients, &mut self.told, client, &done);
            }
            (Some(client), None) => {
                let receipt = receipt.clone();
                let output = output.map(|output| Inline(output.bytes().to_vec()));
                let done = ServerMessage::Done { key, receipt, output, replayed: false };
                tell(&self.clients, &mut self.told, client, &done);
            }
        }
        let Some(held) = held else { return };
        if let Some(log) = &mut self.admission
            && log.admits(now, &held.principal, &receipt)
        {
            // The log's thread decodes it, with memory of its own.
            match encoded.map(Vec::from).or_else(|| codec::encode(&receipt).ok()) {
                Some(encoded) => self.told.log(&held, encoded),
                None => log.leave_out(),
            }
        }
        if let Some(span) = held.span.filter(|span| span.own.is_sampled()) {
            self.told.traced.push(TracedJob::new(span, &held, receipt));
        }
    }

    fn kill(&mut self, shared: &Shared, worker: WorkerId, reason: KillReason) {
        let Some(link) = self.workers.get_mut(&worker) else {
            self.doomed.insert(worker);
            return;
        };
        if !link.is_ending {
            tracing::warn!(%worker, why = reason.name(), %reason, "killing worker");
        }
        kill(worker, link);
        if let Some(capsules) = shared.capsules.get() {
            capsules.copy(worker, link, &self.pool.front_attempts(worker), reason);
        }
    }

    /// Sends a worker attempts to run together. Attempts with the same work go in one message.
    fn dispatch(&mut self, shared: &Shared, worker: WorkerId, attempts: &[action::Assignment]) {
        for sent in attempts {
            let AttemptId { job, number: attempt } = sent.attempt;
            tracing::debug!(%job, attempt, %worker, joined = attempts.len(), "dispatch");
        }
        let workers = &mut self.workers;
        let held = attempts.iter().map(|sent| {
            let held = self.payloads.get(&sent.attempt.job);
            (sent, held.expect("a dispatched job has its payload"))
        });
        let all: Vec<(&action::Assignment, &Arc<HeldJob>)> = held.collect();
        // The core has bound each request for a model to a version.
        let has_models = worker.group.role() == Role::Infer;
        let model = |sent: &action::Assignment| {
            has_models.then(|| self.pool.model_of(sent.attempt.job)).flatten()
        };
        for same in all.chunk_by(|(a, held_a), (b, held_b)| match (model(a), model(b)) {
            (None, None) => held_a.work == held_b.work,
            (a, b) => a == b,
        }) {
            let (first, held) = same[0];
            let named = model(first).map(|name| Work::Model { name: name.to_string() });
            let work = named.as_ref().unwrap_or(&held.submission.work);
            let assignments = same.iter().map(|(sent, held)| held.assign(sent)).collect();
            let message = BorrowedDispatch::Dispatch { work, assignments };
            let arenas = same.iter().flat_map(|(_, held)| &held.arenas);
            act(workers, worker, |link| link.run(&message, arenas));
        }
        if shared.capsules.get().is_some()
            && let Some(link) = workers.get_mut(&worker)
        {
            link.begins(all.iter().map(|&(sent, held)| {
                let (held, part, model) = (Arc::clone(held), sent.shard, model(sent).cloned());
                Begun { attempt: sent.attempt, part, held, model }
            }));
        }
    }

    /// A worker's process exists now.
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

    /// Has a message for a client that is still there.
    fn tell(&mut self, client: ClientId, message: &ServerMessage) {
        tell(&self.clients, &mut self.told, client, message);
    }
}

/// Has a message for a client that is still there.
fn tell(
    clients: &BTreeMap<ClientId, Outbox>,
    told: &mut Told,
    client: ClientId,
    message: &impl Serialize,
) {
    if let Some(outbox) = clients.get(&client)
        && outbox.hold(message)
    {
        told.clients.push(outbox.clone());
    }
}

/// Does something with a worker's link. A worker that lives and takes no message has broken the protocol: its link
/// is of no more use and ends, with the process. Its reader reports that, and the core decides what follows.
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
