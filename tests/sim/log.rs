//! The last events and actions, in lines that fit a screen: `time <- event`, `time -> action`.

use std::collections::VecDeque;
use std::fmt;

use gridpool_core::action::{Action, Assignment};
use gridpool_core::event::{ClientEvent, Event, Release, Timestamp, WorkerEvent};
use gridpool_protocol::handover::JobNews;
use gridpool_protocol::ids::{ClientId, ContentHash};
use gridpool_protocol::message::{AttemptError, ModelCommand};
use gridpool_protocol::tensor::model::ModelInfo;

/// Lines that a failure prints.
const KEPT: usize = 40;

#[derive(Clone, Debug, PartialEq)]
enum Line {
    In(Timestamp, Event),
    Note(Timestamp, &'static str),
    Out(Timestamp, Action),
}

/// The latest lines, or all of them, to prove that a seed replays.
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
        for line in &self.lines {
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
        Event::Client(client, event) => brief_client(*client, event),
        Event::ContentHashed { job, content: Some(content) } => {
            format!("ContentHashed {job} {}", short(content))
        }
        Event::ContentHashed { job, content: None } => format!("ContentHashed {job} unreadable"),
        Event::DeviceFault { device, fault } => format!("DeviceFault {device} {fault}"),
        Event::Helper(helper, event) => format!("{event:?} of {helper}"),
        Event::QuotasSet(quotas) => format!("QuotasSet {quotas:?}"),
        Event::Reconfigured(config, _) => format!("Reconfigured {config:?}"),
        Event::Worker(worker, event) => format!("{worker}: {}", brief_worker(event)),
        Event::DeviceMemory { .. }
        | Event::DrainRequested
        | Event::EndRequested
        | Event::HandOver(_)
        | Event::ModelsRequired
        | Event::Predecessor(_)
        | Event::StopRequested
        | Event::TimePassed => {
            format!("{event:?}")
        }
    }
}

fn brief_client(client: ClientId, event: &ClientEvent) -> String {
    match event {
        ClientEvent::CancelRequested { key } => format!("{client}: CancelRequested key {}", key.0),
        ClientEvent::Connected => format!("{client}: Connected"),
        ClientEvent::Gone => format!("{client}: Gone"),
        ClientEvent::ModelsChangeRequested { request, command } => {
            format!("{client}: ModelsChangeRequested {request} {}", brief_command(command))
        }
        ClientEvent::ReleaseRequested { request, release } => {
            let what = match release {
                Release::Content(content) => short(content),
                Release::Contents => "all contents".to_owned(),
                Release::Device(device) => device.to_string(),
            };
            format!("{client}: ReleaseRequested {request} {what}")
        }
        ClientEvent::Submitted(r) => {
            let once = if r.idempotent { "" } else { " once" };
            let whole = if r.divisible { "" } else { " whole" };
            let inline = if r.answer_inline { " inline" } else { "" };
            let content = r.content.as_ref().map(|content| format!(" is {}", short(content)));
            let content = content.unwrap_or_default();
            format!(
                "{client}: Submitted {} for {} key {} {} jobs {} items {} cost {} bytes {} {:?} deadline {:?}\
                 {once}{whole}{inline}{content}",
                r.job,
                r.principal,
                r.key.0,
                r.work,
                r.jobs,
                r.items,
                r.cost,
                r.inline_bytes,
                r.priority,
                r.deadline
            )
        }
    }
}

fn brief_worker(event: &WorkerEvent) -> String {
    match event {
        WorkerEvent::Answered { attempt, result } => {
            let result = match result {
                Ok(_) => "ok",
                Err(AttemptError::Device(_)) => "device error",
                Err(AttemptError::Refused(_)) => "refused",
            };
            format!("Answered {attempt} {result}")
        }
        WorkerEvent::BeaconLost { .. } => "BeaconLost".to_owned(),
        WorkerEvent::ChannelClosed => "ChannelClosed".to_owned(),
        WorkerEvent::CommandEnded { number, result } => {
            format!("CommandEnded {number} {}", if result.is_ok() { "ok" } else { "failed" })
        }
        WorkerEvent::Exited(exit) => format!("Exited {exit}"),
        WorkerEvent::Heard => "Heard".to_owned(),
        WorkerEvent::Progressed => "Progressed".to_owned(),
        WorkerEvent::Loading { phase, .. } => format!("Loading: {phase}"),
        WorkerEvent::ModelsReported(models) => {
            let brief =
                |info: &ModelInfo| format!(" {} {:?} {}", info.name, info.state, info.contexts);
            format!("ModelsReported{}", models.iter().map(brief).collect::<String>())
        }
        WorkerEvent::Ready(_) => "Ready".to_owned(),
        WorkerEvent::Reclaimed => "Reclaimed".to_owned(),
        WorkerEvent::SpawnFailed { is_final, .. } => format!("SpawnFailed final: {is_final}"),
    }
}

fn brief_command(command: &ModelCommand) -> String {
    match command {
        ModelCommand::Contexts { name, contexts } => format!("contexts of {name}: {contexts}"),
        ModelCommand::Load(plan) => format!("load {} {}", plan.name, plan.options.contexts),
        ModelCommand::Unload { name } => format!("unload {name}"),
    }
}

fn brief_action(action: &Action) -> String {
    match action {
        Action::Accept { client, key, .. } => format!("Accept {client} key {}", key.0),
        Action::Capsule { worker, attempts, .. } => format!("Capsule {worker} {attempts:?}"),
        Action::Command { worker, number, command } => {
            format!("Command {worker} {number} {}", brief_command(command))
        }
        Action::DeathReport(report) => {
            format!("DeathReport {} {:?} {:?}", report.worker, report.killed, report.next)
        }
        Action::Discard { job } => format!("Discard {job}"),
        Action::Dispatch { worker, attempts } => {
            let brief = |sent: &Assignment| {
                format!(" {} {}..{}", sent.attempt, sent.shard.start, sent.shard.end)
            };
            let all: String = attempts.iter().map(brief).collect();
            format!("Dispatch {worker}{all}")
        }
        Action::Free { device } => format!("Free {device}"),
        Action::Finish { client, job, key, receipt, .. } => {
            let client = client.map_or_else(|| "no client".to_owned(), |client| client.to_string());
            let (key, runs) = (key.0, receipt.attempts.len());
            format!(
                "Finish {job} key {key} {} after {runs}: {} ({client})",
                receipt.verdict, receipt.reason
            )
        }
        Action::Helper(helper, action) => format!("{action:?} {helper}"),
        Action::Kill { worker, reason } => format!("Kill {worker}: {reason}"),
        Action::LetGo { client } => format!("LetGo {client}"),
        Action::Refuse { client, job, key, refusal } => {
            format!("Refuse {client} {job} key {}: {refusal}", key.0)
        }
        Action::Replay { client, key, receipt } => {
            format!("Replay {client} key {} {}", key.0, receipt.verdict)
        }
        Action::Spawn { worker, models } => {
            let names: String = models.iter().map(|plan| format!(" {}", plan.name)).collect();
            format!("Spawn {worker}{names}")
        }
        Action::Stop { worker } => format!("Stop {worker}"),
        Action::Tell(JobNews::Live((_, key))) => format!("Tell live {key}"),
        Action::Tell(JobNews::Ended((_, key))) => format!("Tell ended {key}"),
        Action::Tell(JobNews::Verdict { name: (_, key), job, .. }) => {
            format!("Tell verdict {key} {job}")
        }
        Action::Withdraw { worker, attempt } => format!("Withdraw {worker} {attempt}"),
        Action::HashContent { .. }
        | Action::Leave { .. }
        | Action::Misconfigured { .. }
        | Action::ModelMissing(_)
        | Action::Note(_)
        | Action::Reply { .. } => format!("{action:?}"),
    }
}

/// Enough of a hash to tell it from others.
fn short(content: &ContentHash) -> String {
    content.0[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}
