//! Kills a worker that keeps the supervisor waiting. `send` of ipc-channel blocks while a channel is full, and the
//! core is locked meanwhile. A worker's channel is full only if the worker answers what it has not read.
//!
//! One thread looks at all workers. It takes no lock, so no send can keep it from its work.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use gridpool_ipc::clock;
use gridpool_protocol::ids::WorkerId;
use nix::libc;

use super::pidfd::PidFd;

/// A send that is under way at two looks is stuck.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A look that is later than this comes after a stop of the whole supervisor, in which no send went on either.
const LATE_MAX: Duration = Duration::from_millis(500);

/// The sends to one worker. Its numbers guard no data, so relaxed ordering suffices.
#[derive(Debug)]
pub(super) struct Sends {
    worker: WorkerId,
    pidfd: PidFd,
    /// Sends begun and sends ended; odd while one is under way.
    count: AtomicU64,
    /// The worker was killed because of one.
    is_stuck: AtomicBool,
}

impl Sends {
    pub(super) fn new(worker: WorkerId, pidfd: PidFd) -> Self {
        Self { worker, pidfd, count: AtomicU64::new(0), is_stuck: AtomicBool::new(false) }
    }

    /// The process.
    pub(super) fn pidfd(&self) -> &PidFd {
        &self.pidfd
    }

    /// Sends something, under watch; one at a time.
    pub(super) fn during<T>(&self, send: impl FnOnce() -> T) -> T {
        self.count.fetch_add(1, Ordering::Relaxed);
        let sent = send();
        self.count.fetch_add(1, Ordering::Relaxed);
        sent
    }

    /// Whether the worker was killed because it did not read.
    pub(super) fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Relaxed)
    }

    /// Kills the worker if a send is under way that was so at the last look, whose count was `last`.
    fn look(&self, last: u64) -> u64 {
        let count = self.count.load(Ordering::Relaxed);
        let is_stuck = count % 2 == 1 && count == last;
        if is_stuck && !self.is_stuck.swap(true, Ordering::Relaxed) {
            let worker = self.worker;
            match self.pidfd.send_signal(libc::SIGKILL) {
                Ok(()) => tracing::error!(%worker, "it does not read its channel; it is killed"),
                Err(error) => {
                    tracing::error!(%worker, %error, "it does not read, and cannot be killed");
                }
            }
        }
        count
    }
}

/// Asks the looking thread.
#[derive(Debug)]
pub(super) struct SendWatch(Sender<Weak<Sends>>);

impl SendWatch {
    /// Starts the thread. It ends when this is dropped.
    pub(super) fn start() -> io::Result<Self> {
        let (watch, sends) = crossbeam_channel::unbounded();
        thread::Builder::new().name("sends".into()).spawn(move || look_at_all(&sends))?;
        Ok(Self(watch))
    }

    /// Watches the sends to one more worker, until they are dropped.
    pub(super) fn watch(&self, sends: &Arc<Sends>) {
        // The thread lives as long as this.
        drop(self.0.send(Arc::downgrade(sends)));
    }
}

/// The body of the thread.
fn look_at_all(more: &Receiver<Weak<Sends>>) {
    let mut all: Vec<(Weak<Sends>, u64)> = Vec::new();
    let mut next = clock::now() + LOOK_EVERY;
    loop {
        match more.recv_deadline(next) {
            Ok(sends) => all.push((sends, 0)),
            Err(RecvTimeoutError::Timeout) => {
                let is_late = clock::now() > next + LATE_MAX;
                all.retain_mut(|(sends, last)| {
                    let sends = sends.upgrade();
                    let before = if is_late { 0 } else { *last };
                    *last = sends.as_ref().map_or(0, |sends| sends.look(before));
                    sends.is_some()
                });
                next = clock::now() + LOOK_EVERY;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
