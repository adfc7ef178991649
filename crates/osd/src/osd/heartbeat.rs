//! Heartbeats between OSDs: pings on the front and back networks of the peers of our PGs and of a
//! few others; silence, or a refused connection, is reported to the monitors.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use ::maps::OsdMap;
use messages::{
    FAILURE_FAILED, FAILURE_IMMEDIATE, MOSDFailure, MOSDPing, Message, PaxosHeader, PingOp,
    SignedSpan,
};
use msgr::Connection;
use types::entity::OSD;
use types::osd::PingTimes;
use types::osd::osd_stat::Minutes;
use types::{AddrVec, Epoch, OsdId, UTime};

use super::Osd;

/// A peer that is pinged.
struct Peer {
    front: Connection,
    back: Connection,
    /// Both networks' last answers (`env.now()`).
    last_front: Duration,
    last_back: Duration,
    /// Since when it has been pinged.
    since: Duration,
    back_times: RoundTrips,
    front_times: RoundTrips,
    /// When the last answer came, seconds of the wall clock.
    updated: u32,
    clock: Option<PeerClock>,
}

/// What an answer told of a peer's clock.
#[derive(Debug, Clone, Copy)]
struct PeerClock {
    /// Of which process: the epoch it came up in.
    up_from: Epoch,
    /// By so much at most it is ahead of ours, nanoseconds: its time when it answered, less ours when
    /// we had asked. (Ceph's `peer_clock_delta_ub`, `src/osd/PeeringState.h` at v16.2, is the same, but
    /// told by the peer.)
    ahead_at_most: i128,
}

/// Round trips of one network, microseconds: moving averages over 1, 5 and 15 minutes with their
/// extremes.
#[derive(Debug, Clone, Copy, Default)]
struct RoundTrips {
    average: [f64; 3],
    min: u32,
    max: u32,
    last: u32,
    count: u32,
}

impl RoundTrips {
    fn add(&mut self, us: u32, interval: f64) {
        self.last = us;
        if self.count == 0 {
            self.average = [f64::from(us); 3];
            self.min = us;
        }
        for (average, span) in self.average.iter_mut().zip([60.0, 300.0, 900.0]) {
            *average += (f64::from(us) - *average) * (interval / span).min(1.0);
        }
        self.min = self.min.min(us);
        self.max = self.max.max(us);
        self.count = self.count.saturating_add(1);
    }

    fn minutes(&self) -> Minutes {
        Minutes(self.average.map(|us| us as u32))
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Heartbeats {
    peers: RefCell<BTreeMap<OsdId, Peer>>,
    /// Reported as failed, with the time since when.
    reported: RefCell<BTreeMap<OsdId, (Duration, AddrVec)>>,
}

impl Heartbeats {
    pub(super) fn reset(&self) {
        let peers = std::mem::take(&mut *self.peers.borrow_mut());
        for peer in peers.into_values() {
            peer.front.mark_down();
            peer.back.mark_down();
        }
        self.reported.borrow_mut().clear();
    }

    pub(super) fn remove(&self, osd: OsdId) {
        let peer = self.peers.borrow_mut().remove(&osd);
        if let Some(peer) = peer {
            peer.front.mark_down();
            peer.back.mark_down();
        }
        self.reported.borrow_mut().remove(&osd);
    }

    /// Keeps connections to whom the map and our PGs say.
    pub(super) fn on_map(&self, osd: &Osd, map: &OsdMap) {
        if !osd.is_active() {
            return;
        }
        let wanted = wanted_peers(osd, map);
        let gone: Vec<OsdId> =
            self.peers.borrow().keys().filter(|p| !wanted.contains(p)).copied().collect();
        for peer in gone {
            self.remove(peer);
        }
        let now = osd.env.now();
        for id in wanted {
            let Some((back, front)) = map.hb_addrs_of(id) else { continue };
            if self.peers.borrow().contains_key(&id) {
                continue;
            }
            let back = osd.hb_client.connect_to(OSD, back);
            let front =
                if front.is_empty() { back.clone() } else { osd.hb_client.connect_to(OSD, front) };
            let peer = Peer {
                front,
                back,
                last_front: now,
                last_back: now,
                since: now,
                back_times: RoundTrips::default(),
                front_times: RoundTrips::default(),
                updated: 0,
                clock: None,
            };
            self.peers.borrow_mut().insert(id, peer);
        }
    }

    fn peer_of(&self, con: &Connection) -> Option<OsdId> {
        let peers = self.peers.borrow();
        peers.iter().find(|(_, p)| p.front == *con || p.back == *con).map(|(id, _)| *id)
    }

    /// Round trips of the peers that have been pinged long enough to tell something.
    pub(crate) fn report(&self) -> BTreeMap<OsdId, PingTimes> {
        let peers = self.peers.borrow();
        let known = peers.iter().filter(|(_, p)| p.back_times.count > 0);
        known
            .map(|(id, p)| {
                let (back, front) = (&p.back_times, &p.front_times);
                let times = PingTimes {
                    last_update: p.updated,
                    back_pingtime: back.minutes(),
                    back_min: Minutes([back.min; 3]),
                    back_max: Minutes([back.max; 3]),
                    back_last: back.last,
                    front_pingtime: front.minutes(),
                    front_min: Minutes([front.min; 3]),
                    front_max: Minutes([front.max; 3]),
                    front_last: front.last,
                };
                (*id, times)
            })
            .collect()
    }

    /// A moment of a peer's clock by ours, or an earlier one. `up_from`: the process meant.
    pub(crate) fn moment_of(
        &self,
        osd: OsdId,
        up_from: Epoch,
        moment: Duration,
    ) -> Option<Duration> {
        let peers = self.peers.borrow();
        let clock = peers.get(&osd)?.clock.filter(|clock| clock.up_from == up_from)?;
        let here = i128::try_from(moment.as_nanos()).ok()? - clock.ahead_at_most;
        Some(Duration::from_nanos(u64::try_from(here.max(0)).ok()?))
    }

    /// Whom we ping.
    pub(crate) fn peer_ids(&self) -> Vec<OsdId> {
        self.peers.borrow().keys().copied().collect()
    }
}

/// Those of our PGs, and neighbours by number up to osd_heartbeat_min_peers.
fn wanted_peers(osd: &Osd, map: &OsdMap) -> BTreeSet<OsdId> {
    let mut wanted: BTreeSet<OsdId> =
        osd.pg_peers().into_iter().filter(|p| map.is_up(*p)).collect();
    let min = osd.config.uint("osd_heartbeat_min_peers") as usize;
    let up: Vec<OsdId> = map.up_osds().filter(|o| *o != osd.whoami).collect();
    let start = up.partition_point(|o| *o < osd.whoami);
    for i in 0..up.len() {
        if wanted.len() >= min {
            break;
        }
        wanted.insert(up[(start + i) % up.len()]);
    }
    wanted
}

fn span(d: Duration) -> SignedSpan {
    SignedSpan { sec: d.as_secs() as i32, nsec: d.subsec_nanos() as i32 }
}

fn nanos(span: SignedSpan) -> i128 {
    i128::from(span.sec) * 1_000_000_000 + i128::from(span.nsec)
}

impl Osd {
    /// See [`Heartbeats::moment_of`].
    pub(super) fn moment_of_peer(&self, osd: OsdId, moment: Duration) -> Option<Duration> {
        let up_from = self.current_map().up_from(osd);
        self.heartbeats.moment_of(osd, up_from, moment)
    }

    fn ping_message(&self, op: PingOp, padding_len: u32) -> MOSDPing {
        let map = self.current_map();
        let now = self.env.now();
        MOSDPing {
            fsid: map.fsid,
            map_epoch: map.epoch,
            op,
            ping_stamp: UTime::from_duration(self.env.wall_clock()),
            up_from: self.up_epoch.get(),
            mono_ping_stamp: span(now),
            mono_send_stamp: span(now),
            delta_ub: None,
            padding_len,
        }
    }

    fn send_pings(&self) {
        let padding = self.config.uint("osd_heartbeat_min_size").min(9000) as u32;
        let ping = self.ping_message(PingOp::Ping, padding.saturating_sub(150)).encode();
        let peers = self.heartbeats.peers.borrow();
        for peer in peers.values() {
            peer.back.send(ping.clone());
            if peer.front != peer.back {
                peer.front.send(ping.clone());
            }
        }
    }

    /// A ping, or the answer to ours.
    pub(super) fn on_ping(&self, con: &Connection, ping: MOSDPing, to_us_as_client: bool) {
        let map = self.current_map();
        if ping.fsid != map.fsid {
            return;
        }
        let from = i32::try_from(con.peer_name().num).unwrap_or(-1);
        match ping.op {
            PingOp::Ping => {
                if !self.is_active() || self.store_is_silent() {
                    return;
                }
                self.note_peer_epoch(from, ping.map_epoch);
                let reply = MOSDPing {
                    op: PingOp::PingReply,
                    map_epoch: map.epoch,
                    up_from: self.up_epoch.get(),
                    mono_send_stamp: span(self.env.now()),
                    ..ping
                };
                con.send(reply.encode());
                if map.epoch > 0 && map.is_down(from) && map.exists(from) {
                    // It does not know yet that it is marked down.
                    let died = self.ping_message(PingOp::YouDied, 0);
                    con.send(died.encode());
                }
            }
            PingOp::PingReply if to_us_as_client => {
                let Some(id) = self.heartbeats.peer_of(con) else { return };
                self.note_peer_epoch(id, ping.map_epoch);
                let now = self.env.now();
                let sent = nanos(ping.mono_ping_stamp);
                let took = (now.as_nanos() as i128 - sent) / 1000;
                let us = took.clamp(0, i128::from(u32::MAX)) as u32;
                let ahead_at_most = nanos(ping.mono_send_stamp) - sent;
                let interval = self.config.uint("osd_heartbeat_interval").max(1) as f64;
                let wall = self.env.wall_clock().as_secs() as u32;
                if let Some(peer) = self.heartbeats.peers.borrow_mut().get_mut(&id) {
                    peer.updated = wall;
                    peer.clock = Some(PeerClock { up_from: ping.up_from, ahead_at_most });
                    if peer.back == *con {
                        peer.last_back = now;
                        peer.back_times.add(us, interval);
                    }
                    if peer.front == *con {
                        peer.last_front = now;
                        peer.front_times.add(us, interval);
                    }
                }
                self.take_back_report(id);
            }
            PingOp::PingReply => {}
            PingOp::YouDied => self.want_maps(map.epoch + 1),
        }
    }

    /// The store has left something unanswered for so long that peers had better do without us: with no answers
    /// they have us marked down (osd_op_thread_timeout; `OSD::handle_osd_ping`, `src/osd/OSD.cc` at v16.2).
    fn store_is_silent(&self) -> bool {
        let timeout = self.config.uint("osd_op_thread_timeout");
        timeout > 0 && self.counters.unanswered.silent() >= Duration::from_secs(timeout)
    }

    fn take_back_report(&self, osd: OsdId) {
        let Some((_, addrs)) = self.heartbeats.reported.borrow_mut().remove(&osd) else { return };
        self.report_failure(osd, addrs, 0, Duration::ZERO);
    }

    fn report_failure(&self, osd: OsdId, addrs: AddrVec, flags: u8, failed_for: Duration) {
        let map = self.current_map();
        let message = MOSDFailure {
            paxos: PaxosHeader { version: u64::from(map.epoch), ..PaxosHeader::default() },
            fsid: map.fsid,
            target_osd: osd,
            target_addrs: addrs,
            epoch: map.epoch,
            flags,
            failed_for: failed_for.as_secs() as i32,
        };
        self.monc.send(message.encode());
    }

    /// Nobody listens where a peer should be: its process has ended.
    pub(super) fn on_refused(&self, con: &Connection) {
        if !self.is_active() || !self.config.bool("osd_fast_fail_on_connection_refused") {
            return;
        }
        let map = self.current_map();
        let addrs = con.peer_addrs();
        let peer = map.up_osds().find(|o| {
            *o != self.whoami
                && (map.cluster_addrs_of(*o) == Some(&addrs)
                    || map.addrs(*o) == Some(&addrs)
                    || map.hb_addrs_of(*o).is_some_and(|(b, f)| *b == addrs || *f == addrs))
        });
        let Some(osd) = peer else { return };
        let Some(client_addrs) = map.addrs(osd) else { return };
        tracing::info!("osd.{osd} refuses connections, reporting it failed");
        self.heartbeats.reported.borrow_mut().insert(osd, (self.env.now(), client_addrs.clone()));
        let flags = FAILURE_FAILED | FAILURE_IMMEDIATE;
        self.report_failure(osd, client_addrs.clone(), flags, Duration::ZERO);
    }

    /// A heartbeat connection broke: a new one shows whether anybody is there.
    pub(super) fn on_heartbeat_reset(&self, con: &Connection) {
        let Some(id) = self.heartbeats.peer_of(con) else { return };
        if !self.is_active() {
            return;
        }
        let addrs = con.peer_addrs();
        let fresh = self.hb_client.connect_to(OSD, &addrs);
        fresh.send(self.ping_message(PingOp::Ping, 0).encode());
        if let Some(peer) = self.heartbeats.peers.borrow_mut().get_mut(&id) {
            if peer.back == *con {
                peer.back = fresh.clone();
            }
            if peer.front == *con {
                peer.front = fresh;
            }
        }
    }

    fn check_silence(&self) {
        let now = self.env.now();
        let grace = Duration::from_secs(self.config.uint("osd_heartbeat_grace").max(1));
        let map = self.current_map();
        let silent: Vec<(OsdId, Duration)> = self
            .heartbeats
            .peers
            .borrow()
            .iter()
            .map(|(id, p)| (*id, p.last_back.min(p.last_front).max(p.since)))
            .filter(|(_, last)| now.saturating_sub(*last) > grace)
            .collect();
        for (osd, last) in silent {
            let Some(addrs) = map.addrs(osd).cloned() else { continue };
            self.heartbeats.reported.borrow_mut().entry(osd).or_insert((last, addrs.clone()));
            self.report_failure(osd, addrs, FAILURE_FAILED, now.saturating_sub(last));
        }
    }
}

/// Pings for ever.
pub(super) async fn run(osd: Rc<Osd>) {
    while !osd.is_stopping() {
        let base = osd.config.uint("osd_heartbeat_interval").max(1) as f64;
        // Not all at the same time.
        let jitter = 0.9 + 0.1 * (osd.env.random_u64() % 1000) as f64 / 1000.0;
        osd.env.sleep(Duration::from_secs_f64(base * jitter)).await;
        if osd.is_active() {
            let map = osd.current_map();
            osd.heartbeats.on_map(&osd, &map);
            osd.check_silence();
            osd.send_pings();
        }
    }
}
