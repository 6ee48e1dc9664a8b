//! The supervisor's side over a monitor that is a shell script.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Instant;

use gridpool_core::Core;
use gridpool_core::action::Action;
use gridpool_core::config::{HelperLimits, PoolConfig};
use gridpool_core::event::{Event, HelperEvent, Timestamp};
use gridpool_core::placing::DeviceMemory;
use gridpool_core::policy::PolicyTable;
use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::DeviceKind;
use tempfile::TempDir;

use super::*;

/// Far longer than anything here takes.
const TIMEOUT: Duration = Duration::from_secs(60);
const GPU: DeviceId = DeviceId { kind: DeviceKind::Gpu, index: 3 };
const BEAT: &str = "echo '{\"beat\":{}}'";
/// Lives and says nothing.
const SLEEP: &str = "exec sleep 600";

/// The core, which has the monitor started and killed, and a clock.
struct Rules {
    core: Mutex<Core>,
    /// Signalled when the core has taken in an event.
    changed: Condvar,
    monitor: OnceLock<Monitor>,
    began: Instant,
    is_over: AtomicBool,
}

impl Rules {
    fn tell(&self, event: Event) {
        let mut core = self.core.lock();
        core.handle(Timestamp(self.began.elapsed()), event);
        while let Some(action) = core.poll_action() {
            if let Action::Helper(Helper::Monitor, action) = action {
                self.monitor.get().expect("it is there").perform(action);
            }
        }
        self.changed.notify_all();
    }

    fn helper(&self, event: HelperEvent) {
        self.tell(Event::Helper(Helper::Monitor, event));
    }

    /// Calls the core when it asks for that.
    fn keep_time(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            let mut core = self.core.lock();
            let now = Timestamp(self.began.elapsed());
            let wait = core.poll_deadline().map_or(TIMEOUT, |at| at.since(now));
            drop(self.changed.wait_timeout(core, wait).unwrap());
            self.tell(Event::TimePassed);
        }
    }
}

struct Rig {
    rules: Arc<Rules>,
    told: Receiver<Event>,
    folder: TempDir,
}

/// A monitor that runs `script`, with `$n` the number of the process, and its limits changed.
fn rig_with(script: &str, change: impl FnOnce(&mut HelperLimits)) -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("monitor.sh");
    let starts = folder.path().join("starts").display().to_string();
    let count = format!("echo \"$$ $*\" >> '{starts}'\nn=$(wc -l < '{starts}')\nn=$((n))");
    fs::write(&program, format!("#!/bin/sh\n{count}\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut limits = HelperLimits {
        start: TIMEOUT,
        silence: TIMEOUT,
        backoff_min: Duration::from_millis(1),
        backoff_max: Duration::from_millis(4),
        ..HelperLimits::of(Helper::Monitor)
    };
    change(&mut limits);
    let cpu = DeviceId { kind: DeviceKind::Cpu, index: 0 };
    let devices = [
        PoolDevice { id: cpu, uuid: String::new(), memory: None },
        PoolDevice { id: GPU, uuid: "GPU-3".to_owned(), memory: None },
    ];
    let (config, policy) = (PoolConfig::DEFAULT, PolicyTable::default());
    let rules = Arc::new(Rules {
        core: Mutex::new(Core::new(config, policy, &[], &[], |_| limits)),
        changed: Condvar::new(),
        monitor: OnceLock::new(),
        began: clock::now(),
        is_over: AtomicBool::new(false),
    });
    let (sender, told) = mpsc::channel();
    let tell = Box::new(move |event| sender.send(event).unwrap_or(()));
    let for_post = Arc::clone(&rules);
    let post = Box::new(move |event| for_post.helper(event));
    let monitor =
        Monitor::new((Pinned::new(program), Confinement::default()), &devices, post, tell)
            .unwrap()
            .unwrap();
    rules.monitor.get_or_init(|| monitor);
    let for_time = Arc::clone(&rules);
    thread::spawn(move || for_time.keep_time());
    rules.helper(HelperEvent::Wanted);
    Rig { rules, told, folder }
}

fn rig(script: &str) -> Rig {
    rig_with(script, |_| {})
}

impl Rig {
    fn monitor(&self) -> &Monitor {
        self.rules.monitor.get().unwrap()
    }

    /// Waits until what the core knows is so.
    fn until(&self, what: &str, is_so: impl Fn(HelperStatus) -> bool) {
        let core = self.rules.core.lock();
        let is_not = |core: &mut Core| !is_so(core.helper(Helper::Monitor));
        let waited = self.rules.changed.wait_timeout_while(core, TIMEOUT, is_not);
        assert!(!waited.unwrap().1.timed_out(), "{what}");
    }

    fn status(&self) -> (MonitorStatus, Vec<DeviceStatus>) {
        let core = self.rules.core.lock().helper(Helper::Monitor);
        self.monitor().status(core)
    }

    fn told(&self) -> Event {
        self.told.recv_timeout(TIMEOUT).expect("something is told")
    }

    /// The process numbers of all that were started, and their arguments.
    fn starts(&self) -> Vec<(u32, String)> {
        let text = fs::read_to_string(self.folder.path().join("starts")).unwrap();
        let start = |line: &str| {
            let (pid, arguments) = line.split_once(' ').unwrap();
            (pid.parse().unwrap(), arguments.to_owned())
        };
        text.lines().map(start).collect()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.rules.helper(HelperEvent::Unwanted);
        self.rules.is_over.store(true, Ordering::Relaxed);
        self.rules.changed.notify_all();
    }
}

fn is_there(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}")).unwrap()
}

fn is_up(status: HelperStatus) -> bool {
    status.is_up
}

#[test]
fn the_monitors_reports_are_kept_and_news_reaches_the_core() {
    let device = |recovery: &str| {
        format!(
            "echo '{{\"device\":{{\"uuid\":\"GPU-3\",\"memory_used\":5,\"memory_total\":9,\
             \"busy_percent\":97,\"power_mw\":null,\"processes\":[7],\"recovery\":{recovery}}}}}'"
        )
    };
    let xid = "echo '{\"xid\":{\"uuid\":\"GPU-3\",\"xid\":79}}'";
    let failed = "echo '{\"failed\":{\"uuid\":\"GPU-3\",\"call\":\"nvmlX\",\"code\":15}}'";
    let no_library = "echo '{\"failed\":{\"uuid\":null,\"call\":\"nvmlInit_v2\",\"code\":12}}'";
    let end = "echo '{\"xid\":{\"uuid\":\"GPU-3\",\"xid\":31}}'";
    let lines = [
        BEAT,
        &device("0"),
        no_library,
        &device("null"),
        xid,
        &device("1"),
        &device("1"),
        failed,
        failed,
        &device("1"),
        failed,
        end,
        SLEEP,
    ];
    let rig = rig(&lines.join("\n"));
    let memory = DeviceMemory { used: 5, total: 9 };
    assert_eq!(rig.told(), Event::DeviceMemory { device: GPU, memory });
    let told: Vec<_> = (0..5).map(|_| rig.told()).collect();
    let news = [
        FaultCode::Xid(79),
        FaultCode::Recovery(1),
        FaultCode::Nvml(15),
        FaultCode::Nvml(15),
        FaultCode::Xid(31),
    ];
    assert_eq!(
        told,
        news.map(|fault| Event::DeviceFault { device: GPU, fault }),
        "what is the same again is no news"
    );
    let (monitor, devices) = rig.status();
    let (pid, arguments) = rig.starts().remove(0);
    assert_eq!(monitor, MonitorStatus { pid, up: true, restarts: 0, ..MonitorStatus::default() });
    let own = std::process::id();
    assert_eq!(arguments, format!("monitor --sandbox on --supervisor-pid {own} --uuid GPU-3"));
    let want = DeviceStatus {
        name: "gpu3".to_owned(),
        uuid: "GPU-3".to_owned(),
        memory_used: 5,
        memory_total: 9,
        busy_percent: Some(97),
        power_mw: None,
        processes: vec![7],
        recovery: Some(1),
        last_xid: Some(31),
        xids: 2,
        nvml_error: Some(15),
    };
    assert_eq!(devices, [want]);
}

#[test]
fn one_that_dies_is_started_again() {
    let rig = rig("[ $n -le 4 ] && exit 3\necho '{\"beat\":{}}'\nexec sleep 600");
    rig.until("the fifth stays", |status| is_up(status) && status.restarts == 4);
    assert_eq!(rig.status().0.restarts, 4);
    let pids: Vec<_> = rig.starts().into_iter().map(|(pid, _)| pid).collect();
    assert_eq!(pids.len(), 5);
    assert!(pids[..4].iter().all(|&pid| !is_there(pid)), "all were reaped");
}

#[test]
fn one_that_falls_silent_is_killed_and_another_takes_its_place() {
    let short = |limits: &mut HelperLimits| limits.silence = Duration::from_millis(50);
    let script = format!("{BEAT}\n[ $n -ge 2 ] && while {BEAT}; do sleep 0.01; done\n{SLEEP}");
    let rig = rig_with(&script, short);
    rig.until("another is up", |status| is_up(status) && status.restarts >= 1);
    assert!(!is_there(rig.starts()[0].0), "the silent one is gone");
    // One that never gave a sign of life has another limit.
    let script = format!("[ $n -eq 1 ] && {SLEEP}\n{BEAT}\n{SLEEP}");
    let rig = rig_with(&script, |limits| limits.start = Duration::from_millis(50));
    rig.until("another is up", |status| is_up(status) && status.restarts >= 1);
}

#[test]
fn a_monitor_that_breaks_the_protocol_is_killed_and_replaced() {
    let long = format!("printf '%05000d' 7; {SLEEP}");
    let many = (0..129).map(|pid| pid.to_string()).collect::<Vec<_>>().join(",");
    let crowd = format!(
        "echo '{{\"device\":{{\"uuid\":\"GPU-3\",\"memory_used\":5,\"memory_total\":9,\
         \"processes\":[{many}],\"recovery\":0}}}}'"
    );
    let cases = [
        "echo nonsense",
        "echo ''",
        "echo '{\"beat\":{},\"more\":1}'",
        "echo '{\"beat\":{}} {\"beat\":{}}'",
        "echo '{\"xid\":{\"uuid\":\"GPU-4\",\"xid\":79}}'",
        "echo '{\"xid\":{\"uuid\":\"GPU-3\",\"xid\":-1}}'",
        "printf '\\377\\376\\n'",
        &crowd,
        &long,
    ];
    for case in cases {
        let script = format!("if [ $n -eq 1 ]; then\n{case}\n{SLEEP}\nfi\n{BEAT}\n{SLEEP}");
        let rig = rig(&script);
        rig.until(case, |status| is_up(status) && status.restarts == 1);
        assert!(!is_there(rig.starts()[0].0), "{case}");
        assert!(rig.told.try_recv().is_err(), "{case}");
    }
}

#[test]
fn it_is_asked_for_memory_and_its_answer_counts() {
    let answer = |pid: u32, reclaimed: bool| {
        format!(
            "echo '{{\"reclaimed\":{{\"uuid\":\"GPU-3\",\"pid\":{pid},\"reclaimed\":{reclaimed},\
             \"waited_ms\":5}}}}'"
        )
    };
    let want = "{\"reclaim\":71,\"uuid\":\"GPU-3\"}";
    // Of the wrong question it says no more.
    let script = format!(
        "{BEAT}\nread q; [ \"$q\" = '{want}' ] || exit 1\n{}\n{}\nread q\n{}\nread q\nexit 1",
        answer(70, true),
        answer(71, true),
        answer(72, false),
    );
    let rig = rig(&script);
    rig.until("it is up", is_up);
    assert_eq!(rig.monitor().reclaimed(GPU, 71, TIMEOUT), Reclaim::Back);
    assert_eq!(rig.monitor().reclaimed(GPU, 72, TIMEOUT), Reclaim::Held);
    // It ends over the third question, which has no answer then.
    assert_eq!(rig.monitor().reclaimed(GPU, 73, TIMEOUT), Reclaim::Unknown);
    let other = DeviceId { kind: DeviceKind::Gpu, index: 4 };
    assert_eq!(rig.monitor().reclaimed(other, 71, TIMEOUT), Reclaim::Unknown);
    assert!(rig.monitor().inner.state.lock().questions.is_empty());
}

#[test]
fn a_reclaim_request_does_not_wait_for_a_silent_or_missing_monitor() {
    let silent = rig(&format!("{BEAT}\n{SLEEP}"));
    silent.until("it is up", is_up);
    let limit = Duration::from_millis(5);
    assert_eq!(silent.monitor().reclaimed(GPU, 71, limit), Reclaim::Held);
    assert!(silent.monitor().inner.state.lock().questions.is_empty());
    let not_up = rig(SLEEP);
    assert_eq!(not_up.monitor().reclaimed(GPU, 71, TIMEOUT), Reclaim::Unknown);
}

#[test]
fn it_ends_when_it_is_not_wanted_and_a_pool_without_gpus_has_none() {
    let rig = rig(&format!("{BEAT}\n{SLEEP}"));
    rig.until("it is up", is_up);
    rig.rules.helper(HelperEvent::Unwanted);
    rig.until("its process is gone", |status| status.is_off);
    let (pid, _) = rig.starts()[0];
    assert!(!is_there(pid));
    assert_eq!((rig.starts().len(), rig.status().0.pid), (1, 0));
    let cpu = PoolDevice {
        id: DeviceId { kind: DeviceKind::Cpu, index: 0 },
        uuid: String::new(),
        memory: None,
    };
    let none = Monitor::new(
        (Pinned::new("sh".into()), Confinement::default()),
        &[cpu],
        Box::new(|_| {}),
        Box::new(|_| {}),
    );
    assert!(none.unwrap().is_none());
}

#[test]
fn a_monitor_that_cannot_be_started_is_retried() {
    let rig = rig(&format!("{BEAT}\n{SLEEP}"));
    rig.until("it is up", is_up);
    let program = rig.folder.path().join("monitor.sh");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).unwrap();
    let pid = rig.status().0.pid;
    let killed = nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap()),
        nix::sys::signal::Signal::SIGKILL,
    );
    killed.unwrap();
    rig.until("it was tried", |status| status.restarts >= 2);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    rig.until("it is up again", is_up);
    assert_eq!(rig.starts().len(), 2);
}
