//! Starts the pool of a command: one that serves, or one that ends with the command's work.

use std::os::unix::net::UnixStream;
use std::thread;

use gridpool_client::Client;
use gridpool_protocol::exit::cli as exit;

use super::diagnose::limits::{FILE_BYTES_MIN, file_bytes_max};
use super::error::{CommandError, system};
use super::{private, state};
use crate::config::{Settings, quotas_of};
use crate::devices;
use crate::shell::{self, Predecessor, Shell, WorkerCommand};

/// Starts a pool, does some work in it, and stops it.
pub(super) fn in_own_pool(
    settings: &Settings,
    work: impl FnOnce(&Client) -> Result<u8, CommandError>,
) -> Result<u8, CommandError> {
    let shell = start_pool(settings, None, false)?;
    let (ours, theirs) = UnixStream::pair().map_err(system("a socket pair"))?;
    shell.connect(theirs).map_err(system("a thread for the client"))?;
    let client = Client::builder().connect_over(ours)?;
    let code = work(&client);
    let misconfigured = shell.misconfigured();
    shell.drain();
    shell.wait();
    match (code, misconfigured) {
        (Ok(exit::JOB), Some(faults)) => Err(CommandError::Misconfigured(faults)),
        (code, _) => code,
    }
}

/// Starts a pool with its workers; it has no client yet. One that serves keeps a state folder by default.
pub(super) fn start_pool(
    settings: &Settings,
    predecessor: Option<&Predecessor>,
    is_service: bool,
) -> Result<Shell, CommandError> {
    let state = state::open(&settings.state_dir, is_service)?;
    let program = devices::worker_binary(settings.worker_bin.as_deref())?;
    let pool_devices = devices::resolve(&settings.devices, &program)?;
    let limits = settings.limits.clone();
    let models =
        devices::place(&settings.models, &pool_devices, &limits).map_err(CommandError::Usage)?;
    shell::raise_descriptor_limit();
    let needed = Shell::descriptors_min(&models, pool_devices.len(), limits.standbys);
    let limit = shell::descriptor_limit();
    if limit < needed {
        return Err(CommandError::OpenFiles { limit, needed });
    }
    let limit = file_bytes_max();
    if limit < FILE_BYTES_MIN {
        return Err(CommandError::FileSize { limit });
    }
    for rule in settings.policy.unlisted() {
        let (fault, response, says) = (&rule.fault, rule.response, &rule.meaning);
        tracing::warn!(fault, %response, says, "[policy] names a fault that is in no table");
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let cpu_devices = pool_devices.iter().filter(|device| device.uuid.is_empty()).count();
    let threads = (cores / cpu_devices.max(1)).max(1);
    let command = WorkerCommand { models, ..private::worker_command(settings, program, threads) };
    let shell = Shell::start(limits, command, pool_devices, settings.socket.clone(), predecessor)
        .map_err(system("the pool's threads"))?;
    shell.allow_chaos(settings.allow_chaos);
    shell.set_users(&settings.users, quotas_of(&settings.quotas));
    if let Some(state) = &state {
        state.keep(|folder| shell.log_jobs(folder))?;
        state.keep(|folder| shell.keep_capsules(folder, settings.capsules))?;
    }
    Ok(shell)
}
