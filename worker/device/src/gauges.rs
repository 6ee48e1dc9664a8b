//! Counts of the memory that a worker holds, updated when it takes or frees memory, and of what it has finished. The
//! heartbeat thread reads them.

use std::sync::atomic::{AtomicU64, Ordering};

use gridpool_protocol::status::WorkerMemory;

use crate::position::Recorder;

/// A number of bytes: now, and the highest ever.
#[derive(Debug, Default)]
pub struct Gauge {
    now: AtomicU64,
    high: AtomicU64,
}

impl Gauge {
    /// Adds bytes.
    pub fn add(&self, bytes: usize) {
        let now = self.now.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        self.high.fetch_max(now, Ordering::Relaxed);
    }

    /// Subtracts bytes that were added before.
    pub fn subtract(&self, bytes: usize) {
        self.now.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    fn read(&self) -> (u64, u64) {
        (self.now.load(Ordering::Relaxed), self.high.load(Ordering::Relaxed))
    }
}

/// The memory that a device holds beside arenas, the arenas that it has registered, and how far it has come.
#[derive(Debug, Default)]
pub struct Gauges {
    /// Buffers on the device.
    pub device: Gauge,
    /// Page-locked buffers on the host.
    pub pinned: Gauge,
    /// Registered arenas.
    pub registered: Gauge,
    /// Where it is in its work.
    pub position: Recorder,
    /// Chunks of work that were finished.
    chunks: AtomicU64,
}

impl Gauges {
    /// A chunk is finished: the device looks at the flags of cancelled attempts before the next one.
    pub(crate) fn chunk_is_done(&self) {
        self.chunks.fetch_add(1, Ordering::Relaxed);
    }

    /// Chunks of work that were finished so far.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        self.chunks.load(Ordering::Relaxed)
    }

    /// All of them, as a heartbeat carries them.
    #[must_use]
    pub fn memory(&self) -> WorkerMemory {
        let (device_bytes, device_bytes_high) = self.device.read();
        let (pinned_bytes, pinned_bytes_high) = self.pinned.read();
        let (registered_bytes, registered_bytes_high) = self.registered.read();
        WorkerMemory {
            device_bytes,
            device_bytes_high,
            pinned_bytes,
            pinned_bytes_high,
            registered_bytes,
            registered_bytes_high,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_stays_when_memory_is_freed() {
        let gauges = Gauges::default();
        gauges.pinned.add(100);
        gauges.pinned.subtract(60);
        gauges.pinned.add(10);
        let memory = gauges.memory();
        assert_eq!((memory.pinned_bytes, memory.pinned_bytes_high), (50, 100));
        assert_eq!((memory.device_bytes_high, memory.registered_bytes_high), (0, 0));
    }
}
