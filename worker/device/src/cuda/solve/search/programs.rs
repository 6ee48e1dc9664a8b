//! The programs of a chunk: listed ones that were verified, or some of a template.

use std::borrow::Cow;
use std::ops::Range;

use gridpool_protocol::search::CompiledTemplate;
use gridpool_protocol::solver::Code;
use rayon::prelude::*;

use super::Searching;
use crate::search::{Programs, SearchInput};

/// See the module's text.
pub(super) enum ChunkPrograms<'a> {
    /// Those that are programs of the machine, by their number in the attempt.
    Listed(&'a SearchInput, Vec<(usize, Code)>),
    /// Those of a template with these numbers.
    OfTemplate(&'a CompiledTemplate, Range<u64>),
}

impl ChunkPrograms<'_> {
    /// How many run.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Listed(_, valid) => valid.len(),
            Self::OfTemplate(_, Range { start, end }) => {
                usize::try_from(end - start).expect("a chunk has few programs")
            }
        }
    }

    /// Whether those that begin alike share what they compute.
    pub(super) fn share(&self) -> bool {
        match self {
            Self::Listed(SearchInput { programs: Programs::Listed { sharing, .. }, .. }, _) => {
                *sharing
            }
            Self::Listed(..) => false,
            Self::OfTemplate(..) => true,
        }
    }

    /// The `at`th that runs.
    pub(super) fn code(&self, at: usize) -> Cow<'_, Code> {
        match self {
            Self::Listed(_, valid) => Cow::Borrowed(&valid[at].1),
            Self::OfTemplate(template, numbers) => {
                Cow::Owned(template.code(numbers.start + at as u64))
            }
        }
    }

    /// The template's number of the first.
    pub(super) fn first(&self) -> u64 {
        match self {
            Self::Listed(..) => 0,
            Self::OfTemplate(_, numbers) => numbers.start,
        }
    }
}

impl Searching {
    /// The programs of a span of an attempt.
    pub(super) fn programs_of<'a>(
        &self,
        input: &'a SearchInput,
        span: &Range<usize>,
    ) -> ChunkPrograms<'a> {
        match &input.programs {
            Programs::Listed { .. } => {
                let verify = |at: usize| Some((at, input.program(at)?));
                let verified = || span.clone().into_par_iter().filter_map(verify).collect();
                ChunkPrograms::Listed(input, self.threads.install(verified))
            }
            Programs::OfTemplate { template, first } => {
                let number = |at: usize| u64::from(*first) + at as u64;
                ChunkPrograms::OfTemplate(template, number(span.start)..number(span.end))
            }
        }
    }
}
