//! What a bridge counts, and whether it is to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gridpool_nats::HostCounts;
use tokio::sync::watch;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) taken: AtomicU64,
    pub(crate) redelivered: AtomicU64,
    pub(crate) published: AtomicU64,
    pub(crate) duplicates: AtomicU64,
    pub(crate) unwanted: AtomicU64,
    pub(crate) known: AtomicU64,
    pub(crate) given_back: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) fetched_bytes: AtomicU64,
    pub(crate) batches_reused: AtomicU64,
    running: watch::Sender<u64>,
    stopping: watch::Sender<bool>,
    leaving: watch::Sender<bool>,
    listed: watch::Sender<bool>,
}

/// A job that is here.
#[derive(Debug)]
pub(crate) struct Running(Arc<Counts>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running -= 1);
    }
}

impl Default for Counts {
    fn default() -> Self {
        let zero = AtomicU64::default;
        Self {
            taken: zero(),
            redelivered: zero(),
            published: zero(),
            duplicates: zero(),
            unwanted: zero(),
            known: zero(),
            given_back: zero(),
            late: zero(),
            fetched_bytes: zero(),
            batches_reused: zero(),
            running: watch::Sender::new(0),
            stopping: watch::Sender::new(false),
            leaving: watch::Sender::new(false),
            listed: watch::Sender::new(false),
        }
    }
}

/// Adds one.
pub(crate) fn count(number: &AtomicU64) {
    number.fetch_add(1, Ordering::Relaxed);
}

impl Counts {
    pub(crate) fn now(&self) -> HostCounts {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        HostCounts {
            running: *self.running.borrow(),
            taken: read(&self.taken),
            redelivered: read(&self.redelivered),
            published: read(&self.published),
            duplicates: read(&self.duplicates),
            unwanted: read(&self.unwanted),
            known: read(&self.known),
            given_back: read(&self.given_back),
            late: read(&self.late),
            fetched_bytes: read(&self.fetched_bytes),
            batches_reused: read(&self.batches_reused),
        }
    }

    /// A job is here, until what this returns is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Running {
        self.running.send_modify(|running| *running += 1);
        Running(Arc::clone(self))
    }

    /// The bridge is to end: jobs are given back.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// The bridge takes no more jobs, and finishes those that it has.
    pub(crate) fn leave(&self) {
        self.leaving.send_replace(true);
    }

    pub(crate) fn is_leaving(&self) -> bool {
        *self.leaving.borrow()
    }

    /// Whether the bridge is to end.
    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Whether no more jobs are to be taken.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_leaving() || self.is_stopping()
    }

    /// Whether it has done so.
    pub(crate) fn has_left(&self) -> bool {
        self.is_leaving() && *self.running.borrow() == 0
    }

    /// Waits until no more jobs are to be taken.
    pub(crate) async fn leaving(&self) {
        let mut leaving = self.leaving.subscribe();
        let leaving = leaving.wait_for(|leaving| *leaving);
        tokio::select! {
            _ = leaving => {}
            () = self.stopping() => {}
        }
    }

    /// Waits until the bridge is to end.
    pub(crate) async fn stopping(&self) {
        let mut stopping = self.stopping.subscribe();
        // The sender lives as long as self.
        drop(stopping.wait_for(|stopping| *stopping).await);
    }

    /// The cluster lists this host from now on, or does not.
    pub(crate) fn list(&self, is_listed: bool) {
        self.listed.send_replace(is_listed);
    }

    /// Waits until the cluster does not list this host.
    pub(crate) async fn unlisted(&self) {
        let mut listed = self.listed.subscribe();
        drop(listed.wait_for(|is| !is).await);
    }

    /// Waits until no job is here any more.
    pub(crate) async fn given_back(&self) {
        let mut running = self.running.subscribe();
        drop(running.wait_for(|running| *running == 0).await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_panics_is_here_no_more() {
        let counts = Arc::new(Counts::default());
        let running = counts.begin();
        assert_eq!(counts.now().running, 1);
        let job = std::thread::spawn(move || {
            let _running = running;
            panic!("a job");
        });
        assert!(job.join().is_err());
        assert_eq!(counts.now().running, 0);
    }
}
