//! A pool that a command has for itself, behind a socket that nobody else knows: started, waited for, and
//! drained when it goes out of scope.
//!
//! Owns how workers are started by the settings, and what "ready" means. May not submit anything.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gridpool_protocol::clock;
use gridpool_protocol::ids::Role;
use gridpool_protocol::status::{QuarantineStatus, WorkerState};

use super::{CommandError, system};
use crate::config::Settings;
use crate::pool::config::PoolConfig;
use crate::shell::{PoolDevice, Shell, SocketLock, WorkerCommand};

/// How long the workers of a pool may take until all are ready: eight GPUs that start together take 5 s.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// Between two looks at whether they are.
const READY_EVERY: Duration = Duration::from_millis(20);

/// Why the workers of a pool do not all serve.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotReady {
    #[error("no worker can start: {}", .0.join("; "))]
    Misconfigured(Vec<String>),
    #[error("no worker of the role {role} can start on {device}: {why}")]
    OutOfService { device: String, role: String, why: String },
    #[error("the workers of a pool were not ready within {} s: {why}", READY_TIMEOUT.as_secs())]
    Late { why: String },
}

/// How the settings have workers started, each on so many threads of the CPU if that is its device.
pub(super) fn worker_command(
    settings: &Settings,
    program: PathBuf,
    cpu_threads: usize,
) -> WorkerCommand {
    let limits = &settings.limits;
    WorkerCommand {
        program,
        cpu_threads,
        known_answer_every: limits.known_answer_every,
        memory_growth_max: limits.worker_memory_growth_max,
        descriptors_growth_max: limits.worker_descriptors_growth_max,
        policy: settings.policy.clone(),
        models: settings.models.clone(),
        onnxruntime: settings.onnxruntime.clone(),
        environment: Vec::new(),
    }
}

/// A pool of this process alone. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Private {
    shell: Shell,
    _held: SocketLock,
}

impl Private {
    /// Starts a pool whose clients find it at `socket`. Its workers are not ready yet.
    pub(super) fn start(
        limits: PoolConfig,
        command: WorkerCommand,
        devices: &[PoolDevice],
        socket: &Path,
    ) -> Result<Self, CommandError> {
        let claim = Shell::claim(socket)?;
        let shell = Shell::start(limits, command, devices.to_vec(), socket.to_owned());
        let shell = shell.map_err(system("the pool's threads"))?;
        let held = shell.listen(claim)?;
        Ok(Self { shell, _held: held })
    }

    pub(super) fn shell(&self) -> &Shell {
        &self.shell
    }

    /// Waits until every worker of these roles is ready, or shows that it will not be.
    pub(super) fn wait_ready(&self, roles: &[Role]) -> Result<(), NotReady> {
        let until = clock::now() + READY_TIMEOUT;
        let is_wanted = |name: &str| roles.iter().any(|role| role.name() == name);
        loop {
            if roles.contains(&Role::Grid)
                && let Some(faults) = self.shell.misconfigured()
            {
                return Err(NotReady::Misconfigured(faults));
            }
            let settled = [WorkerState::Ready, WorkerState::Standby, WorkerState::Quarantined];
            let status = self.shell.status();
            let late = status
                .workers
                .into_iter()
                .find(|worker| is_wanted(&worker.role) && !settled.contains(&worker.state));
            let out = status.quarantines.into_iter().find(|out| is_wanted(&out.role));
            match (late, out) {
                (None, None) => return Ok(()),
                // Not before the others had their time: they may be looked at all the same.
                (None, Some(QuarantineStatus { device, role, why, .. })) => {
                    return Err(NotReady::OutOfService { device, role, why });
                }
                (Some(late), _) if clock::until(until).is_zero() => {
                    let why = format!("{}, {:?}; {}", late.name, late.state, late.last_fault);
                    return Err(NotReady::Late { why });
                }
                (Some(_), _) => {}
            }
            // Nothing tells when a worker is ready but its status. The error says that the time is over.
            let paused = crossbeam_channel::never::<()>().recv_timeout(READY_EVERY);
            debug_assert!(paused.is_err(), "nobody sends");
        }
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        self.shell.drain();
        self.shell.wait();
    }
}
