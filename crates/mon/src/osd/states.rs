//! States and weights of OSDs in the pending epoch.
//!
//! An incremental does not say what state an OSD gets but which bits flip, after the weights of the
//! same epoch: a weight other than 0 makes an OSD exist, and neither new nor marked out by itself.
//! Whoever flips EXISTS where it is set makes the map forget the OSD (`OSDMap::apply_incremental`
//! in `src/osd/OSDMap.cc` at v16.2). To most commands of Ceph's monitor an OSD that is new in the
//! pending epoch does not exist yet; ours take further changes of it, so that the flips are counted
//! here and nowhere else.

use maps::osdmap::osd_state;
use types::{OsdId, Uuid};

use crate::core::MonCore;

/// What a weight other than 0 makes of a state, before bits flip.
fn weighed(state: u32) -> u32 {
    (state | osd_state::EXISTS) & !(osd_state::AUTOOUT | osd_state::NEW)
}

impl MonCore {
    /// The bits of an OSD's state in the next epoch.
    pub(crate) fn osd_state(&mut self, osd: OsdId) -> u32 {
        self.next_map().state(osd)
    }

    /// Gives an OSD a state; 0 makes the map forget it.
    pub(crate) fn set_osd_state(&mut self, osd: OsdId, state: u32) {
        let base = self.osd.map.state(osd);
        let inc = self.inc();
        let weight = inc.new_weight.get(&osd).copied().unwrap_or(0);
        let before = if weight == 0 { base } else { weighed(base) };
        let mut flips = before ^ state;
        if inc.new_up_client.contains_key(&osd) {
            // It comes up whatever flips.
            flips &= !(osd_state::EXISTS | osd_state::UP);
        }
        // An entry of 0 is an old way to say "down".
        if flips == 0 {
            inc.new_state.remove(&osd);
        } else {
            inc.new_state.insert(osd, flips);
        }
    }

    /// Gives an OSD a weight (16.16 fixed point; 0 is out).
    pub(crate) fn set_osd_weight(&mut self, osd: OsdId, weight: u32) {
        let state = self.osd_state(osd);
        self.inc().new_weight.insert(osd, weight);
        self.set_osd_state(osd, if weight == 0 { state } else { weighed(state) });
    }

    /// Takes an OSD that is down out of the map.
    pub(crate) fn remove_osd(&mut self, osd: OsdId) {
        let known = self.osd.map.exists(osd);
        let inc = self.inc();
        if known {
            inc.new_uuid.insert(osd, Uuid::ZERO);
        } else {
            inc.new_uuid.remove(&osd);
            inc.new_weight.remove(&osd);
        }
        self.set_osd_state(osd, 0);
        self.remove_osd_metadata(osd);
    }

    /// Whether an OSD is taken out of the map by the pending epoch: its number is free after that.
    pub(crate) fn is_being_removed(&mut self, osd: OsdId) -> bool {
        self.osd.map.exists(osd) && !self.next_map().exists(osd)
    }
}
