//! Every limit of the pool, by name. `supervisor/src/config.rs` reads them from TOML.

use std::time::Duration;

/// The limits that the core keeps. All are settable; faults.md 2.2 and design.md argue the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Jobs waiting in all queues together; one more is refused as BUSY.
    pub queue_jobs_max: usize,
    /// Bytes of inline payload of all jobs that have no verdict.
    pub queue_bytes_max: u64,
    /// Jobs of one client that have no verdict.
    pub client_jobs_max: usize,
    /// Attempts of one job, whatever ended them; then FAILED.
    pub attempts_max: u32,
    /// Deaths of a worker with evidence against the one job it ran; then POISON.
    pub poison_deaths: u32,
    /// Contents of jobs that were convicted, remembered so that they are refused; the oldest goes
    /// first.
    pub convicts_kept: usize,
    /// Verdicts remembered by key, so that a resubmission is not run again.
    pub verdicts_kept: usize,
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
    /// Processes that wait on every device beside the one that serves, ready to take over.
    pub standbys: u32,
    /// A device in quarantine is tried again after this, then after five times as long, and so on.
    pub probe_min: Duration,
    /// Longest time between two tries of a device in quarantine.
    pub probe_max: Duration,
    /// The driver tells of one incident several times, a time for each channel: so soon after one, or
    /// after the device has lost a worker, it tells of the same.
    pub incident_window: Duration,
    /// An incident that the policy takes for a worker's is one of the device if it comes again within so
    /// long.
    pub incident_repeat_window: Duration,
    /// From the end of a process to the return of its device's memory; then the next one starts anyway.
    pub reclaim_timeout: Duration,
    /// From spawn to READY.
    pub ready_timeout: Duration,
    /// A worker that has said nothing for so long gets no new job.
    pub heartbeat_suspect: Duration,
    /// A worker that has said nothing for so long is killed.
    pub heartbeat_kill: Duration,
    /// A cancelled job may run on for so long before its worker is killed to free the device.
    pub cancel_grace: Duration,
    /// From SIGKILL to the end of the process; then the worker counts as unkillable.
    pub kill_timeout: Duration,
    /// From the order to drain to its end; what is left is then cut off.
    pub drain_timeout: Duration,
    /// Cost of the smallest part that is worth a message and a launch of its own: a job of twice that
    /// may be split.
    pub part_cost_min: u64,
    /// A job is split into at most so many parts for every device, so that a slow one holds up little.
    pub parts_per_device: u32,
    /// A worker is sent a second batch while the first runs only if neither costs more: what lies in
    /// its channel cannot be taken by a device that is idle sooner.
    pub feed_cost_max: u64,
    /// A second batch waits no longer than this behind the first while an idle device could take it:
    /// then the worker is killed. `feed_cost_max` bounds the work of an honest first batch: on a GPU to
    /// far less time than this. A costly program on a CPU worker may take longer; it is run again, once
    /// and convicted of nothing.
    pub feed_patience: Duration,
    /// Requests that an inference worker has in hand at most, all models together.
    pub infer_window: u32,
    /// `cancel_grace` of requests of models: to load them again takes long, and others run beside the one
    /// that is late.
    pub infer_cancel_grace: Duration,
    /// `ready_timeout` of inference workers: from spawn to all models loaded and warm.
    pub infer_ready_timeout: Duration,
    /// Cost of all jobs that join one launch.
    pub join_cost_max: u64,
    /// A worker that is idle tests its device with known answers every so often; one that is never idle
    /// after ten times that. The core has no use for it, the shell does, as for the next.
    pub known_answer_every: Duration,
    /// Bytes of memory of its own by which a worker may grow after it was READY; then it ends between two
    /// jobs, and a fresh process takes its place. The worker has the use of it, as of the next.
    pub worker_memory_growth_max: u64,
    /// The same for its open descriptors.
    pub worker_descriptors_growth_max: u32,
    /// How long a thread or worker that waits for a message may look for it before it sleeps, in
    /// microseconds; 0 is not at all. The core has no use for it, the shell does.
    pub spin_us: u32,
}

impl PoolConfig {
    /// The defaults.
    pub const DEFAULT: Self = Self {
        queue_jobs_max: 1_024,
        queue_bytes_max: 256 << 20,
        client_jobs_max: 64,
        attempts_max: 8,
        poison_deaths: 2,
        convicts_kept: 1_024,
        verdicts_kept: 4_096,
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
        cancel_grace: Duration::from_millis(250),
        kill_timeout: Duration::from_secs(5),
        drain_timeout: Duration::from_secs(30),
        part_cost_min: 4 << 20,
        parts_per_device: 2,
        feed_cost_max: 64 << 20,
        feed_patience: Duration::from_secs(1),
        infer_window: 32,
        infer_cancel_grace: Duration::from_secs(5),
        infer_ready_timeout: Duration::from_secs(600),
        join_cost_max: 16 << 20,
        known_answer_every: Duration::from_secs(60),
        worker_memory_growth_max: 4 << 30,
        worker_descriptors_growth_max: 4_096,
        spin_us: 200,
    };

    /// The same for workers that hold models: they run several requests at a time, and a request costs
    /// its bytes.
    #[must_use]
    pub fn for_models(&self) -> Self {
        /// Bytes by which a client may be ahead of others.
        const LEAD_MAX: u64 = 256 << 20;
        Self {
            cancel_grace: self.infer_cancel_grace,
            ready_timeout: self.infer_ready_timeout,
            join_cost_max: LEAD_MAX,
            feed_cost_max: 0,
            ..self.clone()
        }
    }
}
