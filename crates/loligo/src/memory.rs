//! The rule by which an OSD's caches share `osd_memory_target`, and when a daemon gives back what it
//! does not use.
//!
//! ```text
//! InkStore, for data that was read:
//!     bluestore_cache_size, if told
//!     what osd_memory_target leaves beside all else that is resident, if told, as it is found every
//!         osd_memory_cache_resize_interval; never below osd_memory_cache_min
//!     what 64 MB leave, found likewise, from 4 to 16 MiB, if nothing is told
//! BlueStore's database, for blocks of its tables, when it is opened: bluestore_cache_kv_ratio of
//!     bluestore_cache_size, or of (osd_memory_target - osd_memory_base) less the share that
//!     fragmentation is expected to take, and never below osd_memory_cache_min
//!     (`BlueStore::_set_cache_sizes` in `src/os/bluestore/BlueStore.cc` at v16.2)
//! ```
//! OSDs of one process have equal shares of what is resident beside their caches.
//! What else an OSD keeps has bounds of its own or, as InkStore's metadata, must be in memory;
//! KStore's and FileStore's databases have `rocksdb_cache_size` and `leveldb_cache_size`.
//!
//! Every daemon looks each second whether it has worked and is idle now. Then freed memory goes back to
//! the system, and pages of code; again some seconds later, as a slow device has buffers come back late;
//! pages of code every minute too, when it works all the time.

use std::rc::{self, Rc};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use config::{Config, Source};
use env::{AlignedBuf, Env};
use store::inkstore::InkStore;

use crate::{allocator, code};

/// What an OSD on InkStore should take where nothing is told: tens of megabytes, not the four
/// gigabytes that Ceph's take by default.
const USUAL_TARGET: u64 = 64_000_000;
/// Its cache of data then. The least serves readers that go through objects; an index of more than
/// some 12 GB of data does not fit beside it.
const USUAL_DATA_MIN: u64 = 4 << 20;
const USUAL_DATA_MAX: u64 = 16 << 20;
/// Between two looks at what is resident at least.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Between two looks at what the daemon does.
const LOOK: Duration = Duration::from_secs(1);
/// CPU time between two looks of a daemon that is idle at most: heartbeats, reports, ticks.
const IDLE_MAX: Duration = Duration::from_millis(50);
/// CPU time of work that leaves something to tidy.
const WORK_MIN: Duration = Duration::from_millis(200);
/// After how many idle looks in turn a daemon tidies again, whatever it did before.
const AGAIN: [u32; 2] = [4, 16];
/// Looks in which code that nothing uses may stay.
const CODE_LOOKS: u32 = 60;

/// Bytes for the blocks of BlueStore's database.
pub(crate) fn of_metadata(config: &Config) -> u64 {
    let cache = match config.uint("bluestore_cache_size") {
        0 => {
            let target = config.uint("osd_memory_target");
            let free = target.saturating_sub(config.uint("osd_memory_base"));
            let kept = 1.0 - config.float("osd_memory_expected_fragmentation").clamp(0.0, 1.0);
            ((free as f64 * kept) as u64).max(config.uint("osd_memory_cache_min"))
        }
        told => told,
    };
    let share = config.float("bluestore_cache_kv_ratio").clamp(0.0, 1.0);
    (cache as f64 * share) as u64
}

/// Bytes that the InkStores of this process keep. Bound: one an OSD.
static CACHED: Mutex<Vec<Weak<AtomicU64>>> = Mutex::new(Vec::new());

/// Gives an InkStore its share of the memory as long as it lives.
pub(crate) async fn share(env: Env, config: Rc<Config>, store: rc::Weak<InkStore>) {
    let cached = Arc::new(AtomicU64::new(0));
    CACHED.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&cached));
    while let Some(store) = store.upgrade() {
        cached.store(store.cached(), Relaxed);
        let (count, all_cached) = {
            let mut stores = CACHED.lock().unwrap_or_else(PoisonError::into_inner);
            stores.retain(|store| store.strong_count() > 0);
            let cached = stores.iter().filter_map(Weak::upgrade).map(|cached| cached.load(Relaxed));
            (stores.len() as u64, cached.sum::<u64>())
        };
        let else_resident = resident().saturating_sub(all_cached) / count.max(1);
        store.set_cache_size(of_data(&config, else_resident));
        drop(store);
        env.sleep(config.duration("osd_memory_cache_resize_interval").max(INTERVAL_MIN)).await;
    }
}

/// Bytes for data that was read from an InkStore, beside the OSD's `else_resident`.
fn of_data(config: &Config, else_resident: u64) -> u64 {
    let told = |name: &str| config.source(name).is_some_and(|s| s != Source::Default);
    if told("bluestore_cache_size") && config.uint("bluestore_cache_size") > 0 {
        return config.uint("bluestore_cache_size");
    }
    if !told("osd_memory_target") {
        let left = USUAL_TARGET.saturating_sub(else_resident);
        return left.clamp(USUAL_DATA_MIN, USUAL_DATA_MAX);
    }
    let left = config.uint("osd_memory_target").saturating_sub(else_resident);
    left.max(config.uint("osd_memory_cache_min"))
}

/// Gives back, as long as the daemon runs, what it does not use.
pub(crate) async fn tidy(env: Env) {
    let mut work = Work::default();
    for look in 1.. {
        env.sleep(LOOK).await;
        let over = work.is_over(cpu_time());
        if over {
            // An OSD kept 70 MiB after it had been filled by writes of 4 MiB: their buffers went to the
            // allocator some seconds later, which keeps what it is given as long as nobody collects it.
            AlignedBuf::give_back_free();
            allocator::collect();
            allocator::collect_of_libraries();
        }
        if over || look % CODE_LOOKS == 0 {
            code::give_up();
        }
    }
}

/// Tells when a daemon that worked has become idle.
#[derive(Default)]
struct Work {
    /// CPU time at the last look.
    seen: Duration,
    /// Looks in turn that found it idle.
    idle: u32,
    /// CPU time when it was last idle after work; none before its start is over.
    over: Option<Duration>,
}

impl Work {
    /// Whether work is over since the last look, of a daemon that has taken `cpu`.
    fn is_over(&mut self, cpu: Duration) -> bool {
        let idle = cpu - self.seen <= IDLE_MAX;
        self.seen = cpu;
        self.idle = if idle { self.idle.saturating_add(1) } else { 0 };
        let worked = idle && self.over.is_none_or(|over| cpu - over >= WORK_MIN);
        let over = worked || AGAIN.contains(&self.idle);
        if over {
            self.over = Some(cpu);
        }
        over
    }
}

/// CPU time that the process has taken.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is there for the call to fill in.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

/// Bytes of the process in memory, its code too.
pub(crate) fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap_or(0);
    kib << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn config() -> (Config, impl Fn(&Config, &str, &str)) {
        let set = |config: &Config, name: &str, value: &str| {
            config.set(name, value, Source::Override).unwrap()
        };
        (Config::new("osd", "0"), set)
    }

    #[test]
    fn a_database_gets_its_part_of_the_target() {
        let (config, set) = config();
        let usual = of_metadata(&config);
        set(&config, "osd_memory_target", "8G");
        let large = of_metadata(&config);
        set(&config, "osd_memory_target", "939524096");
        let least = of_metadata(&config);
        assert!(least < usual && usual < large, "{least} {usual} {large}");
        assert!(least >= 32 * MIB);
        set(&config, "bluestore_cache_size", "100M");
        assert!(of_metadata(&config) <= 100 * MIB);
    }

    /// `osd_memory_target` sized the cache once, when nothing else was in memory yet: an OSD with a
    /// large index took the target and its index.
    #[test]
    fn data_gets_what_the_target_leaves() {
        let (config, set) = config();
        // Nothing told: an OSD with 10 GB of small blocks took 55 MB, and 77 when these had been read.
        assert_eq!(of_data(&config, 30 * MIB), USUAL_DATA_MAX);
        assert_eq!(of_data(&config, 64_000_000 - 16 * MIB), USUAL_DATA_MAX);
        assert_eq!(of_data(&config, 72_000_000 - 16 * MIB), 16 * MIB - 8_000_000);
        assert_eq!(of_data(&config, 5000 * MIB), USUAL_DATA_MIN);
        set(&config, "osd_memory_target", "1000M");
        // All else grows to 400 MiB while the cache fills, at 1.1 bytes of memory a byte of it.
        let mut cached = 0;
        for n in 0..=40 {
            let max = of_data(&config, n * 10 * MIB + cached / 10);
            cached = cached.max(300 * MIB).min(max);
        }
        assert_eq!(cached, 300 * MIB);
        for _ in 0..8 {
            cached = of_data(&config, 400 * MIB + cached / 10);
        }
        let all = 400 * MIB + cached * 11 / 10;
        assert!(all.abs_diff(1000 * MIB) < MIB, "{all}");
        // As Ceph, it keeps a cache even so.
        assert_eq!(of_data(&config, 1872 * MIB), 128 * MIB);
        set(&config, "bluestore_cache_size", "100M");
        assert_eq!(of_data(&config, 1900 * MIB), 100 * MIB);
    }

    /// The looks, counted from 1, that say work is over, of a daemon that has taken so many ms then.
    fn overs(cpu_ms: impl IntoIterator<Item = u64>) -> Vec<usize> {
        let mut work = Work::default();
        let looks = cpu_ms.into_iter().map(|ms| work.is_over(Duration::from_millis(ms)));
        looks.enumerate().filter_map(|(n, over)| over.then_some(n + 1)).collect()
    }

    /// An OSD of an image of 10 GiB kept 20 to 60 MiB that writes of 4 MiB had needed, as long as
    /// nothing else was written.
    #[test]
    fn the_end_of_work_is_seen() {
        // It starts, and is idle.
        assert_eq!(overs([90, 95, 100]), [2]);
        // It works, with more to do or less, and then does not.
        assert_eq!(overs([90, 95, 900, 1700, 1760, 1770, 1780]), [2, 6]);
        // It is idle for long, which is work too in the end.
        assert_eq!(overs((0..60).map(|n| 100 + 5 * n)), [2, 5, 17, 57]);
    }

    /// An OSD kept 90 MiB after writes of 4 MiB on a disk that took 0.6 s for a batch: it was idle while
    /// it waited, gave back what it had then, and the last of the work was too little to count.
    #[test]
    fn what_comes_back_late_is_given_back_too() {
        let waits = (0..20).map(|n| 2000 + n);
        assert_eq!(overs([90, 1000, 2000].into_iter().chain(waits)), [4, 7, 19]);
        // 60 ms of work now and then.
        let little = (1..=3).flat_map(|burst| [60 * burst; 6]);
        assert_eq!(overs([0, 0].into_iter().chain(little)), [1, 7, 13, 19]);
    }

    #[test]
    fn cpu_time_passes() {
        let before = cpu_time();
        while cpu_time() - before < Duration::from_millis(2) {}
    }

    #[test]
    fn what_is_resident_is_known() {
        assert!((MIB..1024 * MIB).contains(&resident()));
    }
}
