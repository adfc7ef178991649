//! What a journal's entries say: changes of content and of the image as a whole
//! (`src/librbd/journal/Types.cc` at v16.2).
//!
//! ```text
//! event: envelope(5,1) | u32 type | fields          then: envelope(1,1) | utime when
//! an operation's fields begin with u64 tid; 3 (finished) names the tid twice, then i32 result
//! ```

use bstr::BString;
use bytes::Bytes;
use cls::rbd::snapshot::SnapshotNamespace;
use denc::{Denc, Error, Reader, Writer};
use types::{SnapId, UTime};

/// Version we write.
const VERSION: u8 = 5;
/// Bytes of a write's event beside its data.
pub(crate) const WRITE_OVERHEAD: usize = 6 + 4 + 16 + 4 + METADATA_LEN;
const METADATA_LEN: usize = 6 + 8;

mod kind {
    pub(super) const DISCARD: u32 = 0;
    pub(super) const WRITE: u32 = 1;
    pub(super) const FLUSH: u32 = 2;
    pub(super) const OP_FINISH: u32 = 3;
    pub(super) const SNAP_CREATE: u32 = 4;
    pub(super) const SNAP_REMOVE: u32 = 5;
    pub(super) const SNAP_RENAME: u32 = 6;
    pub(super) const SNAP_PROTECT: u32 = 7;
    pub(super) const SNAP_UNPROTECT: u32 = 8;
    pub(super) const SNAP_ROLLBACK: u32 = 9;
    pub(super) const RENAME: u32 = 10;
    pub(super) const RESIZE: u32 = 11;
    pub(super) const FLATTEN: u32 = 12;
    pub(super) const DEMOTE_PROMOTE: u32 = 13;
    pub(super) const SNAP_LIMIT: u32 = 14;
    pub(super) const UPDATE_FEATURES: u32 = 15;
    pub(super) const METADATA_SET: u32 = 16;
    pub(super) const METADATA_REMOVE: u32 = 17;
    pub(super) const WRITE_SAME: u32 = 18;
    pub(super) const COMPARE_AND_WRITE: u32 = 19;
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// A range reads as zeros; parts below `granularity` bytes are left alone.
    Discard {
        offset: u64,
        len: u64,
        granularity: u32,
    },
    Write {
        offset: u64,
        data: Bytes,
    },
    /// A pattern over a range.
    WriteSame {
        offset: u64,
        len: u64,
        pattern: Bytes,
    },
    /// Written only where the image holds `expected`.
    CompareAndWrite {
        offset: u64,
        expected: Bytes,
        data: Bytes,
    },
    Flush,
    /// A change of the whole begins.
    Op {
        tid: u64,
        change: OpChange,
    },
    /// It has ended.
    OpFinish {
        tid: u64,
        result: i32,
    },
    /// The image's role in mirroring has changed.
    DemotePromote,
    /// Of a newer release; skipped, as librbd does.
    Unknown(u32),
}

/// A change of the image as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OpChange {
    SnapCreate { name: BString, namespace: SnapshotNamespace },
    SnapRemove { name: BString, namespace: SnapshotNamespace },
    SnapRename { id: SnapId, from: BString, to: BString },
    SnapProtect { name: BString, namespace: SnapshotNamespace },
    SnapUnprotect { name: BString, namespace: SnapshotNamespace },
    SnapRollback { name: BString, namespace: SnapshotNamespace },
    SnapLimit { limit: u64 },
    Rename { name: BString },
    Resize { size: u64 },
    Flatten,
    UpdateFeatures { features: u64, enabled: bool },
    MetadataSet { key: BString, value: BString },
    MetadataRemove { key: BString },
}

impl OpChange {
    /// Whether it must be done where it stands between the writes, not where it is said to have
    /// ended.
    pub(crate) fn takes_place_at_once(&self) -> bool {
        matches!(
            self,
            OpChange::SnapCreate { .. } | OpChange::Resize { .. } | OpChange::UpdateFeatures { .. }
        )
    }

    fn kind(&self) -> u32 {
        match self {
            OpChange::SnapCreate { .. } => kind::SNAP_CREATE,
            OpChange::SnapRemove { .. } => kind::SNAP_REMOVE,
            OpChange::SnapRename { .. } => kind::SNAP_RENAME,
            OpChange::SnapProtect { .. } => kind::SNAP_PROTECT,
            OpChange::SnapUnprotect { .. } => kind::SNAP_UNPROTECT,
            OpChange::SnapRollback { .. } => kind::SNAP_ROLLBACK,
            OpChange::SnapLimit { .. } => kind::SNAP_LIMIT,
            OpChange::Rename { .. } => kind::RENAME,
            OpChange::Resize { .. } => kind::RESIZE,
            OpChange::Flatten => kind::FLATTEN,
            OpChange::UpdateFeatures { .. } => kind::UPDATE_FEATURES,
            OpChange::MetadataSet { .. } => kind::METADATA_SET,
            OpChange::MetadataRemove { .. } => kind::METADATA_REMOVE,
        }
    }

    fn encode(&self, w: &mut Writer) {
        match self {
            OpChange::SnapCreate { name, namespace }
            | OpChange::SnapRemove { name, namespace }
            | OpChange::SnapProtect { name, namespace }
            | OpChange::SnapUnprotect { name, namespace }
            | OpChange::SnapRollback { name, namespace } => {
                w.put(name);
                w.put(namespace);
            }
            OpChange::SnapRename { id, from, to } => {
                w.put(to);
                w.u64(*id);
                w.put(from);
            }
            OpChange::SnapLimit { limit } => w.u64(*limit),
            OpChange::Rename { name } => w.put(name),
            OpChange::Resize { size } => w.u64(*size),
            OpChange::Flatten => {}
            OpChange::UpdateFeatures { features, enabled } => {
                w.u64(*features);
                w.bool(*enabled);
            }
            OpChange::MetadataSet { key, value } => {
                w.put(key);
                w.put(value);
            }
            OpChange::MetadataRemove { key } => w.put(key),
        }
    }

    fn decode(of: u32, version: u8, r: &mut Reader<'_>) -> Result<Option<OpChange>, Error> {
        let snap = |r: &mut Reader<'_>| -> Result<(BString, SnapshotNamespace), Error> {
            let name = r.get()?;
            // Version 3 has it for creations only, at the same place.
            let has = version >= 4 || (version == 3 && of == kind::SNAP_CREATE);
            Ok((name, if has { r.get()? } else { SnapshotNamespace::User }))
        };
        Ok(Some(match of {
            kind::SNAP_CREATE => {
                let (name, namespace) = snap(r)?;
                OpChange::SnapCreate { name, namespace }
            }
            kind::SNAP_REMOVE => {
                let (name, namespace) = snap(r)?;
                OpChange::SnapRemove { name, namespace }
            }
            kind::SNAP_PROTECT => {
                let (name, namespace) = snap(r)?;
                OpChange::SnapProtect { name, namespace }
            }
            kind::SNAP_UNPROTECT => {
                let (name, namespace) = snap(r)?;
                OpChange::SnapUnprotect { name, namespace }
            }
            kind::SNAP_ROLLBACK => {
                let (name, namespace) = snap(r)?;
                OpChange::SnapRollback { name, namespace }
            }
            kind::SNAP_RENAME => {
                let (to, id) = (r.get()?, r.u64()?);
                let from = if version >= 2 { r.get()? } else { BString::default() };
                OpChange::SnapRename { id, from, to }
            }
            kind::SNAP_LIMIT => OpChange::SnapLimit { limit: r.u64()? },
            kind::RENAME => OpChange::Rename { name: r.get()? },
            kind::RESIZE => OpChange::Resize { size: r.u64()? },
            kind::FLATTEN => OpChange::Flatten,
            kind::UPDATE_FEATURES => {
                OpChange::UpdateFeatures { features: r.u64()?, enabled: r.bool()? }
            }
            kind::METADATA_SET => OpChange::MetadataSet { key: r.get()?, value: r.get()? },
            kind::METADATA_REMOVE => OpChange::MetadataRemove { key: r.get()? },
            _ => return Ok(None),
        }))
    }
}

/// An event and when it was written. Wire: librbd::journal::EventEntry v5.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EventEntry {
    pub(crate) event: Event,
    pub(crate) when: UTime,
}

impl Denc for EventEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(VERSION, 1, |w| match &self.event {
            Event::Discard { offset, len, granularity } => {
                w.u32(kind::DISCARD);
                w.u64(*offset);
                w.u64(*len);
                w.bool(*granularity > 0);
                w.u32(*granularity);
            }
            Event::Write { offset, data } => {
                w.u32(kind::WRITE);
                w.u64(*offset);
                w.u64(data.len() as u64);
                w.blob(data);
            }
            Event::WriteSame { offset, len, pattern } => {
                w.u32(kind::WRITE_SAME);
                w.u64(*offset);
                w.u64(*len);
                w.blob(pattern);
            }
            Event::CompareAndWrite { offset, expected, data } => {
                w.u32(kind::COMPARE_AND_WRITE);
                w.u64(*offset);
                w.u64(data.len() as u64);
                w.blob(expected);
                w.blob(data);
            }
            Event::Flush => w.u32(kind::FLUSH),
            Event::Op { tid, change } => {
                w.u32(change.kind());
                w.u64(*tid);
                change.encode(w);
            }
            Event::OpFinish { tid, result } => {
                w.u32(kind::OP_FINISH);
                w.u64(*tid);
                w.u64(*tid);
                w.i32(*result);
            }
            Event::DemotePromote => w.u32(kind::DEMOTE_PROMOTE),
            Event::Unknown(of) => w.u32(*of),
        });
        w.envelope(1, 1, |w| w.put(&self.when));
    }

    fn decode(r: &mut Reader<'_>) -> Result<EventEntry, Error> {
        let (event, version) = r.envelope("EventEntry", VERSION, 1, |r, version| {
            let of = r.u32()?;
            let event = match of {
                kind::DISCARD => {
                    let (offset, len) = (r.u64()?, r.u64()?);
                    let skips = version >= 4 && r.bool()?;
                    let granularity = match version {
                        5.. => r.u32()?,
                        _ if skips => u32::MAX,
                        _ => 0,
                    };
                    Event::Discard { offset, len, granularity }
                }
                // What counts is the data; its length stands twice.
                kind::WRITE => {
                    let (offset, _) = (r.u64()?, r.u64()?);
                    Event::Write { offset, data: r.blob()? }
                }
                kind::WRITE_SAME => {
                    Event::WriteSame { offset: r.u64()?, len: r.u64()?, pattern: r.blob()? }
                }
                kind::COMPARE_AND_WRITE => {
                    let (offset, _) = (r.u64()?, r.u64()?);
                    Event::CompareAndWrite { offset, expected: r.blob()?, data: r.blob()? }
                }
                kind::FLUSH => Event::Flush,
                kind::OP_FINISH => {
                    let (tid, _) = (r.u64()?, r.u64()?);
                    Event::OpFinish { tid, result: r.i32()? }
                }
                kind::DEMOTE_PROMOTE => Event::DemotePromote,
                of if of > kind::COMPARE_AND_WRITE => Event::Unknown(of),
                of => {
                    let tid = r.u64()?;
                    match OpChange::decode(of, version, r)? {
                        Some(change) => Event::Op { tid, change },
                        None => Event::Unknown(of),
                    }
                }
            };
            Ok((event, version))
        })?;
        let when = match version {
            4.. => r.envelope("EventEntry metadata", 1, 1, |r, _| r.get())?,
            _ => UTime::ZERO,
        };
        Ok(EventEntry { event, when })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(event: Event) {
        let entry = EventEntry { event, when: UTime { sec: 7, nsec: 8 } };
        assert_eq!(EventEntry::from_bytes(&entry.to_bytes()).unwrap(), entry);
    }

    #[test]
    fn events_come_back_as_they_were_written() {
        let user = SnapshotNamespace::User;
        let data = Bytes::from_static(b"data");
        again(Event::Discard { offset: 1, len: 2, granularity: 0 });
        again(Event::Write { offset: 3, data: data.clone() });
        again(Event::WriteSame { offset: 3, len: 8, pattern: data.clone() });
        again(Event::CompareAndWrite { offset: 3, expected: data.clone(), data });
        again(Event::Flush);
        again(Event::OpFinish { tid: 4, result: -2 });
        again(Event::DemotePromote);
        for change in [
            OpChange::SnapCreate { name: "s".into(), namespace: user.clone() },
            OpChange::SnapRemove { name: "s".into(), namespace: user.clone() },
            OpChange::SnapProtect { name: "s".into(), namespace: user.clone() },
            OpChange::SnapUnprotect { name: "s".into(), namespace: user.clone() },
            OpChange::SnapRollback { name: "s".into(), namespace: user },
            OpChange::SnapRename { id: 9, from: "s".into(), to: "t".into() },
            OpChange::SnapLimit { limit: 5 },
            OpChange::Rename { name: "image".into() },
            OpChange::Resize { size: 1 << 40 },
            OpChange::Flatten,
            OpChange::UpdateFeatures { features: 64, enabled: true },
            OpChange::MetadataSet { key: "k".into(), value: "v".into() },
            OpChange::MetadataRemove { key: "k".into() },
        ] {
            again(Event::Op { tid: 11, change });
        }
    }

    #[test]
    fn a_write_takes_the_bytes_it_is_said_to_take() {
        let data = Bytes::from_static(b"four");
        let event = Event::Write { offset: 0, data: data.clone() };
        let entry = EventEntry { event, when: UTime::ZERO };
        assert_eq!(entry.to_bytes().len(), WRITE_OVERHEAD + data.len());
    }
}
