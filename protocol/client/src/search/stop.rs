//! Ends a search from another thread, such as one that waits for Ctrl-C.

use std::sync::Arc;

use gridpool_ipc::mutex::Mutex;

use super::pipeline::Pipeline;
use crate::Canceller;

/// Ends a search. Its stream then gives the results that are known, and no more.
#[derive(Clone, Debug)]
pub struct SearchStopper {
    pipeline: Arc<Pipeline>,
    waiting: Arc<Mutex<Waiting>>,
}

/// The job whose verdict the stream waits for.
#[derive(Debug, Default)]
struct Waiting {
    stopped: bool,
    job: Option<Canceller>,
}

impl SearchStopper {
    pub(super) fn new(pipeline: Arc<Pipeline>) -> Self {
        Self { pipeline, waiting: Arc::default() }
    }

    /// Reads no more programs, and cancels what runs.
    pub fn stop(&self) {
        let job = {
            let mut waiting = self.waiting.lock();
            waiting.stopped = true;
            waiting.job.take()
        };
        self.pipeline.stop();
        if let Some(job) = job {
            job.cancel();
        }
    }

    /// Whether it was stopped.
    pub(super) fn is_stopped(&self) -> bool {
        self.waiting.lock().stopped
    }

    /// Notes the job that is waited for now. Returns whether to wait.
    pub(super) fn waits_for(&self, job: Canceller) -> bool {
        let mut waiting = self.waiting.lock();
        waiting.job = Some(job);
        !waiting.stopped
    }
}
