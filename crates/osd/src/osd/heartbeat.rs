//! Who still answers: pings to other OSDs on both of their heartbeat addresses, and what follows
//! from silence (`src/osd/OSD.cc` at v16.2: heartbeat, handle_osd_ping, heartbeat_check).
//!
//! A core without I/O: the OSD's tasks send the pings it asks for, hand it the answers, and carry
//! its reports to the monitor.
//!
//! ```text
//! peer: asked --reply on front and back--> healthy
//!       asked --grace over--> reported failed --reply--> reported alive --> healthy
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use maps::OsdMap;
use types::OsdId;

/// Pings of one peer that have no answer yet, at most; older ones are forgotten first. At one
/// ping a second this is more than any grace.
const OPEN_PINGS_MAX: usize = 256;

/// Which of a peer's two heartbeat addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The cluster network.
    Back,
    /// The public network.
    Front,
}

/// What there is to tell the monitor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// Silent for this long.
    Failed {
        /// Who.
        osd: OsdId,
        /// Since when it has been silent, as a span.
        failed_for: Duration,
        /// Its port refuses connections: nobody need wait for more silence.
        immediate: bool,
    },
    /// It was reported and answers again.
    Alive {
        /// Who.
        osd: OsdId,
    },
}

#[derive(Debug, Default)]
struct Peer {
    /// Open pings by when they were sent, with the sides that have not answered.
    open: BTreeMap<Duration, BTreeSet<Side>>,
    first_sent: Option<Duration>,
    last_heard: [Option<Duration>; 2],
    /// When it was reported as failed.
    reported: Option<Duration>,
}

impl Peer {
    fn heard(&mut self, side: Side, sent: Duration, now: Duration) {
        self.last_heard[side as usize] = Some(now);
        // An answer covers everything asked before it.
        for sides in self.open.range_mut(..=sent).map(|(_, sides)| sides) {
            sides.remove(&side);
        }
        self.open.retain(|_, sides| !sides.is_empty());
    }

    fn silent_since(&self) -> Option<Duration> {
        self.open.keys().next().copied()
    }
}

/// The peers of one OSD.
#[derive(Debug, Default)]
pub struct Heartbeats {
    peers: BTreeMap<OsdId, Peer>,
}

impl Heartbeats {
    /// Whom to ping: the OSDs of our PGs, our neighbours by number, and others until there are
    /// `min_peers` (osd_heartbeat_min_peers).
    pub fn choose(
        map: &OsdMap,
        whoami: OsdId,
        of_pgs: &BTreeSet<OsdId>,
        min_peers: usize,
    ) -> BTreeSet<OsdId> {
        let up: Vec<OsdId> = (0..map.max_osd).filter(|o| *o != whoami && map.is_up(*o)).collect();
        let mut want: BTreeSet<OsdId> =
            of_pgs.iter().copied().filter(|o| up.binary_search(o).is_ok()).collect();
        let above = up.partition_point(|o| *o < whoami);
        let by_distance = (0..up.len()).map(|step| up[(above + step) % up.len()]);
        want.extend(by_distance.clone().take(1));
        want.extend(up[..above].last().or(up.last()));
        for osd in by_distance {
            if want.len() >= min_peers {
                break;
            }
            want.insert(osd);
        }
        want
    }

    /// Replaces the set of peers; what is known of those that stay is kept.
    pub fn set_peers(&mut self, want: &BTreeSet<OsdId>) {
        self.peers.retain(|osd, _| want.contains(osd));
        for osd in want {
            self.peers.entry(*osd).or_default();
        }
    }

    /// A peer has (re)started: its past does not count.
    pub fn forget(&mut self, osd: OsdId) {
        if let Some(peer) = self.peers.get_mut(&osd) {
            *peer = Peer::default();
        }
    }

    /// The peers to ping now, on both sides, with `now` as the stamp.
    pub fn ping(&mut self, now: Duration) -> Vec<OsdId> {
        for peer in self.peers.values_mut() {
            peer.first_sent.get_or_insert(now);
            peer.open.insert(now, [Side::Back, Side::Front].into());
            while peer.open.len() > OPEN_PINGS_MAX {
                peer.open.pop_first();
            }
        }
        self.peers.keys().copied().collect()
    }

    /// An answer to the ping sent at `sent`. Something to report if it was given up.
    pub fn on_reply(
        &mut self,
        osd: OsdId,
        side: Side,
        sent: Duration,
        now: Duration,
    ) -> Option<Report> {
        let peer = self.peers.get_mut(&osd)?;
        peer.heard(side, sent, now);
        if peer.reported.is_some() && peer.open.is_empty() {
            peer.reported = None;
            return Some(Report::Alive { osd });
        }
        None
    }

    /// Nobody listens at one of the peer's addresses: it is gone, as far as its host can tell.
    pub fn on_refused(&mut self, osd: OsdId, now: Duration) -> Option<Report> {
        let peer = self.peers.get_mut(&osd)?;
        if peer.reported.is_some() {
            return None;
        }
        peer.reported = Some(now);
        let failed_for = peer.silent_since().map_or(Duration::ZERO, |since| now - since.min(now));
        Some(Report::Failed { osd, failed_for, immediate: true })
    }

    /// Who has been silent for longer than `grace`. Reported again every `grace` while it lasts.
    pub fn check(&mut self, now: Duration, grace: Duration) -> Vec<Report> {
        let mut reports = Vec::new();
        for (osd, peer) in &mut self.peers {
            let Some(since) = peer.silent_since() else { continue };
            let silent = now.saturating_sub(since);
            let again = peer.reported.is_none_or(|at| now.saturating_sub(at) >= grace);
            if silent > grace && again {
                peer.reported = Some(now);
                reports.push(Report::Failed { osd: *osd, failed_for: silent, immediate: false });
            }
        }
        reports
    }

    /// The peers, in order.
    pub fn peers(&self) -> Vec<OsdId> {
        self.peers.keys().copied().collect()
    }

    /// When the peer last answered on both sides, for leases and `dump`.
    pub fn last_heard(&self, osd: OsdId) -> Option<Duration> {
        let [back, front] = self.peers.get(&osd)?.last_heard;
        Some(back?.min(front?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn with_peer() -> Heartbeats {
        let mut h = Heartbeats::default();
        h.set_peers(&[1].into());
        h
    }

    #[test]
    fn a_peer_that_answers_is_never_reported() {
        let mut h = with_peer();
        for t in 0..100 {
            assert_eq!(h.ping(s(t)), [1]);
            assert_eq!(h.on_reply(1, Side::Back, s(t), s(t)), None);
            assert_eq!(h.on_reply(1, Side::Front, s(t), s(t)), None);
            assert!(h.check(s(t), s(20)).is_empty());
        }
    }

    #[test]
    fn one_silent_side_is_enough_to_be_reported() {
        let mut h = with_peer();
        for t in 0..=20 {
            h.ping(s(t));
            h.on_reply(1, Side::Back, s(t), s(t));
            assert!(h.check(s(t), s(20)).is_empty());
        }
        let report = Report::Failed { osd: 1, failed_for: s(21), immediate: false };
        assert_eq!(h.check(s(21), s(20)), [report]);
        assert!(h.check(s(22), s(20)).is_empty(), "once a grace");
    }

    #[test]
    fn a_peer_that_comes_back_is_reported_alive_once() {
        let mut h = with_peer();
        h.ping(s(0));
        assert_eq!(h.check(s(21), s(20)).len(), 1);
        assert_eq!(h.on_reply(1, Side::Back, s(0), s(22)), None);
        assert_eq!(h.on_reply(1, Side::Front, s(0), s(22)), Some(Report::Alive { osd: 1 }));
        assert_eq!(h.on_reply(1, Side::Front, s(0), s(23)), None);
    }

    #[test]
    fn a_late_answer_covers_earlier_pings_but_not_later_ones() {
        let mut h = with_peer();
        (0..5).for_each(|t| {
            h.ping(s(t));
        });
        h.on_reply(1, Side::Back, s(3), s(5));
        h.on_reply(1, Side::Front, s(3), s(5));
        assert_eq!(h.check(s(24), s(20)), []);
        assert_eq!(h.check(s(25), s(20)).len(), 1);
    }

    #[test]
    fn a_refused_connection_is_reported_at_once_and_once() {
        let mut h = with_peer();
        h.ping(s(1));
        let report = Report::Failed { osd: 1, failed_for: s(1), immediate: true };
        assert_eq!(h.on_refused(1, s(2)), Some(report));
        assert_eq!(h.on_refused(1, s(2)), None);
        assert_eq!(h.on_refused(7, s(2)), None);
    }
}
