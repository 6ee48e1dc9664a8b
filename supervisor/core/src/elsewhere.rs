//! The jobs of the pool whose place this one has taken, which still run there. A submission under the name of one
//! waits until that pool has told how the job ended: so no job runs twice.

use std::collections::BTreeMap;

use gridpool_protocol::handover::JobName;
use gridpool_protocol::ids::{ClientId, JobId, JobKey};

use crate::event::JobRequest;

/// All of them, each with the submission that waits for it.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere(BTreeMap<JobName, Option<Waiting>>);

/// A submission that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) client: ClientId,
    pub(crate) request: Box<JobRequest>,
}

/// What becomes of a submission.
#[derive(Debug)]
pub(crate) enum Held {
    /// Its job is not elsewhere.
    No(Box<JobRequest>),
    /// It waits.
    Waits,
    /// Its client waits for the job already.
    Again(JobId),
    /// Another client waits for the job.
    Taken(Box<JobRequest>),
}

impl Elsewhere {
    /// A job runs there.
    pub(crate) fn begin(&mut self, name: JobName) {
        self.0.entry(name).or_default();
    }

    /// A job runs there no longer; gives the submission that has waited.
    pub(crate) fn end(&mut self, name: &JobName) -> Option<Waiting> {
        self.0.remove(name).flatten()
    }

    /// Nothing runs there any more.
    pub(crate) fn end_all(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.0).into_values().flatten().collect()
    }

    /// Has a submission wait if its job is elsewhere.
    pub(crate) fn hold(&mut self, client: ClientId, request: Box<JobRequest>) -> Held {
        if self.0.is_empty() {
            return Held::No(request);
        }
        match self.0.get_mut(&(request.principal.clone(), request.key)) {
            None => Held::No(request),
            Some(Some(other))
                if other.client == client && other.request.fingerprint == request.fingerprint =>
            {
                Held::Again(request.job)
            }
            Some(Some(_)) => Held::Taken(request),
            Some(free) => {
                *free = Some(Waiting { client, request });
                Held::Waits
            }
        }
    }

    /// The submission of a client that waits under a key. It waits no longer.
    pub(crate) fn take(&mut self, client: ClientId, key: JobKey) -> Option<Waiting> {
        let is_it = |waiting: &mut Waiting| waiting.client == client && waiting.request.key == key;
        self.0.values_mut().find_map(|waiting| waiting.take_if(is_it))
    }

    /// The submissions of a client that is gone.
    pub(crate) fn forget(&mut self, client: ClientId) -> Vec<JobId> {
        let is_its = |waiting: &mut Waiting| waiting.client == client;
        let gone = self.0.values_mut().filter_map(|waiting| waiting.take_if(is_its));
        gone.map(|waiting| waiting.request.job).collect()
    }
}
