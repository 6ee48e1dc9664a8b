//! The programs of a job: listed, or some of a template.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::{
    CompiledTemplate, PackedPrograms, ProgramForm, ProgramOffsets, SearchError, SearchLayout,
    SearchSize,
};
use crate::batch::{BatchLayout, clear_behind};
use crate::shared::SharedSlice;

/// The programs of a search job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobPrograms {
    /// One behind the other.
    Listed(PackedPrograms),
    /// Those of a template with these numbers.
    OfTemplate(Arc<CompiledTemplate>, Range<u32>),
}

impl JobPrograms {
    /// Reads the programs of an input.
    ///
    /// # Errors
    /// [`SearchError`] if its offsets do not follow each other, or there is no template with its programs.
    ///
    /// # Panics
    /// If the memory is shorter than the layout's input.
    pub fn read(layout: SearchLayout, memory: &SharedSlice<'_>) -> Result<Self, SearchError> {
        let mut code = vec![0; layout.code().len()];
        memory.read(layout.code().start, &mut code);
        let first = match layout.form() {
            form @ (ProgramForm::Listed | ProgramForm::Alone) => {
                let offsets = ProgramOffsets::read(layout, &(0..layout.programs()), memory)?;
                let mut packed = PackedPrograms::new(form == ProgramForm::Listed);
                (0..layout.programs()).try_for_each(|at| packed.push(&code[offsets.of(at)]))?;
                return Ok(Self::Listed(packed));
            }
            ProgramForm::Template { first } => first,
        };
        let template = CompiledTemplate::from_bytes(&code)?;
        let numbers = template.numbers(first, layout.programs())?;
        Ok(Self::OfTemplate(Arc::new(template), numbers))
    }

    /// Programs.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Listed(packed) => packed.len(),
            Self::OfTemplate(_, numbers) => numbers.len(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of a program, perhaps with zeros behind.
    ///
    /// # Panics
    /// If there is no such program.
    #[must_use]
    pub fn program(&self, at: usize) -> Cow<'_, [u8]> {
        match self {
            Self::Listed(packed) => Cow::Borrowed(packed.program(at)),
            Self::OfTemplate(template, numbers) => {
                let number = numbers.clone().nth(at).expect("there is no such program");
                Cow::Owned(template.program(number.into()))
            }
        }
    }

    /// Neighbouring ones of them.
    ///
    /// # Panics
    /// If there are no such programs.
    #[must_use]
    pub fn part(&self, programs: Range<usize>) -> Self {
        match self {
            Self::Listed(_) => self.some(programs).expect("a part is smaller than the whole"),
            Self::OfTemplate(template, numbers) => {
                let number = |at: usize| numbers.start + u32::try_from(at).unwrap_or(u32::MAX);
                let part = number(programs.start)..number(programs.end);
                assert!(part.end <= numbers.end, "{programs:?} of {}", self.len());
                Self::OfTemplate(Arc::clone(template), part)
            }
        }
    }

    /// Some of them, listed.
    ///
    /// # Errors
    /// [`SearchError`] if they are more than a job may have.
    ///
    /// # Panics
    /// If there is no such program.
    pub fn some(&self, programs: impl IntoIterator<Item = usize>) -> Result<Self, SearchError> {
        let mut packed = match self {
            Self::Listed(packed) => PackedPrograms::new(packed.shares()),
            Self::OfTemplate(..) => PackedPrograms::default(),
        };
        programs.into_iter().try_for_each(|at| packed.push(&self.program(at)))?;
        Ok(Self::Listed(packed))
    }

    /// The numbers of a search of these programs over a batch of pairs.
    #[must_use]
    pub fn size(&self, pairs: BatchLayout) -> SearchSize {
        match self {
            Self::Listed(packed) => packed.size(pairs),
            Self::OfTemplate(template, numbers) => {
                let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
                SearchSize {
                    programs: count(numbers.len()),
                    program_bytes: count(template.to_bytes().len()),
                    form: ProgramForm::Template { first: numbers.start },
                    ..PackedPrograms::default().size(pairs)
                }
            }
        }
    }

    /// Writes them to their places in an input.
    ///
    /// # Panics
    /// If `memory` is shorter than the layout's input, or the layout is of other programs.
    pub fn write_to(&self, layout: SearchLayout, memory: &SharedSlice<'_>) {
        match self {
            Self::Listed(packed) => packed.write_to(layout, memory),
            Self::OfTemplate(template, _) => {
                memory.write(layout.code().start, &template.to_bytes());
            }
        }
        clear_behind([layout.offsets().end, layout.code().end], memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Grid, GridBatch};
    use crate::program::Ties;
    use crate::search::{Score, Template, compile};

    #[test]
    fn what_is_written_is_read_again() {
        let template = Template::parse("O = replace(I, ?a:color, ?b:color)").unwrap().unwrap();
        let (compiled, _) = CompiledTemplate::compile(&template, Ties::Cpython, 100).unwrap();
        let mut packed = PackedPrograms::default();
        for text in ["rot90", "hmirror | rot90"] {
            packed.push(&compile(text, Ties::Cpython, 100).unwrap().to_bytes()).unwrap();
        }
        let grid = Grid::from_rows(&[[1, 2]]).unwrap();
        let batch = GridBatch::from_pairs([(&grid, Some(&grid))]).unwrap();
        let all = JobPrograms::OfTemplate(Arc::new(compiled), 0..100);
        for programs in [JobPrograms::Listed(packed), all.part(20..50), all.clone()] {
            let size = programs.size(batch.layout().unwrap());
            let layout = SearchLayout::new(size, Score::Exact).unwrap();
            let mut input = vec![0; layout.input_bytes()];
            let memory = SharedSlice::private(&mut input);
            programs.write_to(layout, &memory);
            let read = JobPrograms::read(layout, &memory).unwrap();
            assert_eq!(read, programs);
            // What was there before makes no difference.
            batch.write_to(layout.batch(), &memory);
            let mut used = vec![0xee; layout.input_bytes()];
            let memory = SharedSlice::private(&mut used);
            programs.write_to(layout, &memory);
            batch.write_to(layout.batch(), &memory);
            assert_eq!(used, input);
        }
        let part = all.part(20..50);
        assert_eq!((part.len(), part.part(3..5).len()), (30, 2));
        assert_eq!(part.part(3..5).program(1), all.program(24));
        let some = |of: &[usize]| part.some(of.iter().copied()).unwrap();
        assert_eq!(some(&[7, 3]).program(1)[..], *some(&[3]).program(0));
        assert!(all.some((0..700).map(|at| at % 100).cycle().take(70_000)).is_err());
        // One program too many.
        let beyond = all.part(99..100).size(batch.layout().unwrap());
        let layout = SearchLayout::new(SearchSize { programs: 2, ..beyond }, Score::Exact).unwrap();
        let mut input = vec![0; layout.input_bytes()];
        let memory = SharedSlice::private(&mut input);
        all.write_to(layout, &memory);
        let error = JobPrograms::read(layout, &memory).unwrap_err();
        assert_eq!(error, SearchError::Choices { first: 99, end: 101, count: 100 });
    }
}
