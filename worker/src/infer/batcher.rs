//! Which requests of one model run together. Plain data: no clock, no thread; whoever asks says what
//! time it is.
//!
//! It keeps nothing back: a context that asks gets at once whatever waits, up to the most rows of a run.
//! The first request always goes, and takes with it those behind it that have the same shapes beside
//! their rows. A request with more rows than a run has is handed out in parts, over several runs.
//! Requests of one client start in the order they came: nobody is taken past an earlier request of the
//! same client that stays behind.

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
    /// Whose it is.
    pub(super) client: u64,
    /// Its rows, and the shapes beside them; none if it runs alone and whole.
    pub(super) rows: Option<(u64, Shapes)>,
    /// Bytes of its inputs.
    pub(super) bytes: u64,
    /// When it is late.
    pub(super) deadline: Option<Instant>,
    /// The request.
    pub(super) request: T,
}

/// Of every input, the shape without its first dimension.
pub(super) type Shapes = Vec<Vec<u64>>;

/// A part of a request, to run now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part<T> {
    /// The request.
    pub(super) request: T,
    /// Which of its rows; none if it has none.
    pub(super) rows: Option<Range<u64>>,
}

/// Why a request may not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// There are as many as may wait.
    #[error(
        "{requests} requests wait for this model already; try again, or allow more (queue_requests)"
    )]
    Requests {
        /// How many wait.
        requests: usize,
    },
    /// Their inputs are as large as may wait.
    #[error(
        "{bytes} bytes wait for this model, {more} more would be over its limit of {limit}; try again, or \
         allow more (queue_bytes)"
    )]
    Bytes {
        /// How many wait.
        bytes: u64,
        /// How many the request has.
        more: u64,
        /// How many may wait.
        limit: u64,
    },
}

#[derive(Debug)]
struct Waiting<T> {
    entry: Entry<T>,
    /// Rows that were handed out.
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

    /// How many wait, those that have begun and not ended included.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Puts a request behind all others.
    pub(super) fn push(&mut self, entry: Entry<T>) -> Result<(), QueueError> {
        let Limits { requests, bytes: limit, .. } = self.limits;
        if self.waiting.len() >= requests {
            return Err(QueueError::Requests { requests: self.waiting.len() });
        }
        // A request that is larger than the limit by itself may still come when nobody else waits.
        let (bytes, more) = (self.bytes, entry.bytes);
        if !self.waiting.is_empty() && bytes.saturating_add(more) > limit {
            return Err(QueueError::Bytes { bytes, more, limit });
        }
        self.bytes = bytes.saturating_add(more);
        self.waiting.push_back(Waiting { entry, started: 0 });
        Ok(())
    }

    /// Takes out those that are late, begun or not.
    pub(super) fn late(&mut self, now: Instant) -> Vec<T> {
        self.remove(|waiting| waiting.is_late(now))
    }

    /// Takes out those that `is_meant`.
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

    /// What a free context runs now; nothing if nothing waits.
    pub(super) fn take(&mut self) -> Vec<Part<T>> {
        let Some(first) = self.waiting.front() else { return Vec::new() };
        let shapes = match &first.entry.rows {
            None => return vec![self.take_whole(0)],
            Some((0, _)) => return vec![self.take_rows(0, 0)],
            Some((_, shapes)) => shapes.clone(),
        };
        let (mut parts, mut room) = (Vec::new(), self.limits.rows);
        let mut blocked = BTreeSet::new();
        let mut at = 0;
        while room > 0 && at < self.waiting.len() {
            let waiting = &self.waiting[at];
            let client = waiting.entry.client;
            let rows = self.rows_to_take(waiting, &shapes, room);
            if rows == 0 || blocked.contains(&client) {
                blocked.insert(client);
                at += 1;
                continue;
            }
            let is_whole = rows == waiting.left();
            parts.push(self.take_rows(at, rows));
            room -= rows;
            if !is_whole {
                // It is still there, and so is whatever its client sent after it.
                blocked.insert(client);
                at += 1;
            }
        }
        parts
    }

    /// How many rows of a request join a run of these shapes that has so much room.
    fn rows_to_take(&self, waiting: &Waiting<T>, shapes: &Shapes, room: u64) -> u64 {
        let Some((rows, own)) = &waiting.entry.rows else { return 0 };
        if shapes != own {
            return 0;
        }
        let left = waiting.left();
        // One that fits a run is not torn apart.
        if left <= room || *rows > self.limits.rows { left.min(room) } else { 0 }
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
