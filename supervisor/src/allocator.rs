//! The memory of this program: small blocks are mimalloc's, since messages are often freed by another thread than made
//! them, for which glibc takes a lock. Large ones are the system's, which grows them in place and takes them back at
//! once.
#![expect(unsafe_code, reason = "an allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

use mimalloc::MiMalloc;

/// Blocks from this size on are the system's, bytes: from here on glibc maps each by itself.
const LARGE: usize = 128 << 10;

pub(crate) struct Allocator;

fn is_large(bytes: usize) -> bool {
    bytes >= LARGE
}

// SAFETY: Whoever frees a block names the layout that it was made with, whose size says which of the two allocators
// made it, and both keep the contract themselves.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_large(layout.size()) {
            // SAFETY: The caller's layout, as it is.
            true => unsafe { System.alloc(layout) },
            // SAFETY: The same.
            false => unsafe { MiMalloc.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match is_large(layout.size()) {
            // SAFETY: The caller's layout, as it is.
            true => unsafe { System.alloc_zeroed(layout) },
            // SAFETY: The same.
            false => unsafe { MiMalloc.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match is_large(layout.size()) {
            // SAFETY: A block of this size was made by this allocator.
            true => unsafe { System.dealloc(block, layout) },
            // SAFETY: The same.
            false => unsafe { MiMalloc.dealloc(block, layout) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        match (is_large(layout.size()), is_large(bytes)) {
            // SAFETY: A block of this size was made by this allocator, and the new size is one of its own.
            (true, true) => unsafe { System.realloc(block, layout, bytes) },
            // SAFETY: The same.
            (false, false) => unsafe { MiMalloc.realloc(block, layout, bytes) },
            (true, false) | (false, true) => {
                // SAFETY: The caller promises that the new size makes a layout with this alignment.
                let wanted = unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) };
                // SAFETY: A layout of the caller's.
                let moved = unsafe { self.alloc(wanted) };
                if !moved.is_null() {
                    // SAFETY: Both blocks are at least so long, and the new one is no part of the old one.
                    unsafe { ptr::copy_nonoverlapping(block, moved, bytes.min(layout.size())) };
                    // SAFETY: The caller's block, with its layout; it uses the new one from here on.
                    unsafe { self.dealloc(block, layout) };
                }
                moved
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a block.
    fn bytes<'a>(block: *mut u8, size: usize) -> &'a mut [u8] {
        // SAFETY: The tests call it with a live block that no one else has, of this size, once zeroed or filled.
        unsafe { std::slice::from_raw_parts_mut(block, size) }
    }

    /// A block that grows and shrinks over the limit keeps its bytes, wherever it lies, at each alignment.
    #[test]
    fn blocks_move_between_the_allocators_with_their_bytes() {
        for align in [1, 16, 4_096] {
            let sizes = [1, 100, LARGE - 1, LARGE, LARGE + 1, 3 * LARGE, LARGE, LARGE - 1, 50];
            let layout = |size| Layout::from_size_align(size, align).expect("it is valid");
            // SAFETY: The size is not 0.
            let mut block = unsafe { Allocator.alloc_zeroed(layout(1)) };
            for (number, pair) in (1_u8..).zip(sizes.windows(2)) {
                bytes(block, pair[0]).fill(number);
                // SAFETY: The block has the first size; the second is not 0.
                block = unsafe { Allocator.realloc(block, layout(pair[0]), pair[1]) };
                assert!(!block.is_null() && block.addr().is_multiple_of(align));
                let kept = bytes(block, pair[0].min(pair[1]));
                assert!(kept.iter().all(|&byte| byte == number), "{pair:?}");
            }
            // SAFETY: The last size.
            unsafe { Allocator.dealloc(block, layout(50)) };
            // SAFETY: The size is not 0.
            let zeros = unsafe { Allocator.alloc_zeroed(layout(LARGE)) };
            assert!(bytes(zeros, LARGE).iter().all(|&byte| byte == 0));
            // SAFETY: Its own layout.
            unsafe { Allocator.dealloc(zeros, layout(LARGE)) };
        }
    }
}
