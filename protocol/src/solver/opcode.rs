//! What the columns of the table of primitives mean, and the macro that makes opcodes from its rows.

use super::gives::Gives;
use super::kind::Kind;
use super::want::{Fit, Want};

/// A primitive: one row of the table. Its instruction reads the arguments from registers a, b, c and d.
#[derive(Clone, Copy, Debug)]
pub struct Primitive {
    /// Its instruction.
    pub opcode: Opcode,
    /// Its name in programs.
    pub name: &'static str,
    /// The heading under which the reference lists it.
    pub family: &'static str,
    /// Name and accepted kinds of each argument.
    pub parameters: &'static [(&'static str, Want)],
    /// How the arguments must fit together.
    pub fit: Fit,
    /// Whether it can end an item with an error on arguments of the right kinds.
    pub fails: bool,
    /// The argument that a chain puts in: `value | name(other arguments)`.
    pub subject: u8,
    /// What it gives, in a sentence.
    pub meaning: &'static str,
    pub(super) gives: Gives,
}

/// Registers that one instruction reads, at most.
pub(super) const OPERANDS: usize = 4;

impl Primitive {
    /// Its row.
    #[must_use]
    pub fn of(opcode: Opcode) -> Option<&'static Self> {
        PRIMITIVES.get(usize::from(opcode as u8).checked_sub(usize::from(FIRST_PRIMITIVE))?)
    }

    /// The kind that it gives for arguments of these kinds; `None` if it does not take them as they are.
    #[must_use]
    pub fn gives(&self, kinds: &[&Kind]) -> Option<Kind> {
        let accepted = self.parameters.iter().zip(kinds).all(|((_, want), kind)| {
            want.accept(kind).is_some_and(|accepted| accepted.is_like(kind))
        });
        if accepted { self.gives_accepted(kinds) } else { None }
    }

    /// The same for arguments each of which it accepts as it is.
    pub(super) fn gives_accepted(&self, kinds: &[&Kind]) -> Option<Kind> {
        let fits = match self.fit {
            Fit::Free => true,
            Fit::Alike => kinds.first()?.is_like(kinds.get(1)?),
            Fit::ElementOf { value, container } => {
                let element = kinds.get(usize::from(container))?.element()?;
                kinds.get(usize::from(value))?.is_like(element)
            }
            Fit::SameElements => kinds.first()?.element()?.is_like(kinds.get(1)?.element()?),
        };
        if fits && kinds.len() == self.parameters.len() { (self.gives)(kinds) } else { None }
    }

    /// Its name with its parameters: `fill(grid, value, patch)`.
    #[must_use]
    pub fn signature(&self) -> String {
        let names: Vec<_> = self.parameters.iter().map(|(name, _)| *name).collect();
        format!("{}({})", self.name, names.join(", "))
    }
}

pub use super::table::{FIRST_PRIMITIVE, Opcode, PRIMITIVES};

/// Makes `Opcode`, its names and `PRIMITIVES` from the rows of the table.
macro_rules! opcodes {
    (
        structure { $($(#[$doc:meta])* $word:ident = $code:literal $text:literal,)* }
        first $first:literal;
        $($family:literal {
            $($op:ident $name:literal [$($parameter:ident: $want:ident),*] $gives:ident $fails:ident
                $fit:expr, $subject:literal, $meaning:literal;)*
        })*
    ) => {
        /// The first byte of an instruction.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Opcode {
            $($(#[$doc])* $word = $code,)*
            $($(#[doc = $meaning] $op,)*)*
        }

        /// The lowest opcode of a primitive. The others follow in the order of the table.
        pub const FIRST_PRIMITIVE: u8 = $first;

        /// The table of primitives.
        pub const PRIMITIVES: &[Primitive] = &[$($(Primitive {
            opcode: Opcode::$op,
            name: $name,
            family: $family,
            parameters: &[$((stringify!($parameter), Want::$want)),*],
            fit: $fit,
            fails: stringify!($fails).as_bytes()[0] == b'f',
            subject: $subject,
            meaning: $meaning,
            gives: gives::$gives,
        },)*)*];

        impl Opcode {
            /// All opcodes, in ascending order.
            pub const ALL: &[Self] = &[$(Self::$word,)* $($(Self::$op,)*)*];

            /// Its name in listings.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$word => $text,)*
                    $($(Self::$op => $name,)*)*
                }
            }

            /// Whether it begins a loop.
            #[must_use]
            pub const fn begins_loop(self) -> bool {
                (self as u8) >= Self::Map as u8 && (self as u8) <= Self::Iterate as u8
            }

            /// The opcode of this number.
            #[must_use]
            pub fn from_byte(byte: u8) -> Option<Self> {
                Self::ALL.iter().copied().find(|opcode| *opcode as u8 == byte)
            }
        }
    };
}

pub(super) use opcodes;
