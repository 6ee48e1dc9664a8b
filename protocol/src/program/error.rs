//! Why a program does not compile, shown where it is wrong.

use std::fmt;
use std::ops::Range;

/// Why a program does not compile, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramError {
    text: String,
    span: Range<usize>,
    message: String,
    help: Option<String>,
}

impl ProgramError {
    pub(super) fn new(text: &str, span: Range<usize>, message: String) -> Self {
        Self { text: text.to_owned(), span, message: one_line(&message), help: None }
    }

    pub(super) fn with_any_help(self, help: Option<String>) -> Self {
        match help {
            Some(help) => self.with_help(help),
            None => self,
        }
    }

    pub(super) fn with_help(mut self, help: String) -> Self {
        self.help = Some(one_line(&help));
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
            let shown = one_line(&self.text);
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

/// The text as it is shown: tabs and line ends in a program as spaces.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
