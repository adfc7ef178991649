//! The map of file systems and metadata servers (`src/mon/MDSMonitor.cc` at v16.2).
//!
//! | file | what |
//! |---|---|
//! | `beacon.rs` | what MDSs say: that they are there, what they do, what they find wrong |
//! | `watch.rs` | what time does: MDSs that fall silent lose their rank, others get it |
//! | `subs.rs` | who is told which part of the map |
//! | `findings.rs` | what of it is a matter of health |
//!
//! Whoever loses a rank is blocked at the OSDs in the same commit: he cannot write where the next
//! one reads already.

mod beacon;
mod findings;
mod subs;
mod watch;

use std::collections::BTreeMap;
use std::time::Duration;

use denc::Denc;
use maps::FsMap;
use messages::MdsHealth;
use store::Kv;
use types::{Epoch, Errno, UTime};

use crate::core::{LoadError, MonCore};
use crate::layout::{self, MDS_HEALTH, MDS_METADATA, MDSMAP};

/// State of the service.
pub(crate) struct MdsService {
    /// The map as it will be with what is pending.
    pub(crate) map: FsMap,
    /// The committed map.
    pub(crate) published: FsMap,
    /// The map of the proposal under way.
    proposed: Option<FsMap>,
    dirty: bool,
    /// Facts about MDSs' hosts and builds, by global id.
    pub(crate) metadata: BTreeMap<u64, BTreeMap<String, String>>,
    /// What they find wrong.
    health: BTreeMap<u64, MdsHealth>,
    /// When each was last heard of.
    last_beacon: BTreeMap<u64, Duration>,
    last_watch: Option<Duration>,
}

/// Records by global id.
fn by_gid<T: Denc>(kv: &dyn Kv, prefix: &str) -> Result<BTreeMap<u64, T>, LoadError> {
    let mut all = BTreeMap::new();
    for (key, value) in layout::all(kv, prefix)? {
        let decode = |error| LoadError::Decode { what: format!("{prefix}/{key}"), error };
        if let Ok(gid) = key.parse() {
            all.insert(gid, T::from_bytes(&value).map_err(decode)?);
        }
    }
    Ok(all)
}

impl MdsService {
    pub(crate) fn load(kv: &dyn Kv) -> Result<MdsService, LoadError> {
        let map = match layout::get_u64(kv, MDSMAP, "last")? {
            // Nobody has asked for a file system yet.
            None => FsMap::default(),
            Some(last) => {
                let what = || format!("{MDSMAP}/{last}");
                let bytes = kv.get(&layout::numbered(MDSMAP, "", last))?;
                let bytes = bytes.ok_or_else(|| LoadError::Inconsistent { what: what() })?;
                let decode = |error| LoadError::Decode { what: what(), error };
                FsMap::from_bytes(&bytes).map_err(decode)?
            }
        };
        Ok(MdsService {
            published: map.clone(),
            map,
            proposed: None,
            dirty: false,
            metadata: by_gid(kv, MDS_METADATA)?,
            health: by_gid(kv, MDS_HEALTH)?,
            last_beacon: BTreeMap::new(),
            last_watch: None,
        })
    }
}

impl MonCore {
    /// The map of the next epoch, to be changed.
    pub(crate) fn change_fsmap(&mut self) -> &mut FsMap {
        self.mark_dirty();
        if !std::mem::replace(&mut self.mds.dirty, true) {
            self.mds.map.epoch += 1;
        }
        &mut self.mds.map
    }

    pub(crate) fn encode_fsmap(&mut self) {
        if !std::mem::take(&mut self.mds.dirty) {
            return;
        }
        let (now, epoch) = (self.now.wall, self.mds.map.epoch);
        let pools = self.next_map();
        let map = &mut self.mds.map;
        map.forget_pools(|pool| pools.pool(pool).is_some());
        for fs in map.filesystems.values_mut().filter(|fs| fs.mds_map.epoch == epoch) {
            fs.mds_map.modified = now;
        }
        if let Some(what) = map.insane() {
            // Our own handlers made it: going on would let two MDSs write one rank.
            panic!("file system map {epoch}: {what}");
        }
        let map = map.clone();
        let bytes = map.to_bytes();
        let keep = self.conf.uint("mon_max_mdsmap_epochs").max(1);
        let batch = self.batch();
        batch.put(layout::numbered(MDSMAP, "", epoch.into()), bytes);
        layout::put_u64(batch, MDSMAP, "last", epoch.into());
        if u64::from(epoch) > keep {
            batch.delete(layout::numbered(MDSMAP, "", u64::from(epoch) - keep));
        }
        self.forget_gone_mds(&map);
        self.mds.proposed = Some(map);
    }

    /// What was kept of MDSs that are gone.
    fn forget_gone_mds(&mut self, map: &FsMap) {
        let gone = |gid: &&u64| !map.mds_roles.contains_key(gid);
        let facts: Vec<u64> = self.mds.metadata.keys().filter(gone).copied().collect();
        let health: Vec<u64> = self.mds.health.keys().filter(gone).copied().collect();
        for gid in facts {
            self.mds.metadata.remove(&gid);
            self.batch().delete(layout::key(MDS_METADATA, &gid.to_string()));
        }
        for gid in health {
            self.mds.health.remove(&gid);
            self.batch().delete(layout::key(MDS_HEALTH, &gid.to_string()));
        }
    }

    /// The proposal is committed: what is encoded is published, not what has changed since. What follows
    /// from it is done at once: an MDS that has lost its rank would have begun anew by the next second, and
    /// be taken for it again.
    pub(crate) fn fsmap_committed(&mut self) {
        if let Some(map) = self.mds.proposed.take() {
            self.mds.published = map;
            self.watch_mds();
        }
    }

    /// The map of an epoch kept.
    pub(crate) fn fsmap_of_epoch(&self, epoch: Epoch) -> Result<FsMap, Errno> {
        if epoch == self.mds.published.epoch {
            return Ok(self.mds.published.clone());
        }
        let found = self.kv.get(&layout::numbered(MDSMAP, "", epoch.into()));
        let Some(bytes) = found.ok().flatten() else {
            // The first one is not stored.
            let first = epoch == 1 && self.first_fsmap() == 1;
            return if first { Ok(FsMap::default()) } else { Err(Errno::ENOENT) };
        };
        FsMap::from_bytes(&bytes).map_err(|_| Errno::EIO)
    }

    /// Oldest epoch kept.
    pub(crate) fn first_fsmap(&self) -> Epoch {
        let keep = self.conf.uint("mon_max_mdsmap_epochs").max(1);
        let first = u64::from(self.mds.published.epoch).saturating_sub(keep - 1).max(1);
        first as Epoch
    }

    /// An MDS loses its place. One that has a rank is blocked at the OSDs: what it wrote by then is
    /// all that the next one finds.
    pub(crate) fn fail_mds(&mut self, gid: u64) {
        let blocked_in = self.block_mds(gid);
        self.change_fsmap().erase(gid, blocked_in);
        self.mds.last_beacon.remove(&gid);
    }

    /// Blocks an MDS that has a rank at the OSDs; gives the epoch of their map that says so, 0 for
    /// one that only waits or follows.
    fn block_mds(&mut self, gid: u64) -> Epoch {
        let Some(info) = self.mds.map.mds(gid) else { return 0 };
        if info.rank < 0 || info.state == maps::mdsmap::MdsState::STANDBY_REPLAY {
            return 0;
        }
        let addrs: Vec<_> = info.addrs.iter().map(types::EntityAddr::as_any).collect();
        let seconds = self.conf.float("mon_mds_blocklist_interval");
        let until = UTime::from_secs_f64(self.now.wall.as_secs_f64() + seconds);
        let inc = self.inc();
        for addr in addrs {
            inc.new_blocklist.insert(addr, until);
        }
        self.osd.map.epoch + 1
    }
}
