//! What MDSs say (`MDSMonitor::preprocess_beacon` and `prepare_beacon` at v16.2).
//!
//! ```text
//! boot ──► waits (standby), or has it been here before: is it the same, ignored
//! a state it may be in ──► taken over, and answered once that is committed
//! anything else ──► answered with what it was, which tells it that the monitors hear it
//! not in the map ──► sent an empty map: it begins anew
//! ```

use denc::Denc;
use maps::FsMap;
use maps::mdsmap::{FS_NONE, MdsInfo, MdsState, RANK_NONE};
use messages::{MMDSBeacon, MMDSLoadTargets, MdsHealth, PaxosHeader};

use crate::clog::{DEBUG, INFO};
use crate::commands::check_name;
use crate::core::MonCore;
use crate::event::{SessionId, wire};
use crate::layout::{self, MDS_HEALTH, MDS_METADATA};

/// MDSs at most; others that boot are not heard.
const MDS_MAX: usize = 1000;
/// Things that an MDS finds wrong, at most; more are left out.
const METRICS_MAX: usize = 256;

impl MonCore {
    pub(crate) fn on_mds_beacon(&mut self, from: SessionId, mut m: MMDSBeacon) {
        let Some(session) = self.sessions.get(&from) else { return };
        if !session.caps.allows(&session.peer, "mds", "x")
            || m.fsid != self.monmap.fsid
            || session.peer.global_id != m.gid
        {
            return;
        }
        m.health.metrics.truncate(METRICS_MAX);
        match (self.mds.map.mds(m.gid).cloned(), m.state) {
            (None, MdsState::BOOT) => self.boot_mds(from, &m),
            (None, _) => {
                tracing::debug!("mds.{} is in no map and says {}", m.gid, m.state.name());
                self.send_away(from);
            }
            (Some(info), state) => self.beacon_of_known(from, &m, &info, state),
        }
    }

    fn beacon_of_known(
        &mut self,
        from: SessionId,
        m: &MMDSBeacon,
        info: &MdsInfo,
        state: MdsState,
    ) {
        if info.state_seq > m.seq || state == MdsState::BOOT {
            return;
        }
        self.mds.last_beacon.insert(m.gid, self.now.mono);
        // What it says rests on a map: an old one counts for nothing. (It may not even be committed that
        // it is there.)
        let seen = self.mds.published.epoch_for(m.gid);
        if seen.is_none_or(|epoch| u64::from(epoch) != m.paxos.version) {
            return self.answer_beacon(from, m);
        }
        self.take_mds_health(m);
        if info.is_laggy() {
            self.with_mds(m.gid, |info| info.laggy_since = types::UTime::ZERO);
        }
        let fscid = self.mds.map.by_name(&m.fs).map_or(FS_NONE, |fs| fs.fscid);
        if info.join_fscid != fscid {
            self.with_mds(m.gid, |info| info.join_fscid = fscid);
        }
        if info.state != state && !self.take_mds_state(from, m, info) {
            return;
        }
        self.answer_beacon(from, m);
    }

    fn answer_beacon(&mut self, to: SessionId, m: &MMDSBeacon) {
        let epoch = self.mds.map.epoch_for(m.gid).unwrap_or(self.mds.map.epoch);
        let answer = MMDSBeacon {
            paxos: PaxosHeader::at(epoch.into()),
            features: types::features::ALL,
            health: MdsHealth::default(),
            compat: Default::default(),
            sys_info: Default::default(),
            fs: String::new(),
            ..m.clone()
        };
        self.send(to, wire(&answer));
    }

    fn with_mds(&mut self, gid: u64, change: impl FnOnce(&mut MdsInfo)) {
        if let Some(info) = self.change_fsmap().change_mds(gid) {
            change(info);
        }
    }

    /// An MDS has begun. One of the same name that was there before is gone.
    fn boot_mds(&mut self, from: SessionId, m: &MMDSBeacon) {
        let Some(peer) = self.sessions.get(&from).map(|s| s.peer.clone()) else { return };
        if check_name(&m.name).is_err() || m.name.is_empty() {
            return;
        }
        let unique = self.conf.bool("mds_enforce_unique_name");
        let named = |map: &FsMap| map.mds_by_name(&m.name).map(|info| info.gid);
        while let Some(old) = named(&self.mds.map).filter(|_| unique) {
            self.log_own("cluster", INFO, format!("daemon mds.{} restarted", m.name));
            self.fail_mds(old);
        }
        if self.mds.map.mds_roles.len() >= MDS_MAX {
            tracing::warn!("mds.{} is not taken: there are {MDS_MAX} MDSs already", m.name);
            return;
        }
        let join_fscid = self.mds.map.by_name(&m.fs).map_or(FS_NONE, |fs| fs.fscid);
        let info = MdsInfo {
            gid: m.gid,
            name: m.name.clone(),
            addrs: peer.addrs.clone(),
            features: m.features,
            state: MdsState::STANDBY,
            state_seq: m.seq,
            join_fscid,
            compat: Some(m.compat.clone()),
            ..MdsInfo::default()
        };
        self.change_fsmap().insert(info);
        self.mds.last_beacon.insert(m.gid, self.now.mono);
        let facts = m.sys_info.clone();
        self.batch().put(layout::key(MDS_METADATA, &m.gid.to_string()), facts.to_bytes());
        self.mds.metadata.insert(m.gid, facts);
        self.take_mds_health(m);
        self.log_state(m);
        self.answer_beacon(from, m);
    }

    fn log_state(&mut self, m: &MMDSBeacon) {
        let addrs = self.mds.map.mds(m.gid).map(|info| info.addrs.to_string()).unwrap_or_default();
        self.log_own("cluster", DEBUG, format!("mds.? {addrs} {}", m.state.name()));
    }

    fn take_mds_health(&mut self, m: &MMDSBeacon) {
        let old = self.mds.health.get(&m.gid);
        let known = old.map_or(m.health.metrics.is_empty(), |old| *old == m.health);
        if known {
            return;
        }
        let over = old.into_iter().flat_map(|old| &old.metrics);
        let over: Vec<String> = over
            .filter(|old| m.health.metrics.iter().all(|new| new.kind != old.kind))
            .map(|old| format!("MDS health message cleared (mds.{}): {}", m.name, old.message))
            .collect();
        for text in over {
            self.log_own("cluster", INFO, text);
        }
        self.batch().put(layout::key(MDS_HEALTH, &m.gid.to_string()), m.health.to_bytes());
        self.mds.health.insert(m.gid, m.health.clone());
    }

    /// An MDS is in another state, or wants to be. Whether it is answered as usual.
    fn take_mds_state(&mut self, from: SessionId, m: &MMDSBeacon, info: &MdsInfo) -> bool {
        let (gid, state) = (m.gid, m.state);
        let name = format!("daemon mds.{}", info.name);
        let fs = self.mds.map.fs_of(gid);
        let fs_name = fs.map(|fs| fs.name().to_string()).unwrap_or_default();
        let stopping = info.state == MdsState::STOPPING;
        match state {
            // An MDS with a rank does not wait again, and one without gives itself none.
            MdsState::STANDBY | MdsState::STANDBY_REPLAY if info.rank != RANK_NONE => {}
            _ if matches!(info.state, MdsState::STANDBY | MdsState::STANDBY_REPLAY)
                && state > MdsState::DNE => {}
            MdsState::DNE => {
                self.fail_mds(gid);
            }
            MdsState::DAMAGED if info.rank != RANK_NONE => {
                let blocked_in = self.block_mds(gid);
                self.change_fsmap().damaged(gid, blocked_in);
                self.mds.last_beacon.remove(&gid);
            }
            MdsState::STOPPED if info.state.may_become(state) => {
                let left = fs.map_or(0, |fs| fs.mds_map.in_.len() - 1);
                let text = format!(
                    "{name} finished stopping rank {} in filesystem {fs_name} (now has {left} ranks)",
                    info.rank
                );
                self.log_own("cluster", INFO, text);
                let mut gone = self.change_fsmap().stop(gid);
                gone.push(gid);
                self.mds.last_beacon.retain(|gid, _| !gone.contains(gid));
                self.log_own("cluster", DEBUG, format!("mds.? {} {}", info.addrs, state.name()));
                self.send_away(from);
                return false;
            }
            _ if stopping || info.rank == RANK_NONE || !info.state.may_become(state) => {
                tracing::warn!(
                    "{name} (rank {}) says {} though it is {}",
                    info.rank,
                    state.name(),
                    info.state.name()
                );
                return stopping;
            }
            _ => {
                if state == MdsState::ACTIVE {
                    let rank = info.rank;
                    let text =
                        format!("{name} is now active in filesystem {fs_name} as rank {rank}");
                    self.log_own("cluster", INFO, text);
                }
                let seq = m.seq;
                self.with_mds(gid, |info| (info.state, info.state_seq) = (state, seq));
                self.log_state(m);
            }
        }
        true
    }

    /// An MDS says which ranks it may hand directories to.
    pub(crate) fn on_mds_load_targets(&mut self, from: SessionId, m: MMDSLoadTargets) {
        let Some(session) = self.sessions.get(&from) else { return };
        if !session.caps.allows(&session.peer, "mds", "x") || session.peer.global_id != m.gid {
            return;
        }
        let info = self.mds.map.mds(m.gid);
        if info.is_some_and(|info| info.rank != RANK_NONE && info.export_targets != m.targets) {
            self.with_mds(m.gid, |info| info.export_targets = m.targets);
        }
    }
}
