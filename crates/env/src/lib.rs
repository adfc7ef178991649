//! The I/O seam: time, randomness, network, files, tasks.
//!
//! Production code gets an [`Env`] and does all of its I/O through it, on one thread, with
//! async/await. Two drivers stand behind it: [`real`] (one io_uring a thread for sockets and
//! files) and the `sim` crate (virtual clock, modelled network and disks, one seed).
//! I/O is by completion: a buffer is given away and comes back with the result. An operation
//! begins when its function is called (or, at the latest, when its future is first polled), so
//! await what you start. Dropping a future gives the operation up: a dropped `recv` may have
//! swallowed bytes and a dropped `send` may have sent a part, so such a stream is only good for
//! closing; a dropped `write_at` may or may not reach the file.

mod buf;
mod executor;
mod listeners;
mod mutants;
pub mod real;
pub mod sync;
mod timers;
pub mod within;
mod workers;

use std::any::Any;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

pub use buf::AlignedBuf;
pub use executor::{Executor, JoinHandle, running_owner};
pub use listeners::Listeners;
#[cfg(feature = "mutants")]
pub use mutants::choose_mutant;
pub use mutants::{MUTANTS, mutant};
pub use timers::Timers;
pub use workers::Workers;

/// A future of this thread. A daemon's start function returns one instead of being `async`, so that
/// all it runs is compiled in its own crate, not in each that starts it (`docs/dependencies.md`).
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// What a daemon's world consists of. One driver a thread (real) or a node (simulated).
pub trait Driver {
    /// Time since an arbitrary start; never goes back.
    fn now(&self) -> Duration;
    /// As `now`, without a look at the clock: when this turn of the driver began, or when somebody looked since.
    /// For what is told of the past (how long an op took), never for what must hold (deadlines, leases).
    fn recent(&self) -> Duration {
        self.now()
    }
    /// Time since 1970-01-01 UTC.
    fn wall_clock(&self) -> Duration;
    /// Fills `buf` with random bytes (secure ones when real, from the seed when simulated).
    fn fill_random(&self, buf: &mut [u8]);
    /// Runs a task on this thread until it ends, never before the caller yields. Tasks of a killed
    /// node, and those left when the runtime ends, are dropped.
    fn spawn(&self, task: LocalFuture<()>);
    /// Completes when `now()` has reached `deadline`.
    fn sleep_until(&self, deadline: Duration) -> LocalFuture<()>;
    /// Completes when the process is asked to end (SIGTERM or SIGINT when real). From the first
    /// call on those signals no longer end it by themselves.
    fn termination(&self) -> LocalFuture<()>;
    /// Listens on a TCP address; port 0 picks a free one.
    fn listen(&self, addr: SocketAddr) -> io::Result<Rc<dyn Listener>>;
    /// Connects to a TCP address.
    fn connect(&self, addr: SocketAddr) -> LocalFuture<io::Result<Rc<dyn Stream>>>;
    /// Listens on a unix socket, replacing a stale one.
    fn listen_unix(&self, path: &Path) -> io::Result<Rc<dyn Listener>>;
    /// Connects to a unix socket.
    fn connect_unix(&self, path: &Path) -> LocalFuture<io::Result<Rc<dyn Stream>>>;
    /// Opens a file or block device for direct I/O. A file opened for writing is locked: a second
    /// such open fails (`WouldBlock`).
    fn open_block(&self, path: &Path, options: OpenBlock) -> io::Result<Rc<dyn BlockFile>>;
    /// Opens a file or block device as [`Driver::open_block`] does, for threads that may block.
    fn open_shared_block(
        &self,
        _path: &Path,
        _options: OpenBlock,
    ) -> io::Result<Arc<dyn SharedBlockFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Completes when a descriptor that can be polled (another io_uring, say) has something to
    /// read; nothing is read. The descriptor is kept open meanwhile.
    fn readable(&self, _fd: Rc<dyn AsRawFd>) -> LocalFuture<io::Result<()>> {
        Box::pin(std::future::ready(Err(io::ErrorKind::Unsupported.into())))
    }
    /// Opens a file for small blocking I/O (a monitor's database), creating and locking it.
    fn open_sync(&self, path: &Path) -> io::Result<Box<dyn SyncFile>>;
    /// Threads for what blocks (when real); otherwise jobs run at once in this one.
    fn workers(&self, _name: &str, _count: usize) -> io::Result<Workers> {
        Ok(Workers::inline())
    }
}

/// How to open a block file.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenBlock {
    /// Create a regular file of this many bytes if there is none (an existing one is grown to it,
    /// never cut).
    pub create_len: Option<u64>,
    /// Refuse to write.
    pub read_only: bool,
}

/// A listening socket; it closes when the last reference goes.
pub trait Listener {
    /// The next connection.
    fn accept(&self) -> LocalFuture<io::Result<Rc<dyn Stream>>>;
    /// The address listened on (`None` for a unix socket).
    fn local_addr(&self) -> Option<SocketAddr>;
}

/// One end of a connected byte stream; it closes when the last reference goes. One `recv` and one
/// `send` may be in flight at a time.
pub trait Stream {
    /// Appends to `buf` what has come, as far as its spare capacity (which must not be empty)
    /// goes: at least one byte, or 0 when the peer has closed.
    fn recv(&self, buf: BytesMut) -> LocalFuture<(io::Result<usize>, BytesMut)>;
    /// Fills `range` of `buf`, which must not be empty, from its start on: at least one byte, or 0
    /// when the peer has closed. May wait until all of it has come.
    fn recv_into(
        &self,
        buf: AlignedBuf,
        range: Range<usize>,
    ) -> LocalFuture<(io::Result<usize>, AlignedBuf)>;
    /// Writes all of `bufs`, in order.
    fn send(&self, bufs: Vec<Bytes>) -> LocalFuture<io::Result<()>>;
    /// Shuts both directions down: pending calls end.
    fn close(&self);
    /// The other end (`None` for a unix socket).
    fn peer_addr(&self) -> Option<SocketAddr>;
    /// This end (`None` for a unix socket).
    fn local_addr(&self) -> Option<SocketAddr>;
    /// Has a peer that says nothing for so long be asked by the system whether it is there: of one that is not, the
    /// connection ends with an error. Nothing to do where no network lies between.
    fn keep_alive(&self, _idle: Duration) -> io::Result<()> {
        Ok(())
    }
    /// Where both ends are in one process: the way for values between them, beside that for bytes.
    fn passage(&self) -> Option<Rc<dyn Passage>> {
        None
    }
}

/// The way for values of a stream whose ends are in one process ([`within`]): in order, one at a time.
pub trait Passage {
    /// Hands a value over, once the one before has been received. An error if the stream is closed.
    fn hand(&self, value: Box<dyn Any + Send>) -> LocalFuture<io::Result<()>>;
    /// The next value; none when the stream is closed.
    fn receive(&self) -> LocalFuture<Option<Box<dyn Any + Send>>>;
}

/// A file or block device read and written in aligned blocks. Completed writes are durable only
/// after a later `sync` completes. Offsets, lengths and buffers are multiples of `block_len`.
#[expect(clippy::len_without_is_empty, reason = "a file of no bytes is nothing to ask about")]
pub trait BlockFile {
    /// Size in bytes.
    fn len(&self) -> u64;
    /// Smallest unit of direct I/O in bytes (512 or 4096).
    fn block_len(&self) -> u32;
    /// Reads `len` bytes.
    fn read_at(&self, offset: u64, len: usize) -> LocalFuture<io::Result<AlignedBuf>>;
    /// Writes the buffers one behind the other. Buffers that are not memory-aligned are copied.
    fn write_at(&self, offset: u64, bufs: Vec<Bytes>) -> LocalFuture<io::Result<()>> {
        self.write_until(Until::Written, offset, bufs)
    }
    /// The same; it completes when the bytes can be read, or when they are durable.
    fn write_until(
        &self,
        until: Until,
        offset: u64,
        bufs: Vec<Bytes>,
    ) -> LocalFuture<io::Result<()>>;
    /// Makes all completed writes durable (fdatasync).
    fn sync(&self) -> LocalFuture<io::Result<()>>;
    /// Gives the range's space back; it reads as anything afterwards. Best effort.
    fn discard(&self, offset: u64, len: u64) -> LocalFuture<io::Result<()>>;
}

/// When a write has completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// It can be read; a power loss may take it until the next sync.
    Written,
    /// It is durable, it alone: other writes still need a sync (RWF_DSYNC).
    Durable,
}

/// A [`BlockFile`] whose calls block and may come from any thread: for stores whose database has
/// threads of its own.
#[expect(clippy::len_without_is_empty, reason = "a file of no bytes is nothing to ask about")]
pub trait SharedBlockFile: Send + Sync {
    /// Size in bytes.
    fn len(&self) -> u64;
    /// Smallest unit of direct I/O in bytes (512 or 4096).
    fn block_len(&self) -> u32;
    /// Reads `len` bytes.
    fn read_at(&self, offset: u64, len: usize) -> io::Result<AlignedBuf>;
    /// Writes the buffers one behind the other. Buffers that are not memory-aligned are copied.
    fn write_at(&self, offset: u64, bufs: Vec<Bytes>) -> io::Result<()>;
    /// Makes all writes that have returned durable (fdatasync).
    fn sync(&self) -> io::Result<()>;
}

/// A small file with blocking I/O, for what is rare and small (the monitor's database).
#[expect(clippy::len_without_is_empty, reason = "asked in bytes, by a database")]
pub trait SyncFile: Send + Sync + core::fmt::Debug {
    /// Size in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Fills `buf` from `offset`; an error if the file ends before.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
    /// Writes all of `data`, growing the file if need be.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Cuts or grows (zeros) the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes all writes so far durable.
    fn sync(&self) -> io::Result<()>;
}

/// The handle daemons carry.
#[derive(Clone)]
pub struct Env(Rc<dyn Driver>);

impl std::ops::Deref for Env {
    type Target = dyn Driver;
    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl core::fmt::Debug for Env {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Env")
    }
}

/// The time given to [`Env::timeout`] has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed;

impl Env {
    /// Wraps a driver.
    pub fn new(driver: Rc<dyn Driver>) -> Env {
        Env(driver)
    }

    /// Runs a task; the handle awaits its value (dropping the handle does not stop the task).
    pub fn spawn_with_handle<T: 'static>(
        &self,
        task: impl Future<Output = T> + 'static,
    ) -> JoinHandle<T> {
        let (handle, task) = JoinHandle::pair(task);
        self.spawn(Box::pin(task));
        handle
    }

    /// Runs a task for its effects.
    pub fn go(&self, task: impl Future<Output = ()> + 'static) {
        self.spawn(Box::pin(task));
    }

    /// Completes after `time`.
    pub fn sleep(&self, time: Duration) -> LocalFuture<()> {
        self.sleep_until(self.now() + time)
    }

    /// `task`, unless `time` passes first.
    pub async fn timeout<T>(
        &self,
        time: Duration,
        task: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        let mut sleep = self.sleep(time);
        let mut task = std::pin::pin!(task);
        std::future::poll_fn(move |cx| match task.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Ok(value)),
            Poll::Pending => sleep.as_mut().poll(cx).map(|()| Err(Elapsed)),
        })
        .await
    }

    /// A random number.
    pub fn random_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill_random(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// Lets every other task that is ready run first.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}
