//! The role `monitor`: watches the pool's GPUs through NVML and prints a line of JSON for each observation
//! (`gridpool_protocol::monitor`).
//!
//! It is a separate process that may be killed at any time, because a call of NVML can hang in the kernel
//! forever. The thread that samples NVML sends heartbeats, and only while the thread that waits for NVML's
//! events returns too. So a monitor that hangs falls silent.

mod nvml;
mod reclaim;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use gridpool_device::nvml::Refused;
use gridpool_ipc::clock;
use gridpool_protocol::exit::worker as exit;
use gridpool_protocol::monitor::{
    DEVICES_MAX, LINE_BYTES_MAX, Line, PROCESSES_MAX, QUESTIONS_MAX, Question,
};

use reclaim::{DeviceHistory, Progress, Usage};

/// The interval of heartbeats and of samples of every device.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// The interval of samples of a device whose memory is being waited for.
const POLL_EVERY: Duration = Duration::from_millis(20);
/// A wait for NVML's events returns after this time even without an event.
const EVENT_TIMEOUT: Duration = Duration::from_secs(1);
/// A wait for events that has not returned for this long hangs.
const EVENTS_SILENT_MAX: Duration = Duration::from_secs(3);
/// Most messages that wait between the threads.
const INBOX: usize = 256;

/// The state of a device at one moment, from NVML.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sample {
    usage: Usage,
    memory_total: u64,
    recovery: Option<u32>,
}

/// The load of a device, where NVML knows it. No decision depends on it, so an error only leaves a number
/// out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Load {
    busy_percent: Option<u32>,
    power_mw: Option<u32>,
}

/// An event of NVML.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    /// The driver wrote an Xid.
    Xid { uuid: String, xid: u64 },
    /// The device cannot be used.
    Unavailable { uuid: String },
    /// The recovery action that the device needs has changed.
    Recovery { uuid: String },
}

/// Reads the state of devices from NVML.
trait DeviceReader {
    /// The device's current state.
    fn sample(&mut self, uuid: &str) -> Result<Sample, Refused>;

    /// The device's load. It is read rarely, because some drivers are slow.
    fn load(&mut self, uuid: &str) -> Load;
}

/// Waits for events of NVML.
trait EventSource: Send {
    /// The next event, or `None` after `timeout`.
    fn wait(&mut self, timeout: Duration) -> Result<Option<Event>, Refused>;
}

/// An input of the main thread.
enum Input {
    /// The wait for events returned.
    Events(Result<Option<Event>, Refused>),
    /// A question of the supervisor.
    Question(Question),
    /// The supervisor has closed the pipe.
    Closed,
    /// A line from the supervisor that is not a question.
    Malformed(String),
}

/// Watches until the supervisor, which writes `questions` and reads `out`, is gone. Returns the exit code.
///
/// # Errors
/// The system's, if a thread cannot start or `out` is closed.
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
    let mut reader = opened.reader;
    serve(uuids, &mut reader, Box::new(opened.events), questions, out)
}

fn serve(
    uuids: &[String],
    reader: &mut dyn DeviceReader,
    events: Box<dyn EventSource>,
    questions: impl Read + Send + 'static,
    out: &mut dyn Write,
) -> io::Result<i32> {
    let (sender, inbox) = mpsc::sync_channel(INBOX);
    let (for_events, for_questions) = (sender.clone(), sender);
    thread::Builder::new()
        .name("events".into())
        .spawn(move || watch_events(events, &|input| for_events.send(input).is_ok()))?;
    thread::Builder::new()
        .name("questions".into())
        .spawn(move || read_questions(questions, &|input| for_questions.send(input).is_ok()))?;
    let devices =
        uuids.iter().take(DEVICES_MAX).map(|uuid| (uuid.clone(), DeviceHistory::default()));
    let now = clock::now();
    let mut monitor = Monitor {
        devices: devices.collect(),
        waiting: Vec::new(),
        sample_at: now,
        poll_at: now,
        events_at: now,
    };
    monitor.run(reader, &inbox, out)
}

/// The body of the thread that waits for events.
fn watch_events(mut events: Box<dyn EventSource>, tell: &dyn Fn(Input) -> bool) {
    loop {
        let input = events.wait(EVENT_TIMEOUT);
        let failed = input.is_err();
        if !tell(Input::Events(input)) {
            return;
        }
        if failed {
            thread::park_timeout(EVENT_TIMEOUT);
        }
    }
}

/// The body of the thread that reads questions.
fn read_questions(questions: impl Read, tell: &dyn Fn(Input) -> bool) {
    let mut reader = BufReader::new(questions);
    let mut line = Vec::new();
    loop {
        line.clear();
        let limit = LINE_BYTES_MAX as u64;
        let input = match reader.by_ref().take(limit).read_until(b'\n', &mut line) {
            Ok(0) => Input::Closed,
            Ok(_) => match serde_json::from_slice(&line) {
                Ok(question) => Input::Question(question),
                Err(error) => Input::Malformed(error.to_string()),
            },
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => Input::Closed,
        };
        let goes_on = matches!(input, Input::Question(_));
        if !tell(input) || !goes_on {
            return;
        }
    }
}

/// A question that waits for its answer.
struct Waiting {
    pid: u32,
    uuid: String,
    asked: Instant,
    progress: Progress,
}

struct Monitor {
    /// By UUID.
    devices: Vec<(String, DeviceHistory)>,
    waiting: Vec<Waiting>,
    /// When all devices are sampled next.
    sample_at: Instant,
    /// When devices whose memory is being waited for are sampled next.
    poll_at: Instant,
    /// When the wait for events last returned.
    events_at: Instant,
}

impl Monitor {
    fn run(
        &mut self,
        reader: &mut dyn DeviceReader,
        inbox: &Receiver<Input>,
        out: &mut dyn Write,
    ) -> io::Result<i32> {
        loop {
            let now = clock::now();
            if now >= self.sample_at {
                self.sample_at = now + SAMPLE_EVERY;
                self.sample_all(reader, out)?;
            }
            if !self.waiting.is_empty() && now >= self.poll_at {
                self.poll_at = now + POLL_EVERY;
                self.poll(reader, out)?;
            }
            let next = match self.waiting.is_empty() {
                true => self.sample_at,
                false => self.sample_at.min(self.poll_at),
            };
            match inbox.recv_timeout(clock::until(next)) {
                Ok(Input::Events(result)) => {
                    self.events_at = clock::now();
                    self.on_events(result, reader, out)?;
                }
                Ok(Input::Question(question)) => self.ask(question, out)?,
                Ok(Input::Closed) | Err(RecvTimeoutError::Disconnected) => return Ok(exit::OK),
                Ok(Input::Malformed(why)) => {
                    tracing::error!(why, "cannot read the supervisor's question");
                    return Ok(exit::PROTOCOL);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Samples all devices, and sends a heartbeat.
    fn sample_all(&mut self, reader: &mut dyn DeviceReader, out: &mut dyn Write) -> io::Result<()> {
        let now = clock::now();
        for (uuid, history) in &mut self.devices {
            if let Some(sample) = sample_device(reader, uuid, out)? {
                history.note(now, &sample.usage);
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
        reader: &mut dyn DeviceReader,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match result {
            Ok(None) => Ok(()),
            Ok(Some(Event::Xid { uuid, xid })) => say(out, &Line::Xid { uuid, xid }),
            Ok(Some(Event::Unavailable { uuid })) => {
                say(out, &Line::Unavailable { uuid: uuid.clone() })?;
                sample_device(reader, &uuid, out).map(drop)
            }
            Ok(Some(Event::Recovery { uuid })) => sample_device(reader, &uuid, out).map(drop),
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
        self.waiting.push(Waiting { pid, uuid, asked, progress: Progress::default() });
        Ok(())
    }

    /// Answers the questions whose answer is known.
    fn poll(&mut self, reader: &mut dyn DeviceReader, out: &mut dyn Write) -> io::Result<()> {
        for (uuid, history) in &self.devices {
            if !self.waiting.iter().any(|waiting| waiting.uuid == *uuid) {
                continue;
            }
            // The next sample of all devices reports a device that does not answer.
            let usage = reader.sample(uuid).ok().map(|sample| sample.usage);
            let mut answers = Vec::new();
            self.waiting.retain_mut(|waiting| {
                if waiting.uuid != *uuid {
                    return true;
                }
                let (pid, waited) = (waiting.pid, waiting.asked.elapsed());
                let answer = waiting.progress.check(history, pid, usage.as_ref(), waited);
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

/// Samples one device and prints its state. If NVML does not answer, prints that and returns `None`.
fn sample_device(
    reader: &mut dyn DeviceReader,
    uuid: &str,
    out: &mut dyn Write,
) -> io::Result<Option<Sample>> {
    let sample = match reader.sample(uuid) {
        Ok(sample) => sample,
        Err(refused) => return say(out, &failed(Some(uuid), &refused)).map(|()| None),
    };
    let Load { busy_percent, power_mw } = reader.load(uuid);
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

/// Writes one line, whole and at once.
fn say(out: &mut dyn Write, line: &Line) -> io::Result<()> {
    let mut text = serde_json::to_vec(line).map_err(io::Error::other)?;
    text.push(b'\n');
    out.write_all(&text)?;
    out.flush()
}

#[cfg(test)]
mod tests;
