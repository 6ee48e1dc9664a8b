//! Makes points of successive samples of the pool, each of which has its time. Pure.

use std::collections::BTreeMap;

use gridpool_protocol::ids::Role;
use gridpool_protocol::metrics::{Histogram, RoleMetrics};
use gridpool_protocol::status::{Counters, WorkerState};
use gridpool_protocol::timeline::{ByRole, Point, SHARES};

use super::{NOTHING, Timeline};

/// Lengths of points, milliseconds.
const FINE_MS: u64 = 1_000;
const COARSE_MS: u64 = 10_000;
/// A sample that comes so little early ends its point too.
const EARLY_MS: u64 = 100;

/// What a device does with a group, the gravest last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Doing {
    /// It had no worker.
    #[default]
    Nothing,
    Ready,
    Busy,
    /// A worker starts or ends, or waits for its start.
    Changing,
    /// A worker was replaced.
    Restarted,
    /// The device is out of service.
    Out,
}

impl Doing {
    fn of(state: WorkerState) -> Self {
        match state {
            WorkerState::Stopped => Self::Nothing,
            WorkerState::Ready | WorkerState::Standby => Self::Ready,
            WorkerState::Busy => Self::Busy,
            WorkerState::Backoff | WorkerState::Starting | WorkerState::Stopping => Self::Changing,
            WorkerState::Quarantined | WorkerState::Unkillable => Self::Out,
        }
    }

    /// The letter in a point.
    fn letter(self) -> char {
        match self {
            Self::Nothing => NOTHING,
            Self::Ready => 'r',
            Self::Busy => 'b',
            Self::Changing => 'c',
            Self::Restarted => 'd',
            Self::Out => 'o',
        }
    }
}

/// A worker, or a device without one.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// `gpu0`.
    pub(crate) device: String,
    pub(crate) group: String,
    pub(crate) state: WorkerState,
    pub(crate) restarts: u32,
    /// How busy the device is.
    pub(crate) busy_percent: Option<f64>,
}

/// The pool at one moment.
pub(crate) struct Sample<'a> {
    /// Milliseconds since 1970.
    pub(crate) at_ms: u64,
    pub(crate) counters: &'a Counters,
    /// Jobs that wait.
    pub(crate) queue: u64,
    pub(crate) workers: &'a [Seen],
    pub(crate) roles: &'a [RoleMetrics],
}

/// The timeline of a pool, and what the next points are made of.
#[derive(Debug)]
pub(crate) struct Recorder {
    timeline: Timeline,
    fine: Next,
    coarse: Next,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::after(Timeline::default())
    }
}

impl Recorder {
    /// Goes on where another has ended.
    pub(crate) fn after(timeline: Timeline) -> Self {
        Self { timeline, fine: Next::new(FINE_MS), coarse: Next::new(COARSE_MS) }
    }

    pub(crate) fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Takes the next sample in.
    pub(crate) fn take(&mut self, sample: &Sample<'_>) {
        let Self { timeline, fine, coarse } = self;
        let now = Moment::of(sample, timeline);
        if let Some(point) = fine.take(&now) {
            timeline.fine.push(point);
        }
        let Some(point) = coarse.take(&now) else { return };
        timeline.coarse.push(point);
        let Timeline { lines, fine: seconds, coarse: hour } = timeline;
        lines.forget(|line| {
            let is_told = seconds.has(line) || hour.has(line);
            !is_told && !now.lines.contains_key(&line) && !fine.has(line) && !coarse.has(line)
        });
    }
}

/// What a sample says that a point is made of.
#[derive(Clone, Debug, Default)]
struct Moment {
    at_ms: u64,
    verdicts: [u64; 6],
    accepted: u64,
    refused: u64,
    queue: u64,
    queues: ByRole<u64>,
    /// Of each role, how long its jobs waited, were worked on, and took in all.
    times: ByRole<Option<[Histogram; 3]>>,
    /// By line: what it does, how busy its device is, and how many workers were replaced.
    lines: BTreeMap<usize, (Doing, Option<f64>, u64)>,
}

impl Moment {
    fn of(sample: &Sample<'_>, timeline: &mut Timeline) -> Self {
        let Sample { at_ms, counters, queue, workers, roles } = sample;
        let own = Role::ALL.map(|role| roles.iter().find(|own| own.role == role));
        let mut moment = Self {
            at_ms: *at_ms,
            verdicts: counters.verdicts().map(|(_, count)| count),
            accepted: counters.accepted,
            refused: counters.refused_busy + counters.refused_poison,
            queue: *queue,
            queues: own.map(|own| own.map_or(0, |own| own.queue.jobs)),
            times: own.map(|own| {
                let histograms = &own?.sums.histograms;
                Some([&histograms.queue, &histograms.service, &histograms.total].map(Clone::clone))
            }),
            lines: BTreeMap::new(),
        };
        for worker in *workers {
            let Some(line) = timeline.lines.of(&worker.device, &worker.group) else { continue };
            let own = moment.lines.entry(line).or_default();
            own.2 += u64::from(worker.restarts);
            // A standby and a worker that ends say less of the device than the one that serves.
            let doing = Doing::of(worker.state);
            if own.0 == Doing::Nothing || worker.state.serves() && own.0 != Doing::Busy {
                own.0 = doing;
            }
            own.1 = [own.1, worker.busy_percent].into_iter().flatten().reduce(f64::max);
        }
        moment
    }
}

/// What was seen of the next point of a length.
#[derive(Debug)]
struct Next {
    span_ms: u64,
    /// Where it begins.
    begin: Option<Moment>,
    /// The longest queue, in all and of each role.
    queue: u64,
    queues: ByRole<u64>,
    /// By line the gravest, and the sum and the number of what was busy.
    seen: BTreeMap<usize, (Doing, f64, u32)>,
}

impl Next {
    fn new(span_ms: u64) -> Self {
        Self { span_ms, begin: None, queue: 0, queues: ByRole::default(), seen: BTreeMap::new() }
    }

    /// Takes a moment in, and returns the point that it ends.
    fn take(&mut self, now: &Moment) -> Option<Point> {
        // A clock that is set back begins anew.
        let begin = self.begin.take().filter(|begin| now.at_ms >= begin.at_ms);
        if begin.is_none() {
            *self = Self::new(self.span_ms);
        }
        self.queue = self.queue.max(now.queue);
        self.queues = std::array::from_fn(|role| self.queues[role].max(now.queues[role]));
        for (&line, &(doing, busy, replaced)) in &now.lines {
            let before = begin.as_ref().and_then(|begin| begin.lines.get(&line));
            let is_new = before.is_some_and(|&(_, _, before)| replaced > before);
            let seen = self.seen.entry(line).or_default();
            seen.0 = seen.0.max(doing).max(if is_new { Doing::Restarted } else { Doing::Nothing });
            if let Some(busy) = busy {
                (seen.1, seen.2) = (seen.1 + busy, seen.2 + 1);
            }
        }
        let Some(begin) = begin else {
            self.begin = Some(now.clone());
            return None;
        };
        if now.at_ms - begin.at_ms + EARLY_MS < self.span_ms {
            self.begin = Some(begin);
            return None;
        }
        let point = self.point(&begin, now);
        *self = Self { begin: Some(now.clone()), ..Self::new(self.span_ms) };
        Some(point)
    }

    /// Whether it may have a letter for a line.
    fn has(&self, line: usize) -> bool {
        let is_next = |begin: &Moment| begin.lines.contains_key(&line);
        self.seen.contains_key(&line) || self.begin.as_ref().is_some_and(is_next)
    }

    fn point(&self, begin: &Moment, now: &Moment) -> Point {
        let grown = |index: usize| now.verdicts[index].saturating_sub(begin.verdicts[index]);
        let percentiles = |which: usize| {
            std::array::from_fn(|role| {
                let (now, begin) = (now.times[role].as_ref()?, begin.times[role].as_ref()?);
                percentiles(&now[which], &begin[which])
            })
        };
        let lines = self.seen.keys().next_back().map_or(0, |last| last + 1);
        let line = |line: usize| self.seen.get(&line).copied().unwrap_or_default();
        let busy =
            |(_, sum, count): (Doing, f64, u32)| (count > 0).then(|| whole(sum / f64::from(count)));
        Point {
            at_ms: now.at_ms,
            span_ms: now.at_ms - begin.at_ms,
            verdicts: std::array::from_fn(grown),
            accepted: now.accepted.saturating_sub(begin.accepted),
            refused: now.refused.saturating_sub(begin.refused),
            queue: self.queue,
            queues: self.queues,
            queue_s: percentiles(0),
            service_s: percentiles(1),
            total_s: percentiles(2),
            doing: (0..lines).map(|index| line(index).0.letter()).collect(),
            busy: (0..lines).map(|index| busy(line(index))).collect(),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rounded percentage, at least 0"
)]
fn whole(percent: f64) -> u32 {
    percent.round() as u32
}

/// The percentiles of what came to a histogram, each within its bucket as if values lay evenly there. Those above
/// all buckets count as the end of the last.
pub(super) fn percentiles(now: &Histogram, begin: &Histogram) -> Option<[f64; 3]> {
    let before = begin.buckets.iter().map(|&(_, count)| count);
    let came: Vec<(f64, u64)> = now
        .buckets
        .iter()
        .zip(before)
        .map(|(&(end, count), before)| (end, count.saturating_sub(before)))
        .collect();
    let all = now.count().saturating_sub(begin.count());
    if all == 0 {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "counts of a few seconds")]
    let of = |share: f64| {
        let wanted = share * all as f64;
        let (mut below, mut start) = (0.0, 0.0);
        for &(end, count) in &came {
            let count = count as f64;
            if count > 0.0 && below + count >= wanted {
                return start + (end - start) * ((wanted - below) / count).clamp(0.0, 1.0);
            }
            (below, start) = (below + count, end);
        }
        start
    };
    Some(SHARES.map(of))
}
