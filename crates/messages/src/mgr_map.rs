//! The managers (0x704) and the services that report to them (0x707), from the monitors.

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use maps::{MgrMap, ServiceMap};
use types::MsgHeader;

use crate::Message;

/// Type 0x704.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MMgrMap {
    /// The map, bare.
    pub map: MgrMap,
}

impl Message for MMgrMap {
    const TYPE: u16 = 0x704;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.map);
    }
    fn decode_front(r: &mut Reader<'_>, _: &MsgHeader, _: &Bytes) -> Result<Self, Error> {
        Ok(MMgrMap { map: r.get()? })
    }
}

/// Type 0x707.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct MServiceMap {
    /// The map, bare.
    pub service_map: ServiceMap,
}
message!(MServiceMap, 0x707, 1 / 1);
