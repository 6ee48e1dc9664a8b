//! Two small batches, programs that together use every op, and digests of the right results.
//!
//! A worker runs them before it is READY: a device that loads the kernels and computes wrong results must not
//! serve. The reference implementation made the digests, and an independent one in `tests` checks them.
//! Nothing here runs on a device.
//!
//! The digests are of the canonical text of a result. It is UTF-8, one line for each item, in order, each
//! ended by a line feed; numbers are decimal:
//!
//! ```text
//! grid H W C C C …             h * w cells, row-major; an empty grid is `grid 0 0`
//! number N
//! flag B                       true or false
//! vector R J                   row and column, or height and width
//! colors C C …
//! object C,R,J;C,R,J;…         cells (colour, row, column), row-major, parted by `;`
//! objects C,R,J;… C,R,J;… …    each as `object` writes it, parted by spaces
//! patch R,J;R,J;…              places (row, column), row-major
//! tuple [VALUE] [VALUE] …      each element as the lines above write it
//! error CODE OP                the code's name, the step's canonical text or `input`
//! ```
//!
//! An empty list is its bare word.

mod table;

use std::io::Write as _;

use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::output::{ItemError, MalformedOutput, Object, Output, Outputs};
use gridpool_protocol::program::{Program, Ties, Type, hex};
use gridpool_protocol::solver::Literal;
use sha2::{Digest, Sha256};

pub use table::KNOWN_ANSWERS;

/// One program and the digest of its right results for [`batch`], or for [`pair_batch`] if it takes
/// pairs.
#[derive(Clone, Copy, Debug)]
pub struct KnownAnswer {
    /// The program.
    pub text: &'static str,
    /// Its tie-breaks.
    pub ties: Ties,
    /// SHA-256 of the canonical text of the results, in hexadecimal.
    pub digest: &'static str,
}

/// Why a device fails the test.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongAnswer {
    /// The results are well formed and wrong.
    #[error("`{text}` gives digest {got}, not {want}")]
    Digest {
        /// The program.
        text: &'static str,
        /// The digest of the device's result.
        got: String,
        /// The right digest.
        want: &'static str,
    },
    /// The results cannot be decoded.
    #[error("`{text}`: {what}")]
    Malformed {
        /// The program.
        text: &'static str,
        /// What is wrong with them.
        what: MalformedOutput,
    },
}

impl KnownAnswer {
    /// The program, compiled.
    ///
    /// # Panics
    /// Never: a test compiles them all.
    #[must_use]
    pub fn program(&self) -> Program {
        Program::compile(self.text, self.ties).expect("known answers are of programs that compile")
    }

    /// Whether it is for [`pair_batch`] instead of [`batch`].
    ///
    /// Never: see [`KnownAnswer::program`].
    #[must_use]
    pub fn takes_pairs(&self) -> bool {
        self.program().takes() == Type::PAIR
    }

    /// Compares a device's results for the program's batch with the right ones.
    ///
    /// # Errors
    /// [`WrongAnswer`], which names the program.
    pub fn check(&self, outputs: &Outputs) -> Result<(), WrongAnswer> {
        let malformed = |what| WrongAnswer::Malformed { text: self.text, what };
        let got = hex(&Sha256::digest(canonical_text(outputs).map_err(malformed)?));
        if got != self.digest {
            return Err(WrongAnswer::Digest { text: self.text, got, want: self.digest });
        }
        Ok(())
    }
}

/// The canonical text of all results, as the head of this file describes it.
///
/// # Errors
/// [`MalformedOutput`] of the first item that cannot be decoded.
pub fn canonical_text(outputs: &Outputs) -> Result<String, MalformedOutput> {
    let mut text = Vec::new();
    for item in 0..outputs.len() {
        write_item(&mut text, &outputs.item(item)?);
        text.push(b'\n');
    }
    Ok(String::from_utf8(text).expect("only text was written"))
}

fn write_item(text: &mut Vec<u8>, item: &Result<Output, ItemError>) {
    match item {
        Ok(output) => write_output(text, output),
        Err(error) => push(text, format_args!("error {} {}", error.code.name(), error.op)),
    }
}

fn write_output(text: &mut Vec<u8>, output: &Output) {
    match output {
        Output::Colors(colors) => {
            text.extend(b"colors");
            colors.iter().for_each(|&color| write_numbers(text, b' ', [color.into()]));
        }
        Output::Flag(flag) => push(text, format_args!("flag {flag}")),
        Output::Grid(grid) => {
            push(text, format_args!("grid {} {}", grid.h(), grid.w()));
            grid.cells().iter().for_each(|&cell| write_numbers(text, b' ', [cell.into()]));
        }
        Output::Number(number) => push(text, format_args!("number {number}")),
        Output::Value(kind, value) => push(text, format_args!("value {}", Literal(kind, value))),
        Output::Object(object) => {
            text.extend(b"object");
            write_object(text, object);
        }
        Output::Objects(objects) => {
            text.extend(b"objects");
            objects.iter().for_each(|object| write_object(text, object));
        }
        Output::Patch(places) => {
            text.extend(b"patch");
            for (at, place) in places.iter().enumerate() {
                write_numbers(text, parted(at), [place.row, place.col]);
            }
        }
        Output::Tuple(elements) => {
            text.extend(b"tuple");
            for element in elements {
                text.extend(b" [");
                write_output(text, element);
                text.push(b']');
            }
        }
        Output::Vector { row, col } => push(text, format_args!("vector {row} {col}")),
    }
}

fn write_object(text: &mut Vec<u8>, object: &Object) {
    for (at, cell) in object.iter().enumerate() {
        write_numbers(text, parted(at), [cell.color.into(), cell.row, cell.col]);
    }
}

/// The separator before element `at` of a list of cells.
fn parted(at: usize) -> u8 {
    if at == 0 { b' ' } else { b';' }
}

/// Writes `before`, then the numbers with commas between. Nearly all of the text is numbers. Formatting them
/// took half of the time that a CPU worker needs to be READY, so this is written by hand.
fn write_numbers<const N: usize>(text: &mut Vec<u8>, before: u8, numbers: [i32; N]) {
    text.push(before);
    for (at, number) in numbers.into_iter().enumerate() {
        if at > 0 {
            text.push(b',');
        }
        if number < 0 {
            text.push(b'-');
        }
        write_digits(text, number.unsigned_abs());
    }
}

/// Nearly all numbers have one to three digits: a loop or a copy costs more than the digits do.
fn write_digits(text: &mut Vec<u8>, number: u32) {
    let mut digit = |at: u32| text.push(b"0123456789"[(number / at % 10) as usize]);
    match number {
        0..10 => {}
        10..100 => digit(10),
        100..1_000 => [100, 10].into_iter().for_each(digit),
        _ => return push(text, format_args!("{number}")),
    }
    text.push(b"0123456789"[(number % 10) as usize]);
}

fn push(text: &mut Vec<u8>, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("a Vec takes all that is written");
}

/// The grids of the test: every shape, tie and pattern that takes its own path through some op.
///
/// # Panics
/// Never: a test builds it.
#[must_use]
pub fn batch() -> GridBatch {
    let line = |cells: &[usize]| grid(1, cells.len(), |_, j| cells[j]);
    let grids = [
        line(&[7]),
        grid(1, 30, |_, j| j * j % 7),
        grid(30, 1, |i, _| i % 4),
        grid(2, 3, |i, j| 3 * i + j + 1),
        grid(3, 2, |i, j| (4 * i + 3 * j) % 5),
        // Ties, and colours that share a slot of CPython's table, in both orders of arrival.
        line(&[8, 0]),
        line(&[0, 8]),
        line(&[9, 1]),
        line(&[1, 9]),
        line(&[9, 1, 5]),
        line(&[9, 8, 1, 0]),
        line(&[0, 1, 8, 9, 9, 8, 1, 0]),
        line(&[2, 9, 1, 2, 9, 1]),
        // Five colours and more: the table has left its small form.
        line(&[9, 8, 5, 1, 0]),
        line(&[9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
        // Objects: touching by corners, of mixed colours, of the background alone.
        grid(2, 2, |i, j| i ^ j ^ 1),
        grid(2, 3, |i, j| [[1, 1, 0], [0, 2, 2]][i][j]),
        grid(4, 5, |_, _| 4),
        grid(9, 9, |i, j| if i % 8 == 0 || j % 2 == 0 { 3 } else { 0 }),
        // Longest label propagation, most objects of one colour, more than 255 objects.
        spiral(15),
        spiral(30),
        grid(30, 30, |i, j| (i + j) % 2),
        grid(17, 31, |i, j| (7 * i * i + 3 * i * j + 5 * j * j + i) % 10),
        grid(16, 255, |i, j| (i * j + j / 3) % 3),
        grid(64, 64, |i, j| (i * 31 + j * 17 + i * j) % 11 % 10),
    ];
    GridBatch::from_grids(&grids).expect("a few small grids fit a job")
}

/// The pairs of the test: of equal and of different sizes, too large to be joined, and one without an output.
///
/// # Panics
/// Never: a test builds it.
#[must_use]
pub fn pair_batch() -> GridBatch {
    let waves = |h, w| grid(h, w, |i, j| (i * i + 3 * j) % 7);
    let stripes = |h, w| grid(h, w, |i, j| if (i + j) % 3 == 0 { 2 } else { 8 * (j % 2) });
    let pairs = [
        (grid(2, 3, |i, j| 3 * i + j), Some(grid(2, 3, |i, j| 3 * i + j * j))),
        (stripes(3, 2), Some(waves(2, 3))),
        (waves(1, 7), None),
        (stripes(4, 5), Some(waves(6, 5))),
        (waves(5, 9), Some(stripes(7, 11))),
        (spiral(15), Some(grid(15, 15, |i, j| (i + j) % 2))),
        (waves(16, 255), Some(stripes(16, 255))),
        (grid(64, 64, |i, j| (i * j) % 10), Some(grid(1, 1, |_, _| 9))),
    ];
    let pairs = pairs.iter().map(|(input, output)| (input, output.as_ref()));
    GridBatch::from_pairs(pairs).expect("a few small grids fit a job")
}

fn grid(h: usize, w: usize, color: impl Fn(usize, usize) -> usize) -> Grid {
    let cells = (0..h * w).map(|at| color(at / w, at % w));
    let cells = cells.map(|color| u8::try_from(color).expect("colours are small")).collect();
    Grid::new(h, w, cells).expect("the test's grids are within the limits")
}

/// A path of 2 that winds inwards through 0, one cell wide, with one cell between its turns.
fn spiral(side: usize) -> Grid {
    grid(side, side, |i, j| {
        let ring = i.min(j).min(side - 1 - i).min(side - 1 - j);
        // Even rings are drawn except the cell under their first one. That cell of the odd ring inside leads
        // to the next ring: so the rings make one path.
        let under_first = i == ring + 1 && j == ring;
        usize::from((ring % 2 == 0) != under_first) * 2
    })
}

#[cfg(test)]
mod tests;
