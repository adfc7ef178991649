//! Object contexts: what the primary keeps in memory of an object in use, the lock that orders its
//! ops, and the cache that holds both.
//!
//! ```text
//! lock state of one object (head and clones together), queue strictly first come, first served:
//!
//!   readers ──┐        a reader waits for writes under way (it must not tell what may be lost)
//!             ├─ FIFO  a writer executes alone, then lets the next writer in while it commits
//!   writers ──┘
//! ```
//!
//! A writer may read what the writers before it have submitted and not yet made durable: its own
//! change is lost with theirs, and its answer comes when it is durable, hence behind them. A writer
//! that turns out to change nothing has no commit to wait for; it waits as a reader does
//! ([`ObjectGuard::settled`]) before it tells what it saw. Ceph holds all others off while such an
//! op (`RWEXCL`) commits, so that calls of classes on one object (of an object map, a bucket's
//! index) cost a round to the replicas each; here they share one.
//!
//! A writer that copies another object waits for that one's primary. Meanwhile nothing has changed
//! yet, and whoever copies this one may read it ([`ObjectGuard::lend`]): two objects that are copied
//! to each other would wait for each other for ever.
//!
//! Ceph keeps a context a clone (`ObjectContext`, `RWState` in `src/osd/osd_internal_types.h`); one
//! lock for an object and its clones is coarser for readers of snapshots and simpler.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::hash::BuildHasher;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use store::StoreError;
use types::osd::{ObjectInfo, OsdOp, SnapSet, WatchItem, ops};
use types::{EVersion, EntityAddr, EntityName, Errno, GhObject, HObject, NOSNAP, SnapId, entity};

use super::execute::Request;
use super::pg::Pg;
use super::shared::Shared;
use super::watch::Watch;

/// The xattr that holds the object's `object_info_t`.
pub const OI_ATTR: &[u8] = b"_";
/// The xattr of a head that holds its `SnapSet`.
pub const SS_ATTR: &[u8] = b"snapset";
/// What precedes the names of clients' xattrs.
pub const USER_ATTR_PREFIX: u8 = b'_';

/// Objects of a PG whose contexts stay in memory unused (osd_pg_object_context_cache_count).
pub const IDLE_CONTEXTS_MAX: usize = 64;
/// Bytes of clients' xattrs kept in a context; an object with more has them read when asked for.
const CACHED_ATTRS_MAX_LEN: usize = 16 << 10;

/// Whether an object exists, and its info.
#[derive(Debug, Clone, Default)]
pub struct ObjectState {
    /// The info; that of a new object if it does not exist.
    pub oi: ObjectInfo,
    /// Whether it exists (a whiteout does).
    pub exists: bool,
}

impl ObjectState {
    /// An object that does not exist.
    pub fn absent(oid: &HObject) -> ObjectState {
        ObjectState { oi: ObjectInfo::new(oid.clone()), exists: false }
    }

    /// Whether a client can see it.
    pub fn is_visible(&self) -> bool {
        self.exists && !self.oi.is_whiteout()
    }
}

/// The clones of an object, shared by the contexts of its head and clones.
#[derive(Debug, Clone, Default)]
pub struct SnapSetContext {
    /// The set as last written.
    pub snapset: Shared<SnapSet>,
    /// Whether a head (perhaps a whiteout) holds it.
    pub exists: bool,
}

/// A client's xattrs by name (without the prefix).
pub type UserAttrs = BTreeMap<BString, Bytes>;

/// One object or clone in use.
#[derive(Debug)]
pub struct ObjectContext {
    /// Its state as last submitted.
    pub obs: RefCell<Shared<ObjectState>>,
    /// The clones of its head.
    pub ssc: Rc<RefCell<SnapSetContext>>,
    /// Its clients' xattrs as last submitted; `None` when they are too long to keep.
    pub attrs: RefCell<Option<UserAttrs>>,
}

impl ObjectContext {
    /// The object's name.
    pub fn oid(&self) -> HObject {
        self.obs.borrow().oi.soid.clone()
    }
}

/// How an op holds its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// Shared with other readers.
    Read,
    /// Alone while it executes, shared with later writers while it commits.
    Write,
    /// Of a copy of it: as a reader, and while a writer only waits for another object.
    Copy,
}

impl LockKind {
    /// How a request holds its object (`PrimaryLogPG::get_rw_locks`).
    pub fn of(request: &Request) -> LockKind {
        let copies = |op: &OsdOp| matches!(op.code, ops::COPY_GET | ops::ASSERT_VER);
        match request.info.rwordered() {
            true => LockKind::Write,
            false if request.reqid.name.kind == entity::OSD && request.ops.iter().all(copies) => {
                LockKind::Copy
            }
            false => LockKind::Read,
        }
    }
}

#[derive(Debug)]
struct Waiter {
    kind: LockKind,
    granted: Cell<bool>,
    cancelled: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Waiter {
    fn of(kind: LockKind) -> Rc<Waiter> {
        Rc::new(Waiter {
            kind,
            granted: Cell::new(false),
            cancelled: Cell::new(false),
            waker: RefCell::default(),
        })
    }
}

/// One object's lock, contexts and watches.
pub(super) struct Slot {
    head: HObject,
    /// The head's name in the store, once an op has asked.
    goid: OnceCell<Rc<GhObject>>,
    readers: Cell<u32>,
    executing: Cell<bool>,
    /// Whether who executes only waits for another object (`ObjectGuard::lend`).
    lent: Cell<bool>,
    /// Who then waits until nobody reads this one.
    returning: RefCell<Option<Waker>>,
    committing: Cell<u32>,
    /// Bounded by the ops a PG admits.
    queue: RefCell<VecDeque<Rc<Waiter>>>,
    contexts: RefCell<BTreeMap<SnapId, Rc<ObjectContext>>>,
    ssc: RefCell<Option<Rc<RefCell<SnapSetContext>>>>,
    /// Live watches by (cookie, watcher); those of `oi.watchers` are all here once loaded.
    pub(super) watches: RefCell<BTreeMap<(u64, EntityName), Rc<Watch>>>,
    /// Whether those who ask for the object get this one.
    listed: Cell<bool>,
    /// Key in the idle list; 0 while in use.
    idle_stamp: Cell<u64>,
    /// Bumped by `forget` and `clear`: what was loaded before is not kept.
    generation: Cell<u64>,
}

impl Slot {
    fn new(head: HObject) -> Slot {
        Slot {
            head,
            goid: OnceCell::new(),
            readers: Cell::new(0),
            executing: Cell::new(false),
            lent: Cell::new(false),
            returning: RefCell::default(),
            committing: Cell::new(0),
            queue: RefCell::default(),
            contexts: RefCell::default(),
            ssc: RefCell::default(),
            watches: RefCell::default(),
            listed: Cell::new(true),
            idle_stamp: Cell::new(0),
            generation: Cell::new(0),
        }
    }

    fn admits(&self, kind: LockKind) -> bool {
        let is_free = !self.executing.get();
        match kind {
            LockKind::Read => is_free && self.committing.get() == 0,
            LockKind::Write => is_free && self.readers.get() == 0,
            LockKind::Copy => (is_free || self.lent.get()) && self.committing.get() == 0,
        }
    }

    fn take(&self, kind: LockKind) {
        match kind {
            LockKind::Read | LockKind::Copy => self.readers.set(self.readers.get() + 1),
            LockKind::Write => self.executing.set(true),
        }
    }

    /// Grants the front of the queue as far as it goes, and of an object that is lent all copies.
    fn advance(&self) {
        if self.lent.get() && self.admits(LockKind::Copy) {
            self.queue.borrow_mut().retain(|waiter| {
                if waiter.kind != LockKind::Copy || waiter.cancelled.get() {
                    return true;
                }
                self.take(waiter.kind);
                waiter.granted.set(true);
                if let Some(waker) = waiter.waker.borrow_mut().take() {
                    waker.wake();
                }
                false
            });
        }
        loop {
            let waker = {
                let mut queue = self.queue.borrow_mut();
                while queue.front().is_some_and(|w| w.cancelled.get()) {
                    queue.pop_front();
                }
                let Some(front) = queue.front() else { return };
                if !self.admits(front.kind) {
                    return;
                }
                self.take(front.kind);
                front.granted.set(true);
                let waker = front.waker.borrow_mut().take();
                queue.pop_front();
                waker
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// The head's user version as last submitted.
    pub(super) fn user_version(&self) -> u64 {
        self.contexts.borrow().get(&NOSNAP).map_or(0, |c| c.obs.borrow().oi.user_version)
    }

    fn watches(&self) -> Vec<Rc<Watch>> {
        self.watches.borrow().values().cloned().collect()
    }

    fn is_in_use(&self) -> bool {
        self.readers.get() > 0
            || self.executing.get()
            || self.committing.get() > 0
            || !self.queue.borrow().is_empty()
            || !self.watches.borrow().is_empty()
    }
}

/// A place in an object's queue; completes when its turn has come. Dropping it gives it up.
#[must_use = "the place is given up when dropped"]
pub struct Lock {
    contexts: Rc<ObjectContexts>,
    slot: Rc<Slot>,
    kind: LockKind,
    /// None: the object was free.
    waiter: Option<Rc<Waiter>>,
    done: bool,
}

impl Future for Lock {
    type Output = ObjectGuard;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ObjectGuard> {
        if let Some(waiter) = self.waiter.as_ref().filter(|waiter| !waiter.granted.get()) {
            *waiter.waker.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        self.done = true;
        Poll::Ready(self.guard())
    }
}

impl Lock {
    fn guard(&self) -> ObjectGuard {
        let hold = match self.kind {
            LockKind::Read | LockKind::Copy => Hold::Read,
            LockKind::Write => Hold::Executing,
        };
        ObjectGuard {
            contexts: self.contexts.clone(),
            slot: self.slot.clone(),
            hold: Cell::new(hold),
        }
    }

    /// Whether the lock is held by now.
    pub fn is_granted(&self) -> bool {
        self.waiter.as_ref().is_none_or(|waiter| waiter.granted.get())
    }

    /// The guard, if the lock was free: saves a poll.
    pub fn try_now(mut self) -> Result<ObjectGuard, Lock> {
        if self.is_granted() {
            self.done = true;
            Ok(self.guard())
        } else {
            Err(self)
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        match &self.waiter {
            Some(waiter) if !waiter.granted.get() => {
                waiter.cancelled.set(true);
                self.slot.advance();
                self.contexts.rest(&self.slot);
            }
            _ => drop(self.guard()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    Read,
    Executing,
    Committing,
}

/// A held object lock. Dropping it lets the next in.
pub struct ObjectGuard {
    contexts: Rc<ObjectContexts>,
    pub(super) slot: Rc<Slot>,
    hold: Cell<Hold>,
}

impl core::fmt::Debug for ObjectGuard {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "ObjectGuard({} {:?})", self.slot.head, self.hold.get())
    }
}

impl ObjectGuard {
    /// The object's head.
    pub fn head(&self) -> &HObject {
        &self.slot.head
    }

    /// Whether others wait to write the object.
    pub(crate) fn has_writers_waiting(&self) -> bool {
        let queue = self.slot.queue.borrow();
        queue.iter().any(|waiter| waiter.kind == LockKind::Write && !waiter.cancelled.get())
    }

    /// The name in the store of the head or one of its clones.
    pub(super) fn goid(&self, pg: &Rc<dyn Pg>, oid: &HObject) -> Rc<GhObject> {
        match oid.snap {
            NOSNAP => self.slot.goid.get_or_init(|| Rc::new(pg.goid(&self.slot.head))).clone(),
            _ => Rc::new(pg.goid(oid)),
        }
    }

    /// The writer has submitted its change and only waits for it to commit: the next writer may
    /// execute.
    pub(super) fn submitted(&self) {
        if self.hold.get() == Hold::Executing {
            self.hold.set(Hold::Committing);
            self.slot.executing.set(false);
            self.slot.committing.set(self.slot.committing.get() + 1);
            self.slot.advance();
        }
    }

    /// Waits for another object while this one is held to be changed: until then it is as it was,
    /// and may be copied. The other one may be waiting for that. Goes on when nobody copies it.
    pub(super) async fn lend<T>(&self, wait: impl Future<Output = T>) -> T {
        self.slot.lent.set(true);
        self.slot.advance();
        let lent = Lent(&self.slot);
        let value = wait.await;
        drop(lent);
        poll_fn(|cx| match self.slot.readers.get() {
            0 => Poll::Ready(()),
            _ => {
                *self.slot.returning.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
        })
        .await;
        value
    }

    /// A reader's guard of the object, when all that was submitted before is durable: what an op
    /// that changed nothing saw may be told then. Nobody gets the object in between.
    pub(crate) async fn settled(self) -> ObjectGuard {
        if self.hold.get() == Hold::Read || env::mutant("tell-unsettled") {
            return self;
        }
        let waiter = Waiter::of(LockKind::Read);
        self.slot.queue.borrow_mut().push_front(waiter.clone());
        let lock = Lock {
            contexts: self.contexts.clone(),
            slot: self.slot.clone(),
            kind: LockKind::Read,
            waiter: Some(waiter),
            done: false,
        };
        drop(self);
        lock.await
    }

    /// The context of the head, loaded if need be.
    pub async fn head_context(&self, pg: &Rc<dyn Pg>) -> Result<Rc<ObjectContext>, Errno> {
        self.context(pg, NOSNAP).await
    }

    /// The context of the head or the clone `snap`; it may not exist. The clone's own id, not a
    /// snapshot's: see [`ObjectGuard::find`]. `EIO`: object info or snap set cannot be read or do
    /// not decode; another copy is fetched if there is one, as for data.
    pub async fn context(&self, pg: &Rc<dyn Pg>, snap: SnapId) -> Result<Rc<ObjectContext>, Errno> {
        if let Some(found) = self.slot.contexts.borrow().get(&snap) {
            return Ok(found.clone());
        }
        let generation = self.slot.generation.get();
        let ssc = if snap == NOSNAP { None } else { Some(self.snapset_context(pg).await?) };
        let oid = self.slot.head.with_snap(snap);
        let attrs = pg.store().getattrs(&pg.coll(), &pg.goid(&oid)).await;
        let (context, snapset) = decode_context(oid.clone(), attrs).inspect_err(|&errno| {
            if errno == Errno::EIO {
                // What the version should be, the object does not say.
                pg.on_unreadable(&oid, EVersion::ZERO);
            }
        })?;
        // Another reader may have been faster; its context is the one in use.
        if let Some(found) = self.slot.contexts.borrow().get(&snap) {
            return Ok(found.clone());
        }
        let ssc = match ssc {
            Some(ssc) => ssc,
            None => self.share_snapset(SnapSetContext {
                exists: context.exists,
                snapset: Shared::new(snapset.unwrap_or_default()),
            }),
        };
        let LoadedContext { obs, attrs, .. } = context;
        let context = Rc::new(ObjectContext {
            obs: RefCell::new(Shared::new(obs)),
            ssc,
            attrs: RefCell::new(attrs),
        });
        if generation == self.slot.generation.get() {
            self.slot.contexts.borrow_mut().insert(snap, context.clone());
            if snap == NOSNAP && !self.contexts.without_watches {
                Watch::restore_all(pg, &self.slot, &context);
            }
        }
        Ok(context)
    }

    fn share_snapset(&self, loaded: SnapSetContext) -> Rc<RefCell<SnapSetContext>> {
        self.slot.ssc.borrow_mut().get_or_insert_with(|| Rc::new(RefCell::new(loaded))).clone()
    }

    /// The clones of the object.
    pub async fn snapset_context(
        &self,
        pg: &Rc<dyn Pg>,
    ) -> Result<Rc<RefCell<SnapSetContext>>, Errno> {
        if let Some(ssc) = &*self.slot.ssc.borrow() {
            return Ok(ssc.clone());
        }
        Ok(Box::pin(self.head_context(pg)).await?.ssc.clone())
    }

    /// The context of a clone that a write has just made.
    pub(super) fn insert_clone(&self, snap: SnapId, context: Rc<ObjectContext>) {
        self.slot.contexts.borrow_mut().insert(snap, context);
    }

    /// Forgets a clone that has been removed.
    pub(super) fn remove_clone(&self, snap: SnapId) {
        self.slot.contexts.borrow_mut().remove(&snap);
    }

    /// What a client means by `snap` of this object (`find_object_context`). `raw_clone`: the
    /// client names a clone, not a snapshot (MAP_SNAP_CLONE).
    pub async fn find(
        &self,
        pg: &Rc<dyn Pg>,
        snap: SnapId,
        raw_clone: bool,
    ) -> Result<Found, Errno> {
        let head = &self.slot.head;
        if snap == NOSNAP {
            return match self.head_context(pg).await {
                Ok(context) => Ok(Found::Object(context)),
                Err(errno) => damaged(pg, head, errno),
            };
        }
        let ssc = match self.snapset_context(pg).await {
            Ok(ssc) => ssc,
            Err(errno) => return damaged(pg, head, errno),
        };
        let (clone, is_of_snap) = {
            let ssc = ssc.borrow();
            if !ssc.exists {
                return Ok(Found::Absent);
            }
            let set = &ssc.snapset;
            if snap > set.seq {
                (NOSNAP, true)
            } else if raw_clone {
                if !set.clones.contains(&snap) {
                    return Ok(Found::Absent);
                }
                (snap, true)
            } else {
                let Some(&clone) = set.clones.iter().find(|&&clone| clone >= snap) else {
                    return Ok(Found::Absent);
                };
                (clone, set.clone_snaps.get(&clone).is_some_and(|snaps| snaps.contains(&snap)))
            }
        };
        let oid = self.slot.head.with_snap(clone);
        if clone != NOSNAP && pg.is_unreadable(&oid) {
            return Ok(Found::Missing(oid));
        }
        let context = match self.context(pg, clone).await {
            Ok(context) => context,
            Err(errno) => return damaged(pg, &oid, errno),
        };
        if clone != NOSNAP {
            let removed = !raw_clone && pg.is_snap_removed(snap);
            if !context.obs.borrow().exists || !is_of_snap || removed {
                return Ok(Found::Absent);
            }
        }
        Ok(Found::Object(context))
    }
}

/// An object that could not be loaded: missing, if another copy of it is fetched.
fn damaged(pg: &Rc<dyn Pg>, oid: &HObject, errno: Errno) -> Result<Found, Errno> {
    match errno == Errno::EIO && pg.is_unreadable(oid) {
        true => Ok(Found::Missing(oid.clone())),
        false => Err(errno),
    }
}

/// Ends a loan, also where who waits is dropped.
struct Lent<'a>(&'a Slot);

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.0.lent.set(false);
    }
}

/// The answer of [`ObjectGuard::find`].
pub enum Found {
    /// This context; the object may still not exist (a head).
    Object(Rc<ObjectContext>),
    /// There is no such object at that snapshot.
    Absent,
    /// This clone is it, and it is missing here.
    Missing(HObject),
}

impl Drop for ObjectGuard {
    fn drop(&mut self) {
        let slot = &self.slot;
        match self.hold.get() {
            Hold::Read => {
                slot.readers.set(slot.readers.get() - 1);
                if let Some(waker) = slot.returning.take() {
                    waker.wake();
                }
            }
            Hold::Executing => slot.executing.set(false),
            Hold::Committing => slot.committing.set(slot.committing.get() - 1),
        }
        slot.advance();
        self.contexts.rest(slot);
    }
}

struct LoadedContext {
    obs: ObjectState,
    attrs: Option<UserAttrs>,
    exists: bool,
}

/// An object from its xattrs as stored.
fn decode_context(
    oid: HObject,
    attrs: Result<Vec<(BString, Bytes)>, StoreError>,
) -> Result<(LoadedContext, Option<SnapSet>), Errno> {
    let attrs = match attrs {
        Ok(attrs) => attrs,
        Err(StoreError::NoObject) => {
            let obs = ObjectState::absent(&oid);
            let attrs = Some(UserAttrs::new());
            return Ok((LoadedContext { obs, attrs, exists: false }, None));
        }
        Err(e) => return Err(Errno(e.errno())),
    };
    let damaged = |what: denc::Error| {
        tracing::error!("{oid}: stored object info is damaged: {what}");
        Errno::EIO
    };
    let mut oi = None;
    let mut snapset = None;
    let mut user = UserAttrs::new();
    let mut user_len = 0;
    for (name, value) in attrs {
        if name == OI_ATTR {
            oi = Some(ObjectInfo::from_bytes(&value).map_err(damaged)?);
        } else if name == SS_ATTR {
            snapset = Some(SnapSet::from_bytes(&value).map_err(damaged)?);
        } else if name.len() > 1 && name[0] == USER_ATTR_PREFIX {
            user_len += name.len() + value.len();
            user.insert(BString::from(&name[1..]), value);
        }
    }
    let Some(oi) = oi else {
        tracing::error!("{oid}: object without object info");
        return Err(Errno::EIO);
    };
    let attrs = (user_len <= CACHED_ATTRS_MAX_LEN).then_some(user);
    let context = LoadedContext { obs: ObjectState { oi, exists: true }, attrs, exists: true };
    Ok((context, snapset))
}

/// Which xattrs of a list of stored ones are clients', by their own names.
pub(super) fn user_attrs(attrs: Vec<(BString, Bytes)>) -> UserAttrs {
    let user = attrs.into_iter().filter_map(|(name, value)| {
        let user_name = name.strip_prefix(&[USER_ATTR_PREFIX])?;
        (!user_name.is_empty()).then(|| (BString::from(user_name), value))
    });
    user.collect()
}

/// A cache of user attrs after a write; gives up above the bound.
pub(super) fn bounded(attrs: UserAttrs) -> Option<UserAttrs> {
    let len: usize = attrs.iter().map(|(name, value)| name.len() + value.len()).sum();
    (len <= CACHED_ATTRS_MAX_LEN).then_some(attrs)
}

fn hash(head: &HObject) -> u64 {
    FixedState::default().hash_one(head)
}

/// The contexts of one PG.
#[derive(Default)]
pub struct ObjectContexts {
    /// By head.
    slots: RefCell<HashTable<Rc<Slot>>>,
    /// Slots not in use, oldest first; at most [`IDLE_CONTEXTS_MAX`].
    idle: RefCell<BTreeMap<u64, Rc<Slot>>>,
    stamp: Cell<u64>,
    /// Watches are the primary's to keep.
    without_watches: bool,
}

impl ObjectContexts {
    /// No contexts.
    pub fn new() -> Rc<ObjectContexts> {
        Rc::new(ObjectContexts::default())
    }

    /// For one read on a copy that does not lead: what is loaded is used once, and brings no watches.
    pub fn for_one_read() -> Rc<ObjectContexts> {
        Rc::new(ObjectContexts { without_watches: true, ..ObjectContexts::default() })
    }

    /// Takes a place in the queue of the object of that head, at once.
    pub fn lock(self: &Rc<Self>, head: &HObject, kind: LockKind) -> Lock {
        debug_assert!(head.is_head());
        let slot = self.slot(head);
        let is_next = slot.queue.borrow().is_empty() || (kind == LockKind::Copy && slot.lent.get());
        let is_free = is_next && slot.admits(kind);
        let waiter = if is_free {
            slot.take(kind);
            None
        } else {
            let waiter = Waiter::of(kind);
            slot.queue.borrow_mut().push_back(waiter.clone());
            slot.advance();
            Some(waiter)
        };
        Lock { contexts: self.clone(), slot, kind, waiter, done: false }
    }

    fn slot(&self, head: &HObject) -> Rc<Slot> {
        let mut slots = self.slots.borrow_mut();
        let entry = slots.entry(hash(head), |slot| slot.head == *head, |slot| hash(&slot.head));
        let entry = entry.or_insert_with(|| Rc::new(Slot::new(head.clone())));
        let slot = entry.get().clone();
        drop(slots);
        let stamp = slot.idle_stamp.replace(0);
        if stamp != 0 {
            self.idle.borrow_mut().remove(&stamp);
        }
        slot
    }

    /// Puts a slot that nobody uses any more among the idle ones, and drops the oldest of those
    /// above the bound.
    pub(super) fn rest(&self, slot: &Rc<Slot>) {
        if slot.idle_stamp.get() != 0 || slot.is_in_use() {
            return;
        }
        if !slot.listed.get() {
            return;
        }
        if slot.contexts.borrow().is_empty() {
            self.unlist(slot);
            return;
        }
        let stamp = self.stamp.get() + 1;
        self.stamp.set(stamp);
        slot.idle_stamp.set(stamp);
        let mut idle = self.idle.borrow_mut();
        idle.insert(stamp, slot.clone());
        if idle.len() > IDLE_CONTEXTS_MAX
            && let Some((_, oldest)) = idle.pop_first()
        {
            oldest.idle_stamp.set(0);
            self.unlist(&oldest);
        }
    }

    fn find(&self, head: &HObject) -> Option<Rc<Slot>> {
        self.slots.borrow().find(hash(head), |slot| slot.head == *head).cloned()
    }

    fn unlist(&self, slot: &Rc<Slot>) {
        slot.listed.set(false);
        let mut slots = self.slots.borrow_mut();
        if let Ok(entry) = slots.find_entry(hash(&slot.head), |listed| Rc::ptr_eq(listed, slot)) {
            entry.remove();
        }
    }

    /// All slots, in the order of their objects.
    fn all(&self) -> Vec<Rc<Slot>> {
        let mut all: Vec<Rc<Slot>> = self.slots.borrow().iter().cloned().collect();
        all.sort_unstable_by(|a, b| a.head.cmp(&b.head));
        all
    }

    /// Frees the contexts nobody uses.
    pub fn drop_idle(&self) {
        for slot in core::mem::take(&mut *self.idle.borrow_mut()).into_values() {
            slot.idle_stamp.set(0);
            self.unlist(&slot);
        }
    }

    /// Forgets what is known of an object (head or clone) that something else has written. Its
    /// watches stay connected, as far as the object still has them when it is loaded again.
    pub fn forget(&self, oid: &HObject) {
        if self.slots.borrow().is_empty() {
            // As on a replica, always.
            return;
        }
        let slot = self.find(&oid.as_head());
        if let Some(slot) = slot {
            slot.generation.set(slot.generation.get() + 1);
            slot.contexts.borrow_mut().clear();
            *slot.ssc.borrow_mut() = None;
            self.rest(&slot);
        }
    }

    /// The object has been recovered: watches that timed out meanwhile end.
    pub fn end_overdue_watches(&self, oid: &HObject) {
        let slot = self.find(oid);
        for watch in slot.iter().flat_map(|slot| slot.watches()) {
            if watch.is_overdue() {
                watch.end();
            }
        }
    }

    /// Forgets all objects and watches (the interval ends; clients reconnect their watches to the
    /// next primary). Guards that are still held stay good for their own object only.
    pub fn clear(&self) {
        self.idle.borrow_mut().clear();
        let all = self.all();
        self.slots.take();
        for slot in all {
            slot.listed.set(false);
            slot.generation.set(slot.generation.get() + 1);
            for watch in core::mem::take(&mut *slot.watches.borrow_mut()).into_values() {
                watch.discard();
            }
        }
    }

    /// Ends the watches of clients that a new map blocklists, as if they had timed out.
    pub fn evict_watches(&self, is_blocklisted: impl Fn(&EntityAddr) -> bool) {
        for slot in self.all() {
            slot.watches().iter().filter(|w| is_blocklisted(&w.addr())).for_each(|w| w.evict());
        }
    }

    /// Objects with a context, for `perf dump` and tests.
    pub fn len(&self) -> usize {
        self.slots.borrow().len()
    }

    /// Whether no object has a context.
    pub fn is_empty(&self) -> bool {
        self.slots.borrow().is_empty()
    }

    /// All watches of the PG, as `dump_watchers` shows them.
    pub fn watch_items(&self) -> Vec<(HObject, WatchItem)> {
        let of_slot = |slot: Rc<Slot>| -> Vec<(HObject, WatchItem)> {
            slot.watches.borrow().values().map(|w| (slot.head.clone(), w.item())).collect()
        };
        self.all().into_iter().flat_map(of_slot).collect()
    }

    /// All watches of the PG as (object, cookie, watcher, connected).
    pub fn watches(&self) -> Vec<(HObject, u64, EntityName, bool)> {
        let mut found = Vec::new();
        for slot in self.all() {
            for (&(cookie, watcher), watch) in slot.watches.borrow().iter() {
                found.push((slot.head.clone(), cookie, watcher, watch.is_connected()));
            }
        }
        found
    }
}
