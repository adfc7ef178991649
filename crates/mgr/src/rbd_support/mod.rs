//! The module `rbd_support`: purging pools' trashes and taking mirror snapshots on a schedule,
//! long operations on images as tasks, and who reads and writes most
//! (`src/pybind/mgr/rbd_support/` at v16.2).
//!
//! The active manager is a client of the cluster for it, from the moment that a pool of images is
//! there or somebody asks. That client's addresses are told to the monitors, so that a manager
//! that takes over may be sure that nothing of the old one is still under way (it is blocklisted).
//! All state is where Ceph keeps it, in the pools and the configuration database.

mod level;
mod perf;
mod schedule;
mod scheduler;
mod task;
mod tasks;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use auth::caps::{MgrCap, MgrRequest, Rwx};
use client::{Client, ClientError, Options};
use command::{CommandMap, CommandReply};
use env::sync::Notify;
use types::Errno;
use types::addr::EntityAddr;

use self::level::Kind;
use self::perf::Perf;
use self::scheduler::Scheduler;
use self::tasks::Tasks;
use crate::daemon::Mgr;

const ENOENT: i32 = 2;
const EAGAIN: i32 = 11;
const EACCES: i32 = 13;
const EINVAL: i32 = 22;

/// What the module's commands begin with.
const SCHEDULE_TRASH: &str = "rbd trash purge schedule ";
const SCHEDULE_MIRROR: &str = "rbd mirror snapshot schedule ";
const TASK: &str = "rbd task ";
const PERF: &str = "rbd perf image ";

/// How long a command waits for the module to be ready.
const READY_WAIT: Duration = Duration::from_secs(15);
/// Before another attempt to become a client.
const AGAIN: Duration = Duration::from_secs(1);
/// Between two looks at whether there is a pool of images.
const LOOK: Duration = Duration::from_millis(500);

/// State of the module.
pub(crate) struct RbdSupport {
    client: RefCell<Option<Client>>,
    /// All has been read: commands are answered.
    ready: Cell<bool>,
    /// Somebody has asked.
    asked: Cell<bool>,
    /// The client was blocklisted: another one is needed.
    shut_out: Cell<bool>,
    changed: Notify,
    trash: Scheduler,
    mirror: Scheduler,
    tasks: Tasks,
    pub(crate) perf: Perf,
}

/// Who asks, for what is decided by pool.
pub(crate) struct Caller {
    pub(crate) caps: MgrCap,
    pub(crate) addr: EntityAddr,
    pub(crate) wanted: Rwx,
}

impl Caller {
    fn may(&self, pool: &str, namespace: &str) -> bool {
        let arguments = [("pool", pool), ("namespace", namespace)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        self.caps.is_capable(&MgrRequest {
            service: "py",
            module: "rbd_support",
            command: "",
            arguments: &BTreeMap::from(arguments),
            wanted: self.wanted,
            addr: &self.addr,
        })
    }

    fn check(&self, pool: &str, namespace: &str) -> Result<(), CommandReply> {
        if self.may(pool, namespace) {
            return Ok(());
        }
        let why = format!("not authorized on pool={pool}, namespace={namespace}");
        Err(CommandReply::error(EACCES, why))
    }
}

/// Pools whose application is `rbd`.
fn rbd_pools(client: &Client) -> BTreeMap<i64, String> {
    let map = client.osdmap();
    let of_rbd = map.pools.iter().filter(|(_, pool)| pool.application_metadata.contains_key("rbd"));
    of_rbd.filter_map(|(id, _)| Some((*id, map.pool_names.get(id)?.clone()))).collect()
}

/// A failure as python3-rados words it.
fn rados_error(error: &ClientError, what: &str) -> CommandReply {
    let ClientError::Errno(errno) = error else {
        return CommandReply::error(EAGAIN, error.to_string());
    };
    CommandReply::error(errno.0, rados_words(*errno, what))
}

fn rados_words(errno: Errno, what: &str) -> String {
    let class = match errno {
        Errno::EPERM => "RADOS permission error",
        Errno::ENOENT => "RADOS object not found",
        Errno::EIO => "RADOS I/O error",
        Errno::EINVAL => "RADOS invalid argument",
        Errno::ESHUTDOWN => "RADOS connection was shutdown",
        Errno::ETIMEDOUT => "RADOS rados timeout",
        _ => return format!("[errno {}] RADOS error ({what})", errno.0),
    };
    format!("[errno {}] {class} ({what})", errno.0)
}

/// A failure as python3-rbd words it.
fn rbd_words(error: &ClientError, what: &str) -> String {
    let ClientError::Errno(errno) = error else { return error.to_string() };
    let class = match *errno {
        Errno::EPERM => "RBD permission error",
        Errno::ENOENT => "RBD image not found",
        Errno::EIO => "RBD I/O error",
        Errno::ENOSPC => "RBD insufficient space available",
        Errno::EEXIST => "RBD image already exists",
        Errno::EINVAL => "RBD invalid argument",
        Errno::EROFS => "RBD read-only image",
        Errno::EBUSY => "RBD image is busy",
        Errno::ENOTEMPTY => "RBD image has snapshots",
        Errno::EOPNOTSUPP => "RBD operation not supported",
        Errno::ESHUTDOWN => "RBD connection was shutdown",
        Errno::ETIMEDOUT => "RBD operation timeout",
        Errno::EDQUOT => "RBD disk quota exceeded",
        Errno::ECANCELED => "RBD operation canceled",
        _ => return format!("[errno {}] {what}", errno.0),
    };
    format!("[errno {}] {class} ({what})", errno.0)
}

impl RbdSupport {
    pub(crate) fn new() -> RbdSupport {
        RbdSupport {
            client: RefCell::default(),
            ready: Cell::new(false),
            asked: Cell::new(false),
            shut_out: Cell::new(false),
            changed: Notify::default(),
            trash: Scheduler::new(Kind::TrashPurge),
            mirror: Scheduler::new(Kind::MirrorSnapshot),
            tasks: Tasks::default(),
            perf: Perf::default(),
        }
    }

    /// Where the module's client is, for the monitors.
    pub(crate) fn clients(&self) -> Vec<(String, types::AddrVec)> {
        let client = self.client.borrow();
        let addrs = client.as_ref().map(Client::addrs).filter(|addrs| !addrs.is_empty());
        addrs.into_iter().map(|addrs| ("rbd_support".to_owned(), addrs)).collect()
    }

    /// Wakes the module: something has changed that it waits for.
    pub(crate) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Something failed: if the client was shut out of the cluster, another one is made.
    fn failed(&self, error: &ClientError) {
        if *error == ClientError::Errno(Errno::EBLOCKLISTED) {
            self.shut_out.set(true);
            self.changed.notify_all();
        }
    }
}

/// Whether a pool of images is there.
fn has_pool(mgr: &Mgr) -> bool {
    let map = mgr.osdmaps.current();
    map.pools.values().any(|pool| pool.application_metadata.contains_key("rbd"))
}

/// Runs until the manager stops.
pub(crate) async fn run(mgr: Rc<Mgr>) {
    let this = &mgr.rbd_support;
    while !mgr.stopped.get() {
        let wanted = mgr.active.get() && (this.asked.get() || has_pool(&mgr));
        if !wanted {
            let _ = mgr.env.timeout(LOOK, this.changed.notified()).await;
            continue;
        }
        if let Err(error) = serve(&mgr).await {
            tracing::warn!("rbd_support: {error}");
            mgr.env.sleep(AGAIN).await;
        }
    }
}

/// How long schedules are waited for before commands are answered.
const LOAD_MAX: Duration = Duration::from_secs(10);

/// Reads all that commands are about.
async fn load(mgr: &Mgr, client: &Client) -> Result<(), ClientError> {
    let this = &mgr.rbd_support;
    this.tasks.load(client).await?;
    for schedules in [&this.trash, &this.mirror] {
        // An image that does not answer must not keep all else away: they go on looking then.
        match mgr.env.timeout(LOAD_MAX, schedules.start(mgr, client)).await {
            Ok(read) => read?,
            Err(_) => tracing::warn!("schedules are not all read after {LOAD_MAX:?}"),
        }
    }
    Ok(())
}

/// One client's life.
async fn serve(mgr: &Rc<Mgr>) -> Result<(), ClientError> {
    let this = &mgr.rbd_support;
    let options = Options { follow_osdmap: true };
    let client =
        Client::connect(mgr.env.clone(), mgr.config.clone(), &mgr.keyring, options).await?;
    *this.client.borrow_mut() = Some(client.clone());
    this.shut_out.set(false);
    mgr.beacon_now.notify_all();
    let alive = {
        // A manager that was failed and is active again begins anew: its client is shut out.
        let (mgr, since) = (mgr.clone(), mgr.active_since.get());
        move || {
            let same = mgr.active.get() && mgr.active_since.get() == since;
            same && !mgr.stopped.get() && !mgr.rbd_support.shut_out.get()
        }
    };
    let loaded = load(mgr, &client).await;
    if let Err(error) = &loaded {
        this.failed(error);
    }
    if loaded.is_ok() && alive() {
        let mut parts = Vec::new();
        let (of, by, still) = (mgr.clone(), client.clone(), alive.clone());
        parts.push(mgr.env.spawn_with_handle(async move {
            of.rbd_support.trash.run(of.clone(), by, still).await;
        }));
        let (of, by, still) = (mgr.clone(), client.clone(), alive.clone());
        parts.push(mgr.env.spawn_with_handle(async move {
            of.rbd_support.mirror.run(of.clone(), by, still).await;
        }));
        let (of, by, still) = (mgr.clone(), client.clone(), alive.clone());
        parts.push(mgr.env.spawn_with_handle(async move {
            of.rbd_support.tasks.run(of.clone(), by, still).await;
        }));
        let (of, by, still) = (mgr.clone(), client.clone(), alive.clone());
        parts.push(mgr.env.spawn_with_handle(async move {
            perf::run(of, by, still).await;
        }));
        this.ready.set(true);
        this.changed.notify_all();
        while alive() {
            let _ = mgr.env.timeout(LOOK, this.changed.notified()).await;
        }
        this.ready.set(false);
        // What is under way fails; only then may another one begin.
        client.shutdown();
        this.trash.reset();
        this.mirror.reset();
        this.tasks.wake();
        this.perf.wake();
        for part in parts {
            let _ = part.await;
        }
    } else {
        client.shutdown();
        this.trash.reset();
        this.mirror.reset();
    }
    this.tasks.reset();
    this.perf.reset();
    this.client.borrow_mut().take();
    loaded
}

/// Whether it is one of the module's commands.
pub(crate) fn is_command(prefix: &str) -> bool {
    [SCHEDULE_TRASH, SCHEDULE_MIRROR, TASK, PERF].iter().any(|begin| prefix.starts_with(begin))
}

/// Answers a command.
pub(crate) async fn command(mgr: &Rc<Mgr>, caller: &Caller, map: &CommandMap) -> CommandReply {
    let this = &mgr.rbd_support;
    this.asked.set(true);
    if !this.ready.get() {
        this.changed.notify_all();
        let _ = mgr.env.timeout(READY_WAIT, this.changed.until(|| this.ready.get())).await;
    }
    let client = this.client.borrow().clone().filter(|_| this.ready.get());
    let Some(client) = client else {
        return CommandReply::error(EAGAIN, "rbd_support module is not ready, try again");
    };
    if let Err(error) = client.wait_for_latest_osdmap().await {
        return rados_error(&error, "");
    }
    let prefix = map.prefix();
    if let Some(what) = prefix.strip_prefix(SCHEDULE_TRASH) {
        return this.trash.command(mgr, &client, what, map).await;
    }
    if let Some(what) = prefix.strip_prefix(SCHEDULE_MIRROR) {
        return this.mirror.command(mgr, &client, what, map).await;
    }
    if let Some(what) = prefix.strip_prefix(TASK) {
        return this.tasks.command(mgr, &client, caller, what, map).await;
    }
    perf::command(mgr, &client, caller, prefix.strip_prefix(PERF).unwrap_or_default(), map).await
}
