//! What `gridpool replay` asks of a worker's binary that runs without a pool, under a tool.

use serde::{Deserialize, Serialize};

use crate::chaos::ChaosFault;
use crate::program::Ties;

/// A program and its packed batch: one line of JSON on standard input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayRequest {
    /// The program's text.
    pub text: String,
    /// How it breaks ties.
    pub ties: Ties,
    /// Steps that an item may run.
    pub steps: u32,
    /// Items of the batch.
    pub items: u32,
    /// Cells of all its grids.
    pub cells: u32,
    /// The packed batch, in hexadecimal digits.
    pub batch: String,
    /// The fault that the run meets on purpose.
    pub chaos: Option<ChaosFault>,
}
