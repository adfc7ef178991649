//! `fs ...` and `mds ...` as far as a cluster without file systems has answers.

use command::Formatter;
use maps::FsMap;
use maps::fsmap::FeatureSet;
use types::Errno;

use super::cmd::{Cmd, CmdResult, done, fail};
use crate::core::MonCore;

/// Features of file system clients, by number.
const CEPHFS_FEATURES: [&str; 19] = [
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

impl MonCore {
    pub(crate) fn cmd_fs(&mut self, cmd: &Cmd) -> CmdResult {
        let map = FsMap::default();
        match cmd.prefix.as_str() {
            "fs dump" => {
                let wanted = cmd.map.opt_int("epoch")?;
                if wanted.is_some_and(|e| e > 0 && e != i64::from(map.epoch)) {
                    return fail(Errno::ENOENT, "");
                }
                let mut reply =
                    cmd.output(|f| f.object("fsmap", |f| dump_fields(f, &map)), || text(&map));
                reply.outs = format!("dumped fsmap epoch {}", map.epoch);
                Ok(reply)
            }
            "fs ls" => Ok(cmd.output(
                |f| f.array("filesystems", |_| {}),
                || "No filesystems enabled\n".to_string(),
            )),
            "fs feature ls" => Ok(cmd.output(
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
                    CEPHFS_FEATURES
                        .iter()
                        .enumerate()
                        .map(|(index, name)| format!("{index} {name}\n"))
                        .collect()
                },
            )),
            "mds stat" => Ok(cmd.output(
                |f| {
                    f.object("mds_stat", |f| {
                        f.object("fsmap", |f| dump_fields(f, &map));
                        f.dump_unsigned("mdsmap_first_committed", 1u32);
                        f.dump_unsigned("mdsmap_last_committed", map.epoch);
                    });
                },
                String::new,
            )),
            "mds metadata" => match cmd.map.opt_string("who")? {
                Some(who) => fail(Errno::ENOENT, format!("MDS named '{who}' does not exist")),
                None => Ok(cmd.structured(|f| f.array("mds_metadata", |_| {}))),
            },
            "mds versions" | "mds count-metadata" => {
                Ok(cmd.structured(|f| f.object("counts", |_| {})))
            }
            _ => done(),
        }
    }
}

/// Members of a file system map.
pub(crate) fn dump_fields(f: &mut Formatter, map: &FsMap) {
    f.dump_unsigned("epoch", map.epoch);
    f.dump_int("default_fscid", map.legacy_client_fscid);
    f.object("compat", |f| {
        dump_features(f, "compat", &map.default_compat.compat);
        dump_features(f, "ro_compat", &map.default_compat.ro_compat);
        dump_features(f, "incompat", &map.default_compat.incompat);
    });
    f.object("feature_flags", |f| {
        f.dump_bool("enable_multiple", map.enable_multiple);
        f.dump_bool("ever_enabled_multiple", map.ever_enabled_multiple);
    });
    f.array("standbys", |_| {});
    f.array("filesystems", |_| {});
}

fn dump_features(f: &mut Formatter, name: &str, features: &FeatureSet) {
    f.object(name, |f| {
        for (bit, text) in &features.names {
            f.dump_string(&format!("feature_{bit}"), text);
        }
    });
}

fn text(map: &FsMap) -> String {
    let set = |features: &FeatureSet| {
        let parts: Vec<String> =
            features.names.iter().map(|(bit, text)| format!("{bit}={text}")).collect();
        format!("{{{}}}", parts.join(","))
    };
    let c = &map.default_compat;
    format!(
        "e{}\nenable_multiple, ever_enabled_multiple: {},{}\n\
         default compat: compat={},rocompat={},incompat={}\n\
         legacy client fscid: {}\n \nNo filesystems configured\n",
        map.epoch,
        u8::from(map.enable_multiple),
        u8::from(map.ever_enabled_multiple),
        set(&c.compat),
        set(&c.ro_compat),
        set(&c.incompat),
        map.legacy_client_fscid
    )
}
