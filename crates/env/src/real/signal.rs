//! Polite ends: SIGTERM and SIGINT as a future; and what SIGHUP asks for.
//!
//! The handler may do next to nothing, so it writes to a pipe on which a thread of its own
//! waits; that thread wakes the waiting tasks, or does what SIGHUP asks for.

use std::io::Read;
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, Once, OnceLock, PoisonError};
use std::task::{Poll, Waker};

use crate::LocalFuture;

static ASKED: AtomicBool = AtomicBool::new(false);
static BELL: AtomicI32 = AtomicI32::new(-1);
/// Bound: one entry per task that awaits the end.
static WAITING: Mutex<Vec<Waker>> = Mutex::new(Vec::new());
static ENDS: Once = Once::new();
static LISTENING: Once = Once::new();
static ON_HANGUP: OnceLock<fn()> = OnceLock::new();

/// Completes once SIGTERM or SIGINT has come.
pub(super) fn termination() -> LocalFuture<()> {
    ENDS.call_once(|| catch(&[libc::SIGTERM, libc::SIGINT]));
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

/// From now on SIGHUP, which ends a process otherwise, has `act` called on a thread of its own. The first call counts.
pub fn on_hangup(act: fn()) {
    if ON_HANGUP.set(act).is_ok() {
        catch(&[libc::SIGHUP]);
    }
}

/// Has these signals ring the bell.
fn catch(signals: &[libc::c_int]) {
    LISTENING.call_once(listen);
    if BELL.load(Ordering::SeqCst) < 0 {
        return;
    }
    for signal in signals {
        // SAFETY: a zeroed sigaction is valid (no flags, empty mask); the handler only calls
        // write(2), which is async-signal-safe.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(*signal, &action, std::ptr::null_mut());
        }
    }
}

fn listen() {
    let Ok((mut reader, writer)) = std::io::pipe() else {
        tracing::error!("no pipe for signals: they will end the process at once");
        return;
    };
    BELL.store(writer.into_raw_fd(), Ordering::SeqCst);
    std::thread::spawn(move || {
        let mut signal = [0];
        // A byte comes per signal, its number; the write end stays open for the life of the process.
        while reader.read(&mut signal).is_ok_and(|read| read > 0) {
            if libc::c_int::from(signal[0]) == libc::SIGHUP {
                if let Some(act) = ON_HANGUP.get() {
                    act();
                }
                continue;
            }
            ASKED.store(true, Ordering::SeqCst);
            let waiting =
                std::mem::take(&mut *WAITING.lock().unwrap_or_else(PoisonError::into_inner));
            waiting.into_iter().for_each(Waker::wake);
        }
    });
}

extern "C" fn on_signal(signal: libc::c_int) {
    // SAFETY: one valid byte is written to a pipe that is never closed. errno is put back, as the
    // interrupted code may be about to read it.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        libc::write(BELL.load(Ordering::SeqCst), [signal as u8].as_ptr().cast(), 1);
        *errno = before;
    }
}
