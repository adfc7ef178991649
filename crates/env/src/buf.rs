//! Buffers for direct I/O: aligned to 4 KiB, always initialised, recycled.
//!
//! Each thread keeps a free list per size: powers of two from 4 KiB to 1 MiB, then steps of 256 KiB
//! to 8 MiB, at most [`POOL_BYTES_MAX`] together; larger buffers go straight back to the allocator.
//! What has lain unused for a while goes back too ([`trim`]): memory that is new costs a page fault
//! and a page of zeros for each 4 KiB, so a stream of long messages reuses it, and an idle daemon
//! does not keep it. A buffer may be dropped on another thread than it was taken from: it then
//! joins that thread's list.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use bytes::Bytes;

/// Bytes a thread keeps for reuse: sixteen messages of 4 MiB, as many as clients usually have in
/// flight.
const POOL_BYTES_MAX: usize = 72 << 20;
/// The largest size that is a power of two.
const POWERS_SHIFT_MAX: u32 = 20;
/// Sizes above are multiples of this power of two.
const STEP_SHIFT: u32 = 18;
/// The largest buffer kept.
const POOLED_MAX: usize = 8 << 20;
const ALIGN_SHIFT: u32 = 12;
/// Lists for powers of two, and for steps above them.
const POWERS: usize = (POWERS_SHIFT_MAX - ALIGN_SHIFT + 1) as usize;
const STEPS: usize = (POOLED_MAX >> STEP_SHIFT) - (1 << (POWERS_SHIFT_MAX - STEP_SHIFT));

/// A block of memory aligned to 4 KiB.
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    len: usize,
    /// Allocated bytes: a multiple of 4 KiB, at least `len`, not 0.
    capacity: usize,
}

// SAFETY: the buffer owns its memory alone; nothing in it is tied to a thread.
unsafe impl Send for AlignedBuf {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// Alignment of every buffer in bytes.
    pub const ALIGN: usize = 1 << ALIGN_SHIFT;

    /// A buffer of `len` arbitrary (but initialised) bytes, to be overwritten.
    pub fn scratch(len: usize) -> AlignedBuf {
        let capacity = capacity_for(len);
        let ptr = POOL
            .try_with(|pool| pool.borrow_mut().take(capacity))
            .ok()
            .flatten()
            .unwrap_or_else(|| allocate(capacity));
        AlignedBuf { ptr, len, capacity }
    }

    /// A buffer of `len` zeros.
    pub fn zeroed(len: usize) -> AlignedBuf {
        let mut buf = AlignedBuf::scratch(len);
        buf.fill(0);
        buf
    }

    /// A copy of `data`.
    pub fn copy_from_slice(data: &[u8]) -> AlignedBuf {
        let mut buf = AlignedBuf::scratch(data.len());
        buf.copy_from_slice_at(0, data);
        buf
    }

    /// Pieces joined, of which the first begins at `lead` of a page.
    pub fn join(lead: usize, pieces: &[Bytes]) -> Bytes {
        let lead = lead % AlignedBuf::ALIGN;
        let len = lead + pieces.iter().map(Bytes::len).sum::<usize>();
        let mut buf = AlignedBuf::scratch(len);
        let mut at = lead;
        for piece in pieces {
            buf.copy_from_slice_at(at, piece);
            at += piece.len();
        }
        buf.freeze().slice(lead..)
    }

    /// Copies `data` to `offset`; panics if it does not fit, as slices do.
    pub fn copy_from_slice_at(&mut self, offset: usize, data: &[u8]) {
        self[offset..offset + data.len()].copy_from_slice(data);
    }

    /// Shortens the buffer to `len` bytes; no effect if it is not longer.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Turns the buffer into shared bytes without a copy.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl From<AlignedBuf> for Bytes {
    fn from(buf: AlignedBuf) -> Bytes {
        buf.freeze()
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `ptr` is valid for `capacity >= len` bytes, which were zeroed when allocated and
        // only ever overwritten since; `self` owns them.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` excludes every other access.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        let kept = POOL.try_with(|pool| pool.borrow_mut().put(self.ptr, self.capacity));
        if kept != Ok(true) {
            release(self.ptr, self.capacity);
        }
    }
}

impl core::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

/// Free buffers of one thread.
struct Pool {
    lists: [List; POWERS + STEPS],
    bytes: usize,
}

/// Free buffers of one size.
struct List {
    free: Vec<NonNull<u8>>,
    /// How many have not been taken since the last [`trim`].
    unused: usize,
}

thread_local! {
    static POOL: RefCell<Pool> = const {
        RefCell::new(Pool {
            lists: [const { List { free: Vec::new(), unused: 0 } }; POWERS + STEPS],
            bytes: 0,
        })
    };
}

impl Pool {
    fn take(&mut self, capacity: usize) -> Option<NonNull<u8>> {
        let list = &mut self.lists[list_of(capacity)?];
        let ptr = list.free.pop()?;
        list.unused = list.unused.min(list.free.len());
        self.bytes -= capacity;
        Some(ptr)
    }

    fn put(&mut self, ptr: NonNull<u8>, capacity: usize) -> bool {
        if self.bytes + capacity > POOL_BYTES_MAX {
            return false;
        }
        let Some(list) = list_of(capacity) else { return false };
        self.lists[list].free.push(ptr);
        self.bytes += capacity;
        true
    }

    /// Gives back what has not been taken since the last call.
    fn trim(&mut self) {
        for (index, list) in self.lists.iter_mut().enumerate() {
            // The last in is the first out: those at the front have lain longest.
            for ptr in list.free.drain(..list.unused) {
                self.bytes -= capacity_of(index);
                release(ptr, capacity_of(index));
            }
            list.unused = list.free.len();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Once to count all as unused, once to let them go.
        self.trim();
        self.trim();
    }
}

/// Gives buffers of this thread that nobody has needed since the last call back to the allocator.
pub(crate) fn trim() {
    let _ = POOL.try_with(|pool| pool.borrow_mut().trim());
}

impl AlignedBuf {
    /// Gives all buffers of this thread that are free back to the allocator, as a daemon does when its work
    /// has ended.
    pub fn give_back_free() {
        // Once to count all as unused, once to let them go.
        trim();
        trim();
    }
}

/// The list of buffers with this capacity.
fn list_of(capacity: usize) -> Option<usize> {
    if capacity <= 1 << POWERS_SHIFT_MAX {
        return Some((capacity.trailing_zeros() - ALIGN_SHIFT) as usize);
    }
    (capacity <= POOLED_MAX)
        .then(|| POWERS - 1 + (capacity >> STEP_SHIFT) - (1 << (POWERS_SHIFT_MAX - STEP_SHIFT)))
}

/// The capacity of a list's buffers.
fn capacity_of(list: usize) -> usize {
    match list.checked_sub(POWERS) {
        None => 1 << (ALIGN_SHIFT as usize + list),
        Some(step) => (1 << POWERS_SHIFT_MAX) + ((step + 1) << STEP_SHIFT),
    }
}

fn capacity_for(len: usize) -> usize {
    let len = len.max(1);
    if len <= 1 << POWERS_SHIFT_MAX {
        len.next_power_of_two().max(AlignedBuf::ALIGN)
    } else if len <= POOLED_MAX {
        len.next_multiple_of(1 << STEP_SHIFT)
    } else {
        len.next_multiple_of(AlignedBuf::ALIGN)
    }
}

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, AlignedBuf::ALIGN).expect("buffer length fits an isize")
}

fn allocate(capacity: usize) -> NonNull<u8> {
    let layout = layout(capacity);
    // SAFETY: the size is not 0 (`capacity_for`).
    let ptr = unsafe { alloc_zeroed(layout) };
    NonNull::new(ptr).unwrap_or_else(|| handle_alloc_error(layout))
}

fn release(ptr: NonNull<u8>, capacity: usize) {
    // SAFETY: `ptr` came from `allocate(capacity)` and its only owner gives it up.
    unsafe { dealloc(ptr.as_ptr(), layout(capacity)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_keep_their_length() {
        for len in
            [0, 1, 511, 4096, 4097, 65536, 1 << 20, (1 << 20) + 1, (4 << 20) + 14, 8 << 20, 9 << 20]
        {
            let buf = AlignedBuf::zeroed(len);
            assert_eq!(buf.len(), len);
            assert_eq!(buf.as_ptr() as usize % AlignedBuf::ALIGN, 0);
            assert!(buf.iter().all(|b| *b == 0));
        }
    }

    #[test]
    fn pieces_are_joined_where_they_are_to_lie() {
        let pieces = [&[1; 14][..], &[2; 4096], &[3; 300]].map(Bytes::copy_from_slice);
        let joined = AlignedBuf::join(4096 - 14, &pieces);
        assert_eq!(joined, pieces.concat());
        assert_eq!(joined[14..].as_ptr() as usize % AlignedBuf::ALIGN, 0);
        assert_eq!(AlignedBuf::join(5, &[]).len(), 0);
    }

    #[test]
    fn freezing_does_not_copy_and_dropping_recycles() {
        let mut buf = AlignedBuf::copy_from_slice(&[7; 5000]);
        buf.truncate(4096);
        let at = buf.as_ptr();
        let bytes = buf.freeze();
        assert_eq!((bytes.as_ptr(), bytes.len()), (at, 4096));
        drop(bytes);
        let again = AlignedBuf::scratch(8000);
        assert_eq!(again.as_ptr(), at);
        assert!(AlignedBuf::zeroed(8192).iter().all(|b| *b == 0));
    }

    #[test]
    fn the_pool_is_bounded() {
        for len in [1 << 20, 4 << 20, 9 << 20] {
            let many: Vec<_> = (0..100).map(|_| AlignedBuf::scratch(len)).collect();
            drop(many);
            POOL.with(|pool| assert!(pool.borrow().bytes <= POOL_BYTES_MAX));
        }
    }

    #[test]
    fn sizes_and_lists_agree() {
        for list in 0..POWERS + STEPS {
            let capacity = capacity_of(list);
            assert_eq!(list_of(capacity), Some(list));
            assert_eq!(capacity_for(capacity), capacity);
            assert_eq!(capacity_for(capacity - 1), capacity);
        }
        assert_eq!(capacity_of(POWERS + STEPS - 1), POOLED_MAX);
        assert_eq!(list_of(capacity_for(POOLED_MAX + 1)), None);
    }

    #[test]
    fn what_nobody_needs_goes_back() {
        let pooled = || POOL.with(|pool| pool.borrow().bytes);
        let many: Vec<_> = (0..4).map(|_| AlignedBuf::scratch(4 << 20)).collect();
        drop(many);
        trim();
        assert_eq!(pooled(), 16 << 20, "used since the last time");
        // Two of them at a time are needed.
        drop([AlignedBuf::scratch(4 << 20), AlignedBuf::scratch(4 << 20)]);
        trim();
        assert_eq!(pooled(), 8 << 20);
        trim();
        assert_eq!(pooled(), 0);
        drop(AlignedBuf::scratch(4 << 20));
        AlignedBuf::give_back_free();
        assert_eq!(pooled(), 0, "at once");
    }

    #[test]
    fn a_buffer_may_die_on_another_thread() {
        let buf = AlignedBuf::copy_from_slice(&[9; 4096]).freeze();
        std::thread::spawn(move || assert_eq!(buf[17], 9)).join().unwrap();
    }
}
