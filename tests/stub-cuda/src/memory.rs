//! Memory that a device may use: its own allocations, and the registered memory of the host. Every access
//! outside is an error, as on a real device.

#![expect(unsafe_code, reason = "plays a device, which reads and writes by address")]

use std::collections::BTreeMap;
use std::ptr;

use crate::cuda::code;

/// An access to what is not there, in the driver's words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Illegal;

impl From<Illegal> for u32 {
    fn from(_: Illegal) -> Self {
        code::ILLEGAL_ADDRESS
    }
}

/// Where a block came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Device,
    Pinned,
    /// Memory of the process, registered.
    Registered,
}

#[derive(Debug)]
struct Block {
    bytes: usize,
    origin: Origin,
}

/// All blocks, by address.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    blocks: BTreeMap<usize, Block>,
    /// Bytes that may be allocated on the device, if the script says so.
    limit: Option<usize>,
}

/// The default for devices whose script does not say.
const LIMIT: usize = 8 << 30;

impl Memory {
    /// The memory of a device with this limit.
    pub(crate) fn with_limit(limit: Option<usize>) -> Self {
        Self { blocks: BTreeMap::new(), limit }
    }

    /// The limit in bytes.
    pub(crate) fn limit(&self) -> usize {
        self.limit.unwrap_or(LIMIT)
    }

    /// Bytes that are not allocated.
    pub(crate) fn left(&self) -> usize {
        let on_device = self.blocks.values().filter(|block| block.origin == Origin::Device);
        self.limit().saturating_sub(on_device.map(|block| block.bytes).sum())
    }

    /// New memory, zeroed.
    pub(crate) fn allocate(&mut self, bytes: usize, origin: Origin) -> Result<*mut u8, u32> {
        if bytes == 0 {
            return Err(code::INVALID_VALUE);
        }
        if origin == Origin::Device && bytes > self.left() {
            return Err(code::OUT_OF_MEMORY);
        }
        let start = Box::into_raw(vec![0_u8; bytes].into_boxed_slice()).cast::<u8>();
        self.blocks.insert(start.expose_provenance(), Block { bytes, origin });
        Ok(start)
    }

    /// Frees a block.
    pub(crate) fn free(&mut self, start: usize, origin: Origin) -> Result<(), u32> {
        let block = self.blocks.get(&start).filter(|block| block.origin == origin);
        let bytes = block.ok_or(code::INVALID_VALUE)?.bytes;
        self.blocks.remove(&start);
        release(start, bytes);
        Ok(())
    }

    /// Registers memory of the process.
    pub(crate) fn register(&mut self, start: usize, bytes: usize) -> Result<(), u32> {
        if bytes == 0 {
            return Err(code::INVALID_VALUE);
        }
        let before = self.blocks.range(..start + bytes).next_back();
        if before.is_some_and(|(&other, block)| start < other + block.bytes) {
            return Err(code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        self.blocks.insert(start, Block { bytes, origin: Origin::Registered });
        Ok(())
    }

    pub(crate) fn unregister(&mut self, start: usize) -> Result<(), u32> {
        match self.blocks.get(&start) {
            Some(Block { origin: Origin::Registered, .. }) => {
                self.blocks.remove(&start);
                Ok(())
            }
            Some(_) | None => Err(code::HOST_MEMORY_NOT_REGISTERED),
        }
    }

    /// Where the block with this address came from.
    pub(crate) fn origin(&self, address: usize) -> Option<Origin> {
        let (&first, block) = self.blocks.range(..=address).next_back()?;
        (address < first + block.bytes).then_some(block.origin)
    }

    /// Whether kernels may use host memory that starts here.
    pub(crate) fn is_mapped(&self, start: usize) -> bool {
        self.blocks.get(&start).is_some_and(|block| block.origin != Origin::Device)
    }

    /// Whether the device may use all of a range.
    pub(crate) fn check(&self, start: usize, bytes: usize) -> Result<(), Illegal> {
        let block = self.blocks.range(..=start).next_back();
        let fits = |(&first, block): (&usize, &Block)| {
            start.checked_add(bytes).is_some_and(|end| end <= first + block.bytes)
        };
        if bytes == 0 || block.is_some_and(fits) { Ok(()) } else { Err(Illegal) }
    }

    /// Reads for a kernel.
    pub(crate) fn read(&self, start: usize, bytes: usize) -> Result<Vec<u8>, Illegal> {
        self.check(start, bytes)?;
        Ok(copy_from(start, bytes))
    }

    /// Writes for a kernel.
    pub(crate) fn write(&self, start: usize, bytes: &[u8]) -> Result<(), Illegal> {
        self.check(start, bytes.len())?;
        copy_to(start, bytes);
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for (&start, block) in &self.blocks {
            match block.origin {
                Origin::Device | Origin::Pinned => release(start, block.bytes),
                Origin::Registered => {}
            }
        }
    }
}

fn release(start: usize, bytes: usize) {
    let start = ptr::slice_from_raw_parts_mut(ptr::with_exposed_provenance_mut(start), bytes);
    // SAFETY: `allocate` has made a box of this length here, and its block is forgotten.
    drop(unsafe { Box::<[u8]>::from_raw(start) });
}

/// Copies bytes of the host, or of a block that was checked.
pub(crate) fn copy_from(start: usize, bytes: usize) -> Vec<u8> {
    let mut copy = vec![0; bytes];
    let from = ptr::with_exposed_provenance::<u8>(start);
    // SAFETY: the caller that put the copy into a stream vouches for its host end until it is done, and
    // the device's end was checked.
    unsafe { ptr::copy(from, copy.as_mut_ptr(), bytes) };
    copy
}

/// Copies bytes to the host, or to a block that was checked.
pub(crate) fn copy_to(start: usize, bytes: &[u8]) {
    let to = ptr::with_exposed_provenance_mut::<u8>(start);
    // SAFETY: as for `copy_from`.
    unsafe { ptr::copy(bytes.as_ptr(), to, bytes.len()) };
}
