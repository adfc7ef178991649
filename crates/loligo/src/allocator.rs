//! The allocator of the binary: mimalloc, asked in the way that suits it.
//!
//! The crate `mimalloc` asks for an alignment each time. For one that every block has, mimalloc
//! notices that as long as the page at hand has a free block; else it takes a larger block and
//! marks its page as one whose blocks may begin inside, which makes freeing them slower. Asked
//! without an alignment it does neither.
//!
//! A daemon's thread keeps blocks that it frees, and takes the last one first: of the fifty
//! allocations of a write nearly all are free again before the next, and the processor's caches
//! still hold them. mimalloc takes the blocks of a page of 64 KiB in turn, each of which has left
//! the caches by then.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
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

/// Up to so many bytes each whole number of words is a size of its own.
const EXACT_MAX: usize = 1024;
/// Above, sizes are multiples of this...
const STEP: usize = 512;
/// ... up to a block of data and what comes with it, encoded. Longer ones are not kept.
const STEPS_MAX: usize = 8192;
const EXACT: usize = EXACT_MAX / OF_ALL;
const SIZES: usize = EXACT + (STEPS_MAX - EXACT_MAX) / STEP;
/// As many blocks are kept as the writes need that are in flight together: of each size so many bytes,
/// and at least so many blocks. 10 MiB together at most.
const KEPT_BYTES: usize = 32 << 10;
const KEPT_BLOCKS: usize = 64;

/// Which of the sizes a block has that holds so many bytes; none: it is not kept.
#[inline]
fn size_for(bytes: usize) -> Option<usize> {
    match bytes {
        _ if bytes <= EXACT_MAX => Some(bytes.div_ceil(OF_ALL)),
        _ if bytes <= STEPS_MAX => Some(EXACT + (bytes - EXACT_MAX).div_ceil(STEP)),
        _ => None,
    }
}

/// The bytes that mimalloc is asked for, so that a block that was kept may serve all that have its size.
#[inline]
fn whole(bytes: usize) -> usize {
    match bytes {
        _ if bytes <= EXACT_MAX => bytes.next_multiple_of(OF_ALL),
        _ if bytes <= STEPS_MAX => bytes.next_multiple_of(STEP),
        _ => bytes,
    }
}

/// Bytes of a block of a size.
fn bytes_of(size: usize) -> usize {
    match size.checked_sub(EXACT) {
        None => size * OF_ALL,
        Some(steps) => EXACT_MAX + steps * STEP,
    }
}

/// How many blocks of a size are kept.
fn room_of(size: usize) -> usize {
    (KEPT_BYTES / bytes_of(size)).max(KEPT_BLOCKS)
}

/// Blocks of one size that the thread has freed. Each begins with the address of the next.
struct Kept {
    last: Cell<*mut u8>,
    /// How many more there may be: none, where [`keep_freed`] was not called.
    room: Cell<usize>,
}

thread_local! {
    /// By size. Nothing is to be done when the thread ends: only threads that last as long as the process
    /// keep anything.
    static KEPT: [Kept; SIZES + 1] = const {
        [const { Kept { last: Cell::new(std::ptr::null_mut()), room: Cell::new(0) } }; SIZES + 1]
    };
}

/// Lets this thread, which must last as long as the process, keep blocks that it frees.
pub(crate) fn keep_freed() {
    KEPT.with(|kept| {
        for (size, of_size) in kept.iter().enumerate().skip(1) {
            of_size.room.set(room_of(size));
        }
    });
}

/// A block that was kept, for so many bytes aligned to a word; null if there is none.
#[inline]
fn take(bytes: usize) -> *mut u8 {
    let Some(size) = size_for(bytes) else { return std::ptr::null_mut() };
    KEPT.with(|kept| {
        let of_size = &kept[size];
        let block = of_size.last.get();
        if !block.is_null() {
            // SAFETY: a kept block begins with the next one's address, and nobody else has it.
            of_size.last.set(unsafe { block.cast::<*mut u8>().read() });
            of_size.room.set(of_size.room.get() + 1);
        }
        block
    })
}

/// Keeps a block that was asked for with so many bytes; whether there was room.
///
/// # Safety
/// The block is mimalloc's, and its owner gives it up.
#[inline]
unsafe fn keep(block: *mut u8, bytes: usize) -> bool {
    let Some(size) = size_for(bytes) else { return false };
    KEPT.with(|kept| {
        let of_size = &kept[size];
        let Some(room) = of_size.room.get().checked_sub(1) else { return false };
        // SAFETY: mimalloc was asked for all bytes of the size, a word at least.
        unsafe { block.cast::<*mut u8>().write(of_size.last.get()) };
        of_size.last.set(block);
        of_size.room.set(room);
        true
    })
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
    for size in 1..=SIZES {
        loop {
            let block = take(bytes_of(size));
            if block.is_null() {
                break;
            }
            // SAFETY: it was freed before.
            unsafe { mi_free(block.cast::<c_void>()) };
        }
    }
    // SAFETY: frees nothing that is in use; any thread may call it.
    unsafe { mi_collect(true) }
}

/// Gives the system what libraries in C and C++ have freed, RocksDB and LevelDB: the C library's allocator
/// keeps it, but for the end of its main arena. A store on BlueStore that had written omap held 340 MiB, of
/// which 75 were in use. It takes a lock of each arena in turn, for as long as giving it back takes.
pub(crate) fn collect_of_libraries() {
    // SAFETY: frees nothing that is in use; any thread may call it.
    unsafe { libc::malloc_trim(0) };
}

// SAFETY: mimalloc's blocks have at least the size asked for and are aligned to a word, or to what
// was asked; each is freed or resized through the same library, which knows a block's kind, or, if
// aligned to a word, given out again for what its size holds.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: both take any size; the alignment is a power of two.
        unsafe {
            match layout.align() {
                ..=OF_ALL => match take(layout.size()) {
                    block if block.is_null() => mi_malloc(whole(layout.size())).cast(),
                    block => block,
                },
                align => mi_malloc_aligned(layout.size(), align).cast(),
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        unsafe {
            match layout.align() {
                ..=OF_ALL => match take(layout.size()) {
                    block if block.is_null() => mi_zalloc(whole(layout.size())).cast(),
                    block => {
                        block.write_bytes(0, layout.size());
                        block
                    }
                },
                align => mi_zalloc_aligned(layout.size(), align).cast(),
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block is one of ours, by the caller's promise.
        unsafe {
            if layout.align() > OF_ALL || !keep(block, layout.size()) {
                mi_free(block.cast::<c_void>());
            }
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as in `dealloc` and `alloc`; both blocks have the bytes that are copied, and are not the same.
        unsafe {
            match layout.align() {
                // What grows from nothing, as most that is encoded does: each size from what is kept.
                ..=OF_ALL if layout.size() <= STEPS_MAX => {
                    if size_for(layout.size()) == size_for(size) {
                        return block;
                    }
                    let to = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
                    if !to.is_null() {
                        to.copy_from_nonoverlapping(block, layout.size().min(size));
                        self.dealloc(block, layout);
                    }
                    to
                }
                ..=OF_ALL => mi_realloc(block.cast::<c_void>(), whole(size)).cast(),
                align => mi_realloc_aligned(block.cast::<c_void>(), size, align).cast(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libraries_free_goes_back() {
        const CHUNK: usize = 32 << 10;
        // SAFETY: each is written within its length, and freed once.
        unsafe {
            let chunks: Vec<*mut c_void> = (0..4096).map(|_| libc::malloc(CHUNK)).collect();
            chunks.iter().for_each(|chunk| chunk.cast::<u8>().write_bytes(1, CHUNK));
            // One in 64 stays, so that no arena has a free end.
            let (stay, go): (Vec<_>, Vec<_>) =
                chunks.into_iter().enumerate().partition(|(n, _)| n % 64 == 63);
            go.into_iter().for_each(|(_, chunk)| libc::free(chunk));
            let before = crate::memory::resident();
            collect_of_libraries();
            let after = crate::memory::resident();
            assert!(after + (64 << 20) < before, "{before} {after}");
            stay.into_iter().for_each(|(_, chunk)| libc::free(chunk));
        }
    }

    #[test]
    fn the_last_freed_block_is_the_next() {
        std::thread::spawn(|| {
            let layout = |size| Layout::from_size_align(size, 8).unwrap();
            let alloc = |size| {
                // SAFETY: the size is not 0.
                let block = unsafe { Allocator.alloc(layout(size)) };
                assert!(!block.is_null());
                // SAFETY: it has so many bytes.
                unsafe { block.write_bytes(0xab, size) };
                block
            };
            // SAFETY: each is freed once, with the layout it was asked for.
            let free = |block, size| unsafe { Allocator.dealloc(block, layout(size)) };
            let of_size = |bytes| size_for(bytes).unwrap();
            let kept = |bytes: usize| KEPT.with(|k| !k[of_size(bytes)].last.get().is_null());
            // Threads do not keep anything unless they are told to.
            free(alloc(40), 40);
            assert!(!kept(40));
            keep_freed();
            let (a, b) = (alloc(33), alloc(40));
            free(a, 33);
            free(b, 40);
            assert_eq!([alloc(37), alloc(40)], [b, a]);
            free(a, 40);
            // SAFETY: the size is not 0; the block has so many bytes.
            let zeros = unsafe {
                let block = Allocator.alloc_zeroed(layout(40));
                assert_eq!(block, a);
                std::slice::from_raw_parts(block, 40).iter().all(|byte| *byte == 0)
            };
            assert!(zeros);
            free(a, 40);
            free(b, 37);
            // Each size is bounded; long blocks are not kept.
            for size in [8, 1000, 8192] {
                let many: Vec<*mut u8> = (0..5000).map(|_| alloc(size)).collect();
                many.into_iter().for_each(|block| free(block, size));
                let room = KEPT.with(|k| k[of_size(size)].room.get());
                assert!(kept(size) && room == 0);
                let blocks = room_of(of_size(size));
                assert!(blocks >= KEPT_BLOCKS && bytes_of(of_size(size)) >= size);
            }
            free(alloc(8193), 8193);
            // What grows keeps its bytes and takes a kept block, and its own is kept; within its
            // words it stays.
            free(alloc(800), 800);
            let block = alloc(33);
            // SAFETY: the block is ours, of so many bytes.
            let grow = |block, from, to| unsafe { Allocator.realloc(block, layout(from), to) };
            assert_eq!(grow(block, 33, 40), block);
            let last = |bytes: usize| KEPT.with(|k| k[of_size(bytes)].last.get());
            let next = last(800);
            let grown = grow(block, 40, 800);
            assert_eq!([grown, last(40)], [next, block]);
            // SAFETY: it has more bytes.
            let bytes = unsafe { std::slice::from_raw_parts(grown, 33) };
            assert!(bytes.iter().all(|byte| *byte == 0xab));
            // Longer than what is kept, and back.
            let long = grow(grown, 800, 15000);
            let short = grow(long, 15000, 33);
            // SAFETY: as above.
            let bytes = unsafe { std::slice::from_raw_parts(short, 33) };
            assert!(bytes.iter().all(|byte| *byte == 0xab));
            free(short, 33);
            collect();
            assert!((1..=STEPS_MAX).all(|bytes| !kept(bytes)));
            let room = KEPT.with(|k| k[of_size(40)].room.get());
            assert_eq!(room, KEPT_BYTES / 40);
            let all: usize = (1..=SIZES).map(|size| bytes_of(size) * room_of(size)).sum();
            assert!(all <= 10 << 20, "{all}");
            assert!((1..=STEPS_MAX).all(|bytes| bytes_of(of_size(bytes)) == whole(bytes)));
        })
        .join()
        .unwrap();
    }
}
