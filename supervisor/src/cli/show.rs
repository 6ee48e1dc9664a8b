//! The output of `run` and `submit` for people: the first inputs as pictures, then a summary.
//!
//! Owns the choice of what to show. May not know terminals: colours and width come as a [`Style`].

mod block;
mod paint;
mod picture;
mod summary;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::time::Duration;

use gridpool_protocol::color::Colors;
use gridpool_protocol::output::MalformedOutput;
use gridpool_protocol::receipt::Verdict;
use indicatif::HumanCount;

use self::block::{Block, flow};
use super::input::{Input, Inputs, Unit};
use super::results::Results;

pub(super) use self::summary::outcome_in_words;

/// Most inputs to show without `--all`.
pub const INPUTS_SHOWN_MAX: usize = 4;
/// Most items of one input to show without `--all`.
pub const ITEMS_SHOWN_MAX: usize = 12;
/// Most objects of one grid to list without `--all`.
pub const OBJECTS_SHOWN_MAX: usize = 12;

/// Stands for the verdict of an input if the pool did not accept all its items.
const NO_VERDICT: &str = "no verdict";

/// The style of the output.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Whether to show everything: `--all`.
    pub all: bool,
    /// The colours of the terminal, for the backgrounds of cells.
    pub colors: Colors,
    /// Columns of the screen.
    pub columns: usize,
}

impl Style {
    fn at_most(self, max: usize) -> usize {
        if self.all { usize::MAX } else { max }
    }
}

/// Writes the results of `inputs`, then how and where they were made within `elapsed`.
///
/// # Errors
/// Those of `out`; [`io::ErrorKind::InvalidData`] if a result cannot be read.
pub fn write(
    out: &mut dyn Write,
    inputs: &Inputs,
    results: &Results,
    elapsed: Duration,
    style: Style,
) -> io::Result<()> {
    let count = inputs.list().len();
    let shown = count.min(style.at_most(INPUTS_SHOWN_MAX));
    for (first, input) in inputs.numbered().take(shown) {
        write_input(out, first, input, inputs.unit(), results, style)?;
    }
    if shown < count {
        let more = HumanCount((count - shown) as u64);
        writeln!(out, "… {more} more inputs are not shown; --all shows them\n")?;
    }
    summary::write(out, inputs, results, elapsed)
}

fn write_input(
    out: &mut dyn Write,
    first: usize,
    input: &Input,
    unit: Unit,
    results: &Results,
    style: Style,
) -> io::Result<()> {
    let name = printable(&input.name);
    let items = input.item_count(unit);
    let done = match results.done(first..first + items) as u64 {
        0 => String::new(),
        done => format!(
            "; {} of {} have a result, which --json shows",
            HumanCount(done),
            counted(items as u64, item_word(unit))
        ),
    };
    if results.verdict(first..first + items).is_none() {
        return writeln!(out, "{name}  {NO_VERDICT}{done}\n");
    }
    if let Some(receipt) = results.worst_receipt(first..first + items) {
        let reason = printable(&receipt.reason);
        return writeln!(out, "{name}  {}: {reason}{done}\n", receipt.verdict);
    }
    writeln!(out, "{name}  {}", Verdict::Ok)?;
    let shown = items.min(style.at_most(ITEMS_SHOWN_MAX));
    let blocks = input.places(unit).take(shown).zip(first..).map(|(place, item)| {
        let result = results.item(item).map_err(invalid)?;
        Ok(picture::of(&place.to_string(), &result, style))
    });
    let blocks: Vec<Block> = blocks.collect::<io::Result<_>>()?;
    flow(out, &blocks, style.columns)?;
    if shown < items {
        let more = HumanCount((items - shown) as u64);
        writeln!(out, "… {more} more {}s are not shown; --all shows them", item_word(unit))?;
    }
    writeln!(out)
}

fn invalid(error: MalformedOutput) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// The word for an item.
fn item_word(unit: Unit) -> &'static str {
    match unit {
        Unit::Grid => "grid",
        Unit::Pair => "pair",
    }
}

/// `1 grid`, `1,333 grids`.
pub(super) fn counted(count: u64, word: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {word}{plural}", HumanCount(count))
}

/// A text from outside, without control characters, which could steer a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The same of a message of several lines.
pub(crate) fn printable_lines(text: &str) -> String {
    let is_bad = |c: char| c.is_control() && c != '\n' && c != '\t';
    text.chars().map(|c| if is_bad(c) { '\u{fffd}' } else { c }).collect()
}
