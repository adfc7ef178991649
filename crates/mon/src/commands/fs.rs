//! What `fs ...` and `mds ...` tell.

use std::collections::BTreeMap;

use command::CommandReply;
use maps::FsMap;
use maps::mdsmap::{CEPHFS_FEATURES, MdsInfo, MdsMap, MdsState};
use types::Errno;

use super::cmd::{Cmd, CmdResult, Refusal, fail, refuse, say};
use super::status::dump_counts;
use crate::core::MonCore;

/// The one that an argument names: by rank (`0`, `FS:0`), global id or name.
pub(super) fn mds_of<'a>(map: &'a FsMap, who: &str) -> Option<&'a MdsInfo> {
    if let Ok((fscid, rank)) = parse_role(map, who)
        && let Some(info) = map.filesystems.get(&fscid).and_then(|fs| fs.mds_map.holder(rank))
    {
        return Some(info);
    }
    match who.parse::<u64>() {
        Ok(gid) => map.mds(gid),
        Err(_) => map.mds_by_name(who),
    }
}

/// A rank that is in: `0` of the default file system, `FS:0` by name or number.
pub(super) fn parse_role(map: &FsMap, text: &str) -> Result<(i32, i32), Refusal> {
    let (fs, rank) = match text.split_once(':') {
        Some((fs, rank)) => {
            let by_number = fs.parse().ok().and_then(|id: i32| map.filesystems.get(&id));
            let found = by_number.or_else(|| map.by_name(fs));
            (found.ok_or_else(|| refuse(Errno::ENOENT, "Invalid filesystem"))?, rank)
        }
        None => {
            let found = map.filesystems.get(&map.legacy_client_fscid);
            (found.ok_or_else(|| refuse(Errno::ENOENT, "No filesystem selected"))?, text)
        }
    };
    let number = rank.parse::<i32>().ok().filter(|rank| *rank >= 0);
    let number = number.ok_or_else(|| refuse(Errno::EINVAL, format!("Invalid rank '{rank}'")))?;
    if !fs.mds_map.in_.contains(&number) {
        return fail(Errno::ENOENT, format!("Rank '{number}' not found"));
    }
    Ok((fs.fscid, number))
}

impl MonCore {
    pub(crate) fn cmd_fs(&mut self, cmd: &Cmd) -> CmdResult {
        let map = self.fsmap_for(cmd.session);
        match cmd.prefix.as_str() {
            "fs dump" => self.fs_dump(cmd, &map),
            "fs ls" => Ok(self.fs_ls(cmd, &map)),
            "fs get" => {
                let name = cmd.string("fs_name")?;
                let Some(fs) = map.by_name(&name) else {
                    return fail(Errno::ENOENT, format!("filesystem '{name}' not found"));
                };
                Ok(cmd.output(|f| f.object("filesystem", |f| fs.dump(f)), || fs.print()))
            }
            "fs feature ls" => Ok(fs_feature_ls(cmd)),
            "fs compat show" => {
                let name = cmd.string("fs_name")?;
                let Some(fs) = map.by_name(&name) else {
                    return fail(Errno::ENOENT, format!("filesystem '{name}' not found"));
                };
                let compat = &fs.mds_map.compat();
                Ok(cmd.output(
                    |f| maps::mdsmap::dump_compat("fs_compat", compat, f),
                    || maps::mdsmap::compat_text(compat),
                ))
            }
            "mds compat show" => {
                let compat = &map.default_compat;
                Ok(cmd.output(
                    |f| maps::mdsmap::dump_compat("mds_compat", compat, f),
                    || maps::mdsmap::compat_text(compat),
                ))
            }
            "mds stat" => Ok(cmd.output(
                |f| {
                    f.object("mds_stat", |f| {
                        f.object("fsmap", |f| map.dump(f));
                        f.dump_unsigned("mdsmap_first_committed", self.first_fsmap());
                        f.dump_unsigned("mdsmap_last_committed", map.epoch);
                    });
                },
                || map.summary(),
            )),
            "mds metadata" => self.mds_metadata(cmd, &map),
            "mds versions" => Ok(self.mds_count(cmd, "ceph_version")),
            "mds count-metadata" => Ok(self.mds_count(cmd, &cmd.string("property")?)),
            "mds ok-to-stop" => mds_ok_to_stop(cmd, &map),
            prefix if prefix.starts_with("mds ") => self.cmd_mds_change(cmd),
            _ => self.cmd_fs_change(cmd),
        }
    }

    fn fs_dump(&self, cmd: &Cmd, map: &FsMap) -> CmdResult {
        let wanted = cmd.map.opt_int("epoch")?.filter(|epoch| *epoch > 0);
        let old = match wanted {
            Some(epoch) if epoch != i64::from(map.epoch) => {
                let epoch = u32::try_from(epoch).map_err(|_| refuse(Errno::ENOENT, ""))?;
                let old = self.fsmap_of_epoch(epoch).map_err(|errno| refuse(errno, ""))?;
                Some(self.known_of(cmd.session, &old))
            }
            _ => None,
        };
        let map = old.as_ref().unwrap_or(map);
        let mut reply = cmd.output(|f| f.object("fsmap", |f| map.dump(f)), || map.print());
        reply.outs = format!("dumped fsmap epoch {}", map.epoch);
        Ok(reply)
    }

    fn fs_ls(&self, cmd: &Cmd, map: &FsMap) -> CommandReply {
        let pools = self.osdmap();
        let name = |id: i64| pools.pool_names.get(&id).cloned().unwrap_or_default();
        cmd.output(
            |f| {
                f.array("filesystems", |f| {
                    for mds_map in map.filesystems.values().map(|fs| &fs.mds_map) {
                        f.object("filesystem", |f| {
                            f.dump_string("name", &mds_map.fs_name);
                            f.dump_string("metadata_pool", name(mds_map.metadata_pool));
                            f.dump_int("metadata_pool_id", mds_map.metadata_pool);
                            f.array("data_pool_ids", |f| {
                                mds_map.data_pools.iter().for_each(|id| f.dump_int("id", *id));
                            });
                            f.array("data_pools", |f| {
                                let names = mds_map.data_pools.iter().map(|id| name(*id));
                                names.for_each(|name| f.dump_string("data_pool", name));
                            });
                        });
                    }
                });
            },
            || {
                if map.filesystems.is_empty() {
                    return "No filesystems enabled\n".to_string();
                }
                let line = |mds_map: &MdsMap| {
                    let data: Vec<String> =
                        mds_map.data_pools.iter().map(|id| name(*id) + " ").collect();
                    format!(
                        "name: {}, metadata pool: {}, data pools: [{}]\n",
                        mds_map.fs_name,
                        name(mds_map.metadata_pool),
                        data.concat()
                    )
                };
                map.filesystems.values().map(|fs| line(&fs.mds_map)).collect()
            },
        )
    }

    fn mds_metadata(&self, cmd: &Cmd, map: &FsMap) -> CmdResult {
        let none = BTreeMap::new();
        let facts = |gid: u64| self.mds.metadata.get(&gid).unwrap_or(&none);
        let Some(who) = cmd.map.opt_string("who")? else {
            return Ok(cmd.structured(|f| {
                f.array("mds_metadata", |f| {
                    for info in map.all_mds() {
                        f.object("mds", |f| {
                            f.dump_string("name", &info.name);
                            facts(info.gid)
                                .iter()
                                .for_each(|(key, value)| f.dump_string(key, value));
                        });
                    }
                });
            }));
        };
        let Some(info) = mds_of(map, &who) else {
            return fail(Errno::EINVAL, format!("MDS named '{who}' does not exist, or is not up"));
        };
        Ok(cmd.structured(|f| {
            f.object("mds_metadata", |f| {
                facts(info.gid).iter().for_each(|(key, value)| f.dump_string(key, value));
            });
        }))
    }

    /// MDSs by a fact about them.
    pub(crate) fn mds_counts(&self, field: &str) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for facts in self.mds.metadata.values() {
            let value = facts.get(field).cloned().unwrap_or_else(|| "unknown".to_string());
            *counts.entry(value).or_default() += 1;
        }
        counts
    }

    fn mds_count(&self, cmd: &Cmd, field: &str) -> CommandReply {
        cmd.structured(|f| dump_counts(f, field, &self.mds_counts(field)))
    }

    /// Names of MDSs by host.
    pub(crate) fn mds_by_host(&self) -> BTreeMap<String, Vec<String>> {
        let mut hosts: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for info in self.mds.published.all_mds() {
            let host = self.mds.metadata.get(&info.gid).and_then(|facts| facts.get("hostname"));
            if let Some(host) = host {
                hosts.entry(host.clone()).or_default().push(info.name.clone());
            }
        }
        hosts
    }
}

fn fs_feature_ls(cmd: &Cmd) -> CommandReply {
    cmd.output(
        |f| {
            f.array("cephfs_features", |f| {
                for (index, name) in CEPHFS_FEATURES.iter().enumerate() {
                    f.object("feature", |f| {
                        f.dump_unsigned("index", index as u64);
                        f.dump_string("name", name);
                    });
                }
            });
        },
        || {
            let lines = CEPHFS_FEATURES.iter().enumerate();
            lines.map(|(index, name)| format!("{index} {name}\n")).collect()
        },
    )
}

/// Whether each rank that loses its MDS gets another.
fn mds_ok_to_stop(cmd: &Cmd, map: &FsMap) -> CmdResult {
    let ids = cmd.map.strings("ids")?;
    if map.is_any_degraded() {
        return fail(Errno::EBUSY, "one or more filesystems is currently degraded");
    }
    let stopping: Vec<&MdsInfo> = ids.iter().filter_map(|who| mds_of(map, who)).collect();
    let stops = |gid: u64| stopping.iter().any(|info| info.gid == gid);
    let (mut active, mut waiting) = (Vec::new(), Vec::new());
    for info in &stopping {
        match map.fs_of(info.gid) {
            None => waiting.push(info.gid),
            Some(fs) if info.state != MdsState::STANDBY_REPLAY => {
                let follower = fs.mds_map.follower(info.rank);
                if follower.is_none_or(|follower| stops(follower.gid)) {
                    active.push(info.gid);
                }
            }
            Some(_) => {}
        }
    }
    let text = |gids: &mut Vec<u64>| {
        gids.sort_unstable();
        gids.dedup();
        gids.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
    };
    let (active_text, waiting_text) = (text(&mut active), text(&mut waiting));
    if map.standby_daemons.len() - waiting.len() < active.len() {
        return fail(
            Errno::EBUSY,
            format!(
                "insufficent standby MDS daemons to stop active gids {active_text} and/or standby \
                 gids {waiting_text}"
            ),
        );
    }
    say(format!("should be safe to stop [{}]", ids.join(",")))
}
