//! The last two minutes of a pool second by second, and its last hour: what each device did, verdicts, the queue and
//! latencies. Pure: made from successive snapshots, of which each has its time.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use gridpool_protocol::ids::Role;
use gridpool_protocol::metrics::{Histogram, RoleMetrics};
use gridpool_protocol::status::{Status, WorkerState};
use serde::Serialize;

use crate::history::{DeviceGroup, Row};

/// Points of a second each, and of ten seconds each: two minutes, and an hour.
const FINE: Span = Span { ms: 1_000, points: 120 };
const COARSE: Span = Span { ms: 10_000, points: 360 };
/// A sample that comes so little early ends its point too.
const EARLY_MS: u64 = 100;
/// Devices and groups that have a line at a time. Any more have none.
const LINES_MAX: usize = 256;
/// Fewer points than these of ten seconds are shown as those of a second: two minutes.
const YOUNG_MAX: usize = 12;
/// The letter of a device without a worker.
const NOTHING: char = '.';
/// The shares of which percentiles are shown.
const SHARES: [f64; 3] = [0.5, 0.9, 0.99];
/// What is told by role, in the order of [`Role::ALL`].
const ROLES: usize = Role::ALL.len();

/// How long a point is, and how many are kept.
#[derive(Clone, Copy, Debug)]
struct Span {
    ms: u64,
    points: usize,
}

/// What a device does with a group, the gravest last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Doing {
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

/// A span of time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Point {
    /// Its end, milliseconds since 1970.
    pub(crate) at_ms: u64,
    /// Its length, milliseconds.
    pub(crate) span_ms: u64,
    /// Verdicts by kind, in the order of [`Counters::verdicts`](gridpool_protocol::status::Counters::verdicts).
    pub(crate) verdicts: [u64; 6],
    /// Jobs accepted, and submissions refused.
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    /// The most jobs that were seen to wait, and those of each role. Those are 0 if only the status is known.
    pub(crate) queue: u64,
    pub(crate) queues: [u64; ROLES],
    /// Percentiles of the time from acceptance to dispatch, and of that in workers, seconds, of each role. `None` if it
    /// had no jobs.
    pub(crate) queue_s: [Option<[f64; 3]>; ROLES],
    pub(crate) service_s: [Option<[f64; 3]>; ROLES],
    /// A letter for each line: the gravest that was seen.
    pub(crate) doing: String,
    /// How busy the device of each line was, percent.
    pub(crate) busy: Vec<Option<u32>>,
}

/// The pool at one moment.
pub(crate) struct Sample<'a> {
    /// Milliseconds since 1970.
    pub(crate) at_ms: u64,
    pub(crate) status: &'a Status,
    /// Its workers, with how busy they were.
    pub(crate) rows: &'a [Row],
    /// Empty if only the status is known: then there are no latencies.
    pub(crate) roles: &'a [RoleMetrics],
}

/// See the module's text.
#[derive(Debug, Serialize)]
pub(crate) struct Timeline {
    lines: Lines,
    fine: Ring,
    coarse: Ring,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { lines: Lines::default(), fine: Ring::new(FINE), coarse: Ring::new(COARSE) }
    }
}

impl Timeline {
    /// Takes the next sample in.
    pub(crate) fn take(&mut self, sample: &Sample<'_>) {
        let now = Moment::of(sample, &mut self.lines);
        self.fine.take(&now);
        if self.coarse.take(&now) {
            let Self { lines, fine, coarse } = self;
            lines.forget(|line| {
                !now.lines.contains_key(&line) && !fine.has(line) && !coarse.has(line)
            });
        }
    }

    /// How many points of a second there were so far.
    pub(crate) fn number(&self) -> u64 {
        self.fine.number
    }

    /// Those points after so many, if they are kept still.
    pub(crate) fn after(&self, number: u64) -> impl Iterator<Item = &Point> {
        let newer = usize::try_from(self.fine.number.saturating_sub(number)).unwrap_or(usize::MAX);
        let points = &self.fine.points;
        points.iter().skip(points.len().saturating_sub(newer))
    }

    /// The last point of a second, if there is one, and its number.
    #[cfg(test)]
    pub(crate) fn latest(&self) -> Option<(u64, &Point)> {
        Some((self.fine.number, self.fine.points.back()?))
    }

    /// What the letters of a point stand for; empty for a letter that stands for nothing.
    pub(crate) fn lines(&self) -> &[String] {
        &self.lines.names
    }

    /// How often [`lines`](Self::lines) have changed.
    pub(crate) fn changes(&self) -> u64 {
        self.lines.changes
    }

    /// What each device did, in the points of an hour once there are some of it.
    pub(crate) fn past(&self) -> Past {
        let is_young = self.coarse.points.len() < YOUNG_MAX;
        let ring = if is_young { &self.fine } else { &self.coarse };
        let of = |line: usize| {
            let letter = |point: &Point| point.doing.chars().nth(line).unwrap_or(NOTHING);
            ring.points.iter().map(letter).collect()
        };
        let named = self.lines().iter().enumerate().filter(|(_, name)| !name.is_empty());
        let lines = named.map(|(line, name)| (name.clone(), of(line)));
        Past { is_hour: !is_young, lines: lines.collect() }
    }
}

/// What each device did, by line: its name, and a letter for each point, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Past {
    /// The points are of ten seconds, and else of one.
    pub(crate) is_hour: bool,
    pub(crate) lines: Vec<(String, Vec<char>)>,
}

/// What a sample says that a point is made of.
#[derive(Clone, Debug, Default)]
struct Moment {
    at_ms: u64,
    pid: u32,
    uptime_s: f64,
    verdicts: [u64; 6],
    accepted: u64,
    refused: u64,
    queue: u64,
    queues: [u64; ROLES],
    /// Of each role, how long its jobs waited, and were worked on.
    times: [Option<[Histogram; 2]>; ROLES],
    /// By line: what it does, how busy its device is, and how many workers were replaced.
    lines: BTreeMap<usize, (Doing, Option<f64>, u64)>,
}

impl Moment {
    fn of(sample: &Sample<'_>, lines: &mut Lines) -> Self {
        let Sample { at_ms, status, rows, roles } = sample;
        let counters = &status.counters;
        let own = Role::ALL.map(|role| roles.iter().find(|own| own.role == role));
        let mut moment = Self {
            at_ms: *at_ms,
            pid: status.supervisor.pid,
            uptime_s: status.supervisor.uptime_s,
            verdicts: counters.verdicts().map(|(_, count)| count),
            accepted: counters.accepted,
            refused: counters.refused_busy + counters.refused_poison,
            queue: status.queue.jobs,
            queues: own.map(|own| own.map_or(0, |own| own.queue.jobs)),
            times: own.map(|own| {
                let histograms = &own?.sums.histograms;
                Some([histograms.queue.clone(), histograms.service.clone()])
            }),
            lines: BTreeMap::new(),
        };
        for row in *rows {
            let Some(line) = lines.of(&row.device_group) else { continue };
            let own = moment.lines.entry(line).or_default();
            own.2 += u64::from(row.own.restarts);
            // A standby and a worker that ends say less of the device than the one that serves.
            let doing = Doing::of(row.own.state);
            let serves = row.own.state.serves();
            if own.0 == Doing::Nothing || serves && own.0 != Doing::Busy {
                own.0 = doing;
            }
            own.1 = [own.1, row.busy_percent].into_iter().flatten().reduce(f64::max);
        }
        moment
    }

    fn is_after(&self, before: &Self) -> bool {
        self.pid == before.pid && self.uptime_s >= before.uptime_s && self.at_ms >= before.at_ms
    }
}

/// The names of the lines. Each stays at its place as long as a point has a letter for it.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
struct Lines {
    /// `cpu0 grid`; empty where another may come.
    names: Vec<String>,
    #[serde(skip)]
    changes: u64,
}

impl Lines {
    /// The line of a device and group, an old one or a new one if there is room.
    fn of(&mut self, place: &DeviceGroup) -> Option<usize> {
        let name = format!("{} {}", place.device, place.group);
        if let Some(known) = self.names.iter().position(|line| *line == name) {
            return Some(known);
        }
        let free = self.names.iter().position(String::is_empty).unwrap_or(self.names.len());
        if free == LINES_MAX {
            return None;
        }
        match self.names.get_mut(free) {
            Some(line) => *line = name,
            None => self.names.push(name),
        }
        self.changes += 1;
        Some(free)
    }

    /// Takes names away.
    fn forget(&mut self, is_over: impl Fn(usize) -> bool) {
        for (line, name) in self.names.iter_mut().enumerate() {
            if !name.is_empty() && is_over(line) {
                name.clear();
                self.changes += 1;
            }
        }
        while self.names.pop_if(|last| last.is_empty()).is_some() {}
    }
}

/// The points of one length.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Ring {
    #[serde(skip)]
    span: Span,
    points: VecDeque<Point>,
    /// How many there were so far.
    #[serde(skip)]
    number: u64,
    /// Where the next point begins.
    #[serde(skip)]
    begin: Option<Moment>,
    /// Of the next point: the longest queue, in all and of each role, and by line the gravest, and the sum and the
    /// number of what was busy.
    #[serde(skip)]
    queue: u64,
    #[serde(skip)]
    queues: [u64; ROLES],
    #[serde(skip)]
    seen: BTreeMap<usize, (Doing, f64, u32)>,
}

impl Ring {
    fn new(span: Span) -> Self {
        let (points, seen) = (VecDeque::new(), BTreeMap::new());
        Self { span, points, number: 0, begin: None, queue: 0, queues: [0; ROLES], seen }
    }

    /// Takes a moment in, and returns whether it ends a point.
    fn take(&mut self, now: &Moment) -> bool {
        let begin = self.begin.take().filter(|begin| now.is_after(begin));
        if begin.is_none() {
            self.begin_next();
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
            return false;
        };
        if now.at_ms - begin.at_ms + EARLY_MS < self.span.ms {
            self.begin = Some(begin);
            return false;
        }
        let point = self.point(&begin, now);
        if self.points.len() == self.span.points {
            self.points.pop_front();
        }
        self.points.push_back(point);
        self.number += 1;
        self.begin_next();
        self.begin = Some(now.clone());
        true
    }

    /// Nothing was seen of the next point yet.
    fn begin_next(&mut self) {
        (self.queue, self.queues, self.seen) = (0, [0; ROLES], BTreeMap::new());
    }

    /// Whether a point has a letter for a line, or the next one may.
    fn has(&self, line: usize) -> bool {
        let letter = |point: &Point| point.doing.as_bytes().get(line).copied();
        let is_next = |begin: &Moment| begin.lines.contains_key(&line);
        let mut letters = self.points.iter().filter_map(letter);
        letters.any(|letter| char::from(letter) != NOTHING)
            || self.seen.contains_key(&line)
            || self.begin.as_ref().is_some_and(is_next)
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
fn percentiles(now: &Histogram, begin: &Histogram) -> Option<[f64; 3]> {
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
