//! The functions that the compiler works off: those that take or make functions, and second names.

use std::sync::LazyLock;

use super::code::Constant::{self, Flag, Number, Vector};
use super::opcode::{PRIMITIVES, Primitive};
use super::want::Want;

/// What an argument of a builtin may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// A function.
    Function,
    /// A container of functions.
    Functions,
    /// A value of these kinds, or for any value also a function.
    Value(Want),
}

impl Takes {
    /// In words, with an article.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Function => "a function",
            Self::Functions => "a set or tuple of functions",
            Self::Value(want) => want.words(),
        }
    }
}

macro_rules! builtins {
    ($($does:ident $name:literal [$($parameter:ident: $takes:expr),*] $gives:literal, $subject:literal,
        $meaning:literal;)*) => {
        /// What a builtin does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Does {
            $(#[doc = $meaning] $does,)*
        }

        /// The builtins.
        pub const BUILTINS: &[Builtin] = &[$(Builtin {
            does: Does::$does,
            name: $name,
            parameters: &[$((stringify!($parameter), $takes)),*],
            gives: $gives,
            subject: $subject,
            meaning: $meaning,
        }),*];
    };
}

/// A function that the compiler works off.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    pub(super) does: Does,
    /// Its name in programs.
    pub name: &'static str,
    /// Name and accepted values of each argument.
    pub parameters: &'static [(&'static str, Takes)],
    /// What it gives, in words.
    pub gives: &'static str,
    /// The argument that a chain puts in.
    pub subject: u8,
    /// What it gives, in a sentence.
    pub meaning: &'static str,
}

const FUNCTION: Takes = Takes::Function;
const ANY: Takes = Takes::Value(Want::Any);
const CONTAINER: Takes = Takes::Value(Want::Container);
const NUMBER: Takes = Takes::Value(Want::Number);
const FLAG: Takes = Takes::Value(Want::Flag);
const GRID: Takes = Takes::Value(Want::Grid);

builtins! {
    Identity "identity" [x: ANY] "the value", 0, "The value itself.";
    AsTuple "astuple" [a: ANY, b: ANY] "a vector, a cell or a pair", 0, "The pair of both values.";
    Branch "branch" [condition: FLAG, a: ANY, b: ANY] "a value or a function", 1,
        "a if the condition is true, else b; of functions, only the chosen one is applied.";
    Compose "compose" [outer: FUNCTION, inner: FUNCTION] "a function", 1, "x to outer(inner(x)).";
    Chain "chain" [h: FUNCTION, g: FUNCTION, f: FUNCTION] "a function", 2, "x to h(g(f(x))).";
    Fork "fork" [outer: FUNCTION, a: FUNCTION, b: FUNCTION] "a function", 0, "x to outer(a(x), b(x)).";
    Matcher "matcher" [function: FUNCTION, target: ANY] "a function", 0,
        "x to whether function(x) equals the target.";
    RBind "rbind" [function: FUNCTION, fixed: ANY] "a function", 0, "The function with its last argument fixed.";
    LBind "lbind" [function: FUNCTION, fixed: ANY] "a function", 0, "The function with its first argument fixed.";
    Power "power" [function: FUNCTION, n: NUMBER] "a function", 0, "The function applied n times.";
    Apply "apply" [function: FUNCTION, container: CONTAINER] "a container", 1,
        "The function's values for all elements, in a container like theirs.";
    RApply "rapply" [functions: Takes::Functions, value: ANY] "a container", 1,
        "The values of all functions for the value.";
    MApply "mapply" [function: FUNCTION, container: CONTAINER] "a container", 1,
        "The elements of the function's values for all elements.";
    PApply "papply" [function: FUNCTION, a: CONTAINER, b: CONTAINER] "a tuple", 1,
        "The function's values for the elements of a and b side by side.";
    MPApply "mpapply" [function: FUNCTION, a: CONTAINER, b: CONTAINER] "a tuple", 1,
        "The elements of those values.";
    PRApply "prapply" [function: FUNCTION, a: CONTAINER, b: CONTAINER] "a set", 1,
        "The function's values for all pairs of an element of a and one of b.";
    SFilter "sfilter" [container: CONTAINER, condition: FUNCTION] "a container", 0,
        "The elements for which the condition is true.";
    MFilter "mfilter" [container: CONTAINER, function: FUNCTION] "a container", 0,
        "The elements of the elements for which the condition is true.";
    Extract "extract" [container: CONTAINER, condition: FUNCTION] "an element", 0,
        "The first element for which the condition is true; EmptyArg if there is none.";
    ArgMax "argmax" [container: CONTAINER, compfunc: FUNCTION] "an element", 0,
        "The first element with the greatest value of the function; EmptyArg if there is none.";
    ArgMin "argmin" [container: CONTAINER, compfunc: FUNCTION] "an element", 0,
        "The first element with the least value of the function; EmptyArg if there is none.";
    ValMax "valmax" [container: CONTAINER, compfunc: FUNCTION] "a value", 0,
        "The greatest value of the function.";
    ValMin "valmin" [container: CONTAINER, compfunc: FUNCTION] "a value", 0,
        "The least value of the function.";
    Order "order" [container: CONTAINER, compfunc: FUNCTION] "a tuple", 0,
        "The elements sorted by the function's values; equals keep their order.";
    ObjectsByType "o_g" [grid: GRID, type: NUMBER] "a set of objects", 0,
        "objects by type = 4 univalued + 2 diagonal + 1 without_bg, a number of the text.";
}

/// Second names of primitives.
const ALIASES: &[(&str, &str)] =
    &[("transpose", "dmirror"), ("p_g", "palette"), ("second", "last")];

impl Builtin {
    /// Its name with its parameters.
    #[must_use]
    pub fn signature(&self) -> String {
        let names: Vec<_> = self.parameters.iter().map(|(name, _)| *name).collect();
        format!("{}({})", self.name, names.join(", "))
    }
}

/// What a name of the language stands for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Meaning {
    Constant(Constant),
    Builtin(&'static Builtin),
    Primitive(&'static Primitive),
}

/// Lists over which the names of the language are spread.
const LISTS: usize = 512;

/// All names of the language, second names too, in the list of their hash.
static MEANINGS: LazyLock<Vec<Vec<(&str, Meaning)>>> = LazyLock::new(|| {
    let primitives = PRIMITIVES.iter().map(|of| (of.name, Meaning::Primitive(of)));
    let builtins = BUILTINS.iter().map(|of| (of.name, Meaning::Builtin(of)));
    let constants = CONSTANTS.iter().map(|(name, of)| (*name, Meaning::Constant(*of)));
    let mut lists = vec![Vec::new(); LISTS];
    for (name, meaning) in primitives.chain(builtins).chain(constants) {
        let second = ALIASES.iter().filter(|(_, of)| *of == name).map(|(alias, _)| *alias);
        for name in second.chain([name]) {
            lists[list(name)].push((name, meaning));
        }
    }
    lists
});

/// The list in which a name is, if it is one of the language.
fn list(name: &str) -> usize {
    let spread = |hash: usize, byte| hash.wrapping_mul(31).wrapping_add(usize::from(byte));
    name.bytes().fold(0, spread) % LISTS
}

impl Meaning {
    /// What this name stands for, if it is one of the language.
    pub(super) fn of(name: &str) -> Option<Self> {
        let found = MEANINGS[list(name)].iter().find(|(known, _)| *known == name);
        found.map(|(_, meaning)| *meaning)
    }
}

/// All names of functions.
pub fn function_names() -> impl Iterator<Item = &'static str> {
    let primitives = PRIMITIVES.iter().map(|primitive| primitive.name);
    let builtins = BUILTINS.iter().map(|builtin| builtin.name);
    primitives.chain(builtins).chain(ALIASES.iter().map(|(alias, _)| *alias))
}

/// All names of the language.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    function_names().chain(CONSTANTS.iter().map(|(name, _)| *name))
}

/// The constants by name, of arc-dsl's own names.
const CONSTANTS: &[(&str, Constant)] = &[
    ("T", Flag(true)),
    ("F", Flag(false)),
    ("ZERO", Number(0)),
    ("ONE", Number(1)),
    ("TWO", Number(2)),
    ("THREE", Number(3)),
    ("FOUR", Number(4)),
    ("FIVE", Number(5)),
    ("SIX", Number(6)),
    ("SEVEN", Number(7)),
    ("EIGHT", Number(8)),
    ("NINE", Number(9)),
    ("TEN", Number(10)),
    ("NEG_ONE", Number(-1)),
    ("NEG_TWO", Number(-2)),
    ("DOWN", Vector([1, 0])),
    ("RIGHT", Vector([0, 1])),
    ("UP", Vector([-1, 0])),
    ("LEFT", Vector([0, -1])),
    ("ORIGIN", Vector([0, 0])),
    ("UNITY", Vector([1, 1])),
    ("NEG_UNITY", Vector([-1, -1])),
    ("UP_RIGHT", Vector([-1, 1])),
    ("DOWN_LEFT", Vector([1, -1])),
    ("ZERO_BY_TWO", Vector([0, 2])),
    ("TWO_BY_ZERO", Vector([2, 0])),
    ("TWO_BY_TWO", Vector([2, 2])),
    ("THREE_BY_THREE", Vector([3, 3])),
];
