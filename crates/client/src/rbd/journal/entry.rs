//! How entries lie in a journal's objects (`src/journal/Entry.cc`, `ObjectPlayer.cc` at v16.2),
//! and the few structs that stand in its header.
//!
//! ```text
//! entry: u64 0x3141592653589793 | u8 1 | u64 entry tid | u64 tag tid | blob | u32 crc of all before
//! ```
//! Entries follow one another; between them there may be zeros, which the class puts where the
//! store wants whole blocks.

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::crc::crc32c;

const PREAMBLE: u64 = 0x3141_5926_5358_9793;
const VERSION: u8 = 1;
/// Bytes of an entry before its data.
const HEAD: usize = 8 + 1 + 8 + 8 + 4;
/// Bytes of an entry beside its data.
pub(crate) const OVERHEAD: usize = HEAD + 4;

/// One entry. Wire: journal::Entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) tag: u64,
    pub(crate) tid: u64,
    pub(crate) data: Bytes,
}

impl Denc for Entry {
    fn encode(&self, w: &mut Writer) {
        let start = w.len();
        w.u64(PREAMBLE);
        w.u8(VERSION);
        w.u64(self.tid);
        w.u64(self.tag);
        w.blob(&self.data);
        let crc = crc32c(0, &w.as_slice()[start..]);
        w.u32(crc);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Entry, Error> {
        match r.u64()? {
            PREAMBLE => {}
            other => {
                return Err(Error::Invalid {
                    what: "the preamble of a journal entry",
                    value: other,
                });
            }
        }
        let version = r.u8()?;
        if version != VERSION {
            return Err(Error::Invalid {
                what: "the version of a journal entry",
                value: version.into(),
            });
        }
        let (tid, tag, data) = (r.u64()?, r.u64()?, r.blob()?);
        let mut w = Writer::with_capacity(HEAD);
        w.u64(PREAMBLE);
        w.u8(VERSION);
        w.u64(tid);
        w.u64(tag);
        w.u32(data.len() as u32);
        let crc = r.u32()?;
        if crc != crc32c(crc32c(0, w.as_slice()), &data) {
            return Err(Error::Invalid { what: "the crc of a journal entry", value: crc.into() });
        }
        Ok(Entry { tag, tid, data })
    }
}

/// The next entry of an object's bytes, and how many bytes it takes with the zeros before it:
/// `None` if they end before it does.
pub(crate) fn next_entry(bytes: &Bytes) -> Result<Option<(Entry, usize)>, Error> {
    let pad = bytes.iter().take_while(|b| **b == 0).count();
    let rest = bytes.slice(pad..);
    if rest.len() < HEAD {
        return Ok(None);
    }
    let len = u32::from_le_bytes([rest[HEAD - 4], rest[HEAD - 3], rest[HEAD - 2], rest[HEAD - 1]]);
    let whole = OVERHEAD + len as usize;
    if rest[..8] == PREAMBLE.to_le_bytes() && rest.len() < whole {
        return Ok(None);
    }
    let entry = Entry::decode(&mut Reader::new(&rest))?;
    Ok(Some((entry, pad + whole)))
}

/// What the image's own client of its journal keeps there; of other clients only the kind
/// matters. Wire: librbd::journal::ClientData v2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClientData {
    /// The image: the class of its tags, and whether a copy of it shall be made anew.
    Image { tag_class: u64, resync: bool },
    /// A mirror, the command line tool, or what a newer release has.
    Other(u32),
}

impl Denc for ClientData {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| match self {
            ClientData::Image { tag_class, resync } => {
                w.u32(0);
                w.u64(*tag_class);
                w.bool(*resync);
            }
            ClientData::Other(kind) => w.u32(*kind),
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<ClientData, Error> {
        r.envelope("ClientData", 2, 1, |r, _| {
            Ok(match r.u32()? {
                0 => ClientData::Image { tag_class: r.u64()?, resync: r.bool()? },
                kind => ClientData::Other(kind),
            })
        })
    }
}

/// Whose the entries of a tag are, and what went before. Wire: librbd::journal::TagData.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct TagData {
    /// Empty: this cluster's.
    pub(crate) mirror: BString,
    /// The owner before.
    pub(crate) before_mirror: BString,
    /// Tag and entry that had been committed then.
    pub(crate) before: Option<(u64, u64)>,
}

impl Denc for TagData {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.mirror);
        w.put(&self.before_mirror);
        w.bool(self.before.is_some());
        let (tag, tid) = self.before.unwrap_or_default();
        w.u64(tag);
        w.u64(tid);
    }

    fn decode(r: &mut Reader<'_>) -> Result<TagData, Error> {
        let (mirror, before_mirror) = (r.get()?, r.get()?);
        let valid = r.bool()?;
        let before = (r.u64()?, r.u64()?);
        Ok(TagData { mirror, before_mirror, before: valid.then_some(before) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::EventEntry;
    use super::*;

    /// Encodings of Ceph 16.2.0.
    #[test]
    fn golden_encodings() {
        corpus::check_all! {
            "journal::Entry" => Entry,
            "librbd::journal::TagData" => TagData,
        }
        if corpus::root().is_none() {
            return;
        }
        // One is a write of 456 bytes that has 32: what it has is what counts here.
        let is_that = |bytes: &Bytes| bytes[6..10] == [1, 0, 0, 0] && bytes[18..20] == [200, 1];
        corpus::check_except::<EventEntry>("librbd::journal::EventEntry", is_that);
    }

    fn entry(tid: u64, len: usize) -> Entry {
        Entry { tag: 3, tid, data: vec![tid as u8; len].into() }
    }

    #[test]
    fn entries_are_found_between_zeros() {
        let mut bytes = vec![0; 5];
        bytes.extend(entry(1, 10).to_bytes());
        bytes.extend([0; 4096]);
        bytes.extend(entry(2, 0).to_bytes());
        bytes.extend([0; 3]);
        let mut rest = Bytes::from(bytes);
        for tid in [1, 2] {
            let (found, len) = next_entry(&rest).unwrap().unwrap();
            assert_eq!(found.tid, tid);
            rest = rest.slice(len..);
        }
        assert_eq!(next_entry(&rest).unwrap(), None);
    }

    #[test]
    fn an_entry_that_is_cut_is_none_and_a_damaged_one_is_an_error() {
        let whole = entry(1, 100).to_bytes();
        for len in 0..whole.len() {
            assert_eq!(next_entry(&whole.slice(..len)).unwrap(), None, "{len}");
        }
        for at in [0, 8, 12, 40, whole.len() - 1] {
            let mut damaged = whole.to_vec();
            damaged[at] ^= 1;
            assert!(next_entry(&damaged.into()).is_err(), "{at}");
        }
    }
}
