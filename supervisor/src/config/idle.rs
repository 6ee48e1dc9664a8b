//! Settings that say only how HTTP is served, how traces are sent or how a cluster is reached, while that is not asked
//! for.
//!
//! Other commands share the config file of `serve`, which alone serves: there such a setting is an error. A file by
//! itself is only warned of, since a flag may name the address.

use std::path::Path;

use super::{ConfigError, HttpOptions, Origin, Overrides, Settings, TraceOptions};

/// What an idle setting waits for.
#[derive(Clone, Copy, Debug)]
enum Needs {
    Address,
    Collector,
    Servers,
}

impl Needs {
    /// What a setting of the file lacks.
    fn in_file(self, setting: &str) -> String {
        let add = match self {
            Self::Address => "`http` or `grpc` with an address",
            Self::Collector => "`trace` with a collector's address",
            Self::Servers => "`servers`",
        };
        format!("`{setting}` {}: add {add}, or leave it out", self.says())
    }

    /// What a flag lacks.
    fn of_flag(self) -> String {
        let add = match self {
            Self::Address => "--http or --grpc with an address",
            Self::Collector => "--trace with a collector's address",
            Self::Servers => "--nats with its servers",
        };
        format!("it {}: add {add}, or leave it out", self.says())
    }

    /// What such a setting says, and why it has no effect.
    fn says(self) -> &'static str {
        match self {
            Self::Address => "says how HTTP and gRPC are served, and neither is",
            Self::Collector => "says how traces are sent, and none are",
            Self::Servers => "says how a cluster is reached, and none is named",
        }
    }
}

/// The settings that say how a cluster is reached. In a file they are with its servers, or are refused.
const NATS: [&str; 5] = ["nats.prefix", "nats.credentials", "nats.ca", "nats.cert", "nats.key"];

/// The settings of HTTP and of traces that have no effect.
fn idle(
    is_served: bool,
    http: &HttpOptions,
    trace: &TraceOptions,
) -> impl Iterator<Item = (&'static str, Needs)> + use<> {
    let of_http = [
        ("http_host", !http.hosts.is_empty()),
        ("http_origin", !http.origins.is_empty()),
        ("http_tokens", http.tokens.is_some()),
        ("http_cert", http.cert.is_some()),
        ("http_key", http.key.is_some()),
        ("http_group", http.group.is_some()),
        ("insecure", http.is_insecure()),
        ("access_log", http.logs_access()),
        ("shared_memory", http.has_shared_memory()),
    ];
    let of_traces =
        [("trace_sample", trace.sample.is_some()), ("traces", !trace.headers.is_empty())];
    let of_http = of_http.map(|(setting, is_set)| (setting, Needs::Address, is_set && !is_served));
    let is_sent = trace.collector.is_some();
    let of_traces =
        of_traces.map(|(setting, is_set)| (setting, Needs::Collector, is_set && !is_sent));
    let all = of_http.into_iter().chain(of_traces);
    all.filter(|&(.., is_idle)| is_idle).map(|(setting, needs, _)| (setting, needs))
}

/// The settings of a file that have no effect unless a flag names an address, and what they lack.
pub(super) fn in_file(
    is_served: bool,
    http: &HttpOptions,
    trace: &TraceOptions,
) -> impl Iterator<Item = (String, String)> + use<> {
    let all = idle(is_served, http, trace);
    all.map(|(setting, needs)| (setting.to_owned(), needs.in_file(setting)))
}

impl Settings {
    /// The settings of a pool that `serve` starts: as [`Self::resolve`] has them, and each has an effect.
    ///
    /// # Errors
    /// [`ConfigError`] as for [`Self::resolve`], and for what says how HTTP is served or traces are sent if that is not
    /// asked for.
    pub fn of_serve(flags: Overrides, file: Option<&Path>) -> Result<Self, ConfigError> {
        let settings = Self::resolve(flags, file)?;
        settings.first_idle().map_or(Ok(settings), Err)
    }

    /// The error of the first setting that has no effect.
    fn first_idle(&self) -> Option<ConfigError> {
        let is_served = !self.places().is_empty();
        let idle = idle(is_served, &self.http_options, &self.trace);
        // Variables are also for the clients of a cluster, who may name its servers otherwise.
        let is_flag = |setting: &&str| matches!(self.origins.of(setting), Origin::Flag { .. });
        let of_cluster = NATS.into_iter().filter(|_| self.nats.is_none()).filter(is_flag);
        let mut idle = idle.chain(of_cluster.map(|setting| (setting, Needs::Servers)));
        idle.find_map(|(setting, needs)| match self.origins.of(setting) {
            Origin::Default => None,
            Origin::Environment { variable } => {
                Some(ConfigError::Flag { given: variable.clone(), reason: needs.of_flag() })
            }
            origin @ Origin::File { .. } => origin.wrong_in_file(&needs.in_file(setting)),
            Origin::Flag { flag } => {
                Some(ConfigError::Flag { given: (*flag).to_owned(), reason: needs.of_flag() })
            }
        })
    }
}
