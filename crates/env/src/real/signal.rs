//! Polite ends: SIGTERM and SIGINT as a future.
//!
//! The handler may do next to nothing, so it writes to a pipe on which a thread of its own
//! waits; that thread wakes the waiting tasks.

use std::io::Read;
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::task::{Poll, Waker};

use crate::LocalFuture;

static ASKED: AtomicBool = AtomicBool::new(false);
static BELL: AtomicI32 = AtomicI32::new(-1);
/// Bound: one entry per task that awaits the end.
static WAITING: Mutex<Vec<Waker>> = Mutex::new(Vec::new());
static INSTALL: Once = Once::new();

/// Completes once SIGTERM or SIGINT has come.
pub(super) fn termination() -> LocalFuture<()> {
    INSTALL.call_once(install);
    Box::pin(std::future::poll_fn(|cx| {
        let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
        if ASKED.load(Ordering::SeqCst) {
            return Poll::Ready(());
        }
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }))
}

fn install() {
    let Ok((mut reader, writer)) = std::io::pipe() else {
        tracing::error!("no pipe for signals: SIGTERM will end the process at once");
        return;
    };
    BELL.store(writer.into_raw_fd(), Ordering::SeqCst);
    std::thread::spawn(move || {
        // A byte comes per signal; the write end stays open for the life of the process.
        while reader.read(&mut [0]).is_ok_and(|read| read > 0) {
            ASKED.store(true, Ordering::SeqCst);
            let waiting =
                std::mem::take(&mut *WAITING.lock().unwrap_or_else(PoisonError::into_inner));
            waiting.into_iter().for_each(Waker::wake);
        }
    });
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: a zeroed sigaction is valid (no flags, empty mask); the handler only calls
        // write(2), which is async-signal-safe.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

extern "C" fn on_signal(_signal: libc::c_int) {
    // SAFETY: one valid byte is written to a pipe that is never closed. errno is put back, as the
    // interrupted code may be about to read it.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        libc::write(BELL.load(Ordering::SeqCst), [0u8].as_ptr().cast(), 1);
        *errno = before;
    }
}
