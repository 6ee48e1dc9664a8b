//! The mistakes of a text: each names a line, a column and what to write instead. A text may have several.

use std::fmt;
use std::ops::Range;

/// Most mistakes that are shown of one text.
const SHOWN_MAX: usize = 20;
/// Most characters of a line that are shown.
const SHOWN_WIDTH_MAX: usize = 100;

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
        let before = &self.text[start..mistake.span.start];
        let column = before.chars().count() + 1;
        (self.first_line + line, u32::try_from(column).unwrap_or(u32::MAX))
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, mistake) in self.mistakes.iter().take(SHOWN_MAX).enumerate() {
            let (line, column) = self.place(mistake);
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "line {line}, column {column}: {}", mistake.message)?;
            let (_, start) = line_of(&self.text, mistake.span.start);
            let whole = self.text[start..].lines().next().unwrap_or("");
            let from = mistake.span.start.saturating_sub(start).min(whole.len());
            let to = mistake.span.end.saturating_sub(start).clamp(from, whole.len());
            write!(f, "\n{}", excerpt(whole, from..to))?;
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

/// The line, or what stands around the marked bytes of a long one, and marks below them.
pub(crate) fn excerpt(line: &str, marked: Range<usize>) -> String {
    let before = line[..marked.start].chars().count();
    let length = line[marked].chars().count().clamp(1, SHOWN_WIDTH_MAX);
    let all: Vec<char> = line.chars().collect();
    // The marks stand in the middle, but for the begin and the end of the line.
    let last = all.len().saturating_sub(SHOWN_WIDTH_MAX);
    let first = (before + length / 2).saturating_sub(SHOWN_WIDTH_MAX / 2).min(last).min(before);
    let end = all.len().min(first + SHOWN_WIDTH_MAX);
    let shown = all[first..end].iter().map(|c| if c.is_control() { ' ' } else { *c });
    let cut = |is_cut| if is_cut { "…" } else { "" };
    let (front, back) = (cut(first > 0), cut(end < all.len()));
    let gap = " ".repeat(before - first + front.chars().count());
    let shown: String = shown.collect();
    format!("  {front}{shown}{back}\n  {gap}{}", "^".repeat(length))
}

impl std::error::Error for Mistakes {}

/// The line of a place in a text, from 0, and its start.
pub(super) fn line_of(text: &str, at: usize) -> (u32, usize) {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count();
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    (u32::try_from(line).unwrap_or(u32::MAX), start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_shown_around_its_marks() {
        assert_eq!(excerpt("O = rot91(I)", 4..9), "  O = rot91(I)\n      ^^^^^");
        for at in 0..300 {
            let line = format!("{}é{}", "-".repeat(at), "+".repeat(300 - at));
            let said = excerpt(&line, at..at + 2);
            let (shown, marks) = said.split_once('\n').unwrap();
            assert!(shown.chars().count() <= SHOWN_WIDTH_MAX + 4, "{said}");
            let under = marks.find('^').unwrap();
            assert_eq!(shown.chars().nth(under), Some('é'), "{said}");
        }
        let long = "y".repeat(400);
        assert_eq!(excerpt(&long, 0..400).matches('^').count(), SHOWN_WIDTH_MAX);
    }
}
