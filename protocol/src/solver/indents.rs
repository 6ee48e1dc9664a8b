//! The white space before the lines of a text: which lines are a function's, as Python sees it.

/// Says that a line belongs to no block.
const FITS_NONE: &str = "the indentation of this line fits no line above it";
/// Says that a line begins a block that nothing asks for.
const TOO_DEEP: &str = "this line is indented deeper than the line above it";

/// The white space before the lines of a text.
#[derive(Default)]
pub(super) struct Indents<'a> {
    /// Before lines outside of functions.
    base: Option<&'a str>,
    /// Before the body of the open function.
    body: Option<&'a str>,
    /// Before a statement that has a mistake; deeper lines belong to it.
    block: Option<&'a str>,
}

/// Where a line stands.
pub(super) enum Place {
    /// Outside of functions.
    Outside,
    /// In the body of the open function.
    Inside,
    /// Below a statement that has a mistake.
    Skipped,
    /// Nowhere.
    Wrong(&'static str),
}

impl<'a> Indents<'a> {
    /// The place of a line behind this white space. `is_head` says that a function is open and has no line yet.
    pub(super) fn place(&mut self, indent: &'a str, is_head: bool) -> Place {
        if self.block.is_some_and(|block| indent.len() > block.len()) {
            return Place::Skipped;
        }
        self.block = None;
        let base = *self.base.get_or_insert(indent);
        if indent == base {
            self.body = None;
            return Place::Outside;
        }
        match self.body {
            Some(body) if indent == body => Place::Inside,
            Some(body) if indent.starts_with(body) => Place::Wrong(TOO_DEEP),
            None if is_head && indent.starts_with(base) => {
                self.body = Some(indent);
                Place::Inside
            }
            None if indent.starts_with(base) => Place::Wrong(TOO_DEEP),
            Some(_) | None => Place::Wrong(FITS_NONE),
        }
    }

    /// Leaves out the lines below a statement that begins a block and has a mistake.
    pub(super) fn skip_below(&mut self, indent: &'a str) {
        self.block = Some(indent);
    }
}
