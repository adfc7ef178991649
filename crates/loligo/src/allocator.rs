//! The allocator of the binary: mimalloc, asked in the way that suits it.
//!
//! The crate `mimalloc` asks for an alignment each time. For one that every block has, mimalloc
//! notices that as long as the page at hand has a free block; else it takes a larger block and
//! marks its page as one whose blocks may begin inside, which makes freeing them slower. Asked
//! without an alignment it does neither.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;

use libmimalloc_sys::{
    mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc,
    mi_zalloc_aligned,
};

/// The alignment of all blocks, in bytes: the size of a word, the smallest block.
const OF_ALL: usize = size_of::<usize>();

unsafe extern "C" {
    /// `mimalloc.h`; the crate has it under a feature, with all the rest.
    fn mi_collect(force: bool);
}

/// mimalloc.
pub(crate) struct Allocator;

/// Gives the system what this thread has freed.
///
/// mimalloc looks for that as it allocates, every 10,000 times that it has to look further than a
/// free list: a daemon that has stopped working keeps what it needed. This looks at each page of 64
/// KiB that has blocks in use too, which takes time in a store with a large index (some 20 ms for
/// 10 TB): nothing for a busy daemon.
pub(crate) fn collect() {
    // SAFETY: frees nothing that is in use; any thread may call it.
    unsafe { mi_collect(true) }
}

// SAFETY: mimalloc's blocks have at least the size asked for and are aligned to a word, or to what
// was asked; each is freed or resized through the same library, which knows a block's kind.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: both take any size; the alignment is a power of two.
        unsafe {
            match layout.align() {
                ..=OF_ALL => mi_malloc(layout.size()).cast(),
                align => mi_malloc_aligned(layout.size(), align).cast(),
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        unsafe {
            match layout.align() {
                ..=OF_ALL => mi_zalloc(layout.size()).cast(),
                align => mi_zalloc_aligned(layout.size(), align).cast(),
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the block is one of ours, by the caller's promise.
        unsafe { mi_free(block.cast::<c_void>()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as in `dealloc` and `alloc`.
        unsafe {
            match layout.align() {
                ..=OF_ALL => mi_realloc(block.cast::<c_void>(), size).cast(),
                align => mi_realloc_aligned(block.cast::<c_void>(), size, align).cast(),
            }
        }
    }
}
