//! A sign of life (2). A monitor's answer carries a text (`ceph ping`).

use bytes::Bytes;
use denc::{Error, Reader, Writer};
use types::MsgHeader;

use crate::Message;

/// Type 2.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MPing {
    /// JSON of the monitor's state in its answer, absent otherwise.
    pub text: Option<String>,
}

impl Message for MPing {
    const TYPE: u16 = 2;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, w: &mut Writer) {
        if let Some(text) = &self.text {
            w.put(text);
        }
    }
    fn decode_front(r: &mut Reader<'_>, _: &MsgHeader, _: &Bytes) -> Result<Self, Error> {
        let text = if r.remaining() > 0 { Some(r.get()?) } else { None };
        Ok(MPing { text })
    }
}
