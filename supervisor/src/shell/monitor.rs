//! The supervisor's side of `gridpool-worker monitor`: starts it, starts it again when it ends or falls
//! silent, keeps what it said last of every device, and asks it when a dead worker's memory is back.
//!
//! NVML can stick in the kernel for good, so nothing here waits for the monitor without a limit, and
//! nothing waits for it under the core's lock. A monitor that SIGKILL does not end is left behind; the
//! next one is started when it is gone.

mod gauges;
pub(super) mod lines;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use gridpool_protocol::clock;
use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::DeviceId;
use gridpool_protocol::log::FORMAT_VARIABLE;
use gridpool_protocol::monitor::{Line, QUESTIONS_MAX, Question};
use gridpool_protocol::status::{DeviceStatus, MonitorStatus};
use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::PoolDevice;
use super::pidfd::PidFd;
use crate::logging;
use gauges::Gauges;
use lines::{Lines, Next};

/// The monitor answers within ten seconds; one that does not is stuck.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(12);

/// How long the monitor may take for what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// From its start to its first sign of life: a cold driver needs seconds for each GPU.
    pub(super) start: Duration,
    /// Between two signs of life.
    pub(super) silence: Duration,
    /// From SIGKILL to its end; then it is left behind.
    pub(super) kill: Duration,
    /// From its end to the next start; doubled each time.
    backoff_min: Duration,
    /// Longest time to the next start.
    backoff_max: Duration,
    /// One that has lived for so long was a good one: the next start does not wait long.
    healthy: Duration,
}

impl Patience {
    /// The defaults.
    pub(super) const DEFAULT: Self = Self {
        start: Duration::from_secs(60),
        silence: Duration::from_secs(5),
        kill: Duration::from_secs(1),
        backoff_min: Duration::from_millis(100),
        backoff_max: Duration::from_secs(30),
        healthy: Duration::from_secs(60),
    };
}

/// Whether the memory of a process that has ended is free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reclaim {
    /// It is.
    Back,
    /// It is not, and the time is up.
    Held,
    /// Nobody can say: there is no monitor now.
    Unknown,
}

/// What to do with a fault that the driver tells of.
type Tell = Box<dyn Fn(DeviceId, FaultCode) + Send>;

/// The monitor of a pool.
#[derive(Clone, Debug)]
pub(super) struct Monitor(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    program: PathBuf,
    /// Those with a UUID.
    devices: Vec<PoolDevice>,
    patience: Patience,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stopping: bool,
    process: Option<Process>,
    /// Processes so far.
    starts: u32,
    gauges: BTreeMap<DeviceId, Gauges>,
    /// Questions that somebody waits for the answer of, and the answers.
    questions: BTreeMap<(DeviceId, u32), Option<bool>>,
}

/// The monitor's process.
#[derive(Debug)]
struct Process {
    pid: u32,
    pidfd: PidFd,
    questions: ChildStdin,
    /// It has given a sign of life.
    is_up: bool,
}

impl Monitor {
    /// Starts watching the devices that have a UUID; `None` if none has. `tell` is called, from a
    /// thread of the monitor's own, for every fault that the driver tells of.
    pub(super) fn start(
        program: PathBuf,
        devices: &[PoolDevice],
        patience: Patience,
        tell: Tell,
    ) -> io::Result<Option<Self>> {
        let gpus = devices.iter().filter(|device| !device.uuid.is_empty());
        let devices: Vec<_> = gpus.cloned().collect();
        if devices.is_empty() {
            return Ok(None);
        }
        let (state, changed) = (Mutex::default(), Condvar::new());
        let inner = Arc::new(Inner { program, devices, patience, state, changed });
        let for_thread = Arc::clone(&inner);
        // It lives as long as the pool: the monitor's process dies with the thread that spawned it.
        thread::Builder::new()
            .name("monitor".into())
            .spawn(move || for_thread.attend(tell.as_ref()))?;
        Ok(Some(Self(inner)))
    }

    /// Waits, at most `limit`, until the memory that a process held is free. The process has ended.
    pub(super) fn reclaimed(&self, device: DeviceId, pid: u32, limit: Duration) -> Reclaim {
        let key = (device, pid);
        let mut state = self.0.lock();
        if !self.0.ask(&mut state, key) {
            return Reclaim::Unknown;
        }
        let until = clock::now() + limit;
        loop {
            match state.questions.get(&key) {
                Some(None) => {}
                Some(Some(is_back)) => {
                    let answer = if *is_back { Reclaim::Back } else { Reclaim::Held };
                    state.questions.remove(&key);
                    return answer;
                }
                // The monitor that was asked is gone.
                None => return Reclaim::Unknown,
            }
            let left = clock::until(until);
            if left.is_zero() {
                state.questions.remove(&key);
                return Reclaim::Held;
            }
            let waited = self.0.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The process, and what it said last of every device.
    pub(super) fn status(&self) -> (MonitorStatus, Vec<DeviceStatus>) {
        let state = self.0.lock();
        let monitor = MonitorStatus {
            pid: state.process.as_ref().map_or(0, |process| process.pid),
            up: state.process.as_ref().is_some_and(|process| process.is_up),
            restarts: state.starts.saturating_sub(1),
        };
        let device = |device: &PoolDevice| {
            state.gauges.get(&device.id).cloned().unwrap_or_default().status(device)
        };
        (monitor, self.0.devices.iter().map(device).collect())
    }

    /// Ends the process and starts none again.
    pub(super) fn stop(&self) {
        let mut state = self.0.lock();
        state.stopping = true;
        if let Some(process) = &state.process {
            process.pidfd.kill("the monitor");
        }
        self.0.changed.notify_all();
    }
}

/// How long to wait for the next start.
#[derive(Debug)]
pub(super) struct Backoff {
    patience: Patience,
    next: Duration,
}

impl Backoff {
    pub(super) fn new(patience: Patience) -> Self {
        Self { patience, next: patience.backoff_min }
    }

    /// After a process that has lived for so long.
    pub(super) fn after(&mut self, lived: Duration) -> Duration {
        if lived >= self.patience.healthy {
            self.next = self.patience.backoff_min;
        }
        let wait = self.next;
        self.next = wait.saturating_mul(2).min(self.patience.backoff_max);
        wait
    }
}

/// Why a monitor is not listened to any longer.
#[derive(Debug, thiserror::Error)]
enum Over {
    #[error("it ended")]
    Ended,
    #[error("it gives no sign of life")]
    Silent,
    #[error("it said what is no line of the protocol: {0}")]
    Garbled(String),
    #[error("what it says cannot be read: {0}")]
    Unreadable(io::Error),
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body of the thread: one process after the other until the pool is gone.
    fn attend(&self, tell: &dyn Fn(DeviceId, FaultCode)) {
        let mut backoff = Backoff::new(self.patience);
        let mut left_behind = None;
        while !self.lock().stopping {
            let began = clock::now();
            // Where one sticks, the next one would too.
            if left_behind.take_if(|(pidfd, child)| self.reap(pidfd, child)).is_some() {
                tracing::info!("the monitor that would not end is gone");
            }
            if left_behind.is_none() {
                match self.spawn() {
                    Ok((pidfd, mut child, lines)) => {
                        let over = self.listen(lines, tell);
                        let stopping = self.take_down();
                        pidfd.kill("the monitor");
                        if !stopping {
                            tracing::warn!(%over, "the monitor is replaced");
                        }
                        if !self.reap(&pidfd, &mut child) {
                            tracing::error!("SIGKILL does not end the monitor: NVML sticks");
                            left_behind = Some((pidfd, child));
                        }
                    }
                    Err(error) => tracing::warn!(%error, "the monitor cannot be started"),
                }
            }
            self.pause(backoff.after(began.elapsed()));
        }
    }

    fn spawn(&self) -> io::Result<(PidFd, Child, Lines)> {
        let mut command = Command::new(&self.program);
        command.arg("monitor").args(["--supervisor-pid", &std::process::id().to_string()]);
        for device in &self.devices {
            command.args(["--uuid", &device.uuid]);
        }
        command.env(FORMAT_VARIABLE, logging::format().name());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn()?;
        match self.take_up(&mut child) {
            Ok((pidfd, lines)) => Ok((pidfd, child, lines)),
            Err(error) => {
                // It has not been reaped, so the number is still its own.
                child.kill()?;
                child.wait()?;
                Err(error)
            }
        }
    }

    /// Makes a process known.
    fn take_up(&self, child: &mut Child) -> io::Result<(PidFd, Lines)> {
        let pidfd = PidFd::open(child.id())?;
        let questions = child.stdin.take().expect("its input is a pipe");
        let output = child.stdout.take().expect("its output is a pipe");
        // Whoever asks does not wait for a monitor that does not read.
        fcntl(&questions, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let process =
            Process { pid: child.id(), pidfd: pidfd.try_clone()?, questions, is_up: false };
        let mut state = self.lock();
        if state.stopping {
            return Err(io::Error::other("the pool ends"));
        }
        state.process = Some(process);
        state.starts += 1;
        self.changed.notify_all();
        Ok((pidfd, Lines::new(output)))
    }

    /// The process is of no more use: nobody waits for its answers. Says whether that was ordered.
    fn take_down(&self) -> bool {
        let mut state = self.lock();
        state.process = None;
        state.questions.clear();
        self.changed.notify_all();
        state.stopping
    }

    /// Reads what the process says, until it says no more or what it must not.
    fn listen(&self, mut lines: Lines, tell: &dyn Fn(DeviceId, FaultCode)) -> Over {
        let mut until = clock::now() + self.patience.start;
        loop {
            let line = match lines.next(until) {
                Ok(Next::Line(line)) => line,
                Ok(Next::Closed) => return Over::Ended,
                Ok(Next::Silent) => return Over::Silent,
                Ok(Next::TooLong) => return Over::Garbled("a line without an end".to_owned()),
                Err(error) => return Over::Unreadable(error),
            };
            match self.parse(&line) {
                Ok((_, Line::Beat {})) => {
                    until = clock::now() + self.patience.silence;
                    self.beat();
                }
                Ok((device, line)) => self.take_in(device, line, tell),
                Err(why) => return Over::Garbled(why),
            }
        }
    }

    fn beat(&self) {
        if let Some(process) = &mut self.lock().process
            && !process.is_up
        {
            process.is_up = true;
            self.changed.notify_all();
        }
    }

    /// Asks about a process; `false` if nobody can answer.
    fn ask(&self, state: &mut State, key: (DeviceId, u32)) -> bool {
        let (device, pid) = key;
        let device = self.devices.iter().find(|known| known.id == device);
        let Some(process) = state.process.as_mut().filter(|process| process.is_up) else {
            return false;
        };
        let Some(device) = device.filter(|_| state.questions.len() < QUESTIONS_MAX) else {
            return false;
        };
        let question = Question { reclaim: pid, uuid: device.uuid.clone() };
        let mut text = serde_json::to_vec(&question).expect("a question is plain data");
        text.push(b'\n');
        // A pipe takes so few bytes whole or not at all.
        if let Err(error) = process.questions.write_all(&text) {
            tracing::debug!(%error, "the monitor takes no question");
            return false;
        }
        state.questions.insert(key, None);
        true
    }

    /// Whether the process is gone, at once or within the patience.
    fn reap(&self, pidfd: &PidFd, child: &mut Child) -> bool {
        match pidfd.wait(Some(self.patience.kill)) {
            Ok(true) => match child.wait() {
                Ok(_) => true,
                Err(error) => {
                    tracing::error!(%error, "waiting for the monitor");
                    true
                }
            },
            Ok(false) => false,
            Err(error) => {
                tracing::error!(%error, "waiting on the monitor's pidfd");
                false
            }
        }
    }

    /// Waits for a while, or until the pool ends.
    fn pause(&self, span: Duration) {
        drop(self.changed.wait_timeout_while(self.lock(), span, |state| !state.stopping));
    }
}

#[cfg(test)]
mod tests;
