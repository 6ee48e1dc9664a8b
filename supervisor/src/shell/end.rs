//! How a pool ends: by itself once it has drained, and what it waits for until its process may end.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use gridpool_core::event::{Event, Helper, HelperEvent};
use gridpool_ipc::clock;
use gridpool_protocol::status::MissingModel;

use super::Shell;
use super::core::Core;

/// How long a pool that has ended waits for clients to read their last verdicts, and for death reports.
pub(super) const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// How long it then waits for capsules to be written.
const CAPSULES_TIMEOUT: Duration = Duration::from_secs(5);

/// How a pool ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was drained or stopped.
    Left,
    /// Every worker refused to start. One sentence for each says why.
    Misconfigured(Vec<String>),
    /// It must have this model, and the model cannot be loaded.
    ModelMissing(MissingModel),
    /// The socket was removed, and could not be opened again: why.
    Displaced(String),
}

impl Shell {
    /// Finishes the accepted jobs, then stops. A second call stops at once, if it comes a second later.
    pub fn drain(&self) {
        self.shared.post(Event::EndRequested);
        self.shared.ended.notify_all();
    }

    /// From now on the pool ends if one of the models of its start cannot be loaded.
    pub fn require_models(&self) {
        self.shared.post(Event::ModelsRequired);
    }

    /// Waits until the pool has ended, and the pool before it; or until it can never serve.
    pub fn wait(&self) -> Ended {
        let mut core = self.shared.lock();
        let ended = loop {
            if core.left {
                core = self.wait_for_predecessor(core);
                break core.displaced.take().map_or(Ended::Left, Ended::Displaced);
            }
            if let Some(faults) = &core.misconfigured {
                break Ended::Misconfigured(faults.clone());
            }
            if let Some(missing) = &core.missing {
                break Ended::ModelMissing(missing.clone());
            }
            core = self.shared.ended.wait(core).unwrap_or_else(PoisonError::into_inner);
        };
        // Wait a moment for the last death reports.
        let is_untold = |core: &mut Core| core.untold > 0;
        let told = self.shared.ended.wait_timeout_while(core, FLUSH_TIMEOUT, is_untold);
        let (core, _) = told.unwrap_or_else(PoisonError::into_inner);
        drop(core);
        if let Some(capsules) = self.shared.capsules.get() {
            capsules.flush(CAPSULES_TIMEOUT);
        }
        let core = self.shared.lock();
        // The process may end before the timing thread runs again.
        self.shared.tell(&core, self.shared.timestamp());
        let outboxes: Vec<_> = core.clients.values().chain(&core.successor).cloned().collect();
        drop(core);
        self.shared.post(Event::Helper(Helper::Monitor, HelperEvent::Unwanted));
        let until = clock::now() + FLUSH_TIMEOUT;
        outboxes.iter().for_each(|outbox| outbox.flush(until));
        // Each may first finish what it has: the bridge gives jobs back, the gateway answers the requests that are
        // open, the tracer sends spans. The core ends that in time.
        self.stop_helper(Helper::Bridge);
        self.stop_helper(Helper::Gateway);
        if let Some(gateway) = self.shared.gateway.get() {
            gateway.close();
        }
        self.stop_helper(Helper::Tracer);
        let mut core = self.shared.lock();
        core.is_over = true;
        self.shared.timer.wake();
        drop(core);
        self.shared.inbox.end();
        if let Some(job_log) = self.shared.job_log.get() {
            job_log.close();
        }
        self.shared.socket_folder.remove_bootstrap_files();
        ended
    }

    /// Waits until the pool before this one has ended: a service manager kills what is left when this process ends. It
    /// has drained for longer, so it need not have more time, and is killed then. An end at once waits for nothing.
    fn wait_for_predecessor<'a>(&'a self, core: MutexGuard<'a, Core>) -> MutexGuard<'a, Core> {
        let is_early = |core: &Core| core.has_predecessor && core.pool.drained_by().is_some();
        if is_early(&core) {
            tracing::info!("the pool before this one still finishes its jobs");
        }
        let drained_in = core.pool.drained_by().map(|by| by.since(self.shared.timestamp()));
        let within = drained_in.unwrap_or_default() + FLUSH_TIMEOUT;
        let waited = self.shared.ended.wait_timeout_while(core, within, |core| is_early(core));
        let (core, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match self.shared.former_pool.get() {
            Some(former) if is_early(&core) => {
                drop(core);
                former.end("this pool has drained");
                self.shared.lock()
            }
            Some(_) | None => core,
        }
    }

    /// Stops a helper, and waits until it has ended.
    fn stop_helper(&self, helper: Helper) {
        self.shared.post(Event::Helper(helper, HelperEvent::Unwanted));
        let is_stopping = |core: &mut Core| core.pool.helper(helper).is_stopping;
        let waited = self.shared.ended.wait_while(self.shared.lock(), is_stopping);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}
