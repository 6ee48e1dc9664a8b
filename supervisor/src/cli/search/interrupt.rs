//! Ctrl-C and SIGTERM: the first ends the search, which prints what is known; the second ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use gridpool_client::SearchStopper;
use gridpool_ipc::mutex::Mutex;
use nix::sys::signal::{SigSet, Signal, raise};

use crate::cli::error::{CommandError, system};

/// Whether one of them has come, and what it ends.
pub(in crate::cli) struct Interrupt(Arc<Shared>);

#[derive(Default)]
struct Shared {
    has_come: AtomicBool,
    /// The first ends the process, as without this.
    is_final: AtomicBool,
    stopper: Mutex<Option<SearchStopper>>,
}

impl Interrupt {
    /// From now on a thread of its own gets the signals. Call this before any other thread starts, since threads
    /// inherit the blocked signals.
    pub(in crate::cli) fn new() -> Result<Self, CommandError> {
        let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
        let blocked = signals.thread_block().map_err(std::io::Error::from);
        blocked.map_err(system("the signals"))?;
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let wait = move || {
            let Ok(mut signal) = signals.wait() else { return };
            own.has_come.store(true, Ordering::SeqCst);
            if let Some(stopper) = &*own.stopper.lock() {
                stopper.stop();
            }
            if !own.is_final.load(Ordering::SeqCst) {
                let Ok(second) = signals.wait() else { return };
                signal = second;
            }
            if let Err(errno) = signals.thread_unblock().and_then(|()| raise(signal)) {
                tracing::error!(%errno, "cannot end this process");
            }
        };
        let spawned = thread::Builder::new().name("interrupt".into()).spawn(wait);
        spawned.map_err(system("a thread for signals"))?;
        Ok(Self(shared))
    }

    /// Ends this search when it comes, or at once if it has come.
    pub(super) fn stops(&self, stopper: SearchStopper) {
        let mut kept = self.0.stopper.lock();
        if self.has_come() {
            stopper.stop();
        }
        *kept = Some(stopper);
    }

    /// From now on the first ends the process too, or only the second.
    pub(in crate::cli) fn set_final(&self, is_final: bool) {
        self.0.is_final.store(is_final, Ordering::SeqCst);
    }

    pub(in crate::cli) fn has_come(&self) -> bool {
        self.0.has_come.load(Ordering::SeqCst)
    }
}
