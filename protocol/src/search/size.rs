//! How large a search job is, as its message says, and whether that is within the limits.

use serde::{Deserialize, Serialize};

use super::PROGRAM_ALIGN;
use crate::batch::{BatchError, BatchLayout};
use crate::limits::{
    SEARCH_EVALUATIONS_MAX, SEARCH_PAIRS_MAX, SEARCH_PROGRAM_BYTES_MAX, SEARCH_PROGRAMS_MAX,
    STEPS_MAX, TEMPLATE_BYTES_MAX, TEMPLATE_TEXTS_MAX,
};
use crate::program::{ProgramError, Ties};
use crate::solver::{CODE_BYTES_MAX, MACHINE_VERSION, Malformed};

/// Numbers of a search job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SearchSize {
    /// Programs: its items.
    pub programs: u32,
    /// Bytes of all programs, padding included.
    pub program_bytes: u32,
    /// Pairs.
    pub pairs: u32,
    /// Cells of all pairs together.
    pub cells: u32,
    /// How the input has the programs.
    #[serde(default)]
    pub form: ProgramForm,
}

/// How the input of a search job has its programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ProgramForm {
    /// One behind the other. What begins alike is computed once, where a device can.
    #[default]
    Listed,
    /// One behind the other, each to be computed whole.
    Alone,
    /// As a template that stands for them.
    Template {
        /// Its number of the job's first program.
        first: u32,
    },
}

/// Why a search is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// It has no programs, or too many.
    #[error("the search has {programs} programs; a job has 1 to {SEARCH_PROGRAMS_MAX}")]
    Programs {
        /// Programs given.
        programs: usize,
    },
    /// Its programs are too long together.
    #[error(
        "the programs of the search have {bytes} bytes; a job has a multiple of {PROGRAM_ALIGN}, at most \
         {SEARCH_PROGRAM_BYTES_MAX}"
    )]
    ProgramBytes {
        /// Bytes given.
        bytes: u64,
    },
    /// It has no pairs, or too many.
    #[error("the search has {pairs} pairs; a job has 1 to {SEARCH_PAIRS_MAX}")]
    Pairs {
        /// Pairs given.
        pairs: usize,
    },
    /// It has too many programs for so many pairs.
    #[error(
        "the search has {evaluations} evaluations, programs times pairs; a job has at most \
         {SEARCH_EVALUATIONS_MAX}"
    )]
    Evaluations {
        /// Programs times pairs.
        evaluations: u64,
    },
    /// Its batch is one of single grids.
    #[error(
        "a search takes pairs, each an input and the expected output; this batch has single grids"
    )]
    Grids,
    /// A text does not compile.
    #[error(transparent)]
    Program(ProgramError),
    /// Bytes that should be a program are none.
    #[error("{0}; compile its text again with `gridpool compile`")]
    Bytecode(Malformed),
    /// They are too many.
    #[error("the bytecode has {bytes} bytes; a program has at most {CODE_BYTES_MAX}")]
    BytecodeLength {
        /// Bytes given.
        bytes: usize,
    },
    /// They are a program that breaks ties of colours otherwise.
    #[error(
        "the bytecode is for ties {made}, and the search for {wanted}: compile the text with --ties {wanted}, or \
         search with {made}"
    )]
    BytecodeTies {
        /// How the program breaks them.
        made: Ties,
        /// How the search does.
        wanted: Ties,
    },
    /// They are of another version.
    #[error(
        "the bytecode is for version {version} of the machine, and this build has {MACHINE_VERSION}: compile the text \
         again with this build"
    )]
    BytecodeVersion {
        /// The version given.
        version: u8,
    },
    /// The result of a program is never a grid.
    #[error(
        "the program gives {gives}; a search compares grids: end it with one that gives a grid"
    )]
    NotGrid {
        /// What it gives.
        gives: String,
    },
    /// A chain takes pairs.
    #[error("this chain takes pairs; the programs of a search take the input grid of a pair")]
    Chain,
    /// The limit of steps is out of range.
    #[error("a limit of steps is from 1 to {STEPS_MAX}, not {steps}")]
    Steps {
        /// The limit given.
        steps: u32,
    },
    /// A hole of a template is wrong.
    #[error("{0}")]
    Template(String),
    /// A template stands for too many texts.
    #[error(
        "the template stands for more than {TEMPLATE_TEXTS_MAX} programs: give a hole fewer words, or write several \
         templates"
    )]
    Texts,
    /// What should be a compiled template is none.
    #[error("the bytes of the template are malformed: {what}")]
    CompiledTemplate {
        /// What is wrong.
        what: &'static str,
    },
    /// A job has programs that its template does not stand for.
    #[error("the job has programs {first} to {end} of a template that stands for {count}")]
    Choices {
        /// The first.
        first: u32,
        /// One behind the last.
        end: u64,
        /// Programs of the template.
        count: u64,
    },
    /// Its pairs make no batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The offsets of its programs do not follow each other.
    #[error("program {program}: it starts at byte {got} of {bytes}, behind its end or unaligned")]
    Offset {
        /// The program; the number of programs for the end of the last one.
        program: usize,
        /// The offset in the table.
        got: u32,
        /// Bytes of all programs.
        bytes: usize,
    },
}

impl SearchSize {
    /// The batch of pairs, if all numbers are within the limits.
    pub(super) fn batch(self) -> Result<BatchLayout, SearchError> {
        let Self { programs, program_bytes, pairs, cells, form } = self;
        // A template's programs take no room: only evaluations bound them.
        let (most, bytes_max) = match form {
            ProgramForm::Listed | ProgramForm::Alone => {
                (SEARCH_PROGRAMS_MAX, SEARCH_PROGRAM_BYTES_MAX)
            }
            ProgramForm::Template { .. } => (u32::MAX, TEMPLATE_BYTES_MAX),
        };
        if !(1..=most).contains(&programs) {
            return Err(SearchError::Programs { programs: programs as usize });
        }
        let is_aligned = (program_bytes as usize).is_multiple_of(PROGRAM_ALIGN);
        if program_bytes > SEARCH_PROGRAM_BYTES_MAX || !is_aligned {
            return Err(SearchError::ProgramBytes { bytes: program_bytes.into() });
        }
        if program_bytes > bytes_max {
            return Err(SearchError::CompiledTemplate { what: "it has over 1 MiB" });
        }
        if !(1..=SEARCH_PAIRS_MAX).contains(&pairs) {
            return Err(SearchError::Pairs { pairs: pairs as usize });
        }
        let evaluations = self.evaluations();
        if evaluations > SEARCH_EVALUATIONS_MAX {
            return Err(SearchError::Evaluations { evaluations });
        }
        Ok(BatchLayout::new(pairs, 2, cells)?)
    }

    /// Programs times pairs.
    #[must_use]
    pub fn evaluations(self) -> u64 {
        u64::from(self.programs) * u64::from(self.pairs)
    }
}
