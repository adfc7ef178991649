//! Messages that arrive: to the maps, the PGs, the heartbeats. What is of a map we do not have yet
//! waits for it.

use std::rc::{Rc, Weak};

use messages::{
    BackoffOp, MBackfillReserve, MCommand, MCommandReply, MLogAck, MMgrConfigure, MMgrMap,
    MOSDBackoff, MOSDECSubOpRead, MOSDECSubOpReadReply, MOSDECSubOpWrite, MOSDECSubOpWriteReply,
    MOSDForceRecovery, MOSDFull, MOSDMap, MOSDOp, MOSDOpReply, MOSDPGBackfill,
    MOSDPGBackfillRemove, MOSDPGCreate2, MOSDPGPull, MOSDPGPush, MOSDPGPushReply,
    MOSDPGRecoveryDelete, MOSDPGRecoveryDeleteReply, MOSDPGScan, MOSDPGUpdateLogMissing, MOSDPing,
    MOSDRepOp, MOSDRepOpReply, MOSDRepScrub, MOSDRepScrubMap, MOSDScrub2, MOSDScrubReserve,
    MPGStatsAck, MRecoveryReserve, Message,
};
use msgr::{Connection, Dispatcher, Incoming};
use types::entity::{CLIENT, MGR, MON, OSD};
use types::osd::ops::message_flags;
use types::pg::NO_SHARD;
use types::{Epoch, Errno, OsdId, PgShard, SnapContext, SpgId};

use super::Osd;
use super::commits;
use super::session::Session;
use super::tracker::Description;
use crate::ops::{OpInfo, Reply, Request};
use crate::pg::{self, ClientOp, Pg, wire};

/// Which messenger a dispatcher is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Client,
    Cluster,
    HeartbeatServer,
    HeartbeatClient,
    Objecter,
}

/// The messengers' calls.
pub(super) struct Dispatch {
    osd: Weak<Osd>,
    role: Role,
}

impl Dispatch {
    pub(super) fn new(osd: &Rc<Osd>, role: Role) -> Dispatch {
        Dispatch { osd: Rc::downgrade(osd), role }
    }
}

/// A message that waits for a map.
pub(crate) type Parked = (Connection, Incoming);

/// Messages that wait for one map, at most; peers send again in the next interval.
const PARKED_MAX: usize = 100_000;

impl Dispatcher for Dispatch {
    fn on_message(&self, con: &Connection, incoming: Incoming) {
        let Some(osd) = self.osd.upgrade() else { return };
        let incoming = match self.role {
            Role::Client => match osd.monc.on_message(con, incoming) {
                Some(incoming) => incoming,
                None => return,
            },
            _ => incoming,
        };
        if osd.is_stopping() && incoming.message.header.kind != MOSDMap::TYPE {
            return;
        }
        let kind = incoming.message.header.kind;
        let handled = match self.role {
            Role::HeartbeatServer | Role::HeartbeatClient => {
                if kind == MOSDPing::TYPE {
                    MOSDPing::decode(&incoming.message)
                        .map(|ping| osd.on_ping(con, ping, self.role == Role::HeartbeatClient))
                } else {
                    Ok(())
                }
            }
            // Where OSDs talk nothing holds clients back: they have an address of their own.
            Role::Cluster if con.peer_kind() != OSD => Ok(()),
            Role::Client | Role::Cluster | Role::Objecter => osd.dispatch(con, incoming),
        };
        if let Err(e) = handled {
            tracing::warn!("{con:?}: message of type {kind} does not decode: {e}");
            if con.peer_kind() == CLIENT {
                osd.end_client(con);
            }
        }
    }

    fn on_connect(&self, con: &Connection) {
        let Some(osd) = self.osd.upgrade() else { return };
        if self.role == Role::Client {
            osd.monc.on_connect(con);
            osd.on_mgr_connect(con);
        }
    }

    fn on_reset(&self, con: &Connection) {
        let Some(osd) = self.osd.upgrade() else { return };
        match self.role {
            Role::Client => {
                osd.monc.on_reset(con);
                osd.on_mgr_reset(con);
                osd.forget_client(con);
            }
            Role::HeartbeatClient => osd.on_heartbeat_reset(con),
            Role::Objecter => osd.remote_reads.on_reset(con),
            Role::Cluster | Role::HeartbeatServer => {}
        }
    }

    fn on_remote_reset(&self, con: &Connection) {
        if let (Some(osd), Role::Client) = (self.osd.upgrade(), self.role) {
            osd.on_mgr_reset(con);
        }
    }

    fn on_refused(&self, con: &Connection) {
        let Some(osd) = self.osd.upgrade() else { return };
        match self.role {
            Role::Client => osd.monc.on_reset(con),
            Role::Cluster | Role::HeartbeatClient => osd.on_refused(con),
            Role::HeartbeatServer | Role::Objecter => {}
        }
    }
}

impl Osd {
    pub(super) fn park(&self, epoch: Epoch, con: &Connection, incoming: Incoming) {
        let mut parked = self.waiting_for_map.borrow_mut();
        if parked.values().map(|q| q.len()).sum::<usize>() >= PARKED_MAX {
            return;
        }
        let first = parked.is_empty();
        parked.entry(epoch).or_default().push_back((con.clone(), incoming));
        drop(parked);
        if first {
            self.want_maps(self.current_map().epoch + 1);
        }
    }

    /// A connection of a client is gone, and with it whoever waits for answers: what it sent of maps that may never
    /// come must not keep the places of messages that others need.
    /// Ends a client's session: of a connection that we end ourselves nobody else tells.
    pub(super) fn end_client(&self, con: &Connection) {
        con.mark_down();
        self.forget_client(con);
    }

    /// A client's session is over: what it sent and waits goes, its watches have their timeouts.
    fn forget_client(&self, con: &Connection) {
        self.forget_parked(con);
        if let Some(session) = con.session::<Session>() {
            session.client().end();
            con.set_session(None);
        }
    }

    fn forget_parked(&self, con: &Connection) {
        let mut parked = self.waiting_for_map.borrow_mut();
        parked.retain(|_, waiting| {
            waiting.retain(|(of, _)| of != con);
            !waiting.is_empty()
        });
    }

    /// A new map: what waited for it goes on, in order.
    pub(super) fn unpark(self: &Rc<Osd>) {
        let now = self.pgs_epoch.get();
        let ready = {
            let mut parked = self.waiting_for_map.borrow_mut();
            let later = parked.split_off(&(now + 1));
            std::mem::replace(&mut *parked, later)
        };
        for (con, incoming) in ready.into_values().flatten() {
            let kind = incoming.message.header.kind;
            if let Err(e) = self.dispatch(&con, incoming) {
                tracing::warn!("{con:?}: message of type {kind} does not decode: {e}");
            }
        }
        if !self.waiting_for_map.borrow().is_empty() {
            self.want_maps(now + 1);
        }
    }

    /// Whether a message of this epoch has to wait; then it is parked.
    pub(super) fn too_new(&self, epoch: Epoch) -> bool {
        epoch > self.pgs_epoch.get()
    }

    fn dispatch(self: &Rc<Osd>, con: &Connection, incoming: Incoming) -> Result<(), denc::Error> {
        let raw = &incoming.message;
        let from_peer = con.peer_kind() == OSD;
        match raw.header.kind {
            MOSDOp::TYPE => return self.on_op(con, incoming),
            MOSDRepOp::TYPE if from_peer => {
                let m = Box::new(MOSDRepOp::decode(raw)?);
                return self.for_pg(
                    con,
                    m.map_epoch,
                    m.pgid,
                    incoming,
                    move |osd, pg, incoming| {
                        osd.counters.count_subop(incoming.message.data.len() as u64);
                        osd.pace.note_client();
                        let tid = incoming.message.header.tid;
                        let sums = incoming.message.data.sums().cloned();
                        let what = Description::RepOp(m.pgid, m.version);
                        let tracked = osd.tracker.track(incoming.received, what);
                        pg.on_repop(&m, sums, tid, &tracked);
                    },
                );
            }
            MOSDECSubOpWrite::TYPE if from_peer => {
                let m = MOSDECSubOpWrite::decode(raw)?;
                return self.for_pg(con, m.map_epoch, m.pgid, incoming, |osd, pg, incoming| {
                    osd.counters.count_subop(incoming.message.data.len() as u64);
                    osd.pace.note_client();
                    pg.on_shard_write(m);
                });
            }
            MOSDECSubOpWriteReply::TYPE if from_peer => {
                let m = MOSDECSubOpWriteReply::decode(raw)?;
                return self.for_pg(con, m.map_epoch, m.pgid, incoming, move |_, pg, _| {
                    pg.on_shard_write_reply(&m);
                });
            }
            MOSDECSubOpRead::TYPE if from_peer => {
                let m = MOSDECSubOpRead::decode(raw)?;
                return self
                    .for_pg(con, m.map_epoch, m.pgid, incoming, |_, pg, _| pg.on_shard_read(m));
            }
            MOSDECSubOpReadReply::TYPE if from_peer => {
                let m = MOSDECSubOpReadReply::decode(raw)?;
                return self.for_pg(con, m.map_epoch, m.pgid, incoming, |_, pg, _| {
                    pg.on_shard_read_reply(m);
                });
            }
            MOSDRepOpReply::TYPE if from_peer => {
                let m = MOSDRepOpReply::decode(raw)?;
                return self.for_pg(con, m.map_epoch, m.pgid, incoming, move |_, pg, incoming| {
                    pg.on_repop_reply(&m, incoming.message.header.tid);
                });
            }
            commits::TYPE if from_peer => return self.on_commits(con, incoming),
            MOSDPGUpdateLogMissing::TYPE if from_peer => {
                let m = MOSDPGUpdateLogMissing::decode(raw)?;
                let from = PgShard::new(peer_osd(con), m.from);
                return self.for_pg(con, m.map_epoch, m.pgid, incoming, move |_, pg, _| {
                    pg.on_log_update(from, m);
                });
            }
            kind if wire::is_peering(kind) && from_peer => {
                let from = peer_osd(con);
                let messages = wire::decode(raw)?;
                let epoch = messages.iter().map(|m| m.epoch).max().unwrap_or(0);
                if self.too_new(epoch) {
                    self.park(epoch, con, incoming);
                    return Ok(());
                }
                self.note_peer_epoch(from, epoch);
                drop(incoming);
                for m in messages {
                    self.on_peering(from, m);
                }
            }
            MOSDPGPush::TYPE if from_peer => {
                let m = MOSDPGPush::decode(raw)?;
                return self.for_pg(con, m.map_epoch, m.pgid, incoming, |osd, pg, incoming| {
                    osd.counters.count_push(incoming.message.data.len() as u64);
                    pg.on_push(m);
                });
            }
            MOSDPGPushReply::TYPE if from_peer => {
                let m = MOSDPGPushReply::decode(raw)?;
                return self
                    .for_pg(con, m.map_epoch, m.pgid, incoming, |_, pg, _| pg.on_push_reply(m));
            }
            MOSDPGPull::TYPE if from_peer => {
                let m = MOSDPGPull::decode(raw)?;
                return self.for_pg(con, m.map_epoch, m.pgid, incoming, |osd, pg, _| {
                    osd.counters.count_pull();
                    pg.on_pull(m);
                });
            }
            MOSDPGRecoveryDelete::TYPE if from_peer => {
                let m = MOSDPGRecoveryDelete::decode(raw)?;
                return self.for_pg(con, m.map_epoch, m.pgid, incoming, |_, pg, _| {
                    pg.on_recovery_delete(m);
                });
            }
            MOSDPGRecoveryDeleteReply::TYPE if from_peer => {
                let m = MOSDPGRecoveryDeleteReply::decode(raw)?;
                return self.for_pg(con, m.map_epoch, m.pgid, incoming, |_, pg, _| {
                    pg.on_recovery_delete_reply(m);
                });
            }
            MOSDPGBackfill::TYPE if from_peer => {
                let m = MOSDPGBackfill::decode(raw)?;
                let from = peer_osd(con);
                return self.for_pg(con, m.map_epoch, m.pgid, incoming, move |_, pg, _| {
                    pg.on_backfill(m, from);
                });
            }
            MOSDPGScan::TYPE if from_peer => {
                let m = MOSDPGScan::decode(raw)?;
                return self.for_pg(con, m.map_epoch, m.pgid, incoming, |_, pg, _| pg.on_scan(m));
            }
            MOSDPGBackfillRemove::TYPE if from_peer => {
                let m = MOSDPGBackfillRemove::decode(raw)?;
                return self.for_pg(con, m.map_epoch, m.pgid, incoming, move |_, pg, _| {
                    pg.on_backfill_remove(&m);
                });
            }
            MRecoveryReserve::TYPE if from_peer => {
                let m = MRecoveryReserve::decode(raw)?;
                let from = peer_osd(con);
                return self.for_pg(con, m.query_epoch, m.pgid, incoming, move |_, pg, _| {
                    pg.on_recovery_reserve(&m, from);
                });
            }
            MBackfillReserve::TYPE if from_peer => {
                let m = MBackfillReserve::decode(raw)?;
                let from = peer_osd(con);
                return self.for_pg(con, m.query_epoch, m.pgid, incoming, move |_, pg, _| {
                    pg.on_backfill_reserve(&m, from);
                });
            }
            MOSDForceRecovery::TYPE if matches!(con.peer_kind(), MON | MGR) => {
                let m = MOSDForceRecovery::decode(raw)?;
                if m.fsid != self.current_map().fsid {
                    return Ok(());
                }
                for pgid in m.forced_pgs {
                    self.with_pg(pgid, move |pg| pg.force_recovery(m.options));
                }
            }
            MOSDScrubReserve::TYPE if from_peer => {
                let m = MOSDScrubReserve::decode(raw)?;
                return self.for_pg(con, m.map_epoch, m.pgid, incoming, move |_, pg, _| {
                    pg.on_scrub_reserve(&m);
                });
            }
            MOSDRepScrub::TYPE if from_peer => {
                let m = MOSDRepScrub::decode(raw)?;
                return self
                    .for_pg(con, m.map_epoch, m.pgid, incoming, |_, pg, _| pg.on_rep_scrub(m));
            }
            MOSDRepScrubMap::TYPE if from_peer => {
                let m = MOSDRepScrubMap::decode(raw)?;
                return self.for_pg(con, m.map_epoch, m.pgid, incoming, |_, pg, _| {
                    pg.on_rep_scrub_map(m);
                });
            }
            MOSDScrub2::TYPE if matches!(con.peer_kind(), MON | MGR) => {
                let m = MOSDScrub2::decode(raw)?;
                if m.fsid != self.current_map().fsid {
                    return Ok(());
                }
                for pgid in m.scrub_pgs {
                    self.with_pg(pgid, move |pg| pg.request_scrub(m.deep, m.repair));
                }
            }
            MLogAck::TYPE if con.peer_kind() == MON => self.clog.on_ack(&MLogAck::decode(raw)?),
            MOSDMap::TYPE if from_peer || con.peer_kind() == MON => {
                self.on_maps(MOSDMap::decode(raw)?);
            }
            MOSDPGCreate2::TYPE if con.peer_kind() == MON => {
                let m = MOSDPGCreate2::decode(raw)?;
                if self.too_new(m.epoch) {
                    self.park(m.epoch, con, incoming);
                    return Ok(());
                }
                self.on_create(m);
            }
            MOSDFull::TYPE if from_peer => {
                self.on_peer_full(peer_osd(con), &MOSDFull::decode(raw)?)
            }
            MMgrMap::TYPE if con.peer_kind() == MON => self.on_mgrmap(MMgrMap::decode(raw)?.map),
            MMgrConfigure::TYPE if con.peer_kind() == MGR => {
                let configure = MMgrConfigure::decode(raw)?;
                self.reporter.configure(&configure);
                self.counters.dynamic.set_queries(configure.osd_queries()?);
                self.report_soon();
            }
            MPGStatsAck::TYPE => {}
            MOSDOpReply::TYPE => self.remote_reads.on_reply(con, raw)?,
            MOSDBackoff::TYPE => {
                let m = MOSDBackoff::decode(raw)?;
                match m.op {
                    BackoffOp::AckBlock => Session::of(con).on_backoff(&m),
                    _ => self.remote_reads.on_backoff(con, m, self.current_map().epoch),
                }
            }
            MCommand::TYPE => {
                let m = MCommand::decode(raw)?;
                self.on_command(con, incoming, m);
            }
            kind => tracing::debug!("{con:?} sent a message of type {kind}"),
        }
        Ok(())
    }

    fn for_pg(
        self: &Rc<Osd>,
        con: &Connection,
        epoch: Epoch,
        pgid: SpgId,
        incoming: Incoming,
        f: impl FnOnce(&Rc<Osd>, &Rc<Pg>, &Incoming) + 'static,
    ) -> Result<(), denc::Error> {
        if self.too_new(epoch) {
            self.park(epoch, con, incoming);
            return Ok(());
        }
        self.note_peer_epoch(peer_osd(con), epoch);
        let osd = self.clone();
        self.with_pg(pgid, move |pg| {
            // While it splits, objects of children are not in its collection any more; the interval
            // these messages are of is over.
            if !pg.is_splitting() {
                f(&osd, pg, &incoming);
            }
        });
        Ok(())
    }

    fn on_command(self: &Rc<Osd>, con: &Connection, incoming: Incoming, m: MCommand) {
        let session = Session::of(con);
        let tid = incoming.message.header.tid;
        let reply = if session.caps.is_allow_all() || con.peer_kind() == MON {
            crate::tell::run(self.clone(), m.cmd, m.input, false)
        } else {
            let denied = command::CommandReply::error(Errno::EACCES.0, "access denied");
            Box::pin(async move { denied })
        };
        let con = con.clone();
        self.env.go(async move {
            let reply = reply.await;
            drop(incoming);
            let message = MCommandReply { rc: reply.rc, outs: reply.outs, outb: reply.outb };
            con.send(message.encode().with_tid(tid));
        });
    }

    fn on_op(self: &Rc<Osd>, con: &Connection, incoming: Incoming) -> Result<(), denc::Error> {
        let m = MOSDOp::decode(&incoming.message)?;
        let session = Session::of(con);
        let map = self.current_map();
        if m.epoch > session.epoch.get() {
            session.epoch.set(m.epoch);
        }
        if self.too_new(m.epoch) {
            self.park(m.epoch, con, incoming);
            return Ok(());
        }
        if m.epoch < map.epoch {
            self.share_with_session(&session);
        }
        if !self.is_active() {
            // Not up in the map: whoever thinks so has an old one.
            return Ok(());
        }
        let oid = m.hobject();
        let reqid = m.request_id(session.name, incoming.message.header.tid);
        let limits = self.limits.borrow().clone();
        let (info, refused) = match OpInfo::of(&m.ops, m.flags, &limits.classes) {
            Ok(info) => (info, None),
            Err(errno) => (OpInfo::default(), Some(errno)),
        };
        let request = Rc::new(Request {
            oid,
            snapc: SnapContext { seq: m.snap_seq, snaps: m.snaps },
            mtime: m.mtime,
            flags: m.flags,
            reqid,
            features: m.features,
            client: session.client().clone(),
            info,
            ops: m.ops,
            sums: incoming.message.data.sums().cloned(),
            pgid: m.pgid.pgid,
            retry_attempt: m.retry_attempt,
        });
        let arrival = self.arrivals.get() + 1;
        self.arrivals.set(arrival);
        let pgid = m.pgid;
        let what = Description::Op(request.clone(), pgid);
        let tracked = self.tracker.track(incoming.received, what);
        let op = Box::new(ClientOp {
            session: session.clone(),
            request: request.clone(),
            epoch: m.epoch,
            tid: incoming.message.header.tid,
            retry_attempt: m.retry_attempt,
            pgid: pgid.pgid,
            object: m.object,
            arrival,
            tracked,
            incoming,
        });
        let refused = refused.or_else(|| self.refusal(&session, &request, &map, pgid));
        if let Some(errno) = refused {
            op.reply(map.epoch, Reply::refusal(&request, errno));
            return Ok(());
        }
        let Some(pool) = map.pool(pgid.pgid.pool_id()) else {
            // The client's map is as new as ours: it knows. Else it has just been told.
            return Ok(());
        };
        let of_any_copy = self.asks_us_as_a_copy(&request, &map, pgid);
        let shard = if pool.is_erasure() { pgid.shard } else { NO_SHARD };
        let spgid = SpgId { pgid: map.raw_pg_to_pg(pgid.pgid).unwrap_or(pgid.pgid), shard };
        // A copy that is being removed takes no op: if the PG has come back, it is made anew first.
        // What came before it was made is dispatched first.
        let known = self.pgs.borrow().get(&spgid).is_some_and(|slot| !slot.is_going())
            && !self.uncreated.borrow().contains_key(&spgid);
        let leads = || {
            let primary = pg::mapping_of(&map, spgid).primary();
            primary == Some(PgShard::new(self.whoami, shard))
        };
        if !known && of_any_copy {
            // The primary has what this copy has yet to get.
            op.reply(map.epoch, Reply::refusal(&request, Errno::EAGAIN));
            return Ok(());
        }
        if !known && !leads() {
            self.share_with_session(&session);
            return Ok(());
        }
        if !known {
            // Ours, but the monitor's word to create it has not come yet, or an older copy is going.
            self.wait_for_creation(spgid, con, op.incoming);
            return Ok(());
        }
        self.pace.note_client();
        self.turns.serve_client(op.incoming.message.data.len() as u64);
        self.with_pg(spgid, move |pg| match of_any_copy {
            true => pg.do_read_of_any_copy(op),
            false => pg.do_op(op),
        });
        Ok(())
    }

    /// Keeps an op for a PG that is about to be created. All of them are looked at again in the order they came in.
    fn wait_for_creation(self: &Rc<Osd>, spgid: SpgId, con: &Connection, incoming: Incoming) {
        let mut uncreated = self.uncreated.borrow_mut();
        let waiting = uncreated.entry(spgid).or_default();
        waiting.push((con.clone(), incoming));
        if waiting.len() > 1 {
            return;
        }
        let osd = self.clone();
        self.env.go(async move {
            osd.env.sleep(CREATE_PAUSE).await;
            let waiting = osd.uncreated.borrow_mut().remove(&spgid).unwrap_or_default();
            for (con, incoming) in waiting {
                if !con.is_closed() {
                    let _ = osd.dispatch(&con, incoming);
                }
            }
        });
    }

    /// Whether the client took the liberty to read from any copy, and asks us, who do not lead.
    fn asks_us_as_a_copy(&self, request: &Request, map: &::maps::OsdMap, pgid: SpgId) -> bool {
        let any_copy = message_flags::BALANCE_READS | message_flags::LOCALIZE_READS;
        if !request.has_flag(any_copy) || request.info.may_write() {
            return false;
        }
        let mapping = pg::mapping_of(map, pgid);
        mapping.acting_primary != self.whoami && mapping.acting.contains(&self.whoami)
    }

    /// What the client may not do.
    fn refusal(
        &self,
        session: &Session,
        request: &Request,
        map: &::maps::OsdMap,
        pgid: SpgId,
    ) -> Option<Errno> {
        if map.is_blocklisted(&session.con.peer_addrs()) {
            return Some(Errno::EBLOCKLISTED);
        }
        let pool = map.pool(pgid.pgid.pool_id())?;
        let name = map.pool_names.get(&pgid.pgid.pool_id()).map_or("", String::as_str);
        if !super::caps::may(session, request, pool, name) {
            return Some(Errno::EPERM);
        }
        None
    }
}

/// Before an op for a PG that is about to be created is looked at again.
const CREATE_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

pub(super) fn peer_osd(con: &Connection) -> OsdId {
    OsdId::try_from(con.peer_name().num).unwrap_or(-1)
}
