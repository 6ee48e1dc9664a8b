//! The log of this process, on standard error: how it is written, lines that tracing has no form for, and
//! lines of workers that are passed on.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use gridpool_protocol::ids::WorkerId;
use gridpool_protocol::log::{FILTER_VARIABLE, LogFormat};
use serde_json::{Map, Value};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// How long the time at the start of a line for people is: `2026-11-22T07:47:08.123456Z`.
const TIME_BYTES: usize = 27;

/// How this process writes its log.
#[derive(Clone, Copy, Debug, Default)]
struct Setup {
    format: LogFormat,
    /// What is passed on of lines that workers have written; all that they write where the environment
    /// says what that is.
    passes: Option<LevelFilter>,
}

static SETUP: OnceLock<Setup> = OnceLock::new();

fn setup() -> Setup {
    SETUP.get().copied().unwrap_or_default()
}

/// How this process, and every process that it starts, writes its log.
#[must_use]
pub fn format() -> LogFormat {
    setup().format
}

/// Writes the log of this process to standard error from now on: what `GRIDPOOL_LOG` says, or else what
/// is at least as grave as `quiet`. To be called once.
pub fn start(format: LogFormat, quiet: LevelFilter) {
    let filter = EnvFilter::try_from_env(FILTER_VARIABLE).ok();
    let passes = filter.is_none().then_some(quiet);
    SETUP.get_or_init(|| Setup { format, passes });
    let filter = filter.unwrap_or_else(|| EnvFilter::new(quiet.to_string()));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        // Else a log that nobody reads any more is a panic: `serve 2>&1 | tee log` and Ctrl-C.
        .log_internal_errors(false);
    match format {
        LogFormat::Human => log.with_ansi(io::stderr().is_terminal()).init(),
        LogFormat::Json => {
            log.json().flatten_event(true).with_current_span(false).with_span_list(false).init();
            std::panic::set_hook(Box::new(|panic| {
                let fields = Map::from_iter([("panic".to_owned(), panic.to_string().into())]);
                write_json(tracing::Level::ERROR, "gridpool", "panicked", fields);
            }));
        }
    }
}

/// Writes one JSON object to the log, whatever the filter says: an event whose fields are more than
/// tracing has a form for.
pub fn write_json(level: tracing::Level, target: &str, message: &str, fields: Map<String, Value>) {
    let mut timestamp = String::new();
    let written = SystemTime.format_time(&mut Writer::new(&mut timestamp));
    written.expect("a string takes what is written");
    let mut line = Map::new();
    line.insert("timestamp".to_owned(), timestamp.into());
    line.insert("level".to_owned(), level.to_string().into());
    line.insert("message".to_owned(), message.into());
    line.extend(fields);
    line.insert("target".to_owned(), target.into());
    write_line(&Value::Object(line).to_string());
}

/// Writes a line that a worker has written, with the name of the worker, if it is one of a log in our
/// format; `false` if it is not, and nothing is written.
pub fn pass_on(worker: WorkerId, line: &str) -> bool {
    let Setup { format, passes } = setup();
    let Some((level, named)) = (match format {
        LogFormat::Human => name_human(worker, line),
        LogFormat::Json => name_json(worker, line),
    }) else {
        return false;
    };
    if passes.is_none_or(|least| level <= least) {
        write_line(&named);
    }
    true
}

/// A line for people, if it is one, with the name of its worker.
fn name_human(worker: WorkerId, line: &str) -> Option<(tracing::Level, String)> {
    let (time, rest) = line.split_at_checked(TIME_BYTES)?;
    let bytes = time.as_bytes();
    let is_time = bytes[10] == b'T' && bytes[19] == b'.' && bytes.ends_with(b"Z");
    let level = rest.trim_start().split(' ').next().filter(|_| is_time)?.parse().ok()?;
    let is_named = line.contains(" worker=");
    Some((level, if is_named { line.to_owned() } else { format!("{line} worker={worker}") }))
}

/// A JSON object, if it is one of a log, with the name of its worker.
fn name_json(worker: WorkerId, line: &str) -> Option<(tracing::Level, String)> {
    let mut fields: Map<String, Value> = serde_json::from_str(line).ok()?;
    fields.get("timestamp")?.as_str()?;
    let level = fields.get("level")?.as_str()?.parse().ok()?;
    fields.insert("worker".to_owned(), worker.to_string().into());
    Some((level, Value::Object(fields).to_string()))
}

fn write_line(line: &str) {
    // In one piece, so that lines of others do not come in between. A log that nobody reads any more is
    // no reason to end.
    drop(io::stderr().write_all(format!("{line}\n").as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker() -> WorkerId {
        "cpu0#3".parse().unwrap()
    }

    #[test]
    fn a_line_of_a_log_for_people_gets_the_name_of_its_worker_and_others_are_none() {
        let line = "2026-11-22T07:47:08.123456Z  WARN gridpool_worker::chaos: a fault fault=oob";
        let (level, named) = name_human(worker(), line).unwrap();
        assert_eq!((level, &*named), (tracing::Level::WARN, &*format!("{line} worker=cpu0#3")));
        for other in [
            "",
            "terminate called after throwing an instance of 'std::bad_alloc'",
            "2026-11-22T07:47:08.123456Z thread main panicked at a place of some length",
            "ääääääääääääääääääääääää",
        ] {
            assert_eq!(name_human(worker(), other), None, "{other}");
        }
    }

    #[test]
    fn a_json_line_of_a_log_gets_the_name_of_its_worker_and_others_are_none() {
        let line = r#"{"timestamp":"t","level":"ERROR","message":"m","job":"job5","target":"x"}"#;
        let (level, named) = name_json(worker(), line).unwrap();
        assert_eq!(level, tracing::Level::ERROR);
        let named: Value = serde_json::from_str(&named).unwrap();
        assert_eq!((&named["worker"], &named["job"]), (&"cpu0#3".into(), &"job5".into()));
        for other in ["", "7", "{}", r#"{"level":"ERROR"}"#, r#"{"timestamp":"t","level":"x"}"#] {
            assert_eq!(name_json(worker(), other), None, "{other}");
        }
    }
}
