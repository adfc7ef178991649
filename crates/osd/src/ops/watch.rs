//! Watch and notify (`src/osd/Watch.cc`, `do_osd_op_effects` in `src/osd/PrimaryLogPG.cc`).
//!
//! A watch is durable in the object's info; a [`Watch`] is its live side at the primary: the
//! connection it is told on, the time it was last heard of, the notifies it has not answered. It
//! lives in the object's slot from the moment the info is loaded. What an op vector asks for
//! happens when its [`Effects`] are applied: for a write, after it has committed.

use std::cell::{Cell, RefCell};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::Bytes;
use denc::{Denc, Reader, Writer};
use env::sync::{Sender, oneshot};
use messages::{MWatchNotify, Message, NotifyOpcode};
use types::bufferlist::BufferList;
use types::osd::ops::{NotifyArgs, WatchArgs, watch_op};
use types::osd::{ObjListWatchResponse, OsdOp, WatchInfo, WatchItem};
use types::{EntityAddr, EntityName, Errno, HObject, OsdReqId, RawMessage, SnapContext, UTime};

use super::execute::{Reply, Request};
use super::finish::{Pending, PendingWrite};
use super::object_context::{ObjectContext, ObjectGuard, Slot};
use super::op_context::{OpContext, Step};
use super::op_info::OpInfo;
use super::pg::Pg;

/// A way to tell a client something: its connection.
pub trait Sink {
    /// Sends a message, or drops it if the connection is gone.
    fn send(&self, message: RawMessage);
}

impl Sink for msgr::Connection {
    fn send(&self, message: RawMessage) {
        msgr::Connection::send(self, message);
    }
}

/// One client session at this OSD.
pub struct Client {
    name: EntityName,
    addr: EntityAddr,
    sink: Box<dyn Sink>,
    /// The watches told on this session; bounded by the watches it has set up.
    watches: RefCell<Vec<Weak<Watch>>>,
    /// Its connection is gone: what it sent before may still run, and must not be told there.
    gone: Cell<bool>,
}

impl Client {
    /// A session of that client at that address.
    pub fn new(name: EntityName, addr: EntityAddr, sink: Box<dyn Sink>) -> Rc<Client> {
        let (watches, gone) = (RefCell::default(), Cell::new(false));
        Rc::new(Client { name, addr, sink, watches, gone })
    }

    /// Who it is.
    pub fn name(&self) -> EntityName {
        self.name
    }

    /// Where its connection comes from.
    pub fn addr(&self) -> EntityAddr {
        self.addr
    }

    /// The session is over: its watches, those too that it has asked for and not yet got, wait for a
    /// reconnect until they time out.
    pub fn end(self: &Rc<Self>) {
        self.gone.set(true);
        self.reset();
    }

    /// Its watches wait for a reconnect until they time out.
    pub fn reset(self: &Rc<Self>) {
        for watch in core::mem::take(&mut *self.watches.borrow_mut()) {
            if let Some(watch) = watch.upgrade() {
                watch.disconnect(self);
            }
        }
    }

    fn register(&self, watch: &Rc<Watch>) {
        let mut watches = self.watches.borrow_mut();
        watches.retain(|known| known.upgrade().is_some_and(|known| !Rc::ptr_eq(&known, watch)));
        watches.push(Rc::downgrade(watch));
    }

    fn send(&self, message: &MWatchNotify) {
        self.sink.send(message.encode());
    }
}

/// The live side of a watch.
pub(super) struct Watch {
    pg: Weak<dyn Pg>,
    oid: HObject,
    cookie: u64,
    watcher: EntityName,
    addr: EntityAddr,
    timeout: Duration,
    client: RefCell<Option<Rc<Client>>>,
    /// Whether its client pings it; old ones do not.
    will_ping: Cell<bool>,
    last_heard: Cell<Duration>,
    timer_runs: Cell<bool>,
    gone: Cell<bool>,
    /// Its client is blocklisted: it ends at once.
    evicted: Cell<bool>,
    /// Notifies it has not answered; each ends by its own timeout.
    unanswered: RefCell<BTreeMap<u64, Rc<Notify>>>,
}

impl core::fmt::Debug for Watch {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Watch({} {} by {})", self.oid, self.cookie, self.watcher)
    }
}

impl Watch {
    fn new(pg: &Rc<dyn Pg>, oid: HObject, watcher: EntityName, info: &WatchInfo) -> Rc<Watch> {
        Rc::new(Watch {
            pg: Rc::downgrade(pg),
            oid,
            cookie: info.cookie,
            watcher,
            addr: info.addr,
            timeout: Duration::from_secs(info.timeout_seconds.into()),
            client: RefCell::default(),
            will_ping: Cell::new(false),
            last_heard: Cell::new(pg.env().now()),
            timer_runs: Cell::new(false),
            gone: Cell::new(false),
            evicted: Cell::new(false),
            unanswered: RefCell::default(),
        })
    }

    /// The watches of an object that has just been loaded: they wait for their clients, but for
    /// those that were known before it was recovered here.
    pub(super) fn restore_all(pg: &Rc<dyn Pg>, slot: &Slot, context: &ObjectContext) {
        let obs = context.obs.borrow();
        let mut watches = slot.watches.borrow_mut();
        watches.retain(|key, watch| {
            let is_kept = obs.oi.watchers.contains_key(key);
            if !is_kept {
                watch.discard();
            }
            is_kept
        });
        for (&(cookie, watcher), info) in &obs.oi.watchers {
            watches.entry((cookie, watcher)).or_insert_with(|| {
                let watch = Watch::new(pg, obs.oi.soid.clone(), watcher, info);
                match pg.is_blocklisted(&info.addr) {
                    true => watch.evict(),
                    false => watch.arm(),
                }
                watch
            });
        }
    }

    /// Whether its client's session is up.
    pub(super) fn is_connected(&self) -> bool {
        self.client.borrow().is_some()
    }

    fn connect(self: &Rc<Self>, client: &Rc<Client>, will_ping: bool) {
        if client.gone.get() {
            return self.arm();
        }
        self.will_ping.set(will_ping);
        self.heard();
        let is_same = self.client.borrow().as_ref().is_some_and(|old| Rc::ptr_eq(old, client));
        if !is_same {
            *self.client.borrow_mut() = Some(client.clone());
            client.register(self);
            for notify in self.unanswered.borrow().values() {
                self.send_notify(notify);
            }
        }
        if will_ping {
            self.arm();
        }
    }

    fn disconnect(self: &Rc<Self>, client: &Rc<Client>) {
        let is_its = self.client.borrow().as_ref().is_some_and(|own| Rc::ptr_eq(own, client));
        if is_its {
            *self.client.borrow_mut() = None;
            self.heard();
            self.arm();
        }
    }

    fn heard(&self) {
        if let Some(pg) = self.pg.upgrade() {
            self.last_heard.set(pg.env().now());
        }
    }

    /// Whether its client has been silent for too long.
    pub(super) fn is_overdue(&self) -> bool {
        let Some(pg) = self.pg.upgrade() else { return false };
        let pings = self.will_ping.get() || !self.is_connected();
        let is_late = || pg.env().now() >= self.last_heard.get() + self.timeout;
        self.evicted.get() || (pings && is_late())
    }

    /// Where its client connected from.
    pub(super) fn addr(&self) -> EntityAddr {
        self.addr
    }

    /// The watch as listings show it.
    pub(super) fn item(&self) -> WatchItem {
        WatchItem {
            name: self.watcher,
            cookie: self.cookie,
            timeout_seconds: u32::try_from(self.timeout.as_secs()).unwrap_or(u32::MAX),
            addr: self.addr,
        }
    }

    /// Ends it now.
    pub(super) fn evict(&self) {
        if !self.evicted.replace(true) {
            self.end();
        }
    }

    /// Ends it if its client is still silent when its turn comes.
    pub(super) fn end(&self) {
        if let Some(pg) = self.pg.upgrade() {
            pg.on_watch_timeout(&self.oid, self.cookie, self.watcher);
        }
    }

    /// Makes sure a timer watches over it.
    fn arm(self: &Rc<Self>) {
        if self.timer_runs.replace(true) {
            return;
        }
        let Some(pg) = self.pg.upgrade() else { return };
        let env = pg.env().clone();
        let weak = Rc::downgrade(self);
        pg.env().go(async move {
            loop {
                let Some(watch) = weak.upgrade() else { return };
                let needs_timer = watch.will_ping.get() || !watch.is_connected();
                if watch.gone.get() || !needs_timer {
                    watch.timer_runs.set(false);
                    return;
                }
                if watch.is_overdue() {
                    watch.timer_runs.set(false);
                    watch.end();
                    return;
                }
                let deadline = watch.last_heard.get() + watch.timeout;
                drop(watch);
                env.sleep_until(deadline).await;
            }
        });
    }

    fn send_notify(&self, notify: &Notify) {
        if let Some(client) = &*self.client.borrow() {
            client.send(&MWatchNotify {
                opcode: NotifyOpcode::Notify,
                cookie: self.cookie,
                version: notify.version,
                notify_id: notify.id,
                payload: notify.payload.clone(),
                return_code: 0,
                notifier_gid: notify.notifier_gid,
                replies: Bytes::new(),
            });
        }
    }

    fn start_notify(&self, notify: &Rc<Notify>) {
        notify.waiting.borrow_mut().insert(self.key());
        self.unanswered.borrow_mut().insert(notify.id, notify.clone());
        self.send_notify(notify);
    }

    fn answer(&self, notify_id: u64, reply: Bytes) {
        let notify = self.unanswered.borrow_mut().remove(&notify_id);
        if let Some(notify) = notify {
            notify.replies.borrow_mut().insert(self.key(), reply);
            notify.end_of(self.key());
        }
    }

    /// (global id, cookie), as notifiers are told.
    fn key(&self) -> (u64, u64) {
        (self.watcher.num as u64, self.cookie)
    }

    /// The watch has been removed.
    fn remove(&self, tell: bool) {
        if tell && let Some(client) = &*self.client.borrow() {
            client.send(&MWatchNotify {
                opcode: NotifyOpcode::Disconnect,
                cookie: self.cookie,
                version: 0,
                notify_id: 0,
                payload: Bytes::new(),
                return_code: 0,
                notifier_gid: 0,
                replies: Bytes::new(),
            });
        }
        for notify in core::mem::take(&mut *self.unanswered.borrow_mut()).into_values() {
            notify.end_of(self.key());
        }
        self.discard();
    }

    /// The object is no longer this OSD's to serve: nobody is told anything.
    pub(super) fn discard(&self) {
        self.gone.set(true);
        *self.client.borrow_mut() = None;
        self.unanswered.borrow_mut().clear();
    }
}

/// A notify under way.
struct Notify {
    client: Rc<Client>,
    cookie: u64,
    id: u64,
    version: u64,
    notifier_gid: u64,
    payload: Bytes,
    /// Watches (global id, cookie) that have not answered.
    waiting: RefCell<BTreeSet<(u64, u64)>>,
    replies: RefCell<BTreeMap<(u64, u64), Bytes>>,
    started: Cell<bool>,
    /// Ends the wait for its timeout; taken when the notifier has been told.
    ended: Cell<Option<Sender<()>>>,
}

impl Notify {
    /// That watch answers no more.
    fn end_of(&self, watch: (u64, u64)) {
        self.waiting.borrow_mut().remove(&watch);
        if self.started.get() && self.waiting.borrow().is_empty() {
            self.complete(0);
        }
    }

    /// All watches have been told.
    fn start(&self) {
        self.started.set(true);
        if self.waiting.borrow().is_empty() {
            self.complete(0);
        }
    }

    /// Tells the notifier who answered what and who did not.
    fn complete(&self, return_code: i32) {
        let Some(ended) = self.ended.take() else { return };
        let mut w = Writer::new();
        w.put(&*self.replies.borrow());
        w.put(&*self.waiting.borrow());
        self.client.send(&MWatchNotify {
            opcode: NotifyOpcode::Complete,
            cookie: self.cookie,
            version: self.version,
            notify_id: self.id,
            payload: Bytes::new(),
            return_code,
            notifier_gid: self.notifier_gid,
            replies: w.into_bytes(),
        });
        ended.send(());
    }
}

#[derive(Debug)]
struct NotifyRequest {
    cookie: u64,
    id: u64,
    timeout_sec: u32,
    payload: Bytes,
}

#[derive(Debug)]
struct NotifyAck {
    id: u64,
    /// `None`: all of the client's watches of the object.
    cookie: Option<u64>,
    reply: Bytes,
}

/// What an op vector has for watchers and notifiers.
#[derive(Debug, Default)]
pub struct Effects {
    disconnects: Vec<(u64, EntityName, bool)>,
    connects: Vec<(WatchInfo, bool)>,
    notifies: Vec<NotifyRequest>,
    acks: Vec<NotifyAck>,
}

impl Effects {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.disconnects.is_empty()
            && self.connects.is_empty()
            && self.notifies.is_empty()
            && self.acks.is_empty()
    }

    pub(super) fn disconnect(&mut self, cookie: u64, watcher: EntityName, tell: bool) {
        self.disconnects.push((cookie, watcher, tell));
    }

    /// Does it. The guard is the one the vector ran under.
    pub fn apply(self, pg: &Rc<dyn Pg>, guard: &ObjectGuard, client: &Rc<Client>) {
        if self.is_empty() {
            return;
        }
        let slot = &guard.slot;
        for (cookie, watcher, tell) in self.disconnects {
            let watch = slot.watches.borrow_mut().remove(&(cookie, watcher));
            if let Some(watch) = watch {
                watch.remove(tell);
            }
        }
        for (info, will_ping) in self.connects {
            let key = (info.cookie, client.name);
            let known = slot.watches.borrow().get(&key).cloned();
            let watch = known.unwrap_or_else(|| {
                let watch = Watch::new(pg, guard.head().clone(), client.name, &info);
                slot.watches.borrow_mut().insert(key, watch.clone());
                watch
            });
            watch.connect(client, will_ping);
        }
        for request in self.notifies {
            start_notify(pg, slot, client, request);
        }
        for ack in self.acks {
            let watches: Vec<Rc<Watch>> = slot.watches.borrow().values().cloned().collect();
            for watch in watches {
                if watch.watcher == client.name && ack.cookie.is_none_or(|c| c == watch.cookie) {
                    watch.answer(ack.id, ack.reply.clone());
                }
            }
        }
    }
}

fn start_notify(pg: &Rc<dyn Pg>, slot: &Rc<Slot>, client: &Rc<Client>, request: NotifyRequest) {
    let (ended, end) = oneshot();
    let notify = Rc::new(Notify {
        client: client.clone(),
        cookie: request.cookie,
        id: request.id,
        version: slot.user_version(),
        notifier_gid: client.name.num as u64,
        payload: request.payload,
        waiting: RefCell::default(),
        replies: RefCell::default(),
        started: Cell::new(false),
        ended: Cell::new(Some(ended)),
    });
    let watches: Vec<Rc<Watch>> = slot.watches.borrow().values().cloned().collect();
    watches.iter().for_each(|watch| watch.start_notify(&notify));
    notify.start();
    if watches.is_empty() {
        return;
    }
    let watches: Vec<Weak<Watch>> = watches.iter().map(Rc::downgrade).collect();
    let timeout = Duration::from_secs(request.timeout_sec.into());
    let env = pg.env().clone();
    let waiter = Rc::downgrade(&notify);
    pg.env().go(async move {
        // The notifier chooses the time, and may choose years: what has ended waits no longer.
        if env.timeout(timeout, end).await.is_ok() {
            return;
        }
        if let Some(notify) = waiter.upgrade() {
            for watch in watches.iter().filter_map(Weak::upgrade) {
                watch.unanswered.borrow_mut().remove(&notify.id);
            }
            notify.complete(Errno::ETIMEDOUT.result());
        }
    });
}

impl OpContext {
    pub(super) fn op_notify(&mut self, op: &mut OsdOp) -> Step {
        self.num_read += 1;
        let NotifyArgs { cookie } = op.args.notify();
        let mut r = Reader::new(&op.indata);
        let mut parse = || {
            r.u32()?; // a version, obsolete
            Ok::<_, denc::Error>((r.u32()?, r.blob()?))
        };
        let (timeout_sec, payload) = parse().unwrap_or_default();
        let timeout_sec =
            if timeout_sec == 0 { self.limits.notify_timeout_sec } else { timeout_sec };
        let id = self.pg.next_notify_id();
        self.effects.notifies.push(NotifyRequest { cookie, id, timeout_sec, payload });
        op.outdata.push(Bytes::copy_from_slice(&id.to_le_bytes()));
        Ok(0)
    }

    pub(super) fn op_notify_ack(&mut self, op: &OsdOp) -> Step {
        self.num_read += 1;
        let mut r = Reader::new(&op.indata);
        let mut parse = || {
            let (id, cookie) = (r.u64()?, r.u64()?);
            let reply = if r.remaining() > 0 { r.blob()? } else { Bytes::new() };
            Ok::<_, denc::Error>(NotifyAck { id, cookie: Some(cookie), reply })
        };
        let ack = parse().unwrap_or_else(|_| NotifyAck {
            id: op.args.watch().cookie, // old clients have the notify's id here
            cookie: None,
            reply: Bytes::new(),
        });
        self.effects.acks.push(ack);
        Ok(0)
    }

    pub(super) fn op_watch(&mut self, args: &WatchArgs) -> Step {
        self.num_write += 1;
        if !self.obs.exists {
            return Err(Errno::ENOENT.into());
        }
        let watcher = self.request.reqid.name;
        let key = (args.cookie, watcher);
        let info = WatchInfo {
            cookie: args.cookie,
            timeout_seconds: match args.timeout {
                0 => self.limits.watch_timeout_sec,
                timeout => timeout,
            },
            addr: self.request.client.addr(),
        };
        let watchers = &mut self.obs.oi.watchers;
        match args.op {
            watch_op::WATCH | watch_op::LEGACY_WATCH => {
                if let Entry::Vacant(place) = watchers.entry(key) {
                    place.insert(info.clone());
                    self.modify = true;
                }
                self.effects.connects.push((info, args.op == watch_op::WATCH));
            }
            watch_op::RECONNECT => {
                if !watchers.contains_key(&key) {
                    return Err(Errno::ENOTCONN.into());
                }
                self.effects.connects.push((info, true));
            }
            watch_op::PING => {
                if !watchers.contains_key(&key) {
                    return Err(Errno::ENOTCONN.into());
                }
                let watches = self.guard.slot.watches.borrow();
                match watches.get(&key).filter(|watch| watch.is_connected()) {
                    Some(watch) => watch.heard(),
                    None => return Err(Errno::ETIMEDOUT.into()),
                }
            }
            watch_op::UNWATCH => {
                if watchers.remove(&key).is_some() {
                    self.modify = true;
                    self.effects.disconnect(args.cookie, watcher, false);
                }
            }
            _ => {}
        }
        Ok(0)
    }

    pub(super) fn op_list_watchers(&mut self, out: &mut BufferList) -> Step {
        self.num_read += 1;
        let item = |(&(cookie, name), info): (&(u64, EntityName), &WatchInfo)| WatchItem {
            name,
            cookie,
            timeout_seconds: info.timeout_seconds,
            addr: info.addr,
        };
        let entries = self.obs.oi.watchers.iter().map(item).collect();
        self.stats.num_rd += 1;
        out.push(ObjListWatchResponse { entries }.to_bytes());
        Ok(0)
    }
}

/// What becomes of a watch that has timed out.
pub enum Overdue {
    /// It ends: a logged write of no client, to finish and replicate like others; its effects are
    /// applied with [`no_client`].
    Ends(PendingWrite),
    /// Its client has come back, or it is gone already.
    Stays,
    /// Its object is missing here or degraded: recover it, then call
    /// [`super::ObjectContexts::end_overdue_watches`].
    Blocked,
}

/// Ends a watch that has timed out. `EIO`: its object cannot be read, and nobody has another copy.
pub async fn execute_timeout(
    pg: &Rc<dyn Pg>,
    guard: ObjectGuard,
    cookie: u64,
    watcher: EntityName,
) -> Result<Overdue, Errno> {
    let key = (cookie, watcher);
    let is_blocked = || pg.is_unreadable(guard.head()) || pg.is_degraded(guard.head());
    if is_blocked() {
        return Ok(Overdue::Blocked);
    }
    let loaded = guard.head_context(pg).await;
    // Loading may have found that it cannot be read.
    if is_blocked() {
        return Ok(Overdue::Blocked);
    }
    let obc = loaded?;
    let watch = guard.slot.watches.borrow().get(&key).cloned();
    let has_watch = obc.obs.borrow().oi.watchers.contains_key(&key);
    if watch.as_ref().is_some_and(|watch| !watch.is_overdue()) {
        return Ok(Overdue::Stays);
    }
    if !has_watch {
        // The object knows nothing of it: there is nothing to write.
        if let Some(watch) = watch {
            guard.slot.watches.borrow_mut().remove(&key);
            watch.remove(true);
        }
        return Ok(Overdue::Stays);
    }
    let request = Rc::new(Request {
        oid: guard.head().clone(),
        ops: Vec::new(),
        sums: None,
        snapc: SnapContext::default(),
        mtime: UTime::ZERO,
        flags: 0,
        reqid: OsdReqId::default(),
        features: 0,
        pgid: pg.pgid().pgid,
        retry_attempt: 0,
        client: no_client(),
        info: OpInfo::default(),
    });
    let mut ctx = OpContext::new(pg.clone(), guard, request, obc, SnapContext::default());
    ctx.obs.oi.watchers.remove(&key);
    ctx.modify = true;
    ctx.effects.disconnect(cookie, watcher, true);
    Ok(Overdue::Ends(PendingWrite { inner: Pending::Op(Box::new(ctx), Reply::default()) }))
}

/// The client of writes that no client asked for.
pub fn no_client() -> Rc<Client> {
    struct Nowhere;
    impl Sink for Nowhere {
        fn send(&self, _: RawMessage) {}
    }
    Client::new(EntityName::default(), EntityAddr::default(), Box::new(Nowhere))
}
