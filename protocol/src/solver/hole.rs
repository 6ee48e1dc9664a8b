//! Holes of templates: what each program of a template chooses, a constant or a primitive for each hole.
//!
//! A hole is a name in the text. All programs of a template have one form: what depends on the choice itself, as a
//! count that unrolls a loop, is refused here, and such a template is expanded as a text.

use super::builtin::Meaning;
use super::call::accepts;
use super::closure::Value;
use super::code::Constant;
use super::elaborate::{Elaborator, Made};
use super::kind::Kind;
use super::opcode::{Opcode, Primitive};
use super::value::NOTHING;
use super::want::Fit;
use crate::limits::KIND_DEPTH_MAX;

/// A hole and what it stands for.
#[derive(Clone, Debug)]
pub(crate) struct Hole {
    /// Its name in the text.
    pub(crate) name: String,
    pub(crate) words: Vec<String>,
    pub(crate) choices: Choices,
}

/// What a hole stands for: at least one.
#[derive(Clone, Debug)]
pub(crate) enum Choices {
    /// Constants of one kind.
    Constants(Vec<Constant>),
    Primitives(Vec<&'static Primitive>),
}

/// See [`Choices::class`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Constant(Kind),
    Primitive,
}

/// Where a hole is in the code of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolePlace {
    /// The number of a constant.
    Constant(usize),
    /// The number of an instruction, whose opcode it is.
    Instruction(usize),
}

impl Choices {
    /// What these words stand for; `None` if it is neither constants of one kind nor primitives.
    pub(crate) fn of(words: &[String]) -> Option<Self> {
        let constants: Option<Vec<_>> = words.iter().map(|word| constant(word)).collect();
        if let Some(constants) = constants.filter(|all| !all.is_empty()) {
            let kind = constants[0].kind();
            let are_alike = constants.iter().all(|constant| constant.kind() == kind);
            return are_alike.then_some(Self::Constants(constants));
        }
        let primitives: Option<Vec<_>> = words.iter().map(|word| primitive(word)).collect();
        primitives.filter(|all| !all.is_empty()).map(Self::Primitives)
    }

    /// What a word is by itself: words of one class stand for each other. `None` if it is neither a constant nor a
    /// primitive.
    pub(crate) fn class(word: &str) -> Option<Class> {
        let of_constant = constant(word).map(|constant| Class::Constant(constant.kind()));
        of_constant.or_else(|| primitive(word).map(|_| Class::Primitive))
    }

    /// The words of constants, or the numbers of opcodes.
    pub(crate) fn values(&self) -> Vec<u32> {
        match self {
            Self::Constants(constants) => {
                constants.iter().map(|constant| constant.word()).collect()
            }
            Self::Primitives(primitives) => {
                primitives.iter().map(|primitive| primitive.opcode as u32).collect()
            }
        }
    }
}

fn constant(word: &str) -> Option<Constant> {
    match (word, Meaning::of(word)) {
        (_, Some(Meaning::Constant(constant))) => Some(constant),
        ("True" | "true", _) => Some(Constant::Flag(true)),
        ("False" | "false", _) => Some(Constant::Flag(false)),
        _ => {
            let digits = word.strip_prefix('-').unwrap_or(word);
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            let number = word.parse().ok().filter(|number| is_number && *number != NOTHING)?;
            Some(Constant::Number(number))
        }
    }
}

fn primitive(word: &str) -> Option<&'static Primitive> {
    match Meaning::of(word)? {
        Meaning::Primitive(primitive) => Some(primitive),
        Meaning::Builtin(_) | Meaning::Constant(_) => None,
    }
}

impl<'t> Elaborator<'t> {
    /// Applies a hole that stands for primitives. Each must take the arguments as they are and give one kind.
    pub(super) fn chosen(
        &mut self,
        hole: usize,
        primitives: &[&'static Primitive],
        arguments: &[Value<'t>],
    ) -> Made<Value<'t>> {
        let mut nodes = Vec::with_capacity(arguments.len());
        for argument in arguments {
            nodes.push(self.node(argument)?);
        }
        let kinds: Vec<_> = nodes.iter().map(|node| self.builder.kind(*node)).collect();
        let gives = |primitive: &Primitive| {
            // What these make depends on more than the kinds.
            let is_plain = !matches!(primitive.fit, Fit::ElementOf { .. } | Fit::SameElements)
                && !matches!(primitive.opcode, Opcode::Equality | Opcode::Contained);
            let fits = is_plain && accepts(primitive, &kinds);
            fits.then(|| primitive.gives_accepted(&kinds)).flatten()
        };
        let kind = gives(primitives[0]).filter(|kind| kind.depth() <= KIND_DEPTH_MAX);
        let kind = kind.filter(|kind| primitives.iter().all(|of| gives(of).as_ref() == Some(kind)));
        let Some(kind) = kind else {
            return self.mistake("the functions of the hole do not give one kind here");
        };
        let made = self.builder.chosen(hole, primitives, &nodes, kind, self.at.clone());
        self.fitting(made).map(Value::Node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_constants_of_one_kind_or_primitives_or_nothing() {
        let values = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            Choices::of(&words).map(|choices| choices.values())
        };
        assert_eq!(values(&["0", "NINE", "-1"]), Some(vec![0, 9, u32::MAX]));
        assert_eq!(values(&["T", "False"]), Some(vec![1, 0]));
        assert_eq!(values(&["UP", "RIGHT"]), Some(vec![0xffff, 0x1_0000]));
        let turns = [Opcode::Rot90 as u32, Opcode::DMirror as u32];
        assert_eq!(values(&["rot90", "transpose"]), Some(turns.to_vec()));
        for words in [
            &["T", "1"] as &[_],
            &["rot90", "identity"],
            &["rot90", "1"],
            &["x1"],
            &["(0, 1)"],
            &["-2147483648"],
            &["99999999999"],
            &["+1"],
            &[],
        ] {
            assert_eq!(values(words), None, "{words:?}");
        }
    }
}
