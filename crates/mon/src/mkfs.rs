//! The first content of a monitor's database: monitor map, keys, OSD map of epoch 1, manager map,
//! first options (`Monitor::mkfs` and each service's `create_initial` at v16.2).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use auth::{CryptoKey, EntityAuth, FillRandom, Keyring};
use config::Config;
use denc::Denc;
use maps::osdmap::osdmap_flags;
use maps::release::PACIFIC;
use maps::{Incremental, MgrMap, MonMap, OsdMap, ServiceMap};
use store::{Kv, KvBatch, KvError};
use types::{AuthEntityName, UTime, Uuid, entity};

use crate::auth as auth_service;
use crate::collected::{CollectError, Collected, Rebuilt};
use crate::commands::erasure_profile::str_map;
use crate::layout::{self, AUTH, CONFIG, MGR, MGRSTAT, MONMAP, OSDMAP};
use crate::monmap;

/// Why a database cannot be made.
#[derive(Debug)]
pub enum MkfsError {
    /// There is a monitor in it already.
    NotEmpty,
    /// The keyring has no key for `mon.`.
    NoMonKey,
    /// What was collected of OSDs does not do.
    Collected(CollectError),
    /// The database failed.
    Kv(KvError),
}

impl fmt::Display for MkfsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MkfsError::NotEmpty => f.write_str("the database already has a monitor in it"),
            MkfsError::NoMonKey => f.write_str("the keyring has no key for mon."),
            MkfsError::Collected(error) => error.fmt(f),
            MkfsError::Kv(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for MkfsError {}

impl From<KvError> for MkfsError {
    fn from(error: KvError) -> MkfsError {
        MkfsError::Kv(error)
    }
}

impl From<CollectError> for MkfsError {
    fn from(error: CollectError) -> MkfsError {
        MkfsError::Collected(error)
    }
}

/// Fills an empty database.
///
/// The keyring holds the key of `mon.`, and entities that shall exist from the start
/// (`client.admin`, `mgr.x`, `osd.0`, ...). Bootstrap keys are made in addition.
pub fn mkfs(
    kv: &dyn Kv,
    conf: &Config,
    monmap: &MonMap,
    keyring: &Keyring,
    now: UTime,
    fill: FillRandom<'_>,
) -> Result<(), MkfsError> {
    check_empty(kv)?;
    let mut batch = KvBatch::new();
    put_osdmap(&mut batch, conf, monmap.fsid, now);
    found(kv, batch, monmap, keyring, now, fill)
}

/// Fills an empty database of a monitor of a cluster whose monitors are all lost, with what its OSDs had
/// ([`Collected`]) and the keyring's keys. The configuration database, the keys of entities that the keyring
/// does not have and placement groups that no OSD had made are lost.
pub fn mkfs_from_osds(
    kv: &dyn Kv,
    collected: &Collected,
    monmap: &MonMap,
    keyring: &Keyring,
    now: UTime,
    fill: FillRandom<'_>,
) -> Result<Rebuilt, MkfsError> {
    check_empty(kv)?;
    let mut batch = KvBatch::new();
    let rebuilt = collected.put_into(&mut batch, monmap.fsid)?;
    auth_service::put_ids_of_another_life(&mut batch, now);
    found(kv, batch, monmap, keyring, now, fill)?;
    Ok(rebuilt)
}

fn check_empty(kv: &dyn Kv) -> Result<(), MkfsError> {
    match layout::get_u64(kv, MONMAP, "last")? {
        Some(_) => Err(MkfsError::NotEmpty),
        None => Ok(()),
    }
}

/// All that a first monitor's database has beside the OSD map. The keyring's keys go above those that are in
/// the batch.
fn found(
    kv: &dyn Kv,
    mut batch: KvBatch,
    monmap: &MonMap,
    keyring: &Keyring,
    now: UTime,
    fill: FillRandom<'_>,
) -> Result<(), MkfsError> {
    let monmap = MonMap { epoch: monmap.epoch.max(1), ..monmap.clone() };
    monmap::put(&mut batch, &monmap);

    put_keys(&mut batch, keyring, now, fill)?;

    let mgrmap = MgrMap {
        epoch: 1,
        always_on_modules: BTreeMap::from([(u32::from(PACIFIC), BTreeSet::new())]),
        // Of those that Ceph enables at first (mgr_initial_modules) what a manager here has.
        modules: BTreeSet::from(["iostat".to_string()]),
        ..MgrMap::default()
    };
    batch.put(layout::numbered(MGR, "", 1), mgrmap.to_bytes());
    layout::put_u64(&mut batch, MGR, "last", 1);

    let service_map = ServiceMap { epoch: 1, modified: now, ..ServiceMap::default() };
    batch.put(layout::key(MGRSTAT, "service_map"), service_map.to_bytes());

    layout::put_u64(&mut batch, CONFIG, "version", 1);
    kv.commit(batch)?;
    Ok(())
}

/// Fills an empty database of a monitor that joins others: the map by which it finds them, the
/// monitors' key, and a number of its own. The state comes from them.
pub fn mkfs_joining(
    kv: &dyn Kv,
    monmap: &MonMap,
    keyring: &Keyring,
    fill: FillRandom<'_>,
) -> Result<(), MkfsError> {
    check_empty(kv)?;
    let own = AuthEntityName::new(entity::MON, "");
    let mut mon_keyring = Keyring::new();
    let auth = keyring.keys.get(&own).ok_or(MkfsError::NoMonKey)?;
    mon_keyring.keys.insert(own, auth.clone());
    let mut batch = KvBatch::new();
    join(&mut batch, monmap, &mon_keyring, fill);
    kv.commit(batch)?;
    Ok(())
}

/// What a monitor that copies the others' state begins with.
pub(crate) fn join(
    batch: &mut KvBatch,
    monmap: &MonMap,
    mon_keyring: &Keyring,
    fill: FillRandom<'_>,
) {
    batch.put(layout::key(AUTH, "mon_keyring"), mon_keyring.to_bytes());
    monmap::put(batch, monmap);
    let mut id = [0; 8];
    fill(&mut id);
    crate::replica::put_joining(batch, u64::from_le_bytes(id) | 1);
}

fn put_keys(
    batch: &mut KvBatch,
    keyring: &Keyring,
    now: UTime,
    fill: FillRandom<'_>,
) -> Result<(), MkfsError> {
    let own = AuthEntityName::new(entity::MON, "");
    let mut mon_keyring = Keyring::new();
    let auth = keyring.keys.get(&own).ok_or(MkfsError::NoMonKey)?;
    mon_keyring.keys.insert(own.clone(), auth.clone());
    batch.put(layout::key(AUTH, "mon_keyring"), mon_keyring.to_bytes());
    for (name, auth) in keyring.keys.iter().filter(|(name, _)| **name != own) {
        auth_service::put_entity(batch, name, auth);
    }
    for kind in ["mds", "mgr", "osd", "rbd", "rbd-mirror", "rgw"] {
        let name = AuthEntityName::new(entity::CLIENT, format!("bootstrap-{kind}"));
        if keyring.keys.contains_key(&name) {
            continue;
        }
        let caps = format!("allow profile bootstrap-{kind}");
        let auth = EntityAuth::new(CryptoKey::generate(fill, now), [("mon", caps.as_str())]);
        auth_service::put_entity(batch, &name, &auth);
    }
    Ok(())
}

fn put_osdmap(batch: &mut KvBatch, conf: &Config, fsid: Uuid, now: UTime) {
    let chooseleaf = conf.int("osd_crush_chooseleaf_type") as i32;
    // One that is not a profile is told to whom asks for one.
    let profile = str_map(&conf.str("osd_pool_default_erasure_code_profile")).unwrap_or_default();
    let min_compat = conf.str("mon_osd_initial_require_min_compat_client");
    let mut map = OsdMap {
        fsid,
        epoch: 1,
        created: now,
        modified: now,
        flags: osdmap_flags::SORTBITWISE
            | osdmap_flags::RECOVERY_DELETES
            | osdmap_flags::PURGED_SNAPDIRS
            | osdmap_flags::PGLOG_HARDLIMIT,
        crush: Arc::new(initial_crush(chooseleaf)),
        erasure_code_profiles: BTreeMap::from([("default".to_string(), profile)]),
        full_ratio: conf.float("mon_osd_full_ratio") as f32,
        backfillfull_ratio: conf.float("mon_osd_backfillfull_ratio") as f32,
        nearfull_ratio: conf.float("mon_osd_nearfull_ratio") as f32,
        require_min_compat_client: maps::release::release_number(&min_compat).unwrap_or(12),
        require_osd_release: PACIFIC,
        ..OsdMap::default()
    };
    let (full, crc) = map.encode_with_crc();
    map.crc = crc;
    let inc = Incremental {
        modified: now,
        fullmap: full.clone(),
        encode_features: types::features::ALL,
        ..Incremental::new(fsid, 1)
    };
    let (inc, _) = inc.encode_with_crc(crc);
    batch.put(layout::numbered(OSDMAP, "full_", 1), full);
    batch.put(layout::numbered(OSDMAP, "inc_", 1), inc);
    layout::put_u64(batch, OSDMAP, "first", 1);
    layout::put_u64(batch, OSDMAP, "last", 1);
}

/// Ceph's bucket types, the root `default`, and one replicated rule over buckets of a type.
fn initial_crush(chooseleaf_type: i32) -> crush::CrushMap {
    let mut map = crush::CrushMap::fresh();
    let domain = match chooseleaf_type {
        0 => String::new(),
        kind => map.types.get(&kind).cloned().unwrap_or_else(|| "host".to_string()),
    };
    let added = map.add_simple_rule(
        "replicated_rule",
        "default",
        &domain,
        "",
        true,
        crush::RULE_REPLICATED,
    );
    debug_assert!(added.is_ok(), "{added:?}");
    map
}

#[cfg(test)]
mod tests {
    use store::kv::MemKv;

    use super::*;

    /// `full.1` is what a monitor of 16.2 begins with.
    #[test]
    fn the_first_osdmap_is_that_of_cephs_monitors() {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../maps/tests/golden/full.1");
        let want = OsdMap::from_bytes(&std::fs::read(golden).unwrap().into()).unwrap();
        let conf = Config::new("mon", "a");
        conf.set("osd_crush_chooseleaf_type", "0", config::Source::File).unwrap();
        let mut keyring = Keyring::new();
        let key = CryptoKey::generate(&|buf: &mut [u8]| buf.fill(1), UTime::default());
        let auth = EntityAuth::new(key, [("mon", "allow *")]);
        keyring.keys.insert(AuthEntityName::new(entity::MON, ""), auth);
        let (kv, monmap) = (MemKv::new(), MonMap { fsid: want.fsid, ..MonMap::default() });
        mkfs(&kv, &conf, &monmap, &keyring, want.created, &|buf: &mut [u8]| buf.fill(1)).unwrap();
        let made = layout::get(&kv, OSDMAP, "full_0000000000000001").unwrap().unwrap();
        let made = OsdMap::from_bytes(&made).unwrap();
        assert_eq!(made.crc, want.crc, "{made:?}\n{want:?}");
    }
}
