//! Every rule of the supervisor, as plain data: scheduling, retries, backoff, quarantine, deadlines,
//! fairness and drain (`pool`), the models of each worker (`models`), and the restarts of helper
//! processes (`helpers`).
//!
//! The core has one interface. The shell passes an event to [`Core::handle`], or several to
//! [`Core::handle_together`], takes actions from [`Core::poll_action`] until it returns `None`, and calls
//! again no later than [`Core::poll_deadline`].
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
pub mod maps;
mod models;
pub mod placing;
pub mod policy;
mod pool;
pub mod quota;
mod views;

use std::time::Duration;

use gridpool_protocol::handover::JobNews;
use gridpool_protocol::ids::{ClientId, DeviceId, Group, WorkerId};
use gridpool_protocol::message::{ModelCommand, Refusal};
use gridpool_protocol::tensor::options::ModelPlan;

use action::{Action, Note};
use catalogue::{Begun, Catalogue};
use config::{HelperLimits, PoolConfig};
use elsewhere::{Elsewhere, Held};
use event::{ClientEvent, Event, Helper, JobRequest, Predecessor, Timestamp, Work, WorkerEvent};
pub use helpers::HelperStatus;
use helpers::Helpers;
use models::{Effect, StepContext};
use policy::PolicyTable;
use pool::Pool;
pub use pool::rows::{CurrentDispatch, Quarantine};

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
    load_timeout: Duration,
    /// The deadline that the shell was given last, by [`Core::poll_deadline`].
    wakes_at: Option<Timestamp>,
    /// Something has happened since, so that it may be another.
    has_changed: bool,
    /// When the latest event was handled.
    handled_at: Timestamp,
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
        let &PoolConfig { command_timeout, load_timeout, .. } = &config;
        let mut pool = Pool::new(config, policy, devices);
        Self {
            catalogue: Catalogue::new(models, &mut pool),
            pool,
            helpers: Helpers::new(helpers),
            elsewhere: Elsewhere::default(),
            command_timeout,
            load_timeout,
            wakes_at: None,
            has_changed: false,
            handled_at: Timestamp::default(),
        }
    }

    /// Deaths have capsules whose names begin with `prefix`, and receipts name them. Call it before the first event.
    pub fn name_capsules(&mut self, prefix: &str) {
        self.pool.name_capsules(prefix);
    }

    /// The pool before this one has every device: no process starts on a device that it has not
    /// [freed](Predecessor::Freed). Call it before the first event.
    pub fn hold_devices(&mut self) {
        self.pool.hold_devices();
    }

    /// Handles one event, and everything that is due by `now`.
    pub fn handle(&mut self, now: Timestamp, event: Event) {
        self.handle_together(now, [event]);
    }

    /// Handles events that have come together, in their order, then everything that is due by `now`: devices get jobs
    /// when all of them are known. Several events must be [frequent](Event::is_frequent) ones.
    pub fn handle_together(&mut self, now: Timestamp, events: impl IntoIterator<Item = Event>) {
        // What was due by the last event was done then: a call that comes soon after it is not late.
        if now.since(std::mem::replace(&mut self.handled_at, now)) >= PAUSE_MIN {
            self.excuse_pause(now);
        }
        self.pool.forget_verdicts();
        for event in events {
            self.take_in(now, event);
        }
        while let Some((worker, after)) = self.catalogue.late(now, self.command_timeout) {
            if let Some(models) = self.catalogue.of(worker) {
                models.on_late(worker, after);
            }
            self.pool.on_breach(now, worker, pool::kill::Breach::LateCommand { after });
            self.forget_ended();
        }
        self.pool.advance(now);
        self.start_workers();
        self.advance_models(now);
        self.report_missing(now);
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

    /// A receipt that an action has named since the latest event, encoded.
    #[must_use]
    pub fn encoded(&self, receipt: &action::EncodedReceipt) -> &[u8] {
        self.pool.encoded(receipt)
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
            Event::DeviceMemory { device, memory } => self.catalogue.on_memory(device, memory),
            Event::DrainRequested => self.pool.drain(now),
            Event::EndRequested => self.pool.end(now),
            Event::Reconfigured(config, policy) => {
                self.command_timeout = config.command_timeout;
                self.load_timeout = config.load_timeout;
                self.pool.reconfigure(*config, policy);
            }
            Event::ModelsRequired => self.catalogue.require_all(),
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
                self.catalogue.on_client_gone(client);
                self.pool.on_client_gone(now, client);
            }
            ClientEvent::ModelsChangeRequested { request, command } => {
                self.on_models_change(now, client, request, *command);
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
                Held::Taken(request) => {
                    let (job, key) = (request.job, request.key);
                    let refusal = Refusal::KeyInUse(key);
                    self.pool.act(Action::Refuse { client, job, key, refusal });
                }
            },
        }
    }

    fn submit(&mut self, now: Timestamp, client: ClientId, mut request: Box<JobRequest>) {
        let group = match &mut request.work {
            Work::Program { .. } | Work::Search { .. } => Ok(Group::Grid),
            // From here on it is a request for one version, whatever happens to the name.
            Work::Model { name } => {
                let settled = |group| !self.pool.awaits_workers(group);
                self.catalogue.route(name, settled).map(|(group, full_name)| {
                    *name = full_name;
                    group
                })
            }
        };
        self.pool.on_submitted(now, client, request, group);
    }

    /// The pool whose place this one has taken says something: submissions that have waited for that wait no longer.
    fn on_predecessor(&mut self, now: Timestamp, said: Predecessor) {
        let ended = match said {
            Predecessor::Freed(device) => return self.pool.on_freed(Some(device)),
            Predecessor::Gone => {
                self.pool.on_freed(None);
                self.elsewhere.end_all()
            }
            Predecessor::Told(JobNews::Live(name)) => return self.elsewhere.begin(name),
            Predecessor::Told(JobNews::Ended(name)) => {
                self.elsewhere.end(&name).into_iter().collect()
            }
            Predecessor::Told(JobNews::Verdict { name, job, fingerprint, receipt }) => {
                let ended = self.elsewhere.end(&name).into_iter().collect();
                self.pool.remember(name, job, fingerprint, &receipt.0);
                ended
            }
        };
        for waiting in ended {
            self.submit(now, waiting.client, waiting.request);
        }
    }

    /// An operator asks to change the models. The reply comes when the change is complete.
    fn on_models_change(
        &mut self,
        now: Timestamp,
        client: ClientId,
        request: u64,
        command: ModelCommand,
    ) {
        let due = now.after(command.load_timeout().unwrap_or(self.load_timeout));
        let begun = match self.pool.is_draining() {
            true => Err(Refusal::Draining),
            false => self
                .catalogue
                .begin(&mut self.pool, (client, request), command, due)
                .map_err(Refusal::Invalid),
        };
        let result = match begun {
            Ok(Begun::Later) => return,
            Ok(Begun::Done(what)) => Ok(what),
            Err(refusal) => Err(refusal),
        };
        self.pool.act(Action::Reply { client, request, result });
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
            WorkerEvent::Loading { model, phase } => {
                if let Some(models) = self.catalogue.of_quietly(worker) {
                    models.on_progress(worker, model, *phase);
                }
            }
            WorkerEvent::Answered { .. }
            | WorkerEvent::BeaconLost { .. }
            | WorkerEvent::ChannelClosed
            | WorkerEvent::Exited(_)
            | WorkerEvent::Heard
            | WorkerEvent::Progressed
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
                let command = Box::new(command);
                self.pool.act(Action::Command { worker, number, command });
            }
            Effect::Rest => self.pool.rest(now, group),
            Effect::Reply { client, request, result } => {
                self.pool.act(Action::Note(Note::ModelsChanged { result: result.clone() }));
                if let Some(result) = self.catalogue.on_changed(client, request, result) {
                    let result = result.map_err(Refusal::Unable);
                    self.pool.act(Action::Reply { client, request, result });
                }
            }
        }
    }
}
