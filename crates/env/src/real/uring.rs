//! The io_uring reactor: one ring for sockets and files.
//!
//! An operation lives in a slot of the slab from its submission to its completion, together with
//! all memory the kernel may touch and the descriptor it works on. A future dropped early leaves
//! its slot as an orphan: the operation is asked to cancel, and its memory is released when the
//! kernel says it is done. When the ring itself goes, everything is cancelled and awaited first;
//! what does not end in time is leaked, never freed under the kernel.
//!
//! Submissions gather in the ring and enter the kernel once a turn.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use super::file::Opened;
use super::socket::{self, RawAddr};
use super::uring_file::UringFile;
use super::uring_net::{self, UringListener, UringStream};
use super::vectored::Vectored;
use super::{Reactor, silence_bell};
use crate::{AlignedBuf, BlockFile, Listener, LocalFuture, Stream};

/// Submissions gathered before the kernel is entered early.
const SUBMISSIONS: u32 = 512;
/// Completions the ring holds; the kernel keeps further ones aside.
const COMPLETIONS: u32 = 8192;
/// How long the end of a runtime waits for operations in flight.
const DRAIN_MAX: Duration = Duration::from_secs(10);
/// `user_data` of the poll on the bell and of cancellations; others are slots.
const BELL: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;

/// The ring and the operations in flight.
pub(super) struct Uring {
    ring: RefCell<IoUring>,
    ops: RefCell<Ops>,
    bell: Arc<OwnedFd>,
    /// Scratch for completions taken out of the ring.
    completed: RefCell<Vec<(u64, i32)>>,
    closing: Cell<bool>,
}

/// Bound: one slot per operation in flight or with an unread result; recycled.
#[derive(Default)]
struct Ops {
    slots: Vec<Slot>,
    free: Vec<u32>,
    in_flight: usize,
}

enum Slot {
    Free,
    InFlight { waker: Option<Waker>, held: Held },
    Orphan { _held: Held },
    Done { result: i32, held: Held },
}

/// What must outlive an operation.
pub(super) struct Held {
    /// Kept open until completion, so that its number is not reused meanwhile.
    pub(super) _fd: Rc<dyn AsRawFd>,
    pub(super) memory: Memory,
}

/// Memory the kernel reads or writes; every variant's is on the heap, so that moving the value
/// does not move the memory.
pub(super) enum Memory {
    Nothing,
    /// The result is a new descriptor.
    Accept,
    Connect(Box<RawAddr>),
    Recv(BytesMut),
    Read(AlignedBuf),
    Vectored(Box<Vectored>),
}

impl Uring {
    pub(super) fn new(bell: Arc<OwnedFd>) -> io::Result<Rc<Uring>> {
        let ring = build(true).or_else(|_| build(false))?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let uring = Uring {
            ring: RefCell::new(ring),
            ops: RefCell::default(),
            bell,
            completed: RefCell::default(),
            closing: Cell::new(false),
        };
        uring.watch_bell();
        Ok(Rc::new(uring))
    }

    fn watch_bell(&self) {
        let poll = opcode::PollAdd::new(Fd(self.bell.as_raw_fd()), libc::POLLIN as u32);
        // SAFETY: the operation has no memory; its descriptor lives as long as the ring.
        unsafe { self.push(&poll.build().user_data(BELL)) };
    }

    /// # Safety
    /// What the entry points to is valid until its completion.
    unsafe fn push(&self, entry: &squeue::Entry) {
        // SAFETY: passed on to the caller.
        while unsafe { self.ring.borrow_mut().submission().push(entry) }.is_err() {
            self.enter(Some(Duration::ZERO)).expect("submitting to io_uring");
            self.reap();
        }
    }

    fn enter(&self, wait: Option<Duration>) -> io::Result<()> {
        if wait == Some(Duration::ZERO) {
            let mut ring = self.ring.borrow_mut();
            let submissions = ring.submission();
            if submissions.is_empty() && !submissions.taskrun() && !submissions.cq_overflow() {
                return Ok(());
            }
        }
        let ring = self.ring.borrow();
        let submitter = ring.submitter();
        let entered = match wait {
            Some(Duration::ZERO) => submitter.submit(),
            None => submitter.submit_and_wait(1),
            Some(wait) => {
                let timespec = Timespec::from(wait);
                submitter.submit_with_args(1, &SubmitArgs::new().timespec(&timespec))
            }
        };
        match entered.map_err(|error| (error.raw_os_error(), error)) {
            Ok(_) => Ok(()),
            // Time is up; interrupted; completions have to be taken first.
            Err((Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN), _)) => Ok(()),
            Err((_, error)) => Err(error),
        }
    }

    /// Takes the completions and wakes their tasks.
    fn reap(&self) {
        let mut completed = std::mem::take(&mut *self.completed.borrow_mut());
        completed.extend(
            self.ring
                .borrow_mut()
                .completion()
                .map(|entry: cqueue::Entry| (entry.user_data(), entry.result())),
        );
        for (user_data, result) in completed.drain(..) {
            match user_data {
                CANCEL => {}
                BELL if self.closing.get() => {}
                BELL => {
                    silence_bell(&self.bell);
                    self.watch_bell();
                }
                slot => self.complete(slot as usize, result),
            }
        }
        *self.completed.borrow_mut() = completed;
    }

    fn complete(&self, index: usize, result: i32) {
        let mut ops = self.ops.borrow_mut();
        ops.in_flight -= 1;
        match std::mem::replace(&mut ops.slots[index], Slot::Free) {
            Slot::InFlight { waker, held } => {
                ops.slots[index] = Slot::Done { result, held };
                drop(ops);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            Slot::Orphan { _held: held } => {
                ops.free.push(index as u32);
                drop(ops);
                release(result, held);
            }
            other => ops.slots[index] = other,
        }
    }

    /// Starts an operation; `build` makes its entry from the memory held for it.
    ///
    /// # Safety
    /// The entry points to nothing but the memory given to `build` and works on `held`'s
    /// descriptor.
    pub(super) unsafe fn start(
        self: &Rc<Self>,
        mut held: Held,
        build: impl FnOnce(&mut Memory) -> squeue::Entry,
    ) -> Op {
        let entry = build(&mut held.memory);
        let index = {
            let mut ops = self.ops.borrow_mut();
            ops.in_flight += 1;
            let slot = Slot::InFlight { waker: None, held };
            match ops.free.pop() {
                Some(index) => {
                    ops.slots[index as usize] = slot;
                    index
                }
                None => {
                    ops.slots.push(slot);
                    u32::try_from(ops.slots.len() - 1).expect("fewer than 2^32 operations")
                }
            }
        };
        // SAFETY: the slot owns the memory and lives until the completion (or is leaked).
        unsafe { self.push(&entry.user_data(u64::from(index))) };
        Op { uring: self.clone(), index: Some(index) }
    }
}

fn build(deferred: bool) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_clamp().setup_cqsize(COMPLETIONS);
    if deferred {
        // Completion work runs when this thread enters the kernel, not by interrupting it.
        builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
    }
    builder.build(SUBMISSIONS)
}

/// Drops what a finished operation held, and closes the connection nobody waits for any more.
fn release(result: i32, held: Held) {
    if matches!(held.memory, Memory::Accept) && result >= 0 {
        // SAFETY: accept gave us this new descriptor, and nobody else was told of it.
        drop(unsafe { OwnedFd::from_raw_fd(result) });
    }
    drop(held);
}

impl Drop for Uring {
    fn drop(&mut self) {
        self.closing.set(true);
        let deadline = Instant::now() + DRAIN_MAX;
        let cancel = opcode::AsyncCancel2::new(CancelBuilder::any()).build().user_data(CANCEL);
        // SAFETY: cancellation has no memory.
        unsafe { self.push(&cancel) };
        while self.ops.get_mut().in_flight > 0 && Instant::now() < deadline {
            if self.enter(Some(Duration::from_millis(100))).is_err() {
                break;
            }
            self.reap();
        }
        let ops = std::mem::take(self.ops.get_mut());
        if ops.in_flight > 0 {
            std::mem::forget(ops);
        }
    }
}

/// An operation in flight: its result as the kernel gave it, and the memory back.
pub(super) struct Op {
    uring: Rc<Uring>,
    /// `None` once completed.
    index: Option<u32>,
}

impl Future for Op {
    type Output = (i32, Memory);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let index = self.index.expect("not polled after completion");
        let uring = self.uring.clone();
        let mut ops = uring.ops.borrow_mut();
        let slot = &mut ops.slots[index as usize];
        if let Slot::InFlight { waker, .. } = slot {
            match waker {
                Some(waker) => waker.clone_from(cx.waker()),
                None => *waker = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        let Slot::Done { result, held } = std::mem::replace(slot, Slot::Free) else {
            unreachable!("only a dropped operation's slot is an orphan or free");
        };
        ops.free.push(index);
        drop(ops);
        self.index = None;
        Poll::Ready((result, held.memory))
    }
}

impl Drop for Op {
    fn drop(&mut self) {
        let Some(index) = self.index else { return };
        let mut ops = self.uring.ops.borrow_mut();
        match std::mem::replace(&mut ops.slots[index as usize], Slot::Free) {
            Slot::InFlight { waker, held } => {
                ops.slots[index as usize] = Slot::Orphan { _held: held };
                drop(ops);
                drop(waker);
                let cancel = opcode::AsyncCancel::new(u64::from(index)).build();
                // SAFETY: cancellation has no memory.
                unsafe { self.uring.push(&cancel.user_data(CANCEL)) };
            }
            Slot::Done { result, held } => {
                ops.free.push(index);
                drop(ops);
                release(result, held);
            }
            other => ops.slots[index as usize] = other,
        }
    }
}

/// The kernel's answer as a result.
pub(super) fn outcome(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

impl Reactor for Uring {
    fn turn(&self, wait: Option<Duration>) -> io::Result<()> {
        self.enter(wait)?;
        self.reap();
        Ok(())
    }

    fn socket_flags(&self) -> libc::c_int {
        0
    }

    fn listener(self: Rc<Self>, fd: OwnedFd) -> io::Result<Rc<dyn Listener>> {
        Ok(Rc::new(UringListener::new(self, fd)))
    }

    fn stream(self: Rc<Self>, fd: OwnedFd) -> io::Result<Rc<dyn Stream>> {
        Ok(UringStream::connected(self, Rc::new(fd)))
    }

    fn connect(self: Rc<Self>, addr: RawAddr) -> LocalFuture<io::Result<Rc<dyn Stream>>> {
        match socket::stream(addr.family(), 0) {
            Ok(fd) => Box::pin(uring_net::connect(self, fd, addr)),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn block_file(self: Rc<Self>, file: Opened) -> Rc<dyn BlockFile> {
        Rc::new(UringFile::new(self, file))
    }

    fn readable(self: Rc<Self>, fd: Rc<dyn AsRawFd>) -> LocalFuture<io::Result<()>> {
        let poll = opcode::PollAdd::new(Fd(fd.as_raw_fd()), libc::POLLIN as u32).build();
        let held = Held { _fd: fd, memory: Memory::Nothing };
        // SAFETY: no memory is given to the kernel; the descriptor is held.
        let op = unsafe { self.start(held, |_| poll) };
        Box::pin(async move { outcome(op.await.0).map(drop) })
    }
}
