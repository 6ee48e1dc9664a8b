//! The supervisor's side of `gridpool-worker monitor`, a helper process that watches the GPUs. It keeps the
//! latest report about each device, and asks when a dead worker's memory is free.
//!
//! A call of NVML can hang in the kernel for ever. So every wait for the monitor has a timeout, and no thread
//! waits for it under the core's lock.

mod gauges;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::sync::{Arc, Condvar, PoisonError};
use std::time::Duration;

use gridpool_core::HelperStatus;
use gridpool_core::action::HelperAction;
use gridpool_core::event::{Event, Helper};
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::ids::DeviceId;
use gridpool_protocol::log::FORMAT_VARIABLE;
use gridpool_protocol::monitor::{Line, QUESTIONS_MAX, Question};
use gridpool_protocol::status::{DeviceStatus, MonitorStatus};
use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::PoolDevice;
use super::confinement::{Confinement, Inherits};
use super::helper::{Post, Processes, Program, Spawned};
use super::pinned::Pinned;
use crate::logging;

/// How long a thread waits for an answer. The monitor answers within ten seconds; one that does not is stuck.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(12);

/// Whether the memory of a process that has ended is free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reclaim {
    /// It is.
    Back,
    /// It is not, and the timeout has passed.
    Held,
    /// There is no monitor to ask now.
    Unknown,
}

/// Handles what the driver reports.
type Tell = Box<dyn Fn(Event) + Send>;

/// The monitor of a pool.
#[derive(Debug)]
pub(super) struct Monitor {
    inner: Arc<Inner>,
    processes: Arc<Processes>,
}

#[derive(Debug)]
struct Inner {
    /// Those with a UUID.
    devices: Vec<PoolDevice>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The pipe for questions; `None` until the process has given a sign of life.
    asks: Option<ChildStdin>,
    /// What was said last of each device, without its name.
    gauges: BTreeMap<DeviceId, DeviceStatus>,
    /// Questions whose answer a thread waits for, and the answers.
    questions: BTreeMap<(DeviceId, u32), Option<bool>>,
}

impl Monitor {
    /// A monitor of the devices that have a UUID, without a process yet; `None` if none has. `tell` is
    /// called, from a thread of the monitor's own, for every fault and every change of memory that the driver
    /// reports.
    pub(super) fn new(
        (program, confinement): (Pinned, Confinement),
        devices: &[PoolDevice],
        post: Post,
        tell: Tell,
    ) -> io::Result<Option<Self>> {
        let gpus = devices.iter().filter(|device| !device.uuid.is_empty());
        let devices: Vec<_> = gpus.cloned().collect();
        if devices.is_empty() {
            return Ok(None);
        }
        let inner = Arc::new(Inner { devices, state: Mutex::default(), changed: Condvar::new() });
        let (inner_, questions) = (Arc::clone(&inner), None);
        let watching = Watching { program, confinement, inner: inner_, tell, questions };
        let processes = Processes::serve(Helper::Monitor, watching, post)?;
        Ok(Some(Self { inner, processes }))
    }

    /// Whether it is the process of this number. Waits while one is being started.
    pub(super) fn is(&self, pid: u32) -> bool {
        self.processes.is(pid)
    }

    pub(super) fn perform(&self, action: HelperAction) {
        self.processes.perform(action);
    }

    /// Waits, at most `limit`, until the memory that a process held is free. The process has ended.
    pub(super) fn reclaimed(&self, device: DeviceId, pid: u32, limit: Duration) -> Reclaim {
        let key = (device, pid);
        let mut state = self.inner.state.lock();
        if !self.inner.ask(&mut state, key) {
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
            let waited = self.inner.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The process, and its latest report about each device.
    pub(super) fn status(&self, core: HelperStatus) -> (MonitorStatus, Vec<DeviceStatus>) {
        let pid = self.processes.pid().unwrap_or(0);
        let monitor = MonitorStatus {
            pid,
            up: core.is_up,
            restarts: core.restarts,
            ..MonitorStatus::default()
        };
        let state = self.inner.state.lock();
        let device = |device: &PoolDevice| {
            let said = state.gauges.get(&device.id).cloned().unwrap_or_default();
            DeviceStatus { name: device.id.to_string(), uuid: device.uuid.clone(), ..said }
        };
        (monitor, self.inner.devices.iter().map(device).collect())
    }
}

impl Inner {
    /// Asks about a process; `false` if there is no monitor that could answer.
    fn ask(&self, state: &mut State, key: (DeviceId, u32)) -> bool {
        let (device, pid) = key;
        let device = self.devices.iter().find(|known| known.id == device);
        let Some(asks) = state.asks.as_mut() else { return false };
        let Some(device) = device.filter(|_| state.questions.len() < QUESTIONS_MAX) else {
            return false;
        };
        let question = Question { reclaim: pid, uuid: device.uuid.clone() };
        let mut text = serde_json::to_vec(&question).expect("a question is plain data");
        text.push(b'\n');
        // A pipe takes so few bytes whole or not at all.
        if let Err(error) = asks.write_all(&text) {
            tracing::debug!(%error, "the monitor takes no question");
            return false;
        }
        state.questions.insert(key, None);
        true
    }
}

/// Starts processes of the monitor, and handles their lines.
struct Watching {
    program: Pinned,
    confinement: Confinement,
    inner: Arc<Inner>,
    tell: Tell,
    /// The pipe for questions to the process. They begin after its first sign of life.
    questions: Option<ChildStdin>,
}

impl Program for Watching {
    type Output = ChildStdout;

    fn spawn(&mut self) -> io::Result<Spawned<ChildStdout>> {
        let mut command = self.program.command();
        self.confinement.restrict(&mut command, Inherits::Monitor);
        command.arg("monitor").args(self.confinement.worker_arguments());
        command.args(["--supervisor-pid", &std::process::id().to_string()]);
        for device in &self.inner.devices {
            command.args(["--uuid", &device.uuid]);
        }
        command.env(FORMAT_VARIABLE, logging::format().name());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn()?;
        let questions = child.stdin.take().expect("its input is a pipe");
        let output = child.stdout.take().expect("its output is a pipe");
        // A thread that asks does not wait for a monitor that does not read.
        if let Err(error) = fcntl(&questions, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)) {
            // It has not been reaped, so the number is still its own.
            child.kill()?;
            child.wait()?;
            return Err(error.into());
        }
        self.questions = Some(questions);
        Ok(Spawned { child, output, link: None })
    }

    fn on_line(&mut self, line: &[u8]) -> Result<bool, String> {
        let (device, line) = self.inner.parse(line)?;
        if let Line::Beat {} = line {
            if let Some(questions) = self.questions.take() {
                self.inner.state.lock().asks = Some(questions);
            }
            return Ok(true);
        }
        self.inner.take_in(device, line, self.tell.as_ref());
        Ok(false)
    }

    /// Ends the waits for its answers.
    fn on_lost(&mut self) {
        self.questions = None;
        let mut state = self.inner.state.lock();
        state.asks = None;
        state.questions.clear();
        self.inner.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
