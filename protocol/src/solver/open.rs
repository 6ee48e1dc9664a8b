//! The definition whose body is being read, and how it ends.

use super::mistake::Mistake;
use super::syntax::{Definition, Module, Statement};

/// A definition whose body is being read.
pub(super) struct Open<'t> {
    pub(super) name: &'t str,
    pub(super) parameters: Vec<&'t str>,
    pub(super) body: Vec<Statement<'t>>,
    pub(super) start: usize,
}

/// Ends a definition. One with a mistake takes all text before the next line outside of functions.
pub(super) fn close<'t>(
    open: &mut Option<Open<'t>>,
    module: &mut Module<'t>,
    text: &'t str,
    end: usize,
    mistakes: &[Mistake],
) {
    if let Some(Open { name, parameters, body, start }) = open.take() {
        let is_broken = mistakes.iter().any(|one| (start..=end).contains(&one.span.start));
        let whole = start + text[start..end].trim_end().len();
        let end = body.last().filter(|_| !is_broken).map_or(whole, |last| last.span.end);
        module.definitions.push(Definition { name, parameters, body, span: start..end });
    }
}
