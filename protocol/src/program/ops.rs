//! The table of ops. To add one: a variant of [`Op`], its `Display`, a row of [`OPS`]; then the
//! reference in `kernels/src/reference`, the kernel in `kernels/cuda`, and the launch in the worker.

use std::fmt;

use super::parse::{Argument, Value};

/// What a program's value is between two ops, for every item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Rows of colours.
    Grid,
    /// A whole number: a colour or a count.
    Number,
    /// A list of colours.
    Colors,
    /// Objects of a grid, in canonical order.
    Objects,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Grid => "a grid",
            Self::Number => "a number",
            Self::Colors => "a list of colours",
            Self::Objects => "a list of objects",
        })
    }
}

/// The eight symmetries of the square. `h` and `w` are those of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Symmetry {
    /// Mirror at the counter-diagonal: `out[i][j] = in[h-1-j][w-1-i]`, w x h.
    Cmirror,
    /// Transpose: `out[i][j] = in[j][i]`, w x h.
    Dmirror,
    /// Top and bottom change places: `out[i][j] = in[h-1-i][j]`.
    Hmirror,
    /// Every cell stays.
    Identity,
    /// Half turn: `out[i][j] = in[h-1-i][w-1-j]`.
    Rot180,
    /// Counter-clockwise quarter turn: `out[i][j] = in[j][w-1-i]`, w x h.
    Rot270,
    /// Clockwise quarter turn: `out[i][j] = in[h-1-j][i]`, w x h.
    Rot90,
    /// Left and right change places: `out[i][j] = in[i][w-1-j]`.
    Vmirror,
}

impl Symmetry {
    /// All eight.
    pub const ALL: [Self; 8] = [
        Self::Identity,
        Self::Rot90,
        Self::Rot180,
        Self::Rot270,
        Self::Hmirror,
        Self::Vmirror,
        Self::Dmirror,
        Self::Cmirror,
    ];

    /// Its name in programs, receipts and kernels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cmirror => "cmirror",
            Self::Dmirror => "dmirror",
            Self::Hmirror => "hmirror",
            Self::Identity => "identity",
            Self::Rot180 => "rot180",
            Self::Rot270 => "rot270",
            Self::Rot90 => "rot90",
            Self::Vmirror => "vmirror",
        }
    }

    /// Whether height and width change places.
    #[must_use]
    pub fn transposes(self) -> bool {
        match self {
            Self::Cmirror | Self::Dmirror | Self::Rot270 | Self::Rot90 => true,
            Self::Hmirror | Self::Identity | Self::Rot180 | Self::Vmirror => false,
        }
    }
}

/// How `objects` groups cells: the DSL's three switches, `o_g`'s type `4u + 2d + b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grouping {
    /// An object has one colour; else all cells that are not background group together.
    pub univalued: bool,
    /// Eight neighbours; else four.
    pub diagonal: bool,
    /// Cells of the commonest colour belong to no object.
    pub without_bg: bool,
}

impl Grouping {
    /// The grouping of `o_g(g, code)`; `None` above 7.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        (code < 8).then_some(Self {
            univalued: code & 4 != 0,
            diagonal: code & 2 != 0,
            without_bg: code & 1 != 0,
        })
    }

    /// The inverse of [`Grouping::from_code`].
    #[must_use]
    pub fn code(self) -> u8 {
        4 * u8::from(self.univalued) + 2 * u8::from(self.diagonal) + u8::from(self.without_bg)
    }
}

/// One instruction of a compiled program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// Number of cells of a colour.
    ColorCount {
        /// The colour counted.
        color: u8,
    },
    /// The rarest colour; ties by [`super::Ties`].
    LeastColor,
    /// The commonest colour; ties by [`super::Ties`].
    MostColor,
    /// Number of distinct colours.
    NumColors,
    /// Connected components in canonical order (workload.md 2.2).
    Objects(Grouping),
    /// The distinct colours; order by [`super::Ties`].
    Palette,
    /// Every cell of one colour takes another.
    Replace {
        /// The colour that goes.
        old: u8,
        /// The colour that comes.
        new: u8,
    },
    /// Two colours change places.
    Switch {
        /// One colour.
        a: u8,
        /// The other.
        b: u8,
    },
    /// One of the eight symmetries.
    Symmetry(Symmetry),
}

impl Op {
    /// The op's name as receipts and errors give it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ColorCount { .. } => "colorcount",
            Self::LeastColor => "leastcolor",
            Self::MostColor => "mostcolor",
            Self::NumColors => "numcolors",
            Self::Objects(_) => "objects",
            Self::Palette => "palette",
            Self::Replace { .. } => "replace",
            Self::Switch { .. } => "switch",
            Self::Symmetry(symmetry) => symmetry.name(),
        }
    }

    /// The kind of value it gives.
    #[must_use]
    pub fn gives(self) -> Kind {
        match self {
            Self::ColorCount { .. } | Self::LeastColor | Self::MostColor | Self::NumColors => {
                Kind::Number
            }
            Self::Objects(_) => Kind::Objects,
            Self::Palette => Kind::Colors,
            Self::Replace { .. } | Self::Switch { .. } | Self::Symmetry(_) => Kind::Grid,
        }
    }
}

/// The canonical text, which [`super::Program::compile`] reads back as the same op.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match *self {
            Self::ColorCount { color } => write!(f, "{name}({color})"),
            Self::Objects(Grouping { univalued, diagonal, without_bg }) => {
                write!(f, "{name}({univalued}, {diagonal}, {without_bg})")
            }
            Self::Replace { old, new } => write!(f, "{name}({old}, {new})"),
            Self::Switch { a, b } => write!(f, "{name}({a}, {b})"),
            Self::LeastColor
            | Self::MostColor
            | Self::NumColors
            | Self::Palette
            | Self::Symmetry(_) => f.write_str(name),
        }
    }
}

/// What one parameter of an op may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// `true` or `false`.
    Flag(&'static str),
    /// A colour, 0 to 9.
    Color(&'static str),
    /// A whole number from 0 up to and including a bound.
    UpTo(&'static str, u8),
}

impl Parameter {
    /// Its name, as help and errors give it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Flag(name) | Self::Color(name) | Self::UpTo(name, _) => name,
        }
    }

    /// What may stand there, in words.
    #[must_use]
    pub fn wants(self) -> String {
        match self {
            Self::Flag(_) => "`true` or `false`".to_owned(),
            Self::Color(_) => "a colour from 0 to 9".to_owned(),
            Self::UpTo(_, max) => format!("a number from 0 to {max}"),
        }
    }

    /// The argument as a small number (flags are 0 and 1), or `None` if it does not fit.
    pub(super) fn accept(self, argument: &Argument) -> Option<u8> {
        let bound = match self {
            Self::Flag(_) => {
                return match argument.value {
                    Value::Flag(flag) => Some(u8::from(flag)),
                    Value::Call(_) | Value::Number(_) => None,
                };
            }
            Self::Color(_) => crate::limits::COLOR_MAX,
            Self::UpTo(_, max) => max,
        };
        match argument.value {
            Value::Number(number) => u8::try_from(number).ok().filter(|&n| n <= bound),
            Value::Call(_) | Value::Flag(_) => None,
        }
    }
}

/// One row of the op table: how an op is written, what it takes and gives, where it comes from.
#[derive(Clone, Copy, Debug)]
pub struct OpSpec {
    /// The name in programs.
    pub name: &'static str,
    /// Its parameters, in order.
    pub parameters: &'static [Parameter],
    /// The kind of value it works on.
    pub takes: Kind,
    /// One line of meaning.
    pub meaning: &'static str,
    /// Where the name and the meaning come from.
    pub source: &'static str,
    /// Makes the instruction from checked arguments (one small number each).
    pub(super) build: fn(&[u8]) -> Op,
}

impl OpSpec {
    /// The kind of value the op gives. It does not depend on the arguments.
    #[must_use]
    pub fn gives(&self) -> Kind {
        (self.build)(&vec![0; self.parameters.len()]).gives()
    }

    /// How to write it: `replace(old, new)`.
    #[must_use]
    pub fn signature(&self) -> String {
        if self.parameters.is_empty() {
            return self.name.to_owned();
        }
        let names: Vec<_> = self.parameters.iter().map(|p| p.name()).collect();
        format!("{}({})", self.name, names.join(", "))
    }
}

const GROUPING: &[Parameter] =
    &[Parameter::Flag("univalued"), Parameter::Flag("diagonal"), Parameter::Flag("without_bg")];

const fn symmetry(name: &'static str, meaning: &'static str, build: fn(&[u8]) -> Op) -> OpSpec {
    OpSpec { name, parameters: &[], takes: Kind::Grid, meaning, source: "arc-dsl", build }
}

const fn on_grid(
    name: &'static str,
    parameters: &'static [Parameter],
    meaning: &'static str,
    source: &'static str,
    build: fn(&[u8]) -> Op,
) -> OpSpec {
    OpSpec { name, parameters, takes: Kind::Grid, meaning, source, build }
}

/// Every op that a program may name, synonyms included.
pub const OPS: &[OpSpec] = &[
    symmetry("identity", "the grid itself", |_| Op::Symmetry(Symmetry::Identity)),
    symmetry("rot90", "quarter turn clockwise", |_| Op::Symmetry(Symmetry::Rot90)),
    symmetry("rot180", "half turn", |_| Op::Symmetry(Symmetry::Rot180)),
    symmetry("rot270", "quarter turn counter-clockwise", |_| Op::Symmetry(Symmetry::Rot270)),
    symmetry("hmirror", "top and bottom change places", |_| Op::Symmetry(Symmetry::Hmirror)),
    symmetry("vmirror", "left and right change places", |_| Op::Symmetry(Symmetry::Vmirror)),
    symmetry("dmirror", "transpose: mirror at the main diagonal", |_| {
        Op::Symmetry(Symmetry::Dmirror)
    }),
    symmetry("transpose", "the same as dmirror", |_| Op::Symmetry(Symmetry::Dmirror)),
    symmetry("cmirror", "mirror at the counter-diagonal", |_| Op::Symmetry(Symmetry::Cmirror)),
    on_grid(
        "replace",
        &[Parameter::Color("old"), Parameter::Color("new")],
        "cells of colour old become new",
        "arc-dsl",
        |a| Op::Replace { old: a[0], new: a[1] },
    ),
    on_grid(
        "switch",
        &[Parameter::Color("a"), Parameter::Color("b")],
        "colours a and b change places",
        "arc-dsl",
        |a| Op::Switch { a: a[0], b: a[1] },
    ),
    on_grid("mostcolor", &[], "the commonest colour", "arc-dsl", |_| Op::MostColor),
    on_grid("leastcolor", &[], "the rarest colour", "arc-dsl", |_| Op::LeastColor),
    on_grid("palette", &[], "the distinct colours", "arc-dsl", |_| Op::Palette),
    on_grid("p_g", &[], "the same as palette", "tokpidjin", |_| Op::Palette),
    on_grid("numcolors", &[], "how many distinct colours", "arc-dsl", |_| Op::NumColors),
    on_grid(
        "colorcount",
        &[Parameter::Color("color")],
        "how many cells of a colour",
        "arc-dsl",
        |a| Op::ColorCount { color: a[0] },
    ),
    on_grid("objects", GROUPING, "connected components, in canonical order", "arc-dsl", |a| {
        Op::Objects(Grouping { univalued: a[0] != 0, diagonal: a[1] != 0, without_bg: a[2] != 0 })
    }),
    on_grid(
        "o_g",
        &[Parameter::UpTo("type", 7)],
        "objects by type = 4 univalued + 2 diagonal + 1 without_bg",
        "tokpidjin",
        |a| {
            Op::Objects(Grouping {
                univalued: a[0] & 4 != 0,
                diagonal: a[0] & 2 != 0,
                without_bg: a[0] & 1 != 0,
            })
        },
    ),
];

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
