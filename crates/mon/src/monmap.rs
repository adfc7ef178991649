//! The monitor map and what says who leads (`src/mon/MonmapMonitor.cc`, `Monitor.cc` at v16.2).
//! The quorum itself: `standing.rs`.

use std::collections::BTreeMap;

use command::Formatter;
use denc::Denc;
use maps::MonMap;
use messages::MMonMap;
use store::{Kv, KvBatch};
use types::{AddrVec, Epoch};

use crate::core::{LoadError, MonCore};
use crate::event::SessionId;
use crate::event::wire;
use crate::layout::{self, MON_METADATA, MONMAP};
use crate::standing::Role;

pub(crate) fn load(kv: &dyn Kv) -> Result<MonMap, LoadError> {
    let last = layout::get_u64(kv, MONMAP, "last")?.ok_or(LoadError::Empty)?;
    let what = || format!("monmap/{last}");
    let bytes = kv
        .get(&layout::numbered(MONMAP, "", last))?
        .ok_or_else(|| LoadError::Inconsistent { what: what() })?;
    MonMap::from_bytes(&bytes).map_err(|error| LoadError::Decode { what: what(), error })
}

/// Makes a map the newest one.
pub(crate) fn put(batch: &mut KvBatch, monmap: &MonMap) {
    batch.put(layout::numbered(MONMAP, "", monmap.epoch.into()), monmap.to_bytes());
    layout::put_u64(batch, MONMAP, "last", monmap.epoch.into());
}

/// Facts about monitors, by name.
pub(crate) fn load_metadata(
    kv: &dyn Kv,
) -> Result<BTreeMap<String, BTreeMap<String, String>>, LoadError> {
    let mut all = BTreeMap::new();
    for (name, value) in layout::all(kv, MON_METADATA)? {
        let facts = Denc::from_bytes(&value)
            .map_err(|error| LoadError::Decode { what: format!("mon_metadata/{name}"), error })?;
        all.insert(name, facts);
    }
    Ok(all)
}

impl MonCore {
    /// Own addresses.
    pub(crate) fn own_addrs(&self) -> AddrVec {
        let own = self.monmap.mon_info.get(&self.identity.name);
        own.map(|mon| mon.public_addrs.clone()).unwrap_or_default()
    }

    pub(crate) fn election_epoch(&self) -> u32 {
        self.standing.epoch
    }

    /// Seconds since the quorum formed.
    pub(crate) fn quorum_age(&self) -> u64 {
        self.quorum_time().as_secs()
    }

    /// How long the quorum has been.
    pub(crate) fn quorum_time(&self) -> std::time::Duration {
        match self.standing.role {
            Role::Out => std::time::Duration::ZERO,
            _ => self.now.mono.saturating_sub(self.standing.since),
        }
    }

    /// Who leads; empty if nobody does.
    pub(crate) fn leader_name(&self) -> &str {
        self.standing.leader.as_deref().unwrap_or_default()
    }

    /// The map of an epoch.
    pub(crate) fn monmap_of_epoch(&self, epoch: Epoch) -> Option<MonMap> {
        if epoch == self.monmap.epoch {
            return Some(self.monmap.clone());
        }
        let bytes = self.kv.get(&layout::numbered(MONMAP, "", epoch.into())).ok().flatten()?;
        MonMap::from_bytes(&bytes).ok()
    }

    /// Replaces the map by its successor.
    pub(crate) fn change_monmap(&mut self, change: impl FnOnce(&mut MonMap)) {
        change(&mut self.monmap);
        self.monmap.epoch += 1;
        self.monmap.last_changed = self.now.wall;
        let monmap = self.monmap.clone();
        put(self.batch(), &monmap);
    }

    /// A proposal begins: what it has of the map is told when it is committed.
    pub(crate) fn monmap_proposed(&mut self) {
        let changed = self.monmap.epoch != self.published_monmap.epoch;
        self.proposed_monmap = changed.then(|| self.monmap.clone());
    }

    /// The proposal is committed: its map is published, not what has changed since.
    pub(crate) fn monmap_committed(&mut self) {
        if let Some(map) = self.proposed_monmap.take() {
            self.published_monmap = map;
        }
    }

    /// The map as the database has it.
    pub(crate) fn take_monmap(&mut self, map: MonMap) {
        self.published_monmap = map.clone();
        self.monmap = map;
    }

    pub(crate) fn send_monmap(&mut self, to: SessionId) {
        let m = MMonMap { monmap: self.published_monmap.to_bytes() };
        self.send_now(to, wire(&m));
    }

    /// What `quorum_status` says.
    pub(crate) fn dump_quorum_status(&self, f: &mut Formatter) {
        f.object("quorum_status", |f| {
            f.dump_unsigned("election_epoch", self.election_epoch());
            self.dump_quorum(f);
            f.dump_string("quorum_leader_name", self.leader_name());
            f.dump_unsigned("quorum_age", self.quorum_age());
            f.object("features", |f| {
                f.dump_string("quorum_con", types::features::ALL.to_string());
                self.monmap.persistent_features.dump(f, "quorum_mon");
            });
            f.object("monmap", |f| self.published_monmap.dump(f));
        });
    }

    /// `quorum` and `quorum_names`.
    pub(crate) fn dump_quorum(&self, f: &mut Formatter) {
        self.dump_quorum_ranks(f);
        f.array("quorum_names", |f| {
            self.quorum_names().iter().for_each(|name| f.dump_string("mon", name));
        });
    }

    /// `quorum`.
    pub(crate) fn dump_quorum_ranks(&self, f: &mut Formatter) {
        f.array("quorum", |f| {
            self.quorum_ranks().iter().for_each(|rank| f.dump_int("mon", *rank));
        });
    }

    /// What `mon_status` says; also the text of a ping's answer and of the manager's digest.
    pub(crate) fn dump_mon_status(&self, f: &mut Formatter) {
        f.object("mon_status", |f| {
            f.dump_string("name", &self.identity.name);
            f.dump_int("rank", self.rank());
            let state = match self.standing.role {
                Role::Leader => "leader",
                Role::Peon => "peon",
                Role::Out => "electing",
            };
            f.dump_string("state", state);
            f.dump_unsigned("election_epoch", self.election_epoch());
            self.dump_quorum_ranks(f);
            f.dump_unsigned("quorum_age", self.quorum_age());
            f.object("features", |f| {
                f.dump_string("required_con", "2449958747317026820");
                self.monmap.persistent_features.dump(f, "required_mon");
                f.dump_string("quorum_con", types::features::ALL.to_string());
                self.monmap.persistent_features.dump(f, "quorum_mon");
            });
            f.array("outside_quorum", |f| {
                if self.standing.role == Role::Out {
                    f.dump_string("mon", &self.identity.name);
                }
            });
            f.array("extra_probe_peers", |_| {});
            f.array("sync_provider", |_| {});
            f.object("monmap", |f| self.published_monmap.dump(f));
            self.dump_feature_map(f, "feature_map");
            f.dump_bool("stretch_mode", self.monmap.stretch_mode_enabled);
        });
    }
}
