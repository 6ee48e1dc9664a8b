//! What belongs to a role: how its workers take work, their queue, and the counters.

use std::collections::BTreeMap;

use gridpool_protocol::ids::JobId;
use gridpool_protocol::principal::Principal;
use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::status::{Counters, QueueStatus};

use super::availability::Availability;
use super::meters::Meters;
use super::queue::Queue;
use crate::config::RoleLimits;
use crate::event::JobRequest;

/// What the workers of a role do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// They run jobs.
    Serving,
    /// The role has no work: it has no jobs, accepts none, and keeps no workers.
    Resting,
    /// No job is left, and none will come; workers are ending.
    Leaving,
    /// All have ended.
    Left,
}

/// One role.
#[derive(Debug)]
pub(super) struct RoleState {
    pub(super) limits: RoleLimits,
    pub(super) phase: Phase,
    pub(super) queue: Queue,
    pub(super) counters: Counters,
    pub(super) meters: Meters,
    /// Jobs without a verdict.
    jobs: usize,
    inline_bytes: u64,
    /// The same of each principal that has any.
    bytes_of: BTreeMap<Principal, u64>,
    /// The highest value of `inline_bytes`.
    bytes_high: u64,
    /// The most jobs that waited between two events.
    jobs_high: usize,
    /// Jobs queued since the pool last compared the queue with the models of workers.
    pub(super) newcomers: Vec<JobId>,
    /// The models of each slot at that time.
    pub(super) availability: Vec<Availability>,
}

impl RoleState {
    pub(super) fn new(limits: RoleLimits) -> Self {
        Self {
            limits,
            phase: Phase::Serving,
            queue: Queue::default(),
            counters: Counters::default(),
            meters: Meters::default(),
            jobs: 0,
            inline_bytes: 0,
            bytes_of: BTreeMap::new(),
            bytes_high: 0,
            jobs_high: 0,
            newcomers: Vec::new(),
            availability: Vec::new(),
        }
    }

    pub(super) fn inline_bytes(&self) -> u64 {
        self.inline_bytes
    }

    /// The same of one principal.
    pub(super) fn inline_bytes_of(&self, principal: &Principal) -> u64 {
        self.bytes_of.get(principal).copied().unwrap_or(0)
    }

    /// A job is accepted.
    pub(super) fn accept(&mut self, request: &JobRequest) {
        self.counters.accepted += 1;
        self.jobs += 1;
        self.inline_bytes += request.inline_bytes;
        if request.inline_bytes > 0 {
            *self.bytes_of.entry(request.principal.clone()).or_default() += request.inline_bytes;
        }
        self.bytes_high = self.bytes_high.max(self.inline_bytes);
    }

    /// A job has its verdict.
    pub(super) fn finish(&mut self, request: &JobRequest, verdict: Verdict) {
        self.jobs -= 1;
        self.inline_bytes -= request.inline_bytes;
        if let Some(own) = self.bytes_of.get_mut(&request.principal) {
            *own -= request.inline_bytes;
            if *own == 0 {
                self.bytes_of.remove(&request.principal);
            }
        }
        let counters = &mut self.counters;
        *match verdict {
            Verdict::Cancelled => &mut counters.cancelled,
            Verdict::Deadline => &mut counters.deadline,
            Verdict::DeviceLost => &mut counters.device_lost,
            Verdict::Failed => &mut counters.failed,
            Verdict::Ok => &mut counters.ok,
            Verdict::Poison => &mut counters.poison,
        } += 1;
    }

    pub(super) fn has_jobs(&self) -> bool {
        self.jobs > 0
    }

    /// Whether its workers are ending for good.
    pub(super) fn is_leaving(&self) -> bool {
        match self.phase {
            Phase::Leaving | Phase::Left => true,
            Phase::Resting | Phase::Serving => false,
        }
    }

    /// Whether the role has no work, so that no worker starts.
    pub(super) fn has_nothing_to_do(&self) -> bool {
        self.phase != Phase::Serving
    }

    /// The pool has handled an event: notes how many jobs wait until the next one.
    pub(super) fn note_waiting(&mut self) {
        self.jobs_high = self.jobs_high.max(self.queue.jobs());
    }

    /// The queue. The shell, which has the clock, adds how long its oldest job has waited.
    pub(super) fn queue_status(&self) -> QueueStatus {
        QueueStatus {
            jobs: self.queue.jobs() as u64,
            jobs_high: self.jobs_high as u64,
            bytes: self.inline_bytes,
            bytes_high: self.bytes_high,
            oldest_us: None,
        }
    }
}
