//! Solvers: whole programs of an ARC DSL in Python's syntax, compiled for the machine of docs/src/design/machine.md.
//!
//! `parse` reads a text, `elaborate` works off its functions and settles kinds, `prune` leaves out what nothing needs,
//! `lower` makes instructions, and `verify` checks them. Client, supervisor and worker compile alike.

mod apply;
mod arguments;
mod builtin;
mod bytes;
mod call;
mod choose;
mod closure;
mod code;
mod construct;
mod elaborate;
mod explain;
mod gives;
mod hole;
mod indents;
mod ir;
mod kind;
mod lex;
mod literal;
mod lower;
mod mistake;
mod opcode;
mod open;
mod parse;
mod part;
mod pipe;
mod prune;
mod python;
mod reason;
mod registers;
mod source;
mod syntax;
mod table;
#[cfg(test)]
mod tests;
pub mod value;
mod verify;
mod want;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

pub use builtin::{BUILTINS, Builtin, Takes, function_names};
pub use code::{
    CODE_BYTES_MAX, Code, Constant, HEADER_BYTES, INSTRUCTION_BYTES, Instruction, MACHINE_VERSION,
};
pub use hole::HolePlace;
pub(crate) use hole::{Choices, Class, Hole};
pub use kind::Kind;
pub(crate) use lex::{string_length, unmarked};
pub use literal::Literal;
pub(crate) use mistake::excerpt;
pub use mistake::{Mistake, Mistakes};
pub use opcode::{FIRST_PRIMITIVE, Opcode, PRIMITIVES, Primitive};
pub use source::Source;
pub use verify::Malformed;
pub use want::{Fit, Want};

use crate::limits::PROGRAM_BYTES_MAX;
use crate::output::ItemErrorCode;
use crate::program::Ties;
use elaborate::{Elaborated, elaborate};
use ir::{Block, Nodes};
use lower::Lowered;
use syntax::{Definition, Module, Statement};

/// A compiled solver.
#[derive(Clone, Debug)]
pub struct Solver {
    code: Code,
    /// The line of the text of each instruction, from 1.
    places: Vec<u32>,
    lines: Vec<Line>,
    /// Once somebody has asked for it.
    hash: OnceLock<Arc<str>>,
}

impl PartialEq for Solver {
    fn eq(&self, other: &Self) -> bool {
        let Self { code, places, lines, hash: _ } = self;
        (code, places, lines) == (&other.code, &other.places, &other.lines)
    }
}

impl Eq for Solver {}

/// A statement of a solver and the kind of its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its line in the text, from 1.
    pub line: u32,
    /// The name that it gives the value; `None` for `return`.
    pub name: Option<String>,
    /// The kind of the value, or those of which it has one; none for a function.
    pub kinds: Vec<Kind>,
}

impl Solver {
    /// Compiles a text: statements over the grid `I`, or definitions of which the last is the program. Definitions
    /// see the values that statements beside them name.
    ///
    /// # Errors
    /// All [`Mistakes`] that do not follow from others.
    ///
    /// ```
    /// use gridpool_protocol::program::Ties;
    /// use gridpool_protocol::solver::{Kind, Solver};
    /// let text = "x1 = objects(I, T, F, T)\nO = argmax(x1, size)";
    /// let solver = Solver::compile(text, Ties::Cpython).unwrap();
    /// assert_eq!(*solver.code().gives(), Kind::object());
    /// let wrong = Solver::compile("x1 = objekts(I, T, F, T)\nO = increment(I)", Ties::Cpython);
    /// assert_eq!(wrong.unwrap_err().all().len(), 2);
    /// ```
    pub fn compile(text: &str, ties: Ties) -> Result<Self, Mistakes> {
        compiled(unmarked(text), &[], ties, |text, made| {
            let at = |span: &Range<usize>| mistake::line_of(text, span.start).0 + 1;
            let lines = made.lines.iter().map(|line| Line {
                line: at(&line.span),
                name: line.name.map(str::to_owned),
                kinds: line.nodes.iter().map(|node| made.nodes[*node].kind.clone()).collect(),
            });
            let (lines, places) = (lines.collect(), made.spans.iter().map(at).collect());
            Self { code: made.code, places, lines, hash: OnceLock::new() }
        })
    }

    /// The program of the machine.
    #[must_use]
    pub fn code(&self) -> &Code {
        &self.code
    }
    /// The same solver with another limit of steps, from 1 to [`STEPS_MAX`](crate::limits::STEPS_MAX).
    pub(crate) fn with_step_limit(mut self, steps: u32) -> Self {
        self.code.step_limit = steps;
        self.hash = OnceLock::new();
        self
    }

    /// Its statements.
    #[must_use]
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// SHA-256 of its code, 64 hexadecimal digits. Names, unused values that cannot fail, and the form of the text do
    /// not matter.
    #[must_use]
    pub fn hash(&self) -> &Arc<str> {
        self.hash.get_or_init(|| Arc::from(self.code.hash()))
    }

    /// Op and line of the text of an instruction.
    #[must_use]
    pub fn place(&self, instruction: usize) -> Option<(&'static str, u32)> {
        let instructions = self.code.instructions();
        let found = instructions.get(instruction)?;
        // The end of a loop is named as the loop.
        let is_end = found.op == Opcode::Next;
        let named =
            if is_end { instructions.get(usize::from(found.immediate))?.op } else { found.op };
        Some((named.name(), *self.places.get(instruction)?))
    }

    /// What went wrong in an instruction that ended an item with this code.
    #[must_use]
    pub fn reason(&self, instruction: usize, code: ItemErrorCode) -> String {
        reason::of(&self.code, instruction, code)
    }
}

/// Compiles the text of a solver for a search, which wants the program of the machine alone.
pub(crate) fn compile_code(text: &str, ties: Ties, step_limit: u32) -> Result<Code, Mistakes> {
    compiled(unmarked(text), &[], ties, |_, made| Code { step_limit, ..made.code })
}

/// Compiles a text with names of holes: the program of the first choices, and where each hole is in it.
pub(crate) fn compile_holes(
    text: &str,
    holes: &[Hole],
    ties: Ties,
    step_limit: u32,
) -> Result<(Code, Vec<(usize, HolePlace)>), Mistakes> {
    compiled(unmarked(text), holes, ties, |_, made| (Code { step_limit, ..made.code }, made.holes))
}

/// What became of a text.
struct Compiled<'m> {
    code: Code,
    /// The place of each instruction in the text.
    spans: Vec<Range<usize>>,
    lines: Vec<elaborate::Line<'m>>,
    nodes: Nodes,
    holes: Vec<(usize, HolePlace)>,
}

/// Compiles an unmarked text, and takes what the caller needs of it.
fn compiled<T>(
    text: &str,
    holes: &[Hole],
    ties: Ties,
    take: impl FnOnce(&str, Compiled<'_>) -> T,
) -> Result<T, Mistakes> {
    let refused = |mistakes| Mistakes::new(text, mistakes);
    if text.len() > PROGRAM_BYTES_MAX {
        let length = text.len();
        let message =
            format!("the program has {length} bytes; at most {PROGRAM_BYTES_MAX} are allowed");
        return Err(refused(vec![Mistake::new(0..0, message)]));
    }
    let (module, mistakes) = parse::module(text);
    if !mistakes.is_empty() {
        return Err(refused(mistakes));
    }
    let (parameter, body) = program(&module).map_err(|mistake| refused(vec![mistake]))?;
    let made = elaborate(text, &module, parameter, body, holes).map_err(refused)?;
    let Elaborated { builder, lines, result } = made;
    let (mut nodes, computed) = builder.finish();
    let mut block = Block { parameters: Vec::new(), nodes: computed, result };
    prune::prune(&mut nodes, &mut block);
    let lowered = lower::lower(&nodes, &block, ties);
    let Lowered { code, spans, holes } =
        lowered.map_err(|message| refused(vec![Mistake::new(0..0, message)]))?;
    code.verify().map_err(|malformed| refused(vec![Mistake::new(0..0, malformed.to_string())]))?;
    Ok(take(text, Compiled { code, spans, lines, nodes, holes }))
}

/// Statements that are named to who asks for one that is not there.
const NAMES_SHOWN_MAX: usize = 8;

/// Why a text does not give the value of a statement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untraced {
    /// The text does not parse.
    #[error(transparent)]
    Text(#[from] Mistakes),
    /// It has no such statement.
    #[error("there is no statement `{until}`: {help}")]
    NoStatement {
        /// What was asked for.
        until: String,
        /// What to write instead.
        help: String,
    },
}

/// The text that computes the value of one statement of a solver: that with this name or, if it is a number, on this
/// line. What stands behind the statement is left out.
///
/// # Errors
/// [`Untraced`] if the text does not parse or has no such statement.
pub fn traced(text: &str, until: &str) -> Result<String, Untraced> {
    let text = unmarked(text);
    let refused = |mistakes| Mistakes::new(text, mistakes);
    let (module, mistakes) = parse::module(text);
    if !mistakes.is_empty() {
        return Err(refused(mistakes).into());
    }
    let (_, body) = program(&module).map_err(|mistake| refused(vec![mistake]))?;
    let is_it = |statement: &&Statement<'_>| {
        let (line, _) = mistake::line_of(text, statement.span.start);
        statement.name == Some(until) || (line + 1).to_string() == until
    };
    let Some(statement) = body.iter().rfind(is_it) else {
        let names: Vec<_> = body
            .iter()
            .filter(|of| !of.is_hidden())
            .filter_map(|of| of.name)
            .take(NAMES_SHOWN_MAX)
            .collect();
        let help = match names.as_slice() {
            [] => "none has a name here: write its line".to_owned(),
            names => format!("name a statement, or its line; the first are {}", names.join(", ")),
        };
        return Err(Untraced::NoStatement { until: until.to_owned(), help });
    };
    let (_, start) = mistake::line_of(text, statement.span.start);
    let margin = &text[start..statement.span.start];
    let before = &text[..statement.span.end];
    let is_outside = std::ptr::eq(body, module.statements.as_slice());
    let last = module.definitions.last().filter(|_| !is_outside);
    let behind = last.map_or("", |definition| &text[definition.span.end..]);
    Ok(match &statement.name {
        Some(name) if margin.trim().is_empty() => {
            format!("{before}\n{margin}return {name}\n{behind}")
        }
        Some(name) => format!("{before}; return {name}\n{behind}"),
        None => format!("{before}\n{behind}"),
    })
}

/// Whether a text is a solver and no chain of ops: it has a definition, a statement, or the grid `I`.
#[must_use]
pub fn is_solver(text: &str) -> bool {
    let (mut lexer, mut depth) = (lex::Lexer::new(unmarked(text)), 0_usize);
    loop {
        match lexer.next().token {
            lex::Token::Word("I" | "def" | "return" | "lambda" | "import") => return true,
            lex::Token::Sign('(' | '[' | '{') => depth += 1,
            lex::Token::Sign(')' | ']' | '}') => depth = depth.saturating_sub(1),
            lex::Token::Sign('=') if depth == 0 => return true,
            lex::Token::End => return false,
            lex::Token::Word(_)
            | lex::Token::Number(_)
            | lex::Token::Text
            | lex::Token::Sign(_)
            | lex::Token::Signs(_)
            | lex::Token::Line => {}
        }
    }
}

/// Whether the statements outside of functions are the program.
fn are_program(module: &Module<'_>) -> bool {
    // Behind the last definition, what uses the grid is the program; other named values are what functions see.
    let behind = module.definitions.last().map_or(0, |last| last.span.end);
    let is_program = |statement: &Statement<'_>| {
        let mut uses_grid = false;
        statement.value.names(&mut |name| uses_grid |= name == "I");
        statement.name.is_none_or(|name| name == "O") || uses_grid && statement.span.start >= behind
    };
    let mut statements = module.statements.iter();
    statements.any(|of| module.definitions.is_empty() || is_program(of))
}

/// The parameter and the statements of the program of a text.
fn program<'m, 't>(module: &'m Module<'t>) -> Result<(&'t str, &'m [Statement<'t>]), Mistake> {
    if are_program(module) {
        return Ok(("I", &module.statements));
    }
    let Some(definition) = module.definitions.last() else {
        let help = "write O = …, for instance O = rot90(I)";
        return Err(Mistake::new(0..0, "the program has no statement").with_help(help));
    };
    let Definition { name, parameters, body, span } = definition;
    let [parameter] = parameters.as_slice() else {
        let (count, place) = (arguments::count(parameters.len()), span.start..span.start + 3);
        let message = format!("a program takes 1 argument, the grid; `{name}` takes {count}");
        return Err(Mistake::new(place, message));
    };
    Ok((parameter, body))
}
