//! The interpreter on a memory store: each op, its errors, and what a PG would see of it.

mod classes;
mod copying;
mod data;
mod erasure;
mod fuzz;
mod keys;
mod listing;
mod locking;
mod snapshots;
mod watching;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::{Rc, Weak};
use std::time::Duration;

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use env::{Env, LocalFuture};
use maps::PgPool;
use messages::{MWatchNotify, Message};
use store::memstore::MemStore;
use store::{CollId, ObjectStore, Transaction};
use types::osd::ops::{self, message_flags};
use types::osd::{LogOp, ObjectStatSum, OsdOp, PgLogEntry};
use types::{
    AddrType, EVersion, EntityAddr, EntityName, Epoch, Errno, GhObject, HObject, NOSNAP,
    ObjectLocator, OsdReqId, PgId, RawMessage, SnapContext, SnapId, SpgId, UTime,
};

use super::*;

const POOL: i64 = 3;

/// A PG of one OSD: commits at once, remembers its log.
pub(super) struct TestPg {
    me: Weak<TestPg>,
    env: Env,
    store: Rc<dyn ObjectStore>,
    pub(super) pool: RefCell<PgPool>,
    pub(super) limits: RefCell<Limits>,
    pub(super) contexts: Rc<ObjectContexts>,
    pub(super) log: RefCell<Vec<PgLogEntry>>,
    pub(super) stats: RefCell<ObjectStatSum>,
    version: Cell<u64>,
    user_version: Cell<u64>,
    notify_ids: Cell<u64>,
    tids: Cell<u64>,
    pub(super) missing: RefCell<Vec<MissingObject>>,
    pub(super) removed_snaps: RefCell<Vec<SnapId>>,
    /// Objects that were called damaged.
    pub(super) damaged: RefCell<Vec<HObject>>,
    pub(super) blocklist: RefCell<Vec<EntityAddr>>,
    pub(super) mapper: SnapMapper,
}

/// A client with the messages it has been sent.
pub(super) struct TestClient {
    pub(super) client: Rc<Client>,
    pub(super) inbox: Rc<RefCell<Vec<MWatchNotify>>>,
}

struct Inbox(Rc<RefCell<Vec<MWatchNotify>>>);

impl Sink for Inbox {
    fn send(&self, message: RawMessage) {
        self.0.borrow_mut().push(MWatchNotify::decode(&message).unwrap());
    }
}

pub(super) fn client(num: i64) -> TestClient {
    let inbox = Rc::new(RefCell::new(Vec::new()));
    let addr = EntityAddr::parse("127.0.0.1:0/9", AddrType::Any).unwrap();
    let sink = Box::new(Inbox(inbox.clone()));
    TestClient { client: Client::new(EntityName::client(num), addr, sink), inbox }
}

/// Runs a test on a PG, under a virtual clock.
pub(super) fn on_pg<F: Future<Output = ()> + 'static>(
    test: impl FnOnce(Rc<TestPg>) -> F + 'static,
) {
    let world = sim::World::new(7);
    let env = world.node("osd.0");
    world.run_until(async move {
        let pg = TestPg::new(env).await;
        test(pg).await;
    });
}

impl TestPg {
    async fn new(env: Env) -> Rc<TestPg> {
        let store: Rc<dyn ObjectStore> = Rc::new(MemStore::new(1 << 30));
        let coll = CollId::Pg(PgId::new(POOL as u64, 0).spg());
        let mapper = SnapMapper::new(store.clone(), CollId::Meta, SnapMapper::default_object());
        let mut t = Transaction::new();
        t.mkcoll(&coll, 0).mkcoll(&CollId::Meta, 0);
        mapper.create(&mut t);
        store.submit(t).await.unwrap();
        let pool = PgPool { pg_num: 1, pgp_num: 1, ..PgPool::default() };
        Rc::new_cyclic(|me| TestPg {
            me: me.clone(),
            env,
            store,
            pool: RefCell::new(pool),
            limits: RefCell::default(),
            contexts: ObjectContexts::new(),
            log: RefCell::default(),
            stats: RefCell::default(),
            version: Cell::new(0),
            user_version: Cell::new(0),
            notify_ids: Cell::new(0),
            tids: Cell::new(0),
            missing: RefCell::default(),
            removed_snaps: RefCell::default(),
            damaged: RefCell::default(),
            blocklist: RefCell::default(),
            mapper,
        })
    }

    pub(super) fn as_pg(&self) -> Rc<dyn Pg> {
        self.me.upgrade().unwrap()
    }

    /// Bits of the object hash that the PG's objects share.
    pub(super) fn request(&self, name: &str, ops: Vec<OsdOp>) -> Request {
        self.request_of(&client(4123).client, name, ops)
    }

    pub(super) fn request_of(&self, client: &Rc<Client>, name: &str, ops: Vec<OsdOp>) -> Request {
        let flags = message_flags::ONDISK;
        self.tids.set(self.tids.get() + 1);
        Request {
            oid: oid(name),
            info: OpInfo::of(&ops, flags, &ClassLists::default()).unwrap_or_default(),
            ops,
            sums: None,
            snapc: SnapContext::default(),
            mtime: UTime::new(1_600_000_000, 0),
            flags,
            reqid: OsdReqId { name: client.name(), tid: self.tids.get(), inc: 0 },
            features: u64::MAX,
            pgid: PgId::new(POOL as u64, 0),
            retry_attempt: 0,
            client: client.clone(),
        }
    }

    /// What the PG does with a request, up to the reply.
    pub(super) async fn run(&self, request: Request) -> Reply {
        self.try_run(request).await.expect("neither blocked nor dropped")
    }

    pub(super) async fn try_run(&self, request: Request) -> Option<Reply> {
        let limits = self.limits.borrow().clone();
        if let Err(errno) = check_request(&request, &limits) {
            return Some(Reply::refusal(&request, errno));
        }
        let lock = self.contexts.lock(&request.oid.head(), LockKind::of(&request));
        let guard = lock.await;
        let request = Rc::new(request);
        let pg = self.as_pg();
        let Executed { mut reply, effects, kind } = execute(&pg, guard, request.clone()).await;
        match kind {
            Kind::Read(guard) => {
                let guard = guard.settled().await;
                effects.apply(&pg, &guard, &request.client);
                Some(reply)
            }
            Kind::LogError(guard) => {
                effects.apply(&pg, &guard, &request.client);
                let at = self.next();
                self.log.borrow_mut().push(error_entry(&request, &reply, at));
                self.version.set(at.version);
                reply.set_logged(at, self.last_update(), self.user_version.get());
                Some(reply)
            }
            Kind::Write(pending) => Some(self.commit(pending, &request.client).await),
            Kind::Blocked(_) | Kind::Dropped => None,
        }
    }

    fn next(&self) -> EVersion {
        EVersion::new(1, self.version.get() + 1)
    }

    /// Finishes, submits and commits a write.
    pub(super) async fn commit(&self, pending: PendingWrite, client: &Rc<Client>) -> Reply {
        let mutation = pending.finish(self.next(), self.user_version.get());
        let t = mutation.transaction;
        // The transaction must survive the wire.
        let expected: Vec<u64> = (self.next().version..).take(mutation.entries.len()).collect();
        let versions: Vec<u64> = mutation.entries.iter().map(|e| e.version.version).collect();
        assert_eq!(versions, expected);
        assert_eq!(mutation.at_version.version, *expected.last().unwrap());
        self.version.set(mutation.at_version.version);
        self.user_version.set(mutation.user_version);
        self.stats.borrow_mut().add(&mutation.stats);
        self.log.borrow_mut().extend(mutation.entries);
        self.store.submit(t).await.unwrap();
        mutation.effects.apply(&self.as_pg(), &mutation.guard, client);
        mutation.reply
    }

    /// The result of one op on `name`.
    pub(super) async fn op(&self, name: &str, op: OsdOp) -> Result<Bytes, Errno> {
        let reply = self.run(self.request(name, vec![op])).await;
        match Errno::from_result(reply.result) {
            Some(errno) => Err(errno),
            None => Ok(reply.ops[0].outdata.to_contiguous()),
        }
    }

    pub(super) async fn put(&self, name: &str, data: &'static [u8]) {
        let op = OsdOp::extent(ops::WRITEFULL, 0, data.len() as u64, Bytes::from_static(data));
        self.op(name, op).await.unwrap();
    }

    pub(super) async fn get(&self, name: &str) -> Result<Bytes, Errno> {
        self.op(name, OsdOp::extent(ops::READ, 0, 0, Bytes::new())).await
    }

    /// Statistics must agree with what is in the store.
    pub(super) async fn check_stats(&self) {
        let coll = self.coll();
        let list = self.store.list(&coll, &types::GhObject::min(), &types::GhObject::max(), 10_000);
        let objects = list.await.unwrap().objects;
        let (mut clones, mut whiteouts, mut bytes, mut omap) = (0, 0, 0, 0);
        for goid in &objects {
            let oi = self.store.getattr(&coll, goid, b"_").await.unwrap();
            let oi = types::osd::ObjectInfo::from_bytes_exact(&oi).unwrap();
            assert_eq!(oi.soid, goid.hobj);
            assert_eq!(oi.size, self.store.stat(&coll, goid).await.unwrap().size, "{goid}");
            whiteouts += i64::from(oi.is_whiteout());
            omap += i64::from(oi.is_omap());
            if goid.hobj.snap == NOSNAP {
                bytes += oi.size as i64;
                let set = self.store.getattr(&coll, goid, b"snapset").await.unwrap();
                let set = types::osd::SnapSet::from_bytes_exact(&set).unwrap();
                for clone in &set.clones {
                    bytes += set.clone_bytes(*clone) as i64;
                    let clone = types::GhObject::from(goid.hobj.with_snap(*clone));
                    assert!(objects.contains(&clone), "{clone}");
                }
            } else {
                clones += 1;
            }
        }
        let stats = self.stats.borrow();
        assert_eq!(stats.num_objects, objects.len() as i64);
        assert_eq!(stats.num_object_clones, clones);
        assert_eq!(stats.num_whiteouts, whiteouts);
        assert_eq!(stats.num_objects_omap, omap);
        assert_eq!(stats.num_bytes, bytes);
    }

    /// The info of a head as it is stored.
    pub(super) async fn object_info(&self, name: &str) -> types::osd::ObjectInfo {
        let goid = GhObject::from(oid(name));
        let stored = self.store.getattr(&self.coll(), &goid, b"_").await.unwrap();
        types::osd::ObjectInfo::from_bytes(&stored).unwrap()
    }

    /// The digests in object infos are those of what is stored.
    pub(super) async fn check_digests(&self) {
        let (store, coll) = (self.store.clone(), self.coll());
        let (first, last) = (GhObject::min(), GhObject::max());
        let all = store.list(&coll, &first, &last, usize::MAX).await.unwrap().objects;
        for oid in all.iter().filter(|oid| !oid.is_pgmeta()) {
            let oi = store.getattr(&coll, oid, b"_").await.unwrap();
            let oi = types::osd::ObjectInfo::from_bytes(&oi).unwrap();
            let data = store.read(&coll, oid, 0, 0).await.unwrap();
            if oi.is_data_digest() {
                assert_eq!(oi.data_digest, data.crc32c(u32::MAX), "{oid}: {} bytes", data.len());
            }
            if oi.is_omap_digest() {
                let header = store.omap_header(&coll, oid).await.unwrap();
                let page = store.omap_range(&coll, oid, b"", false, 1, usize::MAX).await.unwrap();
                let is_empty = header.is_empty() && page.entries.is_empty();
                assert!(is_empty && oi.omap_digest == u32::MAX, "{oid}");
            }
        }
    }

    pub(super) fn last_entry(&self) -> PgLogEntry {
        self.log.borrow().last().unwrap().clone()
    }
}

pub(super) fn oid(name: &str) -> HObject {
    let locator = ObjectLocator { pool: POOL, ..ObjectLocator::default() };
    HObject::new(name, &locator, NOSNAP)
}

impl Pg for TestPg {
    fn env(&self) -> &Env {
        &self.env
    }
    fn store(&self) -> &Rc<dyn ObjectStore> {
        &self.store
    }
    fn snap_mapper(&self) -> &SnapMapper {
        &self.mapper
    }
    fn coll(&self) -> CollId {
        CollId::Pg(self.pgid())
    }
    fn pgid(&self) -> SpgId {
        PgId::new(POOL as u64, 0).spg()
    }
    fn pool(&self) -> Rc<PgPool> {
        Rc::new(self.pool.borrow().clone())
    }
    fn limits(&self) -> Rc<Limits> {
        Rc::new(self.limits.borrow().clone())
    }
    fn last_update(&self) -> EVersion {
        EVersion::new(1, self.version.get())
    }
    fn last_user_version(&self) -> u64 {
        self.user_version.get()
    }
    fn interval_since(&self) -> Epoch {
        1
    }
    fn scrub_results(&self) -> Option<GhObject> {
        None
    }
    fn on_unreadable(&self, oid: &HObject, _: EVersion) -> bool {
        self.damaged.borrow_mut().push(oid.clone());
        false
    }
    fn is_snap_removed(&self, snap: SnapId) -> bool {
        self.removed_snaps.borrow().contains(&snap)
    }
    fn is_unreadable(&self, oid: &HObject) -> bool {
        self.missing.borrow().iter().any(|missing| missing.oid == *oid)
    }
    fn is_degraded(&self, _: &HObject) -> bool {
        false
    }
    fn missing_from(&self, from: &HObject, max: usize) -> Vec<MissingObject> {
        let missing = self.missing.borrow();
        missing.iter().filter(|m| m.oid >= *from).take(max).cloned().collect()
    }
    fn object_reqids(&self, oid: &HObject, max: usize) -> Vec<(OsdReqId, u64, i32)> {
        let log = self.log.borrow();
        let of_object = log.iter().rev().filter(|e| e.soid == *oid && e.reqid_is_indexed());
        of_object.take(max).map(|e| (e.reqid, e.user_version, e.return_code)).collect()
    }
    fn read_remote(&self, read: RemoteRead) -> LocalFuture<Result<RemoteReply, Errno>> {
        let me = self.me.upgrade().unwrap();
        Box::pin(async move {
            // It goes over a network: others get their turn, and their locks.
            me.env.sleep(Duration::from_millis(1)).await;
            let osd = client(0).client.addr();
            let osd = Client::new(EntityName::osd(0), osd, Box::new(Inbox(Rc::default())));
            let mut request = me.request_of(&osd, "", read.ops);
            request.oid = HObject::new(read.name, &read.locator, read.snap);
            let reply = me.run(request).await;
            let (_, _, user_version) = reply.versions.on_wire();
            let ops = reply.ops.iter().map(|op| (op.rval, op.outdata.to_contiguous())).collect();
            Ok(RemoteReply { result: reply.result, ops, user_version })
        })
    }
    fn is_blocklisted(&self, addr: &EntityAddr) -> bool {
        self.blocklist.borrow().contains(addr)
    }
    fn next_notify_id(&self) -> u64 {
        self.notify_ids.set(self.notify_ids.get() + 1);
        1 << 32 | self.notify_ids.get()
    }
    fn on_watch_timeout(&self, oid: &HObject, cookie: u64, watcher: EntityName) {
        let me = self.me.upgrade().unwrap();
        let oid = oid.clone();
        self.env.go(async move {
            let guard = me.contexts.lock(&oid, LockKind::Write).await;
            let pg = me.as_pg();
            if let Overdue::Ends(pending) =
                watch::execute_timeout(&pg, guard, cookie, watcher).await.unwrap()
            {
                me.commit(pending, &watch::no_client()).await;
            }
        });
    }
}

/// A vector with one class call.
pub(super) fn call(class: &str, method: &str, input: &[u8]) -> OsdOp {
    OsdOp::call(class, method, input).unwrap()
}

/// A key of a client.
pub(super) fn key(text: &str) -> BString {
    text.into()
}

/// What kind the last entry of the log is.
pub(super) fn last_op(pg: &TestPg) -> LogOp {
    pg.last_entry().op
}
