//! What happened last, in lines that fit a screen: `time <- event`, `time -> action`.

use std::collections::VecDeque;
use std::fmt;

use gridpool::pool::event::{Action, Assignment, Event, Release, Timestamp};
use gridpool_protocol::ids::ContentHash;
use gridpool_protocol::message::AttemptError;

/// Lines that a failure prints.
const KEPT: usize = 40;

#[derive(Clone, Debug, PartialEq)]
enum Line {
    In(Timestamp, Event),
    Note(Timestamp, &'static str),
    Out(Timestamp, Action),
}

/// The latest lines; all of them if it is to prove that a seed replays.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Log {
    lines: VecDeque<Line>,
    keeps_all: bool,
}

impl Log {
    pub(crate) fn complete() -> Self {
        Self { keeps_all: true, ..Self::default() }
    }

    pub(crate) fn event(&mut self, now: Timestamp, event: &Event) {
        self.push(Line::In(now, event.clone()));
    }

    pub(crate) fn action(&mut self, now: Timestamp, action: &Action) {
        self.push(Line::Out(now, action.clone()));
    }

    pub(crate) fn note(&mut self, now: Timestamp, what: &'static str) {
        self.push(Line::Note(now, what));
    }

    fn push(&mut self, line: Line) {
        if self.lines.len() == KEPT && !self.keeps_all {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.lines.iter().rev().take(KEPT).rev() {
            match line {
                Line::In(at, event) => writeln!(f, "{at} <- {}", brief_event(event))?,
                Line::Note(at, what) => writeln!(f, "{at} -- {what}")?,
                Line::Out(at, action) => writeln!(f, "{at} -> {}", brief_action(action))?,
            }
        }
        Ok(())
    }
}

fn brief_event(event: &Event) -> String {
    match event {
        Event::BeaconLost { worker, .. } => format!("BeaconLost {worker}"),
        Event::CancelRequested { client, key } => format!("CancelRequested {client} key {}", key.0),
        Event::ClientConnected { client } => format!("ClientConnected {client}"),
        Event::ClientGone { client } => format!("ClientGone {client}"),
        Event::ContentHashed { job, content: Some(content) } => {
            format!("ContentHashed {job} {}", short(content))
        }
        Event::ContentHashed { job, content: None } => format!("ContentHashed {job} unreadable"),
        Event::DeviceFault { device, fault } => format!("DeviceFault {device} {fault}"),
        Event::DrainRequested => "DrainRequested".to_owned(),
        Event::JobSubmitted { client, request: r } => {
            let once = if r.idempotent { "" } else { " once" };
            let model = r.model.as_ref().map(|model| format!(" asks {model}")).unwrap_or_default();
            let whole = if r.divisible { "" } else { " whole" };
            let inline = if r.answer_inline { " inline" } else { "" };
            let content = r.content.as_ref().map(|content| format!(" is {}", short(content)));
            let content = content.unwrap_or_default();
            format!(
                "JobSubmitted {client} {} key {} {} items {} cost {} bytes {} {:?} deadline {:?}\
                 {once}{whole}{inline}{content}{model}",
                r.job,
                r.key.0,
                r.program_hash,
                r.items,
                r.cost,
                r.inline_bytes,
                r.priority,
                r.deadline
            )
        }
        Event::ModelsOrdered { worker } => format!("ModelsOrdered {worker}"),
        Event::ModelsSettled { worker } => format!("ModelsSettled {worker}"),
        Event::ModelsOffered { worker, models } => format!("ModelsOffered {worker} {models:?}"),
        Event::ReleaseRequested { release } => match release {
            Release::Content(content) => format!("ReleaseRequested {}", short(content)),
            Release::Contents => "ReleaseRequested all contents".to_owned(),
            Release::Device(device) => format!("ReleaseRequested {device}"),
        },
        Event::RestRequested => "RestRequested".to_owned(),
        Event::SpawnFailed { worker, .. } => format!("SpawnFailed {worker}"),
        Event::StopRequested => "StopRequested".to_owned(),
        Event::TimePassed => "TimePassed".to_owned(),
        Event::WakeRequested => "WakeRequested".to_owned(),
        Event::WorkerAnswered { worker, attempt, result } => {
            let result = match result {
                Ok(_) => "ok",
                Err(AttemptError::Device(_)) => "device error",
                Err(AttemptError::Refused(_)) => "refused",
            };
            format!("WorkerAnswered {worker} {attempt} {result}")
        }
        Event::WorkerExited { worker, exit } => format!("WorkerExited {worker} {exit}"),
        Event::WorkerHeard { worker } => format!("WorkerHeard {worker}"),
        Event::WorkerReady { worker, .. } => format!("WorkerReady {worker}"),
        Event::WorkerReclaimed { worker } => format!("WorkerReclaimed {worker}"),
    }
}

fn brief_action(action: &Action) -> String {
    match action {
        Action::Accept { client, key } => format!("Accept {client} key {}", key.0),
        Action::Discard { job } => format!("Discard {job}"),
        Action::Dispatch { worker, attempts } => {
            let brief = |sent: &Assignment| {
                format!(" {} {}..{}", sent.attempt, sent.part.start, sent.part.end)
            };
            let all: String = attempts.iter().map(brief).collect();
            format!("Dispatch {worker}{all}")
        }
        Action::Finish { client, job, key, receipt } => {
            let client = client.map_or_else(|| "nobody".to_owned(), |client| client.to_string());
            let (key, runs) = (key.0, receipt.attempts.len());
            format!(
                "Finish {job} key {key} {} after {runs}: {} ({client})",
                receipt.verdict, receipt.reason
            )
        }
        Action::HashContent { job } => format!("HashContent {job}"),
        Action::Kill { worker } => format!("Kill {worker}"),
        Action::Leave => "Leave".to_owned(),
        Action::Refuse { client, job, key, refusal } => {
            format!("Refuse {client} {job} key {}: {refusal}", key.0)
        }
        Action::Replay { client, key, receipt } => {
            format!("Replay {client} key {} {}", key.0, receipt.verdict)
        }
        Action::Spawn { worker } => format!("Spawn {worker}"),
        Action::Stop { worker } => format!("Stop {worker}"),
        Action::Withdraw { worker, attempt } => format!("Withdraw {worker} {attempt}"),
    }
}

/// Enough of a hash to tell it from others.
fn short(content: &ContentHash) -> String {
    content.0[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}
