//! The settings of a bridge.

use gridpool_nats::{NatsOptions, StreamLimits};
use serde::{Deserialize, Serialize};

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgeSettings {
    /// The servers.
    pub nats: NatsOptions,
    /// The limits of the streams that it makes.
    pub limits: StreamLimits,
    /// This host's name.
    pub host: String,
    /// Where its pool is: the socket, and the machine that has it. No other pool has the same.
    pub place: String,
    /// The machine's name.
    pub machine: String,
    /// The pool's process id.
    pub pid: u32,
    /// Jobs that it may have at a time; `None` for 8 for each device, 64 at most.
    pub under_way_max: Option<u32>,
    /// Deliveries after which a job without a result runs alone.
    pub deliveries_max: u32,
    /// Bytes of large batches that it keeps in the pool's memory.
    pub cache_bytes_max: u64,
}

impl BridgeSettings {
    /// The defaults.
    #[must_use]
    pub fn new(nats: NatsOptions, host: String) -> Self {
        Self {
            limits: StreamLimits::new(nats.servers.len()),
            nats,
            host,
            place: String::new(),
            machine: String::new(),
            pid: 0,
            under_way_max: None,
            deliveries_max: 5,
            cache_bytes_max: 256 << 20,
        }
    }
}
