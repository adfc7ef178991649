//! Following the OSD map: full maps and steps in, each next epoch out. Steps are checked by the
//! checksums they carry; what does not add up is fetched whole.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use denc::Denc;
use maps::{Incremental, OsdMap};
use messages::MOSDMap;
use types::Epoch;

use crate::MonClient;

/// The newest OSD map a client or daemon has.
pub struct OsdMaps {
    current: RefCell<Rc<OsdMap>>,
    /// A whole map is needed: a step did not fit.
    need_full: Cell<bool>,
    /// The last whole map did not decode.
    undecoded: Cell<bool>,
}

impl Default for OsdMaps {
    fn default() -> OsdMaps {
        OsdMaps::new()
    }
}

impl OsdMaps {
    /// No map yet: epoch 0.
    pub fn new() -> OsdMaps {
        OsdMaps {
            current: RefCell::default(),
            need_full: Cell::new(false),
            undecoded: Cell::new(false),
        }
    }

    /// The newest map; one of epoch 0 before the first has come.
    pub fn current(&self) -> Rc<OsdMap> {
        self.current.borrow().clone()
    }

    /// Its epoch.
    pub fn epoch(&self) -> Epoch {
        self.current.borrow().epoch
    }

    /// Takes what is new in a message and returns the maps it leads through, in order. When
    /// something between is missing the monitors are asked for it (`once`: for one delivery).
    pub fn take(&self, monc: &MonClient, message: &MOSDMap, once: bool) -> Vec<Rc<OsdMap>> {
        if message.fsid != monc.fsid() && !monc.fsid().is_zero() {
            tracing::warn!("an OSD map of another cluster, {}", message.fsid);
            return Vec::new();
        }
        let mut passed = Vec::new();
        let newest = message.maps.keys().chain(message.incremental_maps.keys()).max().copied();
        let newest = newest.unwrap_or(0);
        if self.epoch() == 0 || self.need_full.get() {
            // The newest whole map, then steps from there.
            if let Some((epoch, bytes)) = message.maps.last_key_value() {
                self.take_full(*epoch, bytes, &mut passed);
            }
        }
        while self.epoch() != 0 && self.epoch() < newest {
            let next = self.epoch() + 1;
            if let Some(bytes) = message.incremental_maps.get(&next) {
                if !self.take_step(next, bytes, &mut passed) {
                    match message.maps.get(&next) {
                        Some(bytes) => self.take_full(next, bytes, &mut passed),
                        None => self.need_full.set(true),
                    }
                }
            } else if let Some(bytes) = message.maps.get(&next) {
                self.take_full(next, bytes, &mut passed);
            } else if let Some((epoch, bytes)) = message.maps.range(next..).next() {
                // The steps between are gone from the monitors.
                if message.oldest_map > next {
                    self.take_full(*epoch, bytes, &mut passed);
                } else {
                    break;
                }
            } else {
                break;
            }
            if self.epoch() < next {
                break;
            }
        }
        let epoch = self.epoch();
        if epoch != 0 && !self.need_full.get() {
            monc.got("osdmap", epoch.into());
        }
        if (epoch == 0 || self.need_full.get()) && self.undecoded.get() {
            // A monitor gives it at once, as often as it is asked.
            monc.subscribe_later("osdmap", 0, once);
        } else if epoch == 0 || self.need_full.get() {
            monc.subscribe_again("osdmap", 0, once);
        } else if epoch < newest {
            let start = if message.oldest_map > epoch + 1 { 0 } else { epoch + 1 };
            if start == 0 {
                self.need_full.set(true);
            }
            monc.subscribe_again("osdmap", start.into(), once);
        } else if once && epoch < message.newest_map {
            // One delivery holds so many maps and no more.
            monc.subscribe_again("osdmap", (epoch + 1).into(), once);
        }
        passed
    }

    fn take_full(&self, epoch: Epoch, bytes: &bytes::Bytes, passed: &mut Vec<Rc<OsdMap>>) {
        match OsdMap::from_bytes(bytes) {
            Ok(map) if map.epoch == epoch && epoch >= self.epoch() => {
                self.need_full.set(false);
                self.undecoded.set(false);
                let map = Rc::new(map);
                *self.current.borrow_mut() = map.clone();
                passed.push(map);
            }
            Ok(map) => tracing::warn!("OSD map {} came as {epoch}", map.epoch),
            Err(error) => {
                self.need_full.set(true);
                self.undecoded.set(true);
                tracing::warn!("OSD map {epoch} does not decode: {error}");
            }
        }
    }

    fn take_step(&self, epoch: Epoch, bytes: &bytes::Bytes, passed: &mut Vec<Rc<OsdMap>>) -> bool {
        let step = match Incremental::from_bytes(bytes) {
            Ok(step) => step,
            Err(error) => {
                tracing::warn!("OSD map step {epoch} does not decode: {error}");
                return false;
            }
        };
        let mut map = OsdMap::clone(&self.current.borrow());
        if let Err(error) = map.apply(&step) {
            tracing::warn!("OSD map step {epoch} does not apply: {error}");
            return false;
        }
        if step.have_crc {
            let crc = map.encode_with_crc().1;
            if crc != step.full_crc {
                tracing::warn!("OSD map {epoch} has crc {crc:#x}, not {:#x}", step.full_crc);
                return false;
            }
        }
        let map = Rc::new(map);
        *self.current.borrow_mut() = map.clone();
        passed.push(map);
        true
    }
}
