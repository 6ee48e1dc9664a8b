//! Bytes that another process may change at any time.
//!
//! A `&[u8]` promises that no other process writes, which does not hold for shared memory. So this type never
//! returns a reference to bytes: it copies in, copies out, or gives a raw pointer to a driver call that copies.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU64;

/// Memory that other processes may write to. It stays mapped while this lives.
pub trait SharedMemory: std::fmt::Debug + Send + Sync {
    /// All of its bytes.
    fn bytes(&self) -> SharedSlice<'_>;
}

/// A range of shared (or private) memory, alive for `'a`.
#[derive(Clone, Copy, Debug)]
pub struct SharedSlice<'a> {
    start: NonNull<u8>,
    bytes: usize,
    owner: PhantomData<&'a ()>,
}

// SAFETY: the type only copies through raw pointers, and the mapping outlives `'a` in every thread.
#[expect(unsafe_code, reason = "a raw pointer to memory that lives for 'a, see the type")]
unsafe impl Send for SharedSlice<'_> {}
// SAFETY: as for `Send`; two threads that write one place leave garbage there and nothing worse.
#[expect(unsafe_code, reason = "a raw pointer to memory that lives for 'a, see the type")]
unsafe impl Sync for SharedSlice<'_> {}

impl<'a> SharedSlice<'a> {
    /// A view of private memory, so that inline payloads and arenas take the same path.
    #[must_use]
    pub fn private(bytes: &'a mut [u8]) -> Self {
        Self { start: NonNull::from(&mut *bytes).cast(), bytes: bytes.len(), owner: PhantomData }
    }

    /// A view of `bytes` bytes at `start`.
    ///
    /// # Safety
    /// The range must stay mapped, readable and writable for `'a`.
    #[expect(unsafe_code, reason = "the one way to view a mapping; the caller owns it")]
    #[must_use]
    pub unsafe fn mapped(start: NonNull<u8>, bytes: usize) -> Self {
        Self { start, bytes, owner: PhantomData }
    }

    /// Its length, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The range of `bytes` bytes from `offset`, or `None` if it is not inside.
    #[must_use]
    pub fn part(&self, offset: u64, bytes: u64) -> Option<Self> {
        let end = offset.checked_add(bytes)?;
        if end > self.bytes as u64 {
            return None;
        }
        let (offset, bytes) = (usize::try_from(offset).ok()?, usize::try_from(bytes).ok()?);
        let start = NonNull::new(self.start.as_ptr().wrapping_add(offset))?;
        Some(Self { start, bytes, owner: PhantomData })
    }

    /// Copies `into.len()` bytes from `offset`.
    ///
    /// # Panics
    /// If the range is not inside. Offsets come from a checked layout.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        let from = self.at(offset, into.len());
        #[expect(unsafe_code, reason = "a copy out of memory that others may write")]
        // SAFETY: the source range was checked, and `into` is private, so they cannot overlap.
        unsafe {
            ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len());
        }
    }

    /// Copies `from` to `offset`.
    ///
    /// # Panics
    /// If the range is not inside. Offsets come from a checked layout.
    pub fn write(&self, offset: usize, from: &[u8]) {
        let into = self.at(offset, from.len());
        #[expect(unsafe_code, reason = "a copy into memory that others may read")]
        // SAFETY: the target range was checked, and `from` is private, so they cannot overlap.
        unsafe {
            ptr::copy_nonoverlapping(from.as_ptr(), into, from.len());
        }
    }

    /// Copies all of `from` to the start.
    ///
    /// # Panics
    /// If it is longer than this slice.
    pub fn copy_from(&self, from: &SharedSlice<'_>) {
        let into = self.at(0, from.bytes);
        #[expect(unsafe_code, reason = "a copy between two memories that others may write")]
        // SAFETY: both ranges are mapped and were checked, and `copy` lets them overlap.
        unsafe {
            ptr::copy(from.start.as_ptr(), into, from.bytes);
        }
    }

    /// The first byte, for driver calls that copy by address.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Its first `count` words of 64 bits; `None` if it has fewer, or does not begin at the start of a word.
    #[must_use]
    pub fn words(&self, count: usize) -> Option<&'a [AtomicU64]> {
        let start = self.start.cast::<AtomicU64>();
        if !start.is_aligned() || self.bytes / size_of::<AtomicU64>() < count {
            return None;
        }
        #[expect(unsafe_code, reason = "words that other processes may write to, as atomics allow")]
        // SAFETY: so many words are inside and aligned, and they live for `'a`. They are atomic, so another process
        // that writes to them changes only what a load returns. Within this process they are used as words alone.
        Some(unsafe { slice::from_raw_parts(start.as_ptr(), count) })
    }

    /// The address of a range, which must be inside.
    fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(inside, "{bytes} bytes at {offset} of a slice of {}", self.bytes);
        self.start.as_ptr().wrapping_add(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_never_reach_outside() {
        let mut memory = [7; 16];
        let slice = SharedSlice::private(&mut memory);
        assert_eq!(slice.part(4, 12).map(|part| part.bytes()), Some(12));
        assert!(slice.part(16, 0).is_some());
        assert!(slice.part(4, 13).is_none());
        assert!(slice.part(u64::MAX, 2).is_none());
        slice.part(14, 2).unwrap().write(1, &[9]);
        let mut back = [0; 2];
        slice.read(14, &mut back);
        assert_eq!(back, [7, 9]);
    }

    #[test]
    fn one_slice_is_copied_to_another_even_onto_itself() {
        let mut memory = [1, 2, 3, 4];
        let all = SharedSlice::private(&mut memory);
        all.part(1, 3).unwrap().copy_from(&all.part(0, 3).unwrap());
        assert_eq!(memory, [1, 1, 2, 3]);
    }

    #[test]
    #[should_panic(expected = "of a slice of 4")]
    fn a_read_past_the_end_panics() {
        let mut memory = [0; 4];
        SharedSlice::private(&mut memory).read(3, &mut [0; 2]);
    }
}
