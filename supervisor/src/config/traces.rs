//! Where a pool sends traces, and how many.

use super::{ConfigError, Overrides};
use crate::traces::{Collector, Sample};

/// Where spans go, and how many traces that begin in the pool are recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceOptions {
    /// The collector; `None` sends no traces.
    pub collector: Option<Collector>,
    /// The part of all traces; `None` is all of them.
    pub sample: Option<Sample>,
}

impl TraceOptions {
    /// These, and `other` where they say nothing.
    fn over(self, other: Self) -> Self {
        Self { collector: self.collector.or(other.collector), sample: self.sample.or(other.sample) }
    }

    /// The collector and the part, if traces are sent.
    #[must_use]
    pub fn asked(&self) -> Option<(Collector, Sample)> {
        let collector = self.collector.clone()?;
        Some((collector, self.sample.unwrap_or_default()))
    }
}

/// Puts the flags over the file's settings.
pub(super) fn resolve(flags: &Overrides, file: TraceOptions) -> Result<TraceOptions, ConfigError> {
    let collector = flags.trace.as_deref().map(str::parse).transpose();
    let collector = collector.map_err(|reason| flags.wrong("--trace", reason))?;
    Ok(TraceOptions { collector, sample: flags.trace_sample }.over(file))
}
