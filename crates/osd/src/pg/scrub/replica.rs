//! Scrub's messages: slots, scans for the primary, maps for us.

use messages::{MOSDRepScrub, MOSDRepScrubMap, MOSDScrubReserve, Message, ScrubReserveOp};
use types::SpgId;

use super::scan::Chunk;
use crate::pg::Pg;

impl Pg {
    /// A word about slots.
    pub fn on_scrub_reserve(&self, m: &MOSDScrubReserve) {
        let (since, primary) = {
            let core = self.core.borrow();
            (core.info.history.same_interval_since, core.primary())
        };
        let from_primary = matches!(m.kind, ScrubReserveOp::Request | ScrubReserveOp::Release);
        if m.map_epoch < since || (from_primary && primary != Some(m.from)) {
            return;
        }
        if from_primary {
            self.scrub.session.set(self.scrub.session.get() + 1);
        }
        match m.kind {
            ScrubReserveOp::Request => {
                let granted = self.hold_scrub_slot();
                let answer = if granted { ScrubReserveOp::Grant } else { ScrubReserveOp::Reject };
                self.send_reserve(m.from, answer);
            }
            ScrubReserveOp::Release => {
                self.scrub.held.borrow_mut().take();
            }
            ScrubReserveOp::Grant | ScrubReserveOp::Reject => {
                let waiting = self.scrub.grants.borrow_mut().remove(&m.from);
                if let Some(answer) = waiting {
                    answer.send(m.kind == ScrubReserveOp::Grant);
                }
            }
        }
    }

    /// A slot for the primary; none while this OSD recovers, whatever the scrub is for (`handle_scrub_reserve_request`).
    fn hold_scrub_slot(&self) -> bool {
        let mut held = self.scrub.held.borrow_mut();
        let settings = self.host.scrub_settings();
        if held.is_none() && !self.recovery_goes_first(&settings) {
            *held = self.host.scrub_slots().try_take(settings.slots, true);
        }
        held.is_some()
    }

    /// The primary wants to know what we have of a range. All its writes before have come before.
    pub fn on_rep_scrub(&self, m: MOSDRepScrub) {
        let (since, primary) = {
            let core = self.core.borrow();
            (core.info.history.same_interval_since, core.primary())
        };
        let Some(primary) = primary else { return };
        if m.map_epoch < since {
            return;
        }
        let (pg, session) = (self.rc(), self.scrub_session());
        let chunk = Chunk { start: m.start, end: m.end };
        self.host.env().go(async move {
            let settings = pg.host.scrub_settings();
            let scanned = pg.scan(&chunk, m.deep, &settings).await;
            if session != pg.scrub_session() {
                return;
            }
            let scrub_map = match scanned {
                Ok(map) => map,
                Err(e) => return pg.host.store_failed(&e),
            };
            pg.check_snap_mapper(&scrub_map).await;
            if session != pg.scrub_session() {
                return;
            }
            let from = pg.core.borrow().whoami;
            let reply = MOSDRepScrubMap {
                pgid: SpgId { pgid: pg.pgid.pgid, shard: primary.shard },
                map_epoch: m.min_epoch,
                from,
                preempted: false,
                scrub_map,
            };
            pg.host.send_osd(primary.osd, Message::encode(&reply));
        });
    }

    /// What a replica has.
    pub fn on_rep_scrub_map(&self, m: MOSDRepScrubMap) {
        if m.map_epoch < self.core.borrow().info.history.same_interval_since {
            return;
        }
        let waiting = self.scrub.maps.borrow_mut().remove(&m.from);
        if let Some(answer) = waiting {
            answer.send(m.scrub_map);
        }
    }
}
