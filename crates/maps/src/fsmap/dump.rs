//! The map as `fs dump`, `mds stat` and `status` show it (`FSMap::dump`, `print`, `print_summary` at
//! v16.2).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use command::Formatter;

use super::{Filesystem, FsMap, MirrorPeer};
use crate::mdsmap::{FS_NONE, MdsInfo, MdsState, compat_text, dump_compat};

/// File systems that are told one by one in a line.
const NAMED_MAX: usize = 3;
/// Ranks likewise.
const RANKS_MAX: usize = 4;

/// `up:active`, with what it means that nothing is heard.
fn state_text(info: &MdsInfo) -> String {
    let laggy = if info.is_laggy() { "(laggy or crashed)" } else { "" };
    format!("{}{laggy}", info.state.name())
}

impl Filesystem {
    /// The members of a file system's object.
    pub fn dump(&self, f: &mut Formatter) {
        f.object("mdsmap", |f| self.mds_map.dump(f));
        f.dump_int("id", self.fscid);
        let Some(mirror) = self.mirror_info.as_ref().filter(|mirror| mirror.mirrored) else {
            return;
        };
        f.object("mirror_info", |f| {
            f.object("peers", |f| {
                for peer in &mirror.peers {
                    f.object(&peer.uuid, |f| {
                        f.object("remote", |f| {
                            f.dump_string("client_name", &peer.client_name);
                            f.dump_string("cluster_name", &peer.cluster_name);
                            f.dump_string("fs_name", &peer.fs_name);
                        });
                    });
                }
            });
        });
    }

    /// The text of `fs get`.
    pub fn print(&self) -> String {
        let mut out =
            format!("Filesystem '{}' ({})\n{}", self.name(), self.fscid, self.mds_map.print());
        if let Some(mirror) = self.mirror_info.as_ref().filter(|mirror| mirror.mirrored) {
            let peer = |peer: &MirrorPeer| {
                format!(
                    "{{uuid={}, remote_cluster={{client_name={}, cluster_name={}, fs_name={}}}}}",
                    peer.uuid, peer.client_name, peer.cluster_name, peer.fs_name
                )
            };
            let peers: Vec<String> = mirror.peers.iter().map(peer).collect();
            let _ = writeln!(out, "[peers={}]", peers.join(","));
        }
        out
    }

    /// `cephfs:1`, or with `1/2` ranks up and in where it is degraded.
    fn brief(&self) -> String {
        let map = &self.mds_map;
        match map.is_degraded() {
            true => format!("{}:{}/{}", self.name(), map.up.len(), map.in_.len()),
            false => format!("{}:{}", self.name(), map.in_.len()),
        }
    }
}

impl FsMap {
    /// The members of `fs dump -f json`.
    pub fn dump(&self, f: &mut Formatter) {
        f.dump_int("epoch", self.epoch);
        f.dump_int("default_fscid", self.legacy_client_fscid);
        dump_compat("compat", &self.default_compat, f);
        f.object("feature_flags", |f| {
            f.dump_bool("enable_multiple", self.enable_multiple);
            f.dump_bool("ever_enabled_multiple", self.ever_enabled_multiple);
        });
        f.array("standbys", |f| {
            for (gid, info) in &self.standby_daemons {
                f.object("info", |f| {
                    info.dump(f);
                    f.dump_int("epoch", self.standby_epochs.get(gid).copied().unwrap_or(0));
                });
            }
        });
        f.array("filesystems", |f| {
            self.filesystems.values().for_each(|fs| f.object("filesystem", |f| fs.dump(f)));
        });
    }

    /// The text of `fs dump`.
    pub fn print(&self) -> String {
        let mut out = format!(
            "e{}\nenable_multiple, ever_enabled_multiple: {},{}\ndefault compat: {}\nlegacy client \
             fscid: {}\n \n",
            self.epoch,
            u8::from(self.enable_multiple),
            u8::from(self.ever_enabled_multiple),
            compat_text(&self.default_compat),
            self.legacy_client_fscid
        );
        if self.filesystems.is_empty() {
            out.push_str("No filesystems configured\n");
        }
        for fs in self.filesystems.values() {
            let _ = write!(out, "{} \n \n", fs.print());
        }
        if !self.standby_daemons.is_empty() {
            out.push_str("Standby daemons:\n \n");
        }
        for info in self.standby_daemons.values() {
            let _ = writeln!(out, "{}", info.print());
        }
        out
    }

    /// The members of `fsmap` in `status`.
    pub fn dump_summary(&self, f: &mut Formatter) {
        f.dump_unsigned("epoch", self.epoch);
        for fs in self.filesystems.values() {
            let map = &fs.mds_map;
            f.dump_unsigned("id", fs.fscid as u64);
            f.dump_unsigned("up", map.up.len() as u64);
            f.dump_unsigned("in", map.in_.len() as u64);
            f.dump_unsigned("max", map.max_mds as u64);
        }
        f.array("by_rank", |f| {
            for (gid, fscid) in self.mds_roles.iter().filter(|(_, fscid)| **fscid != FS_NONE) {
                let Some(info) = self.mds(*gid) else { continue };
                f.object("mds", |f| {
                    f.dump_unsigned("filesystem_id", *fscid as u64);
                    f.dump_unsigned("rank", info.rank as u64);
                    f.dump_string("name", &info.name);
                    f.dump_string("status", state_text(info));
                    f.dump_unsigned("gid", *gid);
                });
            }
        });
        f.dump_unsigned(MdsState::STANDBY.name(), self.standby_daemons.len() as u64);
        let (failed, damaged) = self.lost();
        if failed > 0 {
            f.dump_unsigned("failed", failed as u64);
        }
        if damaged > 0 {
            f.dump_unsigned("damaged", damaged as u64);
        }
    }

    fn lost(&self) -> (usize, usize) {
        let maps = || self.filesystems.values().map(|fs| &fs.mds_map);
        (maps().map(|map| map.failed.len()).sum(), maps().map(|map| map.damaged.len()).sum())
    }

    /// The line of `mds:` in `status`: `2/2 daemons up, 1 standby`.
    pub fn daemon_summary(&self) -> String {
        let maps = || self.filesystems.values().map(|fs| &fs.mds_map);
        let up: usize = maps().map(|map| map.up.len()).sum();
        let in_: usize = maps().map(|map| map.in_.len()).sum();
        let hot: usize = maps().map(|map| map.count(MdsState::STANDBY_REPLAY)).sum();
        let mut out = format!("{up}/{in_} daemons up");
        let (failed, _) = self.lost();
        if failed > 0 {
            let _ = write!(out, " ({failed} failed)");
        }
        if !self.standby_daemons.is_empty() {
            let _ = write!(out, ", {} standby", self.standby_daemons.len());
        }
        if hot > 0 {
            let _ = write!(out, ", {hot} hot standby");
        }
        out
    }

    /// The line of `volumes:` in `status`: `1/2 healthy, 1 recovering`.
    pub fn volume_summary(&self) -> String {
        let maps = self.filesystems.values().map(|fs| &fs.mds_map);
        let (mut healthy, mut recovering, mut failed, mut stopped) = (0, 0, 0, 0);
        for map in maps {
            *if !map.failed.is_empty() {
                &mut failed
            } else if map.is_degraded() {
                &mut recovering
            } else if map.max_mds == 0 {
                &mut stopped
            } else {
                &mut healthy
            } += 1;
        }
        let mut out = format!("{healthy}/{} healthy", self.filesystems.len());
        for (count, what) in [(recovering, "recovering"), (failed, "failed"), (stopped, "stopped")]
        {
            if count > 0 {
                let _ = write!(out, ", {count} {what}");
            }
        }
        let damaged = self.filesystems.values().filter(|fs| !fs.mds_map.damaged.is_empty()).count();
        if damaged > 0 {
            let _ = write!(out, "; {damaged} damaged");
        }
        out
    }

    /// The line of `mds stat`: `cephfs:1 {0=a=up:active} 2 up:standby`.
    pub fn summary(&self) -> String {
        let mut out = String::new();
        if self.filesystems.len() <= NAMED_MAX {
            let briefs: Vec<String> = self.filesystems.values().map(Filesystem::brief).collect();
            out.push_str(&briefs.join(" "));
        } else {
            let _ = write!(out, "{} fs", self.filesystems.len());
            let degraded: Vec<String> = self
                .filesystems
                .values()
                .filter(|fs| fs.mds_map.is_degraded())
                .map(Filesystem::brief)
                .collect();
            match degraded.len() {
                0 => {}
                // Ceph puts nothing between them.
                1..=NAMED_MAX => drop(write!(out, " (degraded: {})", degraded.concat())),
                n => drop(write!(out, " (degraded: {n} fs)")),
            }
        }
        let mut by_state: BTreeMap<MdsState, usize> =
            [(MdsState::STANDBY, self.standby_daemons.len())].into();
        let mut ranks = Vec::new();
        for (gid, fscid) in self.mds_roles.iter().filter(|(_, fscid)| **fscid != FS_NONE) {
            let Some(info) = self.mds(*gid) else { continue };
            *by_state.entry(info.state).or_default() += 1;
            if info.state != MdsState::STANDBY_REPLAY {
                ranks.push((*fscid, info));
            }
        }
        if (1..=RANKS_MAX).contains(&ranks.len()) {
            let several = self.filesystems.len() > 1;
            let mut shown: Vec<(String, i32, String)> = Vec::new();
            for (fscid, info) in ranks {
                *by_state.entry(info.state).or_default() -= 1;
                let fs = if several {
                    format!("{}:", self.filesystems[&fscid].name())
                } else {
                    String::new()
                };
                shown.push((fs, info.rank, format!("{}={}", info.name, state_text(info))));
            }
            shown.sort();
            let texts: Vec<String> =
                shown.iter().map(|(fs, rank, text)| format!("{fs}{rank}={text}")).collect();
            let _ = write!(out, " {{{}}}", texts.join(","));
        }
        for (state, count) in by_state.iter().filter(|(_, count)| **count > 0) {
            let _ = write!(out, " {count} {}", state.name());
        }
        let (failed, damaged) = self.lost();
        if failed > 0 {
            let _ = write!(out, ", {failed} failed");
        }
        if damaged > 0 {
            let _ = write!(out, ", {damaged} damaged");
        }
        out
    }
}
