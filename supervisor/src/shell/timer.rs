//! The one thread that waits for time to pass.

use std::sync::{Condvar, PoisonError};

use super::Shared;
use gridpool_core::event::{Event, Timestamp};

/// Wakes the timing thread when the core wants to be called sooner than it sleeps.
#[derive(Debug, Default)]
pub(super) struct Timer {
    changed: Condvar,
}

impl Timer {
    /// Wakes the timing thread if it sleeps beyond `next`, and returns whether it did. The thread may wake too
    /// early, so a deadline that moves back costs no system call.
    pub(super) fn rearm(&self, armed: Option<Timestamp>, next: Option<Timestamp>) -> bool {
        let sooner = match (armed, next) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(armed), Some(next)) => next < armed,
        };
        if sooner {
            self.changed.notify_all();
        }
        sooner
    }

    /// Wakes the timing thread: its deadline has changed, or the pool is over.
    pub(super) fn wake(&self) {
        self.changed.notify_all();
    }
}

/// The body of the timing thread. It ends with the pool.
pub(super) fn serve(shared: &Shared) {
    let mut core = shared.lock();
    while !core.is_over {
        let now = shared.timestamp();
        let look = shared.notifier(&core).map(|notifier| notifier.due());
        let deadline = core.pool.poll_deadline().into_iter().chain(look).min();
        if deadline.is_some_and(|at| at <= now) {
            core.handle(shared, now, Event::TimePassed);
            if let Some(mut notifier) = shared.notifier(&core) {
                notifier.tell(now, &core.pool);
                notifier.ping(now);
            }
            continue;
        }
        core.armed = deadline;
        let changed = &shared.timer.changed;
        core = match deadline {
            Some(at) => {
                let waited = changed.wait_timeout(core, at.since(now));
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => changed.wait(core).unwrap_or_else(PoisonError::into_inner),
        };
    }
}
