//! The parameters of ops.

use super::parse::{Argument, Value};
use crate::limits::COLOR_MAX;

/// One parameter of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name in help and errors.
    pub name: &'static str,
    /// The accepted arguments.
    pub accepts: Accepts,
}

/// The arguments that a parameter accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepts {
    /// `true` or `false`.
    Flag,
    /// A colour, 0 to 9.
    Color,
    /// A whole number.
    Number {
        /// The minimum.
        min: i16,
        /// The maximum.
        max: i16,
    },
    /// A property by which objects are compared.
    Key,
    /// A program.
    Program,
}

impl Accepts {
    /// A parameter of this name.
    pub(super) const fn named(self, name: &'static str) -> Parameter {
        Parameter { name, accepts: self }
    }
}

impl Parameter {
    /// The accepted arguments, in words.
    #[must_use]
    pub fn wants(self) -> String {
        match self.accepts {
            Accepts::Flag => "`true` or `false`".to_owned(),
            Accepts::Color => format!("a colour from 0 to {COLOR_MAX}"),
            Accepts::Number { min, max } => format!("a number from {min} to {max}"),
            Accepts::Key => format!("one of {}", Key::ALL.map(Key::name).join(", ")),
            Accepts::Program => "an op, or ops joined by `|`".to_owned(),
        }
    }

    /// Whether it accepts numbers.
    pub(super) fn is_number(self) -> bool {
        matches!(self.accepts, Accepts::Color | Accepts::Number { .. })
    }

    /// An example of an accepted argument.
    pub(super) fn example(self) -> i16 {
        match self.accepts {
            Accepts::Number { min, .. } => min.max(1),
            Accepts::Key => Key::ALL[0] as i16,
            Accepts::Color | Accepts::Flag | Accepts::Program => 0,
        }
    }

    /// A checked argument as text; for a program an example.
    pub(super) fn text(self, number: i16) -> String {
        match self.accepts {
            Accepts::Flag => (number != 0).to_string(),
            Accepts::Key => Key::from_number(number).map_or("", Key::name).to_owned(),
            Accepts::Program => "rot90".to_owned(),
            Accepts::Color | Accepts::Number { .. } => number.to_string(),
        }
    }

    /// The argument as a number (a flag is 0 or 1, a key its own), or `None` if it does not fit.
    pub(super) fn accept(self, argument: &Argument) -> Option<i16> {
        let number = |min, max| match argument.value {
            Value::Number(number) => i16::try_from(number).ok().filter(|n| (min..=max).contains(n)),
            Value::Calls(_) | Value::Flag(_) => None,
        };
        match (self.accepts, &argument.value) {
            (Accepts::Flag, &Value::Flag(flag)) => Some(flag.into()),
            (Accepts::Color, _) => number(0, COLOR_MAX.into()),
            (Accepts::Number { min, max }, _) => number(min, max),
            (Accepts::Key, Value::Calls(calls)) => match calls.as_slice() {
                [call] if call.arguments.is_empty() => {
                    let key = Key::ALL.into_iter().find(|key| key.name() == call.name);
                    key.map(|key| key as i16)
                }
                _ => None,
            },
            (Accepts::Flag | Accepts::Key | Accepts::Program, _) => None,
        }
    }
}

/// The keys by which `argmax` and `argmin` compare objects. Kernels number them in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The colour of its first cell.
    Color,
    /// Rows of its box.
    Height,
    /// Its leftmost column.
    Leftmost,
    /// Its lowest row.
    Lowermost,
    /// Its rightmost column.
    Rightmost,
    /// Its cells.
    Size,
    /// Its highest row.
    Uppermost,
    /// Columns of its box.
    Width,
}

impl Key {
    /// All keys, in the order in which help lists them.
    pub const ALL: [Self; 8] = [
        Self::Size,
        Self::Height,
        Self::Width,
        Self::Color,
        Self::Uppermost,
        Self::Lowermost,
        Self::Leftmost,
        Self::Rightmost,
    ];

    /// The key of this number in kernels.
    #[must_use]
    pub fn from_number(number: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|&key| key as i16 == number)
    }

    /// Its name in programs: the op that computes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Color => "color",
            Self::Height => "height",
            Self::Leftmost => "leftmost",
            Self::Lowermost => "lowermost",
            Self::Rightmost => "rightmost",
            Self::Size => "size",
            Self::Uppermost => "uppermost",
            Self::Width => "width",
        }
    }
}

/// How `objects` groups cells: the DSL's three switches, `o_g`'s type `4u + 2d + b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grouping {
    /// Whether an object has one colour. Otherwise all cells but the background group together.
    pub univalued: bool,
    /// Whether a cell has eight neighbours instead of four.
    pub diagonal: bool,
    /// Whether cells of the commonest colour are background.
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
}
