//! Messages: each to its handler.

use messages::{
    MAuth, MCommand, MGetConfig, MGetPoolStats, MGetPoolStatsReply, MLog, MMDSBeacon,
    MMDSLoadTargets, MMgrBeacon, MMonCommand, MMonGetVersion, MMonGetVersionReply, MMonMgrReport,
    MMonSubscribe, MOSDAlive, MOSDBeacon, MOSDBoot, MOSDFailure, MOSDFull, MOSDMarkMeDead,
    MOSDMarkMeDown, MOSDPGCreated, MOSDPGReadyToMerge, MOSDPGTemp, MPing, MPoolOp, MStatfs,
    MStatfsReply, Message, PaxosHeader,
};
use types::RawMessage;

use crate::core::MonCore;
use crate::event::SessionId;
use crate::event::{read, wire};

/// Type of MMonGetMap, which has no body.
const MON_GET_MAP: u16 = 5;

impl MonCore {
    /// Handles a message. One that does not decode ends its sender's session.
    pub(crate) fn on_message(&mut self, from: SessionId, raw: RawMessage) {
        if !self.sessions.contains_key(&from) {
            return;
        }
        if !self.take_bytes(raw.payload_len()) {
            return self.retry(from, raw);
        }
        if let Err(error) = self.dispatch(from, &raw) {
            let who = self.sessions.get(&from).map(|s| s.describe()).unwrap_or_default();
            tracing::warn!("message type {} of {who} does not decode: {error}", raw.header.kind);
            self.close(from);
        }
    }

    fn dispatch(&mut self, from: SessionId, raw: &RawMessage) -> Result<(), denc::Error> {
        match raw.header.kind {
            MPing::TYPE => self.on_ping(from, raw),
            MON_GET_MAP => self.send_monmap(from),
            MMonSubscribe::TYPE => self.on_subscribe(from, raw, read::<MMonSubscribe>(raw)?),
            MMonGetVersion::TYPE => self.on_get_version(from, raw, read::<MMonGetVersion>(raw)?),
            MAuth::TYPE => self.on_auth(from, raw, read::<MAuth>(raw)?),
            MMonCommand::TYPE => self.on_mon_command(from, raw, read::<MMonCommand>(raw)?),
            MCommand::TYPE => self.on_tell(from, raw, read::<MCommand>(raw)?),
            MLog::TYPE => self.on_log(from, raw, read::<MLog>(raw)?),
            MGetConfig::TYPE => self.on_get_config(from, raw, read::<MGetConfig>(raw)?),
            MStatfs::TYPE => self.on_statfs(from, raw, &read::<MStatfs>(raw)?),
            MGetPoolStats::TYPE => self.on_pool_stats(from, raw, read::<MGetPoolStats>(raw)?),
            MPoolOp::TYPE => self.on_pool_op(from, raw, read::<MPoolOp>(raw)?),
            MOSDBoot::TYPE => self.on_boot(from, raw, read::<MOSDBoot>(raw)?),
            MOSDAlive::TYPE => self.on_alive(from, read::<MOSDAlive>(raw)?),
            MOSDFailure::TYPE => self.on_osd_failure(from, raw, read::<MOSDFailure>(raw)?),
            MOSDBeacon::TYPE => self.on_beacon(from, read::<MOSDBeacon>(raw)?),
            MOSDPGTemp::TYPE => self.on_pg_temp(from, read::<MOSDPGTemp>(raw)?),
            MOSDMarkMeDown::TYPE => self.on_mark_me_down(from, raw, read::<MOSDMarkMeDown>(raw)?),
            MOSDMarkMeDead::TYPE => self.on_mark_me_dead(from, read::<MOSDMarkMeDead>(raw)?),
            MOSDFull::TYPE => self.on_full(from, read::<MOSDFull>(raw)?),
            MOSDPGCreated::TYPE => self.on_pg_created(from, read::<MOSDPGCreated>(raw)?),
            MOSDPGReadyToMerge::TYPE => {
                self.on_ready_to_merge(from, &read::<MOSDPGReadyToMerge>(raw)?);
            }
            MMgrBeacon::TYPE => self.on_mgr_beacon(from, read::<MMgrBeacon>(raw)?),
            MMDSBeacon::TYPE => self.on_mds_beacon(from, read::<MMDSBeacon>(raw)?),
            MMDSLoadTargets::TYPE => self.on_mds_load_targets(from, read::<MMDSLoadTargets>(raw)?),
            MMonMgrReport::TYPE => self.on_mgr_report(from, read::<MMonMgrReport>(raw)?),
            // What a monitor does not know it leaves alone, as Ceph does.
            _ => {}
        }
        Ok(())
    }

    fn on_ping(&mut self, from: SessionId, raw: &RawMessage) {
        let mut f = command::Formatter::new(command::Format::JsonPretty);
        f.open_object_section("pong");
        self.dump_health(&mut f, false);
        self.dump_mon_status(&mut f);
        f.close_section();
        let reply = MPing { text: Some(f.finish()) };
        self.send(from, wire(&reply).with_tid(raw.header.tid));
    }

    fn on_get_version(&mut self, from: SessionId, raw: &RawMessage, m: MMonGetVersion) {
        let (version, oldest_version) = match m.what.as_str() {
            "osdmap" => (self.osd.published.epoch, self.osd.first),
            "mgrmap" => (self.mgr.published.epoch, 1),
            "monmap" => (self.published_monmap.epoch, 1),
            "fsmap" | "mdsmap" => (self.mds.published.epoch, self.first_fsmap()),
            _ => {
                tracing::debug!("asked for the version of unknown map {}", m.what);
                return;
            }
        };
        let reply = MMonGetVersionReply {
            handle: m.handle,
            version: version.into(),
            oldest_version: oldest_version.into(),
        };
        self.send(from, wire(&reply).with_tid(raw.header.tid));
    }

    fn on_statfs(&mut self, from: SessionId, raw: &RawMessage, m: &MStatfs) {
        let Some(session) = self.sessions.get(&from) else { return };
        if !session.caps.allows(&session.peer, "pg", "r") || m.fsid != self.monmap.fsid {
            return;
        }
        let s = self.statfs(m.data_pool);
        let reply = MStatfsReply {
            fsid: self.monmap.fsid,
            version: self.stat.version,
            kb: s.kb,
            kb_used: s.kb_used,
            kb_avail: s.kb_avail,
            num_objects: s.num_objects,
        };
        self.send(from, wire(&reply).with_tid(raw.header.tid));
    }

    fn on_pool_stats(&mut self, from: SessionId, raw: &RawMessage, m: MGetPoolStats) {
        let Some(session) = self.sessions.get(&from) else { return };
        if !session.caps.allows(&session.peer, "pg", "r") || m.fsid != self.monmap.fsid {
            return;
        }
        let map = self.osdmap();
        let mut reply = MGetPoolStatsReply {
            paxos: PaxosHeader::at(self.stat.version),
            fsid: self.monmap.fsid,
            per_pool: self.stat.per_pool_omap(),
            pool_stats: Default::default(),
        };
        for name in m.pools {
            if let Some(stats) = map.lookup_pool(&name).and_then(|id| self.stat.pool_stat(id)) {
                reply.pool_stats.insert(name, stats);
            }
        }
        self.send(from, wire(&reply).with_tid(raw.header.tid));
    }
}
