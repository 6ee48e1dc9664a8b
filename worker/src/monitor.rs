//! The role `monitor`: watches the pool's GPUs through NVML and says what it sees, a line of JSON for
//! each thing (`gridpool_protocol::monitor`).
//!
//! A process of its own, and one that may be killed at any time: a call of NVML can stick in the
//! kernel for good. Its sign of life comes from the thread that asks NVML, and only while the thread
//! that waits for NVML's events comes back too, so a monitor that is stuck falls silent.

pub(crate) mod nvml;
mod reclaim;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use gridpool_protocol::clock;
use gridpool_protocol::exit::worker as exit;
use gridpool_protocol::monitor::{
    DEVICES_MAX, LINE_BYTES_MAX, Line, PROCESSES_MAX, QUESTIONS_MAX, Question,
};

use reclaim::{Course, Ledger, Usage};

/// Between two signs of life, and two looks at every device.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two looks at a device whose memory somebody waits for.
const POLL_EVERY: Duration = Duration::from_millis(20);
/// NVML's events come back that often, with an event or without.
const EVENT_PATIENCE: Duration = Duration::from_secs(1);
/// Events that have not come back for so long are stuck.
const EVENTS_SILENT_MAX: Duration = Duration::from_secs(3);
/// Messages between the threads that are not taken yet.
const INBOX: usize = 256;

/// A call of NVML that gave an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) call: &'static str,
    pub(crate) code: u32,
}

/// What NVML says about a device at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sample {
    usage: Usage,
    memory_total: u64,
    recovery: Option<u32>,
}

/// How much a device does, as far as NVML says so. Nothing is decided by it, so an error is no more
/// than a missing number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Load {
    busy_percent: Option<u32>,
    power_mw: Option<u32>,
}

/// What NVML tells by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    /// The driver wrote an Xid.
    Xid { uuid: String, xid: u64 },
    /// The device cannot be used.
    Unavailable { uuid: String },
    /// What the device needs has changed.
    Recovery { uuid: String },
}

/// Asks NVML about devices.
trait Gauge {
    /// How a device is now.
    fn sample(&mut self, uuid: &str) -> Result<Sample, Refused>;

    /// How much it does. Asked seldom: some drivers take their time over it.
    fn load(&mut self, uuid: &str) -> Load;
}

/// Waits for what NVML tells by itself.
trait Watch: Send {
    /// The next event, or `None` after `patience`.
    fn wait(&mut self, patience: Duration) -> Result<Option<Event>, Refused>;
}

/// What the main thread hears from the others.
enum Heard {
    /// The events came back.
    Events(Result<Option<Event>, Refused>),
    /// The supervisor asks.
    Asked(Question),
    /// The supervisor says no more.
    Over,
    /// The supervisor says something that this monitor does not understand.
    Garbled(String),
}

/// Watches until the supervisor, which asks in `questions` and reads `out`, is gone. Gives the exit
/// code.
///
/// # Errors
/// The system's, if there is no thread, or nobody reads what it says.
pub fn run(
    uuids: &[String],
    questions: impl Read + Send + 'static,
    out: &mut dyn Write,
) -> io::Result<i32> {
    let opened = match nvml::open(uuids) {
        Ok(opened) => opened,
        Err(refused) => return say(out, &failed(None, &refused)).map(|()| exit::DEVICE_LOST),
    };
    for (uuid, refused) in &opened.missed {
        say(out, &failed(Some(uuid), refused))?;
    }
    let mut gauge = opened.gauge;
    serve(uuids, &mut gauge, Box::new(opened.watch), questions, out)
}

fn serve(
    uuids: &[String],
    gauge: &mut dyn Gauge,
    watch: Box<dyn Watch>,
    questions: impl Read + Send + 'static,
    out: &mut dyn Write,
) -> io::Result<i32> {
    let (sender, inbox) = mpsc::sync_channel(INBOX);
    let (for_events, for_questions) = (sender.clone(), sender);
    thread::Builder::new()
        .name("events".into())
        .spawn(move || watch_events(watch, &|heard| for_events.send(heard).is_ok()))?;
    thread::Builder::new()
        .name("questions".into())
        .spawn(move || read_questions(questions, &|heard| for_questions.send(heard).is_ok()))?;
    let devices = uuids.iter().take(DEVICES_MAX).map(|uuid| (uuid.clone(), Ledger::default()));
    let now = clock::now();
    let mut monitor = Monitor {
        devices: devices.collect(),
        waiting: Vec::new(),
        look_at: now,
        poll_at: now,
        events_at: now,
    };
    monitor.run(gauge, &inbox, out)
}

/// The body of the thread that waits for events.
fn watch_events(mut watch: Box<dyn Watch>, tell: &dyn Fn(Heard) -> bool) {
    // Nothing is ever sent: to wait on it is to wait for time alone.
    let (_open, never): (Sender<()>, Receiver<()>) = mpsc::channel();
    loop {
        let heard = watch.wait(EVENT_PATIENCE);
        let failed = heard.is_err();
        if !tell(Heard::Events(heard)) {
            return;
        }
        if failed && never.recv_timeout(EVENT_PATIENCE) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
    }
}

/// The body of the thread that reads questions.
fn read_questions(questions: impl Read, tell: &dyn Fn(Heard) -> bool) {
    let mut reader = BufReader::new(questions);
    let mut line = Vec::new();
    loop {
        line.clear();
        let limit = LINE_BYTES_MAX as u64;
        let heard = match reader.by_ref().take(limit).read_until(b'\n', &mut line) {
            Ok(0) => Heard::Over,
            Ok(_) => match serde_json::from_slice(&line) {
                Ok(question) => Heard::Asked(question),
                Err(error) => Heard::Garbled(error.to_string()),
            },
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => Heard::Over,
        };
        let goes_on = matches!(heard, Heard::Asked(_));
        if !tell(heard) || !goes_on {
            return;
        }
    }
}

/// A question that waits for its answer.
struct Waiting {
    pid: u32,
    uuid: String,
    asked: Instant,
    course: Course,
}

struct Monitor {
    /// By UUID.
    devices: Vec<(String, Ledger)>,
    waiting: Vec<Waiting>,
    /// When all devices are looked at next.
    look_at: Instant,
    /// When devices that somebody waits for are looked at next.
    poll_at: Instant,
    /// When the events came back last.
    events_at: Instant,
}

impl Monitor {
    fn run(
        &mut self,
        gauge: &mut dyn Gauge,
        inbox: &Receiver<Heard>,
        out: &mut dyn Write,
    ) -> io::Result<i32> {
        loop {
            let now = clock::now();
            if now >= self.look_at {
                self.look_at = now + LOOK_EVERY;
                self.look(gauge, out)?;
            }
            if !self.waiting.is_empty() && now >= self.poll_at {
                self.poll_at = now + POLL_EVERY;
                self.poll(gauge, out)?;
            }
            let next = match self.waiting.is_empty() {
                true => self.look_at,
                false => self.look_at.min(self.poll_at),
            };
            match inbox.recv_timeout(clock::until(next)) {
                Ok(Heard::Events(result)) => {
                    self.events_at = clock::now();
                    self.on_events(result, gauge, out)?;
                }
                Ok(Heard::Asked(question)) => self.ask(question, out)?,
                Ok(Heard::Over) | Err(RecvTimeoutError::Disconnected) => return Ok(exit::OK),
                Ok(Heard::Garbled(why)) => {
                    tracing::error!(why, "the supervisor's question");
                    return Ok(exit::PROTOCOL);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Looks at all devices, and gives a sign of life.
    fn look(&mut self, gauge: &mut dyn Gauge, out: &mut dyn Write) -> io::Result<()> {
        let now = clock::now();
        for (uuid, ledger) in &mut self.devices {
            if let Some(sample) = look_at(gauge, uuid, out)? {
                ledger.note(now, &sample.usage);
            }
        }
        if clock::now().duration_since(self.events_at) < EVENTS_SILENT_MAX {
            say(out, &Line::Beat {})?;
        }
        Ok(())
    }

    fn on_events(
        &self,
        result: Result<Option<Event>, Refused>,
        gauge: &mut dyn Gauge,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match result {
            Ok(None) => Ok(()),
            Ok(Some(Event::Xid { uuid, xid })) => say(out, &Line::Xid { uuid, xid }),
            Ok(Some(Event::Unavailable { uuid })) => {
                say(out, &Line::Unavailable { uuid: uuid.clone() })?;
                look_at(gauge, &uuid, out).map(drop)
            }
            Ok(Some(Event::Recovery { uuid })) => look_at(gauge, &uuid, out).map(drop),
            Err(refused) => say(out, &failed(None, &refused)),
        }
    }

    fn ask(&mut self, question: Question, out: &mut dyn Write) -> io::Result<()> {
        let Question { reclaim: pid, uuid } = question;
        let is_ours = self.devices.iter().any(|(ours, _)| *ours == uuid);
        if !is_ours || self.waiting.len() >= QUESTIONS_MAX {
            let (reclaimed, waited_ms) = (false, 0);
            return say(out, &Line::Reclaimed { uuid, pid, reclaimed, waited_ms });
        }
        let asked = clock::now();
        self.poll_at = asked;
        self.waiting.push(Waiting { pid, uuid, asked, course: Course::default() });
        Ok(())
    }

    /// Answers what can be answered.
    fn poll(&mut self, gauge: &mut dyn Gauge, out: &mut dyn Write) -> io::Result<()> {
        for (uuid, ledger) in &self.devices {
            if !self.waiting.iter().any(|waiting| waiting.uuid == *uuid) {
                continue;
            }
            // A device that does not answer is named by the next look at all of them.
            let usage = gauge.sample(uuid).ok().map(|sample| sample.usage);
            let mut answers = Vec::new();
            self.waiting.retain_mut(|waiting| {
                if waiting.uuid != *uuid {
                    return true;
                }
                let (pid, waited) = (waiting.pid, waiting.asked.elapsed());
                let answer = waiting.course.judge(ledger, pid, usage.as_ref(), waited);
                let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                answers.extend(answer.map(|reclaimed| Line::Reclaimed {
                    uuid: uuid.clone(),
                    pid,
                    reclaimed,
                    waited_ms,
                }));
                answer.is_none()
            });
            answers.iter().try_for_each(|line| say(out, line))?;
        }
        Ok(())
    }
}

/// Looks at one device and says how it is. `None`, and said, if NVML does not answer.
fn look_at(gauge: &mut dyn Gauge, uuid: &str, out: &mut dyn Write) -> io::Result<Option<Sample>> {
    let sample = match gauge.sample(uuid) {
        Ok(sample) => sample,
        Err(refused) => return say(out, &failed(Some(uuid), &refused)).map(|()| None),
    };
    let Load { busy_percent, power_mw } = gauge.load(uuid);
    let pids = sample.usage.processes.iter().map(|process| process.pid);
    let line = Line::Device {
        uuid: uuid.to_owned(),
        memory_used: sample.usage.used,
        memory_total: sample.memory_total,
        busy_percent,
        power_mw,
        processes: pids.take(PROCESSES_MAX).collect(),
        recovery: sample.recovery,
    };
    say(out, &line).map(|()| Some(sample))
}

/// The line for a call of NVML that gave an error.
fn failed(uuid: Option<&str>, refused: &Refused) -> Line {
    let uuid = uuid.map(str::to_owned);
    Line::Failed { uuid, call: refused.call.to_owned(), code: refused.code }
}

/// Says one line, whole and at once.
fn say(out: &mut dyn Write, line: &Line) -> io::Result<()> {
    let mut text = serde_json::to_vec(line).map_err(io::Error::other)?;
    text.push(b'\n');
    out.write_all(&text)?;
    out.flush()
}

#[cfg(test)]
mod tests;
