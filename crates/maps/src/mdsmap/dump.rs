//! The map as `fs dump` and `fs get` show it (`MDSMap::dump`, `MDSMap::print` at v16.2).

use std::fmt::Write as _;

use command::Formatter;
use types::osd::{CompatSet, FeatureSet};

use super::{MdsInfo, MdsMap, Rank};
use crate::osdmap::dump_addrvec;

/// Features of file system clients, by number (`src/mds/cephfs_features.cc`).
pub const CEPHFS_FEATURES: [&str; 19] = [
    "reserved",
    "reserved",
    "reserved",
    "reserved",
    "reserved",
    "jewel",
    "kraken",
    "luminous",
    "mimic",
    "reply_encoding",
    "reclaim_client",
    "lazy_caps_wanted",
    "multi_reconnect",
    "deleg_ino",
    "metric_collect",
    "alternate_name",
    "notify_session_state",
    "op_getvxattr",
    "32bits_retry_fwd",
];

fn sets(compat: &CompatSet) -> [(&'static str, &FeatureSet); 3] {
    [("compat", &compat.compat), ("ro_compat", &compat.ro_compat), ("incompat", &compat.incompat)]
}

/// An object `name` with the three sets.
pub fn dump_compat(name: &str, compat: &CompatSet, f: &mut Formatter) {
    f.object(name, |f| {
        for (name, set) in sets(compat) {
            f.object(name, |f| {
                for (n, name) in &set.names {
                    f.dump_string(&format!("feature_{n}"), name);
                }
            });
        }
    });
}

/// `compat={},rocompat={},incompat={1=base v0.20,...}`.
pub fn compat_text(compat: &CompatSet) -> String {
    let texts = sets(compat).map(|(name, set)| {
        let names: Vec<String> = set.names.iter().map(|(n, name)| format!("{n}={name}")).collect();
        format!("{}={{{}}}", name.replace('_', ""), names.join(","))
    });
    texts.join(",")
}

/// `{c=[1],r=[1],i=[7ff]}`: the numbers as bits, of which the lowest is always set.
fn compat_bits(compat: &CompatSet) -> String {
    let bits = |set: &FeatureSet| set.names.keys().fold(1, |mask, id| mask | 1u64 << (id & 63));
    let texts = [("c", &compat.compat), ("r", &compat.ro_compat), ("i", &compat.incompat)]
        .map(|(name, set)| format!("{name}=[{:x}]", bits(set)));
    format!("{{{}}}", texts.join(","))
}

/// `0,1`.
fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let texts: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    texts.join(",")
}

impl MdsInfo {
    /// The members of an MDS's object.
    pub fn dump(&self, f: &mut Formatter) {
        f.dump_unsigned("gid", self.gid);
        f.dump_string("name", &self.name);
        f.dump_int("rank", self.rank);
        f.dump_int("incarnation", self.inc);
        f.dump_string("state", self.state.name());
        f.dump_int("state_seq", self.state_seq as i64);
        f.dump_stream("addr", self.addrs.legacy_text());
        dump_addrvec(f, "addrs", &self.addrs);
        f.dump_int("join_fscid", self.join_fscid);
        if self.is_laggy() {
            f.dump_stream("laggy_since", self.laggy_since);
        }
        dump_ranks(f, "export_targets", &self.export_targets);
        f.dump_unsigned("features", self.features);
        f.dump_unsigned("flags", self.flags);
        dump_compat("compat", &self.compat(), f);
    }

    /// Its line in text: `[mds.a{0:4123} state up:active ...]`.
    pub fn print(&self) -> String {
        let mut out = format!("[mds.{}{{{}:{}}}", self.name, self.rank, self.gid);
        let _ = write!(out, " state {} seq {}", self.state.name(), self.state_seq);
        if self.is_laggy() {
            let _ = write!(out, " laggy since {}", self.laggy_since);
        }
        if !self.export_targets.is_empty() {
            let _ = write!(out, " export targets {}", list(&self.export_targets));
        }
        if self.is_frozen() {
            out.push_str(" frozen");
        }
        if self.join_fscid != super::FS_NONE {
            let _ = write!(out, " join_fscid={}", self.join_fscid);
        }
        let _ = write!(out, " addr {} compat {}]", self.addrs, compat_bits(&self.compat()));
        out
    }
}

fn dump_ranks<'a>(f: &mut Formatter, name: &str, ranks: impl IntoIterator<Item = &'a Rank>) {
    f.array(name, |f| ranks.into_iter().for_each(|rank| f.dump_int("mds", *rank)));
}

impl MdsMap {
    /// Features that clients must have.
    fn required(&self) -> impl Iterator<Item = (usize, &'static str)> {
        let known = CEPHFS_FEATURES.iter().copied().enumerate();
        known.filter(|(n, _)| self.requires(*n))
    }

    /// The members of `mdsmap`.
    pub fn dump(&self, f: &mut Formatter) {
        f.dump_int("epoch", self.epoch);
        f.dump_unsigned("flags", self.flags);
        f.dump_unsigned("ever_allowed_features", self.ever_allowed_features);
        f.dump_unsigned("explicitly_allowed_features", self.explicitly_allowed_features);
        f.dump_stream("created", self.created);
        f.dump_stream("modified", self.modified);
        f.dump_int("tableserver", self.tableserver);
        f.dump_int("root", self.root);
        f.dump_int("session_timeout", self.session_timeout);
        f.dump_int("session_autoclose", self.session_autoclose);
        f.object("required_client_features", |f| {
            for (n, name) in self.required() {
                f.dump_string(&format!("feature_{n}"), name);
            }
        });
        f.dump_int("max_file_size", self.max_file_size as i64);
        f.dump_int("last_failure", self.last_failure);
        f.dump_int("last_failure_osd_epoch", self.last_failure_osd_epoch);
        dump_compat("compat", &self.compat(), f);
        f.dump_int("max_mds", self.max_mds);
        dump_ranks(f, "in", &self.in_);
        f.object("up", |f| {
            for (rank, gid) in &self.up {
                f.dump_int(&format!("mds_{rank}"), *gid as i64);
            }
        });
        dump_ranks(f, "failed", &self.failed);
        dump_ranks(f, "damaged", &self.damaged);
        dump_ranks(f, "stopped", &self.stopped);
        f.object("info", |f| {
            for (gid, info) in &self.info {
                f.object(&format!("gid_{gid}"), |f| info.dump(f));
            }
        });
        f.array("data_pools", |f| self.data_pools.iter().for_each(|id| f.dump_int("pool", *id)));
        f.dump_int("metadata_pool", self.metadata_pool);
        f.dump_bool("enabled", self.enabled);
        f.dump_string("fs_name", &self.fs_name);
        f.dump_string("balancer", &self.balancer);
        f.dump_int("standby_count_wanted", self.standby_count_wanted.max(0));
    }

    /// The text of `fs get`, behind the line that names the file system.
    pub fn print(&self) -> String {
        let mut out = String::new();
        let features: Vec<String> =
            self.required().map(|(n, name)| format!("{n}={name}")).collect();
        let up: Vec<String> = self.up.iter().map(|(rank, gid)| format!("{rank}={gid}")).collect();
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            let _ = writeln!(out, "{name}\t{value}");
        };
        line("fs_name", &self.fs_name);
        line("epoch", &self.epoch);
        line("flags", &format_args!("{:x}", self.flags));
        line("created", &self.created);
        line("modified", &self.modified);
        line("tableserver", &self.tableserver);
        line("root", &self.root);
        line("session_timeout", &self.session_timeout);
        line("session_autoclose", &self.session_autoclose);
        line("max_file_size", &self.max_file_size);
        line("required_client_features", &format_args!("{{{}}}", features.join(",")));
        line("last_failure", &self.last_failure);
        line("last_failure_osd_epoch", &self.last_failure_osd_epoch);
        line("compat", &compat_text(&self.compat()));
        line("max_mds", &self.max_mds);
        line("in", &list(&self.in_));
        line("up", &format_args!("{{{}}}", up.join(",")));
        line("failed", &list(&self.failed));
        line("damaged", &list(&self.damaged));
        line("stopped", &list(&self.stopped));
        line("data_pools", &format_args!("[{}]", list(&self.data_pools)));
        line("metadata_pool", &self.metadata_pool);
        line("inline_data", &if self.inline_data { "enabled" } else { "disabled" });
        line("balancer", &self.balancer);
        line("standby_count_wanted", &self.standby_count_wanted.max(0));
        let mut infos: Vec<&MdsInfo> = self.info.values().collect();
        infos.sort_by_key(|info| (info.rank, info.inc.wrapping_sub(1) as u32));
        infos.iter().for_each(|info| out.push_str(&(info.print() + "\n")));
        out
    }
}
