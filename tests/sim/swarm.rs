//! What a seed decides at the start: size, limits, and the rates of faults.

mod special;

use std::time::Duration;

use gridpool_core::config::{HelperLimits, MODELS_MAX, PoolConfig};
use gridpool_core::event::Helper;
use gridpool_protocol::ids::{DeviceId, DeviceKind};
use gridpool_protocol::tensor::options::{ModelOptions, ModelPlan};
use gridpool_protocol::tensor::placement::Placement;
use gridpool_protocol::tensor::version::split;

use crate::rates::Rates;
use crate::rng::Rng;

/// How many seeds, of 1,000, are only about fair shares among many clients.
const CROWDED: u64 = 30;

/// How many have large dispatches with some poisonous jobs, devices that fail and come back, or workers
/// that fall silent.
const POISONED: u64 = 120;
const SICK: u64 = 100;
const MUTE: u64 = 180;
const SICK_OR_MUTE: u64 = SICK + MUTE;
/// Seeds of 1,000 whose processes often cannot be killed.
const STUCK: u64 = 30;
const SICK_MUTE_OR_STUCK: u64 = SICK_OR_MUTE + STUCK;
/// Seeds of 1,000 whose roles often rest and soon wake.
const RESTLESS: u64 = 120;
const RESTLESS_TOO: u64 = SICK_MUTE_OR_STUCK + RESTLESS;
/// Seeds of 1,000 whose workers often lose the models of their jobs.
const FORGETFUL: u64 = 70;
const FORGETFUL_TOO: u64 = RESTLESS_TOO + FORGETFUL;
/// Seeds of 1,000 whose models change all the time, often without success.
const CHANGING: u64 = 110;
const CHANGING_TOO: u64 = FORGETFUL_TOO + CHANGING;
/// Seeds of 1,000 whose requests wait again before their worker's death is explained.
const ACCUSED: u64 = 30;
const ANY_BUT_ORDINARY: u64 = CHANGING_TOO + ACCUSED;

/// Of 1,000 pools: those whose jobs use models, those of them with a model from the start, and those with
/// helpers.
const HAVE_MODELS: u64 = 350;
const START_WITH_MODELS: u64 = 800;
/// Of 1,000 pools with models, those with the most that are allowed.
const FULL_OF_MODELS: u64 = 20;
const HAVE_HELPERS: u64 = 250;

/// One seed's configuration.
#[derive(Clone, Debug)]
pub(crate) struct Swarm {
    pub(crate) config: PoolConfig,
    pub(crate) devices: u32,
    pub(crate) clients: u64,
    /// Principals that they have.
    pub(crate) principals: u32,
    /// Of 1,000 jobs, those that are for another principal, as the gateway's are.
    pub(crate) for_others: u64,
    /// Steps of clients and chaos before the faults stop.
    pub(crate) steps: u64,
    /// Longest pause between two steps, milliseconds.
    pub(crate) pause_max: u64,
    /// Longest ordinary service time, milliseconds.
    pub(crate) service_max: u64,
    /// What jobs cost; equal costs make the bound on unfairness tight.
    pub(crate) costs: [u64; 3],
    /// How many items they have.
    pub(crate) items: [u32; 3],
    /// Programs that jobs name.
    pub(crate) programs: u64,
    /// Of 1,000 jobs, those whose result comes in the answer.
    pub(crate) inline: u64,
    /// Of 1,000 processes, those whose beacon is lost when they end.
    pub(crate) beacons: u64,
    /// Longest time between the end of a process and its exit event, milliseconds.
    pub(crate) exit_lag: u64,
    /// Longest time until a process that is asked to end does, milliseconds.
    pub(crate) stop_lag: u64,
    /// Longest time until its memory is free, milliseconds.
    pub(crate) memory_lag: u64,
    /// Longest time that it takes to hash a job, milliseconds.
    pub(crate) hash_lag: u64,
    pub(crate) heartbeat: Duration,
    /// Models that may exist. Without any, jobs use none.
    pub(crate) models: u64,
    /// Those of them that share their workers; the others have workers of their own.
    pub(crate) sharers: u64,
    /// The kind of the first of the others.
    pub(crate) first_kind: u64,
    /// Those that exist from the start.
    pub(crate) plans: Vec<ModelPlan>,
    /// Of 1,000 jobs, those that use a model.
    pub(crate) model_jobs: u64,
    /// Longest time that a worker takes to change a model, milliseconds.
    pub(crate) load_max: u64,
    pub(crate) has_helpers: bool,
    /// The limits of the bridge, the gateway and the monitor.
    pub(crate) helper_limits: [HelperLimits; 4],
    pub(crate) helper_beat: Duration,
    pub(crate) rates: Rates,
}

impl Swarm {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        if rng.chance(CROWDED) {
            return Self::crowded(rng);
        }
        if rng.chance(POISONED) {
            return Self::poisoned(rng);
        }
        let swarm = Self::any(rng);
        match rng.below(1_000) {
            0..SICK => swarm.sick(rng),
            SICK..SICK_OR_MUTE => swarm.mute(rng),
            SICK_OR_MUTE..SICK_MUTE_OR_STUCK => swarm.stuck(rng),
            SICK_MUTE_OR_STUCK..RESTLESS_TOO => swarm.restless(rng),
            RESTLESS_TOO..FORGETFUL_TOO => swarm.forgetful(rng),
            FORGETFUL_TOO..CHANGING_TOO => swarm.changing(rng),
            CHANGING_TOO..ANY_BUT_ORDINARY => swarm.accused(rng),
            _ => swarm,
        }
    }

    fn any(rng: &mut Rng) -> Self {
        let config = Self::config(rng);
        Self {
            devices: count(rng, 1, 4),
            clients: rng.between(1, 4),
            principals: count(rng, 1, 4),
            for_others: rng.pick(&[0, 300, 500, 1_000]),
            steps: rng.between(5, 120),
            pause_max: rng.pick(&[0, 5, 20, 60, 120]),
            service_max: rng.pick(&[1, 10, 50, 200]),
            costs: rng.pick(&[[10, 10, 10], [5, 10, 20], [1, 10, 100]]),
            items: rng.pick(&[[1, 1, 1], [1, 2, 9], [5, 50, 100]]),
            programs: rng.between(1, 3),
            inline: rng.pick(&[0, 500, 900, 1_000]),
            beacons: rng.pick(&[0, 800, 1_000]),
            exit_lag: rng.pick(&[0, 5, 20, 100, 400]),
            stop_lag: 30,
            memory_lag: rng.pick(&[0, 5, 50, 800]),
            hash_lag: rng.pick(&[0, 10, 1_000]),
            heartbeat: rng.millis(90, 149),
            models: 0,
            sharers: 0,
            first_kind: 0,
            plans: Vec::new(),
            model_jobs: 0,
            load_max: rng.pick(&[1, 20, 100]),
            has_helpers: rng.chance(HAVE_HELPERS),
            helper_limits: helper_limits(rng),
            helper_beat: rng.millis(20, 40),
            rates: Rates::draw(rng),
            config,
        }
        .with_models(rng)
    }

    /// The limits of a pool, drawn at its start and when it is reconfigured.
    pub(crate) fn config(rng: &mut Rng) -> PoolConfig {
        let backoff_min = rng.pick(&[0, 1, 10, 40]);
        let probe_min = rng.pick(&[1, 20, 100, 400]);
        let standbys = if rng.chance(500) { 0 } else { count(rng, 1, 2) };
        PoolConfig {
            queue_jobs_max: size(rng, &[1, 3, 8, 16, 100]),
            queue_bytes_max: rng.pick(&[0, 100, 300, 1_000, 1 << 40]),
            client_jobs_max: size(rng, &[1, 3, 8, 16, 100]),
            principal_jobs_max: size(rng, &[1, 3, 8, 16, 100]),
            principal_bytes_max: rng.pick(&[100, 300, 1_000, 1 << 40]),
            attempts_max: count(rng, 1, 5),
            poison_deaths: count(rng, 1, 3),
            denylist_max: size(rng, &[0, 1, 2, 100]),
            verdicts_kept: size(rng, &[0, 1, 3, 10, 1_000]),
            // No receipt of a simulation comes near it.
            verdict_bytes_max: PoolConfig::DEFAULT.verdict_bytes_max,
            user_connections_max: 0,
            kills_max: size(rng, &[1, 3, 100, 100]),
            kill_refill: Duration::from_millis(rng.pick(&[1, 50, 1_000, 10_000])),
            known_answer_every: Duration::ZERO,
            worker_memory_growth_max: 0,
            worker_descriptors_growth_max: 0,
            spin_us: 0,
            restart_limit: count(rng, 1, 8),
            restart_window: rng.millis(50, 4_000),
            start_failures_max: count(rng, 1, 6),
            backoff_min: Duration::from_millis(backoff_min),
            backoff_max: Duration::from_millis(backoff_min * rng.pick(&[1, 3, 8, 100])),
            standbys,
            probe_min: Duration::from_millis(probe_min),
            probe_max: Duration::from_millis(probe_min * rng.pick(&[1, 3, 30])),
            incident_window: Duration::from_millis(rng.pick(&[10, 100, 10_000])),
            incident_repeat_window: Duration::from_millis(rng.pick(&[200, 2_000, 600_000])),
            reclaim_timeout: Duration::from_millis(rng.pick(&[0, 10, 100, 500])),
            ready_timeout: rng.millis(100, 600),
            heartbeat_suspect: rng.millis(150, 300),
            heartbeat_kill: rng.millis(300, 700),
            heartbeat_start: rng.millis(200, 700),
            cancel_grace: rng.millis(0, 60),
            kill_timeout: rng.millis(20, 300),
            drain_timeout: rng.millis(0, 1_500),
            upgrade_timeout: PoolConfig::DEFAULT.upgrade_timeout,
            shard_cost_min: rng.pick(&[1, 5, 10, 40, 1 << 40]),
            shards_per_device: count(rng, 1, 3),
            feed_cost_max: rng.pick(&[0, 5, 20, 60, 1_000]),
            feed_timeout: Duration::from_millis(rng.pick(&[1, 20, 60, 150, 10_000])),
            infer_window: rng.pick(&[1, 2, 5, 64]),
            infer_cancel_grace: rng.millis(0, 60),
            infer_ready_timeout: rng.millis(100, 600),
            command_timeout: rng.millis(50, 400),
            model_bytes_max: rng.pick(&[0, 0, 0, 300, 1_000]),
            load_timeout: Duration::from_millis(rng.pick(&[5, 50, 400, 3_000])),
            join_cost_max: rng.pick(&[0, 10, 30, 100, 1_000]),
        }
    }

    /// The name of a model.
    pub(crate) fn name(&self, number: u64) -> String {
        match number {
            shared if shared < self.sharers => format!("{SHARES}{number}"),
            other => format!("{}{number}", kind(other + self.first_kind)),
        }
    }

    /// Some pools have models.
    fn with_models(self, rng: &mut Rng) -> Self {
        match rng.chance(HAVE_MODELS) {
            true => {
                let models = rng.between(1, 3);
                let sharers = rng.pick(&[0, 2, models, models]).min(models);
                let model_jobs = rng.pick(&[300, 700, 1_000]);
                let first_kind = rng.below(KINDS.len() as u64);
                Self { models, sharers, first_kind, model_jobs, ..self }.with_plans(rng)
            }
            false => self,
        }
    }

    /// Some of the models exist from the start, in some pools the most that are allowed.
    fn with_plans(mut self, rng: &mut Rng) -> Self {
        if rng.chance(FULL_OF_MODELS) {
            self.models = MODELS_MAX as u64;
            self.sharers = self.models - rng.below(3);
            self.rates.unknown_models = 500;
            self.rates.model_changes = 300;
            self.plans = (0..self.models).map(|number| plan(&self.name(number), 1)).collect();
            self.can_be_placed();
            return self;
        }
        let all = (0..self.models).filter(|_| rng.chance(START_WITH_MODELS)).collect::<Vec<_>>();
        let plans = all.into_iter().map(|number| plan(&self.name(number), count(rng, 1, 3)));
        self.plans = plans.collect();
        self.can_be_placed();
        self
    }

    /// A pool starts without models for devices that it does not have.
    fn can_be_placed(&mut self) {
        let devices = self.devices;
        let has = |plan: &ModelPlan| {
            let own = plan.options.devices.iter().flat_map(Placement::devices);
            // Those that only count their devices get them from the shell, before the pool starts.
            plan.options.device_count.is_none()
                && own.into_iter().all(|device| device.index < devices)
        };
        self.plans.retain(has);
    }
}

/// What the names of models that share their workers begin with.
const SHARES: char = 's';
/// What the others begin with: those of the first kind are on all devices.
const KINDS: [char; 7] = ['m', 'p', 'q', 'r', 't', 'u', 'v'];

/// The first letter of the model of this number, counted from that of the first kind.
fn kind(number: u64) -> char {
    KINDS[usize::try_from(number % KINDS.len() as u64).expect("it is small")]
}

/// What a model may take of a device, unless it does not say.
pub(crate) const MODEL_BYTES: u64 = 100;

/// The devices of a model with this name.
fn placement(name: &str) -> Option<Placement> {
    let gpus = |all: &[u32]| {
        Placement::new(all.iter().map(|&index| DeviceId { kind: DeviceKind::Gpu, index }))
    };
    match name.chars().next() {
        Some('p') => gpus(&[0]),
        Some('q') => gpus(&[1]),
        Some('r' | 'v') => gpus(&[0, 2]),
        _ => None,
    }
}

/// On how many of those devices it is, if that is fewer than all.
fn device_count(name: &str) -> Option<u32> {
    match name.chars().next() {
        Some('t' | 'v') => Some(1),
        Some('u') => Some(2),
        _ => None,
    }
}

/// The contexts of a plan: the world's workers choose none.
pub(crate) fn contexts_of(plan: &ModelPlan) -> u32 {
    plan.options.contexts.fixed().expect("the swarm gives numbers")
}

/// The time of a load that has one of its own, whole seconds.
pub(crate) const LOAD_TIMEOUT_S: u32 = 1;
pub(crate) const LOAD_TIMEOUT: Duration = Duration::from_secs(LOAD_TIMEOUT_S as u64);

/// A model as this pool loads it. One whose name begins so shares its workers with the others of that kind; one whose
/// name ends so has a time of its own to load.
pub(crate) fn plan(name: &str, contexts: u32) -> ModelPlan {
    let group = name.starts_with(SHARES).then(|| "shared".to_owned());
    let (contexts, devices) = (contexts.into(), placement(name));
    let device_bytes = (!name.starts_with('r')).then_some(MODEL_BYTES);
    let of_all = ModelOptions::default();
    let device_count = device_count(name);
    let load_timeout_s = split(name).0.ends_with('1').then_some(LOAD_TIMEOUT_S);
    let of_all = ModelOptions { load_timeout_s, ..of_all };
    let options = ModelOptions { contexts, group, devices, device_count, device_bytes, ..of_all };
    ModelPlan { name: name.to_owned(), path: "/models/m.onnx".into(), options }
}

fn helper_limits(rng: &mut Rng) -> [HelperLimits; 4] {
    Helper::ALL.map(|helper| {
        let backoff_min = Duration::from_millis(rng.pick(&[1, 10, 40]));
        HelperLimits {
            start: rng.millis(80, 300),
            silence: rng.millis(60, 300),
            kill: rng.millis(20, 200),
            backoff_min,
            backoff_max: backoff_min * rng.pick(&[1, 4, 100]),
            healthy: rng.millis(100, 1_000),
            stop: HelperLimits::of(helper).stop.map(|_| rng.millis(20, 200)),
        }
    })
}

fn count(rng: &mut Rng, low: u32, high: u32) -> u32 {
    u32::try_from(rng.between(u64::from(low), u64::from(high))).expect("both ends are u32")
}

fn size(rng: &mut Rng, choices: &[usize]) -> usize {
    rng.pick(choices)
}
