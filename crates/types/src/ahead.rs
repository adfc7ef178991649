//! Memory asked for before it is needed.

/// What memory is fetched by.
const LINE: usize = 64;

/// Has the processor fetch what will be read soon, without waiting for it: who goes through a list of
/// things that lie anywhere waits for a few at once instead of for each in turn. Says nothing of what is
/// behind pointers in it. Nothing happens on processors without such an instruction.
#[inline]
pub fn fetch<T: ?Sized>(of: &T) {
    let start = std::ptr::from_ref(of).cast::<u8>();
    for at in (0..size_of_val(of)).step_by(LINE) {
        fetch_line(start.wrapping_add(at));
    }
}

/// The line in which an address lies, which may be none of ours.
#[inline]
pub(crate) fn fetch_line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 processor has it, and it reads nothing that the program could see.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
