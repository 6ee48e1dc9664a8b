//! The log of this process, on standard error: how it is written, lines that tracing has no form for, and
//! lines of workers that are passed on. A process that others wait for has it written by a thread of its
//! own ([`write_aside`]), and never waits for whoever reads it.

mod queue;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal, Write};
use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use gridpool_protocol::ids::WorkerId;
use gridpool_protocol::log::{FILTER_VARIABLE, LogFormat};
use serde_json::{Map, Value};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// How long the time at the start of a line for people is: `2026-11-22T07:47:08.123456Z`.
const TIME_BYTES: usize = 27;

/// How long the last lines have at the end of the process, or before it ends in a panic: a log that is
/// read takes all of them in no time.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);

/// What is written by a thread of its own.
static ASIDE: queue::Queue = queue::Queue::new();
/// Whether there is that thread.
static IS_ASIDE: AtomicBool = AtomicBool::new(false);

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
        .with_writer(|| Log)
        // Else a log that nobody reads any more is a panic: `serve 2>&1 | tee log` and Ctrl-C.
        .log_internal_errors(false);
    match format {
        LogFormat::Human => log.with_ansi(io::stderr().is_terminal()).init(),
        LogFormat::Json => {
            log.json().flatten_event(true).with_current_span(false).with_span_list(false).init();
        }
    }
    std::panic::set_hook(Box::new(tell_of_panic));
}

/// From now on a thread of its own writes the log, and nobody waits for whoever reads it: what it cannot
/// take is left out and counted. For processes that others wait for, once the signals are blocked that
/// no thread is to get.
///
/// # Errors
/// The system's, if a thread cannot be started.
pub fn write_aside() -> io::Result<()> {
    if !IS_ASIDE.load(Ordering::Acquire) {
        let serve = || ASIDE.serve(queue::Unlocked, missing);
        thread::Builder::new().name("log".into()).spawn(serve)?;
        IS_ASIDE.store(true, Ordering::Release);
    }
    Ok(())
}

/// The process ends: waits for its last lines to be written, but not for ever.
pub fn flush() {
    if IS_ASIDE.load(Ordering::Acquire) {
        // If it is not read there is nobody to be told either.
        ASIDE.flush(FLUSH_PATIENCE);
    }
}

/// The log, for tracing: it writes each line in one piece.
#[derive(Debug)]
struct Log;

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if IS_ASIDE.load(Ordering::Acquire) {
            ASIDE.put(text);
            Ok(text.len())
        } else {
            io::stderr().write(text)
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Says that lines of the log are not there.
fn missing(lines: u64) -> String {
    const WHAT: &str = "lines of this log were left out: nobody read it";
    let level = tracing::Level::WARN;
    let mut line = match format() {
        LogFormat::Human => {
            format!("{} {level:>5} {}: {WHAT} lines={lines}", now(), module_path!())
        }
        LogFormat::Json => {
            let fields = Map::from_iter([("lines".to_owned(), lines.into())]);
            json(level, module_path!(), WHAT, fields)
        }
    };
    line.push('\n');
    line
}

/// A panic, in the words that it has everywhere.
fn tell_of_panic(panic: &PanicHookInfo<'_>) {
    match format() {
        LogFormat::Human => {
            let name = thread::current().name().unwrap_or("<unnamed>").to_owned();
            write_line(&format!("thread '{name}' {panic}"));
            let trace = Backtrace::capture();
            match trace.status() == BacktraceStatus::Captured {
                true => write_line(&format!("stack backtrace:\n{trace}")),
                false => write_line("note: run with `RUST_BACKTRACE=1` to see the calls before it"),
            }
        }
        LogFormat::Json => {
            let fields = Map::from_iter([("panic".to_owned(), panic.to_string().into())]);
            write_json(tracing::Level::ERROR, "gridpool", "panicked", fields);
        }
    }
    flush();
}

/// Writes one JSON object to the log, whatever the filter says: an event whose fields are more than
/// tracing has a form for.
pub fn write_json(level: tracing::Level, target: &str, message: &str, fields: Map<String, Value>) {
    write_line(&json(level, target, message, fields));
}

/// The time, as it is at the start of every line.
fn now() -> String {
    let mut timestamp = String::new();
    let written = SystemTime.format_time(&mut Writer::new(&mut timestamp));
    written.expect("a string takes what is written");
    timestamp
}

/// An event as one JSON object.
fn json(level: tracing::Level, target: &str, message: &str, fields: Map<String, Value>) -> String {
    let mut line = Map::new();
    line.insert("timestamp".to_owned(), now().into());
    line.insert("level".to_owned(), level.to_string().into());
    line.insert("message".to_owned(), message.into());
    line.extend(fields);
    line.insert("target".to_owned(), target.into());
    Value::Object(line).to_string()
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

/// Writes a line whatever the filter says, and however many lines there are in it.
pub fn write_line(line: &str) {
    // In one piece, so that lines of others do not come in between. A log that nobody reads any more is
    // no reason to end.
    drop(Log.write_all(format!("{line}\n").as_bytes()));
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
