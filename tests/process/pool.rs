//! A private pool for one test: `gridpool serve` in a temporary folder, and its end.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use gridpool_client::{Client, WorkerSelector};
use gridpool_ipc::clock;
use gridpool_protocol::status::{Status, WorkerState, WorkerStatus};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::binaries;
use crate::command::{Cli, gridpool};
use crate::jobs::serves;
use crate::processes::{Process, arenas, descriptors, go_on, signal, stop, threads};
use crate::wait::{eventually, eventually_so, within};

/// No worker is taken for hung and none is passed over because it is silent: a test may stop one for
/// as long as it likes.
const PATIENT: &str = "heartbeat_suspect_s = 600\nheartbeat_kill_s = 3000\n";

/// Threads of a supervisor without workers and clients.
const OWN_THREADS: usize = 13;

/// How a pool is started.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    devices: String,
    limits: String,
    program: PathBuf,
    worker: PathBuf,
    args: Vec<String>,
    env: Vec<(&'static str, String)>,
    /// What the service manager passes as descriptor 3.
    passed: Option<Rc<OwnedFd>>,
    folder: Rc<TempDir>,
    /// What outlives it.
    state: Rc<TempDir>,
}

/// Starts a program as a service manager does that passes descriptors, the first from standard input.
const ACTIVATE: &str = r#"exec 3<&0 0</dev/null; export LISTEN_PID=$$; exec "$@""#;

/// A running pool; killed when dropped, and its log shown if the test fails.
#[derive(Debug)]
pub(crate) struct Pool {
    setup: Setup,
    pub(crate) supervisor: Process,
    observer: Client,
}

/// Descriptors and threads of a supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footprint {
    descriptors: usize,
    threads: usize,
}

/// A pool of `count` CPU workers with long heartbeat limits.
pub(crate) fn cpu(devices: usize) -> Setup {
    on(format!("cpu:{devices}"))
}

/// A pool on these devices, whose workers' silence is forgiven.
pub(crate) fn on(devices: String) -> Setup {
    Setup {
        devices,
        limits: PATIENT.to_owned(),
        program: binaries::gridpool().to_owned(),
        worker: binaries::worker().to_owned(),
        args: Vec::new(),
        env: Vec::new(),
        passed: None,
        folder: Rc::new(tempfile::tempdir().expect("a folder for temporary files")),
        state: Rc::new(tempfile::tempdir().expect("a folder for temporary files")),
    }
}

/// A pool of one worker that has served, and what it holds then.
pub(crate) fn warm() -> (Pool, Footprint) {
    let pool = cpu(1).start();
    serves(&pool.client());
    let before = pool.settled();
    (pool, before)
}

/// The worker that a test names as an operator would.
pub(crate) fn named(worker: &str) -> WorkerSelector {
    worker.parse().expect("a worker's name")
}

/// A worker that misbehaves as `GRIDPOOL_STUB` says; see `stub_worker.rs`.
pub(crate) fn stub_worker() -> &'static str {
    env!("CARGO_BIN_EXE_stub-worker")
}

impl Setup {
    /// More lines of `[limits]`.
    pub(crate) fn limits(mut self, lines: &str) -> Self {
        self.limits.push_str(lines);
        self
    }

    /// These lines are all of `[limits]`.
    pub(crate) fn only_limits(mut self, lines: &str) -> Self {
        lines.clone_into(&mut self.limits);
        self
    }

    /// Another program in the worker's place.
    pub(crate) fn worker(mut self, program: impl Into<PathBuf>) -> Self {
        self.worker = program.into();
        self
    }

    /// The command line's program at another place.
    pub(crate) fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = program.into();
        self
    }

    /// More arguments of `gridpool serve`.
    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|&arg| arg.to_owned()));
        self
    }

    pub(crate) fn env(mut self, name: &'static str, value: &str) -> Self {
        self.env.push((name, value.to_owned()));
        self
    }

    /// Has a service manager pass it this descriptor, as `LISTEN_FDS` says.
    pub(crate) fn passed(self, descriptor: impl Into<OwnedFd>, count: &str) -> Self {
        let passed = Some(Rc::new(descriptor.into()));
        Self { passed, ..self.env("LISTEN_FDS", count) }
    }

    /// The folder of socket, config and log.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The folder in which the pool makes its state folder.
    pub(crate) fn state(&self) -> &Path {
        self.state.path()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder().join("pool.sock")
    }

    /// What the supervisors of this folder have logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder().join("log")).unwrap_or_default()
    }

    /// `gridpool serve`, with whatever it becomes.
    pub(crate) fn serve(&self) -> Process {
        let log = File::options().create(true).append(true).open(self.folder().join("log"));
        self.serve_logging_to(log.expect("a log can be written").into())
    }

    /// The same with another log.
    fn serve_logging_to(&self, log: Stdio) -> Process {
        let mut command = Command::new(&self.program);
        let mut stdin = Stdio::null();
        if let Some(passed) = &self.passed {
            command = Command::new("/bin/sh");
            command.args(["-c", ACTIVATE, "sh"]).arg(&self.program);
            stdin = passed.try_clone().expect("a descriptor can be copied").into();
        }
        self.serve_by(command, [stdin, Stdio::null(), log])
    }

    /// The same by a command that takes the arguments of `gridpool`, with its input, output and log.
    fn serve_by(&self, mut command: Command, [stdin, stdout, log]: [Stdio; 3]) -> Process {
        let config = self.folder().join("pool.toml");
        fs::write(&config, format!("[limits]\n{}", self.limits)).expect("a file can be written");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("GRIDPOOL_") {
                command.env_remove(name);
            }
        }
        // Tests read what processes of a pool hold. Root may do so anyway.
        if !nix::unistd::geteuid().is_root() {
            command.env("GRIDPOOL_TEST_INSPECTABLE", "1");
        }
        command
            .args(["serve", "--devices", &self.devices, "--config"])
            .arg(config)
            .arg("--socket")
            .arg(self.socket())
            .arg("--worker-bin")
            .arg(&self.worker)
            .args(&self.args)
            .env("NO_COLOR", "1")
            .env("XDG_STATE_HOME", self.state())
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(stdin)
            .stdout(stdout)
            .stderr(log);
        Process::new(command.spawn().expect("gridpool can be started"))
    }

    /// A pool that answers; its workers may still be starting.
    pub(crate) fn start_early(self) -> Pool {
        let supervisor = self.serve();
        self.answers(supervisor)
    }

    /// The same, whose log goes to a pipe.
    pub(crate) fn start_piped(self, log: std::io::PipeWriter) -> Pool {
        let supervisor = self.serve_logging_to(log.into());
        self.answers(supervisor)
    }

    /// The same in a session of its own, whose terminal this is: input, output and log.
    pub(crate) fn start_on_terminal(self, terminal: &OwnedFd) -> Pool {
        let end = || terminal.try_clone().expect("a descriptor can be copied").into();
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(&self.program);
        let supervisor = self.serve_by(command, [end(), end(), end()]);
        self.answers(supervisor)
    }

    fn answers(self, mut supervisor: Process) -> Pool {
        let socket = self.socket();
        let observer = eventually("the pool to answer", || {
            assert!(supervisor.is_running(), "the supervisor has ended:\n{}", self.log());
            Client::connect(&socket).map_err(|error| error.to_string())
        });
        Pool { setup: self, supervisor, observer }
    }

    /// A pool whose workers are all READY.
    pub(crate) fn start(self) -> Pool {
        let pool = self.start_early();
        pool.all_ready();
        pool
    }
}

impl Pool {
    /// A connection of its own.
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.socket()).expect("the pool accepts connections")
    }

    /// The connection that polls the pool; it never submits anything.
    pub(crate) fn observer(&self) -> &Client {
        &self.observer
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.setup.socket()
    }

    /// How it was started.
    pub(crate) fn setup(&self) -> &Setup {
        &self.setup
    }

    /// What this pool reads when it gets SIGHUP, and its successor when it starts: more lines behind those of patience.
    pub(crate) fn configure(&self, lines: &str) {
        let text = format!("[limits]\n{PATIENT}{lines}");
        fs::write(self.folder().join("pool.toml"), text).expect("a file can be written");
    }

    pub(crate) fn folder(&self) -> &Path {
        self.setup.folder()
    }

    pub(crate) fn log(&self) -> String {
        self.setup.log()
    }

    /// A call of the command line with `--socket`.
    pub(crate) fn cli(&self, arguments: &[&str]) -> Cli {
        gridpool(arguments).arg("--socket").arg(self.socket())
    }

    pub(crate) fn status(&self) -> Status {
        self.observer.status().expect("the pool describes itself")
    }

    /// The slot of a device such as `cpu0`.
    pub(crate) fn slot(&self, device: &str) -> WorkerStatus {
        let mut workers = self.status().workers.into_iter();
        let slot = workers.find(|row| row.name.starts_with(&format!("{device}#")));
        slot.expect("the pool has this device")
    }

    /// The process on a device.
    pub(crate) fn pid(&self, device: &str) -> u32 {
        let pid = self.slot(device).pid;
        assert_ne!(pid, 0, "{device} has no process");
        pid
    }

    /// The processes of all workers.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.status().workers.iter().map(|row| row.pid).collect()
    }

    pub(crate) fn stop(&self, device: &str) -> u32 {
        let pid = self.pid(device);
        stop(pid);
        pid
    }

    pub(crate) fn go_on(&self, device: &str) {
        go_on(self.pid(device));
    }

    /// Waits until a slot is as `is_so` says, and gives it.
    pub(crate) fn until(
        &self,
        device: &str,
        what: &str,
        is_so: impl Fn(&WorkerStatus) -> bool,
    ) -> WorkerStatus {
        eventually(&format!("{device} to be {what}"), || {
            let slot = self.slot(device);
            if is_so(&slot) { Ok(slot) } else { Err(format!("{slot:?}")) }
        })
    }

    /// Waits until the worker on a device runs a job.
    pub(crate) fn until_busy(&self, device: &str) -> WorkerStatus {
        self.until(device, "busy", |slot| slot.state == WorkerState::Busy)
    }

    /// Waits until every device has a READY worker.
    pub(crate) fn all_ready(&self) {
        eventually("all workers to be READY", || {
            let workers = self.status().workers;
            let ready = workers.iter().all(|row| row.state == WorkerState::Ready);
            if ready { Ok(()) } else { Err(format!("{workers:?}")) }
        });
    }

    /// Waits until the status is as `is_so` says, and gives it.
    pub(crate) fn until_status(&self, what: &str, is_so: impl Fn(&Status) -> bool) -> Status {
        eventually(what, || {
            let status = self.status();
            if is_so(&status) { Ok(status) } else { Err(format!("{status:?}")) }
        })
    }

    /// What the supervisor holds when only the observer is connected.
    pub(crate) fn settled(&self) -> Footprint {
        self.until_status("all others to be gone", |status| status.supervisor.clients == 1);
        // The last thread closes its descriptors and ends some moments after it was counted out, and an arena
        // stays until the worker has unmapped it.
        let idle = OWN_THREADS + 3 * self.pids().len() + 1;
        eventually("the threads and arenas of clients to be gone", || {
            let (now, arenas) = (self.footprint(), arenas(self.supervisor.pid()));
            let is_idle = now.threads <= idle && arenas == 0;
            if is_idle { Ok(now) } else { Err(format!("{now:?}, {arenas} arenas; {idle} threads")) }
        })
    }

    /// What the supervisor holds now. Threads are counted first: one that is gone has closed its descriptors,
    /// while one that ends between the two counts would leave them in the first.
    pub(crate) fn footprint(&self) -> Footprint {
        let pid = self.supervisor.pid();
        let threads = threads(pid);
        Footprint { descriptors: descriptors(pid), threads }
    }

    /// Waits until the supervisor holds no more than it did.
    pub(crate) fn back_to(&self, before: Footprint) {
        eventually(&format!("the supervisor to hold no more than {before:?}"), || {
            let now = self.footprint();
            let is_it = now.descriptors <= before.descriptors && now.threads <= before.threads;
            if is_it { Ok(()) } else { Err(format!("{now:?}")) }
        });
    }

    /// Whether the pool serves as before and holds no more than before, and no process of it died.
    pub(crate) fn is_unharmed(&self, before: Footprint) {
        serves(&self.client());
        self.back_to(before);
        assert!(!self.log().contains("panicked"));
        assert!(self.status().workers.iter().all(|row| row.generation == 1));
    }

    /// Sends the supervisor a signal.
    pub(crate) fn signal(&self, number: Signal) {
        signal(self.supervisor.pid(), number);
    }

    /// Asks for a drain by a signal, and for a stop at once by another, which counts from a second later on.
    pub(crate) fn signal_twice(&self) {
        self.signal(Signal::SIGTERM);
        self.until_status("the pool to drain", |status| status.supervisor.draining);
        let later = clock::now() + Duration::from_secs(1);
        eventually_so("a second to pass", || clock::now() >= later);
        self.signal(Signal::SIGTERM);
    }

    /// Waits for the supervisor's end by itself, which must be a good one; gives what is needed to start another.
    pub(crate) fn ended(mut self) -> Setup {
        let status = self.supervisor.exit();
        assert_eq!(status.code(), Some(0), "{}", self.log());
        self.setup.clone()
    }

    /// The same for a pool that leaves no socket.
    pub(crate) fn ends_well(self) {
        assert!(!self.ended().socket().exists(), "the socket is still there");
    }

    /// Kills the supervisor with SIGKILL; gives what is needed to start another in its place.
    pub(crate) fn killed(mut self) -> Setup {
        self.supervisor.kill();
        self.setup.clone()
    }

    /// Waits for a supervisor that was told to end, from a thread that may hang.
    pub(crate) fn wait_closed(&self) {
        let observer = self.observer.clone();
        let closed = within("the pool to close its connections", move || observer.wait_closed());
        drop(closed.expect("it was the pool that closed them"));
    }
}

impl Drop for Pool {
    #[expect(clippy::print_stderr, reason = "the log of a pool whose test fails")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("---- log of the pool ----\n{}---- end ----", self.log());
        }
        // A stopped worker dies of SIGKILL all the same, with its supervisor.
        self.supervisor.kill();
        // Another may have taken its place.
        if let Ok(Ok(status)) = Client::connect(self.socket()).map(|client| client.status()) {
            signal(status.supervisor.pid, Signal::SIGKILL);
        }
    }
}
