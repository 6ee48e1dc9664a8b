//! The rate of every fault of a seed. About half of the rates are zero, so that each fault also happens
//! without the others.

use crate::rng::Rng;

/// How often each fault happens, of 1,000 cases.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rates {
    /// The process cannot be started.
    pub(crate) spawn_fails: u64,
    /// It can never be started.
    pub(crate) spawn_is_final: u64,
    /// It ends before it is READY.
    pub(crate) start_crashes: u64,
    /// It ends in a way that a new process would repeat.
    pub(crate) start_is_final: u64,
    /// The same for a process that ends later, in seeds where it happens at all.
    pub(crate) final_ends: u64,
    /// It never becomes READY.
    pub(crate) start_hangs: u64,
    pub(crate) start_mutes: u64,
    /// It dies of the job.
    pub(crate) crashes: u64,
    /// Another process sends SIGKILL while it runs a job.
    pub(crate) outside_kills: u64,
    /// It falls silent, with or without a job.
    pub(crate) hangs: u64,
    /// It gives signs of life and never answers.
    pub(crate) endless: u64,
    /// A sign of life says that it has finished a part of what it runs, whether it has or not.
    pub(crate) progresses: u64,
    /// The device refuses one attempt.
    pub(crate) device_errors: u64,
    /// The worker refuses the dispatch.
    pub(crate) refusals: u64,
    /// The answer comes about when the job's deadline passes.
    pub(crate) answers_at_deadline: u64,
    /// It answers after it was sent SIGKILL.
    pub(crate) answers_when_killed: u64,
    /// It answers for an attempt that it does not run.
    pub(crate) wrong_answers: u64,
    /// It names its fault before it ends.
    pub(crate) named_faults: u64,
    /// SIGKILL has no effect in time.
    pub(crate) unkillable: u64,
    /// Its beacon is lost after its end.
    pub(crate) late_beacons: u64,
    /// Its last messages arrive after the loss of its beacon.
    pub(crate) in_flight: u64,
    /// The monitor does not report that its memory is free.
    pub(crate) lost_memory: u64,
    /// When it is killed, it has just ended by itself.
    pub(crate) odd_ends: u64,
    /// It does not end when told to.
    pub(crate) stops_ignored: u64,
    /// A message of a dead process arrives after its end.
    pub(crate) late_messages: u64,
    /// Jobs that kill every worker that runs them.
    pub(crate) poisonous: u64,
    /// How often such a job makes its worker hang instead.
    pub(crate) poisonous_hangs: u64,
    /// The content of a job cannot be read.
    pub(crate) unreadable: u64,
    /// Jobs that must not run twice.
    pub(crate) not_idempotent: u64,
    /// Jobs whose result cannot be written in shards.
    pub(crate) indivisible: u64,
    /// Jobs with a short deadline.
    pub(crate) short_deadlines: u64,
    /// Submissions under a key that was used before.
    pub(crate) repeated_keys: u64,
    /// Steps in which a client cancels.
    pub(crate) cancels: u64,
    /// Steps in which a connection ends.
    pub(crate) disconnects: u64,
    /// Steps in which an operator releases something.
    pub(crate) releases: u64,
    /// Steps in which the driver reports a fault of a device.
    pub(crate) device_faults: u64,
    /// Steps in which a process dies, falls silent or loses its beacon, or an old one sends a message.
    pub(crate) chaos: u64,
    /// Steps after which the supervisor itself is stopped for a while.
    pub(crate) pauses: u64,
    /// Steps in which a drain begins.
    pub(crate) drains: u64,
    /// Steps in which a successor is about to take the pool's place.
    pub(crate) hand_overs: u64,
    /// Drains after which an operator tells the pool to stop.
    pub(crate) second_orders: u64,
    /// Steps in which principals get other quotas.
    pub(crate) quotas: u64,
    /// Steps in which the pool gets other limits.
    pub(crate) reconfigures: u64,
    /// Steps in which the pool is told to stop.
    pub(crate) stops: u64,
    /// Requests for a model that never exists.
    pub(crate) unknown_models: u64,
    /// Processes that report their models only after READY.
    pub(crate) late_reports: u64,
    /// Models that cannot be loaded.
    pub(crate) load_fails: u64,
    /// Loads before which the file is overwritten.
    pub(crate) overwritten_files: u64,
    /// Steps in which a worker loses a model, or has it again.
    pub(crate) model_losses: u64,
    /// Steps in which an operator asks to change the models.
    pub(crate) model_changes: u64,
    /// Requests and operators that name a version.
    pub(crate) certain_versions: u64,
    /// Loads after which the versions before stay.
    pub(crate) kept_versions: u64,
    /// Commands that the worker fails.
    pub(crate) lost_commands: u64,
    /// Commands that the worker answers under another number.
    pub(crate) wrong_commands: u64,
    /// Commands that the worker dies of.
    pub(crate) deadly_commands: u64,
    /// Processes of helpers that end by themselves.
    pub(crate) helper_crashes: u64,
    /// Steps in which something happens to a helper.
    pub(crate) helper_chaos: u64,
    /// Helpers that SIGKILL does not end in time.
    pub(crate) stuck_helpers: u64,
    /// A helper is wanted, or not, a moment after something happened to it.
    pub(crate) second_thoughts: u64,
}

impl Rates {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        Self {
            spawn_fails: rate(rng, 300),
            spawn_is_final: rate(rng, 30),
            start_crashes: rate(rng, 300),
            start_is_final: rate(rng, 60),
            start_hangs: rate(rng, 300),
            start_mutes: rate(rng, 150),
            progresses: rate(rng, 1_000),
            crashes: rate(rng, 400),
            outside_kills: rate(rng, 400),
            hangs: rate(rng, 500),
            endless: rate(rng, 300),
            device_errors: rate(rng, 400),
            refusals: rate(rng, 200),
            answers_at_deadline: rate(rng, 300),
            answers_when_killed: rate(rng, 1_000),
            wrong_answers: rate(rng, 300),
            named_faults: rate(rng, 1_000),
            unkillable: rate(rng, 800),
            late_beacons: rate(rng, 500),
            in_flight: rate(rng, 1_000),
            lost_memory: rate(rng, 500),
            final_ends: 30,
            odd_ends: 100,
            stops_ignored: rate(rng, 800),
            late_messages: rate(rng, 1_000),
            poisonous: rate(rng, 300),
            poisonous_hangs: rate(rng, 500),
            unreadable: rate(rng, 500),
            not_idempotent: rate(rng, 400),
            indivisible: rate(rng, 500),
            short_deadlines: rate(rng, 500),
            repeated_keys: rate(rng, 400),
            cancels: rate(rng, 300),
            disconnects: rate(rng, 120),
            releases: rate(rng, 200),
            device_faults: rate(rng, 60),
            chaos: rate(rng, 400),
            pauses: rate(rng, 60),
            drains: rate(rng, 16),
            hand_overs: rate(rng, 24),
            second_orders: rate(rng, 700),
            quotas: rate(rng, 60),
            reconfigures: rate(rng, 30),
            stops: rate(rng, 6),
            unknown_models: rate(rng, 200),
            late_reports: rate(rng, 400),
            load_fails: rate(rng, 400),
            model_losses: rate(rng, 100),
            model_changes: rate(rng, 200),
            certain_versions: rate(rng, 300),
            kept_versions: rate(rng, 500),
            lost_commands: rate(rng, 300),
            wrong_commands: rate(rng, 200),
            deadly_commands: rate(rng, 300),
            helper_crashes: rate(rng, 500),
            helper_chaos: rate(rng, 200),
            stuck_helpers: rate(rng, 600),
            second_thoughts: rate(rng, 600),
            overwritten_files: rate(rng, 200),
        }
    }
}

/// Zero in half of the cases, else more often low than high.
pub(crate) fn rate(rng: &mut Rng, max: u64) -> u64 {
    let below = rng.between(1, max);
    if rng.chance(500) { 0 } else { rng.between(1, below) }
}
