//! What a watcher or notifier is told (44).

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::{BufferList, MsgHeader};

use crate::Message;

/// `opcode` of [`MWatchNotify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotifyOpcode {
    /// To a watcher: a notify came.
    Notify,
    /// To the notifier: all have answered or timed out.
    Complete,
    /// To a watcher: the watch is gone.
    Disconnect,
}

impl Denc for NotifyOpcode {
    fn encode(&self, w: &mut Writer) {
        w.u8(match self {
            NotifyOpcode::Notify => 1,
            NotifyOpcode::Complete => 2,
            NotifyOpcode::Disconnect => 3,
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        match r.u8()? {
            1 => Ok(NotifyOpcode::Notify),
            2 => Ok(NotifyOpcode::Complete),
            3 => Ok(NotifyOpcode::Disconnect),
            other => Err(Error::Invalid { what: "notify opcode", value: other.into() }),
        }
    }
}

/// Type 44.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MWatchNotify {
    /// What happened.
    pub opcode: NotifyOpcode,
    /// The receiver's cookie: of its watch, or of its notify.
    pub cookie: u64,
    /// The object's version (0 in notifies).
    pub version: u64,
    /// The notify.
    pub notify_id: u64,
    /// The notifier's payload.
    pub payload: Bytes,
    /// 0 or a negative errno (timed out).
    pub return_code: i32,
    /// Who notified.
    pub notifier_gid: u64,
    /// To the notifier: the answers and who did not answer, encoded.
    pub replies: Bytes,
}

impl Message for MWatchNotify {
    const TYPE: u16 = 44;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;
    fn encode_front(&self, w: &mut Writer) {
        w.u8(1); // message version of old
        w.put(&self.opcode);
        w.u64(self.cookie);
        w.u64(self.version);
        w.u64(self.notify_id);
        w.blob(&self.payload);
        w.i32(self.return_code);
        w.u64(self.notifier_gid);
    }
    fn payload(&self) -> BufferList {
        self.replies.clone().into()
    }
    fn decode_front(r: &mut Reader<'_>, header: &MsgHeader, data: &Bytes) -> Result<Self, Error> {
        let old_version = r.u8()?;
        Ok(MWatchNotify {
            opcode: r.get()?,
            cookie: r.u64()?,
            version: r.u64()?,
            notify_id: r.u64()?,
            payload: if old_version >= 1 { r.blob()? } else { Bytes::new() },
            return_code: if header.version >= 2 { r.i32()? } else { 0 },
            notifier_gid: if header.version >= 3 { r.u64()? } else { 0 },
            replies: data.clone(),
        })
    }
}
