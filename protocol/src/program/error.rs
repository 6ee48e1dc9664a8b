//! The error of a program that does not compile. It points at the wrong place.

use std::fmt;
use std::ops::Range;

/// Characters of the user's text that a sentence repeats.
const SHOWN_MAX: usize = 48;

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

    /// The wrong place in the text, in bytes.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The sentence without the marked text.
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

/// The text with tabs and line ends as spaces.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The text, or its start if it is long.
pub(super) fn short(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
