//! One seed from its first event to the last: faults, then calm, then the end.

mod events;
mod handed_over;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use gridpool_core::Core;
use gridpool_core::event::{Event, Helper, HelperEvent, Release, Timestamp};
use gridpool_core::policy::PolicyTable;
use gridpool_protocol::ids::{ClientId, DeviceId, DeviceKind, JobId};
use gridpool_protocol::message::ModelCommand;
use gridpool_protocol::receipt::Verdict;

use crate::coverage::Coverage;
use crate::log::Log;
use crate::model::{Broken, Model};
use crate::rng::Rng;
use crate::swarm::{LOAD_TIMEOUT, Swarm, plan};
use crate::world::World;

/// Time after the faults in which all must settle.
const SETTLES_WITHIN: Duration = Duration::from_secs(30);

/// How often the models of the start must be loaded, of 1,000 cases.
const REQUIRES_MODELS: u64 = 500;

/// How often the pool must end in the middle of the faults, of 1,000 cases.
const FAULTS_TO_THE_END: u64 = 250;

/// How often an operator releases devices that wait for that, of 1,000 cases.
const RELEASES_HALTED: u64 = 500;

/// How often an operator does not wait for the last drain, of 1,000 cases.
const STOPS_AT_ONCE: u64 = 200;

/// How often the pool ends because a successor has taken its place, of 1,000 cases.
const HANDED_OVER: u64 = 300;

/// How often a frequent event is handled with the one before, of 1,000 cases.
const TOGETHER: u64 = 300;

/// How often the pool takes the place of another, which has the devices at first, of 1,000 cases.
const HELD: u64 = 80;

/// How often a pool without models is left alone until it has no process for them, of 1,000 cases.
const RESTS_ALL_THE_WAY: u64 = 500;

/// Time in which a device without processes has all of them again, without faults.
const STARTS_WITHIN: Duration = Duration::from_secs(1);

/// Time in which a worker changes its models, without faults.
const LOADS_WITHIN: Duration = Duration::from_secs(2);

/// The client that changes models and releases devices after the faults.
const OPERATOR: ClientId = ClientId(u64::MAX);

/// Longest time for which the core is not called.
const PAUSE_MAX_MS: u64 = 2_500;

/// The result of a seed.
#[derive(Debug)]
pub(crate) struct Outcome {
    seed: u64,
    pub(crate) log: Log,
    pub(crate) coverage: Coverage,
    pub(crate) events: u64,
    pub(crate) broken: Option<Broken>,
}

impl Outcome {
    /// The broken rule, how to replay the seed, and the last events and actions.
    pub(crate) fn report(&self) -> String {
        let Some(Broken { rule, detail }) = &self.broken else { return String::new() };
        format!("\n{}\nbroken: {rule}\n  {detail}\nreplay: SIM_SEED={}\n", self.log, self.seed)
    }
}

/// Runs one seed. A panic of the core is a broken rule like any other.
pub(crate) fn run(seed: u64, log: Log, coverage: Coverage) -> Outcome {
    let mut run = Run::new(seed, log, coverage);
    let result = catch_unwind(AssertUnwindSafe(|| run.all()));
    let broken = match result {
        Ok(result) => result.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            let detail = text.unwrap_or_else(|| "a panic without a text".to_owned());
            Some(Broken { rule: "the_core_does_not_panic", detail })
        }
    };
    Outcome { seed, log: run.log, coverage: run.model.coverage, events: run.events, broken }
}

struct Run {
    swarm: Swarm,
    rng: Rng,
    now: Timestamp,
    core: Core,
    world: World,
    model: Model,
    log: Log,
    events: u64,
    /// How much pauses may have extended the timeouts of workers.
    slack: Duration,
    /// The latest verdict.
    verdict: Option<(JobId, Verdict)>,
}

impl Run {
    fn new(seed: u64, log: Log, coverage: Coverage) -> Self {
        let mut rng = Rng::new(seed);
        let swarm = Swarm::draw(&mut rng);
        let devices: Vec<_> =
            (0..swarm.devices).map(|index| DeviceId { kind: DeviceKind::Gpu, index }).collect();
        let limits = |helper: Helper| {
            let [bridge, gateway, monitor, tracer] = swarm.helper_limits;
            match helper {
                Helper::Bridge => bridge,
                Helper::Gateway => gateway,
                Helper::Monitor => monitor,
                Helper::Tracer => tracer,
            }
        };
        let (config, policy) = (swarm.config.clone(), PolicyTable::default());
        let mut core = Core::new(config, policy, &devices, &swarm.plans, limits);
        core.name_capsules("sim");
        let mut world = World::new(&swarm, Rng::new(!seed));
        let mut model = Model::new(&swarm, &devices, coverage);
        // By chance of its own: other seeds stay as they are.
        if Rng::new(seed.rotate_left(32)).chance(HELD) {
            core.hold_devices();
            model.holds_all_devices();
            world.predecessor_ends();
        }
        Self {
            now: Timestamp::default(),
            core,
            world,
            model,
            log,
            events: 0,
            slack: Duration::ZERO,
            verdict: None,
            swarm,
            rng,
        }
    }

    fn all(&mut self) -> Result<(), Broken> {
        self.tell(Event::TimePassed)?;
        if self.rng.chance(REQUIRES_MODELS) {
            self.tell(Event::ModelsRequired)?;
        }
        self.with_faults()?;
        if !self.rng.chance(FAULTS_TO_THE_END) {
            self.log.note(self.now, "the faults stop");
            self.world.calm(self.now);
            self.settle()?;
            while self.model.is_being_replaced() {
                // What becomes of the successor is on its way.
                self.turn(self.now.after(SETTLES_WITHIN))?;
            }
            if self.model.is_resting() && self.model.is_serving() {
                self.rests_and_wakes()?;
            }
            if self.model.is_serving() {
                self.serves_again()?;
            }
        }
        self.ends()
    }

    fn with_faults(&mut self) -> Result<(), Broken> {
        let mut steps = self.swarm.steps;
        let mut next = self.now;
        while steps > 0 {
            self.until(next)?;
            let burst = if self.rng.chance(100) { self.rng.between(2, 8) } else { 1 };
            let are_together = self.rng.chance(TOGETHER);
            let mut together = Vec::new();
            for _ in 0..burst.min(steps) {
                steps -= 1;
                match self.world.act(self.now) {
                    Some(event) if are_together && event.is_frequent() => together.push(event),
                    Some(event) => {
                        self.tell_together(std::mem::take(&mut together))?;
                        self.tell(event)?;
                    }
                    None => {}
                }
            }
            self.tell_together(together)?;
            if self.rng.chance(self.swarm.rates.pauses) {
                self.log.note(self.now, "the supervisor is stopped for a while");
                self.now = self.now.after(self.rng.millis(1, PAUSE_MAX_MS));
                self.slack = 3 * Duration::from_millis(PAUSE_MAX_MS);
            }
            next = self.now.after(self.rng.millis(0, self.swarm.pause_max));
        }
        Ok(())
    }

    /// The faults have stopped: every accepted job gets its verdict.
    fn settle(&mut self) -> Result<(), Broken> {
        let limit = self.now.after(SETTLES_WITHIN);
        while self.model.live_jobs() > 0 && self.now < limit {
            self.turn(limit)?;
        }
        let live = self.model.live_jobs();
        every_job_gets_its_verdict_once_the_faults_stop(live)
    }

    /// A pool without models keeps no process for them, and starts them all with the first model.
    fn rests_and_wakes(&mut self) -> Result<(), Broken> {
        if self.rng.chance(RESTS_ALL_THE_WAY) {
            let config = &self.swarm.config;
            let old_faults = config.heartbeat_kill + 3 * config.kill_timeout;
            self.until(self.now.after(old_faults + self.slack))?;
            if !self.model.is_resting() {
                return Ok(());
            }
            self.model.a_group_that_rests_keeps_no_process()?;
        }
        self.model.coverage.hit("phase 2: a pool without models got one");
        let change = self.world.change_of(OPERATOR, ModelCommand::Load(plan("m0", 1)));
        self.tell(change)
    }

    /// Every device has all its processes again, except those that wait for an operator.
    fn fills_up(&mut self) -> Result<(), Broken> {
        let config = &self.swarm.config;
        let old_faults = config.heartbeat_kill
            + config.ready_timeout.max(config.infer_ready_timeout)
            + 2 * (config.kill_timeout + config.reclaim_timeout)
            + config.backoff_max
            + config.probe_max
            + STARTS_WITHIN;
        let limit = self.now.after(old_faults + self.slack);
        while !self.model.is_filled() && self.now < limit {
            self.turn(limit)?;
        }
        self.model.every_slot_is_filled_once_the_faults_stop()
    }

    /// A healthy pool serves every client, whatever happened before.
    fn serves_again(&mut self) -> Result<(), Broken> {
        let config = &self.swarm.config;
        // By then every silent process is gone.
        let old_faults = config.heartbeat_kill
            + config.ready_timeout.max(config.infer_ready_timeout)
            + config.command_timeout.max(LOAD_TIMEOUT)
            + 2 * config.kill_timeout;
        self.until(self.now.after(old_faults + self.slack))?;
        self.fills_up()?;
        let halted = self.model.halted();
        if !halted.is_empty() && self.rng.chance(RELEASES_HALTED) {
            for &device in &halted {
                let release = self.world.release_of(OPERATOR, Release::Device(device));
                self.tell(release)?;
            }
            self.fills_up()?;
            if self.model.halted().is_empty() {
                self.model.coverage.hit("phase 2: an operator brought a device back");
            }
        }
        self.has_its_models()?;
        for client in self.world.clients() {
            let models = self.model.open_models(&self.world.sha256_now());
            let model = (!models.is_empty()).then(|| &*models[self.index(models.len())]);
            for model in model.map(Some).into_iter().chain([None]) {
                let (job, event) = self.world.probe(self.now, client, model);
                self.tell(event)?;
                let limit = self.now.after(SETTLES_WITHIN);
                while self.model.live_jobs() > 0 && self.now < limit {
                    self.turn(limit)?;
                }
                self.a_job_after_the_faults_ends_ok_if_a_device_is_left(job)?;
            }
        }
        self.has_its_helpers()
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.rng.below(length as u64)).expect("it is below a length")
    }

    /// Every worker has the wanted models.
    fn has_its_models(&mut self) -> Result<(), Broken> {
        let soon = self.swarm.config.command_timeout.max(LOAD_TIMEOUT) + LOADS_WITHIN;
        self.until(self.now.after(soon))?;
        self.model.every_worker_has_the_wanted_models_once_the_faults_stop()
    }

    /// A helper that is wanted is up in time; one that is not is off.
    fn has_its_helpers(&mut self) -> Result<(), Broken> {
        if !self.swarm.has_helpers {
            return Ok(());
        }
        for helper in Helper::ALL {
            self.tell(Event::Helper(helper, HelperEvent::Wanted))?;
        }
        self.until(self.now.after(self.helpers_settle()))?;
        self.model.every_helper_is_up_once_the_faults_stop()?;
        for helper in Helper::ALL {
            self.tell(Event::Helper(helper, HelperEvent::Unwanted))?;
        }
        self.until(self.now.after(self.helpers_settle()))?;
        self.model.every_helper_is_off_when_it_is_not_wanted()
    }

    /// How long it takes until all helpers are on or off as wanted.
    fn helpers_settle(&self) -> Duration {
        let longest = self
            .swarm
            .helper_limits
            .iter()
            .map(|limits| limits.start + limits.silence + 2 * limits.kill + limits.backoff_max);
        longest.max().unwrap_or_default() + STARTS_WITHIN + self.slack
    }

    /// A drain ends in time, with or without faults; so does one that began before.
    fn ends(&mut self) -> Result<(), Broken> {
        let is_end = self.rng.chance(500);
        let is_handed_over = self.rng.chance(HANDED_OVER);
        if is_handed_over {
            self.is_handed_over()?;
        }
        // A successor that came before may just have failed.
        if is_end || !is_handed_over || !self.model.is_replaced() {
            self.tell(if is_end { Event::EndRequested } else { Event::DrainRequested })?;
        }
        if self.rng.chance(STOPS_AT_ONCE) {
            let soon = self.now.after(self.rng.millis(0, if is_end { 2_000 } else { 20 }));
            self.until(soon)?;
            self.tell(if is_end { Event::EndRequested } else { Event::StopRequested })?;
        }
        let config = &self.swarm.config;
        let limit = config.drain_timeout + 3 * config.kill_timeout + self.slack;
        let limit = self.now.after(limit);
        while !self.model.has_left() && self.now < limit {
            self.turn(limit)?;
        }
        self.the_pool_leaves_in_time()?;
        self.until(self.now.after(Duration::from_millis(500)))?;
        self.tell(Event::StopRequested)
    }

    fn a_job_after_the_faults_ends_ok_if_a_device_is_left(
        &mut self,
        job: JobId,
    ) -> Result<(), Broken> {
        let rule = "a_job_after_the_faults_ends_ok_if_a_device_is_left";
        let coverage = &mut self.model.coverage;
        match self.verdict {
            Some((id, Verdict::Ok)) if id == job => {
                coverage.hit("phase 2: a job after the faults ended OK");
            }
            // The model has checked that no device is left.
            Some((id, Verdict::DeviceLost)) if id == job => {
                coverage.hit("phase 2: no device was left");
            }
            _ => return Err(Broken { rule, detail: format!("{job}: {:?}", self.verdict) }),
        }
        Ok(())
    }

    fn the_pool_leaves_in_time(&self) -> Result<(), Broken> {
        let rule = "the_pool_leaves_in_time";
        let detail = format!("{} live jobs at {}", self.model.live_jobs(), self.now);
        if self.model.has_left() { Ok(()) } else { Err(Broken { rule, detail }) }
    }
}

fn every_job_gets_its_verdict_once_the_faults_stop(live: usize) -> Result<(), Broken> {
    let rule = "every_job_gets_its_verdict_once_the_faults_stop";
    let detail = format!("{live} jobs have none");
    if live == 0 { Ok(()) } else { Err(Broken { rule, detail }) }
}
