//! The jobs of a search that were sent, in the order of their programs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use super::convict::Sent;
use super::job::JobTerms;
use super::plan::{Entry, Slot};
use super::stop::{Permit, SearchStopper};
use super::summary::SearchSummary;
use super::template::Expandable;
use crate::{Client, ClientError};

/// Programs on their way through the pool.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) entries: Vec<Entry>,
    /// Whose programs they are, if they have no entries.
    pub(super) template: Option<Arc<Expandable>>,
    pub(super) first_slot: Slot,
    /// Its job; none if it has no program of its own.
    pub(super) sent: Option<Sent>,
    /// Until its outcomes are known.
    pub(super) permit: Permit,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) client: Client,
    /// Of each job.
    pub(super) terms: JobTerms,
    pub(super) stopper: SearchStopper,
    pub(super) summary: SearchSummary,
    /// `None` once the search has ended.
    batches: Option<Receiver<Result<Batch, ClientError>>>,
    /// Those whose answers were heard before their turn.
    ahead: VecDeque<Result<Batch, ClientError>>,
    /// Jobs and parts that were heard and had run until their deadline.
    pub(super) late: u64,
}

impl Queue {
    pub(super) fn new(
        client: Client,
        terms: JobTerms,
        stopper: SearchStopper,
        batches: Receiver<Result<Batch, ClientError>>,
    ) -> Self {
        let summary = SearchSummary::default();
        let (batches, ahead) = (Some(batches), VecDeque::new());
        Self { client, terms, stopper, summary, batches, ahead, late: 0 }
    }

    /// Waits for the next batch; `None` if there are no more.
    pub(super) fn next(&mut self) -> Option<Result<Batch, ClientError>> {
        self.ahead.pop_front().or_else(|| self.batches.as_ref()?.recv().ok())
    }

    /// Waits for the answer of the next job before its turn, so that its shared memory is free. Returns whether there
    /// was a job.
    pub(super) fn hear_ahead(&mut self) -> bool {
        let Some(batches) = &self.batches else { return false };
        let received = match batches.try_recv() {
            Ok(received) => received,
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => return false,
        };
        // An error has its turn too.
        let heard = received.and_then(|Batch { entries, template, first_slot, sent, permit }| {
            let sent = sent.map(|sent| self.hear(sent)).transpose()?;
            Ok(Batch { entries, template, first_slot, sent, permit })
        });
        self.ahead.push_back(heard);
        true
    }

    /// Ends every thread, and cancels what is under way.
    pub(super) fn end(&mut self) {
        self.summary.count_undecided(self.stopper.end());
        self.batches = None;
        self.ahead.clear();
    }
}
