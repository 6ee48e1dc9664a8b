//! Messages to the service manager that started us: the protocol of sd_notify(3).
//!
//! Owns the variables `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`, and the socket that the
//! first one names. Must not block: it is called under the core's lock.
//!
//! The crate `sd-notify` (0.5) would not do. It has no abstract sockets, may block when the socket is full, and
//! reads the variables for each message. We remove the variables at the start, so that no worker inherits them.

use std::ffi::{OsStr, OsString};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;
use std::{env, io};

use gridpool_protocol::status::WorkerState;

use super::end::FLUSH_TIMEOUT;
use gridpool_core::Core;
use gridpool_core::config::{HelperLimits, PoolConfig};
use gridpool_core::event::{Event, Helper, Timestamp, WorkerEvent};

const SOCKET: &str = "NOTIFY_SOCKET";
const WATCHDOG: &str = "WATCHDOG_USEC";
const WATCHDOG_PID: &str = "WATCHDOG_PID";

/// Longest time between two checks for news, and before a message is sent again.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Shortest time between two pings, whatever the watchdog's timeout is.
const PING_EVERY_MIN: Duration = Duration::from_millis(1);
/// Time for the end of the process, in addition to all its limits.
const EXIT_RESERVE: Duration = Duration::from_secs(1);

/// The connection to the service manager.
#[derive(Debug)]
pub struct Notifier {
    socket: UnixDatagram,
    manager: SocketAddr,
    /// Half of the watchdog's timeout, if there is a watchdog.
    ping_every: Option<Duration>,
    ping_at: Timestamp,
    look_at: Timestamp,
    /// The longest time from the drain request to the end of the process.
    longest_stop: Duration,
    told: Told,
    /// Whether the last message failed. Only the first failure is a warning.
    is_failing: bool,
    /// Another process reports from now on.
    is_over: bool,
    /// Which one, until the service manager has been told.
    successor: Option<u32>,
}

/// The state that the service manager knows, or must hear of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Told {
    is_ready: bool,
    is_stopping: bool,
    status: String,
}

/// Why there is no connection to the service manager.
#[derive(Debug, thiserror::Error)]
enum NotifyError {
    #[error("{SOCKET} is {value:?}: an absolute path, or @ and a name, of a socket is understood")]
    Address {
        value: OsString,
        #[source]
        source: io::Error,
    },
    #[error("{WATCHDOG} is {0:?}: a number of microseconds is understood")]
    Interval(OsString),
    #[error("a socket to {SOCKET} cannot be made")]
    Socket(#[source] io::Error),
}

impl Notifier {
    /// Connects to the service manager that the environment names, if any. Removes its variables from the
    /// environment, because child processes must not inherit them.
    ///
    /// # Safety
    /// No other thread of this process may run.
    #[must_use]
    #[expect(unsafe_code, reason = "the environment is changed, before there are threads")]
    pub unsafe fn take_from_environment() -> Option<Self> {
        let [socket, watchdog, pid] = [SOCKET, WATCHDOG, WATCHDOG_PID].map(|name| {
            let value = env::var_os(name);
            // SAFETY: the caller promises that no other thread runs, so none reads the environment.
            unsafe { env::remove_var(name) };
            value
        });
        let socket = socket?;
        // The watchdog is for another process, such as the shell that started us: do not ping it.
        let ours = std::process::id().to_string();
        let watchdog = watchdog.filter(|_| pid.is_none_or(|pid| pid == *ours));
        match Self::new(&socket, watchdog.as_deref()) {
            Ok(notifier) => Some(notifier),
            Err(error) => {
                let error = gridpool_protocol::chain::Chain(&error);
                tracing::warn!(%error, "the service manager is told nothing");
                None
            }
        }
    }

    fn new(address: &OsStr, watchdog: Option<&OsStr>) -> Result<Self, NotifyError> {
        let interval = |text: &OsStr| {
            let number = text.to_str().and_then(|text| text.parse::<u64>().ok());
            number.ok_or_else(|| NotifyError::Interval(text.to_owned()))
        };
        let interval = watchdog.map(interval).transpose()?.filter(|&interval| interval > 0);
        let failed = |source| NotifyError::Address { value: address.to_owned(), source };
        let manager = parse_address(address.as_bytes()).map_err(failed)?;
        let socket = UnixDatagram::unbound().map_err(NotifyError::Socket)?;
        socket.set_nonblocking(true).map_err(NotifyError::Socket)?;
        let half = |interval| Duration::from_micros(interval / 2).max(PING_EVERY_MIN);
        Ok(Self {
            socket,
            manager,
            ping_every: interval.map(half),
            ping_at: Timestamp::default(),
            look_at: Timestamp::default(),
            longest_stop: Duration::ZERO,
            told: Told::default(),
            is_failing: false,
            is_over: false,
            successor: None,
        })
    }

    /// Tells the service manager that another process is the service now, and nothing more. If that fails,
    /// [`Notifier::tell`] tries again.
    pub(super) fn hand_over(&mut self, pid: u32) {
        self.successor = Some(pid);
        self.is_over = true;
        self.tell_successor();
    }

    fn tell_successor(&mut self) {
        if let Some(pid) = self.successor
            && self.send(&format!("MAINPID={pid}"))
        {
            self.successor = None;
        }
    }

    /// Sets the limits of the pool that it reports.
    pub(super) fn limit(&mut self, config: &PoolConfig) {
        self.longest_stop = longest_stop(config);
    }

    /// Whether [`Notifier::tell`] must report an event at once.
    pub(super) fn is_news(event: &Event) -> bool {
        matches!(
            event,
            Event::DrainRequested | Event::EndRequested | Event::Worker(_, WorkerEvent::Ready(_))
        )
    }

    /// When to call [`Notifier::tell`] and [`Notifier::ping`] if nothing else happens.
    pub(super) fn due(&self) -> Timestamp {
        match self.ping_every {
            Some(_) if self.told.is_ready && !self.is_over => self.ping_at.min(self.look_at),
            Some(_) | None => self.look_at,
        }
    }

    /// Reports changes, if there are any.
    pub(super) fn tell(&mut self, now: Timestamp, core: &Core) {
        // Never later than a ping may be due, should the pool become ready before the next look.
        self.look_at = now.after(self.ping_every.map_or(LOOK_EVERY, |every| every.min(LOOK_EVERY)));
        self.tell_successor();
        let next = self.told.next(core);
        if self.is_over || next == self.told {
            return;
        }
        let mut lines = Vec::new();
        if next.is_ready && !self.told.is_ready {
            lines.push("READY=1".to_owned());
        }
        if next.is_stopping && !self.told.is_stopping {
            lines.push("STOPPING=1".to_owned());
            // Lengthens a stop timeout that is shorter, and leaves a longer one as it is.
            let longest = self.longest_stop.as_micros();
            lines.push(format!("EXTEND_TIMEOUT_USEC={longest}"));
        }
        lines.push(format!("STATUS={}", next.status));
        if self.send(&lines.join("\n")) {
            if next.is_ready && !self.told.is_ready {
                tracing::info!("the service manager has been told that the pool is ready");
            }
            self.told = next;
        }
    }

    /// Pings the watchdog, if a ping is due. Only for the timing thread, after it has handled an event under the
    /// lock: if it cannot get the lock, the pings must stop.
    pub(super) fn ping(&mut self, now: Timestamp) {
        let Some(every) = self.ping_every else { return };
        if self.is_over || !self.told.is_ready || self.ping_at > now {
            return;
        }
        let sent = self.send("WATCHDOG=1");
        self.ping_at = now.after(if sent { every } else { every.min(LOOK_EVERY) });
    }

    /// Sends a message and returns whether that worked. A failed message is sent again later.
    fn send(&mut self, message: &str) -> bool {
        let sent = self.socket.send_to_addr(message.as_bytes(), &self.manager);
        match &sent {
            Ok(_) => tracing::debug!(?message, "told the service manager"),
            Err(error) if self.is_failing => tracing::debug!(%error, "it is still not told"),
            Err(error) => tracing::warn!(%error, ?message, "the service manager cannot be told"),
        }
        self.is_failing = sent.is_err();
        sent.is_ok()
    }
}

impl Told {
    /// The next state to report for a pool, after `self`.
    fn next(&self, core: &Core) -> Self {
        let workers = core.workers();
        let mut devices: Vec<_> =
            workers.iter().map(|(_, row)| (row.device.kind, row.device.index)).collect();
        devices.dedup();
        let count = |states: &[WorkerState]| {
            workers.iter().filter(|(_, row)| states.contains(&row.state)).count()
        };
        let serving = count(&[WorkerState::Busy, WorkerState::Ready]);
        let is_ready = self.is_ready || (serving > 0 && !core.is_draining());
        let phase = match (core.is_draining(), is_ready) {
            (true, _) => "draining",
            (false, true) => "serving",
            (false, false) => "starting",
        };
        let mut status = format!("{phase}: {serving} of {} devices ready", devices.len());
        let standbys = count(&[WorkerState::Standby]);
        if standbys > 0 {
            status += &format!(", {standbys} standing by");
        }
        let lost = count(&[WorkerState::Quarantined, WorkerState::Unkillable]);
        if lost > 0 {
            status += &format!(", {lost} out of service");
        }
        if core.is_draining() {
            let sums = core.counters();
            let ended = sums.ok + sums.failed + sums.deadline + sums.poison;
            let left = sums.accepted - ended - sums.cancelled - sums.device_lost;
            status += &format!(", jobs left: {left}");
        }
        Self { is_ready, is_stopping: core.is_draining(), status }
    }
}

/// The longest time from the drain request to the end of the process: the pool ends, and the one before it, clients
/// of each read their last verdicts, and helper processes finish what they have, one after the other.
fn longest_stop(config: &PoolConfig) -> Duration {
    let of_helpers = Helper::ALL.map(|helper| HelperLimits::of(helper).stop.unwrap_or_default());
    let of_helpers: Duration = of_helpers.into_iter().sum();
    config.longest_drain() + 2 * FLUSH_TIMEOUT + of_helpers + EXIT_RESERVE
}

fn parse_address(value: &[u8]) -> io::Result<SocketAddr> {
    match value {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        [b'/', ..] => SocketAddr::from_pathname(OsStr::from_bytes(value)),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::{Path, PathBuf};

    use gridpool_protocol::exit::cli as exit;
    use gridpool_protocol::ids::{DeviceId, DeviceKind};

    use super::*;
    use crate::shell::{Pinned, Shell, WorkerCommand};
    use gridpool_core::policy::PolicyTable;

    const UNIT: &str = include_str!("../../systemd/gridpool.service");

    /// Pings come every 10 ms.
    const WATCHDOG_US: &str = "20000";
    /// How long nothing must come where a ping would: far more than the time between two.
    const SILENCE: Duration = Duration::from_millis(500);
    /// How long something may take to come; only a fault runs into it.
    const TIMEOUT: Duration = Duration::from_secs(30);

    fn notifier(path: &Path) -> Notifier {
        Notifier::new(path.as_os_str(), Some(OsStr::new(WATCHDOG_US))).unwrap()
    }

    fn hear(manager: &UnixDatagram, timeout: Duration) -> io::Result<String> {
        let mut message = [0; 1024];
        manager.set_read_timeout(Some(timeout)).unwrap();
        let length = manager.recv(&mut message)?;
        Ok(String::from_utf8(message[..length].to_vec()).unwrap())
    }

    /// The value of a key that the unit has once.
    fn unit(key: &str) -> &'static str {
        let mut values = UNIT.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        let value = values.next().expect(key);
        assert_eq!(values.next(), None, "{key}");
        value
    }

    #[test]
    fn the_unit_waits_longer_than_a_stop_may_take_and_does_not_restart_hopeless_exits() {
        let seconds = |key| Duration::from_secs(unit(key).parse().unwrap());
        assert!(seconds("TimeoutStopSec") >= longest_stop(&PoolConfig::DEFAULT));
        let starts = PoolConfig::DEFAULT.ready_timeout * PoolConfig::DEFAULT.start_failures_max;
        assert!(seconds("TimeoutStartSec") > crate::devices::PROBE_TIMEOUT + starts);
        assert!(seconds("WatchdogSec") > 4 * LOOK_EVERY);
        let codes = [exit::USAGE, exit::WORKER, exit::CONFIG].map(|code| code.to_string());
        assert_eq!(unit("RestartPreventExitStatus"), codes.join(" "));
        assert_eq!((unit("Type"), unit("KillMode")), ("notify", "mixed"));
    }

    #[test]
    fn an_address_that_is_not_understood_is_refused_with_what_would_be() {
        for address in ["", "run/notify", "vsock:2:1234", &format!("/{}", "s".repeat(200))] {
            let error = Notifier::new(OsStr::new(address), None).unwrap_err();
            let words = "an absolute path, or @ and a name, of a socket is understood";
            assert!(error.to_string().contains(words), "{error}");
        }
        for interval in ["", "10s", "-1"] {
            let error = Notifier::new(OsStr::new("/s"), Some(OsStr::new(interval))).unwrap_err();
            assert!(error.to_string().contains("WATCHDOG_USEC"), "{error}");
        }
        let none = Notifier::new(OsStr::new("/s"), Some(OsStr::new("0"))).unwrap();
        assert_eq!(none.ping_every, None);
        let shortest = Notifier::new(OsStr::new("/s"), Some(OsStr::new("1"))).unwrap();
        assert_eq!(shortest.ping_every, Some(PING_EVERY_MIN));
    }

    #[test]
    fn a_failed_notification_is_sent_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let device = DeviceId { kind: DeviceKind::Cpu, index: 0 };
        let (config, policy) = (PoolConfig::DEFAULT, PolicyTable::default());
        let core = Core::new(config, policy, &[device], &[], HelperLimits::of);
        let mut notifier = notifier(&path);
        notifier.tell(Timestamp::default(), &core);
        assert!(notifier.is_failing);
        let manager = UnixDatagram::bind(&path).unwrap();
        notifier.tell(notifier.due(), &core);
        let message = hear(&manager, TIMEOUT).unwrap();
        assert_eq!(message, "STATUS=starting: 0 of 1 devices ready");
        notifier.tell(notifier.due(), &core);
        assert!(hear(&manager, SILENCE).is_err(), "nothing has changed");
        drop(manager);
        std::fs::remove_file(&path).unwrap();
        notifier.hand_over(7);
        let manager = UnixDatagram::bind(&path).unwrap();
        notifier.tell(notifier.due(), &core);
        assert_eq!(hear(&manager, TIMEOUT).unwrap(), "MAINPID=7");
        notifier.tell(notifier.due(), &core);
        assert!(hear(&manager, SILENCE).is_err(), "once, and nothing else");
    }

    #[test]
    fn a_ping_goes_out_every_half_watchdog_interval() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let mut notifier = notifier(&path);
        notifier.told.is_ready = true;
        for at_ms in 0..100 {
            notifier.ping(Timestamp(Duration::from_millis(at_ms)));
        }
        manager.set_nonblocking(true).unwrap();
        let pings = std::iter::from_fn(|| manager.recv(&mut [0; 64]).ok()).count();
        assert_eq!(pings, 10);
    }

    /// A pool without a device: no event ever comes but those that a test makes.
    pub(in crate::shell) fn idle_shell() -> Shell {
        let command = WorkerCommand {
            program: Pinned::new(PathBuf::from("/bin/false")),
            cpu_threads: 1,
            known_answer_every: Duration::from_secs(60),
            memory_growth_max: 4 << 30,
            descriptors_growth_max: 4_096,
            policy: PolicyTable::default(),
            models: Vec::new(),
            onnxruntime: None,
            environment: Vec::new(),
            confinement: crate::shell::Confinement::default(),
            allows_chaos: false,
        };
        Shell::start(PoolConfig::DEFAULT, command, Vec::new(), PathBuf::new(), None).unwrap()
    }

    #[test]
    fn a_drain_is_notified_at_once_and_open_notifications_go_before_the_process_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        for is_there in [true, false] {
            let shell = idle_shell();
            let early = is_there.then(|| UnixDatagram::bind(&path).unwrap());
            // Without a watchdog: the next look is a second away.
            let notifier = Notifier::new(path.as_os_str(), None).unwrap();
            shell.report_to(notifier, &PoolConfig::DEFAULT);
            shell.drain();
            let manager = early.unwrap_or_else(|| {
                // The pool has left already, and the service manager did not listen.
                let manager = UnixDatagram::bind(&path).unwrap();
                shell.wait();
                manager
            });
            manager.set_nonblocking(true).unwrap();
            let mut bytes = [0; 1024];
            let said = std::iter::from_fn(|| manager.recv(&mut bytes).ok()).last();
            let last = String::from_utf8_lossy(&bytes[..said.unwrap_or_default()]).into_owned();
            assert!(last.starts_with("STOPPING=1\nEXTEND_TIMEOUT_USEC=56000000\n"), "{last:?}");
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn no_ping_goes_out_while_a_thread_holds_the_core() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let shell = idle_shell();
        let mut notifier = notifier(&path);
        notifier.told.is_ready = true;
        shell.report_to(notifier, &PoolConfig::DEFAULT);
        assert!(hear(&manager, TIMEOUT).unwrap().starts_with("STATUS="));
        for _ in 0..3 {
            assert_eq!(hear(&manager, TIMEOUT).unwrap(), "WATCHDOG=1");
        }
        let stuck = shell.shared.lock();
        // What was sent before.
        manager.set_nonblocking(true).unwrap();
        while manager.recv(&mut [0; 64]).is_ok() {}
        manager.set_nonblocking(false).unwrap();
        let heard = hear(&manager, SILENCE);
        assert!(heard.is_err(), "{heard:?} from a supervisor that can do nothing");
        drop(stuck);
        assert_eq!(hear(&manager, TIMEOUT).unwrap(), "WATCHDOG=1");
        shell.drain();
        shell.wait();
    }
}
