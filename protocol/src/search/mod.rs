//! A search: many programs over the same pairs, of which only verdicts come back.
//!
//! The input of a search job is a packed [batch](crate::batch) of pairs, then the programs of the
//! [machine](crate::solver::Code) with their offsets, or a [template](CompiledTemplate) that stands for them. Its items
//! are the programs, so shards, attempts and receipts are of programs.
//!
//! ```text
//! input   [ the batch of pairs ] [ offsets: programs + 1 u32, little-endian ] [ programs: their bytes ]
//!     or  [ the batch of pairs ] [ the bytes of a template ]
//! result  [ statuses: a byte for each program and pair ] [ scores: a u16 for each, if wanted ]
//! ```
//!
//! Each part starts at a multiple of 16 bytes, each program at a multiple of [`PROGRAM_ALIGN`], with zeros between.
//! The verdict of program `p` on pair `q` is entry `p * pairs + q`.

mod bytecode;
mod compile;
mod compiled_template;
mod job_programs;
pub mod judge;
mod layout;
mod size;
mod status;
mod template;
#[cfg(test)]
mod tests;

pub use bytecode::from_bytecode;
pub use compile::{compile, refusal};
pub use compiled_template::{CompiledTemplate, TemplateHole};
pub use job_programs::JobPrograms;
pub use layout::{PackedPrograms, ProgramOffsets, SearchLayout};
pub use size::{ProgramForm, SearchError, SearchSize};
pub use status::{CellScore, PairStatus};
pub use template::Template;

use serde::{Deserialize, Serialize};

use crate::named::named;

/// Each program starts at a multiple of this many bytes.
pub const PROGRAM_ALIGN: usize = 8;

named! {
    /// What a verdict says of each pair.
    #[derive(Default)]
    pub enum Score {
        /// Also whether the result has the expected shape, and how many cells are equal.
        Cells = "cells",
        /// Whether the result is the expected grid.
        #[default]
        Exact = "exact",
    }
}

impl std::str::FromStr for Score {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::from_name(text)
            .ok_or_else(|| format!("`{text}` is not a score: write exact or cells"))
    }
}

/// What one attempt of a search did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchReport {
    /// Evaluations: programs that were run, times pairs.
    pub executed: u64,
    /// Those of them whose programs ran behind one that begins alike.
    #[serde(default)]
    pub shared: u64,
    /// Those of them that ended at the limit of steps.
    pub capped: u64,
    /// Those of them that needed more memory than a GPU gives a warp, and ran on the processor.
    pub on_processor: u64,
}

impl SearchReport {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            executed: self.executed.saturating_add(other.executed),
            shared: self.shared.saturating_add(other.shared),
            capped: self.capped.saturating_add(other.capped),
            on_processor: self.on_processor.saturating_add(other.on_processor),
        }
    }
}
