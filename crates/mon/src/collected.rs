//! What OSDs have of a cluster whose monitors are all lost: OSD maps and their own keys, collected from one
//! stopped OSD after the other into a file, of which [`mkfs_from_osds`](crate::mkfs_from_osds) makes a monitor's
//! database (`src/tools/rebuild_mondb.cc`, `src/tools/ceph_monstore_tool.cc` at v16.2).
//!
//! The file is a database with a monitor's keys (`layout.rs`), and a row for each OSD that was asked.

use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;

use auth::EntityAuth;
use bytes::Bytes;
use denc::Denc;
use maps::OsdMap;
use store::{Kv, KvBatch, KvError};
use types::{AuthEntityName, Epoch, OsdId, Uuid, entity};

use crate::auth as auth_service;
use crate::layout::{self, AUTH, OSDMAP, REBUILD};

/// See the module.
pub struct Collected {
    kv: Rc<dyn Kv>,
}

/// What else an OSD tells than its maps.
#[derive(Debug)]
pub struct OsdPart {
    /// Which.
    pub osd: OsdId,
    /// Its newest map.
    pub newest: Epoch,
    /// Its key with capabilities, where the cluster has keys.
    pub auth: Option<EntityAuth>,
}

/// What a monitor's database was made of.
#[derive(Debug, PartialEq, Eq)]
pub struct Rebuilt {
    /// Oldest OSD map in it.
    pub first: Epoch,
    /// Newest.
    pub last: Epoch,
    /// OSDs that were asked.
    pub asked: BTreeSet<OsdId>,
    /// OSDs of the newest map that were not.
    pub not_asked: BTreeSet<OsdId>,
}

/// Why OSDs' maps do not make a monitor's database.
#[derive(Debug)]
pub enum CollectError {
    /// There is no map in the file.
    Nothing,
    /// A map does not decode.
    NoMap(Epoch, denc::Error),
    /// A map is of another epoch than it should be.
    OtherEpoch(Epoch, Epoch),
    /// A map is of another cluster.
    OtherCluster {
        /// The map's.
        found: Uuid,
        /// What was expected.
        own: Uuid,
    },
    /// Two OSDs have different maps of one epoch.
    Differ(Epoch),
    /// The file fails.
    Kv(KvError),
}

impl fmt::Display for CollectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CollectError::Nothing => {
                f.write_str("no OSD's maps are in it (loligo store --osd N update-mon-db FILE)")
            }
            CollectError::NoMap(epoch, error) => {
                write!(f, "OSD map {epoch} does not decode: {error}")
            }
            CollectError::OtherEpoch(wanted, found) => {
                write!(f, "OSD map {wanted} says that it is {found}")
            }
            CollectError::OtherCluster { found, own } => {
                write!(f, "the OSD map is of cluster {found}, not of {own}")
            }
            CollectError::Differ(epoch) => write!(
                f,
                "OSD map {epoch} is another than that of the OSDs before: they have been under monitors that knew nothing of each \
                 other. Take the OSDs of one side into a new file"
            ),
            CollectError::Kv(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CollectError {}

impl From<KvError> for CollectError {
    fn from(error: KvError) -> CollectError {
        CollectError::Kv(error)
    }
}

fn full_key(epoch: Epoch) -> Bytes {
    layout::numbered(OSDMAP, "full_", epoch.into())
}

fn inc_key(epoch: Epoch) -> Bytes {
    layout::numbered(OSDMAP, "inc_", epoch.into())
}

fn decode(epoch: Epoch, full: &Bytes) -> Result<OsdMap, CollectError> {
    let map = OsdMap::from_bytes(full).map_err(|error| CollectError::NoMap(epoch, error))?;
    match map.epoch == epoch {
        true => Ok(map),
        false => Err(CollectError::OtherEpoch(epoch, map.epoch)),
    }
}

impl Collected {
    /// The file, or an empty one.
    pub fn new(kv: Rc<dyn Kv>) -> Collected {
        Collected { kv }
    }

    /// The newest map in it.
    pub fn newest(&self) -> Result<Option<Epoch>, CollectError> {
        Ok(layout::get_u64(&*self.kv, OSDMAP, "last")?.map(|epoch| epoch as Epoch))
    }

    fn map(&self, epoch: Epoch) -> Result<Option<Bytes>, CollectError> {
        Ok(self.kv.get(&full_key(epoch))?)
    }

    /// Whether a map is in it, with the step that led to it.
    pub fn has_map(&self, epoch: Epoch) -> Result<bool, CollectError> {
        Ok(self.map(epoch)?.is_some() && self.kv.get(&inc_key(epoch))?.is_some())
    }

    /// Whether an OSD's map is of this cluster, and the one that is in the file if there is one of its epoch.
    pub fn check(&self, cluster: Uuid, epoch: Epoch, full: &Bytes) -> Result<(), CollectError> {
        let theirs = decode(epoch, full)?;
        if theirs.fsid != cluster {
            return Err(CollectError::OtherCluster { found: theirs.fsid, own: cluster });
        }
        let Some(ours) = self.map(epoch)? else { return Ok(()) };
        let ours = decode(epoch, &ours)?;
        match (ours.fsid == cluster, ours.crc == theirs.crc) {
            (false, _) => Err(CollectError::OtherCluster { found: ours.fsid, own: cluster }),
            (true, false) => Err(CollectError::Differ(epoch)),
            (true, true) => Ok(()),
        }
    }

    /// Adds a map, and the step that led to it if the OSD has that.
    pub fn put_map(
        &self,
        epoch: Epoch,
        full: Bytes,
        inc: Option<Bytes>,
    ) -> Result<(), CollectError> {
        let mut batch = KvBatch::new();
        batch.put(full_key(epoch), full);
        if let Some(inc) = inc {
            batch.put(inc_key(epoch), inc);
        }
        if self.newest()?.is_none_or(|newest| epoch > newest) {
            layout::put_u64(&mut batch, OSDMAP, "last", epoch.into());
        }
        Ok(self.kv.commit_later(batch)?)
    }

    /// Notes that all maps of an OSD are in it. Durable when this returns.
    pub fn put_osd(&self, part: &OsdPart) -> Result<(), CollectError> {
        let mut batch = KvBatch::new();
        layout::put_u64(&mut batch, REBUILD, &format!("osd_{}", part.osd), part.newest.into());
        if let Some(auth) = &part.auth {
            let name = AuthEntityName::new(entity::OSD, part.osd.to_string());
            auth_service::put_entity(&mut batch, &name, auth);
        }
        Ok(self.kv.commit(batch)?)
    }

    fn asked(&self) -> Result<BTreeSet<OsdId>, CollectError> {
        let rows = layout::all(&*self.kv, REBUILD)?;
        Ok(rows.iter().filter_map(|(key, _)| key.strip_prefix("osd_")?.parse().ok()).collect())
    }

    /// The newest map and those before it as far back as there is none missing, and the OSDs' keys.
    pub(crate) fn put_into(
        &self,
        batch: &mut KvBatch,
        cluster: Uuid,
    ) -> Result<Rebuilt, CollectError> {
        let last = self.newest()?.ok_or(CollectError::Nothing)?;
        let full = self.map(last)?.ok_or(CollectError::Nothing)?;
        let map = decode(last, &full)?;
        if map.fsid != cluster {
            return Err(CollectError::OtherCluster { found: map.fsid, own: cluster });
        }
        batch.put(full_key(last), full);
        let mut first = last;
        // Whoever has the map before is sent the step.
        while let Some(inc) = self.kv.get(&inc_key(first))? {
            let before = first.saturating_sub(1);
            let Some(full) = self.map(before)? else { break };
            batch.put(inc_key(first), inc);
            batch.put(full_key(before), full);
            first = before;
        }
        layout::put_u64(batch, OSDMAP, "first", first.into());
        layout::put_u64(batch, OSDMAP, "last", last.into());
        for (name, auth) in layout::all(&*self.kv, AUTH)? {
            batch.put(layout::key(AUTH, &name), auth);
        }
        let asked = self.asked()?;
        let exist = (0..map.max_osd).filter(|osd| map.exists(*osd));
        let not_asked = exist.filter(|osd| !asked.contains(osd)).collect();
        Ok(Rebuilt { first, last, asked, not_asked })
    }
}

#[cfg(test)]
mod tests {
    use auth::{CryptoKey, Keyring};
    use config::Config;
    use maps::{Incremental, MonMap};
    use store::kv::MemKv;
    use types::UTime;

    use super::*;
    use crate::{MkfsError, mkfs, mkfs_from_osds};

    fn cluster() -> Uuid {
        Uuid::from_random([7; 16])
    }

    fn fill(buf: &mut [u8]) {
        buf.fill(1);
    }

    fn keyring() -> Keyring {
        let key = CryptoKey::generate(&fill, UTime::default());
        let auth = EntityAuth::new(key, [("mon", "allow *")]);
        let mut keyring = Keyring::new();
        keyring.keys.insert(AuthEntityName::new(entity::MON, ""), auth);
        keyring
    }

    fn monmap() -> MonMap {
        MonMap { fsid: cluster(), ..MonMap::default() }
    }

    /// Maps 1 to `last` of a cluster, one OSD more in each; they differ by `weight`.
    fn maps_to(last: Epoch, weight: u32) -> Vec<(Epoch, Bytes, Bytes)> {
        let kv = MemKv::new();
        let now = UTime::default();
        mkfs(&kv, &Config::new("mon", "a"), &monmap(), &keyring(), now, &fill).unwrap();
        let first = kv.get(&full_key(1)).unwrap().unwrap();
        let mut map = OsdMap::from_bytes(&first).unwrap();
        let mut all = vec![(1, first, kv.get(&inc_key(1)).unwrap().unwrap())];
        for epoch in 2..=last {
            let mut inc = Incremental::new(cluster(), epoch);
            let osd = epoch as OsdId - 2;
            inc.new_max_osd = osd + 1;
            inc.new_weight.insert(osd, weight);
            map.apply(&inc).unwrap();
            let (full, crc) = map.encode_with_crc();
            map.crc = crc;
            all.push((epoch, full, inc.encode_with_crc(crc).0));
        }
        all
    }

    fn add(collected: &Collected, osd: OsdId, maps: &[(Epoch, Bytes, Bytes)], gap: Epoch) {
        for (epoch, full, inc) in maps {
            collected.check(cluster(), *epoch, full).unwrap();
            let inc = (*epoch != gap).then(|| inc.clone());
            collected.put_map(*epoch, full.clone(), inc).unwrap();
        }
        let newest = maps.last().unwrap().0;
        collected.put_osd(&OsdPart { osd, newest, auth: None }).unwrap();
    }

    fn rebuild(collected: &Collected) -> Result<(Rebuilt, MemKv), MkfsError> {
        let kv = MemKv::new();
        let now = UTime { sec: 2_000_000_000, nsec: 0 };
        let rebuilt = mkfs_from_osds(&kv, collected, &monmap(), &keyring(), now, &fill)?;
        Ok((rebuilt, kv))
    }

    #[test]
    fn the_newest_maps_of_all_osds_count_as_far_back_as_none_is_missing() {
        let maps = maps_to(6, 1);
        let collected = Collected::new(Rc::new(MemKv::new()));
        assert!(matches!(rebuild(&collected), Err(MkfsError::Collected(CollectError::Nothing))));
        // One was sent map 3 whole, another one was down before the last.
        add(&collected, 0, &maps[..4], 3);
        // Whoever has the step is still asked for it.
        assert_eq!([2, 3, 5].map(|epoch| collected.has_map(epoch).unwrap()), [true, false, false]);
        add(&collected, 2, &maps[3..], 0);
        let (rebuilt, kv) = rebuild(&collected).unwrap();
        let want = Rebuilt {
            first: 3,
            last: 6,
            asked: BTreeSet::from([0, 2]),
            not_asked: BTreeSet::from([1, 3, 4]),
        };
        assert_eq!(rebuilt, want);
        assert!(kv.get(&full_key(3)).unwrap().is_some());
        for (epoch, full, inc) in &maps[3..] {
            assert_eq!(kv.get(&full_key(*epoch)).unwrap().as_ref(), Some(full));
            assert_eq!(kv.get(&inc_key(*epoch)).unwrap().as_ref(), Some(inc));
        }
        assert!(kv.get(&full_key(2)).unwrap().is_none());
        // What was sent whole by one another one has the step of.
        add(&collected, 1, &maps[..3], 0);
        assert_eq!(rebuild(&collected).unwrap().0.first, 1);
    }

    /// An operation's id has its client's in it, and a placement group's log is what says whether it was done.
    #[test]
    fn no_client_is_called_as_one_was_before() {
        let collected = Collected::new(Rc::new(MemKv::new()));
        add(&collected, 0, &maps_to(2, 1), 0);
        let (_, kv) = rebuild(&collected).unwrap();
        let ids = layout::get_u64(&kv, AUTH, "max_global_id").unwrap();
        assert_eq!(ids, Some(2_000_000_000_000));
    }

    #[test]
    fn osds_that_went_two_ways_are_told_apart() {
        let collected = Collected::new(Rc::new(MemKv::new()));
        add(&collected, 0, &maps_to(4, 1), 0);
        let other = &maps_to(4, 2)[3];
        let refused = collected.check(cluster(), 4, &other.1).unwrap_err();
        assert!(matches!(refused, CollectError::Differ(4)), "{refused}");
        let strange = Uuid::from_random([8; 16]);
        let refused = collected.check(strange, 4, &other.1).unwrap_err();
        assert!(matches!(refused, CollectError::OtherCluster { .. }), "{refused}");
        let refused = collected.check(cluster(), 5, &other.1).unwrap_err();
        assert!(matches!(refused, CollectError::OtherEpoch(5, 4)), "{refused}");
        let refused = collected.check(cluster(), 4, &other.1.slice(..100)).unwrap_err();
        assert!(matches!(refused, CollectError::NoMap(4, _)), "{refused}");
    }
}
