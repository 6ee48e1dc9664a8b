//! Programs: ops joined by `|`, applied per grid on the device with no host round trip between them.
//!
//! The compiler lives here so that a bad program is refused by the client before anything is sent,
//! and again by the supervisor, with the same words.

mod ops;
mod parse;

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use ops::{Grouping, Kind, OPS, Op, OpSpec, Parameter, REFUSED, Symmetry};

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

/// A program that has been checked: names, arity, argument kinds, and the kinds between ops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    ops: Vec<Op>,
    ties: Ties,
    text: String,
    hash: String,
}

impl Program {
    /// Compiles `text`, for instance `rot90 | replace(0, 5) | objects(true, false, true)`.
    ///
    /// # Errors
    /// A [`ProgramError`] that points at the first wrong place and says what to write instead.
    ///
    /// ```
    /// use gridpool_protocol::program::{Program, Ties};
    /// let program = Program::compile("transpose|p_g", Ties::Cpython).unwrap();
    /// assert_eq!(program.text(), "dmirror | palette");
    /// let error = Program::compile("rot90 | flip", Ties::Cpython).unwrap_err();
    /// assert_eq!(error.span(), 8..12);
    /// ```
    pub fn compile(text: &str, ties: Ties) -> Result<Self, ProgramError> {
        let calls = parse::calls(text)?;
        let mut kind = Kind::Grid;
        let mut ops = Vec::with_capacity(calls.len());
        for call in &calls {
            let spec = lookup(text, call)?;
            let arguments = check_arguments(text, call, spec)?;
            if spec.takes != kind {
                let message = format!(
                    "`{}` works on {}, but what comes before it gives {kind}",
                    spec.name, spec.takes
                );
                return Err(ProgramError::new(text, call.span.clone(), message));
            }
            let op = (spec.build)(&arguments);
            kind = op.gives();
            ops.push(op);
        }
        let canonical: Vec<_> = ops.iter().map(Op::to_string).collect();
        let canonical = canonical.join(" | ");
        let hash = hex(&Sha256::digest(format!("gridpool program 1\n{ties}\n{canonical}\n")));
        Ok(Self { ops, ties, text: canonical, hash })
    }

    /// The instructions, at least one.
    #[must_use]
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// How ties are broken.
    #[must_use]
    pub fn ties(&self) -> Ties {
        self.ties
    }

    /// The canonical text: synonyms resolved, spaces normal.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// SHA-256 of the canonical text and the tie mode, 64 hexadecimal digits.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The kind of every item's result.
    #[must_use]
    pub fn gives(&self) -> Kind {
        self.ops.last().map_or(Kind::Grid, |op| op.gives())
    }

    /// Whether the last op sees grids that differ from the input, so that a list of objects needs
    /// the cells sent back beside the labels.
    #[must_use]
    pub fn changes_cells_before_last(&self) -> bool {
        let before = &self.ops[..self.ops.len().saturating_sub(1)];
        before.iter().any(|op| *op != Op::Symmetry(Symmetry::Identity))
    }
}

fn lookup(text: &str, call: &parse::Call) -> Result<&'static OpSpec, ProgramError> {
    if let Some(spec) = OPS.iter().find(|spec| spec.name == call.name) {
        return Ok(spec);
    }
    if let Some((_, sentence)) = REFUSED.iter().find(|(name, _)| *name == call.name) {
        return Err(ProgramError::new(text, call.span.clone(), (*sentence).to_owned()));
    }
    let message = format!("there is no op `{}`", call.name);
    let close = close_names(&call.name);
    let help = if close.is_empty() {
        let all: Vec<_> = OPS.iter().map(OpSpec::signature).collect();
        format!("the ops are {}", all.join(", "))
    } else {
        format!("close to it: {}", close.join(", "))
    };
    Err(ProgramError::new(text, call.span.clone(), message).with_help(help))
}

fn check_arguments(text: &str, call: &parse::Call, spec: &OpSpec) -> Result<Vec<u8>, ProgramError> {
    let (got, want) = (call.arguments.len(), spec.parameters.len());
    if got != want {
        let plural = if want == 1 { "argument" } else { "arguments" };
        let message = format!("`{}` takes {want} {plural}, got {got}", spec.name);
        return Err(ProgramError::new(text, call.whole.clone(), message)
            .with_help(format!("write {}", spec.signature())));
    }
    let pairs = spec.parameters.iter().zip(&call.arguments);
    pairs
        .map(|(parameter, argument)| {
            parameter.accept(argument).ok_or_else(|| {
                let got = &text[argument.span.clone()];
                let message = format!(
                    "`{}` of `{}` is {}, got `{got}`",
                    parameter.name(),
                    spec.name,
                    parameter.wants()
                );
                ProgramError::new(text, argument.span.clone(), message)
            })
        })
        .collect()
}

/// Names at a small edit distance, or that share a prefix, nearest first.
fn close_names(name: &str) -> Vec<&'static str> {
    let lower = name.to_lowercase();
    let mut close: Vec<(usize, &str)> = OPS
        .iter()
        .map(|spec| (edit_distance(&lower, spec.name), spec.name))
        .filter(|&(distance, candidate)| {
            distance <= 2.max(candidate.len() / 3)
                || (lower.len() >= 3 && candidate.starts_with(&lower))
        })
        .collect();
    close.sort_unstable();
    close.into_iter().map(|(_, name)| name).take(4).collect()
}

/// Levenshtein distance in characters.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let change = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Lower-case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Why a program does not compile, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramError {
    text: String,
    span: Range<usize>,
    message: String,
    help: Option<String>,
}

impl ProgramError {
    fn new(text: &str, span: Range<usize>, message: String) -> Self {
        Self { text: text.to_owned(), span, message, help: None }
    }

    fn with_help(mut self, help: String) -> Self {
        self.help = Some(help);
        self
    }

    /// The place in the text, in bytes.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The sentence alone, without the drawing.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// The sentence, then the program with the wrong place underlined, then what to write instead.
impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.text.is_empty() {
            let shown: String =
                self.text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            let before = self.text[..self.span.start].chars().count();
            let marked = self.text[self.span.clone()].chars().count().max(1);
            write!(f, "\n  {shown}\n  {}{}", " ".repeat(before), "^".repeat(marked))?;
        }
        match &self.help {
            Some(help) => write!(f, "\n  {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ProgramError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> ProgramError {
        Program::compile(text, Ties::Cpython).expect_err(text)
    }

    #[test]
    fn canonical_text_compiles_to_the_same_program() {
        for spec in OPS {
            let arguments = match spec.parameters.len() {
                0 => String::new(),
                1 => "(3)".to_owned(),
                2 => "(1,2)".to_owned(),
                _ => "( true ,false,true )".to_owned(),
            };
            let text = format!("rot90|{}{arguments}", spec.name);
            let program = Program::compile(&text, Ties::Lowest).unwrap();
            let again = Program::compile(program.text(), Ties::Lowest).unwrap();
            assert_eq!(program, again);
            assert_eq!(program.gives(), spec.gives());
        }
    }

    #[test]
    fn synonyms_share_a_hash_and_tie_modes_do_not() {
        let hash = |text, ties| Program::compile(text, ties).unwrap().hash().to_owned();
        assert_eq!(hash("o_g(5)", Ties::Cpython), hash("objects(true,false,true)", Ties::Cpython));
        assert_eq!(hash("transpose", Ties::Cpython), hash(" dmirror ", Ties::Cpython));
        assert_ne!(hash("rot90", Ties::Cpython), hash("rot90", Ties::Lowest));
    }

    #[test]
    fn errors_point_at_the_place_and_say_what_to_write() {
        let cases = [
            ("rot9", 0..4, "there is no op `rot9`", "close to it: rot90"),
            ("rot90 | flip", 8..12, "`flip` is a boolean not", ""),
            ("replace(1)", 0..10, "`replace` takes 2 arguments, got 1", "write replace(old, new)"),
            ("replace(1, 12)", 11..13, "`new` of `replace` is a colour from 0 to 9, got `12`", ""),
            ("replace(-1, 2)", 8..10, "`old` of `replace` is a colour from 0 to 9, got `-1`", ""),
            ("objects(1, true, true)", 8..9, "`univalued` of `objects` is `true` or `false`", ""),
            ("objects(True, true, true)", 8..12, "write `true` or `false` instead of `True`", ""),
            ("o_g(8)", 4..5, "`type` of `o_g` is a number from 0 to 7, got `8`", ""),
            (
                "palette | rot90",
                10..15,
                "`rot90` works on a grid, but what comes before it gives a list of colours",
                "",
            ),
            ("rot90 |", 7..7, "expected an op, found the end", ""),
            ("", 0..0, "expected an op, found the end", ""),
            ("rot90 rot90", 6..7, "expected `|` or the end, found `r`", ""),
            ("rot90(", 5..6, "expected an op, found the end", ""),
            ("replace(1, 2", 7..8, "this bracket is never closed", ""),
            ("rot90)", 5..6, "this bracket closes nothing", ""),
            ("replace(99999999999999999999, 1)", 8..28, "is not a number that fits", ""),
            ("größe", 0..7, "there is no op `größe`", ""),
            ("replace(rot90, 1)", 8..13, "is a colour from 0 to 9, got `rot90`", ""),
        ];
        for (text, span, message, help) in cases {
            let error = error(text);
            assert!(error.message.contains(message), "{text}: {error}");
            if text != "rot90(" {
                assert_eq!(error.span, span, "{text}: {error}");
            }
            assert!(error.to_string().contains(help), "{text}: {error}");
        }
    }

    #[test]
    fn size_and_depth_are_bounded() {
        let long = vec!["rot90"; crate::limits::PROGRAM_OPS_MAX + 1].join("|");
        assert!(error(&long).message.contains("at most 64 ops"));
        let deep = format!("{}1{}", "replace(".repeat(100), ")".repeat(100));
        assert!(error(&deep).message.contains("nest deeper"));
        let huge = "x".repeat(5_000);
        assert!(error(&huge).message.contains("at most 4096"));
    }
}
