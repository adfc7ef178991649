//! What pools want of the store (`ceph osd pool set POOL compression_mode force`): told to it with
//! the map that says so, and before any placement group of that map writes.

use maps::OsdMap;
use maps::pool::{PoolOpts, pool_opts};
use store::PoolOptions;

use super::Osd;

impl Osd {
    /// Tells the store what is new in a map. It forgets when it is opened anew, as this OSD does.
    pub(super) fn tell_pool_options(&self, map: &OsdMap) {
        let wanted = map.pools.iter().filter(|(_, pool)| !pool.opts.0.is_empty());
        let wanted =
            wanted.filter_map(|(id, pool)| Some((u64::try_from(*id).ok()?, for_store(&pool.opts))));
        let wanted = wanted.filter(|(_, options)| *options != PoolOptions::default()).collect();
        let told = self.pool_options.replace(wanted);
        let wanted = self.pool_options.borrow();
        for (pool, options) in wanted.iter().filter(|(pool, o)| told.get(pool) != Some(o)) {
            self.store.set_pool_options(*pool, options);
        }
        for pool in told.keys().filter(|pool| !wanted.contains_key(pool)) {
            self.store.set_pool_options(*pool, &PoolOptions::default());
        }
    }
}

/// Those of a pool's options that are for a store.
fn for_store(opts: &PoolOpts) -> PoolOptions {
    let text = |key| opts.str(key).map(str::to_owned);
    let bytes = |key| opts.int(key).and_then(|n| u64::try_from(n).ok());
    PoolOptions {
        compression_mode: text(pool_opts::COMPRESSION_MODE),
        compression_algorithm: text(pool_opts::COMPRESSION_ALGORITHM),
        compression_required_ratio: opts.double(pool_opts::COMPRESSION_REQUIRED_RATIO),
        compression_min_blob_len: bytes(pool_opts::COMPRESSION_MIN_BLOB_SIZE),
        compression_max_blob_len: bytes(pool_opts::COMPRESSION_MAX_BLOB_SIZE),
    }
}
