//! `fs set` (`SetHandler` of `src/mon/FSCommands.cc` at v16.2).

use maps::mdsmap::{FsId, MAX_MDS, MdsMap, MdsState, mds_flags};
use types::Errno;

use super::cmd::{Cmd, CmdResult, Refusal, fail, refuse, say, unhandled};
use super::fs_change::parse_bool;
use crate::core::MonCore;

/// Bytes of a file that are allowed at least (CEPH_MIN_STRIPE_UNIT).
const MAX_FILE_SIZE_MIN: i64 = 65536;
/// Seconds that a session lives at least.
const SESSION_MIN: i64 = 30;
/// The feature that a release's clients have, by the release's name (MDSMap::set_min_compat_client).
const RELEASES: [(&str, usize); 7] = [
    ("jewel", 5),
    ("kraken", 6),
    ("luminous", 7),
    ("mimic", 8),
    ("nautilus", 12),
    ("octopus", 13),
    ("pacific", 13),
];

fn whole(name: &str, text: &str) -> Result<i64, Refusal> {
    let number = config::parse_integer(text);
    number.map_err(|_| refuse(Errno::EINVAL, format!("{name} requires an integer value")))
}

/// Allows something, for ever noted, or no more.
fn allow(map: &mut MdsMap, flag: u32, on: bool) {
    map.set_flag(flag, on);
    if on {
        map.ever_allowed_features |= flag as u8;
        map.explicitly_allowed_features |= flag as u8;
    }
}

impl MonCore {
    fn with_fs(&mut self, fscid: FsId, change: impl FnOnce(&mut MdsMap)) {
        if let Some(fs) = self.change_fsmap().change_fs(fscid) {
            change(&mut fs.mds_map);
        }
    }

    pub(super) fn fs_set(&mut self, cmd: &Cmd, fscid: FsId) -> CmdResult {
        let (var, val) = (cmd.string("var")?, cmd.string("val")?);
        let Some(fs) = self.mds.map.filesystems.get(&fscid) else { return unhandled() };
        let fs_name = fs.name().to_string();
        let text = match var.as_str() {
            "max_mds" => self.fs_set_max_mds(fscid, &val)?,
            "inline_data" => {
                let on = parse_bool(&val)?;
                if on && !cmd.map.flag("yes_i_really_really_mean_it") {
                    return fail(
                        Errno::EPERM,
                        "Inline data support is deprecated and will be removed in a future release. \
                         Add --yes-i-really-really-mean-it if you are certain you want this enabled.",
                    );
                }
                self.with_fs(fscid, |map| map.inline_data = on);
                format!("inline data {}", if on { "enabled" } else { "disabled" })
            }
            "balancer" => {
                super::check_name(&val)?;
                self.with_fs(fscid, |map| map.balancer = val.clone());
                match val.is_empty() {
                    true => "unsetting the metadata load balancer".to_string(),
                    false => format!("setting the metadata load balancer to {val}"),
                }
            }
            "max_file_size" => {
                let n = whole(&var, &val)?;
                if n < MAX_FILE_SIZE_MIN {
                    let text = format!("{var} must at least {MAX_FILE_SIZE_MIN}");
                    return fail(Errno::ERANGE, text);
                }
                self.with_fs(fscid, |map| map.max_file_size = n as u64);
                String::new()
            }
            "allow_new_snaps" => {
                let on = parse_bool(&val)?;
                self.with_fs(fscid, |map| allow(map, mds_flags::ALLOW_SNAPS, on));
                format!("{} new snapshots", if on { "enabled" } else { "disabled" })
            }
            "allow_dirfrags" => {
                "Directory fragmentation is now permanently enabled. This command is \
                                 DEPRECATED and will be REMOVED from future releases."
                    .to_string()
            }
            "down" => self.fs_set_down(fscid, &fs_name, parse_bool(&val)?),
            "cluster_down" | "joinable" => {
                let joinable = parse_bool(&val)? == (var == "joinable");
                self.with_fs(fscid, |map| map.set_flag(mds_flags::NOT_JOINABLE, !joinable));
                let state = match joinable {
                    true => "marked joinable; MDS may join as newly active.",
                    false => "marked not joinable; MDS cannot join as newly active.",
                };
                let warning = match var.as_str() {
                    "joinable" => "",
                    _ => {
                        " WARNING: cluster_down flag is deprecated and will be removed in a future \
                         version. Please use \"joinable\"."
                    }
                };
                format!("{fs_name} {state}{warning}")
            }
            "standby_count_wanted" => {
                let n = whole(&var, &val)?;
                if n < 0 {
                    return fail(Errno::ERANGE, format!("{var} must be non-negative"));
                }
                let n = i32::try_from(n).unwrap_or(i32::MAX);
                self.with_fs(fscid, |map| map.standby_count_wanted = n);
                String::new()
            }
            "session_timeout" | "session_autoclose" => {
                let n = whole(&var, &val)?;
                if n < SESSION_MIN {
                    let text = format!("{var} must be at least {SESSION_MIN}s");
                    return fail(Errno::ERANGE, text);
                }
                let n = u32::try_from(n).unwrap_or(u32::MAX);
                self.with_fs(fscid, |map| match var.as_str() {
                    "session_timeout" => map.session_timeout = n,
                    _ => map.session_autoclose = n,
                });
                String::new()
            }
            "allow_standby_replay" => {
                let on = parse_bool(&val)?;
                if !on {
                    self.fail_followers(fscid);
                }
                self.with_fs(fscid, |map| allow(map, mds_flags::ALLOW_STANDBY_REPLAY, on));
                String::new()
            }
            "min_compat_client" => self.fs_set_min_compat_client(fscid, &val)?,
            _ => return fail(Errno::EINVAL, format!("unknown variable {var}")),
        };
        say(text)
    }

    fn fs_set_max_mds(&mut self, fscid: FsId, val: &str) -> Result<String, Refusal> {
        let n = config::parse_integer(val).map_err(|why| refuse(Errno::EINVAL, why.to_string()))?;
        if n <= 0 {
            return fail(Errno::EINVAL, "You must specify at least one MDS");
        }
        if n > MAX_MDS {
            return fail(Errno::EINVAL, format!("may not have more than {MAX_MDS} MDS ranks"));
        }
        self.with_fs(fscid, |map| {
            map.set_flag(mds_flags::NOT_JOINABLE, false);
            map.max_mds = n as i32;
        });
        Ok(String::new())
    }

    fn fs_set_down(&mut self, fscid: FsId, fs_name: &str, down: bool) -> String {
        let mut max = 0;
        self.with_fs(fscid, |map| {
            if !down {
                map.max_mds = map.old_max_mds.max(1);
            } else if map.max_mds > 0 {
                map.old_max_mds = map.max_mds;
                map.max_mds = 0;
            }
            max = map.max_mds;
        });
        match down {
            true => format!("{fs_name} marked down. "),
            false => format!("{fs_name} marked up, max_mds = {max}"),
        }
    }

    fn fail_followers(&mut self, fscid: FsId) {
        let Some(fs) = self.mds.map.filesystems.get(&fscid) else { return };
        let follows = fs.mds_map.info.values().filter(|i| i.state == MdsState::STANDBY_REPLAY);
        let followers: Vec<u64> = follows.map(|info| info.gid).collect();
        followers.iter().for_each(|gid| self.fail_mds(*gid));
    }

    fn fs_set_min_compat_client(&mut self, fscid: FsId, val: &str) -> Result<String, Refusal> {
        if maps::release::release_number(val).is_none() {
            return fail(Errno::EINVAL, format!("version {val} is not recognized"));
        }
        let feature = RELEASES.iter().find(|(name, _)| *name == val).map(|(_, feature)| *feature);
        self.with_fs(fscid, |map| {
            map.required_client_features.clear();
            if let Some(feature) = feature {
                map.require(feature, true);
            }
        });
        Ok("WARNING: setting min_compat_client is deprecated and may not do what you want.\n\
            The oldest release to set is octopus.\n\
            Please migrate to `ceph fs required_client_features ...`."
            .to_string())
    }
}
