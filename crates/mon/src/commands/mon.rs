//! `mon ...`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use command::{CommandReply, Formatter};
use denc::Denc;
use maps::MonMap;
use types::{Errno, entity};

use super::cmd::{Cmd, CmdResult, Refusal, done, fail, refuse};
use crate::core::MonCore;

impl MonCore {
    pub(crate) fn cmd_mon(&mut self, cmd: &Cmd) -> CmdResult {
        match cmd.prefix.as_str() {
            "mon dump" => {
                let map = self.wanted_monmap(cmd)?;
                let mut reply = cmd.output(
                    |f| {
                        f.object("monmap", |f| {
                            crate::dump::monmap_fields(f, &map);
                            self.dump_quorum_ranks(f);
                        });
                    },
                    || monmap_text(&map),
                );
                reply.outs = format!("dumped monmap epoch {}", map.epoch);
                Ok(reply)
            }
            "mon getmap" => {
                let map = self.wanted_monmap(cmd)?;
                let outs = format!("got monmap epoch {}", map.epoch);
                Ok(CommandReply {
                    outs,
                    ..CommandReply::data(map.to_bytes())
                })
            }
            "mon stat" => Ok(self.mon_stat(cmd)),
            "mon feature ls" => Ok(self.mon_features(cmd)),
            "mon metadata" => match cmd.map.opt_string("id")? {
                Some(id) => match self.mon_metadata.get(&id) {
                    Some(facts) => Ok(cmd.structured(|f| {
                        f.object("mon_metadata", |f| {
                            facts
                                .iter()
                                .for_each(|(key, value)| f.dump_string(key, value));
                        });
                    })),
                    None => fail(Errno::ENOENT, "requested mon not found"),
                },
                None => Ok(cmd.structured(|f| {
                    f.array("mon_metadata", |f| {
                        for (name, facts) in &self.mon_metadata {
                            f.object("mon", |f| {
                                f.dump_string("name", name);
                                facts
                                    .iter()
                                    .for_each(|(key, value)| f.dump_string(key, value));
                            });
                        }
                    });
                })),
            },
            "mon versions" => {
                let counts = self.mon_counts("ceph_version");
                Ok(cmd.structured(|f| super::status::dump_counts(f, "versions", &counts)))
            }
            "mon count-metadata" => {
                let property = cmd.string("property")?;
                let counts = self.mon_counts(&property);
                Ok(cmd.structured(|f| super::status::dump_counts(f, &property, &counts)))
            }
            "mon ok-to-stop" => {
                let ids = cmd.map.strings("ids")?;
                let left: Vec<&str> = self
                    .monmap
                    .ranks
                    .iter()
                    .map(String::as_str)
                    .filter(|name| self.standing.quorum.contains(*name))
                    .filter(|name| !ids.iter().any(|id| id == name))
                    .collect();
                let stopping = ids.join(",");
                if left.len() >= self.monmap.min_quorum_size() {
                    return Ok(CommandReply::text(format!(
                        "quorum should be preserved ({}) after stopping [{stopping}]",
                        left.join(",")
                    )));
                }
                fail(
                    Errno::EBUSY,
                    format!(
                        "not enough monitors would be available ({}) after stopping mons [{stopping}]",
                        left.join(",")
                    ),
                )
            }
            "mon ok-to-rm" => {
                let id = cmd.string("id")?;
                if !self.monmap.mon_info.contains_key(&id) {
                    return Ok(CommandReply::text(format!("mon.{id} does not exist")));
                }
                let left: Vec<&str> = self
                    .quorum_names()
                    .into_iter()
                    .filter(|name| *name != id)
                    .collect();
                let size = self.monmap.size().saturating_sub(1);
                if size == 0 || left.len() <= size / 2 {
                    return fail(
                        Errno::EBUSY,
                        format!("removing mon.{id} would break quorum"),
                    );
                }
                done()
            }
            "mon ok-to-add-offline" => {
                let (size, up) = (self.monmap.size() + 1, self.standing.quorum.len());
                if up > size / 2 {
                    return done();
                }
                fail(
                    Errno::EBUSY,
                    "adding a monitor may break quorum (until that monitor starts)",
                )
            }
            "mon set-weight" => {
                let name = cmd.string("name")?;
                let weight = cmd.map.int("weight")?;
                if !self.monmap.mon_info.contains_key(&name) {
                    return fail(Errno::ENOENT, format!("mon.{name} does not exist"));
                }
                self.change_monmap(|map| {
                    if let Some(mon) = map.mon_info.get_mut(&name) {
                        mon.weight = weight as u16;
                    }
                });
                done()
            }
            "mon rm" | "mon remove" => {
                let name = cmd.string("name")?;
                if !self.monmap.mon_info.contains_key(&name) {
                    return Ok(CommandReply::text(format!(
                        "mon.{name} does not exist or has already been removed"
                    )));
                }
                if self.monmap.size() == 1 {
                    return fail(
                        Errno::EINVAL,
                        format!("error: refusing removal of last monitor {name}"),
                    );
                }
                self.change_monmap(|map| drop(map.remove(&name)));
                Ok(CommandReply::text(format!("removing mon.{name}")))
            }
            // Every monitor speaks version 2, and there is one copy of the database.
            "mon enable-msgr2" | "mon scrub" => done(),
            _ => done(),
        }
    }

    fn wanted_monmap(&self, cmd: &Cmd) -> Result<MonMap, Refusal> {
        match cmd.map.opt_int("epoch")? {
            Some(epoch) if epoch > 0 => self
                .monmap_of_epoch(epoch as u32)
                .ok_or_else(|| refuse(Errno::ENOENT, format!("there is no map for epoch {epoch}"))),
            _ => Ok(self.monmap.clone()),
        }
    }

    fn mon_stat(&self, cmd: &Cmd) -> CommandReply {
        let map = &self.monmap;
        let quorum = self.quorum_names().join(",");
        let ranks: Vec<String> = self.quorum_ranks().iter().map(i64::to_string).collect();
        let leader = self.leader_name();
        let leader_rank = self.monmap.rank_of(leader).map_or(-1, |rank| rank as i64);
        cmd.output(
            |f| {
                f.object("monmap", |f| {
                    f.dump_unsigned("epoch", map.epoch);
                    f.dump_string(
                        "min_mon_release_name",
                        crate::dump::release_name(map.min_mon_release),
                    );
                    f.dump_unsigned("num_mons", map.size() as u64);
                    f.dump_string("leader", leader);
                    f.array("quorum", |f| {
                        for (rank, name) in self.quorum_ranks().iter().zip(self.quorum_names()) {
                            f.object("mon", |f| {
                                f.dump_int("rank", *rank);
                                f.dump_string("name", name);
                            });
                        }
                    });
                });
            },
            || {
                let mons: Vec<String> =
                    map.mon_info.values().map(|m| format!("{}={}", m.name, m.public_addrs)).collect();
                let removed: Vec<String> =
                    map.removed_ranks.iter().map(u32::to_string).collect();
                format!(
                    "e{}: {} mons at {{{}}} removed_ranks: {{{}}}, election epoch {}, leader {leader_rank} {leader}, quorum {} {quorum}\n",
                    map.epoch,
                    map.size(),
                    mons.join(","),
                    removed.join(","),
                    self.election_epoch(),
                    ranks.join(",")
                )
            },
        )
    }

    fn mon_features(&self, cmd: &Cmd) -> CommandReply {
        let features = &self.monmap.persistent_features;
        let value = cmd.map.contains("with_value");
        let text = crate::dump::mon_feature_text(features);
        let _ = value;
        cmd.output(
            |f| {
                let list = |f: &mut Formatter, name: &str| {
                    f.array(name, |f| crate::dump::mon_feature_names(f, features));
                };
                f.object("features", |f| {
                    f.object("all", |f| {
                        list(f, "supported");
                        list(f, "persistent");
                    });
                    f.object("monmap", |f| {
                        list(f, "persistent");
                        f.array("optional", |f| {
                            crate::dump::mon_feature_names(f, &self.monmap.optional_features);
                        });
                        list(f, "required");
                    });
                });
            },
            || {
                format!(
                    "all features\n\tsupported: {text}\n\tpersistent: {text}\non current monmap (epoch {})\n\tpersistent: {text}\n\trequired: {text}\n",
                    self.monmap.epoch
                )
            },
        )
    }

    /// Monitors by the value of one fact about them.
    pub(crate) fn mon_counts(&self, property: &str) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for facts in self.mon_metadata.values() {
            let value = facts
                .get(property)
                .cloned()
                .unwrap_or_else(|| "unknown".into());
            *counts.entry(value).or_default() += 1;
        }
        counts
    }

    /// Connected peers of each kind by feature bits.
    pub(crate) fn dump_feature_map(&self, f: &mut Formatter, name: &str) {
        let mut counts: BTreeMap<(u8, u64), u64> = BTreeMap::new();
        counts.insert((entity::MON, types::features::ALL), 1);
        for session in self.sessions.values() {
            *counts
                .entry((session.peer.name.kind, session.peer.features))
                .or_default() += 1;
        }
        let order = [
            entity::MON,
            entity::MDS,
            entity::OSD,
            entity::CLIENT,
            entity::MGR,
        ];
        f.object(name, |f| {
            for kind in order {
                let of_kind: Vec<(u64, u64)> = counts
                    .iter()
                    .filter(|((k, _), _)| *k == kind)
                    .map(|((_, features), n)| (*features, *n))
                    .collect();
                if of_kind.is_empty() {
                    continue;
                }
                f.array(entity::kind_name(kind), |f| {
                    for (features, n) in of_kind {
                        f.object("group", |f| {
                            f.dump_string("features", format!("{features:#x}"));
                            f.dump_string("release", features_release(features));
                            f.dump_unsigned("num", n);
                        });
                    }
                });
            }
        });
    }
}

/// The newest release whose features are all there, as far as releases differ by feature bits.
pub(crate) fn features_release(features: u64) -> &'static str {
    if types::features::has(features, types::features::SERVER_LUMINOUS) {
        "luminous"
    } else if types::features::has(features, types::features::CRUSH_TUNABLES5) {
        "jewel"
    } else if types::features::has(features, types::features::CRUSH_V4) {
        "hammer"
    } else if types::features::has(features, types::features::CRUSH_TUNABLES3) {
        "firefly"
    } else {
        "bobtail"
    }
}

fn monmap_text(map: &MonMap) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "epoch {}", map.epoch);
    let _ = writeln!(out, "fsid {}", map.fsid);
    let _ = writeln!(out, "last_changed {}", map.last_changed);
    let _ = writeln!(out, "created {}", map.created);
    let release = crate::dump::release_name(map.min_mon_release);
    let _ = writeln!(out, "min_mon_release {} ({release})", map.min_mon_release);
    let _ = writeln!(out, "election_strategy: {}", map.strategy);
    for (rank, name) in map.ranks.iter().enumerate() {
        let Some(mon) = map.mon_info.get(name) else {
            continue;
        };
        let _ = write!(out, "{rank}: {} mon.{name}", mon.public_addrs);
        if !mon.crush_loc.is_empty() {
            let places: Vec<String> = mon
                .crush_loc
                .iter()
                .map(|(k, v)| format!("{k}={v}"))
                .collect();
            let _ = write!(out, "; crush location {{{}}}", places.join(","));
        }
        out.push('\n');
    }
    out
}
