//! What an OSD's memory goes to: `cargo run --release -p loligo-osd --example memory -- [DIR]
//! [OBJECTS] [PGS]`.
//!
//! Objects of 4 MiB in an InkStore are overwritten in 4 KiB pieces, with the PG log that an OSD keeps of
//! that, until every PG has as many entries and dups as it ever has. Counts the bytes that are asked
//! of the allocator and not given back, of each part by itself.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use denc::Denc;
use device::BlockDevice;
use device::memory::Choices;
use env::{AlignedBuf, Env, OpenBlock};
use osd::pg::log::Log;
use osd::pg::persist::Keys;
use store::inkstore::{InkStore, MkfsOptions};
use store::{CollId, ObjectStore, Transaction};
use types::osd::{LogOp, ObjectCleanRegions, ObjectInfo, ObjectStatSum, PgInfo, PgLogEntry};
use types::{EVersion, EntityName, GhObject, HObject, NOSNAP, OsdReqId, UTime};

const OBJECT_LEN: u64 = 4 << 20;
const BLOCK: u64 = 4096;
/// As `osd_min_pg_log_entries`, `osd_pg_log_trim_min` and `osd_pg_log_dups_tracked`.
const ENTRIES: usize = 250;
const TRIM_MIN: usize = 100;
const DUPS: usize = 3000;

struct Counting;

static LIVE: AtomicI64 = AtomicI64::new(0);

// SAFETY: all is passed on as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn live() -> i64 {
    LIVE.load(Ordering::Relaxed)
}

fn show(what: &str, bytes: i64, each: u64, of: &str) {
    let per = bytes as f64 / each.max(1) as f64;
    println!("{what:44} {:8.2} MiB, {per:8.1} bytes {of}", bytes as f64 / f64::from(1 << 20));
}

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let objects = args.next().map_or(160, |n| n.parse().expect("a number of objects"));
    let pgs = args.next().map_or(32, |n| n.parse().expect("a number of PGs"));
    let path = dir.join(format!("memory.{}", std::process::id()));
    let file = path.clone();
    let runtime = env::real::Runtime::new().expect("io_uring or epoll");
    runtime.block_on(move |env| run(env, file, objects, pgs));
    let _ = std::fs::remove_file(path);
}

struct Pg {
    cid: CollId,
    meta: GhObject,
    log: Log,
    info: PgInfo,
    written: RefCell<ObjectStatSum>,
}

async fn run(env: Env, path: PathBuf, objects: u64, pgs: u64) {
    let options = OpenBlock { create_len: Some(objects * OBJECT_LEN * 2), read_only: false };
    let device = BlockDevice::open(&env, &path, options).expect("a file");
    let mkfs = MkfsOptions { uuid: [1; 16], log_len: None };
    InkStore::mkfs(&device, mkfs).await.expect("mkfs");
    let start = live();
    let store = InkStore::mount(env, device).await.expect("a store");
    show("an empty store", live() - start, 1, "");
    let mut choices = Choices::new(1);
    let mut data = AlignedBuf::zeroed(1 << 20);
    data.iter_mut().for_each(|byte| *byte = choices.below(256) as u8);
    let data = data.freeze();
    let mut all = make(&store, pgs).await;
    let names: Vec<HObject> = (0..objects)
        .map(|n| HObject {
            name: format!("rbd_data.1f2e3d4c5b6a.{n:016x}").into(),
            hash: (n as u32).wrapping_mul(0x9e37_79b9),
            snap: NOSNAP,
            pool: 1,
            ..HObject::default()
        })
        .collect();
    let before = live();
    for (n, oid) in names.iter().enumerate() {
        let pg = &all[n % all.len()];
        let mut t = Transaction::new();
        t.touch(&pg.cid, &GhObject::from(oid.clone()));
        store.submit(t).await.expect("an object");
    }
    let empty = live() - before;
    for (n, oid) in names.iter().enumerate() {
        for at in (0..OBJECT_LEN).step_by(data.len()) {
            let mut t = Transaction::new();
            t.write(&all[n % all.len()].cid, &GhObject::from(oid.clone()), at, data.clone());
            store.submit(t).await.expect("data");
        }
    }
    store.checkpoint().await.expect("a checkpoint");
    let blocks = objects * OBJECT_LEN / BLOCK;
    show("objects, without xattrs and data", empty, objects, "an object");
    show("their blocks", live() - before - empty, blocks, "a block");

    let before = live();
    let mut tid = 0;
    let mut write = async |all: &mut [Pg], count: u64| {
        for _ in 0..count {
            tid += 1;
            let n = choices.below(objects);
            let at = choices.below(OBJECT_LEN / BLOCK) * BLOCK;
            let from = choices.below(data.len() as u64 / BLOCK) * BLOCK;
            let from = usize::try_from(from).expect("less than the data");
            let bytes = data.slice(from..from + BLOCK as usize);
            let pgs = all.len();
            all[n as usize % pgs].write(&store, &names[n as usize], tid, at, bytes).await;
        }
    };
    // Each PG has its entries, and then its dups.
    write(&mut all, pgs * (ENTRIES + TRIM_MIN) as u64 / 2).await;
    let first = live() - before;
    write(&mut all, pgs * (DUPS + ENTRIES + 2 * TRIM_MIN) as u64 * 5 / 4).await;
    let (entries, dups) = all.iter().fold((0, 0), |(entries, dups), pg| {
        (entries + pg.log.len() as u64, dups + pg.log.dups().count() as u64)
    });
    println!("{entries} log entries and {dups} dups in {pgs} PGs");
    show("logs, half full, without dups", first, entries / 2, "an entry");
    let with_all = live() - before;
    all.iter_mut().for_each(|pg| pg.log = Log::default());
    let of_store = live() - before;
    show("logs in memory", with_all - of_store, entries + dups, "an entry or dup");
    show("logs in the store, and what changed", of_store, entries + dups, "an entry or dup");
    store.checkpoint().await.expect("a checkpoint");
    show("the same after a checkpoint", live() - before, entries + dups, "an entry or dup");
}

async fn make(store: &InkStore, pgs: u64) -> Vec<Pg> {
    let mut all = Vec::new();
    for n in 0..pgs {
        let cid = CollId::Pg(format!("1.{n:x}").parse().expect("a PG"));
        let meta = cid.spg().expect("a PG's collection").pgmeta();
        let mut t = Transaction::new();
        t.mkcoll(&cid, 5).touch(&cid, &meta);
        let mut keys = Keys::default();
        let info = PgInfo::default();
        keys.info(&info, None, 1);
        keys.add_to(&cid, &meta, &mut t);
        store.submit(t).await.expect("a PG");
        all.push(Pg { cid, meta, log: Log::default(), info, written: RefCell::default() });
    }
    all
}

impl Pg {
    async fn write(&mut self, store: &InkStore, oid: &HObject, tid: u64, at: u64, data: Bytes) {
        let version = EVersion::new(12, self.log.head().version + 1);
        let reqid = OsdReqId { name: EntityName::client(4123), tid, inc: 0 };
        let mtime = UTime::from_duration(std::time::Duration::from_nanos(tid * 7_654_321));
        let mut clean_regions = ObjectCleanRegions::default();
        clean_regions.mark_data_region_dirty(at, data.len() as u64);
        self.log.add(&PgLogEntry {
            op: LogOp::MODIFY,
            soid: oid.clone(),
            version,
            prior_version: EVersion::new(12, version.version / 2),
            user_version: version.version,
            reqid,
            mtime,
            clean_regions,
            ..PgLogEntry::default()
        });
        let excess = self.log.len().saturating_sub(ENTRIES);
        if excess >= TRIM_MIN {
            let to = self.log.version_at(excess - 1).expect("an entry");
            self.log.trim(to, DUPS);
        }
        self.info.last_update = version;
        let goid = GhObject::from(oid.clone());
        let mut t = Transaction::new();
        t.write(&self.cid, &goid, at, data);
        let oi = ObjectInfo {
            soid: oid.clone(),
            version,
            size: OBJECT_LEN,
            mtime,
            last_reqid: reqid,
            ..ObjectInfo::default()
        };
        t.setattr(&self.cid, &goid, "_", oi.to_bytes());
        let mut keys = Keys::default();
        keys.log(self.log.take_changes());
        keys.info_of_write(&self.info, 12, &self.written);
        keys.add_to(&self.cid, &self.meta, &mut t);
        store.submit(t).await.expect("a write");
    }
}
