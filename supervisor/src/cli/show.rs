//! What `run` and `submit` print for people: the first inputs as pictures, then a summary.
//!
//! Owns the choice of what is shown. May not know terminals: whether there is colour and how wide
//! the screen is come as a [`Look`].

mod block;
mod paint;
mod picture;
mod summary;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::io::{self, Write};
use std::time::Duration;

use gridpool_protocol::output::MalformedOutput;
use gridpool_protocol::receipt::Verdict;
use indicatif::HumanCount;

use self::block::{Block, flow};
use super::input::{Input, Inputs, Unit};
use super::results::Results;

pub(super) use self::summary::fate;

/// Inputs that are shown unless all are asked for.
pub const INPUTS_SHOWN_MAX: usize = 4;
/// Items of one input that are shown unless all are asked for.
pub const ITEMS_SHOWN_MAX: usize = 12;
/// Objects of one grid that are listed unless all are asked for.
pub const OBJECTS_SHOWN_MAX: usize = 12;

/// What is said of an input whose items were not all taken by the pool.
const NO_VERDICT: &str = "no verdict";

/// How the output looks.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Whether everything is shown: `--all`.
    pub all: bool,
    /// Whether cells have a coloured background; digits alone tell them apart otherwise.
    pub color: bool,
    /// Columns of the screen.
    pub columns: usize,
}

impl Look {
    fn at_most(self, max: usize) -> usize {
        if self.all { usize::MAX } else { max }
    }
}

/// Whether to use colour: on a terminal, unless `NO_COLOR` is set to anything
/// (<https://no-color.org>).
#[must_use]
pub fn wants_color(is_terminal: bool, no_color: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty)
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
    look: Look,
) -> io::Result<()> {
    let count = inputs.list().len();
    let shown = count.min(look.at_most(INPUTS_SHOWN_MAX));
    for (first, input) in inputs.numbered().take(shown) {
        write_input(out, first, input, inputs.unit(), results, look)?;
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
    look: Look,
) -> io::Result<()> {
    let name = printable(&input.name);
    let items = input.item_count(unit);
    if results.verdict(first..first + items).is_none() {
        return writeln!(out, "{name}  {NO_VERDICT}\n");
    }
    let receipt = results.worst_receipt(first..first + items);
    if let Some(receipt) = receipt.filter(|receipt| receipt.verdict != Verdict::Ok) {
        return writeln!(out, "{name}  {}: {}\n", receipt.verdict, printable(&receipt.reason));
    }
    writeln!(out, "{name}  {}", Verdict::Ok)?;
    let shown = items.min(look.at_most(ITEMS_SHOWN_MAX));
    let blocks = input.places(unit).take(shown).zip(first..).map(|(place, item)| {
        let result = results.item(item).map_err(invalid)?;
        Ok(picture::of(&place.to_string(), &result, look))
    });
    let blocks: Vec<Block> = blocks.collect::<io::Result<_>>()?;
    flow(out, &blocks, look.columns)?;
    if shown < items {
        let more = HumanCount((items - shown) as u64);
        writeln!(out, "… {more} more {}s are not shown; --all shows them", item_word(unit))?;
    }
    writeln!(out)
}

fn invalid(error: MalformedOutput) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// What one item is called.
fn item_word(unit: Unit) -> &'static str {
    match unit {
        Unit::Grid => "grid",
        Unit::Pair => "pair",
    }
}

/// `1 grid`, `1,333 grids`.
fn counted(count: u64, word: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {word}{plural}", HumanCount(count))
}

/// A name or a reason from outside, with nothing in it that steers a terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
