//! Programs: ops joined by `|`, applied per item on the device with no host round trip between them.
//!
//! Client and supervisor share this compiler. So the client refuses a wrong program before it sends anything,
//! and the supervisor refuses it with the same words.

mod cache;
mod compile;
mod diagnostic;
mod error;
mod expand;
mod extent;
mod kind;
mod names;
mod ops;
mod parameter;
mod parse;
mod size;
mod symmetry;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::batch::BatchError;
use crate::limits::{STEPS_DEFAULT, STEPS_MAX};
use crate::named::named;
use crate::solver::{self, Solver};

pub use cache::Programs;
pub use error::ProgramError;
pub use extent::Extent;
pub use kind::{Kind, Type};
pub use names::find_op;
pub use ops::{Family, Frame, Half, Measure, OPS, Op, Symmetry};
pub use parameter::{Accepts, Grouping, Key, Parameter};
pub use table::{ARGUMENTS_MAX, Arguments, Launch, OpSpec};

named! {
    /// Which colour wins a tie of counts, and the order of a palette.
    ///
    /// It is part of a program's hash: a text with another tie mode is another program.
    #[derive(Default)]
    pub enum Ties {
        /// In the order in which CPython iterates a set of small integers, as in arc-dsl (docs/src/design/ops.md,
        /// "Ties").
        #[default]
        Cpython = "cpython",
        /// The lowest colour wins; palettes ascend.
        Lowest = "lowest",
    }
}

impl FromStr for Ties {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::from_name(text)
            .ok_or_else(|| format!("`{text}` is not a tie-break: write cpython or lowest"))
    }
}

/// One instruction of a program, with its input and output types and their capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The op.
    pub op: Op,
    /// Whether it applies to each element of a tuple instead of to the whole item.
    pub applied: bool,
    /// The type of every item before the step.
    pub takes: Type,
    /// The type of every item after the step.
    pub gives: Type,
    /// The capacity of its input pictures, if `takes` is a grid, an object or a patch.
    pub from: Extent,
    /// The capacity of the ground, if `takes` or `gives` has one.
    pub ground: Extent,
    /// The capacity of its output pictures, if `gives` is a grid, an object or a patch.
    pub to: Extent,
}

impl Step {
    /// The capacity of its output pictures for `cells` cells and `items` items, in cells; 0 if it has none.
    #[must_use]
    pub fn capacity(&self, cells: usize, items: usize) -> u64 {
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

/// A compiled program: a chain of ops, or a solver. Names, arity, arguments and the types between ops have been
/// checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    takes: Type,
    steps: Vec<Step>,
    /// The other form of a program, which has no steps.
    solver: Option<Arc<Solver>>,
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
    /// let solver = Program::compile("x1 = ofcolor(I, FIVE)\nO = fill(I, ONE, x1)", Ties::Cpython).unwrap();
    /// assert!(solver.solver().is_some());
    /// ```
    pub fn compile(text: &str, ties: Ties) -> Result<Self, ProgramError> {
        let text = solver::unmarked(text);
        if solver::is_solver(text) {
            return Ok(Self::of_solver(text, Solver::compile(text, ties)?));
        }
        let calls = parse::calls(text, names::signature)?;
        let (takes, steps) = compile::compile(text, &calls)?;
        let canonical: Vec<_> = steps.iter().map(Step::to_string).collect();
        let canonical = canonical.join(" | ");
        let hash = Sha256::digest(format!("gridpool program 1\n{ties}\n{canonical}\n"));
        let hash = Arc::from(hex(&hash));
        Ok(Self { takes, steps, solver: None, ties, text: canonical, hash })
    }

    /// A program of a text that is a solver.
    fn of_solver(text: &str, solver: Solver) -> Self {
        Self {
            takes: Type::one(Kind::Grid),
            steps: Vec::new(),
            ties: solver.code().ties(),
            text: text.to_owned(),
            hash: Arc::clone(solver.hash()),
            solver: Some(Arc::new(solver)),
        }
    }

    /// The same program with another limit of steps for each item. It is part of the hash.
    ///
    /// # Errors
    /// A [`ProgramError`] if the program is a chain of ops, which has no steps, or if the limit is not from 1 to
    /// [`STEPS_MAX`].
    pub fn with_step_limit(self, steps: u32) -> Result<Self, ProgramError> {
        let refused = |message| ProgramError::new("", 0..0, message);
        let Some(solver) = self.solver else {
            return Err(refused(
                "only a solver has a limit of steps; a chain of ops has none".into(),
            ));
        };
        if !(1..=STEPS_MAX).contains(&steps) {
            return Err(refused(format!("a limit of steps is from 1 to {STEPS_MAX}, not {steps}")));
        }
        let solver = Arc::unwrap_or_clone(solver).with_step_limit(steps);
        Ok(Self { hash: Arc::clone(solver.hash()), solver: Some(Arc::new(solver)), ..self })
    }

    /// Steps that an item of a solver may run; of a chain the default, which it does not need.
    #[must_use]
    pub fn step_limit(&self) -> u32 {
        self.solver().map_or(STEPS_DEFAULT, |solver| solver.code().step_limit())
    }

    /// The solver, if the program is one.
    #[must_use]
    pub fn solver(&self) -> Option<&Solver> {
        self.solver.as_deref()
    }

    /// Its steps, or the instructions of a solver: how much work an item is.
    #[must_use]
    pub fn length(&self) -> usize {
        self.solver().map_or(self.steps.len(), |solver| solver.code().instructions().len())
    }

    /// The type of every item: a grid, or a pair of grids.
    #[must_use]
    pub fn takes(&self) -> Type {
        self.takes
    }

    /// Grids of one item: 1, or 2 if items are pairs.
    #[must_use]
    pub fn grids_per_item(&self) -> u32 {
        if self.takes == Type::PAIR { 2 } else { 1 }
    }

    /// Checks that it takes items of `grids_per_item` grids.
    ///
    /// # Errors
    /// [`BatchError::ItemType`] if it does not.
    pub fn check_items(&self, grids_per_item: usize) -> Result<(), BatchError> {
        let wants = self.grids_per_item() as usize;
        if wants == grids_per_item {
            return Ok(());
        }
        Err(BatchError::ItemType { wants, has: grids_per_item })
    }

    /// The ops of a chain, at least one; none of a solver.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// How ties are broken.
    #[must_use]
    pub fn ties(&self) -> Ties {
        self.ties
    }

    /// The canonical text, with synonyms resolved and normal spaces.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// SHA-256 of the canonical text and the tie mode, 64 hexadecimal digits.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The hash, shared by jobs.
    #[must_use]
    pub fn shared_hash(&self) -> Arc<str> {
        Arc::clone(&self.hash)
    }

    /// The type of every item's result.
    #[must_use]
    pub fn gives(&self) -> Type {
        match self.solver() {
            None => self.last().gives,
            Some(solver) if *solver.code().gives() == solver::Kind::Grid => Type::one(Kind::Grid),
            Some(_) => Type::one(Kind::Value),
        }
    }

    /// The capacity of the result's pictures; for a list of objects, of its ground.
    #[must_use]
    pub fn extent(&self) -> Extent {
        if let Some(solver) = self.solver() {
            return Extent::of_solver(solver.code().result_bytes_max());
        }
        if self.gives().kind == Kind::Objects { self.last().ground } else { self.last().to }
    }

    /// Whether the result is packed: its values have places of their own instead of the input's.
    #[must_use]
    pub fn is_packed(&self) -> bool {
        self.solver.is_some() || self.gives().kind.has_cells() && !self.extent().is_in_place()
    }

    /// Whether a list of objects has another ground than the input, so that the result must have its cells.
    #[must_use]
    pub fn changes_ground(&self) -> bool {
        let is_change = |step: &&Step| {
            step.gives.kind == Kind::Grid && step.op != Op::Symmetry(Symmetry::Identity)
        };
        self.steps.iter().any(|step| is_change(&step))
    }

    /// The last op of a chain.
    fn last(&self) -> &Step {
        self.steps.last().expect("a chain has at least one step")
    }
}

/// Lower-case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let both = |byte: &u8| [byte >> 4, byte & 15].map(|half| char::from(DIGITS[usize::from(half)]));
    bytes.iter().flat_map(both).collect()
}

/// The bytes of hexadecimal digits; `None` if there is anything else, or an odd number of them.
///
/// ```
/// use gridpool_protocol::program::{hex, unhex};
/// assert_eq!(unhex(&hex(&[0, 255, 16])), Some(vec![0, 255, 16]));
/// assert_eq!((unhex("0"), unhex("+1"), unhex("")), (None, None, Some(vec![])));
/// ```
#[must_use]
pub fn unhex(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let value = |digit: u8| char::from(digit).to_digit(16);
    let byte = |pair: &[u8; 2]| u8::try_from(16 * value(pair[0])? + value(pair[1])?).ok();
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}
