//! Keys for jobs that have none.

use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};

use gridpool_protocol::ids::JobKey;

use super::ClientError;

/// Consecutive keys after a random one, so that a key costs no system call. Two clients with 2^32 keys each
/// collide with a probability of 2^-95.
#[derive(Debug)]
pub(super) struct Keys {
    first: u128,
    used: AtomicU64,
}

impl Keys {
    pub(super) fn new() -> Result<Self, ClientError> {
        let mut bytes = [0; 16];
        let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
        read.map_err(ClientError::System)?;
        Ok(Self { first: u128::from_le_bytes(bytes), used: AtomicU64::new(0) })
    }

    pub(super) fn next(&self) -> JobKey {
        JobKey(self.first.wrapping_add(self.used.fetch_add(1, Ordering::Relaxed).into()))
    }
}
