//! What OSDs persist and send each other (`src/osd/osd_types.h`, `src/include/rados.h` at v16.2).

pub mod clean_regions;
pub mod object_info;
pub mod ops;
pub mod snap_set;
pub mod stat_sum;

pub use clean_regions::ObjectCleanRegions;
pub use object_info::{ChunkInfo, ObjectInfo, ObjectManifest, WatchInfo};
pub use ops::{OpArgs, OsdOp, WireOp};
pub use snap_set::SnapSet;
pub use stat_sum::{ObjectStatCollection, ObjectStatSum, PoolStat, StoreStatfs};
