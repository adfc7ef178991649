//! Objects of Ceph 16.2.0's corpus: each decodes and encodes to the same bytes, and no damage to
//! it makes a decoder panic.
//!
//! `LOLIGO_CORPUS` names the folder that holds one folder a type; without it, and without the
//! default folder, there is nothing to check.

use std::path::PathBuf;

use bytes::Bytes;
use denc::Denc;

/// The corpus, or `None` when it is not here and not asked for.
fn corpus() -> Option<PathBuf> {
    match std::env::var_os("LOLIGO_CORPUS") {
        Some(dir) => Some(dir.into()),
        None => {
            let near = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus/16.2.0"));
            near.is_dir().then_some(near)
        }
    }
}

/// Objects whose file holds the tail of a longer one it was written over: name, true length.
const OVERWRITTEN: [(&str, usize); 1] = [("f97d85482139c3de61f9ec00522b6bd6", 94)];

/// Types with hash tables, which Ceph writes in the tables' order.
const HASHED: [&str; 2] = ["PGMap", "PGMapDigest"];

/// Checks every object of a type; how many there are.
fn check<T: Denc>(dir: &std::path::Path) -> usize {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    for file in &files {
        let mut bytes = Bytes::from(std::fs::read(file).unwrap());
        if let Some((_, len)) = OVERWRITTEN.iter().find(|(name, _)| file.ends_with(name)) {
            bytes.truncate(*len);
        }
        let value =
            T::from_bytes_exact(&bytes).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let again = value.to_bytes();
        if HASHED.iter().any(|name| dir.ends_with(name)) {
            // Its hash tables come out in our order: the same entries, so the same length, and
            // from then on the same bytes.
            assert_eq!(
                again.len(),
                bytes.len(),
                "{}: encodes otherwise",
                file.display()
            );
            assert!(T::from_bytes_exact(&again).unwrap().to_bytes() == again);
        } else {
            assert!(again == bytes, "{}: encodes otherwise", file.display());
        }
        damage::<T>(&bytes);
    }
    files.len()
}

/// Feeds cuts and flipped bits; errors are fine, values too, panics are not.
fn damage<T: Denc>(bytes: &Bytes) {
    let step = bytes.len() / 1500 + 1;
    for at in (0..bytes.len()).step_by(step) {
        let _ = T::from_bytes(&bytes.slice(..at));
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 1 << (at % 8);
        if let Ok(value) = T::from_bytes(&Bytes::from(flipped)) {
            let _ = value.to_bytes();
        }
    }
}

macro_rules! corpus_types {
    ($(($dir:literal, $kind:ty)),* $(,)?) => {
        #[test]
        fn every_object_survives_a_round_trip() {
            let Some(corpus) = corpus() else { return };
            let mut types = 0;
            let mut objects = 0;
            $(
                let n = check::<$kind>(&corpus.join($dir));
                println!("{:40} {n}", $dir);
                types += 1;
                objects += n;
            )*
            println!("{types} types, {objects} objects");
        }
    };
}

corpus_types![
    ("CrushWrapper", crush::CrushMap),
    ("OSDMap", maps::OsdMap),
    ("OSDMap::Incremental", maps::Incremental),
    ("pg_pool_t", maps::PgPool),
    ("pool_snap_info_t", maps::pool::PoolSnapInfo),
    ("pg_merge_meta_t", maps::pool::PgMergeMeta),
    ("pool_opts_t", maps::pool::PoolOpts),
    ("MonMap", maps::MonMap),
    ("osd_info_t", maps::OsdInfo),
    ("osd_xinfo_t", maps::OsdXinfo),
    ("HitSet::Params", maps::pool::HitSetParams),
    ("mon_feature_t", maps::monmap::MonFeatures),
    ("mon_info_t", maps::MonInfo),
    ("MgrMap", maps::MgrMap),
    ("MgrMap::ModuleInfo", maps::mgrmap::ModuleInfo),
    ("MgrMap::ModuleOption", maps::mgrmap::ModuleOption),
    ("MgrMap::StandbyInfo", maps::mgrmap::StandbyInfo),
    ("FSMap", maps::FsMap),
    ("Filesystem", maps::fsmap::Opaque),
    ("CompatSet", maps::fsmap::CompatSet),
    ("ServiceMap", maps::ServiceMap),
    ("ServiceMap::Service", maps::servicemap::Service),
    ("ServiceMap::Daemon", maps::servicemap::ServiceDaemon),
    ("PGMap", maps::PgMap),
    ("PGMapDigest", maps::PgMapDigest),
    ("PGMapDigest::pg_count", maps::pgmap::PgCount),
    ("health_check_map_t", maps::HealthCheckMap),
    ("health_check_t", maps::HealthCheck),
];
