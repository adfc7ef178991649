//! The real driver: this machine's clock, sockets and files, one thread a [`Runtime`].
//!
//! Two reactors stand behind it: [`uring`] (one io_uring for sockets and files together) and
//! [`epoll`] (for machines that refuse io_uring, as Docker's seccomp filter does). The
//! environment variable `LOLIGO_IO=epoll` (or `uring`) decides; without it io_uring is taken where
//! it works.

mod epoll;
mod file;
mod file_pool;
mod shared_file;
mod signal;
mod socket;
mod sync_file;
mod twin;
mod uring;
mod uring_file;
mod uring_net;
mod vectored;

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::within::Within;
use crate::{
    BlockFile, Driver, Env, Executor, JoinHandle, Listener, Listeners, LocalFuture, OpenBlock,
    SharedBlockFile, Stream, SyncFile, Timers, Workers, buf,
};
pub use signal::on_hangup;
use socket::RawAddr;
use twin::{TwinListener, TwinStream};

/// Polls between two looks at the reactor.
const POLLS_PER_TURN: usize = 1024;
/// Between two looks at which buffers nobody needed.
const TRIM_INTERVAL: Duration = Duration::from_secs(2);

/// Which reactor does the I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reactors {
    /// io_uring (Linux 5.11 or later, not refused by a seccomp filter).
    Uring,
    /// epoll and four threads for files.
    Epoll,
}

/// What a reactor does for the driver.
trait Reactor {
    /// Starts what was asked for, waits for the first completion (at most `wait`, for ever
    /// without one) and wakes the tasks of all completions there are.
    fn turn(&self, wait: Option<Duration>) -> io::Result<()>;
    /// Flags for `socket(2)` that suit this reactor.
    fn socket_flags(&self) -> libc::c_int;
    fn listener(self: Rc<Self>, fd: OwnedFd) -> io::Result<Rc<dyn Listener>>;
    fn connect(self: Rc<Self>, addr: RawAddr) -> LocalFuture<io::Result<Rc<dyn Stream>>>;
    /// A stream of a socket that is connected.
    fn stream(self: Rc<Self>, fd: OwnedFd) -> io::Result<Rc<dyn Stream>>;
    fn block_file(self: Rc<Self>, file: file::Opened) -> Rc<dyn BlockFile>;
    fn readable(self: Rc<Self>, fd: Rc<dyn AsRawFd>) -> LocalFuture<io::Result<()>>;
}

/// The executor, clock and reactor of one thread.
pub struct Runtime(Rc<Thread>);

struct Thread {
    executor: Executor,
    timers: Rc<Timers>,
    reactor: Rc<dyn Reactor>,
    start: Instant,
    /// What the clock said last.
    recent: Cell<Duration>,
    has_twins: bool,
}

/// Who a thread's tasks are that are nobody's in particular.
const NOBODY: u32 = 0;

/// A thread's world as one of those who live in it sees it.
struct RealDriver {
    thread: Rc<Thread>,
    owner: u32,
    /// Where this daemon is found by others of the process, and finds them.
    within: Option<Within>,
}

/// Several daemons that share a thread: each has tasks of its own, which can be ended without the
/// others', and what one says to another, or to those of other threads that share a [`Within`], takes no socket
/// (`LOLIGO_LOCAL=tcp` has them take one).
#[derive(Clone)]
pub struct Tenants {
    thread: Rc<Thread>,
    within: Within,
}

impl Tenants {
    /// The environment of the tenant with this number, which [`crate::running_owner`] tells of its tasks
    /// while they run.
    pub fn env(&self, tenant: NonZeroU32) -> Env {
        let within = self.thread.has_twins.then(|| self.within.clone());
        Env::new(Rc::new(RealDriver { thread: self.thread.clone(), owner: tenant.get(), within }))
    }

    /// Drops all tasks of a tenant, as the end of its process would.
    pub fn end(&self, tenant: NonZeroU32) {
        self.thread.executor.drop_owned_by(tenant.get());
    }
}

impl core::fmt::Debug for Tenants {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Tenants")
    }
}

impl Runtime {
    /// A runtime for this thread, on the reactor `LOLIGO_IO` names, else on io_uring if the
    /// kernel lets us, else on epoll.
    pub fn new() -> io::Result<Runtime> {
        match std::env::var("LOLIGO_IO").as_deref() {
            Ok("uring") => Runtime::on(Reactors::Uring),
            Ok("epoll") => Runtime::on(Reactors::Epoll),
            Ok(other) if !other.is_empty() => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("LOLIGO_IO={other}: expected uring or epoll"),
            )),
            _ => Runtime::on(Reactors::Uring).or_else(|error| {
                tracing::debug!(%error, "no io_uring: using epoll");
                Runtime::on(Reactors::Epoll)
            }),
        }
    }

    /// A runtime on the given reactor.
    pub fn on(reactor: Reactors) -> io::Result<Runtime> {
        let bell = Arc::new(event_fd()?);
        let reactor: Rc<dyn Reactor> = match reactor {
            Reactors::Uring => uring::Uring::new(bell.clone())?,
            Reactors::Epoll => epoll::Epoll::new(bell.clone())?,
        };
        let executor = Executor::new(Some(Box::new(move || ring_bell(&bell))));
        let timers = Rc::new(Timers::default());
        Ok(Runtime(Rc::new(Thread {
            executor,
            timers,
            reactor,
            start: Instant::now(),
            recent: Cell::default(),
            has_twins: twin::are_wanted(),
        })))
    }

    /// The environment for tasks of this thread.
    pub fn env(&self) -> Env {
        Env::new(Rc::new(RealDriver { thread: self.0.clone(), owner: NOBODY, within: None }))
    }

    /// For daemons that share this thread, and connections with those of this process that share `within`.
    pub fn tenants(&self, within: &Within) -> Tenants {
        Tenants { thread: self.0.clone(), within: within.clone() }
    }

    /// Runs until `main`'s future ends, then drops all other tasks. Panics if the kernel refuses
    /// to wait for I/O, which leaves nothing to do.
    pub fn block_on<T: 'static, F>(self, main: impl FnOnce(Env) -> F) -> T
    where
        F: Future<Output = T> + 'static,
    {
        let thread = &self.0;
        let (mut handle, task) = JoinHandle::pair(main(self.env()));
        thread.executor.spawn(NOBODY, Box::pin(task));
        let mut context = Context::from_waker(Waker::noop());
        let mut trimmed = Duration::ZERO;
        let value = loop {
            thread.executor.run_ready(POLLS_PER_TURN);
            if let Poll::Ready(value) = pin!(&mut handle).poll(&mut context) {
                break value;
            }
            let now = thread.now();
            thread.timers.fire(now);
            if now - trimmed >= TRIM_INTERVAL {
                trimmed = now;
                buf::trim();
            }
            let wait = if thread.executor.has_ready() {
                Some(Duration::ZERO)
            } else {
                thread.timers.next().map(|deadline| deadline - now)
            };
            thread.reactor.turn(wait).expect("waiting for I/O");
            // What it brought came now.
            thread.now();
        };
        thread.executor.close();
        value
    }
}

impl core::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Runtime")
    }
}

impl Thread {
    fn now(&self) -> Duration {
        let now = self.start.elapsed();
        self.recent.set(now);
        now
    }
}

impl Driver for RealDriver {
    fn now(&self) -> Duration {
        self.thread.now()
    }

    fn recent(&self) -> Duration {
        self.thread.recent.get()
    }

    fn wall_clock(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn fill_random(&self, buf: &mut [u8]) {
        let mut filled = 0;
        while filled < buf.len() {
            let rest = &mut buf[filled..];
            // SAFETY: `rest` is valid for writes of its length.
            let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
            match usize::try_from(got) {
                Ok(got) => filled += got,
                Err(_) => assert_eq!(
                    io::Error::last_os_error().kind(),
                    io::ErrorKind::Interrupted,
                    "getrandom without flags fails only when interrupted",
                ),
            }
        }
    }

    fn spawn(&self, task: LocalFuture<()>) {
        self.thread.executor.spawn(self.owner, task);
    }

    fn sleep_until(&self, deadline: Duration) -> LocalFuture<()> {
        self.thread.timers.sleep_until(deadline)
    }

    fn termination(&self) -> LocalFuture<()> {
        signal::termination()
    }

    fn listen(&self, addr: SocketAddr) -> io::Result<Rc<dyn Listener>> {
        let flags = self.thread.reactor.socket_flags();
        let fd = socket::listen(&RawAddr::from_ip(addr), flags)?;
        let listener = self.thread.reactor.clone().listener(fd)?;
        let addr = listener.local_addr().filter(|_| self.thread.has_twins);
        let Some((addr, twin)) = addr.and_then(|addr| Some((addr, twin::listen(addr, flags)?)))
        else {
            return Ok(listener);
        };
        let twin = self.thread.reactor.clone().listener(twin)?;
        let twin: Rc<dyn Listener> = Rc::new(TwinListener::new(addr, twin));
        let within = self.within.as_ref().map(|within| within.listen(addr));
        let all = [listener, twin].into_iter().chain(within);
        Ok(Rc::new(Listeners::new(all.collect())))
    }

    fn connect(&self, addr: SocketAddr) -> LocalFuture<io::Result<Rc<dyn Stream>>> {
        if let Some(stream) =
            self.within.as_ref().and_then(|within| within.connect(addr.ip(), addr))
        {
            return Box::pin(std::future::ready(stream));
        }
        if self.thread.has_twins
            && let Some(twin) = twin::connect(addr, self.thread.reactor.socket_flags())
        {
            let stream = self.thread.reactor.clone().stream(twin);
            return Box::pin(std::future::ready(stream.map(|stream| TwinStream::to(addr, stream))));
        }
        self.thread.reactor.clone().connect(RawAddr::from_ip(addr))
    }

    fn listen_unix(&self, path: &Path) -> io::Result<Rc<dyn Listener>> {
        let fd = socket::listen_unix(path, self.thread.reactor.socket_flags())?;
        self.thread.reactor.clone().listener(fd)
    }

    fn connect_unix(&self, path: &Path) -> LocalFuture<io::Result<Rc<dyn Stream>>> {
        match RawAddr::from_path(path) {
            Ok(addr) => self.thread.reactor.clone().connect(addr),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn open_block(&self, path: &Path, options: OpenBlock) -> io::Result<Rc<dyn BlockFile>> {
        Ok(self.thread.reactor.clone().block_file(file::Opened::open(path, options)?))
    }

    fn open_shared_block(
        &self,
        path: &Path,
        options: OpenBlock,
    ) -> io::Result<Arc<dyn SharedBlockFile>> {
        Ok(Arc::new(file::Opened::open(path, options)?))
    }

    fn readable(&self, fd: Rc<dyn AsRawFd>) -> LocalFuture<io::Result<()>> {
        self.thread.reactor.clone().readable(fd)
    }

    fn open_sync(&self, path: &Path) -> io::Result<Box<dyn SyncFile>> {
        Ok(Box::new(sync_file::PlainFile::open(path)?))
    }

    fn workers(&self, name: &str, count: usize) -> io::Result<Workers> {
        Workers::start(name, count)
    }
}

/// Turns a system call's -1 into its error.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The counter by which other threads end this thread's wait.
fn event_fd() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = checked(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn ring_bell(bell: &OwnedFd) {
    let one = 1u64;
    // SAFETY: eight valid bytes are written. A full counter (EAGAIN) wakes as well.
    unsafe { libc::write(bell.as_raw_fd(), std::ptr::from_ref(&one).cast(), 8) };
}

fn silence_bell(bell: &OwnedFd) {
    let mut count = 0u64;
    // SAFETY: eight writable bytes are read into; the descriptor does not block.
    unsafe { libc::read(bell.as_raw_fd(), std::ptr::from_mut(&mut count).cast(), 8) };
}
