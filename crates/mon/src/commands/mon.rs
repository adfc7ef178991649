//! `mon ...`.

use std::collections::BTreeMap;

use command::{CommandReply, Formatter};
use denc::Denc;
use maps::monmap::MonFeatures;
use maps::release::{PACIFIC, release_name};
use maps::{MonInfo, MonMap};
use types::addr::AddrType;
use types::{AddrVec, EntityAddr, Errno, entity};

use super::cmd::{Cmd, CmdResult, Refusal, check_name, done, fail, refuse, say, unhandled};
use crate::core::MonCore;

impl MonCore {
    pub(crate) fn cmd_mon(&mut self, cmd: &Cmd) -> CmdResult {
        match cmd.prefix.as_str() {
            "mon dump" => {
                let map = self.wanted_monmap(cmd)?;
                let mut reply = cmd.output(
                    |f| {
                        f.object("monmap", |f| {
                            map.dump(f);
                            self.dump_quorum_ranks(f);
                        });
                    },
                    || map.print(),
                );
                reply.outs = format!("dumped monmap epoch {}", map.epoch);
                Ok(reply)
            }
            "mon getmap" => {
                let map = self.wanted_monmap(cmd)?;
                let outs = format!("got monmap epoch {}", map.epoch);
                Ok(CommandReply { outs, ..CommandReply::data(map.to_bytes()) })
            }
            "mon stat" => Ok(self.mon_stat(cmd)),
            "mon feature ls" => Ok(self.mon_features(cmd)),
            "mon feature set" => self.mon_feature_set(cmd),
            "mon metadata" => match cmd.map.opt_string("id")? {
                Some(id) => match self.mon_metadata.get(&id) {
                    Some(facts) => Ok(cmd.structured(|f| {
                        f.object("mon_metadata", |f| {
                            facts.iter().for_each(|(key, value)| f.dump_string(key, value));
                        });
                    })),
                    None => fail(Errno::ENOENT, "requested mon not found"),
                },
                None => Ok(cmd.structured(|f| {
                    f.array("mon_metadata", |f| {
                        for (name, facts) in &self.mon_metadata {
                            f.object("mon", |f| {
                                f.dump_string("name", name);
                                facts.iter().for_each(|(key, value)| f.dump_string(key, value));
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
                let left: Vec<&str> =
                    self.quorum_names().into_iter().filter(|name| *name != id).collect();
                let size = self.monmap.size().saturating_sub(1);
                if size == 0 || left.len() <= size / 2 {
                    return fail(Errno::EBUSY, format!("removing mon.{id} would break quorum"));
                }
                done()
            }
            "mon ok-to-add-offline" => {
                let (size, up) = (self.monmap.size() + 1, self.standing.quorum.len());
                if up > size / 2 {
                    return done();
                }
                fail(Errno::EBUSY, "adding a monitor may break quorum (until that monitor starts)")
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
            "mon add" => self.mon_add(cmd),
            "mon set-addrs" => self.mon_set_addrs(cmd),
            "mon set-rank" => self.mon_set_rank(cmd),
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
            _ => unhandled(),
        }
    }

    fn mon_add(&mut self, cmd: &Cmd) -> CmdResult {
        let (name, text) = (cmd.name("name")?, cmd.string("addr")?);
        let Some(public_addrs) = mon_addrs(&text) else {
            return fail(Errno::EINVAL, format!("invalid address '{text}'"));
        };
        if let Some(known) = self.monmap.mon_info.get(&name) {
            if known.public_addrs == public_addrs {
                return say(format!("mon.{name} at {public_addrs} already exists"));
            }
            return fail(
                Errno::EEXIST,
                format!("mon.{name} already exists at address {}", known.public_addrs),
            );
        }
        if self.monmap.rank_at(&public_addrs).is_some() {
            return fail(Errno::EEXIST, format!("mon at {public_addrs} already exists"));
        }
        let mut crush_loc = BTreeMap::new();
        if cmd.map.contains("location") {
            for pair in cmd.map.strings("location")? {
                check_name(&pair)?;
                let Some((kind, place)) = pair.split_once('=') else {
                    return fail(Errno::EINVAL, format!("invalid location '{pair}'"));
                };
                crush_loc.insert(kind.to_string(), place.to_string());
            }
        }
        let outs = format!("adding mon.{name} at {public_addrs}");
        let mon = MonInfo { name, public_addrs, crush_loc, ..MonInfo::default() };
        self.change_monmap(|map| map.add(mon));
        say(outs)
    }

    fn mon_set_addrs(&mut self, cmd: &Cmd) -> CmdResult {
        let (name, text) = (cmd.string("name")?, cmd.string("addrs")?);
        if !self.monmap.mon_info.contains_key(&name) {
            return fail(Errno::ENOENT, format!("mon.{name} does not exist"));
        }
        let Some(addrs) = mon_addrs(&text).filter(|addrs| addrs.msgr2().is_some()) else {
            return fail(Errno::EINVAL, format!("failed to parse addrs '{text}'"));
        };
        self.change_monmap(|map| {
            if let Some(mon) = map.mon_info.get_mut(&name) {
                mon.public_addrs = addrs;
            }
        });
        done()
    }

    fn mon_set_rank(&mut self, cmd: &Cmd) -> CmdResult {
        let (name, rank) = (cmd.string("name")?, cmd.map.int("rank")?);
        if !self.monmap.mon_info.contains_key(&name) {
            return fail(Errno::ENOENT, format!("mon.{name} does not exist"));
        }
        let place = usize::try_from(rank).ok().filter(|rank| *rank < self.monmap.size());
        let Some(place) = place else {
            return fail(Errno::EINVAL, format!("invalid rank {rank}"));
        };
        self.change_monmap(|map| {
            map.ranks.retain(|other| *other != name);
            map.ranks.insert(place, name);
        });
        done()
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
                        maps::release::release_name(map.min_mon_release),
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

    /// Only persistent features can be set: there are no optional ones.
    fn mon_feature_set(&mut self, cmd: &Cmd) -> CmdResult {
        let name = cmd.string("feature_name")?;
        let Some(feature) = MonFeatures::named(&name) else {
            return fail(Errno::ENOENT, format!("unknown feature '{name}'"));
        };
        let text = format!("mon_feature_t([{}])", feature.names().join(","));
        if !cmd.map.flag("yes_i_really_mean_it") {
            return fail(
                Errno::EPERM,
                format!(
                    "please specify '--yes-i-really-mean-it' if you really, **really** want to \
                     set feature '{text}' in the monmap."
                ),
            );
        }
        if self.monmap.persistent_features.bits & feature.bits != feature.bits {
            self.change_monmap(|map| map.persistent_features.bits |= feature.bits);
        }
        say(format!("setting feature '{text}'"))
    }

    fn mon_features(&self, cmd: &Cmd) -> CommandReply {
        let features = &self.monmap.persistent_features;
        let with_value = cmd.map.contains("with_value");
        let text = match with_value {
            true => features.text_with_value(),
            false => format!("[{}]", features.names().join(",")),
        };
        cmd.output(
            |f| {
                let list = |f: &mut Formatter, name: &str| match with_value {
                    true => features.dump_with_value(f, name),
                    false => features.dump(f, name),
                };
                f.object("features", |f| {
                    f.object("all", |f| {
                        list(f, "supported");
                        list(f, "persistent");
                    });
                    f.object("monmap", |f| {
                        list(f, "persistent");
                        self.monmap.optional_features.dump(f, "optional");
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
            let value = facts.get(property).cloned().unwrap_or_else(|| "unknown".into());
            *counts.entry(value).or_default() += 1;
        }
        counts
    }

    /// How many peers of a kind have which features, this monitor among them.
    fn count_features(&self) -> BTreeMap<(u8, u64), u64> {
        let mut counts = BTreeMap::new();
        counts.insert((entity::MON, types::features::ALL), 1);
        for session in self.sessions.values() {
            *counts.entry((session.peer.name.kind, session.peer.features)).or_default() += 1;
        }
        counts
    }

    /// Clients of this monitor, and of others as far as they ask for what only the leader can answer, that lack
    /// features of a release: words about each kind.
    pub(crate) fn connected_before(&self, release: u8) -> Vec<String> {
        let wanted = types::features::of_release(release);
        let counts = self.count_features();
        let of = |kind: u8| counts.iter().filter(move |((k, _), _)| *k == kind);
        let kinds = [entity::CLIENT, entity::MDS, entity::MGR];
        let lacking = kinds.into_iter().flat_map(of).filter_map(|((kind, features), n)| {
            let missing = !features & wanted;
            let text = || {
                let (kind, like) = (entity::kind_name(*kind), features_release(*features));
                format!("{n} connected {kind}(s) look like {like} (missing {missing:#x})")
            };
            (missing != 0).then(text)
        });
        lacking.collect()
    }

    /// Connected peers of each kind by feature bits.
    pub(crate) fn dump_feature_map(&self, f: &mut Formatter, name: &str) {
        let counts = self.count_features();
        let order = [entity::MON, entity::MDS, entity::OSD, entity::CLIENT, entity::MGR];
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

/// The newest release whose features are all there; of those that differ by no feature bit the first
/// (`ceph_release_from_features`, `src/common/ceph_strings.cc` at v16.2).
pub(crate) fn features_release(features: u64) -> &'static str {
    let wanted = types::features::of_release;
    let has = |release: &u8| types::features::has(features, wanted(*release));
    let newest = (1..=PACIFIC).take_while(has).last().unwrap_or(0);
    let first = (1..newest).find(|release| wanted(*release) == wanted(newest));
    release_name(first.unwrap_or(newest))
}

/// Addresses of a monitor as people give them: `[v2:IP:PORT,...]`, or an IP with Ceph's ports
/// unless it names one (`MonmapMonitor::prepare_command` at v16.2).
fn mon_addrs(text: &str) -> Option<AddrVec> {
    const PORT_V2: u16 = 3300;
    const PORT_V1: u16 = 6789;
    let typed = ["v1:", "v2:"].iter().any(|kind| text.contains(kind));
    if typed {
        let text = text.trim_matches(['[', ']']);
        let parse = |one: &str| EntityAddr::parse(one, AddrType::Msgr2).ok();
        let addrs: Option<Vec<EntityAddr>> = text.split(',').map(parse).collect();
        return addrs.map(|addrs| addrs.into_iter().collect());
    }
    let addr = EntityAddr::parse(text, AddrType::Any).ok()?;
    let sock = addr.sock?;
    let at = |kind, port| {
        let mut sock = sock;
        sock.set_port(port);
        EntityAddr { kind, nonce: 0, sock: Some(sock) }
    };
    Some(match addr.port() {
        0 => [at(AddrType::Msgr2, PORT_V2), at(AddrType::Legacy, PORT_V1)].into_iter().collect(),
        PORT_V1 => AddrVec::of(at(AddrType::Legacy, PORT_V1)),
        port => AddrVec::of(at(AddrType::Msgr2, port)),
    })
}
