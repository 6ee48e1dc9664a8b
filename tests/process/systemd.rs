//! A supervisor as a service of systemd, with the test in systemd's place: its messages over `NOTIFY_SOCKET`, and
//! its silence when it hangs.

use std::fs;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;
use std::time::Duration;

use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::status::{WorkerState, WorkerStatus};
use nix::sys::signal::Signal;

use crate::binaries::root;
use crate::jobs::{answer, serves, small_job, submit};
use crate::pool::{Pool, Setup, cpu, stub_worker};
use crate::processes::{all_gone, go_on, signal, stop};
use crate::wait::{TIMEOUT, eventually, eventually_so};

const PING: &str = "WATCHDOG=1";
/// The watchdog's time, as systemd would say it.
const WATCHDOG_US: &str = "200000";
/// How long a supervisor must be silent that has nothing to say: many times what the watchdog allows.
const SILENCE: Duration = Duration::from_secs(2);

/// The service manager's end.
struct Manager {
    socket: UnixDatagram,
}

impl Manager {
    /// In the folder of a pool that is yet to be started.
    fn beside(setup: &Setup) -> (Self, String) {
        let path = setup.folder().join("notify.sock");
        let socket = UnixDatagram::bind(&path).expect("a socket can be bound");
        (Self { socket }, path.to_str().expect("a readable path").to_owned())
    }

    /// The next message, if one comes in time.
    fn next_within(&self, timeout: Duration) -> Option<String> {
        self.socket.set_read_timeout(Some(timeout)).expect("a timeout can be set");
        let mut bytes = [0; 4096];
        match self.socket.recv(&mut bytes) {
            Ok(length) => {
                let message = std::str::from_utf8(&bytes[..length]).expect("a message is text");
                Some(message.to_owned())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// The next message.
    fn next(&self) -> String {
        self.next_within(TIMEOUT).expect("the supervisor says something")
    }

    /// The next message that is no ping; pings go on meanwhile.
    fn next_news(&self) -> String {
        eventually("news", || match self.next() {
            message if message == PING => Err("pings"),
            message => Ok(message),
        })
    }

    /// Waits for news that are as `is_so` says.
    fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        eventually_so(what, || is_so(&self.next_news()));
    }

    /// Hears that the pool has become ready, and before that nothing but that it starts.
    fn hears_ready(&self) {
        let first = self.next();
        // Only if it was told of before the worker was READY.
        let starts = first == "STATUS=starting: 0 of 1 devices ready";
        let ready = if starts { self.next() } else { first };
        assert_eq!(ready, "READY=1\nSTATUS=serving: 1 of 1 devices ready");
    }

    /// Waits for `count` pings and no other message.
    fn hears_pings(&self, count: usize) {
        for number in 0..count {
            assert_eq!(self.next(), PING, "ping {number}");
        }
    }

    /// Everything that has been said and not been heard yet.
    fn forget(&self) {
        while self.next_within(Duration::from_millis(1)).is_some() {}
    }

    fn hears_nothing(&self) {
        if let Some(message) = self.next_within(SILENCE) {
            panic!("{message:?} comes from a supervisor that has nothing to say");
        }
    }

    /// Everything that is said until the supervisor has ended, which it has.
    fn rest(&self) -> Vec<String> {
        std::iter::from_fn(|| self.next_within(Duration::from_millis(1))).collect()
    }
}

/// A pool as systemd starts it, which has just become ready.
fn served(setup: Setup) -> (Pool, Manager) {
    let (manager, socket) = Manager::beside(&setup);
    let setup = setup.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", WATCHDOG_US);
    let pool = setup.start();
    manager.hears_ready();
    (pool, manager)
}

#[test]
fn systemd_is_told_that_the_pool_is_ready_alive_and_stopping_in_this_order() {
    let (pool, manager) = served(cpu(1));
    manager.hears_pings(5);
    let client = pool.client();
    pool.stop("cpu0");
    let job = submit(&client, small_job(1));
    pool.until_busy("cpu0");
    pool.signal(Signal::SIGTERM);
    // 30 s for the jobs, twice 5 s for the workers, 1 s for the clients, 1 s to end.
    let stopping = "STOPPING=1\nEXTEND_TIMEOUT_USEC=56000000\n\
                    STATUS=draining: 1 of 1 devices ready, jobs left: 1";
    assert_eq!(manager.next_news(), stopping);
    // A drain may take longer than the watchdog's time.
    manager.hears_pings(5);
    pool.go_on("cpu0");
    assert_eq!(answer(job).verdict(), Verdict::Ok);
    pool.ends_well();
    let rest = manager.rest();
    let known = |message: &String| message == PING || message.starts_with("STATUS=draining: ");
    assert!(rest.iter().all(known), "{rest:?}");
}

#[test]
fn a_stopped_supervisor_does_not_ping() {
    let (pool, manager) = served(cpu(1));
    manager.hears_pings(2);
    for _ in 0..2 {
        stop(pool.supervisor.pid());
        manager.forget();
        manager.hears_nothing();
        go_on(pool.supervisor.pid());
        manager.hears_pings(3);
    }
    serves(&pool.client());
}

#[test]
fn a_pool_without_a_worker_that_is_ready_is_not_ready_and_does_not_ping() {
    let setup = cpu(1)
        .worker(stub_worker())
        .env("GRIDPOOL_STUB", "says-nothing")
        .limits("ready_timeout_ms = 300\nbackoff_min_ms = 1\nbackoff_max_ms = 2");
    let (manager, socket) = Manager::beside(&setup);
    let setup = setup.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", WATCHDOG_US);
    assert_eq!(setup.serve().exit().code(), Some(73), "{}", setup.log());
    let said = manager.rest();
    assert_eq!(said.first().map(String::as_str), Some("STATUS=starting: 0 of 1 devices ready"));
    assert!(said.iter().all(|message| message.starts_with("STATUS=starting: 0 of 1")), "{said:?}");
}

#[test]
fn the_status_follows_workers_that_die_and_come_back() {
    let (pool, manager) = served(cpu(1).limits("backoff_min_ms = 20000\nbackoff_max_ms = 20000"));
    // The first restart is free and may be over before anybody has looked; the second waits.
    for generation in [1, 2] {
        let is_so =
            |row: &WorkerStatus| (row.generation, row.state) == (generation, WorkerState::Ready);
        signal(pool.until("cpu0", "ready", is_so).pid, Signal::SIGKILL);
    }
    manager.until("no device", |news| news == "STATUS=serving: 0 of 1 devices ready");
    pool.signal(Signal::SIGTERM);
    manager.until("the end", |news| news.starts_with("STOPPING=1\n"));
    pool.ends_well();
}

#[test]
fn a_drain_asks_systemd_for_the_time_that_it_may_take() {
    let (pool, manager) = served(cpu(1).limits("drain_timeout_s = 7200"));
    pool.signal(Signal::SIGTERM);
    let stopping = manager.next_news();
    // More than fits 32 bits.
    assert!(stopping.contains("\nEXTEND_TIMEOUT_USEC=7226000000\n"), "{stopping}");
    pool.ends_well();
}

#[test]
fn workers_do_not_inherit_the_variables_of_systemd() {
    let (pool, _manager) = served(cpu(1).env("GRIDPOOL_LOG", "info"));
    let environment = fs::read(format!("/proc/{}/environ", pool.pid("cpu0")));
    let environment = environment.expect("a worker's environment can be read");
    let environment = String::from_utf8_lossy(&environment);
    let names: Vec<_> =
        environment.split('\0').filter_map(|entry| Some(entry.split_once('=')?.0)).collect();
    assert!(names.contains(&"GRIDPOOL_LOG"), "it inherits the rest: {names:?}");
    for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] {
        assert!(!names.contains(&name), "{name} is inherited");
    }
}

#[test]
fn an_abstract_socket_works_and_a_watchdog_of_another_process_gets_no_ping() {
    let setup = cpu(1);
    let name = format!("gridpool-test-{}", setup.folder().display());
    let address = SocketAddr::from_abstract_name(&name).expect("a name of a socket");
    let socket = UnixDatagram::bind_addr(&address).expect("a socket can be bound");
    let manager = Manager { socket };
    let setup = setup.env("NOTIFY_SOCKET", &format!("@{name}"));
    let pool = setup.env("WATCHDOG_USEC", WATCHDOG_US).env("WATCHDOG_PID", "1").start();
    manager.hears_ready();
    manager.hears_nothing();
    pool.signal(Signal::SIGTERM);
    assert!(manager.next().starts_with("STOPPING=1\n"));
    pool.ends_well();
}

#[test]
fn an_absent_or_invalid_notify_socket_is_one_warning_and_changes_nothing() {
    for (socket, words) in [
        ("/nowhere/notify", "the service manager cannot be told"),
        ("nowhere", "an absolute path, or @ and a name"),
    ] {
        let setup = cpu(1).env("NOTIFY_SOCKET", socket).env("WATCHDOG_USEC", WATCHDOG_US);
        let pool = setup.start();
        serves(&pool.client());
        let setup = pool.setup().clone();
        pool.signal(Signal::SIGTERM);
        pool.ends_well();
        assert_eq!(setup.log().matches(words).count(), 1, "{}", setup.log());
    }
}

#[test]
fn systemd_hears_of_the_next_main_process_and_the_watchdog_goes_on_there() {
    let (pool, manager) = served(cpu(1));
    manager.hears_pings(2);
    pool.cli(&["upgrade"]).run().output();
    let successor = pool.client().status().expect("a status").supervisor.pid;
    assert_eq!(manager.next_news(), format!("MAINPID={successor}"));
    // The old process says nothing more: neither that it stops, nor a ping.
    assert_eq!(manager.next(), "READY=1\nSTATUS=serving: 1 of 1 devices ready");
    manager.hears_pings(3);
    stop(successor);
    manager.forget();
    manager.hears_nothing();
    go_on(successor);
    manager.hears_pings(3);
    signal(successor, Signal::SIGTERM);
    manager.until("the end", |news| news.starts_with("STOPPING=1\n"));
    all_gone(&[successor]);
}

/// The hardened unit, as the system's manager reads it: the unit, then the file beside it.
#[test]
#[expect(clippy::print_stderr, reason = "says that nothing was tested")]
fn the_hardened_unit_is_exposed_to_little() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let units = root().join("supervisor/systemd");
    let read = |name: &str| fs::read_to_string(units.join(name)).expect("it is in the repository");
    let whole = read("gridpool.service") + &read("hardened.conf") + "User=gridpool\n";
    let unit = folder.path().join("gridpool.service");
    fs::write(&unit, whole).expect("a file can be written");
    let mut analyze = Command::new("systemd-analyze");
    // In tenths: less than 3.
    let call = analyze.args(["security", "--offline=true", "--threshold=29"]).arg(&unit).output();
    let Ok(call) = call else {
        eprintln!("not tested: there is no systemd-analyze");
        return;
    };
    assert!(call.status.success(), "{}", String::from_utf8_lossy(&call.stdout));
}
