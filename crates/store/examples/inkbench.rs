//! What a 4 KiB write costs InkStore alone: `cargo run --release -p loligo-store --example inkbench
//! -- [DIR] [SECONDS] [DEVICE_MIB]`.
//!
//! Each write is the transaction an OSD submits for it: 4 KiB of data, the object's two xattrs, a
//! pg log entry, the PG's info, and a trimmed log key. Prints operations, CPU of the process and
//! device bytes by cause for each queue depth.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use bstr::BString;
use bytes::Bytes;
use device::memory::Choices;
use device::{BlockDevice, WriteCause};
use env::{AlignedBuf, Env, OpenBlock};
use store::inkstore::{InkStore, MkfsOptions};
use store::{CollId, ObjectStore, Transaction};
use types::hobject::{GhObject, HObject};

const PGS: u64 = 32;
const OBJECT_LEN: u64 = 4 << 20;
/// Entries a pg log keeps.
const LOG_ENTRIES: u64 = 1000;

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let seconds = args.next().map_or(4, |s| s.parse().expect("seconds"));
    let device_len = args.next().map_or(2048, |s| s.parse::<u64>().expect("MiB")) << 20;
    let path = dir.join(format!("inkbench.{}", std::process::id()));
    let file = path.clone();
    let runtime = env::real::Runtime::new().expect("io_uring or epoll");
    runtime.block_on(move |env| run(env, file, seconds, device_len));
    let _ = std::fs::remove_file(path);
}

async fn run(env: Env, path: PathBuf, seconds: u64, device_len: u64) {
    let options = OpenBlock { create_len: Some(device_len), read_only: false };
    let device = BlockDevice::open(&env, &path, options).expect("file can be made");
    println!("device {} MiB, sectors of {}", device_len >> 20, device.block_len());
    let mkfs = MkfsOptions { uuid: [1; 16], log_len: None };
    InkStore::mkfs(&device, mkfs).await.expect("mkfs");
    let store = Rc::new(InkStore::mount(env.clone(), device).await.expect("mount"));
    let load = Rc::new(Load::new(device_len / 2 / OBJECT_LEN));
    load.fill(&store).await;
    for depth in [1, 4, 32, 128] {
        measure(&env, &store, &load, depth, Duration::from_secs(seconds)).await;
    }
    reads(&env, &store, &load).await;
    new_objects(&env, &store, Duration::from_secs(seconds)).await;
    large(&env, &store, &load, Duration::from_secs(seconds)).await;
    let path = &path;
    let reopen = async |store: Rc<InkStore>| {
        drop(store);
        // Its tasks see that and let the file go.
        env.sleep(Duration::from_millis(100)).await;
        let device = BlockDevice::open(&env, path, OpenBlock::default()).expect("open");
        let before = env.now();
        let store = InkStore::mount(env.clone(), device).await.expect("mount");
        let (read, time) = (store.device().ledger().read() >> 20, env.now() - before);
        println!("mount: {time:?}, {read} MiB read, {} MiB resident", resident_kib() >> 10);
        Rc::new(store)
    };
    println!("killed:");
    let store = reopen(store).await;
    let before = env.now();
    store.close().await.expect("close");
    println!("close with a checkpoint: {:?}", env.now() - before);
    let store = reopen(store).await;
    let report = store.fsck(false).await.expect("fsck");
    println!("fsck: {} objects, {} blocks, {:?}", report.objects, report.blocks, report.errors);
}

struct Load {
    objects: Vec<(CollId, GhObject)>,
    data: Bytes,
    choices: std::cell::RefCell<Choices>,
    /// Of each PG.
    versions: std::cell::RefCell<Vec<u64>>,
}

impl Load {
    fn new(objects: u64) -> Load {
        let mut choices = Choices::new(1);
        let object = |n: u64| {
            let hash = (n as u32).wrapping_mul(0x9e37_79b9);
            let cid = CollId::Pg(format!("1.{:x}", n % PGS).parse().expect("a PG"));
            let name = format!("rbd_data.1f2e3d4c5b6a.{n:016x}").into();
            let snap = u64::MAX - 1;
            (cid, GhObject::new(HObject { name, hash, snap, pool: 1, ..HObject::default() }))
        };
        let mut data = AlignedBuf::zeroed(OBJECT_LEN as usize);
        data.iter_mut().for_each(|b| *b = choices.below(256) as u8);
        Load {
            objects: (0..objects).map(object).collect(),
            data: data.freeze(),
            choices: choices.into(),
            versions: vec![0; PGS as usize].into(),
        }
    }

    async fn fill(&self, store: &InkStore) {
        for pg in 0..PGS {
            let cid = CollId::Pg(format!("1.{pg:x}").parse().expect("a PG"));
            let mut t = Transaction::new();
            t.mkcoll(&cid, 5).touch(&cid, &pgmeta(&cid));
            store.submit(t).await.expect("mkcoll");
        }
        for (cid, oid) in &self.objects {
            let mut t = Transaction::new();
            t.write(cid, oid, 0, self.data.clone());
            store.submit(t).await.expect("fill");
        }
    }

    /// One 4 KiB overwrite at a random place.
    fn transaction(&self) -> Transaction {
        let mut choices = self.choices.borrow_mut();
        let (cid, oid) = &self.objects[choices.below(self.objects.len() as u64) as usize];
        let pg = cid.spg().map_or(0, |pg| pg.pgid.seed);
        let version = {
            let mut versions = self.versions.borrow_mut();
            versions[pg as usize] += 1;
            versions[pg as usize]
        };
        let at = choices.below(OBJECT_LEN / 4096) * 4096;
        let from = choices.below(OBJECT_LEN / 4096 - 1) as usize * 4096;
        let meta = pgmeta(cid);
        let mut t = Transaction::new();
        t.write(cid, oid, at, self.data.slice(from..from + 4096));
        let attrs =
            [("_", sample(250, version, &oid.hobj.name)), ("snapset", Bytes::from(vec![0; 31]))];
        t.setattrs(cid, oid, attrs.map(|(k, v)| (BString::from(k), v)));
        let key = |v: u64| BString::from(format!("0000000012.{v:020}"));
        let entries: BTreeMap<_, _> = [
            (key(version), sample(190, version, &oid.hobj.name)),
            ("_fastinfo".into(), sample(186, version, b"")),
        ]
        .into();
        t.omap_setkeys(cid, &meta, entries);
        if version > LOG_ENTRIES {
            t.omap_rmkeys(cid, &meta, BTreeSet::from([key(version - LOG_ENTRIES)]));
        }
        t
    }
}

/// Bytes like an object_info_t or pg_log_entry_t: mostly constant, with a name, a version, a
/// request id and times in them, and a checksum at the end.
fn sample(len: usize, version: u64, name: &[u8]) -> Bytes {
    let mut bytes = vec![0x42; len];
    bytes[20..20 + name.len()].copy_from_slice(name);
    for (at, salt) in [(80, 1), (100, 1), (118, 7), (140, 13)] {
        bytes[at..at + 8].copy_from_slice(&(version * salt).to_le_bytes());
    }
    let mut crc = Choices::new(version);
    bytes[len - 4..].copy_from_slice(&(crc.below(1 << 32) as u32).to_le_bytes());
    bytes.into()
}

fn pgmeta(cid: &CollId) -> GhObject {
    let pg = cid.spg().expect("a PG's collection");
    pg.pgmeta()
}

async fn measure(env: &Env, store: &Rc<InkStore>, load: &Rc<Load>, depth: u64, time: Duration) {
    let ledger = store.device().ledger();
    let snapshot = || WriteCause::ALL.map(|cause| ledger.written(cause));
    let before = (snapshot(), ledger.writes(), ledger.syncs(), cpu_parts(), env.now());
    let deadline = env.now() + time;
    let workers = (0..depth).map(|_| {
        let (env, store, load) = (env.clone(), store.clone(), load.clone());
        env.clone().spawn_with_handle(async move {
            let (mut ops, mut worst) = (0, Duration::ZERO);
            while env.now() < deadline {
                let start = env.now();
                store.submit(load.transaction()).await.expect("write");
                worst = worst.max(env.now() - start);
                ops += 1;
            }
            (ops, worst)
        })
    });
    let workers: Vec<_> = workers.collect();
    let (mut ops, mut worst) = (0_u64, Duration::ZERO);
    for worker in workers {
        let (n, slowest) = worker.await;
        ops += n;
        worst = worst.max(slowest);
    }
    let elapsed = (env.now() - before.4).as_secs_f64();
    let cpu = cpu_parts();
    let us = |time: Duration| time.as_secs_f64() * 1e6 / ops as f64;
    let (user, system) = (us(cpu.0 - before.3.0), us(cpu.1 - before.3.1));
    let after = snapshot();
    let client = ops as f64 * 4096.0;
    let total: u64 = after.iter().zip(before.0).map(|(a, b)| a - b).sum();
    println!(
        "depth {depth:3}: {:7.0} op/s, CPU {user:.1} + {system:.1} us an op, WAF {:.3}, {:.2} writes and {:.2} syncs \
         an op, slowest {worst:?}, {} MiB resident",
        ops as f64 / elapsed,
        total as f64 / client,
        (ledger.writes() - before.1) as f64 / ops as f64,
        (ledger.syncs() - before.2) as f64 / ops as f64,
        resident_kib() >> 10,
    );
    for (cause, (a, b)) in WriteCause::ALL.iter().zip(after.iter().zip(before.0)) {
        if a - b > 0 {
            let bytes = (a - b) as f64 / ops as f64;
            println!("           {:10} {bytes:8.1} bytes an op", cause.name());
        }
    }
}

/// What a run of `work` by some workers came to.
async fn report<F: Future<Output = u64> + 'static>(
    env: &Env,
    store: &Rc<InkStore>,
    what: &str,
    op_len: u64,
    workers: impl Iterator<Item = F>,
) {
    let ledger = store.device().ledger();
    let before = (ledger.written_total(), ledger.writes(), cpu(), env.now(), resident_kib());
    let workers: Vec<_> = workers.map(|w| env.spawn_with_handle(w)).collect();
    let mut ops = 0;
    for worker in workers {
        ops += worker.await;
    }
    let time = (env.now() - before.3).as_secs_f64();
    println!(
        "{what}: {:.0} op/s, {:.1} MB/s, {:.1} us CPU/op, WAF {:.3}, {:.2} writes an op, {} MiB more resident",
        ops as f64 / time,
        (ops * op_len) as f64 / time / 1e6,
        (cpu() - before.2).as_secs_f64() * 1e6 / ops as f64,
        (ledger.written_total() - before.0) as f64 / (ops * op_len) as f64,
        (ledger.writes() - before.1) as f64 / ops as f64,
        (resident_kib().saturating_sub(before.4)) >> 10,
    );
}

/// New objects of 4 KiB, 32 at a time.
async fn new_objects(env: &Env, store: &Rc<InkStore>, time: Duration) {
    let deadline = env.now() + time;
    let next = Rc::new(std::cell::Cell::new(0_u64));
    let data = AlignedBuf::zeroed(4096).freeze();
    let workers = (0..32).map(|_| {
        let (env, store, next, data) = (env.clone(), store.clone(), next.clone(), data.clone());
        async move {
            let mut ops = 0;
            while env.now() < deadline {
                let n = next.replace(next.get() + 1);
                let name = format!("benchmark_data_host_12345_object{n}");
                let hash = (n as u32).wrapping_mul(0x9e37_79b9);
                let cid = CollId::Pg(format!("1.{:x}", n % PGS).parse().expect("a PG"));
                let hobj = HObject {
                    name: name.into(),
                    hash,
                    snap: u64::MAX - 1,
                    pool: 1,
                    ..HObject::default()
                };
                let oid = GhObject::new(hobj);
                let mut t = Transaction::new();
                t.write(&cid, &oid, 0, data.clone());
                t.setattr(&cid, &oid, "_", sample(250, n, &oid.hobj.name));
                t.setattr(&cid, &oid, "snapset", vec![0; 31]);
                let key = BString::from(format!("0000000013.{n:020}"));
                let entries = [(key, sample(190, n, &oid.hobj.name))];
                t.omap_setkeys(&cid, &pgmeta(&cid), entries);
                if n >= LOG_ENTRIES * PGS {
                    let old = format!("0000000013.{:020}", n - LOG_ENTRIES * PGS).into();
                    t.omap_rmkeys(&cid, &pgmeta(&cid), BTreeSet::from([old]));
                }
                store.submit(t).await.expect("write");
                ops += 1;
            }
            ops
        }
    });
    report(env, store, "new objects of 4 KiB, depth 32", 4096, workers).await;
}

/// Overwrites of whole 4 MiB objects, 16 at a time, then their reads.
async fn large(env: &Env, store: &Rc<InkStore>, load: &Rc<Load>, time: Duration) {
    for write in [true, false] {
        let deadline = env.now() + time;
        let workers = (0..16_u64).map(|worker| {
            let (env, store, load) = (env.clone(), store.clone(), load.clone());
            async move {
                let (mut choices, mut ops) = (Choices::new(worker), 0);
                while env.now() < deadline {
                    let pick = choices.below(load.objects.len() as u64) as usize;
                    let (cid, oid) = &load.objects[pick];
                    if write {
                        let mut t = Transaction::new();
                        t.write(cid, oid, 0, load.data.clone());
                        store.submit(t).await.expect("write");
                    } else {
                        let data = store.read(cid, oid, 0, OBJECT_LEN).await.expect("read");
                        assert_eq!(data.len() as u64, OBJECT_LEN);
                    }
                    ops += 1;
                }
                ops
            }
        });
        let what = if write { "writes" } else { "reads" };
        report(env, store, &format!("{what} of 4 MiB, depth 16"), OBJECT_LEN, workers).await;
    }
}

async fn reads(env: &Env, store: &Rc<InkStore>, load: &Rc<Load>) {
    let before = (cpu(), env.now());
    let deadline = env.now() + Duration::from_secs(2);
    let workers: Vec<_> = (0..32_u64)
        .map(|worker| {
            let (env, store, load) = (env.clone(), store.clone(), load.clone());
            env.clone().spawn_with_handle(async move {
                let (mut choices, mut ops) = (Choices::new(worker), 0_u64);
                while env.now() < deadline {
                    let pick = choices.below(load.objects.len() as u64) as usize;
                    let (cid, oid) = &load.objects[pick];
                    let at = choices.below(OBJECT_LEN / 4096) * 4096;
                    let data = store.read(cid, oid, at, 4096).await.expect("read");
                    assert_eq!(data.len(), 4096);
                    ops += 1;
                }
                ops
            })
        })
        .collect();
    let mut ops = 0;
    for worker in workers {
        ops += worker.await;
    }
    let us = (cpu() - before.0).as_secs_f64() * 1e6 / ops as f64;
    let rate = ops as f64 / (env.now() - before.1).as_secs_f64();
    println!("reads of 4 KiB, depth 32: {rate:.0} op/s, {us:.1} us CPU/op");
}

/// CPU time of the process, all threads: user and system.
fn cpu_parts() -> (Duration, Duration) {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("/proc is mounted");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let of = |i: usize| Duration::from_millis(fields[i].parse::<u64>().expect("ticks") * 10);
    (of(11), of(12))
}

fn cpu() -> Duration {
    let (user, system) = cpu_parts();
    user + system
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}
