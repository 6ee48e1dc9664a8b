//! The log of this process on standard error, with the lines that workers write. In the supervisor and the
//! gateway a separate thread writes it ([`write_aside`]), so that they never wait for a reader.

mod filter;
mod queue;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use gridpool_protocol::color::Colors;
use gridpool_protocol::ids::WorkerId;
use gridpool_protocol::log::{FILTER_VARIABLE, LogFormat};
use serde_json::{Map, Value};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

pub use filter::FilterError;
use queue::Source;

/// Characters of the time at the start of a line for people: `2026-11-22T07:47:08.123456Z`.
const TIME_BYTES: usize = 27;

/// The target of lines about orders, which are not dropped for others.
pub const AUDIT: &str = "audit";
/// The target of lines about requests of HTTP and gRPC, which are there only if they are asked for.
pub const ACCESS: &str = "access";
/// The target of what workers write that is not in our format.
const WORKERS: &str = "gridpool::shell::stderr";

/// What a supervisor may log in a minute, and what its workers may. More is dropped and counted, the audit excepted.
/// With those of the gateway, the bridge and the tracer, and the lines of the orders of one user and of clients of
/// the gateway, it is less than 1 MB.
const SUPERVISOR_BYTES_PER_MINUTE: usize = 150 << 10;

/// How long the process waits for its last lines to be written, at its end or in a panic. If the log is read,
/// this takes no time.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The queue of the writing thread.
static ASIDE: queue::Queue = queue::Queue::new();
/// Whether the writing thread runs.
static IS_ASIDE: AtomicBool = AtomicBool::new(false);

/// The settings of this process's log.
#[derive(Clone, Copy, Debug, Default)]
struct Setup {
    format: LogFormat,
    /// The filter of the environment lets more pass than `info`.
    is_verbose: bool,
    /// The filter of the workers' lines. If the environment sets a filter, the workers apply it, and all their
    /// lines are written.
    passes: Option<LevelFilter>,
}

static SETUP: OnceLock<Setup> = OnceLock::new();

fn setup() -> Setup {
    SETUP.get().copied().unwrap_or_default()
}

/// The log format of this process and its child processes.
#[must_use]
pub fn format() -> LogFormat {
    setup().format
}

/// Starts the log of this process on standard error. `GRIDPOOL_LOG` filters it, or else the level `quiet`. Call
/// it once.
///
/// # Errors
/// The error of `GRIDPOOL_LOG`; then the log is not started.
pub fn start(format: LogFormat, quiet: LevelFilter) -> Result<(), FilterError> {
    let filter = std::env::var_os(FILTER_VARIABLE);
    let filter = filter.map_or(Ok(None), |text| filter::parse(&text.to_string_lossy()))?;
    let passes = filter.is_none().then_some(quiet);
    let levels = filter
        .iter()
        .flat_map(|filter| filter.iter().map(|(_, level)| level).chain(filter.default_level()));
    let is_verbose = levels.max() > Some(LevelFilter::INFO);
    SETUP.get_or_init(|| Setup { format, is_verbose, passes });
    let is_quiet = filter.is_none() && quiet < LevelFilter::INFO;
    let filter = filter.unwrap_or_else(|| Targets::new().with_default(quiet));
    let filter = filter::without_noise(filter);
    // The pool of a command that logs less takes orders from that command alone: nobody else audits it.
    let filter = if is_quiet { filter } else { filter::with_asked(filter) };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(Log::default())
        // Otherwise a closed log is a panic: `serve 2>&1 | tee log` and Ctrl-C.
        .log_internal_errors(false);
    match format {
        LogFormat::Human => {
            let lines = lines.with_ansi(Colors::of(io::stderr().is_terminal()).any());
            tracing_subscriber::registry().with(filter).with(lines).init();
        }
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true);
            let lines = lines.with_current_span(false).with_span_list(false);
            tracing_subscriber::registry().with(filter).with(lines).init();
        }
    }
    std::panic::set_hook(Box::new(tell_of_panic));
    Ok(())
}

/// From now on a separate thread writes the log, and no other thread waits for its reader. If the reader is too
/// slow, lines are dropped and counted. Call it once the signals that the thread must not get are blocked.
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

/// From now on at most so many bytes of this process, and as many of workers, are written in a minute. More lines
/// are dropped and counted. For a process whose clients may have it log.
pub fn limit(bytes_per_minute: usize) {
    ASIDE.limit(bytes_per_minute);
}

/// The same for a supervisor, before its first client; not if the environment asks for lines about each job.
pub fn limit_for_clients() {
    if !setup().is_verbose {
        limit(SUPERVISOR_BYTES_PER_MINUTE);
    }
}

/// Waits until the last lines are written, up to a timeout. Call it before the process ends.
pub fn flush() {
    if IS_ASIDE.load(Ordering::Acquire) {
        // After the timeout there is no place to report it.
        ASIDE.flush(FLUSH_TIMEOUT);
    }
}

/// The log as a writer for tracing: it writes each line in one piece.
#[derive(Clone, Copy, Debug, Default)]
struct Log {
    source: Source,
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        *self
    }

    fn make_writer_for(&'a self, about: &tracing::Metadata<'_>) -> Self {
        let source = match about.target() {
            AUDIT => Source::Audit,
            WORKERS => Source::Workers,
            _ => Source::Own,
        };
        Self { source }
    }
}

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.put(&in_one_line(text)).map(|()| text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn put(self, text: &[u8]) -> io::Result<()> {
        if IS_ASIDE.load(Ordering::Acquire) {
            ASIDE.put(self.source, text);
            Ok(())
        } else {
            io::stderr().write_all(text)
        }
    }
}

/// What follows a line break that we have made: the lines of a death report are indented.
const INDENT: &[u8] = b"    ";

/// Escapes the line breaks and control characters of texts that others chose, so that none looks like another event.
/// Tracing has escaped those that begin a sequence for a terminal, and uses that of colours.
fn in_one_line(event: &[u8]) -> Cow<'_, [u8]> {
    let text = event.strip_suffix(b"\n").unwrap_or(event);
    let is_foreign = |at: usize| match text[at] {
        b'\n' => !text[at + 1..].starts_with(INDENT),
        b'\t' | b'\x1b' => false,
        byte => byte.is_ascii_control(),
    };
    if !(0..text.len()).any(is_foreign) {
        return event.into();
    }
    let mut line = Vec::with_capacity(event.len());
    for (at, &byte) in text.iter().enumerate() {
        match is_foreign(at) {
            true => line.extend(byte.escape_ascii()),
            false => line.push(byte),
        }
    }
    line.extend(&event[text.len()..]);
    line.into()
}

/// The report of dropped lines.
fn missing(lines: u64) -> String {
    const WHAT: &str =
        "lines of this log were dropped, since its reader was too slow or they were too many";
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

/// Writes a panic in Rust's usual form.
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

/// Writes one JSON object to the log, past the filter: an event whose fields tracing cannot express.
pub fn write_json(level: tracing::Level, target: &str, message: &str, fields: Map<String, Value>) {
    write_line(&json(level, target, message, fields));
}

/// The time at the start of a line.
pub(crate) fn now() -> String {
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

/// Writes a line of a worker's log, with the worker's name. Returns `false`, and writes nothing, if the line is
/// not in our format.
pub fn pass_on(worker: WorkerId, line: &str) -> bool {
    let Setup { format, passes, .. } = setup();
    let Some((level, named)) = (match format {
        LogFormat::Human => name_human(worker, line),
        LogFormat::Json => name_json(worker, line),
    }) else {
        return false;
    };
    if passes.is_none_or(|least| level <= least) {
        write_of(Source::Workers, &named);
    }
    true
}

/// A log line for people, with the name of its worker; `None` for another line.
fn name_human(worker: WorkerId, line: &str) -> Option<(tracing::Level, String)> {
    let (time, rest) = line.split_at_checked(TIME_BYTES)?;
    let bytes = time.as_bytes();
    let is_time = bytes[10] == b'T' && bytes[19] == b'.' && bytes.ends_with(b"Z");
    let level = rest.trim_start().split(' ').next().filter(|_| is_time)?.parse().ok()?;
    let is_named = line.contains(" worker=");
    Some((level, if is_named { line.to_owned() } else { format!("{line} worker={worker}") }))
}

/// A JSON log line, with the name of its worker; `None` for another line.
fn name_json(worker: WorkerId, line: &str) -> Option<(tracing::Level, String)> {
    let mut fields: Map<String, Value> = serde_json::from_str(line).ok()?;
    fields.get("timestamp")?.as_str()?;
    let level = fields.get("level")?.as_str()?.parse().ok()?;
    fields.insert("worker".to_owned(), worker.to_string().into());
    Some((level, Value::Object(fields).to_string()))
}

/// Writes a text of one or more lines, past the filter.
pub fn write_line(line: &str) {
    write_of(Source::Own, line);
}

fn write_of(source: Source, line: &str) {
    // In one piece, so that no other line comes in between. The process goes on without a log once standard
    // error is closed.
    drop(Log { source }.put(format!("{line}\n").as_bytes()));
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::ids::{DeviceId, DeviceKind, Group};

    use super::*;

    fn worker() -> WorkerId {
        let device = DeviceId { kind: DeviceKind::Cpu, index: 0 };
        WorkerId { device, group: Group::Grid, generation: 3 }
    }

    #[test]
    fn an_event_is_one_line_whatever_text_is_in_it() {
        let line = |text: &str| String::from_utf8(in_one_line(text.as_bytes()).into()).unwrap();
        let forged = "INFO it is wrong error=line 3: `a\r\nINFO all is well\0`\n";
        assert_eq!(line(forged), "INFO it is wrong error=line 3: `a\\r\\nINFO all is well\\x00`\n");
        for own in ["", "\n", "\x1b[32mINFO\x1b[0m ä\tb\n", "worker died\n    device     gpu0\n"] {
            assert_eq!(line(own), own);
        }
    }

    #[test]
    fn a_log_line_for_people_gets_the_name_of_its_worker() {
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
    fn a_json_log_line_gets_the_name_of_its_worker() {
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
