//! The places of the parts of a search job's input and result, and the reading and writing of programs.

use std::ops::Range;

use super::{PROGRAM_ALIGN, ProgramForm, Score, SearchError, SearchSize};
use crate::batch::{BatchLayout, align};
use crate::limits::{SEARCH_PROGRAM_BYTES_MAX, SEARCH_PROGRAMS_MAX};
use crate::shared::SharedSlice;

/// The places of the parts of a search job. Its numbers are within the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchLayout {
    pairs: BatchLayout,
    programs: usize,
    program_bytes: usize,
    form: ProgramForm,
    score: Score,
}

impl SearchLayout {
    /// The layout of a search of this size.
    ///
    /// # Errors
    /// [`SearchError`] if a number is zero or over its limit.
    pub fn new(size: SearchSize, score: Score) -> Result<Self, SearchError> {
        let pairs = size.batch()?;
        let (programs, program_bytes) = (size.programs as usize, size.program_bytes as usize);
        Ok(Self { pairs, programs, program_bytes, form: size.form, score })
    }

    /// Programs: the items.
    #[must_use]
    pub fn programs(&self) -> usize {
        self.programs
    }

    /// What a verdict says of each pair.
    #[must_use]
    pub fn score(&self) -> Score {
        self.score
    }

    /// The batch of pairs, which begins the input.
    #[must_use]
    pub fn batch(&self) -> BatchLayout {
        self.pairs
    }

    /// How the input has the programs.
    #[must_use]
    pub fn form(&self) -> ProgramForm {
        self.form
    }

    /// The bytes of the programs' offsets; nothing for a template.
    #[must_use]
    pub fn offsets(&self) -> Range<usize> {
        let start = self.pairs.bytes();
        match self.form {
            ProgramForm::Listed | ProgramForm::Alone => start..start + 4 * (self.programs + 1),
            ProgramForm::Template { .. } => start..start,
        }
    }

    /// The bytes of the programs, or of the template.
    #[must_use]
    pub fn code(&self) -> Range<usize> {
        let start = align(self.offsets().end);
        start..start + self.program_bytes
    }

    /// The length of the whole input.
    #[must_use]
    pub fn input_bytes(&self) -> usize {
        align(self.code().end)
    }

    /// Programs times pairs.
    #[must_use]
    pub fn evaluations(&self) -> usize {
        self.programs * self.pairs.items()
    }

    /// The statuses of some programs in the result.
    ///
    /// # Panics
    /// If it has no such programs.
    #[must_use]
    pub fn statuses(&self, programs: &Range<usize>) -> Range<usize> {
        assert!(programs.end <= self.programs, "{programs:?} of {} programs", self.programs);
        programs.start * self.pairs.items()..programs.end * self.pairs.items()
    }

    /// The scores of some programs in the result; nothing if none are wanted.
    ///
    /// # Panics
    /// If it has no such programs.
    #[must_use]
    pub fn scores(&self, programs: &Range<usize>) -> Range<usize> {
        let Range { start, end } = self.statuses(programs);
        let first = align(self.evaluations());
        match self.score {
            Score::Cells => first + 2 * start..first + 2 * end,
            Score::Exact => first..first,
        }
    }

    /// The length of the whole result.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        align(self.scores(&(0..self.programs)).end)
    }
}

/// Programs that are packed behind each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackedPrograms {
    offsets: Vec<u32>,
    bytes: Vec<u8>,
    alone: bool,
}

impl PackedPrograms {
    /// None yet. Unless they share, each is to be computed whole, also what it has in common with others.
    #[must_use]
    pub fn new(sharing: bool) -> Self {
        Self { alone: !sharing, ..Self::default() }
    }

    /// Whether what begins alike may be computed once.
    #[must_use]
    pub fn shares(&self) -> bool {
        !self.alone
    }

    /// Appends the bytes of a program.
    ///
    /// # Errors
    /// [`SearchError::Programs`] or [`SearchError::ProgramBytes`] if it is one too many for one job.
    pub fn push(&mut self, program: &[u8]) -> Result<(), SearchError> {
        let (programs, start) = (self.offsets.len() + 1, self.bytes.len());
        if programs > SEARCH_PROGRAMS_MAX as usize {
            return Err(SearchError::Programs { programs });
        }
        let end = (start + program.len()).next_multiple_of(PROGRAM_ALIGN);
        if end > SEARCH_PROGRAM_BYTES_MAX as usize {
            return Err(SearchError::ProgramBytes { bytes: end as u64 });
        }
        self.offsets.push(count(start));
        self.bytes.extend_from_slice(program);
        self.bytes.resize(end, 0);
        Ok(())
    }

    /// Programs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Whether it has no program.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Bytes of all programs, padding included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes of a program, padding included.
    ///
    /// # Panics
    /// If there is no such program.
    #[must_use]
    pub fn program(&self, at: usize) -> &[u8] {
        let end = self.offsets.get(at + 1).map_or(self.bytes.len(), |end| *end as usize);
        &self.bytes[self.offsets[at] as usize..end]
    }

    /// The numbers of a search of these programs over a batch of pairs.
    ///
    /// # Panics
    /// Never: both count in 32 bits.
    #[must_use]
    pub fn size(&self, pairs: BatchLayout) -> SearchSize {
        SearchSize {
            programs: count(self.len()),
            program_bytes: count(self.bytes()),
            pairs: count(pairs.items()),
            cells: count(pairs.cell_count()),
            form: if self.alone { ProgramForm::Alone } else { ProgramForm::Listed },
        }
    }

    /// Writes offsets and programs to their places in an input.
    ///
    /// # Panics
    /// If `memory` is shorter than the layout's input, or the layout is of other programs.
    pub fn write_to(&self, layout: SearchLayout, memory: &SharedSlice<'_>) {
        assert_eq!((layout.programs, layout.program_bytes), (self.len(), self.bytes()));
        let ends = self.offsets.iter().copied().chain([count(self.bytes.len())]);
        let offsets: Vec<u8> = ends.flat_map(u32::to_le_bytes).collect();
        memory.write(layout.offsets().start, &offsets);
        memory.write(layout.code().start, &self.bytes);
    }
}

/// The offsets of some programs of a search, private to the reader and checked against each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramOffsets(Vec<u32>);

impl ProgramOffsets {
    /// Copies the offsets of `programs` out of shared memory, once, and checks the copy.
    ///
    /// # Errors
    /// [`SearchError::Offset`] if one lies before the one before it, outside of the programs, or is unaligned.
    ///
    /// # Panics
    /// If the memory is shorter than the layout's input.
    pub fn read(
        layout: SearchLayout,
        programs: &Range<usize>,
        memory: &SharedSlice<'_>,
    ) -> Result<Self, SearchError> {
        let mut bytes = vec![0; 4 * (programs.len() + 1)];
        memory.read(layout.offsets().start + 4 * programs.start, &mut bytes);
        let offsets = bytes.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
        let offsets: Vec<u32> = offsets.collect();
        let mut before = 0;
        for (at, got) in offsets.iter().enumerate() {
            let offset = *got as usize;
            if offset < before
                || offset > layout.program_bytes
                || !offset.is_multiple_of(PROGRAM_ALIGN)
            {
                let (program, bytes) = (programs.start + at, layout.program_bytes);
                return Err(SearchError::Offset { program, got: *got, bytes });
            }
            before = offset;
        }
        Ok(Self(offsets))
    }

    /// The bytes of the `at`th of these programs, among those of all programs.
    ///
    /// # Panics
    /// If there is no such program.
    #[must_use]
    pub fn of(&self, at: usize) -> Range<usize> {
        self.0[at] as usize..self.0[at + 1] as usize
    }

    /// The bytes of all of these programs.
    #[must_use]
    pub fn all(&self) -> Range<usize> {
        let of = |offset: Option<&u32>| offset.map_or(0, |offset| *offset as usize);
        of(self.0.first())..of(self.0.last())
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).expect("a search counts in 32 bits")
}
