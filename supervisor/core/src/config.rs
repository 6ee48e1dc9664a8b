//! Every limit of the pool, and those that differ between roles. `supervisor/src/config.rs` reads them from
//! TOML.

use std::time::Duration;

use gridpool_protocol::ids::Role;
use gridpool_protocol::limits::JOIN_MAX;

use crate::event::Helper;

/// The most models that a pool may have.
pub const MODELS_MAX: usize = 64;

/// The limits of the core. All are settable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Jobs that wait for workers of one group; one more is refused as BUSY.
    pub queue_jobs_max: usize,
    /// Bytes of inline payload of all jobs of one role that have no verdict.
    pub queue_bytes_max: u64,
    /// Jobs of one connection and one group that have no verdict.
    pub client_jobs_max: usize,
    /// Jobs of one principal that wait for workers of one group. While others wait too, it is divided by the
    /// number of principals.
    pub principal_jobs_max: usize,
    /// Bytes of inline payload of all jobs of one principal and one role that have no verdict. It is divided
    /// in the same way.
    pub principal_bytes_max: u64,
    /// Connections of one user to the pool's socket. The pool's own user and root have no such limit.
    // The core does not use this field.
    pub user_connections_max: usize,
    /// Workers of a group that a principal may cost because they did not stop its jobs in time; then its jobs for that
    /// group are refused as BUSY, and those that wait are held.
    pub kills_max: usize,
    /// After this time one of them is given back, then the next.
    pub kill_refill: Duration,
    /// Attempts of one job, whatever ended them; then FAILED.
    pub attempts_max: u32,
    /// Deaths of a worker with evidence against the one job it ran; then POISON.
    pub poison_deaths: u32,
    /// Contents on the denylist: jobs that killed workers, which are refused; the oldest goes first.
    pub denylist_max: usize,
    /// Verdicts remembered by key, so that a resubmission is not run again.
    pub verdicts_kept: usize,
    /// Bytes of all those receipts, encoded.
    pub verdict_bytes_max: usize,
    /// Deaths before any work was done, within `restart_window`, that quarantine a device.
    pub restart_limit: u32,
    /// See `restart_limit`.
    pub restart_window: Duration,
    /// Starts in a row that may fail before READY; then the device is quarantined.
    pub start_failures_max: u32,
    /// The second restart waits this long, the next twice as long, and so on; the first is free.
    pub backoff_min: Duration,
    /// Longest wait before a restart.
    pub backoff_max: Duration,
    /// Standbys on every device, ready to take over from the active worker.
    pub standbys: u32,
    /// A device in quarantine is probed after this, then after five times as long, and so on.
    pub probe_min: Duration,
    /// Longest time between two probes of a device in quarantine.
    pub probe_max: Duration,
    /// The driver reports one incident several times, once for each channel. Reports within this span after
    /// the first, or after the device lost a worker, are about the same incident.
    pub incident_window: Duration,
    /// An incident that the policy blames on a worker is the device's fault if it repeats within this span.
    pub incident_repeat_window: Duration,
    /// From the end of a process to the return of its device's memory; then the next one starts anyway.
    pub reclaim_timeout: Duration,
    /// From spawn to READY.
    pub ready_timeout: Duration,
    /// A worker that has been silent for this long gets no new job.
    pub heartbeat_suspect: Duration,
    /// A worker that has been silent for this long is killed.
    pub heartbeat_kill: Duration,
    /// A worker that has been silent for this long before it was READY is killed. A cold driver may keep it
    /// silent for some seconds.
    pub heartbeat_start: Duration,
    /// How long a cancelled job may run on before the pool kills its worker to free the device.
    pub cancel_grace: Duration,
    /// From SIGKILL to the end of the process; then the worker counts as unkillable.
    pub kill_timeout: Duration,
    /// From the start of a drain until the pool cuts off the jobs that are left.
    pub drain_timeout: Duration,
    /// From the start of a successor until its workers serve (`gridpool upgrade`); then the successor is killed, and
    /// the pool goes on.
    pub upgrade_timeout: Duration,
    /// The smallest cost of a shard: below it, a message and a launch would cost more than they gain. A job
    /// of twice that may be split.
    pub shard_cost_min: u64,
    /// Most shards for each device of a job that is alone; beside other live jobs it has its part of them, by cost.
    /// With several, a slow device delays the job less.
    pub shards_per_device: u32,
    /// A worker is sent a second dispatch while the first runs only if neither costs more than this: no
    /// other device can take a dispatch that is in a channel.
    pub feed_cost_max: u64,
    /// How long a second dispatch waits behind the first while an idle device could take it. Then the pool
    /// kills the worker; its jobs run again, and that does not count against them. On a GPU, a dispatch of
    /// `feed_cost_max` takes far less than this; on a CPU worker, perhaps not.
    pub feed_timeout: Duration,
    /// Most requests outstanding at an inference worker, over all models of its group.
    pub infer_window: u32,
    /// `cancel_grace` for requests to models. It is longer: a restart loads models again, and other
    /// requests run beside the late one.
    pub infer_cancel_grace: Duration,
    /// `ready_timeout` of inference workers: from spawn to all models loaded and warm.
    pub infer_ready_timeout: Duration,
    /// How long a worker may take to change a model: as long as it may take to be READY. A load whose operator gives it
    /// longer has that.
    pub command_timeout: Duration,
    /// How long a change that loads a model may take, over all devices, unless the operator chooses: two loads, one
    /// after the other, since one worker tries a new model before the others.
    pub load_timeout: Duration,
    /// Device memory that all models of a device together may be given, by the `device_bytes` of each; 0 for no
    /// such plan. Then a load beyond it is refused, and one without `device_bytes`.
    pub model_bytes_max: u64,
    /// Most cost of all jobs in one dispatch.
    pub join_cost_max: u64,
    /// How often an idle worker tests its device with known answers. One that is never idle does so after
    /// ten times this span.
    // The core does not use this field or those that follow: the shell passes them on.
    pub known_answer_every: Duration,
    /// Bytes by which a worker's own memory may grow after READY. Then the worker is recycled.
    pub worker_memory_growth_max: u64,
    /// The same for its open descriptors.
    pub worker_descriptors_growth_max: u32,
    /// Microseconds that a thread or worker may spin for a message before it sleeps; 0 for no spinning.
    pub spin_us: u32,
}

impl PoolConfig {
    /// The defaults.
    pub const DEFAULT: Self = Self {
        queue_jobs_max: 2_048,
        queue_bytes_max: 512 << 20,
        client_jobs_max: 64,
        principal_jobs_max: 1_024,
        principal_bytes_max: 256 << 20,
        user_connections_max: 64,
        kills_max: 3,
        kill_refill: Duration::from_secs(10),
        attempts_max: 8,
        poison_deaths: 2,
        denylist_max: 1_024,
        verdicts_kept: 4_096,
        verdict_bytes_max: 8 << 20,
        restart_limit: 5,
        restart_window: Duration::from_secs(60),
        start_failures_max: 3,
        backoff_min: Duration::from_millis(100),
        backoff_max: Duration::from_secs(30),
        standbys: 0,
        probe_min: Duration::from_secs(60),
        probe_max: Duration::from_secs(900),
        incident_window: Duration::from_secs(10),
        incident_repeat_window: Duration::from_secs(600),
        reclaim_timeout: Duration::from_secs(10),
        ready_timeout: Duration::from_secs(60),
        heartbeat_suspect: Duration::from_secs(2),
        heartbeat_kill: Duration::from_secs(5),
        heartbeat_start: Duration::from_secs(10),
        cancel_grace: Duration::from_millis(250),
        kill_timeout: Duration::from_secs(5),
        drain_timeout: Duration::from_secs(30),
        upgrade_timeout: Duration::from_secs(300),
        shard_cost_min: 4 << 20,
        shards_per_device: 2,
        feed_cost_max: 64 << 20,
        feed_timeout: Duration::from_secs(1),
        infer_window: 32,
        infer_cancel_grace: Duration::from_secs(5),
        infer_ready_timeout: Duration::from_secs(600),
        command_timeout: Duration::from_secs(600),
        load_timeout: Duration::from_secs(1_200),
        model_bytes_max: 0,
        join_cost_max: 16 << 20,
        known_answer_every: Duration::from_secs(60),
        worker_memory_growth_max: 4 << 30,
        worker_descriptors_growth_max: 4_096,
        spin_us: 200,
    };

    /// This config as a pool that runs with `running` can take it over: it keeps what shaped it when it
    /// started.
    #[must_use]
    pub fn over(self, running: &Self) -> Self {
        let &Self { standbys, infer_window, spin_us, .. } = running;
        Self { standbys, infer_window, spin_us, ..self }
    }

    /// The longest time from the command to drain to the end of the pool: jobs finish, then workers are
    /// stopped, then killed, then given up.
    #[must_use]
    pub fn longest_drain(&self) -> Duration {
        self.drain_timeout + 2 * self.kill_timeout
    }

    /// The limits of one role.
    #[must_use]
    pub fn of(&self, role: Role) -> RoleLimits {
        /// Bytes by which a client may be ahead of others. The cost of a model run is its bytes.
        const LEAD_MAX: u64 = 256 << 20;
        match role {
            Role::Grid => RoleLimits {
                concurrency: Concurrency::Exclusive {
                    feed_cost_max: self.feed_cost_max,
                    feed_timeout: self.feed_timeout,
                },
                cancel_grace: self.cancel_grace,
                ready_timeout: self.ready_timeout,
                join_cost_max: self.join_cost_max,
            },
            Role::Infer => RoleLimits {
                concurrency: Concurrency::concurrent(self.infer_window as usize),
                cancel_grace: self.infer_cancel_grace,
                ready_timeout: self.infer_ready_timeout,
                join_cost_max: LEAD_MAX,
            },
        }
    }
}

/// The limits that differ between roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleLimits {
    /// How its workers take work.
    pub concurrency: Concurrency,
    /// How long a cancelled job may run on before the pool kills its worker.
    pub cancel_grace: Duration,
    /// From spawn to READY.
    pub ready_timeout: Duration,
    /// Most cost of all jobs in one dispatch; also how far ahead of others a client may be and still join.
    pub join_cost_max: u64,
}

/// How a worker takes work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concurrency {
    /// Up to this many attempts run at once, of any jobs.
    Concurrent {
        /// At least 1, and no more than fit one message.
        attempts_max: usize,
    },
    /// One dispatch runs at a time, and a second may wait behind it. Jobs of one program may share a
    /// dispatch.
    Exclusive {
        /// The most that each of the two dispatches may cost.
        feed_cost_max: u64,
        /// How long the second may wait while an idle device could take it.
        feed_timeout: Duration,
    },
}

impl Concurrency {
    /// Up to this many attempts at once.
    #[must_use]
    pub fn concurrent(attempts_max: usize) -> Self {
        assert!((1..=JOIN_MAX).contains(&attempts_max), "a dispatch goes into one message");
        Self::Concurrent { attempts_max }
    }

    /// Whether several attempts run at once.
    #[must_use]
    pub fn is_concurrent(self) -> bool {
        match self {
            Self::Concurrent { .. } => true,
            Self::Exclusive { .. } => false,
        }
    }
}

/// The limits of a helper process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelperLimits {
    /// From its start to its first sign of life: a cold driver needs seconds for each GPU.
    pub start: Duration,
    /// Between two signs of life.
    pub silence: Duration,
    /// From SIGKILL to its end; after that it counts as stuck.
    pub kill: Duration,
    /// From its end to the next start; doubles each time.
    pub backoff_min: Duration,
    /// Longest time to the next start.
    pub backoff_max: Duration,
    /// A process that lived at least this long resets the backoff.
    pub healthy: Duration,
    /// How long it may take to finish its open requests when it is stopped; `None` if it has no requests,
    /// so it is killed at once.
    pub stop: Option<Duration>,
}

impl HelperLimits {
    /// The defaults of a helper.
    #[must_use]
    pub fn of(helper: Helper) -> Self {
        Self {
            start: Duration::from_secs(60),
            silence: Duration::from_secs(5),
            kill: Duration::from_secs(1),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(30),
            healthy: Duration::from_secs(60),
            stop: match helper {
                Helper::Tracer => Some(Duration::from_secs(2)),
                // Longer than the bridge's `END_TIMEOUT`.
                Helper::Bridge => Some(Duration::from_secs(5)),
                // Longer than the gateway's `STOP_TIMEOUT`.
                Helper::Gateway => Some(Duration::from_secs(6)),
                Helper::Monitor => None,
            },
        }
    }
}
