//! What OSDs persist and send each other (`src/osd/osd_types.h`, `src/include/rados.h` at v16.2).

pub mod clean_regions;
pub mod ec;
pub mod hit_set;
pub mod listing;
pub mod mod_desc;
pub mod object_info;
pub mod ops;
pub mod osd_stat;
pub mod past_intervals;
pub mod peering;
pub mod pg_history;
pub mod pg_info;
pub mod pg_log;
pub mod pg_missing;
pub mod pg_stat;
pub mod pg_state;
pub mod recovery;
pub mod redirect;
pub mod scrub;
pub mod scrub_errors;
pub mod snap_set;
pub mod stat_sum;
pub mod superblock;

pub use clean_regions::ObjectCleanRegions;
pub use ec::{EcHashInfo, EcSubRead, EcSubReadReply, EcSubWrite, EcSubWriteReply, Enveloped};
pub use hit_set::{
    BloomFilter, BloomHitSet, CompressibleBloomFilter, ExplicitHashHitSet, ExplicitObjectHitSet,
    HitSet, HitSetKind, HitSetParams, PgHitSetHistory, PgHitSetInfo,
};
pub use listing::{
    CloneInfo, NlsEntry, ObjListSnapResponse, ObjListWatchResponse, PgLsResponse, PgNlsResponse,
    WatchItem,
};
pub use mod_desc::{ObjectModDesc, RollbackOp};
pub use object_info::{ChunkInfo, ObjectInfo, ObjectManifest, WatchInfo};
pub use ops::{OpArgs, OsdOp, WireOp};
pub use osd_stat::{ObjectStorePerfStat, OsdStat, PingTimes, Pow2Hist};
pub use past_intervals::{CompactInterval, PastIntervals, PgInterval};
pub use peering::{PgCreate, PgLease, PgLeaseAck, PgNotify, PgQuery, PgQueryType};
pub use pg_history::PgHistory;
pub use pg_info::{PgFastInfo, PgInfo};
pub use pg_log::{LogExtras, LogOp, LogOpReturn, PgLog, PgLogDup, PgLogEntry};
pub use pg_missing::{PgMissing, PgMissingItem};
pub use pg_stat::PgStat;
pub use recovery::{
    ObjectCopyCursor, ObjectCopyData, ObjectRecoveryInfo, ObjectRecoveryProgress, PullOp, PushOp,
    PushReplyOp,
};
pub use redirect::RequestRedirect;
pub use scrub::{ScrubMap, ScrubObject, ScrubResult};
pub use snap_set::SnapSet;
pub use stat_sum::{ObjectStatCollection, ObjectStatSum, PoolStat, StoreStatfs};
pub use superblock::{CompatSet, FeatureSet, OsdSuperblock};
