//! A running process of a host: the simulated driver behind its [`env::Env`].

use std::cell::{Cell, RefCell};
use std::future::{Future, ready};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use env::sync::Notify;
use env::within::Within;
use env::{BlockFile, Driver, Listener, Listeners, LocalFuture, OpenBlock, Stream, SyncFile};

use crate::block_file::SimBlockFile;
use crate::listener::{Queue, SimListener};
use crate::network::HostId;
use crate::rng::Rng;
use crate::stream::{Connection, SimStream};
use crate::sync_file::SimSyncFile;
use crate::world::Inner;

/// When a connection attempt that nobody answers is repeated, and given up at the end.
const SYN_RETRIES_S: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];
const TIMED_OUT: io::ErrorKind = io::ErrorKind::TimedOut;

/// A process. It keeps its world alive, so the world takes it out of its host when it ends.
pub(crate) struct Process {
    pub(crate) world: Rc<Inner>,
    pub(crate) host: HostId,
    /// Owner of its tasks; unlike any other process's, before or later.
    pub(crate) number: u32,
    pub(crate) alive: Cell<bool>,
    /// Its connections end without a word.
    pub(crate) silent: Cell<bool>,
    pub(crate) rng: Rng,
    /// `now()` at the world's start: arbitrary, as after a boot long ago.
    pub(crate) clock_offset: Duration,
    pub(crate) drift_ppm: i32,
    pub(crate) wall_skew_nanos: Cell<i64>,
    pub(crate) asked_to_end: Cell<bool>,
    pub(crate) asked: Notify,
    /// It stands still: none of its tasks is polled.
    pub(crate) frozen: Cell<bool>,
    /// Of its tasks that would have been, in the order in which they were woken.
    pub(crate) held_up: RefCell<Vec<Waker>>,
    /// What it shares with other daemons of its process.
    pub(crate) within: Option<Within>,
}

const MILLION: i128 = 1_000_000;

impl Process {
    fn rate(&self) -> i128 {
        MILLION + i128::from(self.drift_ppm)
    }

    /// The first moment of the world at which `now()` is at least `deadline`.
    fn world_time(&self, deadline: Duration) -> Duration {
        let since = deadline.saturating_sub(self.clock_offset).as_nanos() as i128 * MILLION;
        let nanos = (since + self.rate() - 1) / self.rate();
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Fills in the host's address and a free port where the caller leaves the choice.
    fn chosen(&self, addr: SocketAddr) -> SocketAddr {
        let mut hosts = self.world.hosts.borrow_mut();
        let host = &mut hosts[self.host];
        let ip = if addr.ip().is_unspecified() { host.ip } else { addr.ip() };
        let listeners = self.world.network.listeners.borrow();
        let mut chosen = SocketAddr::new(ip, addr.port());
        while chosen.port() == 0 || addr.port() == 0 && listeners.contains_key(&chosen) {
            chosen.set_port(host.ephemeral_port());
        }
        chosen
    }

    fn source_addr(&self, target: IpAddr) -> SocketAddr {
        let mut hosts = self.world.hosts.borrow_mut();
        let host = &mut hosts[self.host];
        let ip = if target.is_loopback() { target } else { host.ip };
        SocketAddr::new(ip, host.ephemeral_port())
    }
}

/// What a connection attempt meets.
enum Met {
    Queue(Rc<Queue>),
    Refusal,
    Silence,
}

fn meet(world: &Inner, from: HostId, addr: SocketAddr) -> Met {
    let queue = world.network.listeners.borrow().get(&addr).cloned();
    let host = match &queue {
        Some(queue) => Some(queue.process.host),
        None => world.hosts.borrow().iter().position(|host| host.ip == addr.ip()),
    };
    let Some(host) = host else { return Met::Refusal };
    let blocked = world.network.is_blocked(from, host) || world.network.is_blocked(host, from);
    match queue {
        _ if blocked || !world.is_up(host) => Met::Silence,
        Some(queue) => Met::Queue(queue),
        None => Met::Refusal,
    }
}

async fn connect(process: Rc<Process>, addr: SocketAddr) -> io::Result<Rc<dyn Stream>> {
    let world = process.world.clone();
    world.record("connect", process.number.into(), addr.port().into());
    for retry in SYN_RETRIES_S {
        // The request's way there and the answer's way back.
        let to = match meet(&world, process.host, addr) {
            Met::Queue(queue) => queue.process.host,
            _ => process.host,
        };
        let there = world.network.link(process.host, to).delay(&world.rng);
        let back = world.network.link(to, process.host).delay(&world.rng);
        world.timers.sleep_until(world.now() + there).await;
        let connected = match meet(&world, process.host, addr) {
            Met::Silence => {
                world.timers.sleep_until(world.now() + Duration::from_secs(retry)).await;
                continue;
            }
            Met::Refusal => None,
            Met::Queue(queue) => {
                let source = Some(process.source_addr(addr.ip()));
                let stream = join(&process, source, &queue, Some(addr));
                stream.ok()
            }
        };
        world.timers.sleep_until(world.now() + back).await;
        return connected.ok_or_else(|| io::ErrorKind::ConnectionRefused.into());
    }
    Err(TIMED_OUT.into())
}

/// Makes a connection and queues its far side.
fn join(
    process: &Rc<Process>,
    source: Option<SocketAddr>,
    queue: &Rc<Queue>,
    addr: Option<SocketAddr>,
) -> io::Result<Rc<dyn Stream>> {
    let network = &process.world.network;
    let number = network.number_connection();
    let ends = ((process.clone(), source), (queue.process.clone(), addr));
    let connection = Connection::new(number, ends.0, ends.1);
    if !queue.push(connection.clone()) {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    network.add(&connection);
    process.world.record("connected", number, queue.process.number.into());
    Ok(Rc::new(SimStream::new(connection, 0)))
}

/// A task of a process, which goes on only while that does.
struct Task {
    process: Rc<Process>,
    task: LocalFuture<()>,
}

impl Future for Task {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.process.frozen.get() {
            self.process.held_up.borrow_mut().push(cx.waker().clone());
            return Poll::Pending;
        }
        self.task.as_mut().poll(cx)
    }
}

/// What a simulated process is given; a handle, so that its calls can hold the process.
pub(crate) struct ProcessDriver(pub(crate) Rc<Process>);

impl Driver for ProcessDriver {
    fn now(&self) -> Duration {
        let world = self.0.world.now().as_nanos() as i128;
        self.0.clock_offset + Duration::from_nanos((world * self.0.rate() / MILLION) as u64)
    }

    fn wall_clock(&self) -> Duration {
        let world = self.0.world.now().as_nanos() as i128 * self.0.rate() / MILLION;
        let skewed = world + i128::from(self.0.wall_skew_nanos.get());
        WALL_START + Duration::from_nanos(u64::try_from(skewed).unwrap_or(0))
    }

    fn fill_random(&self, buf: &mut [u8]) {
        self.0.rng.fill(buf);
    }

    fn spawn(&self, task: LocalFuture<()>) {
        if self.0.alive.get() {
            let task = Task { process: self.0.clone(), task };
            self.0.world.executor.spawn(self.0.number, Box::pin(task));
        }
    }

    fn sleep_until(&self, deadline: Duration) -> LocalFuture<()> {
        self.0.world.timers.sleep_until(self.0.world_time(deadline))
    }

    fn termination(&self) -> LocalFuture<()> {
        let process = self.0.clone();
        Box::pin(async move { process.asked.until(|| process.asked_to_end.get()).await })
    }

    fn listen(&self, addr: SocketAddr) -> io::Result<Rc<dyn Listener>> {
        let process = &self.0;
        if !process.alive.get() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let addr = process.chosen(addr);
        let host_ip = process.world.hosts.borrow()[process.host].ip;
        if !addr.ip().is_loopback() && addr.ip() != host_ip {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let mut listeners = process.world.network.listeners.borrow_mut();
        if listeners.contains_key(&addr) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let queue = Queue::new(process.clone());
        listeners.insert(addr, queue.clone());
        let own: Rc<dyn Listener> = Rc::new(SimListener { queue, addr: Some(addr) });
        let Some(within) = &process.within else { return Ok(own) };
        Ok(Rc::new(Listeners::new(vec![own, within.listen(addr)])))
    }

    fn connect(&self, addr: SocketAddr) -> LocalFuture<io::Result<Rc<dyn Stream>>> {
        let process = self.0.clone();
        let within = process.within.as_ref();
        if let Some(stream) =
            within.and_then(|w| w.connect(process.source_addr(addr.ip()).ip(), addr))
        {
            process.world.record("connected within", process.number.into(), addr.port().into());
            return Box::pin(ready(stream));
        }
        Box::pin(connect(process, addr))
    }

    fn listen_unix(&self, path: &Path) -> io::Result<Rc<dyn Listener>> {
        let process = &self.0;
        let mut listeners = process.world.network.unix_listeners.borrow_mut();
        let key = (process.host, path.to_owned());
        if listeners.get(&key).is_some_and(|queue| queue.is_open()) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let queue = Queue::new(process.clone());
        listeners.insert(key, queue.clone());
        Ok(Rc::new(SimListener { queue, addr: None }))
    }

    fn connect_unix(&self, path: &Path) -> LocalFuture<io::Result<Rc<dyn Stream>>> {
        let process = self.0.clone();
        let key = (process.host, path.to_owned());
        Box::pin(async move {
            let queue = process.world.network.unix_listeners.borrow().get(&key).cloned();
            let queue = queue.ok_or(io::ErrorKind::NotFound)?;
            join(&process, None, &queue, None)
        })
    }

    fn open_block(&self, path: &Path, options: OpenBlock) -> io::Result<Rc<dyn BlockFile>> {
        let world = &self.0.world;
        let disk = match (world.find_disk(self.0.host, path), options.create_len) {
            (Some(disk), _) => disk,
            (None, Some(len)) if !options.read_only => world.make_disk(self.0.host, path, len),
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Rc::new(SimBlockFile::open(disk, self.0.clone(), options)?))
    }

    fn open_sync(&self, path: &Path) -> io::Result<Box<dyn SyncFile>> {
        let world = &self.0.world;
        let disk = world
            .find_disk(self.0.host, path)
            .unwrap_or_else(|| world.make_disk(self.0.host, path, 0));
        Ok(Box::new(SimSyncFile::open(disk, self.0.number)?))
    }
}

/// Wall clock at the world's start: 2026-01-01 00:00 UTC.
const WALL_START: Duration = Duration::from_secs(1_767_225_600);
