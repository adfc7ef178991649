//! The monitors of the cluster. Wire: MonMap v9 (`src/mon/MonMap.cc` at v16.2).
//!
//! The rank of a monitor is its place in [`MonMap::ranks`], not the order of the names.

use std::collections::{BTreeMap, BTreeSet};

use command::Formatter;
use denc::{Denc, Error, Reader, Writer};
use types::{AddrVec, Epoch, UTime, Uuid};

use crate::osdmap::dump_addrvec;
use crate::release::release_name;

/// Features a quorum has: struct v1 { u64 }. Bits kraken 1, luminous 2, mimic 4, osdmap_prune 8,
/// nautilus 0x10, octopus 0x20, pacific 0x40, elector_pinging 0x80.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct MonFeatures {
    /// The bits.
    pub bits: u64,
}

/// The features and their names, in the order of the bits.
pub const MON_FEATURE_NAMES: [(u64, &str); 8] = [
    (1, "kraken"),
    (2, "luminous"),
    (4, "mimic"),
    (8, "osdmap-prune"),
    (0x10, "nautilus"),
    (0x20, "octopus"),
    (0x40, "pacific"),
    (0x80, "elector-pinging"),
];

/// One monitor. Wire: mon_info_t v5.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MonInfo {
    /// Without `mon.`.
    pub name: String,
    /// Where it listens.
    pub public_addrs: AddrVec,
    /// For clients: lower is asked first.
    pub priority: u16,
    /// For clients: share among equal priorities.
    pub weight: u16,
    /// CRUSH type name to bucket name.
    pub crush_loc: BTreeMap<String, String>,
}

impl Denc for MonInfo {
    fn encode(&self, w: &mut Writer) {
        let compat = if self.crush_loc.is_empty() { 1 } else { 4 };
        w.envelope(5, compat, |w| {
            w.put(&self.name);
            w.put(&self.public_addrs);
            w.u16(self.priority);
            w.u16(self.weight);
            w.put(&self.crush_loc);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.envelope("mon_info_t", 5, 1, |r, v| {
            Ok(MonInfo {
                name: r.get()?,
                public_addrs: r.get()?,
                priority: if v >= 2 { r.u16()? } else { 0 },
                weight: if v >= 4 { r.u16()? } else { 0 },
                crush_loc: if v >= 5 { r.get()? } else { BTreeMap::new() },
            })
        })
    }
}

/// The map of the monitors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MonMap {
    /// The cluster.
    pub fsid: Uuid,
    /// This map's number; 0 before the first quorum.
    pub epoch: Epoch,
    /// When it last changed.
    pub last_changed: UTime,
    /// When the cluster was made.
    pub created: UTime,
    /// Features that stay.
    pub persistent_features: MonFeatures,
    /// Features that may go.
    pub optional_features: MonFeatures,
    /// Monitors by name.
    pub mon_info: BTreeMap<String, MonInfo>,
    /// Names by rank.
    pub ranks: Vec<String>,
    /// Release number the monitors at least have.
    pub min_mon_release: u8,
    /// Ranks taken away in this epoch.
    pub removed_ranks: BTreeSet<u32>,
    /// 1 classic, 2 disallow, 3 connectivity.
    pub strategy: u8,
    /// Who may not lead.
    pub disallowed_leaders: BTreeSet<String>,
    /// Whether two sites are treated specially.
    pub stretch_mode_enabled: bool,
    /// Who decides between the sites.
    pub tiebreaker_mon: String,
    /// Who is down while a site is.
    pub stretch_marked_down_mons: BTreeSet<String>,
}

impl MonMap {
    /// How many monitors there are.
    pub fn size(&self) -> usize {
        self.mon_info.len()
    }

    /// How many make a quorum.
    pub fn min_quorum_size(&self) -> usize {
        self.size() / 2 + 1
    }

    /// The monitor of a rank.
    pub fn by_rank(&self, rank: usize) -> Option<&MonInfo> {
        self.mon_info.get(self.ranks.get(rank)?)
    }

    /// The rank of a name.
    pub fn rank_of(&self, name: &str) -> Option<usize> {
        self.ranks.iter().position(|n| n == name)
    }

    /// The rank of who listens at one of the addresses.
    pub fn rank_at(&self, addrs: &AddrVec) -> Option<usize> {
        let there = |name: &String| {
            self.mon_info.get(name).is_some_and(|mon| mon.public_addrs.shares_any(addrs))
        };
        self.ranks.iter().position(there)
    }

    /// Adds a monitor with the highest rank.
    pub fn add(&mut self, mon: MonInfo) {
        if !self.ranks.contains(&mon.name) {
            self.ranks.push(mon.name.clone());
        }
        self.mon_info.insert(mon.name.clone(), mon);
    }

    /// Removes a monitor; those above it move down one rank.
    pub fn remove(&mut self, name: &str) -> Option<MonInfo> {
        let mon = self.mon_info.remove(name)?;
        if let Some(rank) = self.rank_of(name) {
            self.ranks.remove(rank);
            self.removed_ranks.insert(rank as u32);
        }
        Some(mon)
    }
}

impl Denc for MonMap {
    fn encode(&self, w: &mut Writer) {
        w.envelope(9, 6, |w| {
            w.put(&self.fsid);
            w.u32(self.epoch);
            w.put(&self.last_changed);
            w.put(&self.created);
            w.put(&self.persistent_features);
            w.put(&self.optional_features);
            w.put(&self.mon_info);
            w.put(&self.ranks);
            w.u8(self.min_mon_release);
            w.put(&self.removed_ranks);
            w.u8(self.strategy);
            w.put(&self.disallowed_leaders);
            w.bool(self.stretch_mode_enabled);
            w.put(&self.tiebreaker_mon);
            w.put(&self.stretch_marked_down_mons);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.envelope("MonMap", 9, 6, |r, v| {
            let mut map = MonMap {
                fsid: r.get()?,
                epoch: r.u32()?,
                last_changed: r.get()?,
                created: r.get()?,
                persistent_features: r.get()?,
                optional_features: r.get()?,
                mon_info: r.get()?,
                ranks: r.get()?,
                strategy: 1,
                ..MonMap::default()
            };
            if v >= 7 {
                map.min_mon_release = r.u8()?;
            }
            if v >= 8 {
                map.removed_ranks = r.get()?;
                map.strategy = r.u8()?;
                map.disallowed_leaders = r.get()?;
            }
            if v >= 9 {
                map.stretch_mode_enabled = r.bool()?;
                map.tiebreaker_mon = r.get()?;
                map.stretch_marked_down_mons = r.get()?;
            }
            if let Some(name) = map.ranks.iter().find(|name| !map.mon_info.contains_key(*name)) {
                return Err(Error::Invalid { what: "MonMap rank", value: name.len() as u64 });
            }
            Ok(map)
        })
    }
}

/// A set or list as Ceph streams print it: comma separated.
fn joined<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(",")
}

/// A place as Ceph streams print it: `{host=a,rack=b}`.
fn location_text(loc: &BTreeMap<String, String>) -> String {
    format!("{{{}}}", joined(loc.iter().map(|(kind, name)| format!("{kind}={name}"))))
}

impl MonFeatures {
    /// The names of the features.
    pub fn names(self) -> Vec<&'static str> {
        self.each().map(|(_, name)| *name).collect()
    }

    /// Their array of bits.
    pub fn dump_with_value(self, f: &mut Formatter, name: &str) {
        f.array(name, |f| self.each().for_each(|(bit, name)| f.dump_unsigned(name, *bit)));
    }

    /// `[kraken(1),luminous(2)]`.
    pub fn text_with_value(self) -> String {
        format!("[{}]", joined(self.each().map(|(bit, name)| format!("{name}({bit})"))))
    }

    fn each(self) -> impl Iterator<Item = &'static (u64, &'static str)> {
        MON_FEATURE_NAMES.iter().filter(move |(bit, _)| self.bits & bit != 0)
    }

    /// The feature of that name.
    pub fn named(name: &str) -> Option<MonFeatures> {
        let (bits, _) = MON_FEATURE_NAMES.iter().find(|(_, known)| *known == name)?;
        Some(MonFeatures { bits: *bits })
    }

    /// Their array.
    pub fn dump(self, f: &mut Formatter, name: &str) {
        f.array(name, |f| self.names().into_iter().for_each(|n| f.dump_string("feature", n)));
    }
}

impl MonMap {
    /// The members of `mon dump -f json`, but for the quorum.
    pub fn dump(&self, f: &mut Formatter) {
        f.dump_unsigned("epoch", self.epoch);
        f.dump_stream("fsid", self.fsid);
        f.dump_stream("modified", self.last_changed.gmtime());
        f.dump_stream("created", self.created.gmtime());
        f.dump_unsigned("min_mon_release", self.min_mon_release);
        f.dump_string("min_mon_release_name", release_name(self.min_mon_release));
        f.dump_int("election_strategy", self.strategy);
        f.dump_string("disallowed_leaders: ", joined(&self.disallowed_leaders));
        f.dump_bool("stretch_mode", self.stretch_mode_enabled);
        f.dump_string("tiebreaker_mon", &self.tiebreaker_mon);
        f.dump_string("removed_ranks: ", joined(&self.removed_ranks));
        f.object("features", |f| {
            self.persistent_features.dump(f, "persistent");
            self.optional_features.dump(f, "optional");
        });
        f.array("mons", |f| {
            for (rank, mon) in self.ranks.iter().enumerate() {
                let Some(mon) = self.mon_info.get(mon) else { continue };
                f.object("mon", |f| {
                    f.dump_int("rank", rank as i64);
                    f.dump_string("name", &mon.name);
                    dump_addrvec(f, "public_addrs", &mon.public_addrs);
                    f.dump_stream("addr", mon.public_addrs.legacy_text());
                    f.dump_stream("public_addr", mon.public_addrs.legacy_text());
                    f.dump_unsigned("priority", mon.priority);
                    f.dump_unsigned("weight", mon.weight);
                    f.dump_string("crush_location", location_text(&mon.crush_loc));
                });
            }
        });
    }

    /// The text of `mon dump`.
    pub fn print(&self) -> String {
        let mut out = format!(
            "epoch {}\nfsid {}\nlast_changed {}\ncreated {}\nmin_mon_release {} ({})\n\
             election_strategy: {}\n",
            self.epoch,
            self.fsid,
            self.last_changed,
            self.created,
            self.min_mon_release,
            release_name(self.min_mon_release),
            self.strategy
        );
        if self.stretch_mode_enabled {
            out.push_str(&format!(
                "stretch_mode_enabled 1\ntiebreaker_mon {}\n",
                self.tiebreaker_mon
            ));
        }
        if self.stretch_mode_enabled || !self.disallowed_leaders.is_empty() {
            out.push_str(&format!("disallowed_leaders {}\n", joined(&self.disallowed_leaders)));
        }
        for (rank, name) in self.ranks.iter().enumerate() {
            let Some(mon) = self.mon_info.get(name) else { continue };
            out.push_str(&format!("{rank}: {} mon.{name}", mon.public_addrs));
            if !mon.crush_loc.is_empty() {
                out.push_str(&format!("; crush_location {}", location_text(&mon.crush_loc)));
            }
            out.push('\n');
        }
        out
    }
}
