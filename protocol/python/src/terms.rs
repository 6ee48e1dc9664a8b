//! What a job asks besides its work, from the keywords of a Python call.

use std::time::Duration;

use gridpool_client::{Job, Priority, TraceContext, TraceState};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// What a job asks besides its work.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    deadline: Option<f64>,
    priority: Priority,
    at_most_once: bool,
    refuse_if_busy: bool,
    trace: (Option<TraceContext>, Option<TraceState>),
}

impl Terms {
    pub(crate) fn new(
        deadline: Option<f64>,
        priority: Option<&str>,
        at_most_once: bool,
        refuse_if_busy: bool,
        trace: Option<Traced>,
    ) -> PyResult<Self> {
        let name = priority.unwrap_or(Priority::Normal.name());
        let priority = Priority::from_name(name).ok_or_else(|| {
            let text = format!("priority is {name:?}: write \"high\", \"normal\" or \"low\"");
            PyValueError::new_err(text)
        })?;
        let trace = trace.map(Traced::parts).unwrap_or_default();
        Ok(Self { deadline, priority, at_most_once, refuse_if_busy, trace })
    }

    pub(crate) fn of<O>(self, job: Job<O>) -> PyResult<Job<O>> {
        let (trace, state) = self.trace;
        let mut job = job.with_priority(self.priority).with_trace(trace).with_trace_state(state);
        if let Some(deadline) = self.deadline {
            job = job.with_deadline(seconds(deadline)?);
        }
        if self.at_most_once {
            job = job.at_most_once();
        }
        Ok(if self.refuse_if_busy { job.refuse_if_busy() } else { job })
    }
}

/// The trace that a job is a part of, and what systems on its way have noted in it: the headers `traceparent` and
/// `tracestate`.
#[derive(Debug, FromPyObject)]
pub(crate) struct Traced(String, String);

impl Traced {
    /// Both. They may be headers that somebody else sent: a wrong one is none, as the standard says, and without a
    /// trace there is no state.
    pub(crate) fn parts(self) -> (Option<TraceContext>, Option<TraceState>) {
        let Self(parent, state) = self;
        let trace = parent.parse().ok();
        (trace, trace.and_then(|_: TraceContext| state.parse().ok()))
    }
}

pub(crate) fn seconds(number: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(number).map_err(|_| {
        PyValueError::new_err(format!("{number} is no time: write seconds, 0 or more"))
    })
}
