//! The rule by which an OSD's caches share `osd_memory_target` (`BlueStore::_set_cache_sizes` in
//! `src/os/bluestore/BlueStore.cc` at v16.2, whose options these are).
//!
//! ```text
//! cache = bluestore_cache_size, or (osd_memory_target - osd_memory_base) less the share that
//!         fragmentation is expected to take, and never below osd_memory_cache_min
//! BlueStore's database gets bluestore_cache_kv_ratio of it, for blocks of its tables
//! InkStore gets all of it, for data that was read; but 16 MiB where nothing is told
//! ```
//! The size is set when the store is opened. What else an OSD keeps has bounds of its own beside its
//! code: InkStore keeps all its metadata in memory; KStore's and FileStore's databases have
//! `rocksdb_cache_size` and `leveldb_cache_size`.

use config::{Config, Source};

/// InkStore's cache of data where no size is told: an OSD is to take tens of megabytes, not the four
/// gigabytes that Ceph's take by default.
const USUAL_DATA: u64 = 16 << 20;

/// Bytes for the blocks of BlueStore's database.
pub(crate) fn of_metadata(config: &Config) -> u64 {
    let share = config.float("bluestore_cache_kv_ratio").clamp(0.0, 1.0);
    (cache(config) as f64 * share) as u64
}

/// Bytes for data that was read from an InkStore.
pub(crate) fn of_data(config: &Config) -> u64 {
    let told = |name: &str| config.source(name).is_some_and(|s| s != Source::Default);
    match told("bluestore_cache_size") || told("osd_memory_target") {
        true => cache(config),
        false => USUAL_DATA,
    }
}

fn cache(config: &Config) -> u64 {
    match config.uint("bluestore_cache_size") {
        0 => {
            let target = config.uint("osd_memory_target");
            let free = target.saturating_sub(config.uint("osd_memory_base"));
            let kept = 1.0 - config.float("osd_memory_expected_fragmentation").clamp(0.0, 1.0);
            ((free as f64 * kept) as u64).max(config.uint("osd_memory_cache_min"))
        }
        told => told,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_follows_the_target() {
        let config = Config::new("osd", "0");
        let set = |name: &str, value: &str| config.set(name, value, Source::Override).unwrap();
        let usual = of_metadata(&config);
        assert_eq!(of_data(&config), USUAL_DATA);
        set("osd_memory_target", "8G");
        let large = of_metadata(&config);
        assert!(of_data(&config) > 4 << 30 && of_data(&config) < 8 << 30);
        set("osd_memory_target", "939524096");
        let least = of_metadata(&config);
        assert!(least < usual && usual < large, "{least} {usual} {large}");
        assert!(least >= 32 << 20);
        set("bluestore_cache_size", "100M");
        assert!(of_metadata(&config) <= 100 << 20);
        assert_eq!(of_data(&config), 100 << 20);
    }
}
