//! Attempts of searches: programs over the pairs of a batch, and the place of their verdicts.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use gridpool_protocol::search::{
    CompiledTemplate, PROGRAM_ALIGN, ProgramForm, ProgramOffsets, SearchError, SearchLayout,
};
use gridpool_protocol::shared::SharedSlice;
use gridpool_protocol::solver::Code;

use crate::chunk::number;
use crate::device::AttemptRefusal;

/// What the processor runs of a search, as reports name it.
pub(crate) const BY_REFERENCE: &str = "search";

/// One attempt: neighbouring programs of a search and the place of the whole search's result.
///
/// Lengths have been checked. The client may change programs and pairs meanwhile: a device copies what it uses, once,
/// and checks the copy.
#[derive(Clone, Debug)]
pub struct SearchAttempt<'a> {
    layout: SearchLayout,
    programs: Range<usize>,
    input: SharedSlice<'a>,
    output: SharedSlice<'a>,
    /// Set by another thread once nobody wants the result.
    stop: Option<&'a AtomicBool>,
}

/// The parts of an attempt's input, private and checked.
#[derive(Debug)]
pub(crate) struct SearchInput {
    /// Rows and columns of each grid, two a pair.
    pub(crate) shapes: Vec<[u8; 2]>,
    pub(crate) cells: Vec<u8>,
    pub(crate) programs: Programs,
}

/// The programs of an attempt.
#[derive(Debug)]
pub(crate) enum Programs {
    /// Each may be none.
    Listed { offsets: ProgramOffsets, code: Vec<u8>, sharing: bool },
    /// Those of a template from this number on.
    OfTemplate { template: CompiledTemplate, first: u32 },
}

impl<'a> SearchAttempt<'a> {
    /// The attempt of some programs of a search that lies in `input`. `output` is the place for the whole search's
    /// result.
    ///
    /// # Errors
    /// [`AttemptRefusal`] if the search has no such programs, or a place has another length than the layout.
    pub fn new(
        layout: SearchLayout,
        programs: Range<usize>,
        input: SharedSlice<'a>,
        output: SharedSlice<'a>,
    ) -> Result<Self, AttemptRefusal> {
        if programs.is_empty() || programs.end > layout.programs() {
            let Range { start, end } = programs;
            return Err(AttemptRefusal::Part { start, end, items: layout.programs() });
        }
        for (got, want) in
            [(input.bytes(), layout.input_bytes()), (output.bytes(), layout.output_bytes())]
        {
            if got != want {
                return Err(AttemptRefusal::Output { got, want });
            }
        }
        Ok(Self { layout, programs, input, output, stop: None })
    }

    /// The same attempt, to be stopped once `stop` is set.
    #[must_use]
    pub fn with_stop(self, stop: &'a AtomicBool) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// Whether nobody wants its result any more.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Where the parts of the whole search lie.
    #[must_use]
    pub fn layout(&self) -> SearchLayout {
        self.layout
    }

    /// The programs of this attempt.
    #[must_use]
    pub fn programs(&self) -> Range<usize> {
        self.programs.clone()
    }

    /// Copies the input out of shared memory and checks the copy.
    pub(crate) fn read(&self) -> Result<SearchInput, AttemptRefusal> {
        let batch = self.layout.batch();
        let tables = gridpool_protocol::batch::Tables::read(batch, &self.input)?;
        let mut cells = vec![0; batch.cell_count()];
        self.input.read(batch.cells().start, &mut cells);
        let start = self.layout.code().start;
        let programs = match self.layout.form() {
            form @ (ProgramForm::Listed | ProgramForm::Alone) => {
                let offsets = ProgramOffsets::read(self.layout, &self.programs, &self.input)?;
                let of_programs = offsets.all();
                let mut code = vec![0; of_programs.len()];
                self.input.read(start + of_programs.start, &mut code);
                Programs::Listed { offsets, code, sharing: form == ProgramForm::Listed }
            }
            ProgramForm::Template { first } => {
                let mut bytes = vec![0; self.layout.code().len()];
                self.input.read(start, &mut bytes);
                let template = CompiledTemplate::from_bytes(&bytes)?;
                let numbers = template.numbers(first, self.layout.programs())?;
                let first = numbers.start + number(self.programs.start);
                Programs::OfTemplate { template, first }
            }
        };
        let shapes = tables.shapes().to_vec();
        Ok(SearchInput { shapes, cells, programs })
    }

    /// Writes the statuses and scores of some of its programs to their places. Scores are left out if none are
    /// wanted.
    pub(crate) fn write(&self, programs: &Range<usize>, statuses: &[u8], scores: &[[u8; 2]]) {
        let places = self.layout.statuses(programs);
        assert_eq!(places.len(), statuses.len(), "a status for each program and pair");
        self.output.write(places.start, statuses);
        let places = self.layout.scores(programs);
        if !places.is_empty() {
            assert_eq!(places.len(), 2 * scores.len(), "a score for each program and pair");
            self.output.write(places.start, scores.as_flattened());
        }
    }

    /// The place of the first of its statuses.
    pub(crate) fn first_status(&self) -> (SharedSlice<'a>, usize) {
        (self.output, self.layout.statuses(&self.programs).start)
    }
}

impl SearchInput {
    /// The `at`th program of the attempt; `None` if it is none.
    pub(crate) fn program(&self, at: usize) -> Option<Code> {
        match &self.programs {
            Programs::Listed { .. } => Code::from_padded(self.listed(at), PROGRAM_ALIGN).ok(),
            Programs::OfTemplate { template, first } => {
                Some(template.code(u64::from(*first) + at as u64))
            }
        }
    }

    /// The bytes of the `at`th program of the attempt, padding included; none of a template.
    pub(crate) fn listed(&self, at: usize) -> &[u8] {
        let Programs::Listed { offsets, code, .. } = &self.programs else { return &[] };
        let start = offsets.all().start;
        let Range { start: from, end } = offsets.of(at);
        &code[from - start..end - start]
    }
}

impl From<SearchError> for AttemptRefusal {
    fn from(error: SearchError) -> Self {
        Self::Search(error)
    }
}
