//! Where a pool sends traces, with which headers, and how many.

use gridpool_protocol::message::Secret;

use super::{ConfigError, Overrides};
use crate::traces::{Collector, HEADERS_VARIABLE, Headers, Sample};

/// Where spans go, and how many traces that begin in the pool are recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceOptions {
    /// The collector; `None` sends no traces.
    pub collector: Option<Collector>,
    /// The part of all traces; `None` is all of them.
    pub sample: Option<Sample>,
    /// What the collector gets with each message.
    pub headers: Headers,
}

impl TraceOptions {
    /// These, and `other` where they say nothing.
    fn over(self, other: Self) -> Self {
        Self {
            collector: self.collector.or(other.collector),
            sample: self.sample.or(other.sample),
            headers: if self.headers.is_empty() { other.headers } else { self.headers },
        }
    }

    /// The collector and the part, if traces are sent.
    #[must_use]
    pub fn asked(&self) -> Option<(Collector, Sample)> {
        let collector = self.collector.clone()?.with_headers(self.headers.clone());
        Some((collector, self.sample.unwrap_or_default()))
    }
}

/// Puts the flags over the file's settings.
pub(super) fn resolve(flags: &Overrides, file: TraceOptions) -> Result<TraceOptions, ConfigError> {
    let collector = flags.trace.as_deref().map(str::parse).transpose();
    let collector = collector.map_err(|reason| flags.wrong("--trace", reason))?;
    let flags_alone =
        TraceOptions { collector, sample: flags.trace_sample, headers: Headers::default() };
    let options = flags_alone.over(file);
    // Other programs of the machine have it too: what is wrong with it matters to a pool that sends traces.
    let Some(Secret(text)) = flags.trace_headers.as_ref().filter(|_| options.collector.is_some())
    else {
        return Ok(options);
    };
    let headers = Headers::of_variable(text);
    let wrong = |reason| ConfigError::Flag { given: HEADERS_VARIABLE.to_owned(), reason };
    Ok(TraceOptions { headers: headers.map_err(wrong)?, ..TraceOptions::default() }.over(options))
}
