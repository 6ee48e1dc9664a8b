//! Programs: ops joined by `|`, applied per item on the device with no host round trip between them.
//!
//! The compiler lives here so that a bad program is refused by the client before anything is sent,
//! and again by the supervisor, with the same words.

mod cache;
mod compile;
mod complaint;
mod error;
mod extent;
mod kind;
mod names;
mod ops;
mod parameter;
mod parse;
mod table;
#[cfg(test)]
mod tests;
mod typing;
mod variants;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::batch::BatchError;

pub use cache::Programs;
pub use error::ProgramError;
pub use extent::Extent;
pub use kind::{Kind, Type};
pub use ops::Op;
pub use parameter::Parameter;
pub use table::{Family, OPS, OpSpec, REFUSED};
pub use variants::{Frame, Grouping, Half, Key, Measure, Symmetry};

/// Who wins when two colours are equally common, and in which order a palette is listed.
///
/// Part of a program's hash: the same text under another mode is another program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ties {
    /// As CPython iterates a set of small integers: what arc-dsl does (workload.md 2.4, N1).
    #[default]
    Cpython,
    /// The lowest colour wins; palettes ascend.
    Lowest,
}

impl fmt::Display for Ties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpython => "cpython",
            Self::Lowest => "lowest",
        })
    }
}

impl FromStr for Ties {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "cpython" => Ok(Self::Cpython),
            "lowest" => Ok(Self::Lowest),
            _ => Err(format!("`{text}` is not a tie-break: write cpython or lowest")),
        }
    }
}

/// One instruction of a program, with what it takes and gives for every item and the room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What to do.
    pub op: Op,
    /// To each element of a tuple, one by one, rather than to all that the item has.
    pub applied: bool,
    /// What every item has before the step.
    pub takes: Type,
    /// What every item has after the step.
    pub gives: Type,
    /// The room of the pictures that it takes, if `takes` is a grid, an object or a patch.
    pub from: Extent,
    /// The room of the ground, which is of use if `takes` or `gives` has one.
    pub ground: Extent,
    /// The room of the pictures that it gives, if `gives` is a grid, an object or a patch.
    pub to: Extent,
}

impl Step {
    /// Room for the pictures that it gives for so many cells and items, in cells; 0 if it gives none.
    #[must_use]
    pub fn room(&self, cells: usize, items: usize) -> u64 {
        if !self.gives.kind.is_picture() {
            return 0;
        }
        self.to.clamped(cells, items).capacity(cells, items)
    }
}

/// The canonical text of the step.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.applied { write!(f, "apply({})", self.op) } else { self.op.fmt(f) }
    }
}

/// A program that has been checked: names, arity, argument kinds, and the kinds between ops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    takes: Type,
    steps: Vec<Step>,
    ties: Ties,
    text: String,
    hash: Arc<str>,
}

impl Program {
    /// Compiles `text`, for instance `rot90 | replace(0, 5) | objects(true, false, true)`.
    ///
    /// # Errors
    /// A [`ProgramError`] that points at the first wrong place and says what to write instead.
    ///
    /// ```
    /// use gridpool_protocol::program::{Program, Ties, Type};
    /// let program = Program::compile("transpose|p_g", Ties::Cpython).unwrap();
    /// assert_eq!(program.text(), "dmirror | palette");
    /// let program = Program::compile("mapply(rot90 | fill(5, ofcolor(0)))", Ties::Cpython).unwrap();
    /// assert_eq!(program.text(), "apply(rot90) | apply(ofcolor(0)) | apply(fill(5))");
    /// assert_eq!(program.takes(), Type::PAIR);
    /// let error = Program::compile("rot90 | flip", Ties::Cpython).unwrap_err();
    /// assert_eq!(error.span(), 8..12);
    /// ```
    pub fn compile(text: &str, ties: Ties) -> Result<Self, ProgramError> {
        let calls = parse::calls(text)?;
        let (takes, steps) = compile::compile(text, &calls)?;
        let canonical: Vec<_> = steps.iter().map(Step::to_string).collect();
        let canonical = canonical.join(" | ");
        let hash = Sha256::digest(format!("gridpool program 1\n{ties}\n{canonical}\n"));
        let hash = Arc::from(hex(&hash));
        Ok(Self { takes, steps, ties, text: canonical, hash })
    }

    /// What every item is: a grid, or a pair of grids.
    #[must_use]
    pub fn takes(&self) -> Type {
        self.takes
    }

    /// Grids of one item: 1, or 2 if items are pairs.
    #[must_use]
    pub fn grids_per_item(&self) -> u32 {
        if self.takes == Type::PAIR { 2 } else { 1 }
    }

    /// Whether items of so many grids are what it takes.
    ///
    /// # Errors
    /// [`BatchError::ItemType`] if they are not.
    pub fn check_items(&self, grids_per_item: usize) -> Result<(), BatchError> {
        let has = if grids_per_item == 2 { Type::PAIR } else { Type::one(Kind::Grid) };
        let wants = self.takes;
        if has == wants { Ok(()) } else { Err(BatchError::ItemType { wants, has }) }
    }

    /// The instructions, at least one.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// How ties are broken.
    #[must_use]
    pub fn ties(&self) -> Ties {
        self.ties
    }

    /// The canonical text: synonyms resolved, one step after the other, spaces normal.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// SHA-256 of the canonical text and the tie mode, 64 hexadecimal digits.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The same in a form that jobs share.
    #[must_use]
    pub fn shared_hash(&self) -> Arc<str> {
        Arc::clone(&self.hash)
    }

    /// What every item's result is.
    #[must_use]
    pub fn gives(&self) -> Type {
        self.last().gives
    }

    /// The room of the result's pictures, of its ground where it is a list of objects.
    #[must_use]
    pub fn extent(&self) -> Extent {
        if self.gives().kind == Kind::Objects { self.last().ground } else { self.last().to }
    }

    /// Whether results lie where a run of the program puts them, rather than where the input lies.
    #[must_use]
    pub fn is_packed(&self) -> bool {
        self.gives().kind.has_cells() && !self.extent().is_in_place()
    }

    /// Whether a list of objects is of grids that differ from the input, so that their cells must be
    /// sent back beside the labels.
    #[must_use]
    pub fn changes_ground(&self) -> bool {
        let is_change = |step: &&Step| {
            step.gives.kind == Kind::Grid && step.op != Op::Symmetry(Symmetry::Identity)
        };
        self.steps.iter().any(|step| is_change(&step))
    }

    fn last(&self) -> &Step {
        self.steps.last().expect("a program has at least one step")
    }
}

/// Lower-case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
