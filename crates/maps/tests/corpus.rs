//! This crate's types against golden encodings of Ceph 16.2.0.

#[test]
fn golden_encodings() {
    corpus::check_all! {
        "CrushWrapper" => crush::CrushMap,
        "OSDMap" => maps::OsdMap,
        "OSDMap::Incremental" => maps::Incremental,
        "pg_pool_t" => maps::PgPool,
        "pool_snap_info_t" => maps::pool::PoolSnapInfo,
        "pg_merge_meta_t" => maps::pool::PgMergeMeta,
        "pool_opts_t" => maps::pool::PoolOpts,
        "MonMap" => maps::MonMap,
        "osd_info_t" => maps::OsdInfo,
        "osd_xinfo_t" => maps::OsdXinfo,
        "HitSet::Params" => maps::pool::HitSetParams,
        "mon_feature_t" => maps::monmap::MonFeatures,
        "mon_info_t" => maps::MonInfo,
        "MgrMap" => maps::MgrMap,
        "MgrMap::ModuleInfo" => maps::mgrmap::ModuleInfo,
        "MgrMap::ModuleOption" => maps::mgrmap::ModuleOption,
        "MgrMap::StandbyInfo" => maps::mgrmap::StandbyInfo,
        "FSMap" => maps::FsMap,
        "Filesystem" => maps::fsmap::Filesystem,
        "MDSMap" => maps::mdsmap::MdsMap,
        "MDSMap::mds_info_t" => maps::mdsmap::MdsInfo,
        "ServiceMap" => maps::ServiceMap,
        "ServiceMap::Service" => maps::servicemap::Service,
        "ServiceMap::Daemon" => maps::servicemap::ServiceDaemon,
        "PGMapDigest::pg_count" => maps::pgmap::PgCount,
        "health_check_map_t" => maps::HealthCheckMap,
        "health_check_t" => maps::HealthCheck,
    }
}

/// Hash tables come out in our order: the same entries, and from then on the same bytes.
#[test]
fn golden_encodings_of_hash_tables() {
    corpus::check_except::<maps::PgMap>("PGMap", |_| true);
    corpus::check_except::<maps::PgMapDigest>("PGMapDigest", |_| true);
}
