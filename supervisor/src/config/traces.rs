//! Where a pool sends traces, with which headers, and how many.

use gridpool_protocol::message::Secret;

use super::{ConfigError, Origin, Origins, Overrides};
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
pub(super) fn resolve(
    flags: &Overrides,
    file: TraceOptions,
    origins: &mut Origins,
) -> Result<TraceOptions, ConfigError> {
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
    let headers = headers.map_err(wrong)?;
    if !headers.is_empty() {
        origins.set("traces", Origin::Environment { variable: HEADERS_VARIABLE.to_owned() });
    }
    Ok(TraceOptions { headers, ..TraceOptions::default() }.over(options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_the_origin_of_headers_only_if_its_own_count() {
        let origin = |text: Option<&str>, trace: Option<&str>| {
            let flags = Overrides {
                trace: trace.map(str::to_owned),
                trace_headers: text.map(|text| Secret(text.to_owned())),
                ..Overrides::default()
            };
            let mut origins = Origins::default();
            origins.set("traces", Origin::Default);
            resolve(&flags, TraceOptions::default(), &mut origins).unwrap();
            origins.of("traces").clone()
        };
        let variable = Origin::Environment { variable: HEADERS_VARIABLE.to_owned() };
        let collector = Some("http://127.0.0.1:4318");
        assert_eq!(origin(Some("a=b"), collector), variable);
        assert_eq!(origin(Some("a=b"), None), Origin::Default, "no traces are sent");
        assert_eq!(origin(Some(""), collector), Origin::Default, "it has none");
        assert_eq!(origin(None, collector), Origin::Default);
    }
}
