//! What class `fifo` stores, takes and gives.

use std::collections::{BTreeSet, VecDeque};

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::UTime;

/// Version of a FIFO. Wire: rados::cls::fifo::objv v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ObjVersion {
    /// Random word of this FIFO.
    pub instance: BString,
    /// Changes since it was made.
    pub ver: u64,
}

/// Sizes of a part. Wire: rados::cls::fifo::data_params v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct DataParams {
    /// Bytes a part may have.
    pub max_part_size: u64,
    /// Bytes an entry may have.
    pub max_entry_size: u64,
    /// A part of more bytes takes no more.
    pub full_size_threshold: u64,
}

/// What is being done to a part. Wire: rados::cls::fifo::journal_entry v1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct JournalEntry {
    /// What.
    pub op: JournalOp,
    /// To which; not negative.
    pub part_num: i64,
}

/// Kinds of [`JournalEntry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum JournalOp {
    /// It is being made.
    Create = 1,
    /// It is becoming the one that is written to.
    SetHead = 2,
    /// It is being removed.
    Remove = 3,
}

fn invalid(what: &'static str, value: i64) -> Error {
    Error::Invalid { what, value: value as u64 }
}

impl Denc for JournalEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.i32(self.op as i32);
            w.i64(self.part_num);
            w.blob(b"");
        });
    }
    /// Real OSDs take any and fail an assertion when they store it.
    fn decode(r: &mut Reader<'_>) -> Result<JournalEntry, Error> {
        r.envelope("JournalEntry", 1, 1, |r, _| {
            let (op, part_num) = (r.i32()?, r.i64()?);
            let _tag: BString = r.get()?;
            let op = match op {
                1 => JournalOp::Create,
                2 => JournalOp::SetHead,
                3 => JournalOp::Remove,
                op => return Err(invalid("a journal entry's op", op.into())),
            };
            if part_num < 0 {
                return Err(invalid("a journal entry's part", part_num));
            }
            Ok(JournalEntry { op, part_num })
        })
    }
}

/// A FIFO. Wire: rados::cls::fifo::info v1, where earlier versions had tags of parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// Its name.
    pub id: BString,
    /// Its version.
    pub version: ObjVersion,
    /// What names of its parts begin with.
    pub oid_prefix: BString,
    /// Sizes of its parts.
    pub params: DataParams,
    /// The oldest part.
    pub tail_part_num: i64,
    /// The part that is written to, -1 for none.
    pub head_part_num: i64,
    /// The first part that may be written to.
    pub min_push_part_num: i64,
    /// The last part there is, -1 for none.
    pub max_push_part_num: i64,
    /// What is under way.
    pub journal: BTreeSet<JournalEntry>,
}

impl Default for Info {
    fn default() -> Info {
        Info {
            id: BString::default(),
            version: ObjVersion::default(),
            oid_prefix: BString::default(),
            params: DataParams::default(),
            tail_part_num: 0,
            head_part_num: -1,
            min_push_part_num: 0,
            max_push_part_num: -1,
            journal: BTreeSet::new(),
        }
    }
}

impl Denc for Info {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.id);
            w.put(&self.version);
            w.put(&self.oid_prefix);
            w.put(&self.params);
            w.i64(self.tail_part_num);
            w.i64(self.head_part_num);
            w.i64(self.min_push_part_num);
            w.i64(self.max_push_part_num);
            w.count(0);
            w.blob(b"");
            w.count(self.journal.len());
            for entry in &self.journal {
                w.i64(entry.part_num);
                w.put(entry);
            }
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Info, Error> {
        r.envelope("Info", 1, 1, |r, _| {
            let mut info = Info {
                id: r.get()?,
                version: r.get()?,
                oid_prefix: r.get()?,
                params: r.get()?,
                tail_part_num: r.i64()?,
                head_part_num: r.i64()?,
                min_push_part_num: r.i64()?,
                max_push_part_num: r.i64()?,
                journal: BTreeSet::new(),
            };
            let _tags: Vec<(i64, BString)> = r.get()?;
            let _head_tag: BString = r.get()?;
            let journal: Vec<(i64, JournalEntry)> = r.get()?;
            info.journal = journal.into_iter().map(|(_, entry)| entry).collect();
            Ok(info)
        })
    }
}

/// What a part begins with. Wire: rados::cls::fifo::part_header v1, where earlier versions had a
/// tag.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartHeader {
    /// Its sizes.
    pub params: DataParams,
    /// What each of its entries begins with.
    pub magic: u64,
    /// Where the first entry is that was not trimmed.
    pub min_ofs: u64,
    /// Where the last entry is.
    pub last_ofs: u64,
    /// Where the next entry goes.
    pub next_ofs: u64,
    /// Number of the first entry that was not trimmed.
    pub min_index: u64,
    /// Number of the next entry.
    pub max_index: u64,
    /// Time of the last entry.
    pub max_time: UTime,
}

impl PartHeader {
    /// Whether the part takes no more.
    pub fn is_full(&self) -> bool {
        self.next_ofs > self.params.full_size_threshold
    }
}

impl Denc for PartHeader {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.blob(b"");
            w.put(&self.params);
            w.u64(self.magic);
            w.u64(self.min_ofs);
            w.u64(self.last_ofs);
            w.u64(self.next_ofs);
            w.u64(self.min_index);
            w.u64(self.max_index);
            w.put(&self.max_time);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<PartHeader, Error> {
        r.envelope("PartHeader", 1, 1, |r, _| {
            let _tag: BString = r.get()?;
            Ok(PartHeader {
                params: r.get()?,
                magic: r.u64()?,
                min_ofs: r.u64()?,
                last_ofs: r.u64()?,
                next_ofs: r.u64()?,
                min_index: r.u64()?,
                max_index: r.u64()?,
                max_time: r.get()?,
            })
        })
    }
}

/// Argument of `create_meta`. Wire: rados::cls::fifo::op::create_meta v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct CreateMetaOp {
    /// Its name.
    pub id: BString,
    /// Its first version; a random one else.
    pub version: Option<ObjVersion>,
    /// Unused.
    pub pool_name: BString,
    /// Unused.
    pub pool_ns: BString,
    /// What names of its parts begin with; a random word else.
    pub oid_prefix: Option<BString>,
    /// Bytes a part may have.
    pub max_part_size: u64,
    /// Bytes an entry may have.
    pub max_entry_size: u64,
    /// Whether one that is there already is an error even if it is alike.
    pub exclusive: bool,
}

/// Argument of `get_meta`. Wire: rados::cls::fifo::op::get_meta v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct GetMetaOp {
    /// The version it must have.
    pub version: Option<ObjVersion>,
}

/// Reply of `get_meta`. Wire: rados::cls::fifo::op::get_meta_reply v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct GetMetaReply {
    /// The FIFO.
    pub info: Info,
    /// Bytes before the first entry of a part.
    pub part_header_size: u32,
    /// Bytes an entry takes beside its data.
    pub part_entry_overhead: u32,
}

/// Argument of `update_meta`. Wire: rados::cls::fifo::op::update_meta v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct UpdateMetaOp {
    /// The version it must have.
    pub version: ObjVersion,
    /// The new oldest part.
    pub tail_part_num: Option<u64>,
    /// The new part that is written to.
    pub head_part_num: Option<u64>,
    /// The new first part that may be written to.
    pub min_push_part_num: Option<u64>,
    /// The new last part.
    pub max_push_part_num: Option<u64>,
    /// What has begun.
    pub journal_entries_add: Vec<JournalEntry>,
    /// What has ended.
    pub journal_entries_rm: Vec<JournalEntry>,
}

/// Argument of `init_part`. Wire: rados::cls::fifo::op::init_part v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct InitPartOp {
    /// Unused.
    pub tag: BString,
    /// Its sizes.
    pub params: DataParams,
}

/// Argument of `push_part`. Wire: rados::cls::fifo::op::push_part v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct PushPartOp {
    /// Unused.
    pub tag: BString,
    /// The entries.
    pub data_bufs: VecDeque<Bytes>,
    /// Bytes of them all.
    pub total_len: u64,
}

/// Argument of `trim_part`. Wire: rados::cls::fifo::op::trim_part v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct TrimPartOp {
    /// Unused.
    pub tag: Option<BString>,
    /// Up to the entry here.
    pub ofs: u64,
    /// Whether that one stays.
    pub exclusive: bool,
}

/// Argument of `part_list`. Wire: rados::cls::fifo::op::list_part v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ListPartOp {
    /// Unused.
    pub tag: Option<BString>,
    /// After the entry here; from the first when that is before it.
    pub ofs: u64,
    /// At most this many.
    pub max_entries: i32,
}

/// An entry. Wire: rados::cls::fifo::part_list_entry v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct PartListEntry {
    /// What was pushed.
    pub data: Bytes,
    /// Where it is.
    pub ofs: u64,
    /// When.
    pub mtime: UTime,
}

/// Reply of `part_list`. Wire: rados::cls::fifo::op::list_part_reply v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ListPartReply {
    /// Unused.
    pub tag: BString,
    /// In their order.
    pub entries: Vec<PartListEntry>,
    /// Whether there are more.
    pub more: bool,
    /// Whether the part takes no more.
    pub full_part: bool,
}

/// Argument of `get_part_info`. Wire: rados::cls::fifo::op::get_part_info v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct GetPartInfoOp {}

/// Reply of `get_part_info`. Wire: rados::cls::fifo::op::get_part_info_reply v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct GetPartInfoReply {
    /// What the part begins with.
    pub header: PartHeader,
}
