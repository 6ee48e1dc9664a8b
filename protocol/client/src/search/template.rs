//! Templates that the devices expand, and the results of their programs.
//!
//! A job of a template has no list of its programs, so their results are made as they are taken.

use std::ops::Range;
use std::sync::Arc;

use gridpool_protocol::program::Ties;
use gridpool_protocol::search::{CompiledTemplate, JobPrograms, Template};

use super::outcomes::Outcomes;
use super::{SearchOutcome, SearchResult};

/// Fewer programs are compiled one by one: equal ones among them run once, and they share jobs with others.
const PROGRAMS_MIN: u64 = 512;

/// A template that the devices expand.
#[derive(Debug)]
pub(super) struct Expandable {
    /// The caller's name for it.
    id: String,
    template: Template,
    compiled: Arc<CompiledTemplate>,
    /// Those of `compiled`.
    bytes: usize,
}

impl Expandable {
    /// A template as the devices take it, if it is large and they can expand it.
    pub(super) fn of(id: &str, template: &Template, ties: Ties, steps: u32) -> Option<Self> {
        if !(PROGRAMS_MIN..=u32::MAX.into()).contains(&template.count()) {
            return None;
        }
        let (compiled, order) = CompiledTemplate::compile(template, ties, steps)?;
        let (template, bytes) = (template.clone().in_order(order), compiled.to_bytes().len());
        Some(Self { id: id.to_owned(), template, compiled: Arc::new(compiled), bytes })
    }

    /// Bytes that it holds.
    pub(super) fn bytes_held(&self) -> usize {
        // As programs twice, and as they travel.
        self.id.len() + self.template.bytes() + 3 * self.bytes
    }

    /// Programs.
    pub(super) fn count(&self) -> u64 {
        self.compiled.count()
    }

    /// The programs of a job, of which this is the first; `None` once there are no more.
    pub(super) fn programs(&self, first: u64, most: u64) -> Option<JobPrograms> {
        let end = self.count().min(first.saturating_add(most));
        let numbers = u32::try_from(first).ok()?..u32::try_from(end).unwrap_or(u32::MAX);
        let programs = || JobPrograms::OfTemplate(Arc::clone(&self.compiled), numbers.clone());
        (!numbers.is_empty()).then(programs)
    }
}

/// The results of the programs of a job that are still to be taken.
#[derive(Debug)]
pub(super) struct Expanded {
    pub(super) template: Arc<Expandable>,
    /// The template's numbers of the job's programs.
    pub(super) numbers: Range<u32>,
    pub(super) outcomes: Outcomes,
    /// The next program of the job.
    pub(super) next: usize,
}

impl Expanded {
    /// The next result; if `only_solving`, of a program that solves a pair or has no verdict.
    pub(super) fn next(&mut self, only_solving: bool) -> Option<SearchResult> {
        self.next = match only_solving {
            true => self.outcomes.next_of_note(self.next),
            false => self.next,
        };
        let (at, Range { start, end }) = (self.next, self.numbers.clone());
        let number = u64::from(start) + at as u64;
        if number >= end.into() {
            return None;
        }
        self.next += 1;
        let outcome: SearchOutcome = self.outcomes.of(at);
        let id = format!("{}[{}]", self.template.id, self.template.template.text(number).0);
        Some(SearchResult { id, outcome })
    }

    /// The outcomes up to the last one that was given, or passed over.
    pub(super) fn given(mut self) -> Outcomes {
        self.outcomes.truncate(self.next);
        self.outcomes
    }
}
