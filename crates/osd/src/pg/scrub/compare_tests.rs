use bytes::Bytes;
use types::{NOSNAP, ObjectLocator, PgId};

use super::*;

fn oid() -> HObject {
    HObject::new("o", &ObjectLocator::default(), NOSNAP)
}

fn info() -> ObjectInfo {
    let mut oi = ObjectInfo { size: 3, version: EVersion::new(4, 7), ..ObjectInfo::new(oid()) };
    oi.user_version = 7;
    oi
}

fn copy_with(oi: &ObjectInfo) -> ScrubObject {
    let mut object = ScrubObject {
        size: 3,
        digest: 0xaaaa,
        digest_present: true,
        omap_digest: 0xbbbb,
        omap_digest_present: true,
        ..ScrubObject::default()
    };
    object.attrs.insert(OI_ATTR.into(), oi.to_bytes());
    object.attrs.insert(SS_ATTR.into(), SnapSet::default().to_bytes());
    object.attrs.insert("_a".into(), Bytes::from_static(b"1"));
    object
}

fn rules(repair: bool) -> Rules {
    Rules {
        pgid: SpgId { pgid: PgId::new(2, 0), shard: -1 },
        primary: PgShard::replica(1),
        repair,
        object_size_max: 128 << 20,
        digest_min_age_sec: 7200,
        now: UTime::from_duration(std::time::Duration::from_secs(100)),
        stripe: None,
    }
}

/// Three copies, changed; the primary is osd.1.
fn found(repair: bool, oi: &ObjectInfo, change: impl Fn(i32, &mut ScrubMap)) -> Findings {
    let mut maps = Maps::new();
    for osd in 0..3 {
        let mut map = ScrubMap::default();
        map.objects.insert(oid(), copy_with(oi));
        change(osd, &mut map);
        maps.insert(PgShard::replica(osd), map);
    }
    compare(&maps, &rules(repair))
}

fn on(osd: i32, change: impl Fn(&mut ScrubObject)) -> impl Fn(i32, &mut ScrubMap) {
    move |at, map| {
        if at == osd {
            change(map.objects.get_mut(&oid()).unwrap());
        }
    }
}

fn shards(osds: &[i32]) -> BTreeSet<PgShard> {
    osds.iter().map(|&osd| PgShard::replica(osd)).collect()
}

#[test]
fn equal_copies_are_fine() {
    let f = found(false, &info(), |_, _| {});
    assert!(f.objects.is_empty() && f.good.is_empty() && f.log.is_empty());
    assert_eq!((f.shallow_errors, f.deep_errors), (0, 0));
}

#[test]
fn a_missing_copy_is_one_error() {
    let f = found(false, &info(), |osd, map| {
        if osd == 2 {
            map.objects.clear();
        }
    });
    assert_eq!((f.shallow_errors, f.deep_errors), (1, 0));
    assert_eq!(f.missing[&oid()], shards(&[2]));
    assert_eq!(f.good[&oid()].shards.len(), 2);
    assert_eq!(f.log.len(), 1);
    assert_eq!(f.objects[0].1.union_errors, shard_error::MISSING);
}

#[test]
fn the_primary_does_not_win_against_its_own_record() {
    let mut oi = info();
    oi.set_data_digest(0xaaaa);
    let f = found(false, &oi, on(1, |o| o.digest = 1));
    // One for the copy, one for the object; the first of the others is taken for good.
    assert_eq!((f.shallow_errors, f.deep_errors), (0, 2));
    assert_eq!(f.inconsistent[&oid()], shards(&[1, 2]));
    assert_eq!(f.good[&oid()].shards, [PgShard::replica(0)]);
}

#[test]
fn without_a_record_the_primary_is_right() {
    let f = found(false, &info(), on(2, |o| o.digest = 1));
    assert_eq!((f.shallow_errors, f.deep_errors), (0, 1));
    assert_eq!(f.inconsistent[&oid()], shards(&[2]));
    assert_eq!(f.objects[0].1.errors, object_error::DATA_DIGEST_MISMATCH);
    assert_eq!(f.objects[0].1.union_errors, 0);
    let text = "2.0 soid -1:80b4f5ce:::o:head : data_digest 0x1 != data_digest 0xaaaa from shard 1";
    assert_eq!(f.log, [text]);
}

#[test]
fn attributes_size_and_info() {
    let f = found(false, &info(), on(0, |o| drop(o.attrs.remove(BStr::new("_a")))));
    assert_eq!(f.objects[0].1.errors, object_error::ATTR_NAME_MISMATCH);
    assert_eq!((f.shallow_errors, f.deep_errors), (1, 0));
    let f = found(false, &info(), on(0, |o| o.size = 9));
    let told = &f.objects[0].1;
    assert_eq!(told.errors, object_error::SIZE_MISMATCH);
    let both = shard_error::SIZE_MISMATCH_INFO | shard_error::OBJ_SIZE_INFO_MISMATCH;
    assert_eq!(told.union_errors, both);
    let f = found(false, &info(), on(1, |o| drop(o.attrs.insert(OI_ATTR.into(), Bytes::new()))));
    assert_eq!(f.objects[0].1.union_errors, shard_error::INFO_CORRUPTED);
    assert_eq!(f.inconsistent[&oid()], shards(&[1]));
    assert_eq!(f.good[&oid()].version, EVersion::new(4, 7));
}

#[test]
fn the_newest_version_is_chosen() {
    let newer = ObjectInfo { version: EVersion::new(5, 9), ..info() };
    let f =
        found(false, &info(), on(2, |o| drop(o.attrs.insert(OI_ATTR.into(), newer.to_bytes()))));
    assert_eq!(f.good[&oid()].version, EVersion::new(5, 9));
    assert_eq!(f.inconsistent[&oid()], shards(&[0, 1]));
    assert_eq!(f.objects[0].1.errors, object_error::INFO_INCONSISTENCY);
}

#[test]
fn no_good_copy_at_all() {
    let f = found(true, &info(), |_, map| map.objects.get_mut(&oid()).unwrap().read_error = true);
    assert!(f.good.is_empty());
    assert_eq!((f.shallow_errors, f.deep_errors), (0, 3));
    assert_eq!(f.objects[0].1.version, 0);
}

#[test]
fn a_wrong_record_of_equal_copies_is_set_right_by_repair() {
    let mut oi = info();
    oi.set_data_digest(1);
    let f = found(true, &oi, |_, _| {});
    // The others still show what the record does not fit, as in Ceph.
    let digests = &f.digests[&oid()];
    assert_eq!((digests.data, digests.omap), (Some(0xaaaa), Some(0xbbbb)));
}

#[test]
fn digests_are_recorded_when_old_enough() {
    let mut oi = info();
    oi.local_mtime = UTime::from_duration(std::time::Duration::from_secs(99));
    assert!(found(false, &oi, |_, _| {}).digests.is_empty());
    let mut r = rules(false);
    r.digest_min_age_sec = 0;
    let map = ScrubMap { objects: [(oid(), copy_with(&oi))].into(), ..ScrubMap::default() };
    let maps: Maps = [(PgShard::replica(1), map)].into();
    assert_eq!(compare(&maps, &r).digests.len(), 1);
}

/// Shards of an object of one byte: chunks of 4 bytes, all with the same hash info.
fn found_shards(change: impl Fn(i8, &mut ScrubObject)) -> Findings {
    let oi = ObjectInfo { size: 1, ..info() };
    let mut maps = Maps::new();
    for shard in 0..3 {
        let mut object = ScrubObject { size: 4, ..copy_with(&oi) };
        let hinfo = EcHashInfo { total_chunk_size: 4, cumulative_shard_hashes: vec![0xaaaa, 2, 3] };
        object.attrs.insert(HINFO_KEY.into(), hinfo.to_bytes());
        change(shard, &mut object);
        let mut map = ScrubMap::default();
        map.objects.insert(oid(), object);
        maps.insert(PgShard::new(shard.into(), shard), map);
    }
    let rules = Rules { stripe: Some((8, 4)), primary: PgShard::new(0, 0), ..rules(false) };
    compare(&maps, &rules)
}

#[test]
fn shards_are_as_long_as_their_chunks_and_have_the_same_hash_info() {
    let clean = found_shards(|_, _| {});
    assert_eq!((clean.shallow_errors, clean.deep_errors), (0, 0), "{:?}", clean.log);
    assert!(clean.digests.is_empty(), "a shard's checksum is not the object's");

    let report = |change: fn(&mut ScrubObject)| {
        let found = found_shards(|shard, object| {
            if shard == 2 {
                change(object);
            }
        });
        let (_, told) = found.objects.first().expect("an inconsistent object").clone();
        let wrong = found.inconsistent.get(&oid()).cloned().unwrap_or_default();
        assert_eq!(wrong.into_iter().collect::<Vec<_>>(), [PgShard::new(2, 2)]);
        told
    };
    let shard_errors = |told: &InconsistentObject| told.union_errors;
    let told = report(|object| object.size = 1);
    assert_ne!(shard_errors(&told) & shard_error::OBJ_SIZE_INFO_MISMATCH, 0);
    let told = report(|object| object.ec_hash_mismatch = true);
    assert_ne!(shard_errors(&told) & shard_error::EC_HASH_MISMATCH, 0);
    let told = report(|object| drop(object.attrs.remove(HINFO_KEY)));
    assert_ne!(shard_errors(&told) & shard_error::HINFO_MISSING, 0);
    let told = report(|object| {
        let other = EcHashInfo { total_chunk_size: 4, cumulative_shard_hashes: Vec::new() };
        object.attrs.insert(HINFO_KEY.into(), other.to_bytes());
    });
    assert_ne!(told.errors & object_error::HINFO_INCONSISTENCY, 0);
}
