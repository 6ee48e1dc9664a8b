//! Names for jobs that their client does not name.

use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};

use super::ClientError;
use crate::frame::FrameError;
use crate::ids::JobKey;

/// Keys that follow a random one: drawn once, so that a job costs no system call for its name. That two
/// clients' runs of 2^32 keys meet has a chance of 2^-95.
#[derive(Debug)]
pub(super) struct Keys {
    first: u128,
    used: AtomicU64,
}

impl Keys {
    pub(super) fn new() -> Result<Self, ClientError> {
        let mut bytes = [0; 16];
        let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
        read.map_err(|error| ClientError::Frame(FrameError::Io(error)))?;
        Ok(Self { first: u128::from_le_bytes(bytes), used: AtomicU64::new(0) })
    }

    pub(super) fn next(&self) -> JobKey {
        JobKey(self.first.wrapping_add(self.used.fetch_add(1, Ordering::Relaxed).into()))
    }
}
