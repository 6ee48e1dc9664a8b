//! The runs of a model that are under way, so that one is ended whose requests nobody wants any more.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::job::Job;
use super::seam::Stop;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Runs {
    running: BTreeMap<u64, Run>,
    begun: u64,
}

#[derive(Debug)]
struct Run {
    stop: Arc<Stop>,
    /// Its requests that someone wants. The last of them stays: it is answered when the run has ended.
    wanted: Vec<Arc<Job>>,
    is_stopped: bool,
}

impl Runs {
    /// A run over these requests begins. Returns its number.
    pub(super) fn begin(&mut self, wanted: Vec<Arc<Job>>, stop: &Arc<Stop>) -> u64 {
        self.begun += 1;
        let run = Run { stop: Arc::clone(stop), wanted, is_stopped: false };
        self.running.insert(self.begun, run);
        self.begun
    }

    /// Nobody wants a request any more. Stops the runs that have no other. Returns the request if it is to be
    /// answered now: its rows run on with those of others.
    pub(super) fn withdraw(&mut self, id: u64) -> Option<Arc<Job>> {
        let (mut found, mut stops) = (None, false);
        for run in self.running.values_mut() {
            let Some(at) = run.wanted.iter().position(|job| job.id == id) else { continue };
            if run.wanted.len() > 1 {
                found = Some(run.wanted.remove(at));
            } else {
                run.stop.stop();
                run.is_stopped = true;
                stops = true;
            }
        }
        found.filter(|_| !stops)
    }

    /// Whether a run will answer a request that nobody wants any more.
    pub(super) fn stops(&self, id: u64) -> bool {
        let mut stopped = self.running.values().filter(|run| run.is_stopped);
        stopped.any(|run| run.wanted.iter().any(|job| job.id == id))
    }

    /// A run has ended. Returns whether it was stopped.
    pub(super) fn end(&mut self, number: u64) -> bool {
        self.running.remove(&number).is_some_and(|run| run.is_stopped)
    }
}
