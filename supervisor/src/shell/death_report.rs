//! One log block for the death of a worker, with all that the core and the shell know of it. This file only puts
//! it into words.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::{AttemptId, ClientId};
use gridpool_protocol::log::LogFormat;
use gridpool_protocol::position::{ChunkPosition, Position};
use serde_json::{Map, Value, json};

use crate::logging;
use gridpool_core::action::{DeathReport, Disposition, LostAttempt, Next};
use gridpool_core::event::ExitStatus;

/// Columns before the text of a line, including the name of the line.
const INDENT: usize = 15;

/// A death, with what only the shell knows of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Death {
    pub(super) report: DeathReport,
    pub(super) pid: u32,
    /// The client that asked for a signal to it, and the signal.
    pub(super) ordered: Option<(ClientId, i32)>,
    /// The attempt that met the fault, from the worker's message.
    pub(super) met_by: Option<AttemptId>,
    /// Where it was in its work, if it has begun any.
    pub(super) position: Option<Position>,
    /// The last lines of its standard error.
    pub(super) stderr: Vec<String>,
    /// The capsule that is written of it.
    pub(super) capsule: Option<Arc<str>>,
}

/// Writes the block to the log.
pub(super) fn tell(death: &Death) {
    let Death { report, pid, .. } = death;
    let (worker, role) = (report.worker, report.worker.group.role().name());
    if report.is_expected {
        tracing::debug!(%worker, pid, role, exit = %report.exit, "worker ended");
        return;
    }
    if !tracing::enabled!(tracing::Level::WARN) {
        return;
    }
    match logging::format() {
        LogFormat::Human => {
            tracing::warn!("{}", block(death));
        }
        LogFormat::Json => {
            let fields = fields(death);
            logging::write_json(tracing::Level::WARN, module_path!(), "worker died", fields);
        }
    }
}

/// The block as the log has it for people.
pub(super) fn block(death: &Death) -> String {
    let Death { report, pid, .. } = death;
    let (worker, role) = (report.worker, report.worker.group.role().name());
    format!("worker died worker={worker} pid={pid} role={role}{}", human(death))
}

/// The block for people. Each line starts with a line break and a name.
fn human(told: &Death) -> String {
    let Death { report: death, ordered, met_by, position, stderr, capsule, .. } = told;
    let mut text = String::new();
    let mut say = |name: &str, what: &str| {
        let written = write!(text, "\n    {name:<width$}{what}", width = INDENT - 4);
        written.expect("a string takes what is written");
    };
    let device = &death.device;
    say("device", format!("{} {} {}", death.worker.device, device.name, device.uuid).trim_end());
    say("ended", &how_it_ended(death, *ordered));
    if let Some(words) = &death.exit.last_words {
        say(if is_rejected(death) { "because" } else { "said" }, words);
    }
    if let Some(fault) = death.exit.fault {
        let by = met_by.map_or_else(String::new, |attempt| format!(", met by {}", named(attempt)));
        say("fault", &format!("{}{by}", explained(fault)));
    }
    if let Some(fault) = death.driver {
        say("driver", &explained(fault));
    }
    for at in position.iter().flat_map(places) {
        say("at", &at);
    }
    say("life", &life(death));
    for lost in &death.attempts {
        say("job", &attempt(lost));
    }
    if death.attempts_more > 0 {
        say("job", &format!("and {} more", death.attempts_more));
    }
    say("next", &what_comes(death));
    if let Some(name) = capsule {
        say("capsule", &format!("{name}: run it again with `gridpool replay {name}`"));
    }
    for (number, line) in stderr.iter().enumerate() {
        say(if number == 0 { "stderr" } else { "" }, line);
    }
    text
}

fn is_rejected(death: &DeathReport) -> bool {
    matches!(death.exit.status, ExitStatus::Incompatible | ExitStatus::Rejected)
}

fn how_it_ended(death: &DeathReport, ordered: Option<(ClientId, i32)>) -> String {
    let status = death.exit.status;
    let by_order = ordered.filter(|&(_, signal)| status == ExitStatus::Signal(signal));
    let how = match (death.killed, status) {
        // The pool killed it, and it died of that.
        (Some(reason), ExitStatus::KILLED) => {
            return format!("{}, by the pool: {reason}", words_of(status));
        }
        (_, ExitStatus::Incompatible | ExitStatus::Rejected) => {
            return format!("killed by the supervisor: {}", death.exit.code().meaning().sentence);
        }
        (_, ExitStatus::Code(_) | ExitStatus::Signal(_)) => match by_order {
            Some((client, _)) => format!("{}, as {client} has ordered", words_of(status)),
            None => format!("{}: {}", words_of(status), death.exit.code().meaning().sentence),
        },
    };
    match death.killed {
        Some(reason) => format!("{how}; before, the pool had killed it: {reason}"),
        None => how,
    }
}

/// The exit code or signal, with its name.
fn words_of(status: ExitStatus) -> String {
    let name = |code: FaultCode| match code.meaning().name {
        name if name.is_empty() => String::new(),
        name => format!(" ({name})"),
    };
    match status {
        ExitStatus::Code(code) => format!("exit code {code}{}", name(FaultCode::Exit(code))),
        ExitStatus::Signal(signal) => match nix::sys::signal::Signal::try_from(signal) {
            Ok(known) => format!("signal {signal} ({known})"),
            Err(_) => format!("signal {signal}"),
        },
        ExitStatus::Incompatible | ExitStatus::Rejected => "killed by the supervisor".to_owned(),
    }
}

fn explained(fault: FaultCode) -> String {
    let meaning = fault.meaning();
    match &*meaning.name {
        name if name.is_empty() || *name == fault.to_string() => {
            format!("{fault}: {}", meaning.sentence)
        }
        name => format!("{fault} ({name}): {}", meaning.sentence),
    }
}

fn named(attempt: AttemptId) -> String {
    format!("{} attempt {}", attempt.job, attempt.number)
}

/// Where it was, a line for each chunk that was under way.
fn places(position: &Position) -> Vec<String> {
    /// A CPU may have many threads.
    const SHOWN_MAX: usize = 8;
    let Position { chunks_begun, chunks_done, under_way } = position;
    let at = |chunk: &ChunkPosition| {
        let ChunkPosition { chunk, first, last, launches, kernel } = chunk;
        let items = match first.attempt == last.attempt {
            true => format!("{}, items {} to {}", named(first.attempt), first.item, last.item),
            false => format!(
                "item {} of {} to item {} of {}",
                first.item,
                named(first.attempt),
                last.item,
                named(last.attempt)
            ),
        };
        match launches {
            0 => format!("chunk {chunk} of its work, {items}; nothing launched"),
            _ => format!("chunk {chunk} of its work, {items}; launch {launches}, {kernel}"),
        }
    };
    let mut lines: Vec<_> = under_way.iter().take(SHOWN_MAX).map(at).collect();
    if under_way.len() > SHOWN_MAX {
        lines.push(format!("and {} more", under_way.len() - SHOWN_MAX));
    }
    if lines.is_empty() {
        lines.push(match chunks_begun {
            0 => "before the first chunk of its work".to_owned(),
            _ => format!("between chunks of its work, {chunks_done} of {chunks_begun} done"),
        });
    }
    lines
}

fn life(death: &DeathReport) -> String {
    let lived = seconds(death.lived);
    match death.ready_after {
        None => format!("{lived}, never READY"),
        Some(ready) => {
            let answered = match death.answered {
                1 => "1 job".to_owned(),
                count => format!("{count} jobs"),
            };
            format!("{lived}, READY after {}, {answered} answered", seconds(ready))
        }
    }
}

fn attempt(lost: &LostAttempt) -> String {
    let waited = if lost.waited { ", which had not begun" } else { "" };
    let trace = lost.trace.map_or_else(String::new, |trace| format!(", trace_id={trace}"));
    format!(
        "{}{trace}{waited}: {} ({})",
        named(lost.attempt),
        disposition_words(lost.disposition),
        lost.label
    )
}

fn disposition_words(disposition: Disposition) -> String {
    match disposition {
        Disposition::Denylisted => "denylisted, its verdict is POISON".to_owned(),
        Disposition::Over { verdict, by: Some(worker) } => format!("{verdict} since, on {worker}"),
        Disposition::Over { verdict, by: None } => format!("had its verdict before: {verdict}"),
        Disposition::ShardOver => "this shard has ended, the job goes on".to_owned(),
        Disposition::Runs(worker) => format!("runs again, on {worker}"),
        Disposition::Unheard => "has ended, and no client waits for it".to_owned(),
        Disposition::Verdict(verdict) => format!("its verdict is {verdict}"),
        Disposition::Waits { suspects: 0 } => "waits to run again".to_owned(),
        Disposition::Waits { suspects: 1 } => "waits to run again, by itself".to_owned(),
        Disposition::Waits { suspects } => {
            format!("waits to run again, as one of {suspects} suspects that run without others")
        }
    }
}

fn disposition_name(disposition: Disposition) -> &'static str {
    match disposition {
        Disposition::Denylisted => "convicted",
        Disposition::Over { .. } => "over",
        Disposition::ShardOver => "part_over",
        Disposition::Runs(_) => "runs_again",
        Disposition::Unheard => "unheard",
        Disposition::Verdict(_) => "verdict",
        Disposition::Waits { .. } => "waits",
    }
}

fn what_comes(death: &DeathReport) -> String {
    let device = death.worker.device;
    let next = match death.next {
        Next::Nothing => {
            "no process takes its place: the pool ends, or has nothing to do".to_owned()
        }
        Next::Out(None) => {
            format!("{device} is out of service until `gridpool release {device}`")
        }
        Next::Out(Some(after)) => {
            format!("{device} is out of service and tried again in {}", seconds(after))
        }
        Next::Restart(Duration::ZERO) => "another process starts at once".to_owned(),
        Next::Restart(after) => format!("another process starts in {}", seconds(after)),
    };
    match death.served_by {
        Some(worker) => format!("{worker} serves {device}; {next}"),
        None => next,
    }
}

/// Seconds with the digits that matter.
fn seconds(span: Duration) -> String {
    match span.as_secs_f64() {
        long if long >= 100.0 => format!("{long:.0} s"),
        short => format!("{short:.3} s"),
    }
}

/// The same as fields of a JSON object. Missing values are `null`.
pub(super) fn fields(told: &Death) -> Map<String, Value> {
    let Death { report: death, pid, ordered, met_by, position, stderr, capsule } = told;
    let device = &death.device;
    let (exit_code, signal) = match death.exit.status {
        ExitStatus::Code(code) => (Some(code), None),
        ExitStatus::Signal(signal) => (None, Some(signal)),
        ExitStatus::Incompatible | ExitStatus::Rejected => (None, Some(nix::libc::SIGKILL)),
    };
    let fault = |code: Option<FaultCode>| match code {
        None => Value::Null,
        Some(code) => {
            let meaning = code.meaning();
            json!({"code": code.to_string(), "name": meaning.name, "meaning": meaning.sentence})
        }
    };
    let jobs = death.attempts.iter().map(|lost| {
        let (verdict, worker, suspects) = match lost.disposition {
            Disposition::Over { verdict, by } => (Some(verdict), by, None),
            Disposition::Runs(worker) => (None, Some(worker.name()), None),
            Disposition::Verdict(verdict) => (Some(verdict), None, None),
            Disposition::Waits { suspects } => (None, None, Some(suspects)),
            Disposition::Denylisted | Disposition::ShardOver | Disposition::Unheard => {
                (None, None, None)
            }
        };
        let is_over = verdict.is_some();
        let worker = worker.map(|worker| worker.to_string());
        json!({
            "job": lost.attempt.job.to_string(), "attempt": lost.attempt.number,
            "trace_id": lost.trace.map(|trace| trace.to_string()),
            "what": &*lost.label, "begun": !lost.waited, "fate": disposition_name(lost.disposition),
            "verdict": verdict.map(|verdict| verdict.to_string()),
            "verdict_by": worker.as_ref().filter(|_| is_over),
            "runs_on": worker.as_ref().filter(|_| !is_over), "suspects": suspects,
        })
    });
    let (restart_in_s, out_of_service, tried_in_s) = match death.next {
        Next::Nothing => (None, false, None),
        Next::Out(after) => (None, true, after.map(|after| after.as_secs_f64())),
        Next::Restart(after) => (Some(after.as_secs_f64()), false, None),
    };
    let value = json!({
        "worker": death.worker.to_string(), "pid": pid, "role": death.worker.group.role().name(),
        "device": death.worker.device.to_string(), "device_name": device.name,
        "uuid": device.uuid,
        "exit_code": exit_code, "signal": signal, "ended": how_it_ended(death, *ordered),
        "ordered_by": ordered.map(|(client, _)| client.to_string()),
        "killed_for": death.killed.map(|reason| reason.name()),
        "rejected": is_rejected(death), "last_words": death.exit.last_words,
        "fault": fault(death.exit.fault),
        "met_by": met_by.map(|attempt| {
            json!({"job": attempt.job.to_string(), "attempt": attempt.number})
        }),
        "driver": fault(death.driver), "position": position,
        "lived_s": death.lived.as_secs_f64(),
        "ready_after_s": death.ready_after.map(|span| span.as_secs_f64()),
        "jobs_answered": death.answered,
        "jobs": jobs.collect::<Vec<_>>(), "jobs_more": death.attempts_more,
        "served_by": death.served_by.map(|worker| worker.to_string()),
        "restart_in_s": restart_in_s, "out_of_service": out_of_service,
        "tried_again_in_s": tried_in_s,
        "capsule": capsule.as_deref(),
        "stderr": stderr,
    });
    let Value::Object(fields) = value else { unreachable!("it is written as an object above") };
    fields
}

#[cfg(test)]
pub(super) mod tests;
