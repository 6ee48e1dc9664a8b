//! The pool that a storm is over: the real binaries, what the supervisor holds as `/proc` shows it, and
//! what is left when it has ended.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gridpool_client::Client;
use gridpool_protocol::status::{Status, WorkerState};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::checker::Rules;
use super::wire_client::live;
use crate::harness::processes::{self, Process};
use crate::harness::wait::eventually;

/// What every storm is configured to. Workers are killed by the thousand: no device is put out of
/// service for it, and the next process starts within milliseconds.
pub const RULES: Rules = Rules { attempts_max: 1_000, poison_deaths: 2, verdicts_kept: 512 };
const LIMITS: &str = "restart_limit = 1000\nstart_failures_max = 1000\nbackoff_min_ms = 1\n\
    backoff_max_ms = 10\nheartbeat_suspect_ms = 1500\nheartbeat_kill_ms = 2500\n\
    shard_cost_min = 20000\n";

/// Files of a pool's folder that are there when it has ended.
const LEFT: [&str; 2] = ["log", "pool.toml"];
/// Looks in a row that must show the same before a gauge is believed.
const SAME_LOOKS: usize = 20;
/// How much the supervisor's memory may grow from the first gauge to the last: what an allocator keeps
/// for the largest flood that it has seen.
pub const GROWTH_KIB_MAX: u64 = 8 << 10;

/// How a pool is started.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where `gridpool` and `gridpool-worker` lie.
    pub bin_dir: PathBuf,
    /// As after `--devices`.
    pub devices: String,
    /// Processes that wait on every device.
    pub standby: u32,
}

/// What the supervisor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauge {
    /// Open descriptors.
    pub descriptors: usize,
    /// Threads.
    pub threads: usize,
    /// Memory that it holds, KiB.
    pub held_kib: u64,
    /// Children that have ended and were not waited for.
    pub zombies: usize,
}

/// A running pool.
#[derive(Debug)]
pub struct Server {
    process: Process,
    observer: Client,
    folder: TempDir,
}

impl Server {
    /// Starts a pool and waits until every device serves.
    ///
    /// # Errors
    /// A sentence, if it cannot be started.
    ///
    /// # Panics
    /// If it does not serve in time.
    pub fn start(setup: &Setup) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| format!("a folder: {error}"))?;
        let process = serve(setup, folder.path())?;
        let mut process = Process::new(process);
        let socket = folder.path().join("pool.sock");
        let log = || fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        let observer = eventually("the pool to answer", || {
            assert!(process.is_running(), "the supervisor has ended:\n{}", log());
            Client::connect(&socket).map_err(|error| error.to_string())
        });
        let server = Self { process, observer, folder };
        server.all_serve();
        Ok(server)
    }

    /// Where clients connect.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("pool.sock")
    }

    /// The supervisor's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The connection that looks at the pool and submits nothing.
    #[must_use]
    pub fn observer(&self) -> &Client {
        &self.observer
    }

    /// What it has logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn status(&self) -> Status {
        self.observer.status().expect("the pool describes itself")
    }

    /// Waits until every device has a worker that serves, and every other process waits.
    fn all_serve(&self) {
        eventually("every device to serve", || {
            let workers = self.status().workers;
            let at_rest = |state| matches!(state, WorkerState::Ready | WorkerState::Standby);
            let rest = workers.iter().all(|row| at_rest(row.state));
            if rest { Ok(()) } else { Err(format!("{workers:?}")) }
        });
    }

    /// What the supervisor holds now.
    #[must_use]
    pub fn gauge(&self) -> Gauge {
        let pid = self.pid();
        Gauge {
            descriptors: processes::descriptors(pid),
            threads: processes::threads(pid),
            held_kib: processes::held(pid) >> 10,
            zombies: processes::zombies(pid),
        }
    }

    /// What it holds once only the observer is connected, no job is left and all devices serve.
    #[must_use]
    pub fn settled(&self) -> Gauge {
        eventually("every other client to be gone with all that was theirs", || {
            let status = self.status();
            let Status { supervisor, counters, .. } = &status;
            let is_empty = live(counters) == 0 && supervisor.arena_bytes == 0;
            if supervisor.clients == 1 && is_empty { Ok(()) } else { Err(format!("{status:?}")) }
        });
        self.all_serve();
        let (mut last, mut same) = (self.gauge(), 0);
        eventually("the supervisor to rest", || {
            let now = self.gauge();
            let is_same = (now.descriptors, now.threads) == (last.descriptors, last.threads);
            same = if is_same { same + 1 } else { 0 };
            last = now;
            if same >= SAME_LOOKS { Ok(now) } else { Err(format!("{now:?}")) }
        })
    }

    /// Tells it to end and says what it should not have left behind.
    #[must_use]
    pub fn stop(mut self) -> Vec<String> {
        let pid = self.pid();
        let log = self.folder.path().join("log");
        processes::signal(pid, Signal::SIGTERM);
        let ended = self.process.exit();
        let mut left = Vec::new();
        if !ended.success() {
            left.push(format!("the supervisor ended with {ended}"));
        }
        let workers = processes::with_arguments(&["--supervisor-pid", &pid.to_string()]);
        left.extend(workers.iter().map(|worker| format!("process {worker} of it is still there")));
        let entries = fs::read_dir(self.folder.path()).expect("its folder can be listed");
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let strange = names.filter(|name| !LEFT.contains(&name.as_str()));
        left.extend(strange.map(|name| format!("file {name} of it is still there")));
        let log = fs::read_to_string(log).unwrap_or_default();
        left.extend(log.lines().filter(|line| line.contains("panicked")).map(str::to_owned));
        left
    }
}

impl Gauge {
    /// What has grown since `first`, where nothing may have.
    #[must_use]
    pub fn growth(&self, first: &Self) -> Vec<String> {
        let mut grown = Vec::new();
        let mut check = |what: &str, first: u64, last: u64, tolerance: u64| {
            if last > first + tolerance {
                grown.push(format!(
                    "{what}: {first} before, {last} after, {tolerance} more allowed"
                ));
            }
        };
        check("descriptors", first.descriptors as u64, self.descriptors as u64, 0);
        check("threads", first.threads as u64, self.threads as u64, 0);
        check("KiB held", first.held_kib, self.held_kib, GROWTH_KIB_MAX);
        check("zombies", 0, self.zombies as u64, 0);
        grown
    }
}

fn serve(setup: &Setup, folder: &Path) -> Result<std::process::Child, String> {
    let config = folder.join("pool.toml");
    let Rules { attempts_max, poison_deaths, verdicts_kept } = RULES;
    let rules = format!(
        "attempts_max = {attempts_max}\npoison_deaths = {poison_deaths}\n\
         verdicts_kept = {verdicts_kept}\nstandbys = {}\n",
        setup.standby
    );
    let failed = |what: &str, error: std::io::Error| format!("{what}: {error}");
    fs::write(&config, format!("[limits]\n{LIMITS}{rules}")).map_err(|e| failed("config", e))?;
    let log = File::create(folder.join("log")).map_err(|error| failed("log", error))?;
    let program = setup.bin_dir.join("gridpool");
    let mut command = Command::new(&program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("GRIDPOOL_") {
            command.env_remove(name);
        }
    }
    command
        .args(["serve", "--devices", &setup.devices, "--config"])
        .arg(config)
        .arg("--socket")
        .arg(folder.join("pool.sock"))
        .arg("--worker-bin")
        .arg(setup.bin_dir.join("gridpool-worker"))
        // A line for each death would make the log of a long storm larger than anything else.
        .env("GRIDPOOL_LOG", "error")
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    command.spawn().map_err(|error| failed(&program.display().to_string(), error))
}
