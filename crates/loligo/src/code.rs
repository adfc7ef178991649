//! Pages of the binary and of the libraries that it is linked with.
//!
//! A daemon's start touches much that is never used again: the linker's tables, clap, what opens a
//! store, the libraries of stores that it does not have (RocksDB's alone are 6 MiB). The kernel
//! counts such a page as the process's until memory is short, and it maps 64 KiB around each one
//! that is touched. Given up, a page is still in the page cache, and there again when it is used.

use std::ffi::{c_int, c_void};

/// Gives up all pages that are as they are in their files.
///
/// Costs about 20 µs, and later a fault, which reads nothing, for each 64 KiB that are in use.
pub(crate) fn give_up() {
    // SAFETY: `of_object` is called during this call only, with what it asks for.
    unsafe {
        libc::dl_iterate_phdr(Some(of_object), std::ptr::null_mut());
    }
}

/// The pages of the binary or of one library.
///
/// # Safety
/// `info` describes an object that is mapped.
unsafe extern "C" fn of_object(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: by the caller's promise, for the length of this call.
    let (info, segments) = unsafe {
        let info = &*info;
        (info, std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()))
    };
    // What the linker fills in, data that is only read afterwards too, lies in segments that may be
    // written; the rest nobody changes (but a debugger, whose breakpoints go).
    // SAFETY: the call takes and gives numbers only.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.cast_unsigned();
    for segment in
        segments.iter().filter(|s| s.p_type == libc::PT_LOAD && s.p_flags & libc::PF_W == 0)
    {
        let start = info.dlpi_addr + segment.p_vaddr;
        let end = (start + segment.p_memsz) / page * page;
        let start = start.next_multiple_of(page);
        if start < end {
            // SAFETY: whole pages of a private mapping of a file that were never written, so that
            // they read the same when they come back. A refusal costs memory, nothing else.
            unsafe {
                libc::madvise(start as *mut c_void, (end - start) as usize, libc::MADV_DONTNEED);
            }
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Of an OSD's 84 MiB 27 were pages of files, half of which nothing had used since it started.
    #[test]
    fn what_is_not_used_goes_and_comes_back() {
        let before = resident();
        give_up();
        let after = resident();
        assert!(after < before / 2, "{before} KiB, then {after}");
        // Constants, code that was run and code that was not, of ours and of libraries.
        assert_eq!(format!("{:?}", 0.1_f64.sin()), "0.09983341664682815");
        assert_eq!("x".parse::<u64>().unwrap_err().to_string(), "invalid digit found in string");
        assert!(std::panic::catch_unwind(|| panic!("unwinds")).is_err());
    }
}
