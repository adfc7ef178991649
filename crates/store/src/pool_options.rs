//! What a pool wants of a store: the part of Ceph's `pool_opts_t` (`src/osd/osd_types.h` at v16.2)
//! that a store can heed, which there reaches it by `ObjectStore::set_collection_opts`.

/// Options of a pool. What is `None` the pool leaves to the store's own options.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PoolOptions {
    /// `compression_mode`: none, passive, aggressive, force.
    pub compression_mode: Option<String>,
    /// `compression_algorithm`: snappy, zstd, lz4, ...
    pub compression_algorithm: Option<String>,
    /// `compression_required_ratio`: what is not at most this part of what it was stays as it is.
    pub compression_required_ratio: Option<f64>,
    /// `compression_min_blob_size` in bytes.
    pub compression_min_blob_len: Option<u64>,
    /// `compression_max_blob_size` in bytes.
    pub compression_max_blob_len: Option<u64>,
}
