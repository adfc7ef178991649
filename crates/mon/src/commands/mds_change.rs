//! Commands that change where metadata servers are (`MDSMonitor::filesystem_command` at v16.2).

use maps::FsMap;
use maps::mdsmap::MdsState;
use types::Errno;

use super::cmd::{Cmd, CmdResult, fail, refuse, say, unhandled};
use super::fs::{mds_of, parse_role};
use super::fs_change::parse_bool;
use crate::clog::INFO;
use crate::core::MonCore;

impl MonCore {
    pub(super) fn cmd_mds_change(&mut self, cmd: &Cmd) -> CmdResult {
        // Who may change one file system's MDSs finds no other's.
        let known = self.known_of(cmd.session, &self.mds.map);
        match cmd.prefix.as_str() {
            "mds fail" => self.mds_fail(cmd, &known),
            "mds rm" => self.mds_rm(cmd, &known),
            "mds rmfailed" => self.mds_rmfailed(cmd, &known),
            "mds repaired" => self.mds_repaired(cmd, &known),
            "mds freeze" => self.mds_freeze(cmd, &known),
            "mds set_state" => self.mds_set_state(cmd, &known),
            "mds compat rm_compat" | "mds compat rm_incompat" => self.mds_compat_rm(cmd),
            _ => unhandled(),
        }
    }

    fn mds_fail(&mut self, cmd: &Cmd, known: &FsMap) -> CmdResult {
        let who = cmd.string("role_or_gid")?;
        let Some(info) = mds_of(known, &who).cloned() else {
            return say(format!(
                "MDS named '{who}' does not exist, is not up or you lack the permission to see."
            ));
        };
        self.fail_mds(info.gid);
        let by = self.sessions.get(&cmd.session).map(|s| s.peer.auth_name.to_string());
        let text = format!("daemon mds.{} marked failed by {}", info.name, by.unwrap_or_default());
        self.log_own("cluster", INFO, text);
        say(format!("failed mds gid {}", info.gid))
    }

    fn mds_rm(&mut self, cmd: &Cmd, known: &FsMap) -> CmdResult {
        let gid = cmd.map.int("gid")? as u64;
        let Some(info) = known.mds(gid) else {
            return say(format!("mds gid {gid} does not exist"));
        };
        if info.state > MdsState::DNE {
            let text = format!("cannot remove active mds.{} rank {}", info.name, info.rank);
            return fail(Errno::EBUSY, text);
        }
        self.fail_mds(gid);
        say(format!("removed mds gid {gid}"))
    }

    fn mds_rmfailed(&mut self, cmd: &Cmd, known: &FsMap) -> CmdResult {
        if !cmd.map.flag("yes_i_really_mean_it") {
            return fail(
                Errno::EPERM,
                "WARNING: this can make your filesystem inaccessible! Add --yes-i-really-mean-it if \
                 you are sure you wish to continue.",
            );
        }
        let role = cmd.string("role")?;
        let (fscid, rank) = parse_role(known, &role)
            .map_err(|e| refuse(Errno::EINVAL, format!("{}: invalid role '{role}'", e.text)))?;
        if let Some(fs) = self.change_fsmap().change_fs(fscid) {
            fs.mds_map.failed.remove(&rank);
        }
        say(format!("removed failed mds.{fscid}:{rank}"))
    }

    fn mds_repaired(&mut self, cmd: &Cmd, known: &FsMap) -> CmdResult {
        let (fscid, rank) = parse_role(known, &cmd.string("role")?)?;
        let damaged = |fs: &maps::fsmap::Filesystem| fs.mds_map.damaged.contains(&rank);
        if !known.filesystems.get(&fscid).is_some_and(damaged) {
            return say("nothing to do: rank is not damaged");
        }
        self.change_fsmap().undamaged(fscid, rank);
        say(format!("repaired: restoring rank {fscid}:{rank}"))
    }

    fn mds_freeze(&mut self, cmd: &Cmd, known: &FsMap) -> CmdResult {
        let who = cmd.string("role_or_gid")?;
        let Some(gid) = mds_of(known, &who).map(|info| info.gid) else {
            return fail(Errno::EINVAL, format!("MDS named '{who}' does not exist, or is not up"));
        };
        let frozen = parse_bool(&cmd.string("val")?)?;
        if let Some(info) = self.change_fsmap().change_mds(gid) {
            info.freeze(frozen);
        }
        say(format!("{} mds.{gid}", if frozen { "freezing" } else { "unfreezing" }))
    }

    /// For developers: what an MDS is said to do, as long as its rank is its own.
    fn mds_set_state(&mut self, cmd: &Cmd, known: &FsMap) -> CmdResult {
        let (gid, state) = (cmd.map.int("gid")? as u64, MdsState(cmd.map.int("state")? as i32));
        let Some(rank) = known.mds(gid).map(|info| info.rank) else { return say("") };
        let holder = known.fs_of(gid).and_then(|fs| fs.mds_map.holder(rank));
        let held = holder.is_some_and(|info| info.gid == gid);
        if !held || !(MdsState::REPLAY..=MdsState::STOPPING).contains(&state) {
            // Ceph's takes anything, and the monitors end on a map that contradicts itself.
            return fail(
                Errno::EINVAL,
                format!("mds gid {gid} cannot be in state {} ({})", state.0, state.name()),
            );
        }
        if let Some(info) = self.change_fsmap().change_mds(gid) {
            info.state = state;
        }
        say(format!("set mds gid {gid} to state {} {}", state.0, state.name()))
    }

    fn mds_compat_rm(&mut self, cmd: &Cmd) -> CmdResult {
        let feature = cmd.map.int("feature")? as u64;
        let compat = &self.mds.map.default_compat;
        let (kind, set) = match cmd.prefix.ends_with("rm_compat") {
            true => ("compat", &compat.compat),
            false => ("incompat", &compat.incompat),
        };
        if !set.names.contains_key(&feature) {
            let text = maps::mdsmap::compat_text(compat);
            return say(format!("{kind} feature {feature} not present in {text}"));
        }
        let compat = &mut self.change_fsmap().default_compat;
        let set = if kind == "compat" { &mut compat.compat } else { &mut compat.incompat };
        set.names.remove(&feature);
        say(format!("removing {kind} feature {feature}"))
    }
}
