//! What `gridpool status` shows of the process that sends traces.

use serde::{Deserialize, Serialize};

/// The process that sends traces to their collector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracerStatus {
    /// The collector's address.
    pub collector: String,
    /// Process id; 0 where there is no process.
    pub pid: u32,
    /// Whether it sends heartbeats.
    pub up: bool,
    /// Processes started after the first.
    pub restarts: u32,
    /// Spans that the collector has taken.
    pub exported: u64,
    /// Spans that it has not taken: it was away, too slow, or refused them.
    pub dropped: u64,
    /// Jobs whose spans were never made, because the process did not read in time.
    pub unsent: u64,
}
