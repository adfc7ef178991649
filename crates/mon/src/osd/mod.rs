//! The OSD map and who changes it (`src/mon/OSDMonitor.cc` at v16.2).
//!
//! Changes gather in one incremental for the next epoch ([`MonCore::inc`]); handlers look at the
//! map as it will be ([`MonCore::next_map`]). When the batch is proposed the incremental is
//! closed: cleaned up, applied, encoded with checksums. After the commit the epoch is published.
//!
//! | file | what |
//! |---|---|
//! | `encode.rs` | closing an epoch, publishing it, sending maps |
//! | `boot.rs` | OSDs that come up, ask for up_thru or temporary mappings, report fullness |
//! | `failure.rs` | OSDs that go down: reports, beacons, timeouts |
//! | `map_cache.rs` | encoded maps of recent epochs |
//! | `creating.rs` | placement groups being created |
//! | `pools.rs` | pools created, deleted, changed |
//! | `snaps.rs` | snapshots of pools |
//! | `states.rs` | states and weights of OSDs |
//! | `tick.rs` | what time does to the map |

mod boot;
mod clean_epochs;
mod creating;
mod encode;
mod failure;
mod map_cache;
mod merges;
pub(crate) mod pools;
mod snaps;
mod states;
mod tick;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use config::Config;
use denc::Denc;
use maps::{Incremental, OsdMap};
use store::Kv;
use types::{Epoch, OsdId};

pub(crate) use creating::CreatingPgs;
pub(crate) use failure::FailureReports;

use self::clean_epochs::CleanEpochs;
use self::map_cache::MapCache;
use crate::core::{LoadError, MonCore};
use crate::layout::{self, OSD_METADATA, OSDMAP};

/// Facts about an OSD's host and build, by name.
pub(crate) type Metadata = BTreeMap<String, String>;

/// State of the service.
pub(crate) struct OsdService {
    /// The newest map that is encoded: proposed, perhaps not yet committed.
    pub(crate) map: Rc<OsdMap>,
    /// The newest committed map: what others are told.
    pub(crate) published: Rc<OsdMap>,
    /// Oldest epoch kept.
    pub(crate) first: Epoch,
    /// Changes towards the next epoch.
    pending: Incremental,
    pending_dirty: bool,
    /// `map` with `pending` applied, made when asked for.
    next: Option<Rc<OsdMap>>,
    pub(crate) metadata: BTreeMap<OsdId, Metadata>,
    pub(crate) creating: CreatingPgs,
    /// Reports about OSDs that are up.
    failures: BTreeMap<OsdId, FailureReports>,
    /// Since when an OSD that is in has been down.
    down_since: BTreeMap<OsdId, Duration>,
    /// When an OSD was last heard of, and how long it may be silent.
    last_report: BTreeMap<OsdId, (Duration, Duration)>,
    clean_epochs: CleanEpochs,
    /// Snapshots of which the manager says that no PG has them any more, to be told to OSDs.
    pub(crate) purged_snaps: BTreeMap<i64, types::IntervalSet>,
    /// What pools' stored sets of purged snapshots will be with what is pending, read when one is
    /// asked for. At most one for each pool.
    ever_purged: BTreeMap<i64, types::IntervalSet>,
    /// Boot messages that came while noup was set: handled when it is cleared. One an OSD.
    refused_boots: BTreeMap<OsdId, (crate::event::SessionId, types::RawMessage)>,
    full_cache: MapCache,
    inc_cache: MapCache,
}

impl OsdService {
    fn load_map(kv: &dyn Kv) -> Result<(Epoch, Rc<OsdMap>), LoadError> {
        let last = layout::get_u64(kv, OSDMAP, "last")?.ok_or(LoadError::Empty)?;
        let first = layout::get_u64(kv, OSDMAP, "first")?.unwrap_or(last);
        let what = || format!("osdmap/full_{last}");
        let bytes = kv
            .get(&layout::numbered(OSDMAP, "full_", last))?
            .ok_or_else(|| LoadError::Inconsistent { what: what() })?;
        let map = OsdMap::from_bytes(&bytes)
            .map_err(|error| LoadError::Decode { what: what(), error })?;
        Ok((first as Epoch, Rc::new(map)))
    }

    fn load_metadata(kv: &dyn Kv) -> Result<BTreeMap<OsdId, Metadata>, LoadError> {
        let mut metadata = BTreeMap::new();
        for (key, value) in layout::all(kv, OSD_METADATA)? {
            let decode = |error| LoadError::Decode { what: format!("osd_metadata/{key}"), error };
            if let Ok(osd) = key.parse() {
                metadata.insert(osd, Metadata::from_bytes(&value).map_err(decode)?);
            }
        }
        Ok(metadata)
    }

    /// The newest map, which the leader made.
    pub(crate) fn take_map(&mut self, kv: &dyn Kv) -> Result<(), LoadError> {
        (self.first, self.map) = OsdService::load_map(kv)?;
        self.forget_maps_before(self.first);
        self.pending = Incremental::new(self.map.fsid, self.map.epoch + 1);
        self.next = None;
        self.ever_purged.clear();
        Ok(())
    }

    fn forget_maps_before(&mut self, first: Epoch) {
        self.full_cache.forget_before(first);
        self.inc_cache.forget_before(first);
    }

    /// What the leader knows of OSDs' hosts.
    pub(crate) fn take_metadata(&mut self, kv: &dyn Kv) -> Result<(), LoadError> {
        self.metadata = OsdService::load_metadata(kv)?;
        Ok(())
    }

    /// The placement groups that the leader has made.
    pub(crate) fn take_creating(&mut self, kv: &dyn Kv) -> Result<(), LoadError> {
        self.creating = CreatingPgs::load(kv)?;
        Ok(())
    }

    pub(crate) fn load(kv: &dyn Kv, _: &Config) -> Result<OsdService, LoadError> {
        let (first, map) = OsdService::load_map(kv)?;
        Ok(OsdService {
            pending: Incremental::new(map.fsid, map.epoch + 1),
            pending_dirty: false,
            next: None,
            published: map.clone(),
            first,
            metadata: OsdService::load_metadata(kv)?,
            creating: CreatingPgs::load(kv)?,
            failures: BTreeMap::new(),
            down_since: BTreeMap::new(),
            last_report: BTreeMap::new(),
            clean_epochs: CleanEpochs::default(),
            purged_snaps: BTreeMap::new(),
            ever_purged: BTreeMap::new(),
            refused_boots: BTreeMap::new(),
            full_cache: MapCache::default(),
            inc_cache: MapCache::default(),
            map,
        })
    }
}

impl MonCore {
    /// The committed map.
    pub(crate) fn osdmap(&self) -> Rc<OsdMap> {
        self.osd.published.clone()
    }

    /// The pending incremental, to be changed.
    pub(crate) fn inc(&mut self) -> &mut Incremental {
        self.osd.pending_dirty = true;
        self.osd.next = None;
        self.mark_dirty();
        &mut self.osd.pending
    }

    /// The pending incremental, to look at.
    pub(crate) fn pending_inc(&self) -> &Incremental {
        &self.osd.pending
    }

    /// The map as it will be with what is pending.
    pub(crate) fn next_map(&mut self) -> Rc<OsdMap> {
        if !self.osd.pending_dirty {
            return self.osd.map.clone();
        }
        if let Some(next) = &self.osd.next {
            return next.clone();
        }
        let mut map = (*self.osd.map).clone();
        self.osd.pending.fsid = map.fsid;
        self.osd.pending.epoch = map.epoch + 1;
        if let Err(error) = map.apply(&self.osd.pending) {
            // Our own handlers made it: this is a bug, and going on would split the cluster.
            panic!("pending incremental {} does not apply: {error}", self.osd.pending.epoch);
        }
        let next = Rc::new(map);
        self.osd.next = Some(next.clone());
        next
    }

    /// The number that OSDs' ids stay below: `mon_max_osd`, and what a map may have.
    pub(crate) fn max_osd_limit(&self) -> i64 {
        self.conf.int("mon_max_osd").min(maps::osdmap::MAX_OSD_MAX.into())
    }

    /// The pool to be changed, as it will be; put it back with [`MonCore::put_pool`].
    pub(crate) fn pool_to_change(&mut self, id: i64) -> Option<maps::PgPool> {
        self.next_map().pool(id).cloned()
    }

    /// A changed pool.
    pub(crate) fn put_pool(&mut self, id: i64, mut pool: maps::PgPool) {
        let inc = self.inc();
        pool.last_change = inc.epoch;
        inc.new_pools.insert(id, pool);
    }
}
