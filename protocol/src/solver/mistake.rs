//! The mistakes of a text: each names a line, a column and what to write instead. A text may have several.

use std::fmt;
use std::ops::Range;

/// Most mistakes that are shown of one text.
const SHOWN_MAX: usize = 20;
/// Most characters of a line that are shown.
const LINE_SHOWN_MAX: usize = 160;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The place in the text, in bytes.
    pub span: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
}

impl Mistake {
    pub(super) fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self { span, message: message.into(), help: None }
    }

    pub(super) fn with_help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }
}

/// Why a text does not compile: at least one mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes {
    text: String,
    first_line: u32,
    mistakes: Vec<Mistake>,
}

impl Mistakes {
    pub(super) fn new(text: &str, mut mistakes: Vec<Mistake>) -> Self {
        mistakes.sort_by_key(|mistake| mistake.span.start);
        mistakes.dedup();
        Self { text: text.to_owned(), first_line: 1, mistakes }
    }

    /// The same mistakes in a text that is the part of a file from this line.
    #[must_use]
    pub fn from_line(self, first_line: u32) -> Self {
        Self { first_line, ..self }
    }

    /// The mistakes, by their place.
    #[must_use]
    pub fn all(&self) -> &[Mistake] {
        &self.mistakes
    }

    /// Line and column of a mistake, both from 1.
    #[must_use]
    pub fn place(&self, mistake: &Mistake) -> (u32, u32) {
        let (line, start) = line_of(&self.text, mistake.span.start);
        let column = self.text[start..mistake.span.start].chars().count() + 1;
        (self.first_line + line, u32::try_from(column).unwrap_or(u32::MAX))
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, mistake) in self.mistakes.iter().take(SHOWN_MAX).enumerate() {
            let (line, column) = self.place(mistake);
            let (_, start) = line_of(&self.text, mistake.span.start);
            let whole = self.text[start..].lines().next().unwrap_or("");
            let shown: String = whole.chars().take(LINE_SHOWN_MAX).collect();
            let shown = shown.replace(|c: char| c.is_control(), " ");
            if at > 0 {
                f.write_str("\n")?;
            }
            let message = &mistake.message;
            let within = mistake.span.end.min(start + whole.len()).max(mistake.span.start);
            let marked = self.text[mistake.span.start..within].chars().count().max(1);
            let (gap, marks) = (" ".repeat(column as usize - 1), "^".repeat(marked));
            write!(f, "line {line}, column {column}: {message}\n  {shown}\n  {gap}{marks}")?;
            if let Some(help) = &mistake.help {
                write!(f, "\n  {help}")?;
            }
        }
        match self.mistakes.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for Mistakes {}

/// The line of a place in a text, from 0, and its start.
pub(super) fn line_of(text: &str, at: usize) -> (u32, usize) {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count();
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    (u32::try_from(line).unwrap_or(u32::MAX), start)
}
