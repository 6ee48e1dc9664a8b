//! The error of a program that does not compile. It points at the wrong place.

use std::fmt;
use std::ops::Range;

use crate::solver::{Mistakes, excerpt};

/// Characters of the user's text that a sentence repeats.
const SHOWN_MAX: usize = 48;

/// Why a program does not compile, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramError {
    text: String,
    span: Range<usize>,
    message: String,
    help: Option<String>,
    /// The mistakes of a solver. They say it all.
    mistakes: Option<Box<Mistakes>>,
}

impl From<Mistakes> for ProgramError {
    fn from(mistakes: Mistakes) -> Self {
        let first = mistakes.all().first();
        let message = first.map_or_else(String::new, |first| one_line(&first.message));
        let span = first.map_or(0..0, |first| first.span.clone());
        Self { text: String::new(), span, message, help: None, mistakes: Some(Box::new(mistakes)) }
    }
}

impl ProgramError {
    pub(super) fn new(text: &str, span: Range<usize>, message: String) -> Self {
        Self {
            text: text.to_owned(),
            span,
            message: one_line(&message),
            help: None,
            mistakes: None,
        }
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

    /// The same error in a text that is the part of a file from this line. Only a solver's errors name lines.
    #[must_use]
    pub fn from_line(self, first_line: u32) -> Self {
        let mistakes = self.mistakes.map(|mistakes| Box::new(mistakes.from_line(first_line)));
        Self { mistakes, ..self }
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
        if let Some(mistakes) = &self.mistakes {
            return mistakes.fmt(f);
        }
        f.write_str(&self.message)?;
        if !self.text.is_empty() {
            write!(f, "\n{}", excerpt(&self.text, self.span.clone()))?;
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
