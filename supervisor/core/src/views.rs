//! What status and metrics show of the core.

use std::collections::BTreeSet;
use std::sync::Arc;

use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::{AttemptId, DeviceId, Group, JobId, WorkerId};
use gridpool_protocol::message::{JobSelector, JobView};
use gridpool_protocol::metrics::{DeviceMetrics, RoleMetrics};
use gridpool_protocol::principal::Principal;
use gridpool_protocol::receipt::Attempt;
use gridpool_protocol::status::{
    Counters, DenylistStatus, PrincipalStatus, QueueStatus, WorkerStatus,
};

use crate::event::{Helper, JobRequest, Timestamp, Work};
use crate::helpers::HelperStatus;
use crate::quota::Quota;
use crate::{Core, CurrentDispatch, Quarantine};

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

    /// Whether the pool before this one still has a device.
    #[must_use]
    pub fn is_held(&self, device: DeviceId) -> bool {
        self.pool.is_held(device)
    }

    /// Why this pool does not use a device, if another has it while one takes the place of the other.
    #[must_use]
    pub fn why_away(&self, device: DeviceId) -> Option<&'static str> {
        self.pool.why_away(device)
    }

    /// The full name of the version that runs a live job, if the job is a request for a model.
    #[must_use]
    pub fn model_of(&self, job: JobId) -> Option<&Arc<str>> {
        self.pool.model_of(job)
    }

    /// The attempts of a job so far, if it is live or its verdict is remembered.
    #[must_use]
    pub fn attempts_of(&self, job: JobId) -> Vec<Attempt> {
        self.pool.attempts_of(job)
    }

    /// What a worker runs and has not answered, also while it is ending; not what waits behind that.
    #[must_use]
    pub fn front_attempts(&self, worker: WorkerId) -> Vec<AttemptId> {
        self.pool.front_attempts(worker)
    }

    /// What a worker runs, if it is busy.
    #[must_use]
    pub fn current_dispatch(&self, worker: WorkerId) -> Option<CurrentDispatch> {
        self.pool.current_dispatch(worker)
    }

    /// What a job is doing or what became of it, if it is live or its verdict is remembered: one of `own`, or of
    /// anybody.
    #[must_use]
    pub fn job_view(
        &self,
        now: Timestamp,
        job: JobSelector,
        own: Option<&Principal>,
    ) -> Option<JobView> {
        self.pool.job_view(now, job, own)
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

    /// How many contents are on the denylist, and the latest of them.
    #[must_use]
    pub fn denylist(&self, now: Timestamp) -> DenylistStatus {
        self.pool.denylist(now)
    }

    /// Sums since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.pool.counters()
    }

    /// The metrics of each role but how long its oldest job has waited.
    #[must_use]
    pub fn roles(&self) -> Vec<RoleMetrics> {
        self.pool.roles()
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

    /// The work of a job, if a job with the same work and number of items is on the denylist: then a submission must
    /// carry the hash of that work and its payload. A request for a model is for the version that serves it now.
    #[must_use]
    pub fn asks_for_content(&self, request: &JobRequest) -> Option<Work> {
        if !self.pool.denies_any() {
            return None;
        }
        let full_name = match &request.work {
            Work::Model { name } => self.catalogue.full_name_of(name),
            Work::Program { .. } | Work::Search { .. } => None,
        };
        let work = match full_name {
            Some(name) => Work::Model { name: name.into() },
            None => request.work.clone(),
        };
        self.pool.asks_for_content(&work, request.items).then_some(work)
    }

    /// Whether there is a denylist. Without one, [`Core::asks_for_content`] asks for nothing.
    #[must_use]
    pub fn denies_any(&self) -> bool {
        self.pool.denies_any()
    }

    /// What a helper is doing.
    #[must_use]
    pub fn helper(&self, helper: Helper) -> HelperStatus {
        self.helpers.status(helper)
    }
}
