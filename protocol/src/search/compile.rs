//! Makes programs of the machine of texts: solvers, and chains of ops.

use super::{SearchError, Template};
use crate::limits::STEPS_MAX;
use crate::program::{Program, Ties};
use crate::solver::{self, Code};

/// Compiles the text of a solver or a chain for a search. `steps` is the most that it runs on a pair.
///
/// # Errors
/// [`SearchError::Program`] if the text does not compile, [`SearchError::NotGrid`] if its result is never a grid,
/// [`SearchError::Chain`] if the chain takes pairs, and [`SearchError::Steps`].
///
/// ```
/// use gridpool_protocol::program::Ties;
/// use gridpool_protocol::search::compile;
/// let chain = compile("rot90 | hmirror", Ties::Cpython, 100).unwrap();
/// let solver = compile("x = rot90(I)\nO = hmirror(x)", Ties::Cpython, 100).unwrap();
/// assert_eq!(chain.hash(), solver.hash());
/// let error = compile("mostcolor", Ties::Cpython, 100).unwrap_err();
/// assert!(error.to_string().starts_with("the program gives a number"));
/// ```
pub fn compile(text: &str, ties: Ties, steps: u32) -> Result<Code, SearchError> {
    within_steps(steps)?;
    let text = solver::unmarked(text).trim_end();
    let code = if solver::is_solver(text) {
        let code = solver::compile_code(text, ties, steps);
        code.map_err(|mistakes| SearchError::Program(mistakes.into()))?
    } else {
        chain(text, ties, steps)?
    };
    giving_grid(code)
}

/// Refuses a limit of steps that no program has.
pub(super) fn within_steps(steps: u32) -> Result<(), SearchError> {
    match (1..=STEPS_MAX).contains(&steps) {
        true => Ok(()),
        false => Err(SearchError::Steps { steps }),
    }
}

/// Refuses a program whose result is never a grid.
pub(super) fn giving_grid(code: Code) -> Result<Code, SearchError> {
    match code.gives().is_gridlike() {
        true => Ok(code),
        false => Err(SearchError::NotGrid { gives: code.gives().to_string() }),
    }
}

/// Programs of a template that are compiled to see whether any does, besides those of each word. A prime number, so
/// that they do not all have the same word for a hole.
const TRIED: u64 = 1_021;

/// Why none of a template's programs compiles: the mistakes of the first. `None` if one of them does. All are tried if
/// they are few; else each word of each hole, and a thousand programs spread over all.
///
/// ```
/// use gridpool_protocol::program::Ties;
/// use gridpool_protocol::search::{Template, refusal};
/// let refused = |text: &str| refusal(&Template::parse(text).unwrap().unwrap(), Ties::Cpython, 100);
/// assert_eq!(refused("replace(?a in [x, 1], ?b:color)"), None);
/// let why = refused("replace(?a in [x, y], ?b:color)").unwrap();
/// assert!(why.starts_with("none of its 20 programs compiles; the first: "));
/// let large = "x = replace(I, ?a:color, ?b:color)\nO = upscale(replace(x, ?c:color, 1), ?d:direction)";
/// assert!(refused(large).is_some());
/// ```
#[must_use]
pub fn refusal(template: &Template, ties: Ties, steps: u32) -> Option<String> {
    let first = compile(&template.text(0).1, ties, steps).err()?;
    let compiles = |text: &str| compile(text, ties, steps).is_ok();
    let count = template.count();
    if count <= TRIED {
        let any = template.texts().any(|(_, text)| compiles(&text));
        let why = || match count {
            1 => first.to_string(),
            _ => format!("none of its {count} programs compiles; the first: {first}"),
        };
        return (!any).then(why);
    }
    let any = template.singles().any(|text| compiles(&text))
        || (0..TRIED).any(|at| compiles(&template.text(at * count / TRIED).1));
    let why =
        || format!("of its {count} programs, none that was tried compiles; the first: {first}");
    (!any).then(why)
}

/// The program of a chain. A chain's own compiler explains its mistakes.
fn chain(text: &str, ties: Ties, steps: u32) -> Result<Code, SearchError> {
    let known = Program::compile(text, ties).map_err(SearchError::Program)?;
    let wrapped = format!("O = I | {}", text.trim());
    solver::compile_code(&wrapped, ties, steps).map_err(|mistakes| match known.grids_per_item() {
        1 => SearchError::Program(mistakes.into()),
        _ => SearchError::Chain,
    })
}
