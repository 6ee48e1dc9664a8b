//! The columns of the table of ops, and the functions on a row.

use std::fmt;

use super::kind::{Kind, Type};
use super::ops::{Family, Op};
use super::parameter::{Accepts, Key, Parameter};

/// Most arguments of an op, as kernels take them: `args` of `Op` in `kernels/cuda/step.cuh`.
pub const ARGUMENTS_MAX: usize = 4;

/// The arguments of an op as numbers, in the order in which they are written; 0 where there is none.
pub type Arguments = [i16; ARGUMENTS_MAX];

/// What an op works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// One value of one of these kinds.
    Kinds(&'static [Kind]),
    /// All grids of a tuple of any length.
    Tuple,
    /// Both grids of a pair.
    Pair,
    /// Every value of a tuple, one by one.
    Each,
}

impl Takes {
    /// The tuples that it works on, in words; `None` if it works on one value.
    pub(super) fn tuple_words(self) -> Option<&'static str> {
        match self {
            Self::Kinds(_) => None,
            Self::Tuple => Some("tuple of grids"),
            Self::Pair => Some("pair of grids"),
            Self::Each => Some("tuple"),
        }
    }
}

/// The type that an op gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gives {
    /// The type that it took.
    Same,
    /// One value of this kind.
    One(Kind),
    /// A tuple of grids, as many as its argument says.
    Parts,
}

/// The types that an op works on, and the type that it gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Signature {
    pub(super) takes: Takes,
    pub(super) gives: Gives,
}

impl Signature {
    /// The type that the op gives for this type; `None` if it does not work on it.
    fn gives(self, takes: Type, arguments: &Arguments) -> Option<Type> {
        let works = match self.takes {
            Takes::Kinds(kinds) => takes.tuple.is_none() && kinds.contains(&takes.kind),
            Takes::Tuple => takes.tuple.is_some() && takes.kind == Kind::Grid,
            Takes::Pair | Takes::Each => takes == Type::PAIR,
        };
        works.then(|| match self.gives {
            Gives::Same => takes,
            Gives::One(kind) => Type::one(kind),
            Gives::Parts => Type::tuple(Kind::Grid, Word::from_number(arguments[0])),
        })
    }
}

/// How a GPU runs an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launch {
    /// In a chain, under its own code.
    Chain,
    /// In a chain, fused with neighbouring symmetries and recolourings.
    Image,
    /// In its own kernel, `gp_` and its name: it makes one grid from several, or several from one.
    Own,
}

/// The largest number of cells of an op's output picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellCapacity {
    /// As many as its input grid, in the same place.
    Keeps,
    /// At most as many as its input.
    Within,
    /// This multiple of its input's cells.
    Times(u32),
    /// This number of cells, for any input.
    Cells(u32),
    /// As many as a box that is larger by one on each side.
    Outline,
    /// As many as all grids of the tuple together.
    Joined,
}

/// Makes the instruction of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Makes {
    /// An op, from the arguments.
    Op(fn(&Arguments) -> Op),
    /// An element of a tuple or an object of a list. The arguments give its index: from 0, or -1 for the last.
    Nth(fn(&Arguments) -> i16),
    /// A program on every element of a tuple.
    Apply,
}

/// The description of an op: signature, types, meaning, origin.
#[derive(Clone, Copy, Debug)]
pub struct OpSpec {
    /// The name in programs.
    pub name: &'static str,
    /// Its parameters, in order.
    pub parameters: &'static [Parameter],
    /// Its family.
    pub family: Family,
    /// One line of meaning.
    pub meaning: &'static str,
    /// The origin of name and meaning.
    pub source: &'static str,
    /// How a GPU runs it; `None` for a second name of an op.
    pub launch: Option<Launch>,
    /// Its input and output types. The first that fits counts.
    pub(super) signatures: &'static [Signature],
    pub(super) makes: Makes,
}

impl OpSpec {
    /// Its signature: `replace(old, new)`.
    #[must_use]
    pub fn signature(&self) -> String {
        let names: Vec<_> = self.parameters.iter().map(|parameter| parameter.name).collect();
        call_text(self.name, &names)
    }

    /// A call with these arguments: `replace(0, 5)`.
    #[must_use]
    pub fn written(&self, arguments: &Arguments) -> String {
        let pairs = self.parameters.iter().zip(arguments);
        let texts: Vec<_> = pairs.map(|(parameter, &number)| parameter.text(number)).collect();
        call_text(self.name, &texts)
    }

    /// Its input types, each with the output type. Pairs stand for all tuples.
    #[must_use]
    pub fn kinds(&self) -> Vec<(Type, Type)> {
        let ones = Kind::ALL.map(Type::one);
        let takes = ones.into_iter().chain([Type::PAIR]);
        takes.filter_map(|takes| Some((takes, self.gives(takes)?))).collect()
    }

    /// The tuples that it works on, in words; `None` if it works on none.
    #[must_use]
    pub fn tuple_words(&self) -> Option<&'static str> {
        self.signatures.iter().find_map(|signature| signature.takes.tuple_words())
    }

    /// Whether it works on values of the type with some arguments.
    pub(super) fn works_on(&self, takes: Type) -> bool {
        self.gives(takes).is_some()
    }

    /// A shortest program that ends with the op.
    #[must_use]
    pub fn example(&self) -> String {
        let first = self.kinds().first().map(|&(takes, _)| takes);
        self.example_on(first.unwrap_or(Type::PAIR))
    }

    /// A program that ends with the op on a value of one of the types that it works on.
    #[must_use]
    pub fn example_on(&self, takes: Type) -> String {
        let to_it = match takes.kind {
            Kind::Objects => "objects(true, false, true) | ",
            Kind::Object => "asobject | ",
            Kind::Patch => "ofcolor(0) | ",
            Kind::Colors | Kind::Flag | Kind::Grid | Kind::Number | Kind::Value | Kind::Vector => {
                ""
            }
        };
        format!("{to_it}{}", self.written(&self.example_arguments()))
    }

    /// Arguments that it accepts.
    fn example_arguments(&self) -> Arguments {
        let mut arguments = [0; ARGUMENTS_MAX];
        for (argument, parameter) in arguments.iter_mut().zip(self.parameters) {
            *argument = parameter.example();
        }
        arguments
    }

    /// Whether its last argument may be a program that finds a patch, as in `fill(5, ofcolor(0))`. That holds
    /// for an op that works on a patch and gives a grid, if it follows a grid.
    #[must_use]
    pub fn takes_patch_program(&self) -> bool {
        self.gives(Type::one(Kind::Object)) == Some(Type::one(Kind::Grid))
    }

    /// The type that it gives. Only for a split does it depend on the arguments.
    fn gives(&self, takes: Type) -> Option<Type> {
        let arguments = self.example_arguments();
        self.signatures.iter().find_map(|signature| signature.gives(takes, &arguments))
    }
}

impl Op {
    /// Its row of the table.
    fn spec(self) -> &'static OpSpec {
        let name = self.name();
        Self::rows().find(|row| row.name == name).expect("every instruction has a row")
    }

    /// How a GPU runs it.
    #[must_use]
    pub fn launch(self) -> Launch {
        self.spec().launch.expect("it is the row of an instruction")
    }

    /// The type that it gives for this type; `None` if it does not work on it.
    #[must_use]
    pub fn gives(self, takes: Type) -> Option<Type> {
        let arguments = self.arguments();
        self.spec().signatures.iter().find_map(|signature| signature.gives(takes, &arguments))
    }
}

/// The canonical text, which [`super::Program::compile`] reads back as the same op.
impl fmt::Display for Op {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other ops are written by their names")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NthElement { index: 0 } | Self::NthObject { index: 0 } => f.write_str("first"),
            Self::NthElement { index: 1 } => f.write_str("second"),
            Self::NthElement { index } => write!(f, "nth({index})"),
            Self::NthObject { index: -1 } => f.write_str("last"),
            Self::NthObject { index } => write!(f, "nth({index})"),
            _ => f.write_str(&self.spec().written(&self.arguments())),
        }
    }
}

/// The name with its arguments in brackets, if it has any.
pub(super) fn call_text<T: std::borrow::Borrow<str>>(name: &str, arguments: &[T]) -> String {
    if arguments.is_empty() { name.to_owned() } else { format!("{name}({})", arguments.join(", ")) }
}

/// A second name for the op of the row, with its own arguments.
pub(super) const fn other_name(
    name: &'static str,
    meaning: &'static str,
    make: fn(&Arguments) -> Op,
) -> OpSpec {
    named(name, "tokpidjin", &[], meaning, &[], Makes::Op(make))
}

/// A name for an element of a tuple and for an object of a list.
pub(super) const fn nth(
    name: &'static str,
    source: &'static str,
    parameters: &'static [Parameter],
    meaning: &'static str,
    which: fn(&Arguments) -> i16,
) -> OpSpec {
    const EITHER: &[Signature] = &[
        Signature { takes: Takes::Kinds(&[Kind::Objects]), gives: Gives::One(Kind::Object) },
        Signature { takes: Takes::Tuple, gives: Gives::One(Kind::Grid) },
    ];
    named(name, source, parameters, meaning, EITHER, Makes::Nth(which))
}

/// A name for a program on each element of a tuple.
pub(super) const fn apply(
    name: &'static str,
    source: &'static str,
    meaning: &'static str,
) -> OpSpec {
    let parameters = const { &[Accepts::Program.named("program")] };
    let each = const { &[Signature { takes: Takes::Each, gives: Gives::Same }] };
    named(name, source, parameters, meaning, each, Makes::Apply)
}

/// Its family is that of the row.
const fn named(
    name: &'static str,
    source: &'static str,
    parameters: &'static [Parameter],
    meaning: &'static str,
    signatures: &'static [Signature],
    makes: Makes,
) -> OpSpec {
    let (family, launch) = (Family::Symmetry, None);
    OpSpec { name, parameters, family, meaning, source, launch, signatures, makes }
}

/// The type of an instruction's argument. The parameter's bounds keep the number within the type.
pub(super) trait Word {
    fn from_number(number: i16) -> Self;
    fn number(self) -> i16;
}

impl Word for u8 {
    fn from_number(number: i16) -> Self {
        Self::try_from(number).expect("the parameter's bounds fit a byte")
    }

    fn number(self) -> i16 {
        self.into()
    }
}

impl Word for u16 {
    fn from_number(number: i16) -> Self {
        number.unsigned_abs()
    }

    fn number(self) -> i16 {
        self.cast_signed()
    }
}

impl Word for i16 {
    fn from_number(number: i16) -> Self {
        number
    }

    fn number(self) -> i16 {
        self
    }
}

impl Word for bool {
    fn from_number(number: i16) -> Self {
        number != 0
    }

    fn number(self) -> i16 {
        self.into()
    }
}

impl Word for Key {
    fn from_number(number: i16) -> Self {
        Self::from_number(number).expect("the parameter accepts only keys")
    }

    fn number(self) -> i16 {
        self as i16
    }
}

pub(super) fn packed<const N: usize>(numbers: [i16; N]) -> Arguments {
    std::array::from_fn(|at| numbers.get(at).copied().unwrap_or(0))
}
