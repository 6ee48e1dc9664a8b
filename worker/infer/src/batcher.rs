//! Which requests of one model run together. Plain data: no clock, no thread; the caller passes the time.
//!
//! There is no batching delay: a free context takes the waiting requests at once, up to the most rows of a
//! run. The first request always goes. Later requests join it if their shapes, apart from rows, are equal. A
//! request with more rows than a run is split over several runs. Requests of one client start in the order
//! they came.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Instant;

/// How much may wait, and how many rows a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Most rows of one run.
    pub(super) rows: u64,
    /// Most requests that wait.
    pub(super) requests: usize,
    /// Most bytes of inputs that wait.
    pub(super) bytes: u64,
}

/// What a request says about itself.
#[derive(Clone, Debug)]
pub(super) struct Entry<T> {
    /// The client.
    pub(super) client: u64,
    /// Its rows, and the shapes beside them; none if it runs alone and whole.
    pub(super) rows: Option<(u64, Shapes)>,
    /// Bytes of its inputs.
    pub(super) bytes: u64,
    /// When it expires.
    pub(super) deadline: Option<Instant>,
    /// The request.
    pub(super) request: T,
}

/// Each input's shape without its first dimension.
pub(super) type Shapes = Vec<Vec<u64>>;

/// A part of a request, to run now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part<T> {
    /// The request.
    pub(super) request: T,
    /// The rows to run; none if the model has no rows.
    pub(super) rows: Option<Range<u64>>,
}

/// Why a request may not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The queue has its most requests.
    #[error(
        "{requests} requests wait for this model already; try again, or allow more (queue_requests)"
    )]
    Requests {
        /// How many wait.
        requests: usize,
    },
    /// The queue has its most bytes.
    #[error(
        "{bytes} bytes wait for this model, {more} more would be over its limit of {limit}; try again, or \
         allow more (queue_bytes)"
    )]
    Bytes {
        /// Bytes that wait.
        bytes: u64,
        /// Bytes of the request.
        more: u64,
        /// The limit.
        limit: u64,
    },
}

#[derive(Debug)]
struct Waiting<T> {
    entry: Entry<T>,
    /// Rows that runs have taken.
    started: u64,
}

impl<T> Waiting<T> {
    fn left(&self) -> u64 {
        self.entry.rows.as_ref().map_or(0, |rows| rows.0 - self.started)
    }

    fn is_late(&self, now: Instant) -> bool {
        self.entry.deadline.is_some_and(|deadline| deadline <= now)
    }
}

/// The queue of one model.
#[derive(Debug)]
pub(super) struct Batcher<T> {
    limits: Limits,
    waiting: VecDeque<Waiting<T>>,
    bytes: u64,
}

impl<T: Clone> Batcher<T> {
    pub(super) fn new(limits: Limits) -> Self {
        assert!(limits.rows > 0, "a run has at least one row");
        Self { limits, waiting: VecDeque::new(), bytes: 0 }
    }

    /// Requests in the queue, including those that have begun and not ended.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a request to the end of the queue.
    pub(super) fn push(&mut self, entry: Entry<T>) -> Result<(), QueueError> {
        let Limits { requests, bytes: limit, .. } = self.limits;
        if self.waiting.len() >= requests {
            return Err(QueueError::Requests { requests: self.waiting.len() });
        }
        // A request that alone exceeds the limit is accepted when no other waits.
        let (bytes, more) = (self.bytes, entry.bytes);
        if !self.waiting.is_empty() && bytes.saturating_add(more) > limit {
            return Err(QueueError::Bytes { bytes, more, limit });
        }
        self.bytes = bytes.saturating_add(more);
        self.waiting.push_back(Waiting { entry, started: 0 });
        Ok(())
    }

    /// Removes requests whose deadline has passed, even if some of their rows have run.
    pub(super) fn late(&mut self, now: Instant) -> Vec<T> {
        self.remove(|waiting| waiting.is_late(now))
    }

    /// Removes requests that `is_meant` selects.
    pub(super) fn withdraw(&mut self, is_meant: impl Fn(&T) -> bool) -> Vec<T> {
        self.remove(|waiting| is_meant(&waiting.entry.request))
    }

    fn remove(&mut self, goes: impl Fn(&Waiting<T>) -> bool) -> Vec<T> {
        if !self.waiting.iter().any(&goes) {
            return Vec::new();
        }
        let (gone, stay): (Vec<_>, Vec<_>) = self.waiting.drain(..).partition(goes);
        self.waiting = stay.into();
        self.bytes = self.waiting.iter().map(|waiting| waiting.entry.bytes).sum();
        gone.into_iter().map(|waiting| waiting.entry.request).collect()
    }

    /// What a free context runs next; empty if no request waits.
    pub(super) fn take(&mut self) -> Vec<Part<T>> {
        let Some(first) = self.waiting.front() else { return Vec::new() };
        let shapes = match &first.entry.rows {
            None => return vec![self.take_whole(0)],
            Some((0, _)) => return vec![self.take_rows(0, 0)],
            Some((_, shapes)) => shapes.clone(),
        };
        let (mut parts, mut rows_left) = (Vec::new(), self.limits.rows);
        let mut blocked = BTreeSet::new();
        let mut at = 0;
        while rows_left > 0 && at < self.waiting.len() {
            let waiting = &self.waiting[at];
            let client = waiting.entry.client;
            let rows = self.rows_to_take(waiting, &shapes, rows_left);
            if rows == 0 || blocked.contains(&client) {
                blocked.insert(client);
                at += 1;
                continue;
            }
            let is_whole = rows == waiting.left();
            parts.push(self.take_rows(at, rows));
            rows_left -= rows;
            if !is_whole {
                // It stays, and so do later requests of its client.
                blocked.insert(client);
                at += 1;
            }
        }
        parts
    }

    /// How many rows of a request join a run of these shapes with `rows_left` to fill.
    fn rows_to_take(&self, waiting: &Waiting<T>, shapes: &Shapes, rows_left: u64) -> u64 {
        let Some((rows, own)) = &waiting.entry.rows else { return 0 };
        if shapes != own {
            return 0;
        }
        let left = waiting.left();
        // A request that fits one run is not split.
        if left <= rows_left || *rows > self.limits.rows { left.min(rows_left) } else { 0 }
    }

    fn take_rows(&mut self, at: usize, rows: u64) -> Part<T> {
        let waiting = &mut self.waiting[at];
        let start = waiting.started;
        waiting.started += rows;
        if waiting.left() > 0 {
            let request = waiting.entry.request.clone();
            return Part { request, rows: Some(start..start + rows) };
        }
        Part { rows: Some(start..start + rows), ..self.take_whole(at) }
    }

    fn take_whole(&mut self, at: usize) -> Part<T> {
        let waiting = self.waiting.remove(at).expect("it waits");
        self.bytes -= waiting.entry.bytes;
        Part { request: waiting.entry.request, rows: None }
    }
}

#[cfg(test)]
mod tests;
