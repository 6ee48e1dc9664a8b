//! The monitor over an NVML of the test's own.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use super::reclaim::Process;
use super::*;

const UUID: &str = "GPU-1";
/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// What NVML would say, set by the test.
#[derive(Clone, Default)]
struct Stage(Arc<Mutex<BTreeMap<String, Result<Sample, Refused>>>>);

impl Stage {
    fn set(&self, used: u64, processes: &[(u32, u64)]) {
        let process = |&(pid, held): &(u32, u64)| Process { pid, used: Some(held) };
        let processes = processes.iter().map(process).collect();
        let usage = Usage { used, processes };
        let sample = Sample { usage, memory_total: 1 << 40, recovery: Some(0) };
        self.0.lock().unwrap().insert(UUID.to_owned(), Ok(sample));
    }

    fn lose(&self) {
        let lost = Refused { call: "nvmlDeviceGetMemoryInfo_v2", code: 15 };
        self.0.lock().unwrap().insert(UUID.to_owned(), Err(lost));
    }
}

impl Gauge for Stage {
    fn sample(&mut self, uuid: &str) -> Result<Sample, Refused> {
        let none = || Err(Refused { call: "nvmlDeviceGetHandleByUUID", code: 6 });
        self.0.lock().unwrap().get(uuid).cloned().unwrap_or_else(none)
    }

    fn load(&mut self, _: &str) -> Load {
        Load { busy_percent: Some(42), power_mw: None }
    }
}

/// Events that the test sends. What comes after the sender is gone never comes back.
struct Script(Receiver<Event>);

impl Watch for Script {
    fn wait(&mut self, patience: Duration) -> Result<Option<Event>, Refused> {
        match self.0.recv_timeout(patience) {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => loop {
                thread::park();
            },
        }
    }
}

/// A monitor that runs on a thread, and its supervisor's ends.
struct Running {
    stage: Stage,
    /// `None` once the events stick.
    events: Option<Sender<Event>>,
    questions: UnixStream,
    lines: BufReader<UnixStream>,
    ended: thread::JoinHandle<io::Result<i32>>,
}

fn start() -> Running {
    let stage = Stage::default();
    stage.set(1_000 << 20, &[(7, 900 << 20)]);
    let (events, script) = mpsc::channel();
    let (questions, their_questions) = UnixStream::pair().unwrap();
    let (lines, mut their_lines) = UnixStream::pair().unwrap();
    lines.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut gauge = stage.clone();
    let ended = thread::spawn(move || {
        let (uuids, watch) = ([UUID.to_owned()], Box::new(Script(script)));
        serve(&uuids, &mut gauge, watch, their_questions, &mut their_lines)
    });
    Running { stage, events: Some(events), questions, lines: BufReader::new(lines), ended }
}

impl Running {
    fn line(&mut self) -> Line {
        let mut text = String::new();
        self.lines.read_line(&mut text).expect("it goes on");
        let line: Line = serde_json::from_str(&text).expect(&text);
        assert!(line.is_bounded());
        line
    }

    /// The next line that is not what every second brings.
    fn news(&mut self) -> Line {
        loop {
            match self.line() {
                Line::Beat {} | Line::Device { .. } => {}
                line @ (Line::Failed { .. }
                | Line::Reclaimed { .. }
                | Line::Unavailable { .. }
                | Line::Xid { .. }) => return line,
            }
        }
    }

    fn ask(&mut self, text: &str) {
        self.questions.write_all(text.as_bytes()).unwrap();
    }
}

#[test]
fn every_second_brings_the_devices_and_a_sign_of_life() {
    let mut running = start();
    for _ in 0..2 {
        let want = Line::Device {
            uuid: UUID.to_owned(),
            memory_used: 1_000 << 20,
            memory_total: 1 << 40,
            busy_percent: Some(42),
            power_mw: None,
            processes: vec![7],
            recovery: Some(0),
        };
        assert_eq!(running.line(), want);
        assert_eq!(running.line(), Line::Beat {});
    }
}

#[test]
fn events_are_told_as_they_come() {
    let mut running = start();
    let events = running.events.clone().unwrap();
    let uuid = || UUID.to_owned();
    events.send(Event::Xid { uuid: uuid(), xid: 79 }).unwrap();
    events.send(Event::Unavailable { uuid: uuid() }).unwrap();
    assert_eq!(running.news(), Line::Xid { uuid: uuid(), xid: 79 });
    assert_eq!(running.news(), Line::Unavailable { uuid: uuid() });
    running.stage.lose();
    events.send(Event::Recovery { uuid: uuid() }).unwrap();
    let call = "nvmlDeviceGetMemoryInfo_v2".to_owned();
    assert_eq!(running.news(), Line::Failed { uuid: Some(uuid()), call, code: 15 });
}

#[test]
fn a_question_is_answered_once_the_memory_is_back_and_at_once_for_a_device_of_nobody() {
    let mut running = start();
    // It has seen the process.
    running.line();
    running.ask("{\"reclaim\":7,\"uuid\":\"GPU-1\"}\n{\"reclaim\":7,\"uuid\":\"GPU-2\"}\n");
    let Line::Reclaimed { uuid, reclaimed: false, .. } = running.news() else {
        panic!("the other device is nobody's")
    };
    assert_eq!(uuid, "GPU-2");
    running.stage.set(1_000 << 20, &[]);
    // A whole second of looks between: the memory is not back, so nothing is said.
    for _ in 0..2 {
        assert!(matches!(running.line(), Line::Beat {} | Line::Device { .. }));
    }
    running.stage.set(101 << 20, &[]);
    let Line::Reclaimed { uuid, pid: 7, reclaimed: true, .. } = running.news() else {
        panic!("the memory is back")
    };
    assert_eq!(uuid, UUID);
}

#[test]
fn a_monitor_whose_events_stick_falls_silent_and_still_looks() {
    let mut running = start();
    running.events = None;
    // Signs of life stop; the looks that come after them show that it is not the monitor that has.
    let mut looks = 0;
    while looks < 3 {
        match running.line() {
            Line::Beat {} => looks = 0,
            Line::Device { .. } => looks += 1,
            line @ (Line::Failed { .. }
            | Line::Reclaimed { .. }
            | Line::Unavailable { .. }
            | Line::Xid { .. }) => unreachable!("{line:?}"),
        }
    }
}

#[test]
fn it_ends_with_its_supervisor_and_over_what_is_no_question() {
    let running = start();
    drop(running.questions);
    assert_eq!(running.ended.join().unwrap().unwrap(), exit::OK);
    let long = format!("{{\"reclaim\":7,\"uuid\":\"{}\"}}\n", "x".repeat(LINE_BYTES_MAX));
    for garbage in ["nonsense\n", "{\"reclaim\":-1,\"uuid\":\"GPU-1\"}\n", &long, "{}\n"] {
        let mut running = start();
        running.ask(garbage);
        assert_eq!(running.ended.join().unwrap().unwrap(), exit::PROTOCOL, "{garbage}");
    }
}
