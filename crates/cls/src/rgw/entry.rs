//! Entries of a bucket index: one an object, one or two a version.

use bstr::BString;
use denc::{Denc, Error, Reader, Writer};
use types::UTime;

use super::key::ObjKey;
use super::packed;

/// What happened to an object. Wire: RGWModifyOp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Denc)]
pub struct ModifyOp(pub u8);

impl ModifyOp {
    /// Written.
    pub const ADD: ModifyOp = ModifyOp(0);
    /// Removed.
    pub const DEL: ModifyOp = ModifyOp(1);
    /// Nothing: what was prepared is given up.
    pub const CANCEL: ModifyOp = ModifyOp(2);
    /// Not said.
    pub const UNKNOWN: ModifyOp = ModifyOp(3);
    /// A version became the current one.
    pub const LINK_OLH: ModifyOp = ModifyOp(4);
    /// A delete marker did.
    pub const LINK_OLH_DM: ModifyOp = ModifyOp(5);
    /// A version was removed.
    pub const UNLINK_INSTANCE: ModifyOp = ModifyOp(6);
    /// The log was stopped.
    pub const SYNCSTOP: ModifyOp = ModifyOp(7);
    /// The log goes on.
    pub const RESYNC: ModifyOp = ModifyOp(8);
}

impl Default for ModifyOp {
    fn default() -> ModifyOp {
        ModifyOp::UNKNOWN
    }
}

/// State of a change. Wire: RGWPendingState: under way.
pub const STATE_PENDING: u8 = 0;
/// State of a change: done.
pub const STATE_COMPLETE: u8 = 1;

/// A change under way. Wire: rgw_bucket_pending_info v2.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 2, compat = 2, oldest = 2)]
pub struct PendingInfo {
    /// [`STATE_PENDING`].
    pub state: u8,
    /// Since when.
    pub timestamp: UTime,
    /// What.
    pub op: ModifyOp,
}

/// Pool and version of an object's head. Wire: rgw_bucket_entry_ver v1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryVer {
    /// Pool, -1 for none.
    pub pool: i64,
    /// The head's user version.
    pub epoch: u64,
}

impl Default for EntryVer {
    fn default() -> EntryVer {
        EntryVer { pool: -1, epoch: 0 }
    }
}

impl Denc for EntryVer {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            packed::put(w, self.pool.cast_unsigned());
            packed::put(w, self.epoch);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<EntryVer, Error> {
        r.envelope("EntryVer", 1, 1, |r, _| {
            Ok(EntryVer { pool: packed::get(r)?.cast_signed(), epoch: packed::get(r)? })
        })
    }
}

/// What a listing says of an object. Wire: rgw_bucket_dir_entry_meta v7.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 7, compat = 3, oldest = 5)]
pub struct EntryMeta {
    /// Which of the header's sums count it. Wire: RGWObjCategory: 0 none, 1 main, 2 shadow,
    /// 3 multipart uploads.
    pub category: u8,
    /// Bytes stored.
    pub size: u64,
    /// When it was written.
    pub mtime: UTime,
    /// Hash of the content.
    pub etag: BString,
    /// Owner's id.
    pub owner: BString,
    /// Owner's name.
    pub owner_display_name: BString,
    /// MIME type.
    pub content_type: BString,
    /// Bytes as the user counts them: before compression, after encryption is taken off.
    pub accounted_size: u64,
    /// Whatever the user put in.
    pub user_data: BString,
    /// Storage class.
    #[denc(since = 6)]
    pub storage_class: BString,
    /// Whether it can grow.
    #[denc(since = 7)]
    pub appendable: bool,
}

/// A version of an object.
pub const FLAG_VER: u16 = 0x1;
/// The current version.
pub const FLAG_CURRENT: u16 = 0x2;
/// A delete marker.
pub const FLAG_DELETE_MARKER: u16 = 0x4;
/// In a plain entry: there are versions, look at those.
pub const FLAG_VER_MARKER: u16 = 0x8;
/// Only in listings: stands for all names with this prefix.
pub const FLAG_COMMON_PREFIX: u16 = 0x8000;

/// An entry. Wire: rgw_bucket_dir_entry v8.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DirEntry {
    /// The object.
    pub key: ObjKey,
    /// Version of its head.
    pub ver: EntryVer,
    /// Locator of its head, if other than the name.
    pub locator: BString,
    /// Whether it is there: an entry may be only [`DirEntry::pending`].
    pub exists: bool,
    /// What is listed.
    pub meta: EntryMeta,
    /// Changes under way by their tags, in the order of the tags; one tag may be there twice.
    pub pending: Vec<(BString, PendingInfo)>,
    /// The header's version at the last change.
    pub index_ver: u64,
    /// Tag of the last change.
    pub tag: BString,
    /// `FLAG_*`.
    pub flags: u16,
    /// Place among the versions.
    pub versioned_epoch: u64,
}

impl Denc for DirEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(8, 3, |w| {
            w.put(&self.key.name);
            w.u64(self.ver.epoch);
            w.bool(self.exists);
            w.put(&self.meta);
            w.put(&self.pending);
            w.put(&self.locator);
            w.put(&self.ver);
            packed::put(w, self.index_ver);
            w.put(&self.tag);
            w.put(&self.key.instance);
            w.u16(self.flags);
            w.u64(self.versioned_epoch);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<DirEntry, Error> {
        r.envelope("DirEntry", 8, 8, |r, _| {
            let mut e =
                DirEntry { key: ObjKey::of_name(r.get::<BString>()?), ..DirEntry::default() };
            r.u64()?; // the version, before it had a pool
            e.exists = r.bool()?;
            e.meta = r.get()?;
            e.pending = r.get()?;
            e.pending.sort_by(|(a, _), (b, _)| a.cmp(b));
            e.locator = r.get()?;
            e.ver = r.get()?;
            e.index_ver = packed::get(r)?;
            e.tag = r.get()?;
            e.key.instance = r.get()?;
            e.flags = r.u16()?;
            e.versioned_epoch = r.u64()?;
            Ok(e)
        })
    }
}

impl DirEntry {
    /// Whether it stands for the object itself: unversioned, or the current version.
    pub fn is_current(&self) -> bool {
        self.flags & FLAG_VER == 0 || self.flags & FLAG_CURRENT != 0
    }

    /// Whether it is a delete marker.
    pub fn is_delete_marker(&self) -> bool {
        self.flags & FLAG_DELETE_MARKER != 0
    }

    /// Whether a listing without versions shows it.
    pub fn is_visible(&self) -> bool {
        self.is_current() && !self.is_delete_marker()
    }

    /// Whether it stands for an object at all, or only says that there are versions.
    pub fn is_valid(&self) -> bool {
        self.flags & FLAG_VER_MARKER == 0
    }

    /// Adds a change under way, behind those of the same tag.
    pub(super) fn add_pending(&mut self, tag: BString, info: PendingInfo) {
        let at = self.pending.partition_point(|(other, _)| *other <= tag);
        self.pending.insert(at, (tag, info));
    }

    /// Takes a change under way out: whether there was one.
    pub(super) fn take_pending(&mut self, tag: &BString) -> bool {
        let at = self.pending.partition_point(|(other, _)| other < tag);
        let found = self.pending.get(at).is_some_and(|(other, _)| other == tag);
        if found {
            self.pending.remove(at);
        }
        found
    }
}
