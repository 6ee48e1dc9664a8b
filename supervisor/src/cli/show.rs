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

use gridpool_protocol::receipt::Verdict;
use indicatif::HumanCount;

use self::block::{Block, flow};
use super::input::{Input, numbered};
use super::results::Results;

/// Inputs that are shown unless all are asked for.
pub const INPUTS_SHOWN_MAX: usize = 4;
/// Grids of one input that are shown unless all are asked for.
pub const GRIDS_SHOWN_MAX: usize = 12;
/// Objects of one grid that are listed unless all are asked for.
pub const OBJECTS_SHOWN_MAX: usize = 12;

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
    inputs: &[Input],
    results: &Results,
    elapsed: Duration,
    look: Look,
) -> io::Result<()> {
    let shown = inputs.len().min(look.at_most(INPUTS_SHOWN_MAX));
    for (first, input) in numbered(inputs).take(shown) {
        write_input(out, first, input, results, look)?;
    }
    if shown < inputs.len() {
        let more = HumanCount((inputs.len() - shown) as u64);
        writeln!(out, "… {more} more inputs are not shown; --all shows them\n")?;
    }
    summary::write(out, inputs, results, elapsed)
}

fn write_input(
    out: &mut dyn Write,
    first: usize,
    input: &Input,
    results: &Results,
    look: Look,
) -> io::Result<()> {
    let name = printable(&input.name);
    let receipt = results.worst_receipt(first..first + input.grid_count());
    if let Some(receipt) = receipt.filter(|receipt| receipt.verdict != Verdict::Ok) {
        return writeln!(out, "{name}  {}: {}\n", receipt.verdict, printable(&receipt.reason));
    }
    writeln!(out, "{name}  {}", Verdict::Ok)?;
    let shown = input.grid_count().min(look.at_most(GRIDS_SHOWN_MAX));
    let blocks = input.places().take(shown).zip(first..).map(|(place, grid)| {
        let item = results.item(grid);
        let item = item.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(picture::of(&place.to_string(), &item, look))
    });
    let blocks: Vec<Block> = blocks.collect::<io::Result<_>>()?;
    flow(out, &blocks, look.columns)?;
    if shown < input.grid_count() {
        let more = HumanCount((input.grid_count() - shown) as u64);
        writeln!(out, "… {more} more grids are not shown; --all shows them")?;
    }
    writeln!(out)
}

/// A name or a reason from outside, with nothing in it that steers a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
