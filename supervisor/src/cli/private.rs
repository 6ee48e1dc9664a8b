//! A private pool of one command, on a socket that no other program knows. It drains when it is dropped.
//!
//! Owns the worker's command line, and what "ready" means. May not submit anything.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_protocol::ids::Role;
use gridpool_protocol::status::{QuarantineStatus, WorkerState, WorkerStatus};

use super::{CommandError, system};
use crate::config::Settings;
use crate::shell::{Confinement, Pinned, PoolDevice, Shell, SocketLock, WorkerCommand};
use gridpool_core::config::PoolConfig;

/// How long the workers of a pool may take to get ready; eight GPUs that start together take 5 s.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// Between two polls for readiness.
const READY_EVERY: Duration = Duration::from_millis(20);

/// Why a worker of the pool does not serve.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotReady {
    #[error("no worker can start: {}", .0.join("; "))]
    Misconfigured(Vec<String>),
    #[error("no worker of the role {role} can start on {device}: {why}")]
    OutOfService { device: String, role: String, why: String },
    #[error("the workers of a pool were not ready within {} s: {why}", READY_TIMEOUT.as_secs())]
    Late { why: String },
}

/// The worker's command line by the settings; a worker on the CPU has `cpu_threads` threads.
pub(super) fn worker_command(
    settings: &Settings,
    program: PathBuf,
    cpu_threads: usize,
) -> WorkerCommand {
    let limits = &settings.limits;
    WorkerCommand {
        program: Pinned::new(program),
        cpu_threads,
        known_answer_every: limits.known_answer_every,
        memory_growth_max: limits.worker_memory_growth_max,
        descriptors_growth_max: limits.worker_descriptors_growth_max,
        policy: settings.policy.clone(),
        models: settings.models.clone(),
        onnxruntime: settings.onnxruntime.clone(),
        environment: Vec::new(),
        confinement: Confinement::new(settings.sandbox, settings.sandbox_write.clone()),
        allows_chaos: settings.allow_chaos,
    }
}

/// A pool of this process alone. Dropping it ends the pool.
#[derive(Debug)]
pub(super) struct PrivatePool {
    shell: Shell,
    _held: SocketLock,
}

impl PrivatePool {
    /// Starts a pool at `socket`. Its workers are not ready yet.
    pub(super) fn start(
        limits: PoolConfig,
        command: WorkerCommand,
        devices: &[PoolDevice],
        socket: &Path,
    ) -> Result<Self, CommandError> {
        let claim = Shell::claim(socket, None)?;
        let shell = Shell::start(limits, command, devices.to_vec(), socket.to_owned(), None);
        let shell = shell.map_err(system("the pool's threads"))?;
        let held = shell.listen(claim)?;
        Ok(Self { shell, _held: held })
    }

    pub(super) fn shell(&self) -> &Shell {
        &self.shell
    }

    /// Waits until every worker of these roles is ready, or is known to have failed.
    pub(super) fn wait_ready(&self, roles: &[Role]) -> Result<(), NotReady> {
        let until = clock::now() + READY_TIMEOUT;
        loop {
            if roles.contains(&Role::Grid)
                && let Some(faults) = self.shell.misconfigured()
            {
                return Err(NotReady::Misconfigured(faults));
            }
            match self.shell.workers(roles).into_iter().find(|row| !is_settled(row)) {
                None => break,
                Some(late) if clock::until(until).is_zero() => {
                    let why = format!("{}, {:?}; {}", late.name, late.state, late.last_fault);
                    return Err(NotReady::Late { why });
                }
                // No event tells of a worker that gets ready, so poll.
                Some(_) => thread::park_timeout(READY_EVERY),
            }
        }
        // Only after the others are ready: `diagnose` checks those all the same.
        let is_wanted = |out: &QuarantineStatus| roles.iter().any(|role| role.name() == out.role);
        match self.shell.status().quarantines.into_iter().find(is_wanted) {
            Some(QuarantineStatus { device, role, why, .. }) => {
                Err(NotReady::OutOfService { device, role, why })
            }
            None => Ok(()),
        }
    }
}

/// Whether a worker serves, or is known not to.
pub(super) fn is_settled(row: &WorkerStatus) -> bool {
    matches!(row.state, WorkerState::Ready | WorkerState::Standby | WorkerState::Quarantined)
}

impl Drop for PrivatePool {
    fn drop(&mut self) {
        self.shell.drain();
        self.shell.wait();
    }
}
