//! Every rule of the supervisor, as plain data: scheduling, retries, backoff, quarantine, deadlines,
//! fairness and drain (`pool`), the models of each worker (`models`), and the restarts of helper
//! processes (`helpers`).
//!
//! The core has one interface. The shell passes an event to [`Core::handle`], takes actions from
//! [`Core::poll_action`] until it returns `None`, and calls again no later than [`Core::poll_deadline`].
//! Everything else is a view, for status and metrics.
//!
//! The core has no clock, thread, file or socket, no randomness that shows, and goes through no `HashMap`: the
//! same events at the same times give the same actions.

pub mod action;
mod catalogue;
pub mod config;
mod elsewhere;
pub mod event;
mod helpers;
mod models;
pub mod policy;
mod pool;
pub mod quota;

use std::collections::BTreeSet;
use std::time::Duration;

use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::handover::JobNews;
use gridpool_protocol::ids::{ClientId, DeviceId, Group, WorkerId};
use gridpool_protocol::message::{ModelCommand, Refusal};
use gridpool_protocol::metrics::{DeviceMetrics, RoleMetrics};
use gridpool_protocol::principal::Principal;
use gridpool_protocol::status::{Counters, PrincipalStatus, QueueStatus, WorkerStatus};
use gridpool_protocol::tensor::options::ModelPlan;

use action::{Action, Note};
use catalogue::Catalogue;
use config::{HelperLimits, PoolConfig};
use elsewhere::{Elsewhere, Held};
use event::{ClientEvent, Event, Helper, JobRequest, Predecessor, Timestamp, WorkerEvent};
pub use helpers::HelperStatus;
use helpers::Helpers;
use models::{Effect, StepContext};
use policy::PolicyTable;
use pool::Pool;
pub use pool::rows::{CurrentDispatch, Quarantine};
use quota::Quota;

/// A call that is late by this much means that this process was stopped or starved. Messages that
/// workers sent meanwhile have not been read.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// The rules. The crate's documentation says how to call it.
#[derive(Debug)]
pub struct Core {
    pool: Pool,
    catalogue: Catalogue,
    helpers: Helpers,
    elsewhere: Elsewhere,
    command_timeout: Duration,
    /// The deadline that the shell was given last, by [`Core::poll_deadline`].
    wakes_at: Option<Timestamp>,
    /// Something has happened since, so that it may be another.
    has_changed: bool,
}

impl Core {
    /// A pool over `devices`, without processes yet, that should have these models.
    #[must_use]
    pub fn new(
        config: PoolConfig,
        policy: PolicyTable,
        devices: &[DeviceId],
        models: &[ModelPlan],
        helpers: impl Fn(Helper) -> HelperLimits,
    ) -> Self {
        let command_timeout = config.command_timeout;
        let mut pool = Pool::new(config, policy, devices);
        Self {
            catalogue: Catalogue::new(models, &mut pool),
            pool,
            helpers: Helpers::new(helpers),
            elsewhere: Elsewhere::default(),
            command_timeout,
            wakes_at: None,
            has_changed: false,
        }
    }

    /// Handles one event, and everything that is due by `now`.
    pub fn handle(&mut self, now: Timestamp, event: Event) {
        self.excuse_pause(now);
        self.take_in(now, event);
        while let Some(worker) = self.catalogue.late(now, self.command_timeout) {
            self.pool.on_breach(now, worker, pool::kill::Breach::LateCommand);
            self.forget_ended();
        }
        self.pool.advance(now);
        self.start_workers();
        self.advance_models(now);
        self.helpers.advance(now, |action| self.pool.act(action));
        self.pool.report(now);
        self.has_changed = true;
    }

    /// Orders the processes that the pool starts, each with the models as they are now.
    fn start_workers(&mut self) {
        for worker in self.pool.take_started() {
            let models = self.catalogue.of(worker).map(|models| models.start(worker));
            let models = models.unwrap_or_default();
            self.pool.act(Action::Spawn { worker, models });
        }
    }

    /// The next action for the shell to perform.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.pool.poll_action()
    }

    /// When to call [`Core::handle`] with [`Event::TimePassed`] if nothing else happens.
    #[must_use]
    pub fn poll_deadline(&mut self) -> Option<Timestamp> {
        // Not before its actions are performed: devices wait for them.
        if std::mem::take(&mut self.has_changed) {
            self.wakes_at = self.deadline();
        }
        self.wakes_at
    }

    fn deadline(&mut self) -> Option<Timestamp> {
        let models = self.catalogue.deadline(self.command_timeout);
        [self.pool.deadline(), models, self.helpers.deadline()].into_iter().flatten().min()
    }

    /// Extends the timeouts of workers and helpers by the time that the supervisor was paused.
    fn excuse_pause(&mut self, now: Timestamp) {
        if let Some(gap) = self.poll_deadline().map(|due| now.since(due))
            && gap >= PAUSE_MIN
        {
            // And time to read the messages that have arrived.
            let gap = gap + PAUSE_MIN;
            self.pool.excuse(now, gap);
            self.catalogue.excuse(gap);
            self.helpers.excuse(gap);
        }
    }

    fn take_in(&mut self, now: Timestamp, event: Event) {
        self.pool.attend(&event);
        match event {
            Event::Client(client, event) => self.on_client(now, client, event),
            Event::ContentHashed { job, content } => self.pool.on_hashed(now, job, content),
            Event::DeviceFault { device, fault } => self.pool.on_device_fault(now, device, fault),
            Event::DrainRequested => self.pool.drain(now),
            Event::EndRequested => self.pool.end(now),
            Event::Reconfigured(config, policy) => {
                self.command_timeout = config.command_timeout;
                self.pool.reconfigure(*config, policy);
            }
            Event::QuotasSet(quotas) => self.pool.set_quotas(quotas),
            Event::Helper(helper, event) => {
                self.helpers.handle(now, helper, event, |action| self.pool.act(action));
            }
            Event::HandOver(step) => self.pool.on_hand_over(now, step),
            Event::Predecessor(said) => self.on_predecessor(now, said),
            Event::StopRequested => self.pool.stop(now),
            Event::TimePassed => {}
            Event::Worker(worker, event) => self.on_worker(now, worker, event),
        }
    }

    fn on_client(&mut self, now: Timestamp, client: ClientId, event: ClientEvent) {
        match event {
            ClientEvent::CancelRequested { key } => {
                // It is cancelled like one that is accepted.
                if let Some(waiting) = self.elsewhere.take(client, key) {
                    self.submit(now, waiting.client, waiting.request);
                }
                self.pool.on_cancel(now, client, key);
            }
            ClientEvent::Connected => self.pool.on_connected(client),
            ClientEvent::Gone => {
                for job in self.elsewhere.forget(client) {
                    self.pool.act(Action::Discard { job });
                }
                self.pool.on_client_gone(now, client);
            }
            ClientEvent::ModelsChangeRequested { request, command } => {
                self.on_models_change(client, request, command);
            }
            ClientEvent::ReleaseRequested { request, release } => {
                let result = self.pool.release(now, release);
                if let Ok(what) = &result {
                    self.pool.act(Action::Note(Note::Released { client, what: what.clone() }));
                }
                self.pool.act(Action::Reply { client, request, result });
            }
            ClientEvent::Submitted(request) => match self.elsewhere.hold(client, request) {
                Held::No(request) => self.submit(now, client, request),
                Held::Waits => {}
                Held::Again(job) => self.pool.act(Action::Discard { job }),
                Held::Taken(JobRequest { job, key, .. }) => {
                    let refusal = Refusal::KeyInUse(key);
                    self.pool.act(Action::Refuse { client, job, key, refusal });
                }
            },
        }
    }

    fn submit(&mut self, now: Timestamp, client: ClientId, request: JobRequest) {
        let group = match request.work.model() {
            None => Ok(Group::Grid),
            Some(model) => self.catalogue.check(model, |group| !self.pool.awaits_workers(group)),
        };
        self.pool.on_submitted(now, client, request, group);
    }

    /// The pool whose place this one has taken says something: submissions that have waited for that wait no longer.
    fn on_predecessor(&mut self, now: Timestamp, said: Predecessor) {
        let ended = match said {
            Predecessor::Gone => self.elsewhere.end_all(),
            Predecessor::Told(JobNews::Live(name)) => return self.elsewhere.begin(name),
            Predecessor::Told(JobNews::Ended(name)) => {
                self.elsewhere.end(&name).into_iter().collect()
            }
            Predecessor::Told(JobNews::Verdict { name, job, fingerprint, receipt }) => {
                let ended = self.elsewhere.end(&name).into_iter().collect();
                self.pool.remember(name, job, fingerprint, receipt.0);
                ended
            }
        };
        for waiting in ended {
            self.submit(now, waiting.client, waiting.request);
        }
    }

    /// An operator asks to change the models. The reply comes when the change is complete.
    fn on_models_change(&mut self, client: ClientId, request: u64, command: ModelCommand) {
        let begun = match self.pool.is_draining() {
            true => Err(Refusal::Draining),
            false => self
                .catalogue
                .begin(&mut self.pool, client, request, command)
                .map_err(Refusal::Invalid),
        };
        if let Err(refusal) = begun {
            self.pool.act(Action::Reply { client, request, result: Err(refusal) });
        }
    }

    fn on_worker(&mut self, now: Timestamp, worker: WorkerId, mut event: WorkerEvent) {
        match &mut event {
            WorkerEvent::ModelsReported(models) => {
                let notes = self.catalogue.of(worker).map(|own| own.on_reported(worker, models));
                for note in notes.into_iter().flatten() {
                    self.pool.act(Action::Note(note));
                }
            }
            WorkerEvent::CommandEnded { number, result } => {
                let own = self.catalogue.of(worker);
                let ended = own.map(|own| own.on_command_ended(worker, *number, result.clone()));
                match ended.unwrap_or(Err(models::UnknownCommand)) {
                    Ok(note) => note.into_iter().for_each(|note| self.pool.act(Action::Note(note))),
                    Err(models::UnknownCommand) => {
                        let how = pool::kill::Breach::UnknownCommand(*number);
                        self.pool.on_breach(now, worker, how);
                        return self.forget_ended();
                    }
                }
            }
            WorkerEvent::Answered { .. }
            | WorkerEvent::BeaconLost { .. }
            | WorkerEvent::ChannelClosed
            | WorkerEvent::Exited(_)
            | WorkerEvent::Heard
            | WorkerEvent::Ready(_)
            | WorkerEvent::Reclaimed
            | WorkerEvent::SpawnFailed { .. } => {}
        }
        self.pool.on_worker(now, worker, event);
        self.forget_ended();
    }

    /// Drops the models state of workers that have ended or are ending.
    fn forget_ended(&mut self) {
        for worker in self.pool.take_ended() {
            if let Some(models) = self.catalogue.of(worker) {
                models.on_ended(worker);
            }
        }
    }

    /// Sends workers the commands that are due.
    fn advance_models(&mut self, now: Timestamp) {
        loop {
            self.forget_ended();
            let mut is_done = true;
            for group in self.catalogue.need_step() {
                let pool = &self.pool;
                let context = StepContext {
                    now,
                    is_requested: &|name| pool.is_asked(name),
                    awaits_workers: pool.awaits_workers(group),
                    why_no_worker: &|| match pool.is_draining() {
                        true => "the pool ends".to_owned(),
                        false => pool.why_no_device(now, group),
                    },
                };
                for effect in self.catalogue.step(group, &context) {
                    is_done = false;
                    self.perform(now, group, effect);
                }
            }
            if is_done {
                return;
            }
        }
    }

    fn perform(&mut self, now: Timestamp, group: Group, effect: Effect) {
        match effect {
            Effect::Command { worker, number, command } => {
                self.pool.begin_change(worker);
                self.pool.act(Action::Command { worker, number, command });
            }
            Effect::Rest => self.pool.rest(now, group),
            Effect::Reply { client, request, result } => {
                self.pool.act(Action::Note(Note::ModelsChanged { result: result.clone() }));
                let result = result.map_err(Refusal::Unable);
                self.pool.act(Action::Reply { client, request, result });
            }
        }
    }
}

/// Views, for status and metrics.
impl Core {
    /// A row for every process, and for every device and role without one, with the worker's id. The shell
    /// adds what it knows of processes and jobs.
    #[must_use]
    pub fn workers(&self) -> Vec<(Option<WorkerId>, WorkerStatus)> {
        self.pool.workers()
    }

    /// The active worker of `device`, of the group of this name if it has one, or another process there if none is
    /// active. A worker for programs goes before one for models.
    #[must_use]
    pub fn worker_on(&self, device: DeviceId, group: Option<&str>) -> Option<WorkerId> {
        self.pool.worker_on(device, group)
    }

    /// What a worker runs, if it is busy.
    #[must_use]
    pub fn current_dispatch(&self, worker: WorkerId) -> Option<CurrentDispatch> {
        self.pool.current_dispatch(worker)
    }

    /// The queue. The shell, which has the clock, adds the age of its oldest job.
    #[must_use]
    pub fn queue(&self) -> QueueStatus {
        self.pool.queue()
    }

    /// When the oldest job that waits was accepted.
    #[must_use]
    pub fn waits_since(&self) -> Option<Timestamp> {
        self.pool.waits_since()
    }

    /// The quota of a principal.
    #[must_use]
    pub fn quota(&self, principal: &Principal) -> Quota {
        self.pool.quota(principal)
    }

    /// A row for every principal that has jobs, or had some lately, or is `connected`; one more for all others.
    /// The shell adds what it knows of users and connections.
    #[must_use]
    pub fn principals(
        &self,
        now: Timestamp,
        connected: &BTreeSet<Principal>,
    ) -> Vec<(Option<Principal>, PrincipalStatus)> {
        self.pool.principals(now, connected)
    }

    /// Sums since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.pool.counters()
    }

    /// The metrics of each role, of each device and role, and of faults.
    #[must_use]
    pub fn metrics(
        &self,
        now: Timestamp,
    ) -> (Vec<RoleMetrics>, Vec<DeviceMetrics>, Vec<(FaultCode, u64)>) {
        self.pool.metrics(now)
    }

    /// The devices that are out of service for a role, and why.
    pub fn quarantines(&self) -> impl Iterator<Item = Quarantine<'_>> {
        self.pool.quarantines()
    }

    /// Whether the pool has stopped accepting, for good.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.pool.is_draining()
    }

    /// Whether a successor serves in this pool's place.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        self.pool.is_replaced()
    }

    /// When the drain is over at the latest; `None` without one, or if a second signal asked for an end at once.
    #[must_use]
    pub fn drained_by(&self) -> Option<Timestamp> {
        self.pool.drained_by()
    }

    /// Every group, its name, and whether it has work: one without keeps no workers, and may get another name.
    pub fn groups(&self) -> impl Iterator<Item = (Group, &str, bool)> {
        self.pool.groups()
    }

    /// Whether a job with the same work and number of items is on the denylist: then a submission must
    /// carry its content hash.
    #[must_use]
    pub fn asks_for_content(&self, request: &JobRequest) -> bool {
        self.pool.asks_for_content(&request.work, request.items)
    }

    /// What a helper is doing.
    #[must_use]
    pub fn helper(&self, helper: Helper) -> HelperStatus {
        self.helpers.status(helper)
    }
}
