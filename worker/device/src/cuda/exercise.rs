//! Allocates, writes, reads back and frees plain memory of the GPU for `gridpool diagnose`, at sizes where
//! sizes go wrong. It calls the driver directly, without kernels or a worker's buffers.

#![expect(unsafe_code, reason = "copies to and from memory that this type alone has")]

use std::ptr::NonNull;

use gridpool_kernels::argument::DeviceAddress;
use gridpool_kernels::module::CUDA_VERSION_MIN;

use super::device::uuid_text;
use super::driver::{Driver, Stream};
use crate::fault::Fault;

/// Sizes at which counts of 31 and of 32 bits end.
const EDGES: [usize; 2] = [1 << 31, 1 << 32];

/// What is wrong with memory of some size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryFault {
    /// A call of the driver failed.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A byte is not what was written there.
    #[error("byte {at} of {bytes} is {got}, and {want} was written")]
    Byte {
        /// Which byte.
        at: usize,
        /// The size of the allocation.
        bytes: usize,
        /// What was read.
        got: u8,
        /// What was written.
        want: u8,
    },
}

/// The only GPU that this process sees, with a context.
#[derive(Debug)]
pub struct PlainMemory {
    driver: Driver,
    stream: Stream,
    /// One byte that the device copies from and to.
    host: NonNull<u8>,
}

impl PlainMemory {
    /// Makes a context on the only visible GPU, which must be `uuid`.
    ///
    /// # Errors
    /// Any [`Fault`] of the driver, or another GPU.
    pub fn open(uuid: &str) -> Result<Self, Fault> {
        Self::over(Driver::open(CUDA_VERSION_MIN)?, uuid)
    }

    /// Uses the driver that is given.
    pub(super) fn over(driver: Driver, uuid: &str) -> Result<Self, Fault> {
        let device = driver.only_device()?;
        let got = uuid_text(driver.uuid(device)?);
        if got != uuid {
            return Err(Fault::WrongDevice { want: uuid.to_owned(), got });
        }
        driver.enter_context(device)?;
        Ok(Self { driver, stream: driver.stream()?, host: driver.allocate_host(1)? })
    }

    /// The device's free and total bytes.
    ///
    /// # Errors
    /// Any [`Fault`] of the driver.
    pub fn free_and_total(&self) -> Result<(usize, usize), Fault> {
        self.driver.memory()
    }

    /// Allocates `bytes`, writes the first, the last and those at the edges of 31 and 32 bits, reads them back
    /// once all are written, and frees the memory.
    ///
    /// # Errors
    /// [`MemoryFault`]: a call fails, or a byte differs. The memory is freed even then, unless the context is
    /// lost: another call could block forever, and the end of the process frees everything.
    pub fn exercise(&self, bytes: usize) -> Result<(), MemoryFault> {
        let start = self.driver.allocate(bytes)?;
        let written = self.write_and_read(start, bytes);
        if let Err(MemoryFault::Fault(fault)) = &written
            && fault.ends_worker()
        {
            return written;
        }
        // A lesser fault may have left a copy under way.
        let settled = self.driver.synchronize(self.stream);
        let freed = settled.and_then(|()| {
            // SAFETY: the address came from `allocate`, and every copy has just been waited for.
            unsafe { self.driver.free(start) }
        });
        // If both are wrong, the first is the cause.
        written?;
        Ok(freed?)
    }

    fn write_and_read(&self, start: DeviceAddress, bytes: usize) -> Result<(), MemoryFault> {
        // All are written before any is read: if two addresses are one byte, the first reads back wrong.
        for at in places(bytes) {
            self.write(start.plus(at), pattern(at))?;
        }
        for at in places(bytes) {
            let (got, want) = (self.read(start.plus(at))?, pattern(at));
            if got != want {
                return Err(MemoryFault::Byte { at, bytes, got, want });
            }
        }
        Ok(())
    }

    fn write(&self, to: DeviceAddress, byte: u8) -> Result<(), Fault> {
        // SAFETY: the byte is this type's own, and no copy from or to it is under way.
        unsafe { self.host.write(byte) };
        // SAFETY: both ends are there, and are waited for below.
        unsafe { self.driver.copy_to_device(to, self.host.as_ptr(), 1, self.stream)? };
        self.driver.synchronize(self.stream)
    }

    fn read(&self, from: DeviceAddress) -> Result<u8, Fault> {
        // SAFETY: both ends are there, and are waited for below.
        unsafe { self.driver.copy_to_host(self.host.as_ptr(), from, 1, self.stream)? };
        self.driver.synchronize(self.stream)?;
        // SAFETY: the byte is this type's own, and the copy to it has been waited for.
        Ok(unsafe { self.host.read() })
    }
}

/// The bytes that are written and read back, ascending.
fn places(bytes: usize) -> Vec<usize> {
    let around = |edge: usize| [edge - 1, edge, edge + 1];
    let mut places: Vec<usize> = EDGES.into_iter().flat_map(around).collect();
    places.extend([0, bytes / 2, bytes - 1]);
    places.retain(|&at| at < bytes);
    places.sort_unstable();
    places.dedup();
    places
}

/// A byte that depends on all bits of `at`.
fn pattern(at: usize) -> u8 {
    let mixed = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.to_be_bytes()[0]
}

#[cfg(test)]
mod tests {
    use gridpool_stub_cuda::{cuda, machine};

    use super::*;
    use crate::cuda::api::Api;

    fn memory(script: &str) -> PlainMemory {
        machine::install(script).unwrap();
        // SAFETY: the stub has the driver's functions under the driver's names.
        let api = unsafe { Api::over(cuda::symbol) }.unwrap();
        let driver = Driver::over(api, CUDA_VERSION_MIN).unwrap();
        PlainMemory::over(driver, &machine::uuid_text(0)).unwrap()
    }

    #[test]
    fn memory_of_every_size_is_written_read_and_given_back() {
        let memory = memory("memory=1000000");
        let before = memory.free_and_total().unwrap();
        assert_eq!(before, (1_000_000, 1_000_000));
        for bytes in [1, 3, 4_097, 999_999, 1_000_000] {
            memory.exercise(bytes).unwrap();
            assert_eq!(memory.free_and_total().unwrap(), before, "{bytes}");
        }
    }

    #[test]
    fn bad_sizes_are_refused_with_their_codes_and_the_device_works_on() {
        let memory = memory("memory=1000000");
        let code = |bytes| match memory.exercise(bytes) {
            Err(MemoryFault::Fault(Fault::Cuda { code, .. })) => code,
            other => panic!("{other:?}"),
        };
        assert_eq!((code(1_000_001), code(usize::MAX), code(0)), (2, 2, 1));
        memory.exercise(5).unwrap();
    }

    #[test]
    fn a_byte_that_comes_back_as_another_is_found_and_the_memory_given_back() {
        let memory = memory("memory=1000000; call=cuMemcpyDtoHAsync nth=2 flip");
        let fault = memory.exercise(100).unwrap_err();
        let MemoryFault::Byte { at: 50, bytes: 100, got, want } = fault else { panic!("{fault}") };
        assert_eq!(got ^ 1, want);
        assert_eq!(memory.free_and_total().unwrap().0, 1_000_000);
    }

    #[test]
    fn the_edges_of_31_and_32_bits_are_checked() {
        assert_eq!(places(1), [0]);
        assert_eq!(places((1 << 31) + 1), [0, 1 << 30, (1 << 31) - 1, 1 << 31]);
        let five = 5 << 30;
        assert!(places(five).contains(&(1 << 32)));
        let bytes: std::collections::BTreeSet<u8> = places(five).into_iter().map(pattern).collect();
        assert_eq!(bytes.len(), places(five).len(), "places that wrap differ");
    }
}
