//! The monitor over a fake NVML.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use super::reclaim::Process;
use super::*;

const UUID: &str = "GPU-1";
/// Far longer than any step takes.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The state of NVML, set by the test.
#[derive(Clone, Default)]
struct FakeNvml(Arc<Mutex<BTreeMap<String, Result<Sample, Refused>>>>);

impl FakeNvml {
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

impl DeviceReader for FakeNvml {
    fn sample(&mut self, uuid: &str) -> Result<Sample, Refused> {
        let none = || Err(Refused { call: "nvmlDeviceGetHandleByUUID", code: 6 });
        self.0.lock().unwrap().get(uuid).cloned().unwrap_or_else(none)
    }

    fn load(&mut self, _: &str) -> Load {
        Load { busy_percent: Some(42), power_mw: None }
    }
}

/// Events that the test sends. Once the sender is gone, the wait never returns.
struct FakeEvents(Receiver<Event>);

impl EventSource for FakeEvents {
    fn wait(&mut self, timeout: Duration) -> Result<Option<Event>, Refused> {
        match self.0.recv_timeout(timeout) {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => loop {
                thread::park();
            },
        }
    }
}

/// A monitor on a thread, and the supervisor's ends of its pipes.
struct TestMonitor {
    nvml: FakeNvml,
    /// `None` once the wait for events hangs.
    events: Option<Sender<Event>>,
    questions: UnixStream,
    lines: BufReader<UnixStream>,
    ended: thread::JoinHandle<io::Result<i32>>,
}

fn start() -> TestMonitor {
    let nvml = FakeNvml::default();
    nvml.set(1_000 << 20, &[(7, 900 << 20)]);
    let (events, scripted) = mpsc::channel();
    let (questions, their_questions) = UnixStream::pair().unwrap();
    let (lines, mut their_lines) = UnixStream::pair().unwrap();
    lines.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut reader = nvml.clone();
    let ended = thread::spawn(move || {
        let (uuids, events) = ([UUID.to_owned()], Box::new(FakeEvents(scripted)));
        serve(&uuids, &mut reader, events, their_questions, &mut their_lines)
    });
    TestMonitor { nvml, events: Some(events), questions, lines: BufReader::new(lines), ended }
}

impl TestMonitor {
    fn line(&mut self) -> Line {
        let mut text = String::new();
        self.lines.read_line(&mut text).expect("it goes on");
        let line: Line = serde_json::from_str(&text).expect(&text);
        assert!(line.is_bounded());
        line
    }

    /// The next line that is not printed every second.
    fn next_event(&mut self) -> Line {
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
fn every_second_brings_the_devices_and_a_heartbeat() {
    let mut monitor = start();
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
        assert_eq!(monitor.line(), want);
        assert_eq!(monitor.line(), Line::Beat {});
    }
}

#[test]
fn events_are_printed_as_they_come() {
    let mut monitor = start();
    let events = monitor.events.clone().unwrap();
    let uuid = || UUID.to_owned();
    events.send(Event::Xid { uuid: uuid(), xid: 79 }).unwrap();
    events.send(Event::Unavailable { uuid: uuid() }).unwrap();
    assert_eq!(monitor.next_event(), Line::Xid { uuid: uuid(), xid: 79 });
    assert_eq!(monitor.next_event(), Line::Unavailable { uuid: uuid() });
    monitor.nvml.lose();
    events.send(Event::Recovery { uuid: uuid() }).unwrap();
    let call = "nvmlDeviceGetMemoryInfo_v2".to_owned();
    assert_eq!(monitor.next_event(), Line::Failed { uuid: Some(uuid()), call, code: 15 });
}

#[test]
fn a_question_is_answered_once_the_memory_is_free_and_at_once_for_an_unknown_device() {
    let mut monitor = start();
    // The monitor has sampled the process.
    monitor.line();
    monitor.ask("{\"reclaim\":7,\"uuid\":\"GPU-1\"}\n{\"reclaim\":7,\"uuid\":\"GPU-2\"}\n");
    let Line::Reclaimed { uuid, reclaimed: false, .. } = monitor.next_event() else {
        panic!("the other device is unknown")
    };
    assert_eq!(uuid, "GPU-2");
    monitor.nvml.set(1_000 << 20, &[]);
    // Samples of a whole second: the memory is not free, so there is no answer.
    for _ in 0..2 {
        assert!(matches!(monitor.line(), Line::Beat {} | Line::Device { .. }));
    }
    monitor.nvml.set(101 << 20, &[]);
    let Line::Reclaimed { uuid, pid: 7, reclaimed: true, .. } = monitor.next_event() else {
        panic!("the memory is back")
    };
    assert_eq!(uuid, UUID);
}

#[test]
fn a_monitor_whose_events_hang_sends_no_heartbeats_and_still_samples() {
    let mut monitor = start();
    monitor.events = None;
    // Heartbeats stop; later samples show that the monitor itself still runs.
    let mut samples = 0;
    while samples < 3 {
        match monitor.line() {
            Line::Beat {} => samples = 0,
            Line::Device { .. } => samples += 1,
            line @ (Line::Failed { .. }
            | Line::Reclaimed { .. }
            | Line::Unavailable { .. }
            | Line::Xid { .. }) => unreachable!("{line:?}"),
        }
    }
}

#[test]
fn it_ends_with_its_supervisor_and_after_a_malformed_question() {
    let monitor = start();
    drop(monitor.questions);
    assert_eq!(monitor.ended.join().unwrap().unwrap(), exit::OK);
    let long = format!("{{\"reclaim\":7,\"uuid\":\"{}\"}}\n", "x".repeat(LINE_BYTES_MAX));
    for garbage in ["nonsense\n", "{\"reclaim\":-1,\"uuid\":\"GPU-1\"}\n", &long, "{}\n"] {
        let mut monitor = start();
        monitor.ask(garbage);
        assert_eq!(monitor.ended.join().unwrap().unwrap(), exit::PROTOCOL, "{garbage}");
    }
}
