//! How every op is written, what it means and where it comes from.
//!
//! To add an op: a variant of [`Op`] with its name and text (`ops`), what it takes and gives
//! (`typing`), a row here; then the reference in `kernels/src/reference` and the kernel in
//! `kernels/cuda`.

use std::fmt;

use super::kind::{Kind, Type};
use super::ops::Op;
use super::parameter::{Arguments, Parameter};
use super::variants::{Frame, Grouping, Half, Measure, Symmetry};
use crate::limits::{DOWNSCALE_MAX, GRID_CELLS_MAX, SHIFT_MAX, SIDE_MAX, SPLIT_MAX, UPSCALE_MAX};

/// What ops belong together, for tables and help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// The eight symmetries of the square.
    Symmetry,
    /// What asks for, or changes, colours.
    Color,
    /// Windows, halves and parts of a grid.
    Cut,
    /// Larger, smaller and new grids.
    Scale,
    /// Pairs and tuples of grids.
    Tuple,
    /// Lists of objects.
    Objects,
    /// Places and cells.
    Patch,
    /// Back onto the ground.
    Paint,
    /// Where, how large, what shape.
    Measure,
}

impl Family {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 9] = [
        Self::Symmetry,
        Self::Color,
        Self::Cut,
        Self::Scale,
        Self::Tuple,
        Self::Objects,
        Self::Patch,
        Self::Paint,
        Self::Measure,
    ];
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Symmetry => "symmetries",
            Self::Color => "colours",
            Self::Cut => "cutting",
            Self::Scale => "scaling and making",
            Self::Tuple => "pairs and tuples",
            Self::Objects => "lists of objects",
            Self::Patch => "objects and patches",
            Self::Paint => "painting on the ground",
            Self::Measure => "measuring",
        })
    }
}

/// Makes the instruction of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Build {
    /// The arguments say all.
    Op(fn(Arguments<'_>) -> Op),
    /// An element of a tuple or an object of a list; the arguments say which, from 0, or from -1
    /// for the last.
    Nth(fn(Arguments<'_>) -> i16),
    /// A program on every element of a tuple.
    Apply,
}

/// One row of the op table: how an op is written, what it means, where it comes from.
#[derive(Clone, Copy, Debug)]
pub struct OpSpec {
    /// The name in programs.
    pub name: &'static str,
    /// Its parameters, in order.
    pub parameters: &'static [Parameter],
    /// The ops that it belongs to.
    pub family: Family,
    /// One line of meaning.
    pub meaning: &'static str,
    /// Where the name and the meaning come from.
    pub source: &'static str,
    pub(super) build: Build,
}

impl OpSpec {
    /// How to write it: `replace(old, new)`.
    #[must_use]
    pub fn signature(&self) -> String {
        if self.parameters.is_empty() {
            return self.name.to_owned();
        }
        let names: Vec<_> = self.parameters.iter().map(|p| p.name()).collect();
        format!("{}({})", self.name, names.join(", "))
    }

    /// Each type of value that it works on, and what it gives for that. Of tuples only the pair is
    /// named, and of what is applied to a tuple only that it stays a tuple.
    #[must_use]
    pub fn kinds(&self) -> Vec<(Type, Type)> {
        let ones = Kind::ALL.map(Type::one);
        let takes = ones.into_iter().chain([Type::PAIR]);
        takes.filter_map(|takes| Some((takes, self.gives(takes)?))).collect()
    }

    /// Whether it works on values of the type, as far as that can be told without its arguments.
    pub(super) fn works_on(&self, takes: Type) -> bool {
        self.gives(takes).is_some()
    }

    /// A program that ends with the op, as short as can be.
    #[must_use]
    pub fn example(&self) -> String {
        let first = self.kinds().first().map(|&(takes, _)| takes);
        self.example_on(first.unwrap_or(Type::PAIR))
    }

    /// A program that ends with the op on a value of one of the types that it works on.
    #[must_use]
    pub fn example_on(&self, takes: Type) -> String {
        let words: Vec<_> = self.parameters.iter().map(|p| p.example_text()).collect();
        let brackets =
            if words.is_empty() { String::new() } else { format!("({})", words.join(", ")) };
        let to_it = match takes.kind {
            Kind::Objects => "objects(true, false, true) | ",
            Kind::Object => "asobject | ",
            Kind::Patch => "ofcolor(0) | ",
            Kind::Colors | Kind::Flag | Kind::Grid | Kind::Number | Kind::Vector => "",
        };
        format!("{to_it}{}{brackets}", self.name)
    }

    /// Whether a patch may be found on the way, as in `fill(5, ofcolor(0))`: what works on a patch
    /// and gives a grid takes a program for the patch as its last argument when it follows a grid.
    #[must_use]
    pub fn takes_patch_program(&self) -> bool {
        self.gives(Type::one(Kind::Object)) == Some(Type::one(Kind::Grid))
    }

    /// What it gives; it does not depend on the arguments, but for the number of parts of a split.
    fn gives(&self, takes: Type) -> Option<Type> {
        let examples: Vec<i16> = self.parameters.iter().map(|p| p.example()).collect();
        match self.build {
            Build::Op(build) => build(Arguments(&examples)).gives(takes),
            Build::Nth(_) => {
                let op = if takes.tuple.is_some() {
                    Op::NthElement { index: 0 }
                } else {
                    Op::NthObject { index: 0 }
                };
                op.gives(takes)
            }
            Build::Apply => (takes == Type::PAIR).then_some(Type::PAIR),
        }
    }
}

const fn row(
    family: Family,
    name: &'static str,
    parameters: &'static [Parameter],
    meaning: &'static str,
    build: fn(Arguments<'_>) -> Op,
) -> OpSpec {
    let build = Build::Op(build);
    OpSpec { name, parameters, family, meaning, source: "arc-dsl", build }
}

const fn from_tokpidjin(row: OpSpec) -> OpSpec {
    OpSpec { source: "tokpidjin", ..row }
}

const fn nth(
    name: &'static str,
    parameters: &'static [Parameter],
    meaning: &'static str,
    which: fn(Arguments<'_>) -> i16,
) -> OpSpec {
    let build = Build::Nth(which);
    OpSpec { name, parameters, family: Family::Tuple, meaning, source: "arc-dsl", build }
}

const fn apply(name: &'static str, meaning: &'static str) -> OpSpec {
    let parameters = &[Parameter::Program("program")];
    let family = Family::Tuple;
    OpSpec { name, parameters, family, meaning, source: "arc-dsl", build: Build::Apply }
}

const fn number(name: &'static str, min: i16, max: i16) -> Parameter {
    Parameter::Number { name, min, max }
}

const COLOR: &[Parameter] = &[Parameter::Color("color")];
const KEY: &[Parameter] = &[Parameter::Key("key")];
const FACTOR: &[Parameter] = &[number("factor", 1, UPSCALE_MAX as i16)];
const PARTS: &[Parameter] = &[number("parts", 1, SPLIT_MAX as i16)];
const SIDE: i16 = 255;
const LARGEST: i16 = 4_096;
const _: () = assert!(SIDE.unsigned_abs() as usize == SIDE_MAX);
const _: () = assert!(LARGEST.unsigned_abs() as usize == GRID_CELLS_MAX);
const OFFSET: &[Parameter] =
    &[number("rows", -SHIFT_MAX, SHIFT_MAX), number("cols", -SHIFT_MAX, SHIFT_MAX)];

mod rows;

pub use rows::OPS;

/// Names that look like ops and are not, each with a sentence on what to write instead.
pub const REFUSED: &[(&str, &str)] = &[
    (
        "flip",
        "`flip` is a boolean not in the DSL, not a mirror: write hmirror (top and bottom) or vmirror (left and right)",
    ),
    (
        "mirror",
        "say which mirror: hmirror (top and bottom), vmirror (left and right), dmirror (transpose) or cmirror",
    ),
    ("flip_h", "the reports' flip_h is vmirror (left and right change places)"),
    ("flip_v", "the reports' flip_v is hmirror (top and bottom change places)"),
    ("rot", "say how far: rot90, rot180 or rot270"),
];
