//! `GRIDPOOL_LOG`: the filter of log lines. A filter without effect is an error, since a typing error would
//! silence the whole log.

use gridpool_protocol::log::FILTER_VARIABLE;
use gridpool_protocol::near;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

use super::{ACCESS, AUDIT};

/// The names of levels.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// Our crates that log.
const CRATES: [&str; 14] = [
    "gridpool",
    "gridpool_bench",
    "gridpool_bridge",
    "gridpool_client",
    "gridpool_core",
    "gridpool_device",
    "gridpool_diagnose",
    "gridpool_infer",
    "gridpool_inference",
    "gridpool_ipc",
    "gridpool_kernels",
    "gridpool_nats",
    "gridpool_protocol",
    "gridpool_worker",
];

/// The error of a filter.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{FILTER_VARIABLE}: `{word}` is not {what}: write one of {}, or TARGET=LEVEL, or a list with commas, \
     such as warn,gridpool=debug{}",
    LEVELS.join(", "),
    if close.is_empty() { String::new() } else { format!("; close to it: {}", close.join(", ")) }
)]
pub struct FilterError {
    word: String,
    what: &'static str,
    close: Vec<&'static str>,
}

/// Reads a filter; `None` if it is empty.
pub(super) fn parse(text: &str) -> Result<Option<Targets>, FilterError> {
    let mut targets = Targets::new();
    let mut is_empty = true;
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        is_empty = false;
        targets = match word.split_once('=') {
            None => match word.parse::<LevelFilter>() {
                Ok(level) => targets.with_default(level),
                // A target alone stands for all its levels.
                Err(_) if is_of_a_crate(word) => targets.with_target(word, LevelFilter::TRACE),
                Err(_) => return Err(wrong(word, "a level", LEVELS)),
            },
            Some((target, level)) => {
                let (target, level) = (target.trim(), level.trim());
                let read = level.parse::<LevelFilter>();
                let read = read.map_err(|_| wrong(level, "a level", LEVELS))?;
                check_target(target)?;
                targets.with_target(target, read)
            }
        };
    }
    Ok((!is_empty).then_some(targets))
}

/// The same filter, with the audit and the access log: only a filter that names one silences it.
pub(super) fn with_asked(filter: Targets) -> Targets {
    [AUDIT, ACCESS].into_iter().fold(filter, |filter, asked| {
        let is_named = filter.iter().any(|(target, _)| target == asked);
        if is_named { filter } else { filter.with_target(asked, LevelFilter::INFO) }
    })
}

/// The same filter, without what clients can make the library of HTTP/2 warn of, and without the NATS library's words
/// of each try to connect, of which the bridge and commands tell once, with advice: only a filter that names a library,
/// or asks for `debug`, has them.
pub(super) fn without_noise(filter: Targets) -> Targets {
    let level = filter.default_level().unwrap_or(LevelFilter::OFF);
    if level > LevelFilter::INFO {
        return filter;
    }
    let noisy = [("h2", level.min(LevelFilter::ERROR)), ("async_nats", LevelFilter::OFF)];
    noisy.into_iter().fold(filter, |filter, (name, level)| {
        let is_named = filter.iter().any(|(target, _)| target.split("::").next() == Some(name));
        if is_named { filter } else { filter.with_target(name, level) }
    })
}

fn wrong<const N: usize>(word: &str, what: &'static str, names: [&'static str; N]) -> FilterError {
    FilterError { word: word.to_owned(), what, close: near::names(word, names) }
}

fn is_of_a_crate(target: &str) -> bool {
    target.split("::").next().is_some_and(|root| CRATES.contains(&root))
}

/// Checks a target. Libraries log under names that are unknown here, so only names close to ours are errors.
fn check_target(target: &str) -> Result<(), FilterError> {
    let root = target.split("::").next().unwrap_or_default();
    let error = wrong(root, "a crate of gridpool", CRATES);
    let is_slip = root.is_empty() || root.starts_with(CRATES[0]) || !error.close.is_empty();
    if is_slip && !is_of_a_crate(target) { Err(error) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_with_an_effect_are_valid() {
        for text in ["warn", "OFF", "debug,hyper=warn", " info , gridpool::shell=trace", "gridpool"]
        {
            assert!(matches!(parse(text), Ok(Some(_))), "{text}");
        }
        assert_eq!(parse("gridpool=debug").unwrap(), Some("gridpool=debug".parse().unwrap()));
        for text in ["", " , "] {
            assert_eq!(parse(text), Ok(None), "{text}");
        }
    }

    #[test]
    fn only_a_filter_that_names_the_audit_silences_it() {
        let passes = |text: &str| {
            let filter = with_asked(parse(text).unwrap().unwrap());
            filter.would_enable(AUDIT, &tracing::Level::INFO)
        };
        assert_eq!(
            ["error", "off", "gridpool=warn", "audit=off"].map(passes),
            [true, true, true, false]
        );
    }

    #[test]
    fn what_clients_make_the_http_library_warn_of_is_there_only_if_it_is_asked_for() {
        let passes = |text: &str| {
            let filter = without_noise(parse(text).unwrap().unwrap());
            [tracing::Level::WARN, tracing::Level::ERROR]
                .map(|level| filter.would_enable("h2::proto::streams::recv", &level))
        };
        for (text, passed) in [
            ("info", [false, true]),
            ("gridpool=debug", [false, false]),
            ("off", [false, false]),
            ("debug", [true, true]),
            ("off,h2=warn", [true, true]),
            ("info,h2::proto=warn", [true, true]),
        ] {
            assert_eq!(passes(text), passed, "{text}");
        }
    }

    #[test]
    fn the_nats_library_is_heard_only_if_it_is_asked_for() {
        let passes = |text: &str| {
            let filter = without_noise(parse(text).unwrap().unwrap());
            filter.would_enable("async_nats", &tracing::Level::ERROR)
        };
        assert_eq!(
            ["info", "h2=warn", "debug", "info,async_nats=warn"].map(passes),
            [false, false, true, true]
        );
    }

    #[test]
    fn a_filter_that_would_silence_the_log_is_refused_with_what_to_write() {
        let said = |text: &str| parse(text).unwrap_err().to_string();
        let all = "write one of off, error, warn, info, debug, trace, or TARGET=LEVEL, or a list with \
                   commas, such as warn,gridpool=debug";
        assert_eq!(said("verbose"), format!("GRIDPOOL_LOG: `verbose` is not a level: {all}"));
        assert!(said("gridpool=debgu").ends_with("; close to it: debug"));
        assert!(said("info,gridpol=debug").contains("`gridpol` is not a crate of gridpool"));
        assert!(said("gridpool_workr=debug").ends_with("; close to it: gridpool_worker"));
        assert!(said("=debug").contains("`` is not a crate of gridpool"));
        assert!(said("loud").contains("`loud` is not a level"));
    }

    #[test]
    fn every_crate_of_the_workspace_is_a_target() {
        let manifest = include_str!("../../../Cargo.toml");
        let ours = manifest.lines().filter_map(|line| line.split_once(" = { path = "));
        let names = ours.map(|(name, _)| name.replace('-', "_"));
        // No program has those of the tests.
        let of_tests = ["gridpool_oracle", "gridpool_stub_cuda"];
        let names: Vec<_> = names.filter(|name| !of_tests.contains(&name.as_str())).collect();
        assert_eq!(names, CRATES);
    }
}
