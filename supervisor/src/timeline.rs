//! The last two minutes of a pool second by second, and its last hour: what each device did, verdicts, the queue and
//! latencies. The supervisor's is made of samples ([`record`]); that of whoever shows it is a copy, made of parts.

pub(crate) mod record;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use gridpool_protocol::timeline::{
    COARSE_POINTS, FINE_POINTS, LINE_BYTES_MAX, LINES_MAX, Mark, PART_POINTS_MAX, Part, Point,
};
use serde::Serialize;

/// Fewer points than these of ten seconds are shown as those of a second: two minutes.
const YOUNG_MAX: usize = 12;
/// The letter of a device without a worker.
const NOTHING: char = '.';

/// See the module's text.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Timeline {
    lines: Lines,
    fine: Ring,
    coarse: Ring,
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            lines: Lines::default(),
            fine: Ring::new(FINE_POINTS),
            coarse: Ring::new(COARSE_POINTS),
        }
    }
}

impl Timeline {
    /// How much of it there is.
    pub(crate) fn mark(&self) -> Mark {
        Mark { fine: self.fine.number, coarse: self.coarse.number, names: self.lines.changes }
    }

    /// What comes after a mark, as much as one message has.
    pub(crate) fn part_after(&self, mark: Mark) -> Part {
        let coarse: Vec<_> =
            self.coarse.after(mark.coarse).take(PART_POINTS_MAX).cloned().collect();
        let left = PART_POINTS_MAX - coarse.len();
        let fine: Vec<_> = self.fine.after(mark.fine).take(left).cloned().collect();
        let has_new_names = mark.names != self.lines.changes;
        let mark = Mark {
            fine: self.fine.number_of(mark.fine, fine.len()),
            coarse: self.coarse.number_of(mark.coarse, coarse.len()),
            names: self.lines.changes,
        };
        let is_last = mark == self.mark();
        let lines = has_new_names.then(|| self.lines.names.clone());
        Part { mark, is_last, lines, fine, coarse }
    }

    /// All of it.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let mut parts = vec![self.part_after(Mark::default())];
        while let Some(part) = parts.last().filter(|part| !part.is_last) {
            parts.push(self.part_after(part.mark));
        }
        parts
    }

    /// Takes the next part of another.
    pub(crate) fn take(&mut self, part: Part) {
        let Part { mark, is_last: _, lines, fine, coarse } = part;
        if let Some(names) = lines {
            self.lines.names = names;
        }
        self.lines.changes = mark.names;
        fine.into_iter().for_each(|point| self.fine.push(point));
        coarse.into_iter().for_each(|point| self.coarse.push(point));
        (self.fine.number, self.coarse.number) = (mark.fine, mark.coarse);
    }

    /// The points of a second after a mark, if they are kept still.
    pub(crate) fn after(&self, mark: Mark) -> impl Iterator<Item = &Point> {
        self.fine.after(mark.fine)
    }

    /// What the letters of a point stand for; empty for a letter that stands for nothing.
    pub(crate) fn lines(&self) -> &[String] {
        &self.lines.names
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

/// The names of the lines. Each stays at its place as long as a point has a letter for it.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
struct Lines {
    /// `cpu0 grid`; empty where another may come.
    names: Vec<String>,
    #[serde(skip)]
    changes: u64,
}

impl Lines {
    /// The line of a device and group, an old one or a new one if there is room.
    fn of(&mut self, device: &str, group: &str) -> Option<usize> {
        let mut name = format!("{device} {group}");
        name.truncate(name.floor_char_boundary(LINE_BYTES_MAX));
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
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
struct Ring {
    #[serde(skip)]
    points_max: usize,
    points: VecDeque<Point>,
    /// How many there were so far.
    #[serde(skip)]
    number: u64,
}

impl Ring {
    fn new(points_max: usize) -> Self {
        Self { points_max, points: VecDeque::new(), number: 0 }
    }

    fn push(&mut self, point: Point) {
        if self.points.len() == self.points_max {
            self.points.pop_front();
        }
        self.points.push_back(point);
        self.number += 1;
    }

    /// How many points there are after so many. A number that is too large is of another pool.
    fn newer(&self, number: u64) -> usize {
        let newer = self.number.checked_sub(number).unwrap_or(self.number);
        usize::try_from(newer).unwrap_or(usize::MAX).min(self.points.len())
    }

    fn after(&self, number: u64) -> impl Iterator<Item = &Point> {
        self.points.iter().skip(self.points.len() - self.newer(number))
    }

    /// The number of the last of the `told` points after so many.
    fn number_of(&self, number: u64, told: usize) -> u64 {
        self.number - (self.newer(number) - told) as u64
    }

    /// Whether a point has a letter for a line.
    fn has(&self, line: usize) -> bool {
        let letter = |point: &Point| point.doing.as_bytes().get(line).copied();
        self.points.iter().filter_map(letter).any(|letter| char::from(letter) != NOTHING)
    }
}
