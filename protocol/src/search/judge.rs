//! The lines of JSON between `gridpool search --verify` and the process that recomputes verdicts by the reference.

use serde::{Deserialize, Serialize};

/// What the process is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JudgeRequest {
    /// First: the pairs of the search.
    Pairs(Vec<JudgePair>),
    /// Run a program on a pair.
    Run {
        /// The bytes of the program, padding included, as hexadecimal digits.
        program: String,
        /// The pair's number.
        pair: usize,
    },
}

/// A pair, rows of cells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgePair {
    /// The input.
    pub input: Vec<Vec<u8>>,
    /// The expected output; empty if it is missing.
    pub output: Vec<Vec<u8>>,
}

/// What it answers to `Run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// The [status](super::PairStatus::byte).
    pub status: u8,
    /// The [score](super::CellScore::number).
    pub score: u16,
}
