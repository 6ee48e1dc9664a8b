//! Makes programs of the machine of texts: solvers, and chains of ops.

use super::SearchError;
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
    if !(1..=STEPS_MAX).contains(&steps) {
        return Err(SearchError::Steps { steps });
    }
    let text = solver::unmarked(text).trim_end();
    let code = if solver::is_solver(text) {
        let code = solver::compile_code(text, ties, steps);
        code.map_err(|mistakes| SearchError::Program(mistakes.into()))?
    } else {
        chain(text, ties, steps)?
    };
    match code.gives().is_gridlike() {
        true => Ok(code),
        false => Err(SearchError::NotGrid { gives: code.gives().to_string() }),
    }
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
