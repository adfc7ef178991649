//! `fs ...` and `mds ...` as far as a cluster without file systems has answers.

use maps::FsMap;
use types::Errno;

use super::cmd::{Cmd, CmdResult, fail, unhandled};
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
                let mut reply = cmd.output(|f| f.object("fsmap", |f| map.dump(f)), || map.print());
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
                        f.object("fsmap", |f| map.dump(f));
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
            _ => unhandled(),
        }
    }
}
