//! What stands between the brackets of an op.

use super::parse::{Argument, Value};
use super::variants::Key;
use crate::limits::COLOR_MAX;

/// What one parameter of an op may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// `true` or `false`.
    Flag(&'static str),
    /// A colour, 0 to 9.
    Color(&'static str),
    /// A whole number.
    Number {
        /// The parameter's name.
        name: &'static str,
        /// The least.
        min: i16,
        /// The greatest.
        max: i16,
    },
    /// A property by which objects are compared.
    Key(&'static str),
    /// A program.
    Program(&'static str),
}

impl Parameter {
    /// Its name, as help and errors give it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Flag(name)
            | Self::Color(name)
            | Self::Number { name, .. }
            | Self::Key(name)
            | Self::Program(name) => name,
        }
    }

    /// What may stand there, in words.
    #[must_use]
    pub fn wants(self) -> String {
        match self {
            Self::Flag(_) => "`true` or `false`".to_owned(),
            Self::Color(_) => format!("a colour from 0 to {COLOR_MAX}"),
            Self::Number { min, max, .. } => format!("a number from {min} to {max}"),
            Self::Key(_) => {
                let names: Vec<_> = Key::ALL.iter().map(|key| key.name()).collect();
                format!("one of {}", names.join(", "))
            }
            Self::Program(_) => "an op, or ops joined by `|`".to_owned(),
        }
    }

    /// Whether a number may stand there.
    pub(super) fn is_number(self) -> bool {
        match self {
            Self::Color(_) | Self::Number { .. } => true,
            Self::Flag(_) | Self::Key(_) | Self::Program(_) => false,
        }
    }

    /// A value that it accepts, as a checked argument holds it.
    #[must_use]
    pub fn example(self) -> i16 {
        match self {
            Self::Number { min, .. } => min.max(1),
            Self::Color(_) | Self::Flag(_) | Self::Key(_) | Self::Program(_) => 0,
        }
    }

    /// The same value as it is written.
    pub(super) fn example_text(self) -> String {
        match self {
            Self::Flag(_) => "false".to_owned(),
            Self::Key(_) => Key::ALL[0].name().to_owned(),
            Self::Program(_) => "rot90".to_owned(),
            Self::Color(_) | Self::Number { .. } => self.example().to_string(),
        }
    }

    /// The argument as a number (a flag is 0 or 1, a key its position in [`Key::ALL`]), or `None`
    /// if it does not fit.
    pub(super) fn accept(self, argument: &Argument) -> Option<i16> {
        match (self, &argument.value) {
            (Self::Flag(_), Value::Flag(flag)) => Some((*flag).into()),
            (Self::Color(_), &Value::Number(number)) => {
                i16::try_from(number).ok().filter(|n| (0..=i16::from(COLOR_MAX)).contains(n))
            }
            (Self::Number { min, max, .. }, &Value::Number(number)) => {
                i16::try_from(number).ok().filter(|n| (min..=max).contains(n))
            }
            (Self::Key(_), Value::Calls(calls)) => match calls.as_slice() {
                [call] if call.arguments.is_empty() => {
                    let at = Key::ALL.iter().position(|key| key.name() == call.name)?;
                    i16::try_from(at).ok()
                }
                _ => None,
            },
            (
                Self::Flag(_) | Self::Color(_) | Self::Number { .. } | Self::Key(_),
                Value::Flag(_) | Value::Number(_) | Value::Calls(_),
            )
            | (Self::Program(_), _) => None,
        }
    }
}

/// The checked arguments of one call, in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arguments<'a>(pub(super) &'a [i16]);

impl Arguments<'_> {
    pub(super) fn flag(self, at: usize) -> bool {
        self.0[at] != 0
    }

    pub(super) fn key(self, at: usize) -> Key {
        Key::ALL[usize::from(self.byte(at))]
    }

    /// A number that its parameter keeps within a byte.
    pub(super) fn byte(self, at: usize) -> u8 {
        u8::try_from(self.0[at]).expect("the parameter's bounds lie within a byte")
    }

    pub(super) fn number(self, at: usize) -> i16 {
        self.0[at]
    }
}
