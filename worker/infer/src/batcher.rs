//! Which requests of one model run together, and when. Plain data: no clock, no thread; the caller passes the time.
//!
//! Without a batching delay a free context takes the waiting requests at once, up to the most rows of a run. The
//! first request goes first. Later requests join it if their shapes, apart from rows, are equal. A request with more
//! rows than a run is split over several runs. Requests of one client start by priority, and then in the order they
//! came; a priority moves no request of another client.
//!
//! With a delay, a run that could have more rows waits for them, until a request of it has waited for that long or its
//! deadline is near. A run that is full, or has a preferred number of rows, starts at once. Requests of other shapes
//! do not wait behind a run that waits.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

use gridpool_protocol::message::Priority;

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

/// How long a run waits for more rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Delay {
    /// Longest time that a request waits for others.
    pub(super) longest: Duration,
    /// Numbers of rows with which a run starts at once.
    pub(super) preferred: BTreeSet<u64>,
}

/// What a free context does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next<T> {
    /// It runs these parts together.
    Run(Vec<Part<T>>),
    /// It asks again at this time, or when a request comes.
    Wait(Instant),
    /// No request waits.
    Nothing,
}

/// What a request says about itself.
#[derive(Clone, Debug)]
pub(super) struct Entry<T> {
    /// The client.
    pub(super) client: u64,
    /// Its priority among those of its client.
    pub(super) priority: Priority,
    /// Its rows, and the shapes beside them; none if it runs alone and whole.
    pub(super) rows: Option<(u64, Shapes)>,
    /// Bytes of its inputs.
    pub(super) bytes: u64,
    /// When it came.
    pub(super) arrived: Instant,
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

    /// Whether its rows may join those of these shapes.
    fn is_of(&self, shapes: &Shapes) -> bool {
        self.entry.rows.as_ref().is_some_and(|(_, own)| own == shapes)
    }

    fn is_late(&self, now: Instant) -> bool {
        self.entry.deadline.is_some_and(|deadline| deadline <= now)
    }
}

/// A run that could start.
#[derive(Debug)]
struct Plan {
    /// Places in the queue, in order, and how many rows of each go.
    shares: Vec<(usize, u64)>,
    /// When it starts if no request comes; `None` if it starts at once.
    starts: Option<Instant>,
}

/// The queue of one model.
#[derive(Debug)]
pub(super) struct Batcher<T> {
    limits: Limits,
    delay: Delay,
    /// The longest of the recent runs.
    run_time: Duration,
    waiting: VecDeque<Waiting<T>>,
    bytes: u64,
}

/// A run that takes a part of `run_time` less shortens it by one part in so many.
const RUN_TIME_FORGETS: u32 = 8;
/// A request does not wait for others when less than so many runs fit before its deadline.
const RUNS_BEFORE_DEADLINE: u32 = 2;

impl<T: Clone> Batcher<T> {
    pub(super) fn new(limits: Limits) -> Self {
        assert!(limits.rows > 0, "a run has at least one row");
        let (waiting, run_time) = (VecDeque::new(), Duration::ZERO);
        Self { limits, delay: Delay::default(), run_time, waiting, bytes: 0 }
    }

    /// Lets runs wait for more rows. `run_time` is how long a run may take.
    pub(super) fn with_delay(self, delay: Delay, run_time: Duration) -> Self {
        Self { delay, run_time, ..self }
    }

    /// From now on no run waits for more rows.
    pub(super) fn end_delay(&mut self) {
        self.delay.longest = Duration::ZERO;
    }

    /// A run took this long.
    pub(super) fn ran(&mut self, took: Duration) {
        self.run_time = took.max(self.run_time - self.run_time / RUN_TIME_FORGETS);
    }

    /// Requests in the queue, including those that have begun and not ended.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a request to the end of the queue. Requests of its client that have a lower priority and have not begun
    /// then stand after it, each at the next place that the client has.
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
        let (client, priority) = (entry.client, entry.priority);
        let mut own = self.waiting.len();
        self.waiting.push_back(Waiting { entry, started: 0 });
        for at in (0..own).rev() {
            let other = &self.waiting[at];
            if other.entry.client != client {
                continue;
            }
            if other.entry.priority <= priority || other.started > 0 {
                break;
            }
            self.waiting.swap(at, own);
            own = at;
        }
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

    /// What a free context does now.
    pub(super) fn take(&mut self, now: Instant) -> Next<T> {
        // Clients whose next request waits for others.
        let mut blocked = BTreeSet::new();
        let mut wait: Option<Instant> = None;
        for first in 0..self.waiting.len() {
            if blocked.contains(&self.waiting[first].entry.client) {
                continue;
            }
            let plan = self.plan(first, &blocked);
            match plan.starts.filter(|&starts| starts > now) {
                None => return Next::Run(self.begin(&plan)),
                Some(starts) => wait = Some(wait.map_or(starts, |wait| wait.min(starts))),
            }
            blocked.extend(plan.shares.iter().map(|&(at, _)| self.waiting[at].entry.client));
        }
        wait.map_or(Next::Nothing, Next::Wait)
    }

    /// The run that the request at `first` begins.
    fn plan(&self, first: usize, blocked: &BTreeSet<u64>) -> Plan {
        let shapes = match &self.waiting[first].entry.rows {
            None | Some((0, _)) => return Plan { shares: vec![(first, 0)], starts: None },
            Some((_, shapes)) => shapes,
        };
        let (mut shares, mut rows_left) = (Vec::new(), self.limits.rows);
        let mut blocked = blocked.clone();
        let (mut preferred, mut is_full) = (None, false);
        for (at, waiting) in self.waiting.iter().enumerate().skip(first) {
            let client = waiting.entry.client;
            let rows = self.rows_to_take(waiting, shapes, rows_left);
            if rows == 0 || blocked.contains(&client) {
                is_full |= rows_left < waiting.left() && waiting.is_of(shapes);
                blocked.insert(client);
                continue;
            }
            shares.push((at, rows));
            rows_left -= rows;
            if self.delay.preferred.contains(&(self.limits.rows - rows_left)) {
                preferred = Some(shares.len());
            }
            if rows < waiting.left() {
                // It stays, and so do later requests of its client.
                blocked.insert(client);
            }
            if rows_left == 0 {
                return Plan { shares, starts: None };
            }
        }
        if let Some(length) = preferred {
            shares.truncate(length);
        }
        let is_ready = is_full || preferred.is_some() || self.delay.longest.is_zero();
        let starts = if is_ready { None } else { self.starts_at(&shares) };
        Plan { shares, starts }
    }

    /// When a run of these shares starts, if nothing joins it. Later requests of its clients start after it, so their
    /// deadlines count too.
    fn starts_at(&self, shares: &[(usize, u64)]) -> Option<Instant> {
        let clients: BTreeSet<_> =
            shares.iter().map(|&(at, _)| self.waiting[at].entry.client).collect();
        let theirs = self.waiting.iter().filter(|waiting| clients.contains(&waiting.entry.client));
        theirs.map(|waiting| self.starts(waiting)).min()
    }

    /// When a request starts at the latest, alone if it must: before half of its time has passed, since a thread on a
    /// busy machine wakes late, and in time for its run.
    fn starts(&self, waiting: &Waiting<T>) -> Instant {
        let Entry { arrived, deadline, .. } = waiting.entry;
        let starts = arrived + self.delay.longest;
        let Some(deadline) = deadline else { return starts };
        let half = arrived + deadline.saturating_duration_since(arrived) / 2;
        let latest = deadline.checked_sub(self.run_time * RUNS_BEFORE_DEADLINE);
        starts.min(half).min(latest.unwrap_or(arrived))
    }

    /// Takes the parts of a run from the queue.
    fn begin(&mut self, plan: &Plan) -> Vec<Part<T>> {
        let mut gone = 0;
        let part = |&(at, rows): &(usize, u64)| {
            let (at, before) = (at - gone, self.waiting.len());
            let part = match self.waiting[at].entry.rows {
                None => self.take_whole(at),
                Some(_) => self.take_rows(at, rows),
            };
            gone += before - self.waiting.len();
            part
        };
        plan.shares.iter().map(part).collect()
    }

    /// How many rows of a request join a run of these shapes with `rows_left` to fill.
    fn rows_to_take(&self, waiting: &Waiting<T>, shapes: &Shapes, rows_left: u64) -> u64 {
        let Some((rows, _)) = &waiting.entry.rows else { return 0 };
        if !waiting.is_of(shapes) {
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
