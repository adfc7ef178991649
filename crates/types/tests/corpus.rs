//! This crate's types against golden encodings of Ceph 16.2.0.

use types::osd::*;
use types::*;

#[test]
fn golden_encodings() {
    corpus::check_all! {
        "ECSubRead" => EcSubRead,
        "ECSubReadReply" => EcSubReadReply,
        "ECSubWrite" => EcSubWrite,
        "ECSubWriteReply" => EcSubWriteReply,
        "ECUtil::HashInfo" => EcHashInfo,
        "entity_inst_t" => entity::EntityInst,
        "sha256_digest_t" => [u8; 32],
        "real_time_wrapper" => UTime,
        "coarse_real_time_wrapper" => UTime,
        "timespan_wrapper" => Span,
        "CompatSet" => CompatSet,
        "ExplicitHashHitSet" => ExplicitHashHitSet,
        "ExplicitObjectHitSet" => ExplicitObjectHitSet,
        "BloomHitSet" => BloomHitSet,
        "HitSet" => HitSet,
        "HitSet::Params" => HitSetParams,
        "ObjectCleanRegions" => ObjectCleanRegions,
        "ObjectModDesc" => ObjectModDesc,
        "ObjectRecoveryInfo" => ObjectRecoveryInfo,
        "ObjectRecoveryProgress" => ObjectRecoveryProgress,
        "PastIntervals" => PastIntervals,
        "PullOp" => PullOp,
        "PushOp" => PushOp,
        "PushReplyOp" => PushReplyOp,
        "ScrubMap" => ScrubMap,
        "ScrubMap::object" => ScrubObject,
        "ScrubResult" => ScrubResult,
        "SnapContext" => SnapContext,
        "SnapSet" => SnapSet,
        "bloom_filter" => BloomFilter,
        "chunk_info_t" => ChunkInfo,
        "clone_info" => CloneInfo,
        "compact_interval_t" => CompactInterval,
        "compressible_bloom_filter" => CompressibleBloomFilter,
        "entity_addr_t" => EntityAddr,
        "entity_addrvec_t" => AddrVec,
        "entity_name_t" => EntityName,
        "EntityName" => AuthEntityName,
        "eversion_t" => EVersion,
        "ghobject_t" => GhObject,
        "hobject_t" => HObject,
        "obj_list_snap_response_t" => ObjListSnapResponse,
        "obj_list_watch_response_t" => ObjListWatchResponse,
        "object_copy_cursor_t" => ObjectCopyCursor,
        "object_copy_data_t" => ObjectCopyData,
        "object_info_t" => ObjectInfo,
        "object_locator_t" => ObjectLocator,
        "object_manifest_t" => ObjectManifest,
        "object_stat_collection_t" => ObjectStatCollection,
        "object_stat_sum_t" => ObjectStatSum,
        "objectstore_perf_stat_t" => ObjectStorePerfStat,
        "osd_reqid_t" => OsdReqId,
        "osd_stat_t" => OsdStat,
        "pg_create_t" => PgCreate,
        "pg_fast_info_t" => PgFastInfo,
        "pg_history_t" => PgHistory,
        "pg_hit_set_history_t" => PgHitSetHistory,
        "pg_hit_set_info_t" => PgHitSetInfo,
        "pg_info_t" => PgInfo,
        "pg_lease_ack_t" => PgLeaseAck,
        "pg_lease_t" => PgLease,
        "pg_log_dup_t" => PgLogDup,
        "pg_log_entry_t" => PgLogEntry,
        "pg_log_op_return_item_t" => LogOpReturn,
        "pg_log_t" => PgLog,
        "pg_ls_response_t" => PgLsResponse,
        "pg_missing_t" => PgMissing,
        "pg_nls_response_t" => PgNlsResponse,
        "pg_notify_t" => PgNotify,
        "pg_query_t" => PgQuery,
        "pg_shard_t" => PgShard,
        "pg_stat_t" => PgStat,
        "pg_t" => PgId,
        "pool_stat_t" => PoolStat,
        "pow2_hist_t" => Pow2Hist,
        "request_redirect_t" => RequestRedirect,
        "shard_id_t" => i8,
        "spg_t" => SpgId,
        "store_statfs_t" => StoreStatfs,
        "utime_t" => UTime,
        "uuid_d" => Uuid,
        "watch_info_t" => WatchInfo,
        "watch_item_t" => WatchItem,
    }
}

/// One sample is in the form of luminous, which is read but not written.
#[test]
fn missing_items() {
    let count = corpus::check_except::<PgMissingItem>("pg_missing_item", |bytes| bytes.len() == 37);
    assert!(count == Default::default() || (count.exact, count.excused) == (3, 1));
}

/// 16.2.0 wrote version 9; later releases of 16.2, and we, write 10.
#[test]
fn superblocks() {
    corpus::check_except::<OsdSuperblock>("OSDSuperblock", |bytes| bytes[0] == 9);
}
