//! `osd ...` and `pg map`: questions about the map; and the way to all other `osd` commands.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::rc::Rc;

use bstr::BString;
use command::{Align, CommandReply, Formatter, TextTable};
use maps::OsdMap;
use maps::osdmap::osd_list;
use types::{Errno, ObjectLocator, OsdId, PgId};

use super::cmd::{Cmd, CmdResult, Refusal, fail, refuse};
use crate::core::MonCore;

impl MonCore {
    pub(crate) fn cmd_osd(&mut self, cmd: &Cmd) -> CmdResult {
        match cmd.prefix.as_str() {
            "osd stat" => {
                let map = self.osdmap();
                Ok(cmd.output(
                    |f| f.object("osdmap", |f| self.dump_osd_summary(f, &map)),
                    || format!("{}\n", self.osd_summary_text(&map, true, "")),
                ))
            }
            "osd dump" => self.osd_dump(cmd),
            "osd info" => self.osd_info(cmd),
            "osd ls" => {
                let map = self.wanted_map(cmd)?;
                let ids: Vec<OsdId> = map.osds().collect();
                Ok(id_list(cmd, "osds", &ids))
            }
            "osd getmap" => {
                let map = self.wanted_map(cmd)?;
                let bytes = self.full_map_bytes(map.epoch).unwrap_or_default();
                let outs = format!("got osdmap epoch {}", map.epoch);
                Ok(CommandReply { outs, ..CommandReply::data(bytes) })
            }
            "osd getmaxosd" => {
                let map = self.osdmap();
                Ok(cmd.output(
                    |f| {
                        f.object("getmaxosd", |f| {
                            f.dump_unsigned("epoch", map.epoch);
                            f.dump_int("max_osd", map.max_osd);
                        });
                    },
                    || format!("max_osd = {} in epoch {}\n", map.max_osd, map.epoch),
                ))
            }
            "osd tree" | "osd tree-from" => self.osd_tree(cmd),
            "osd ls-tree" => {
                let map = self.wanted_map(cmd)?;
                let name = cmd.string("name")?;
                let Some(id) = map.crush.id_of(&name) else {
                    return fail(Errno::ENOENT, format!("\"{name}\" does not exist"));
                };
                let leaves = map.crush.devices_under(id);
                let ids: Vec<OsdId> = leaves.into_iter().filter(|o| map.exists(*o)).collect();
                Ok(id_list(cmd, "osds", &ids))
            }
            "osd find" => self.osd_find(cmd),
            "osd metadata" => self.osd_metadata_cmd(cmd),
            "osd versions" => {
                let counts = self.osd_counts("ceph_version");
                Ok(cmd.structured(|f| super::status::dump_counts(f, "versions", &counts)))
            }
            "osd count-metadata" => {
                let property = cmd.string("property")?;
                let counts = self.osd_counts(&property);
                Ok(cmd.structured(|f| super::status::dump_counts(f, &property, &counts)))
            }
            "osd numa-status" => Ok(self.osd_numa(cmd)),
            "osd map" => self.osd_map_object(cmd),
            "pg map" => self.pg_map(cmd),
            "osd lspools" => {
                let map = self.osdmap();
                Ok(cmd.output(
                    |f| {
                        f.array("pools", |f| {
                            for (id, name) in &map.pool_names {
                                f.object("pool", |f| {
                                    f.dump_int("poolnum", *id);
                                    f.dump_string("poolname", name);
                                });
                            }
                        });
                    },
                    || {
                        let lines: Vec<String> = map
                            .pool_names
                            .iter()
                            .map(|(id, name)| format!("{id} {name}"))
                            .collect();
                        lines.join("\n") + "\n"
                    },
                ))
            }
            "osd last-stat-seq" => {
                let osd = self.osd_id(cmd, "id")?;
                let seq = self.stat.digest.last_seq(osd);
                Ok(cmd.output(|f| f.dump_unsigned("seq", seq), || format!("{seq}\n")))
            }
            "osd get-require-min-compat-client" => {
                let map = self.osdmap();
                let name = maps::release::release_name(map.require_min_compat_client);
                // The same whatever form is asked for.
                Ok(CommandReply::data(format!("{name}\n")))
            }
            "osd utilization" => Ok(self.osd_utilization(cmd)),
            "osd blocklist ls" | "osd blacklist ls" => Ok(self.blocklist_ls(cmd)),
            "osd erasure-code-profile ls" => {
                let map = self.osdmap();
                Ok(cmd.output(
                    |f| {
                        f.array("erasure-code-profiles", |f| {
                            map.erasure_code_profiles
                                .keys()
                                .for_each(|name| f.dump_string("profile", name));
                        });
                    },
                    || map.erasure_code_profiles.keys().map(|name| format!("{name}\n")).collect(),
                ))
            }
            "osd erasure-code-profile get" => {
                let name = cmd.string("name")?;
                let map = self.osdmap();
                let Some(profile) = map.erasure_code_profiles.get(&name) else {
                    return fail(Errno::ENOENT, format!("unknown erasure code profile '{name}'"));
                };
                Ok(cmd.output(
                    |f| {
                        f.object("profile", |f| {
                            profile.iter().for_each(|(key, value)| f.dump_string(key, value));
                        });
                    },
                    || profile.iter().map(|(key, value)| format!("{key}={value}\n")).collect(),
                ))
            }
            _ => self.cmd_osd_change(cmd),
        }
    }

    /// The map of the epoch asked for, or the newest.
    pub(crate) fn wanted_map(&mut self, cmd: &Cmd) -> Result<Rc<OsdMap>, Refusal> {
        match cmd.map.opt_int("epoch")? {
            Some(epoch) if epoch > 0 => {
                let found = u32::try_from(epoch).ok().and_then(|e| self.map_of_epoch(e));
                found.ok_or_else(|| {
                    refuse(Errno::ENOENT, format!("there is no map for epoch {epoch}"))
                })
            }
            _ => Ok(self.osdmap()),
        }
    }

    /// An OSD's id argument: a number or `osd.N`.
    pub(crate) fn osd_id(&self, cmd: &Cmd, key: &str) -> Result<OsdId, Refusal> {
        match cmd.map.value(key) {
            Some(command::ArgValue::Int(n)) => {
                OsdId::try_from(*n).map_err(|_| refuse(Errno::EINVAL, "invalid osd id"))
            }
            Some(command::ArgValue::String(text)) => parse_osd_id(text),
            _ => fail(Errno::EINVAL, "unable to parse osd id value"),
        }
    }

    fn osd_dump(&mut self, cmd: &Cmd) -> CmdResult {
        let map = self.wanted_map(cmd)?;
        Ok(cmd.output(|f| f.object("osdmap", |f| map.dump(f)), || map.print()))
    }

    fn osd_info(&mut self, cmd: &Cmd) -> CmdResult {
        let map = self.osdmap();
        if cmd.map.contains("id") {
            let osd = self.osd_id(cmd, "id")?;
            if !map.exists(osd) {
                return fail(Errno::EINVAL, format!("osd.{osd} does not exist"));
            }
            return Ok(cmd.output(
                |f| f.object("osd_info", |f| map.dump_osd(osd, f)),
                || map.print_osd(osd),
            ));
        }
        Ok(cmd.output(
            |f| {
                f.array("osd_info", |f| {
                    for osd in map.osds() {
                        f.object("osd", |f| map.dump_osd(osd, f));
                    }
                });
            },
            || map.osds().map(|osd| map.print_osd(osd)).collect(),
        ))
    }

    fn osd_find(&mut self, cmd: &Cmd) -> CmdResult {
        let osd = self.osd_id(cmd, "id")?;
        let map = self.osdmap();
        if !map.exists(osd) {
            return fail(Errno::ENOENT, format!("osd.{osd} does not exist"));
        }
        let facts = self.osd.metadata.get(&osd).cloned().unwrap_or_default();
        Ok(cmd.structured(|f| {
            f.object("osd_location", |f| {
                f.dump_int("osd", osd);
                maps::osdmap::dump_addrvec(
                    f,
                    "addrs",
                    &map.addrs(osd).cloned().unwrap_or_default(),
                );
                f.dump_stream("osd_fsid", map.uuid(osd));
                if let Some(host) = facts.get("hostname") {
                    f.dump_string("host", host);
                }
                for key in ["pod_name", "pod_namespace", "container_name", "container_hostname"] {
                    if let Some(value) = facts.get(key) {
                        f.dump_string(key, value);
                    }
                }
                f.object("crush_location", |f| {
                    let places: BTreeMap<String, String> =
                        map.crush.full_location(osd).into_iter().collect();
                    places.iter().for_each(|(kind, name)| f.dump_string(kind, name));
                });
            });
        }))
    }

    fn osd_metadata_cmd(&mut self, cmd: &Cmd) -> CmdResult {
        let map = self.osdmap();
        let one = |f: &mut Formatter, osd: OsdId, facts: &BTreeMap<String, String>| {
            f.object("osd", |f| {
                f.dump_int("id", osd);
                facts.iter().for_each(|(key, value)| f.dump_string(key, value));
            });
        };
        if cmd.map.contains("id") {
            let osd = self.osd_id(cmd, "id")?;
            if !map.exists(osd) {
                return fail(Errno::ENOENT, format!("osd.{osd} does not exist"));
            }
            let facts = self.osd.metadata.get(&osd).cloned().unwrap_or_default();
            return Ok(cmd.structured(|f| one(f, osd, &facts)));
        }
        Ok(cmd.structured(|f| {
            f.array("osd_metadata", |f| {
                for osd in map.osds() {
                    let facts = self.osd.metadata.get(&osd).cloned().unwrap_or_default();
                    one(f, osd, &facts);
                }
            });
        }))
    }

    /// OSDs by the value of one fact about them.
    pub(crate) fn osd_counts(&self, property: &str) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for osd in self.osdmap().osds() {
            let value = self.osd.metadata.get(&osd).and_then(|facts| facts.get(property));
            *counts.entry(value.cloned().unwrap_or_else(|| "unknown".into())).or_default() += 1;
        }
        counts
    }

    fn osd_numa(&self, cmd: &Cmd) -> CommandReply {
        let map = self.osdmap();
        let fact = |osd: OsdId, key: &str| -> String {
            let value = self.osd.metadata.get(&osd).and_then(|facts| facts.get(key));
            value.cloned().unwrap_or_default()
        };
        let osds: Vec<OsdId> =
            map.osds().filter(|osd| self.osd.metadata.contains_key(osd)).collect();
        cmd.output(
            |f| {
                f.array("osds", |f| {
                    for osd in &osds {
                        f.object("osd", |f| {
                            f.dump_int("osd", *osd);
                            f.dump_string("host", fact(*osd, "hostname"));
                            for (key, name) in [
                                ("numa_node", "numa_node"),
                                ("network_numa_nodes", "network_numa_nodes"),
                            ] {
                                let value = fact(*osd, key);
                                if !value.is_empty() {
                                    f.dump_string(name, value);
                                }
                            }
                        });
                    }
                });
            },
            || {
                let mut t = TextTable::new();
                t.define_column("OSD", Align::Left, Align::Right);
                t.define_column("HOST", Align::Left, Align::Left);
                for heading in ["NETWORK", "STORAGE", "AFFINITY"] {
                    t.define_column(heading, Align::Right, Align::Right);
                }
                t.define_column("CPUS", Align::Left, Align::Left);
                let dash = |text: String| {
                    if text.is_empty() { "-".to_string() } else { text }
                };
                for osd in &osds {
                    t.row([
                        osd.to_string(),
                        fact(*osd, "hostname"),
                        dash(fact(*osd, "network_numa_nodes")),
                        dash(fact(*osd, "objectstore_numa_nodes")),
                        dash(fact(*osd, "numa_node")),
                        dash(fact(*osd, "numa_node_cpus")),
                    ]);
                }
                t.to_string()
            },
        )
    }

    fn osd_map_object(&mut self, cmd: &Cmd) -> CmdResult {
        let (pool_name, object) = (cmd.string("pool")?, cmd.string("object")?);
        let nspace = cmd.map.opt_string("nspace")?.unwrap_or_default();
        let map = self.osdmap();
        let Some(pool) = map.lookup_pool(&pool_name) else {
            return fail(Errno::ENOENT, format!("pool {pool_name} does not exist"));
        };
        let loc = ObjectLocator {
            pool,
            namespace: BString::from(nspace.clone()),
            ..ObjectLocator::default()
        };
        let Some(raw) = map.object_to_raw_pg(object.as_bytes(), &loc) else {
            return fail(Errno::ENOENT, format!("pool {pool_name} does not exist"));
        };
        let pgid = map.raw_pg_to_pg(raw).unwrap_or(raw);
        let at = map.pg_to_up_acting(pgid);
        let full = if nspace.is_empty() { object.clone() } else { format!("{nspace}/{object}") };
        Ok(cmd.output(
            |f| {
                f.object("osd_map", |f| {
                    f.dump_unsigned("epoch", map.epoch);
                    f.dump_string("pool", &pool_name);
                    f.dump_int("pool_id", pool);
                    f.dump_string("objname", &full);
                    f.dump_stream("raw_pgid", raw);
                    f.dump_stream("pgid", pgid);
                    osd_array(f, "up", &at.up);
                    f.dump_int("up_primary", at.up_primary);
                    osd_array(f, "acting", &at.acting);
                    f.dump_int("acting_primary", at.acting_primary);
                });
            },
            || {
                format!(
                    "osdmap e{} pool '{pool_name}' ({pool}) object '{full}' -> pg {raw} ({pgid}) -> up ({}, p{}) acting ({}, p{})\n",
                    map.epoch,
                    osd_list(&at.up),
                    at.up_primary,
                    osd_list(&at.acting),
                    at.acting_primary
                )
            },
        ))
    }

    fn pg_map(&mut self, cmd: &Cmd) -> CmdResult {
        let text = cmd.string("pgid")?;
        let raw: PgId =
            text.parse().map_err(|_| refuse(Errno::EINVAL, format!("invalid pgid '{text}'")))?;
        let map = self.osdmap();
        let Some(pgid) = map.raw_pg_to_pg(raw) else {
            return fail(Errno::ENOENT, format!("pg '{text}' does not exist"));
        };
        let at = map.pg_to_up_acting(pgid);
        Ok(cmd.output(
            |f| {
                f.object("pg_map", |f| {
                    f.dump_unsigned("epoch", map.epoch);
                    f.dump_stream("raw_pgid", raw);
                    f.dump_stream("pgid", pgid);
                    osd_array(f, "up", &at.up);
                    osd_array(f, "acting", &at.acting);
                });
            },
            || {
                format!(
                    "osdmap e{} pg {raw} ({pgid}) -> up {} acting {}\n",
                    map.epoch,
                    osd_list(&at.up),
                    osd_list(&at.acting)
                )
            },
        ))
    }

    fn osd_utilization(&mut self, cmd: &Cmd) -> CommandReply {
        let map = self.osdmap();
        let mut counts: BTreeMap<OsdId, u64> =
            map.osds().filter(|osd| map.is_in(*osd)).map(|osd| (osd, 0)).collect();
        let mut slots = 0u64;
        for (id, pool) in &map.pools {
            let Ok(id) = u64::try_from(*id) else { continue };
            for seed in 0..pool.pg_num {
                for osd in map.pg_to_up_acting(PgId::new(id, seed)).up {
                    if let Some(n) = counts.get_mut(&osd) {
                        *n += 1;
                        slots += 1;
                    }
                }
            }
        }
        let num = counts.len() as f32;
        let avg = if num > 0.0 { slots as f32 / num } else { 0.0 };
        let variance: f32 =
            counts.values().map(|n| (avg - *n as f32).powi(2)).sum::<f32>() / num.max(1.0);
        let deviation = variance.sqrt();
        // What chance alone gives: a binomial distribution of the slots over the OSDs.
        let expected =
            if num > 0.0 { (slots as f32 * (1.0 / num) * (1.0 - 1.0 / num)).sqrt() } else { 0.0 };
        let min = counts.iter().min_by_key(|(osd, n)| (**n, **osd)).map(|(o, n)| (*o, *n));
        let max =
            counts.iter().max_by_key(|(osd, n)| (**n, -i64::from(**osd))).map(|(o, n)| (*o, *n));
        cmd.output(
            |f| {
                f.object("utilization", |f| {
                    f.dump_float("avg_pgs", f64::from(avg));
                    f.dump_float("std_dev", f64::from(deviation));
                    f.dump_float("expected_baseline_std_dev", f64::from(expected));
                    if let (Some(min), Some(max)) = (min, max) {
                        f.dump_int("min_osd", min.0);
                        f.dump_unsigned("min_osd_pgs", min.1);
                        f.dump_int("max_osd", max.0);
                        f.dump_unsigned("max_osd_pgs", max.1);
                    }
                });
            },
            || {
                let number = |n: f32| command::format_stream_float(f64::from(n));
                let mut out = format!(
                    "avg {}\nstddev {} (expected baseline {})\n",
                    number(avg),
                    number(deviation),
                    number(expected)
                );
                if let (Some(min), Some(max)) = (min, max) {
                    let share = |n: u64| number(if avg > 0.0 { n as f32 / avg } else { 0.0 });
                    let _ = writeln!(
                        out,
                        "min osd.{} with {} pgs ({} * mean)",
                        min.0,
                        min.1,
                        share(min.1)
                    );
                    let _ = writeln!(
                        out,
                        "max osd.{} with {} pgs ({} * mean)",
                        max.0,
                        max.1,
                        share(max.1)
                    );
                }
                out
            },
        )
    }

    fn blocklist_ls(&mut self, cmd: &Cmd) -> CommandReply {
        let map = self.osdmap();
        let single = map.blocklist.iter().map(|(a, until)| (a.legacy_text().to_string(), until));
        let ranges = map.range_blocklist.iter().map(|(a, until)| (a.to_string(), until));
        let single: Vec<(String, &types::UTime)> = single.collect();
        let ranges: Vec<(String, &types::UTime)> = ranges.collect();
        let mut reply = cmd.output(
            // Two documents, one behind the other.
            |f| {
                for (name, key, entries) in
                    [("blocklist", "addr", &single), ("range_blocklist", "range", &ranges)]
                {
                    f.array(name, |f| {
                        for (addr, until) in entries {
                            f.object("entry", |f| {
                                f.dump_string(key, addr);
                                f.dump_stream("until", until);
                            });
                        }
                    });
                }
            },
            || {
                let all = single.iter().chain(&ranges);
                all.map(|(addr, until)| format!("{addr} {until}\n")).collect()
            },
        );
        reply.outs = format!("listed {} entries", single.len() + ranges.len());
        reply
    }
}

/// A number or `osd.N`.
pub(crate) fn parse_osd_id(text: &str) -> Result<OsdId, Refusal> {
    let digits = text.strip_prefix("osd.").unwrap_or(text);
    digits.parse::<OsdId>().ok().filter(|id| *id >= 0).ok_or_else(|| {
        refuse(
            Errno::EINVAL,
            format!("Expected option value to be integer, got '{digits}'invalid osd id-1"),
        )
    })
}

fn id_list(cmd: &Cmd, name: &str, ids: &[OsdId]) -> CommandReply {
    cmd.output(
        |f| f.array(name, |f| ids.iter().for_each(|id| f.dump_int("osd", *id))),
        || ids.iter().map(|id| format!("{id}\n")).collect(),
    )
}

fn osd_array(f: &mut Formatter, name: &str, osds: &[OsdId]) {
    f.array(name, |f| osds.iter().for_each(|osd| f.dump_int("osd", *osd)));
}
