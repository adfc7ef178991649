//! One version of an object in the index: its own entry, which holds it, and its list entry, which
//! puts it at its place in listings.

use bstr::{BStr, BString};
use types::Errno;

use super::entry::{
    DirEntry, EntryMeta, FLAG_CURRENT, FLAG_DELETE_MARKER, FLAG_VER, FLAG_VER_MARKER,
};
use super::index;
use super::key::{self, ObjKey};
use crate::{ObjectContext, stored};

/// Epoch of an entry from before its bucket had versions.
pub(super) const PLAIN_EPOCH: u64 = 1;
/// Tag of delete markers.
const DELETE_MARKER_TAG: &str = "delete-marker";

/// A version.
pub(super) struct Version {
    key: ObjKey,
    /// Where the entry has been looked for.
    index_key: BString,
    pub(super) entry: DirEntry,
    is_loaded: bool,
}

impl Version {
    pub(super) fn new(key: &ObjKey) -> Version {
        Version {
            key: key.clone(),
            index_key: BString::default(),
            entry: DirEntry::default(),
            is_loaded: false,
        }
    }

    /// Reads the entry; whether there is one. The null version and the null delete marker have
    /// entries of their own, and the latter is taken if `or_marker`.
    pub(super) async fn load(
        &mut self,
        ctx: &mut dyn ObjectContext,
        or_marker: bool,
    ) -> Result<bool, Errno> {
        let or_marker = or_marker && self.key.instance.is_empty();
        let (index_key, entry) = index::read_entry(ctx, &self.key, or_marker).await?;
        self.index_key = index_key;
        self.is_loaded = entry.is_some();
        self.entry = entry.unwrap_or_default();
        Ok(self.is_loaded)
    }

    /// Makes it a delete marker.
    pub(super) fn become_delete_marker(&mut self, meta: EntryMeta) {
        self.entry.key = self.key.clone();
        self.entry.flags = FLAG_DELETE_MARKER;
        self.entry.meta = meta;
        self.entry.tag = DELETE_MARKER_TAG.into();
        self.is_loaded = true;
    }

    fn list_key(&self) -> BString {
        key::list_key(&self.entry.key, self.entry.versioned_epoch)
    }

    /// Removes the list entry.
    pub(super) async fn unlink_list_entry(&self, ctx: &mut dyn ObjectContext) -> Result<(), Errno> {
        ctx.omap_rm(&self.list_key()).await
    }

    /// Removes the entry, or what may be at its place.
    pub(super) async fn unlink(&self, ctx: &mut dyn ObjectContext) -> Result<(), Errno> {
        ctx.omap_rm(&self.index_key).await
    }

    /// Writes both entries with some flags set and others not.
    async fn write_entries(
        &mut self,
        ctx: &mut dyn ObjectContext,
        set: u16,
        reset: u16,
    ) -> Result<(), Errno> {
        if !self.is_loaded && !self.load(ctx, true).await? {
            return Err(Errno::ENOENT);
        }
        self.entry.flags = self.entry.flags & !reset | set;
        let is_null_marker = self.entry.is_delete_marker() && self.entry.key.instance.is_empty();
        self.index_key = if is_null_marker {
            key::delete_marker_key(&self.key)
        } else {
            key::instance_key(&self.key)
        };
        write_both(ctx, self.index_key.clone(), &self.entry).await
    }

    /// Writes both entries as a version at that epoch. A version that has not been loaded keeps the
    /// epoch it has, and so its place.
    pub(super) async fn write(
        &mut self,
        ctx: &mut dyn ObjectContext,
        epoch: u64,
        current: bool,
    ) -> Result<(), Errno> {
        if self.entry.versioned_epoch > 0 {
            self.unlink_list_entry(ctx).await?;
        }
        self.entry.versioned_epoch = epoch;
        let flags = if current { FLAG_VER | FLAG_CURRENT } else { FLAG_VER };
        self.write_entries(ctx, flags, 0).await
    }

    /// Another version is the current one now.
    pub(super) async fn demote(&mut self, ctx: &mut dyn ObjectContext) -> Result<(), Errno> {
        self.write_entries(ctx, 0, FLAG_CURRENT).await
    }

    /// The version behind this one in the listing.
    pub(super) async fn next(&self, ctx: &mut dyn ObjectContext) -> Result<Option<ObjKey>, Errno> {
        let (vals, _) = ctx.omap_vals(&self.list_key(), &self.key.name, 1).await?;
        let Some(value) = vals.values().next() else { return Ok(None) };
        let next: DirEntry = stored(value)?;
        // A longer name begins with this one as well.
        Ok(Some(next.key).filter(|next| next.name == self.key.name))
    }
}

async fn write_both(
    ctx: &mut dyn ObjectContext,
    index_key: BString,
    entry: &DirEntry,
) -> Result<(), Errno> {
    let list_key = key::list_key(&entry.key, entry.versioned_epoch);
    index::write(ctx, index_key, entry).await?;
    index::write(ctx, list_key, entry).await
}

/// The bucket has got versions, and the name's first change since: what was there becomes the null
/// version, of a listing unless `is_hidden`, and its plain entry a mark that there are versions.
pub(super) async fn convert_plain(
    ctx: &mut dyn ObjectContext,
    name: &BStr,
    demote: bool,
    is_hidden: bool,
) -> Result<(), Errno> {
    let key = ObjKey::of_name(name);
    let (_, entry) = index::read_entry(ctx, &key, false).await?;
    if let Some(mut entry) = entry {
        entry.versioned_epoch = PLAIN_EPOCH;
        entry.flags |= FLAG_VER;
        if demote {
            entry.flags &= !FLAG_CURRENT;
        }
        let instance_key = key::instance_key(&key);
        if is_hidden {
            index::write(ctx, instance_key, &entry).await?;
        } else {
            write_both(ctx, instance_key, &entry).await?;
        }
    }
    let plain_key = key.name.clone();
    let marker = DirEntry { key, flags: FLAG_VER_MARKER, ..DirEntry::default() };
    index::write(ctx, plain_key, &marker).await
}
