//! The world: clock, run loop, hosts, and the handle by which a test breaks things.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::net::IpAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use env::sync::Notify;
use env::within::Within;
use env::{Env, Executor, JoinHandle, LocalFuture, Timers};

use crate::disk::{Disk, DiskModel};
use crate::host::{Host, Kill, Sockets};
use crate::image::Image;
use crate::link::LinkModel;
use crate::network::{HostId, Network};
use crate::process::{Process, ProcessDriver};
use crate::rng::{Rng, mix};
use crate::trace::{Trace, fold};

/// Polls at one moment of virtual time beyond which the world is taken to be stuck in a loop.
const POLLS_PER_MOMENT_MAX: u64 = 20_000_000;
/// Owner of the test's own tasks.
const TEST: u32 = 0;

pub(crate) struct Inner {
    seed: u64,
    pub(crate) rng: Rng,
    clock: Cell<Duration>,
    pub(crate) executor: Executor,
    pub(crate) timers: Rc<Timers>,
    pub(crate) network: Network,
    pub(crate) hosts: RefCell<Vec<Host>>,
    disks: RefCell<BTreeMap<(HostId, PathBuf), Disk>>,
    disk_model: Cell<DiskModel>,
    processes: Cell<u32>,
    trace: Trace,
}

/// A simulated world. It ends, with all its tasks, when this is dropped; a test that panics is
/// told the seed.
pub struct World(Control);

/// The handle by which tests, from within tasks too, start and break things.
#[derive(Clone)]
pub struct Control(Rc<Inner>);

impl World {
    /// A world without hosts, all of whose chances come from `seed`.
    pub fn new(seed: u64) -> World {
        World(Control(Rc::new(Inner {
            seed,
            rng: Rng::new(seed),
            clock: Cell::new(Duration::ZERO),
            executor: Executor::new(None),
            timers: Rc::default(),
            network: Network::default(),
            hosts: RefCell::default(),
            disks: RefCell::default(),
            disk_model: Cell::default(),
            processes: Cell::new(TEST),
            trace: Trace::new(),
        })))
    }

    /// A handle for tasks that break things while the world runs.
    pub fn control(&self) -> Control {
        self.0.clone()
    }

    /// Runs until `time` from now.
    pub fn run_for(&self, time: Duration) {
        let end = self.now() + time;
        loop {
            self.run_ready();
            match self.0.0.timers.next() {
                Some(next) if next <= end => self.advance(next),
                _ => break,
            }
        }
        self.advance(end);
        self.run_ready();
    }

    /// Runs until `task` ends. It belongs to no host, so it is never killed. Panics when it can
    /// never end, as no task can run and no timer is pending.
    pub fn run_until<T: 'static>(&self, task: impl Future<Output = T> + 'static) -> T {
        let (mut handle, task) = JoinHandle::pair(task);
        self.0.0.executor.spawn(TEST, Box::pin(task));
        let mut context = Context::from_waker(Waker::noop());
        loop {
            self.run_ready();
            if let Poll::Ready(value) = pin!(&mut handle).poll(&mut context) {
                return value;
            }
            match self.0.0.timers.next() {
                Some(next) => self.advance(next),
                None => panic!(
                    "deadlock at {:?}: no task can run and no timer is pending (seed {})",
                    self.now(),
                    self.0.0.seed
                ),
            }
        }
    }

    fn run_ready(&self) {
        let executor = &self.0.0.executor;
        let mut polls = 0;
        while executor.has_ready() {
            polls += executor.run_ready(1024) as u64;
            assert!(
                polls < POLLS_PER_MOMENT_MAX,
                "livelock at {:?}: tasks wake each other without end (seed {})",
                self.now(),
                self.0.0.seed
            );
        }
    }

    fn advance(&self, to: Duration) {
        let to = to.max(self.now());
        self.0.0.clock.set(to);
        self.0.0.timers.fire(to);
    }
}

impl Deref for World {
    type Target = Control;
    fn deref(&self) -> &Control {
        &self.0
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let inner = &self.0.0;
        if std::thread::panicking() {
            eprintln!("simulation failed at {:?} with seed {}", inner.clock.get(), inner.seed);
        }
        inner.executor.close();
        let hosts = std::mem::take(&mut *inner.hosts.borrow_mut());
        let listeners = std::mem::take(&mut *inner.network.listeners.borrow_mut());
        let unix_listeners = std::mem::take(&mut *inner.network.unix_listeners.borrow_mut());
        // What tasks have leaked holds the world: at least what is large goes.
        for disk in std::mem::take(&mut *inner.disks.borrow_mut()).into_values() {
            disk.image().forget();
        }
        drop((hosts, listeners, unix_listeners));
    }
}

impl Inner {
    pub(crate) fn now(&self) -> Duration {
        self.clock.get()
    }

    pub(crate) fn record(&self, what: &'static str, one: u64, other: u64) {
        self.trace.record(self.now(), what, one, other);
    }

    pub(crate) fn is_up(&self, host: HostId) -> bool {
        self.hosts.borrow().get(host).is_some_and(|host| host.up)
    }

    pub(crate) fn find_disk(&self, host: HostId, path: &Path) -> Option<Disk> {
        self.disks.borrow().get(&(host, path.to_owned())).cloned()
    }

    pub(crate) fn make_disk(&self, host: HostId, path: &Path, len: u64) -> Disk {
        let model = self.hosts.borrow()[host].disk_model;
        let image = Image::new(len, model, self.rng.fork());
        let disk = Disk(Arc::new(Mutex::new(image)));
        self.disks.borrow_mut().insert((host, path.to_owned()), disk.clone());
        disk
    }

    /// The host of this name, made if there is none.
    fn host(&self, name: &str) -> HostId {
        let mut hosts = self.hosts.borrow_mut();
        if let Some(index) = hosts.iter().position(|host| host.name == name) {
            return index;
        }
        // Addresses count from 10.0.0.1 on.
        let index = hosts.len();
        hosts.push(Host::new(name, index + 1, self.disk_model.get()));
        index
    }
}

impl Control {
    /// The seed.
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// Virtual time since the world began.
    pub fn now(&self) -> Duration {
        self.0.now()
    }

    /// Completes after this time.
    pub fn sleep(&self, time: Duration) -> LocalFuture<()> {
        self.0.timers.sleep_until(self.now() + time)
    }

    /// Runs a task of the test, which no kill ends.
    pub fn spawn<T: 'static>(&self, task: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        let (handle, task) = JoinHandle::pair(task);
        self.0.executor.spawn(TEST, Box::pin(task));
        handle
    }

    /// The source of choices, for the test's own.
    pub fn rng(&self) -> &Rng {
        &self.0.rng
    }

    /// A number that sums up all that has happened: equal for equal runs.
    pub fn trace_hash(&self) -> u64 {
        self.0
            .disks
            .borrow()
            .values()
            .fold(self.0.trace.hash(), |hash, disk| mix(hash ^ disk.image().hash()))
    }

    /// How many events (messages, disk operations, kills ...) there have been.
    pub fn events(&self) -> u64 {
        self.0.trace.events()
    }

    /// The environment of a host's process, which is started if none runs.
    pub fn node(&self, name: &str) -> Env {
        let index = self.0.host(name);
        let running = self.0.hosts.borrow()[index].process.clone();
        if let Some(process) = running {
            return Env::new(Rc::new(ProcessDriver(process)));
        }
        let number = self.0.processes.get() + 1;
        self.0.processes.set(number);
        let rng = self.0.rng.fork();
        let mut hosts = self.0.hosts.borrow_mut();
        let host = &hosts[index];
        let others_run = hosts.iter().any(|h| h.process.is_some() && h.shares_process(host));
        let within = host.shared.as_ref().map(|shared| {
            if !others_run {
                // A process that has ended leaves nothing to the next.
                shared.replace(Within::default());
            }
            shared.borrow().clone()
        });
        let host = &mut hosts[index];
        let process = Rc::new(Process {
            world: self.0.clone(),
            host: index,
            number,
            alive: Cell::new(true),
            silent: Cell::new(false),
            clock_offset: Duration::from_nanos(rng.below(1_000_000_000_000)),
            rng,
            drift_ppm: host.drift_ppm,
            wall_skew_nanos: Cell::new(host.wall_skew_nanos),
            asked_to_end: Cell::new(false),
            asked: Notify::default(),
            frozen: Cell::new(false),
            held_up: RefCell::default(),
            within,
        });
        host.process = Some(process.clone());
        let was_down = !std::mem::replace(&mut host.up, true);
        drop(hosts);
        self.0.record("start", number.into(), fold(name.as_bytes()));
        if was_down {
            for connection in self.0.network.connections() {
                connection.host_is_up_again(index);
            }
        }
        Env::new(Rc::new(ProcessDriver(process)))
    }

    /// From their next start on, the daemons of these hosts are of one process: what they say to each
    /// other goes within it ([`env::within`]), at once, whatever the network does. Each is started by
    /// itself, and may be killed so (as one that fails); who kills the process kills all of them.
    pub fn share_process(&self, names: &[String]) {
        let shared = Rc::<RefCell<Within>>::default();
        for name in names {
            let index = self.0.host(name);
            self.0.hosts.borrow_mut()[index].shared = Some(shared.clone());
        }
    }

    /// Whether a process runs on the host.
    pub fn is_running(&self, name: &str) -> bool {
        let index = self.0.host(name);
        self.0.hosts.borrow()[index].process.is_some()
    }

    /// The host's address.
    pub fn ip(&self, name: &str) -> IpAddr {
        let index = self.0.host(name);
        self.0.hosts.borrow()[index].ip
    }

    /// Ends a host's process at once; no effect if none runs. Not to be called by a task of that
    /// process.
    pub fn kill(&self, name: &str, how: Kill) {
        let index = self.0.host(name);
        let process = {
            let mut hosts = self.0.hosts.borrow_mut();
            let host = &mut hosts[index];
            if how.sockets == Sockets::Silence {
                host.up = false;
            }
            host.process.take()
        };
        let Some(process) = process else { return };
        let silently = how.sockets == Sockets::Silence;
        self.0.record("kill", process.number.into(), silently.into());
        process.alive.set(false);
        process.silent.set(silently);
        // What destructors would still write (a database that is closed) is never written.
        for ((host, _), disk) in &*self.0.disks.borrow() {
            if *host == index {
                disk.image().forsake(process.number);
            }
        }
        self.0.executor.drop_owned_by(process.number);
        // What the tasks leaked ends as well.
        for connection in self.0.network.connections() {
            connection.end_sides_of(&process, silently);
        }
        let mut closed = Vec::new();
        self.0.network.listeners.borrow_mut().retain(|_, queue| {
            let keep = !Rc::ptr_eq(&queue.process, &process);
            if !keep {
                closed.push(queue.clone());
            }
            keep
        });
        for queue in closed {
            queue.close();
        }
        for ((host, _), disk) in &*self.0.disks.borrow() {
            if *host == index {
                disk.image().crash(self.now(), how.unsynced);
            }
        }
    }

    /// Asks a host's process to end, as SIGTERM does.
    pub fn terminate(&self, name: &str) {
        let index = self.0.host(name);
        let process = self.0.hosts.borrow()[index].process.clone();
        if let Some(process) = process {
            self.0.record("terminate", process.number.into(), 0);
            process.asked_to_end.set(true);
            process.asked.notify_all();
        }
    }

    /// Lets a host's process stand still, as one that is stopped, swapped out or on a virtual machine that
    /// is paused: it does nothing, its connections stay, and what comes and the timers that end wait. What
    /// its disks were given goes on. No effect if none runs.
    pub fn freeze(&self, name: &str) {
        let index = self.0.host(name);
        if let Some(process) = &self.0.hosts.borrow()[index].process {
            self.0.record("freeze", process.number.into(), 0);
            process.frozen.set(true);
        }
    }

    /// Lets it go on, first with what came first.
    pub fn thaw(&self, name: &str) {
        let index = self.0.host(name);
        let process = self.0.hosts.borrow()[index].process.clone();
        if let Some(process) = process.filter(|process| process.frozen.replace(false)) {
            self.0.record("thaw", process.number.into(), 0);
            std::mem::take(&mut *process.held_up.borrow_mut()).into_iter().for_each(Waker::wake);
        }
    }

    /// Sets how far a host's wall clock is ahead of the world's, at once, and how fast its clocks
    /// run, from its next process on.
    pub fn set_clock(&self, name: &str, ahead_nanos: i64, drift_ppm: i32) {
        let index = self.0.host(name);
        let mut hosts = self.0.hosts.borrow_mut();
        let host = &mut hosts[index];
        host.wall_skew_nanos = ahead_nanos;
        host.drift_ppm = drift_ppm.clamp(-500_000, 500_000);
        if let Some(process) = &host.process {
            process.wall_skew_nanos.set(ahead_nanos);
        }
    }

    /// Changes all links without a model of their own.
    pub fn set_network(&self, model: LinkModel) {
        self.0.network.default_link.set(model);
    }

    /// Changes the link from one host to another; `None` takes its own model away.
    pub fn set_link(&self, from: &str, to: &str, model: Option<LinkModel>) {
        let direction = (self.0.host(from), self.0.host(to));
        let mut links = self.0.network.links.borrow_mut();
        match model {
            Some(model) => links.insert(direction, model),
            None => links.remove(&direction),
        };
    }

    /// Lets nothing pass from one host to another: what is sent waits, connections are kept.
    pub fn block(&self, from: &str, to: &str) {
        let direction = (self.0.host(from), self.0.host(to));
        self.0.record("block", direction.0 as u64, direction.1 as u64);
        self.0.network.blocked.borrow_mut().insert(direction);
    }

    /// Lets pass again; what waited arrives.
    pub fn unblock(&self, from: &str, to: &str) {
        let direction = (self.0.host(from), self.0.host(to));
        self.0.record("unblock", direction.0 as u64, direction.1 as u64);
        self.0.network.unblock(direction.0, direction.1, self.now());
    }

    /// Blocks both directions.
    pub fn partition(&self, one: &str, other: &str) {
        self.block(one, other);
        self.block(other, one);
    }

    /// Cuts a host off from all others there are.
    pub fn isolate(&self, name: &str) {
        for other in self.names() {
            if other != name {
                self.partition(name, &other);
            }
        }
    }

    /// Opens every blocked direction.
    pub fn heal(&self) {
        let blocked = self.0.network.blocked.borrow().clone();
        self.0.record("heal", blocked.len() as u64, 0);
        for (from, to) in blocked {
            self.0.network.unblock(from, to, self.now());
        }
    }

    /// Resets all connections between two hosts; says how many there were.
    pub fn reset_connections(&self, one: &str, other: &str) -> usize {
        let (one, other) = (self.0.host(one), self.0.host(other));
        let connections = self.0.network.connections();
        let between: Vec<_> = connections.iter().filter(|c| c.joins(one, other)).collect();
        self.0.record("reset", one as u64, other as u64);
        for connection in &between {
            connection.reset();
        }
        between.len()
    }

    /// Names of all hosts, in the order of their making.
    pub fn names(&self) -> Vec<String> {
        self.0.hosts.borrow().iter().map(|host| host.name.clone()).collect()
    }

    /// A host's disk or file; an empty one is made if there is none.
    pub fn disk(&self, name: &str, path: impl AsRef<Path>) -> Disk {
        let index = self.0.host(name);
        let found = self.0.find_disk(index, path.as_ref());
        found.unwrap_or_else(|| self.0.make_disk(index, path.as_ref(), 0))
    }

    /// Takes a disk or file away for good: who opens it next finds none.
    pub fn remove_disk(&self, name: &str, path: impl AsRef<Path>) {
        let index = self.0.host(name);
        self.0.record("remove disk", index as u64, 0);
        self.0.disks.borrow_mut().remove(&(index, path.as_ref().to_owned()));
    }

    /// Speed of the disks that a host makes from now on.
    pub fn set_disk_model(&self, name: &str, model: DiskModel) {
        let index = self.0.host(name);
        self.0.hosts.borrow_mut()[index].disk_model = model;
    }

    /// Speed of the disks of hosts made from now on.
    pub fn set_default_disk_model(&self, model: DiskModel) {
        self.0.disk_model.set(model);
    }
}

impl core::fmt::Debug for Control {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "world of seed {} at {:?}", self.0.seed, self.now())
    }
}

impl core::fmt::Debug for World {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}
