//! A small batch, programs that together use every op, and digests of the right results.
//!
//! A worker runs it before it says that it is ready: a device that loads the kernels and computes
//! something else must not serve. The digests were made by the reference implementation and are
//! checked by an independent one in `tests`; nothing here runs on a device.
//!
//! The canonical text of a result is what the digests are of. It is UTF-8, one line for each item,
//! in order, each ended by a line feed; numbers are decimal:
//!
//! ```text
//! grid H W C C C …             h * w cells, row-major
//! number N
//! colors C C …
//! objects C,R,J;C,R,J C,R,J …  objects parted by spaces, their cells (colour, row, column) by `;`
//! error CODE OP                the code's name, the op's canonical text or `input`
//! ```
//!
//! A list without members is its bare word.

mod table;

use std::fmt::Write;

use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::output::{ItemError, MalformedOutput, Output, Outputs};
use gridpool_protocol::program::{Program, Ties, hex};
use sha2::{Digest, Sha256};

pub use table::KNOWN_ANSWERS;

/// One program and the digest of its right results for [`batch`].
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
        /// The digest of what it gave.
        got: String,
        /// The digest of what is right.
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

    /// Compares what a device gave for [`batch`] with what is right.
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
    let mut text = String::new();
    for item in 0..outputs.len() {
        write_item(&mut text, &outputs.item(item)?);
        text.push('\n');
    }
    Ok(text)
}

fn write_item(text: &mut String, item: &Result<Output, ItemError>) {
    match item {
        Ok(Output::Colors(colors)) => {
            text.push_str("colors");
            colors.iter().for_each(|color| push(text, format_args!(" {color}")));
        }
        Ok(Output::Grid(grid)) => {
            push(text, format_args!("grid {} {}", grid.h(), grid.w()));
            grid.cells().iter().for_each(|cell| push(text, format_args!(" {cell}")));
        }
        Ok(Output::Number(number)) => push(text, format_args!("number {number}")),
        Ok(Output::Objects(objects)) => {
            text.push_str("objects");
            for object in objects {
                for (at, cell) in object.iter().enumerate() {
                    let parted = if at == 0 { ' ' } else { ';' };
                    push(text, format_args!("{parted}{},{},{}", cell.color, cell.row, cell.col));
                }
            }
        }
        Err(error) => push(text, format_args!("error {} {}", error.code.name(), error.op)),
    }
}

fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("a String takes all that is written");
}

/// The grids of the test: every shape, tie and pattern that has its own path through some op.
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

fn grid(h: usize, w: usize, color: impl Fn(usize, usize) -> usize) -> Grid {
    let cells = (0..h * w).map(|at| color(at / w, at % w));
    let cells = cells.map(|color| u8::try_from(color).expect("colours are small")).collect();
    Grid::new(h, w, cells).expect("the test's grids are within the limits")
}

/// A path of 2 that winds inwards through 0, one cell wide, with one cell between its turns.
fn spiral(side: usize) -> Grid {
    grid(side, side, |i, j| {
        let ring = i.min(j).min(side - 1 - i).min(side - 1 - j);
        // Even rings are drawn but for the cell under their first, and the same cell of the odd
        // ring inside leads on to the next: so the rings make one path.
        let under_first = i == ring + 1 && j == ring;
        usize::from((ring % 2 == 0) != under_first) * 2
    })
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::program::{OPS, Op};

    use super::*;
    use crate::reference::run_batch;

    #[test]
    fn the_reference_gives_every_known_answer() {
        let batch = batch();
        for known in KNOWN_ANSWERS {
            known.check(&run_batch(&known.program(), &batch).unwrap()).unwrap();
        }
    }

    #[test]
    fn every_op_and_both_tie_modes_are_asked_for() {
        let programs: Vec<_> = KNOWN_ANSWERS.iter().map(KnownAnswer::program).collect();
        let ops: Vec<Op> = programs.iter().flat_map(|p| p.ops().iter().copied()).collect();
        for spec in OPS {
            let canonical = Program::compile(&with_arguments(spec), Ties::Lowest).unwrap();
            assert!(ops.iter().any(|op| op.name() == canonical.ops()[0].name()), "{}", spec.name);
        }
        for ties in [Ties::Cpython, Ties::Lowest] {
            for name in ["mostcolor", "leastcolor", "palette"] {
                let asks = |p: &Program| p.ties() == ties && p.text().contains(name);
                assert!(programs.iter().any(asks), "{name} under {ties}");
            }
        }
        for code in 0..8 {
            let grouping = gridpool_protocol::program::Grouping::from_code(code).unwrap();
            assert!(ops.contains(&Op::Objects(grouping)), "o_g({code})");
        }
    }

    fn with_arguments(spec: &gridpool_protocol::program::OpSpec) -> String {
        match spec.parameters.len() {
            0 => spec.name.to_owned(),
            1 => format!("{}(3)", spec.name),
            2 => format!("{}(1, 2)", spec.name),
            _ => format!("{}(true, false, true)", spec.name),
        }
    }

    #[test]
    fn one_changed_cell_is_noticed() {
        let mut grids: Vec<Grid> = (0..batch().len()).map(|item| batch().grid(item)).collect();
        let last = grids.last_mut().unwrap();
        let mut cells = last.cells().to_vec();
        cells[4_000] = (cells[4_000] + 1) % 10;
        *last = Grid::new(64, 64, cells).unwrap();
        let changed = GridBatch::from_grids(&grids).unwrap();
        let known = &KNOWN_ANSWERS[0];
        let error = known.check(&run_batch(&known.program(), &changed).unwrap()).unwrap_err();
        assert!(error.to_string().contains(known.text));
    }

    #[test]
    fn the_batch_has_what_it_promises() {
        let batch = batch();
        assert_eq!(batch.len(), 25);
        let program = Program::compile("o_g(5)", Ties::Cpython).unwrap();
        let outputs = run_batch(&program, &batch).unwrap();
        let counts = (0..batch.len()).map(|item| match outputs.item(item).unwrap().unwrap() {
            Output::Objects(objects) => objects.len(),
            Output::Colors(_) | Output::Grid(_) | Output::Number(_) => panic!("not objects"),
        });
        let counts: Vec<usize> = counts.collect();
        assert!(counts.contains(&0) && counts.iter().any(|&count| count > 255), "{counts:?}");
        // The spirals are one object, or two where the path is commoner than the ground.
        assert!(counts[19] <= 2 && counts[20] <= 2, "{counts:?}");
    }
}
