//! A job as its client describes it: a work, its input, and options.

use std::sync::Arc;
use std::time::Duration;

use gridpool_protocol::ids::JobKey;
use gridpool_protocol::limits::DEADLINE_DEFAULT;
use gridpool_protocol::message::Priority;
use gridpool_protocol::principal::Principal;
use gridpool_protocol::trace::{TraceContext, TraceState};

use super::runnable::{JobOptions, Produces};

/// A job for a pool; `O` is the type of its result. [`Job::program`] and [`Job::over`] make a job that runs
/// a program over grids, [`Job::model`] one that runs a model over tensors. Clones share the input.
#[derive(Debug)]
pub struct Job<O> {
    pub(super) runnable: Arc<dyn Produces<O>>,
    pub(super) options: JobOptions,
}

impl<O> Clone for Job<O> {
    fn clone(&self) -> Self {
        Self { runnable: Arc::clone(&self.runnable), options: self.options.clone() }
    }
}

impl<O> Job<O> {
    pub(super) fn new(runnable: Arc<dyn Produces<O>>) -> Self {
        let options = JobOptions {
            key: None,
            deadline: DEADLINE_DEFAULT,
            priority: Priority::Normal,
            idempotent: true,
            wait_if_busy: true,
            wait_for_memory: true,
            outlives_pool: true,
            chaos: None,
            output_bytes: None,
            principal: None,
            trace: None,
            trace_state: None,
            tell_acceptance: false,
        };
        Self { runnable, options }
    }

    /// Names the job. While the pool remembers its verdict, it answers a second submission under this key
    /// without running it. The default is a random key.
    #[must_use]
    pub fn with_key(mut self, key: JobKey) -> Self {
        self.options.key = Some(key);
        self
    }

    /// Sets the time from submission after which the verdict is DEADLINE. The default is 30 s.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.options.deadline = deadline;
        self
    }

    /// Sets the job's priority among this client's waiting jobs.
    #[must_use]
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.options.priority = priority;
        self
    }

    /// Allows only one attempt. If its worker is lost, the verdict is FAILED.
    #[must_use]
    pub fn at_most_once(mut self) -> Self {
        self.options.idempotent = false;
        self
    }

    /// Names who the job is for. The pool believes that only of its own gateway, and refuses the job of any
    /// other client.
    #[must_use]
    pub fn on_behalf_of(mut self, principal: Principal) -> Self {
        self.options.principal = Some(principal);
        self
    }

    /// Names the trace that the job is a part of, and the span that submits it. The receipt, and log lines about the
    /// job, then have the trace's number; a pool that sends traces records the job there if the context is sampled.
    #[must_use]
    pub fn with_trace(mut self, trace: impl Into<Option<TraceContext>>) -> Self {
        self.options.trace = trace.into();
        self
    }

    /// Names what systems on the way of that trace have noted in it (`tracestate`). The job's spans have it too.
    #[must_use]
    pub fn with_trace_state(mut self, state: impl Into<Option<TraceState>>) -> Self {
        self.options.trace_state = state.into();
        self
    }

    /// Takes the verdict CANCELLED of a pool that stops before the job is finished. By default, the job waits
    /// for the next pool, which runs it.
    #[must_use]
    pub fn end_with_pool(mut self) -> Self {
        self.options.outlives_pool = false;
        self
    }

    /// Has the pool say that it has accepted the job, before its verdict.
    pub(super) fn with_told_acceptance(mut self) -> Self {
        self.options.tell_acceptance = true;
        self
    }

    /// Makes a full queue and a pool that drains an error at once. By default,
    /// [`Client::submit`](crate::Client::submit) retries until the deadline.
    #[must_use]
    pub fn refuse_if_busy(mut self) -> Self {
        self.options.wait_if_busy = false;
        self
    }
}
