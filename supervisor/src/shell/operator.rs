//! What operators ask of a running pool beside the core: signals to workers, changes by the model repository.

use std::io;
use std::sync::Arc;

use gridpool_protocol::ids::{ClientId, WorkerId, WorkerSelector};
use gridpool_protocol::message::{Refusal, RepositoryCommand};
use nix::libc::SIGKILL;

use super::Shared;
use crate::repository::{Keeper, NOT_BY_REQUEST, Repository};

impl Shared {
    /// Follows a model repository from now on.
    pub(super) fn follow(self: &Arc<Self>, repository: Repository) -> io::Result<()> {
        let shared = Arc::clone(self);
        let file_of = Box::new(move |full_name: &str| shared.model_file(full_name));
        let has = self.lock().pool.model_plans().unwrap_or_default();
        let keeper = Keeper::start(repository, self.socket.clone(), &has, file_of)?;
        drop(self.keeper.set(keeper));
        Ok(())
    }

    /// Loads or unloads a model of the model repository, and calls `answer` when that is done.
    pub(super) fn change_repository(
        &self,
        command: RepositoryCommand,
        answer: impl FnOnce(Result<String, Refusal>) + Send + 'static,
    ) {
        match self.keeper.get() {
            Some(keeper) => keeper.ask(command, answer),
            None => answer(Err(Refusal::NotAllowed(NOT_BY_REQUEST.to_owned()))),
        }
    }
}

/// Sends a signal to a worker, by the name of its process or of its device.
pub(super) fn kill(
    shared: &Shared,
    client: ClientId,
    worker: WorkerSelector,
    signal: i32,
) -> Result<String, Refusal> {
    nix::sys::signal::Signal::try_from(signal)
        .map_err(|_| Refusal::Invalid(format!("{signal} is no signal")))?;
    let mut core = shared.lock();
    let named = match &worker {
        WorkerSelector::Process(name) => core.workers.keys().copied().find(|w| w.name() == *name),
        WorkerSelector::Device(device) => core.pool.worker_on(*device, None),
        WorkerSelector::Group(device, group) => core.pool.worker_on(*device, Some(group)),
    };
    let Some((named, pid)) = named.and_then(|named| Some((named, core.workers.get(&named)?.pid)))
    else {
        let device = match &worker {
            WorkerSelector::Process(_) => None,
            WorkerSelector::Device(device) | WorkerSelector::Group(device, _) => Some(*device),
        };
        if let Some((device, why)) = device.and_then(|id| Some((id, core.pool.why_away(id)?))) {
            return Err(Refusal::Invalid(format!("there is no worker on {device} now: {why}")));
        }
        let own = |worker: &WorkerId| format!("{worker} ({})", core.pool.group_name(worker.group));
        let all: Vec<_> = core.workers.keys().map(own).collect();
        let all = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
        return Err(Refusal::Invalid(format!("there is no worker {worker} now; there are {all}")));
    };
    let link = core.workers.get_mut(&named).expect("it was just found");
    link.signal(signal).map_err(|error| Refusal::Invalid(format!("{named}: {error}")))?;
    link.ordered = Some((client, signal));
    let (worker, why) = (named, "order");
    match signal {
        SIGKILL => tracing::warn!(%worker, %client, why, signal, "killing worker"),
        _ => tracing::warn!(%worker, %client, why, signal, "sending worker a signal"),
    }
    Ok(format!("signal {signal} sent to {named} (pid {pid})"))
}
