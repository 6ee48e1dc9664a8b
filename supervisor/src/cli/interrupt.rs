//! Ctrl-C and SIGTERM: the first stops the work, so that the command prints what is known; where nothing is under way,
//! and the second time, it ends the process.

use std::io;
use std::mem;
use std::sync::Arc;
use std::thread;

use gridpool_ipc::mutex::Mutex;
use nix::sys::signal::{SigSet, Signal, raise};

use super::error::{CommandError, system};

/// What stops the work.
type Stop = Box<dyn FnOnce() + Send>;

/// Whether one of them has come, and what it stops.
#[derive(Clone)]
pub(super) struct Interrupt(Arc<Mutex<State>>);

enum State {
    /// The next one ends the process.
    Ends,
    Stops(Stop),
    HasCome,
}

impl Interrupt {
    /// From now on a thread of its own gets the signals. Call this before any other thread starts, since threads
    /// inherit the blocked signals.
    pub(super) fn new() -> Result<Self, CommandError> {
        let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
        let blocked = signals.thread_block().map_err(io::Error::from);
        blocked.map_err(system("the signals"))?;
        let this = Self(Arc::new(Mutex::new(State::Ends)));
        let own = this.clone();
        let wait = move || {
            let Ok(mut signal) = signals.wait() else { return };
            let state = mem::replace(&mut *own.0.lock(), State::HasCome);
            if let State::Stops(stop) = state {
                stop();
                let Ok(second) = signals.wait() else { return };
                signal = second;
            }
            // A shell's background jobs ignore SIGINT: those the other ends.
            let end = || [signal, Signal::SIGTERM].into_iter().try_for_each(raise);
            if let Err(errno) = signals.thread_unblock().and_then(|()| end()) {
                tracing::error!(%errno, "cannot end this process");
            }
        };
        let spawned = thread::Builder::new().name("interrupt".into()).spawn(wait);
        spawned.map_err(system("a thread for signals"))?;
        Ok(this)
    }

    /// Calls this when it comes, or at once if it has come.
    pub(super) fn stops(&self, stop: impl FnOnce() + Send + 'static) {
        let mut state = self.0.lock();
        match *state {
            State::Ends | State::Stops(_) => *state = State::Stops(Box::new(stop)),
            State::HasCome => {
                drop(state);
                stop();
            }
        }
    }

    /// Nothing is under way now.
    pub(super) fn ends(&self) {
        let mut state = self.0.lock();
        if let State::Stops(_) = *state {
            *state = State::Ends;
        }
    }

    pub(super) fn has_come(&self) -> bool {
        matches!(*self.0.lock(), State::HasCome)
    }
}
