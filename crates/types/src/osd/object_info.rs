//! What an OSD knows of one object (attribute `_` of it), its watchers and its manifest.

use std::collections::BTreeMap;

use denc::{Denc, Error, Reader, Writer};

use crate::addr::EntityAddr;
use crate::entity::EntityName;
use crate::hobject::HObject;
use crate::reqid::OsdReqId;
use crate::snap::{NOSNAP, SnapId};
use crate::time::UTime;
use crate::version::EVersion;

/// Its content is lost.
pub const FLAG_LOST: u32 = 1;
/// Deleted, but kept for its clones (or, in a cache tier, to hide the base's object).
pub const FLAG_WHITEOUT: u32 = 1 << 1;
/// Changed since the last flush to the base tier.
pub const FLAG_DIRTY: u32 = 1 << 2;
/// Has, or once had, omap data.
pub const FLAG_OMAP: u32 = 1 << 3;
/// `data_digest` holds.
pub const FLAG_DATA_DIGEST: u32 = 1 << 4;
/// `omap_digest` holds.
pub const FLAG_OMAP_DIGEST: u32 = 1 << 5;
/// Stays in the cache tier.
pub const FLAG_CACHE_PIN: u32 = 1 << 6;
/// `manifest` holds.
pub const FLAG_MANIFEST: u32 = 1 << 7;
/// Has a tmap.
pub const FLAG_USES_TMAP: u32 = 1 << 8;
/// The redirect target's reference is held.
pub const FLAG_REDIRECT_HAS_REFERENCE: u32 = 1 << 9;

/// A watch that outlives the watcher's connection. Wire: watch_info_t v4/c3.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 4, compat = 3, oldest = 4)]
pub struct WatchInfo {
    /// The watcher's name for it.
    pub cookie: u64,
    /// Seconds without a ping after which it ends.
    pub timeout_seconds: u32,
    /// The watcher's address.
    pub addr: EntityAddr,
}

/// A piece of an object that lies in another. Wire: chunk_info_t v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ChunkInfo {
    /// Where in the target.
    pub offset: u32,
    /// How long.
    pub length: u32,
    /// The target.
    pub oid: HObject,
    /// 1 dirty, 2 missing, 4 has reference, 8 has fingerprint.
    pub flags: u32,
}

/// Where an object's content really is. Wire: object_manifest_t v1.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ObjectManifest {
    /// Here.
    #[default]
    None,
    /// In another object.
    Redirect(HObject),
    /// In others, piecewise, by offset.
    Chunked(BTreeMap<u64, ChunkInfo>),
}

impl Denc for ObjectManifest {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| match self {
            ObjectManifest::None => w.u8(0),
            ObjectManifest::Redirect(target) => {
                w.u8(1);
                w.put(target);
            }
            ObjectManifest::Chunked(chunks) => {
                w.u8(2);
                w.put(chunks);
            }
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<ObjectManifest, Error> {
        r.envelope("ObjectManifest", 1, 1, |r, _| match r.u8()? {
            0 => Ok(ObjectManifest::None),
            1 => r.get().map(ObjectManifest::Redirect),
            2 => r.get().map(ObjectManifest::Chunked),
            other => Err(Error::Invalid { what: "manifest type", value: other.into() }),
        })
    }
}

/// Wire: object_info_t v17/c8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectInfo {
    /// The object.
    pub soid: HObject,
    /// Version of the last write.
    pub version: EVersion,
    /// Version before it.
    pub prior_version: EVersion,
    /// Version clients see: not raised by watches.
    pub user_version: u64,
    /// The last write's request.
    pub last_reqid: OsdReqId,
    /// Bytes of content.
    pub size: u64,
    /// When changed, by the client's clock.
    pub mtime: UTime,
    /// When changed, by the primary's clock.
    pub local_mtime: UTime,
    /// `FLAG_*`.
    pub flags: u32,
    /// Number of truncations seen.
    pub truncate_seq: u64,
    /// Size of the last of them.
    pub truncate_size: u64,
    /// Watches by (cookie, watcher).
    pub watchers: BTreeMap<(u64, EntityName), WatchInfo>,
    /// CRC-32C of the content, from -1, if [`FLAG_DATA_DIGEST`].
    pub data_digest: u32,
    /// CRC-32C of the omap, from -1, if [`FLAG_OMAP_DIGEST`].
    pub omap_digest: u32,
    /// Expected size.
    pub expected_object_size: u64,
    /// Expected size of writes.
    pub expected_write_size: u64,
    /// Expected access, `ALLOC_HINT_FLAG_*`.
    pub alloc_hint_flags: u32,
    /// If [`FLAG_MANIFEST`].
    pub manifest: ObjectManifest,
}

impl Default for ObjectInfo {
    fn default() -> ObjectInfo {
        ObjectInfo {
            soid: HObject::default(),
            version: EVersion::ZERO,
            prior_version: EVersion::ZERO,
            user_version: 0,
            last_reqid: OsdReqId::default(),
            size: 0,
            mtime: UTime::ZERO,
            local_mtime: UTime::ZERO,
            flags: 0,
            truncate_seq: 0,
            truncate_size: 0,
            watchers: BTreeMap::new(),
            data_digest: u32::MAX,
            omap_digest: u32::MAX,
            expected_object_size: 0,
            expected_write_size: 0,
            alloc_hint_flags: 0,
            manifest: ObjectManifest::None,
        }
    }
}

impl ObjectInfo {
    /// What is known of an object that does not exist.
    pub fn new(soid: HObject) -> ObjectInfo {
        ObjectInfo { soid, ..ObjectInfo::default() }
    }

    /// Whether all of `flag` is set.
    pub fn test_flag(&self, flag: u32) -> bool {
        self.flags & flag == flag
    }

    /// Sets `flag`.
    pub fn set_flag(&mut self, flag: u32) {
        self.flags |= flag;
    }

    /// Clears `flag`.
    pub fn clear_flag(&mut self, flag: u32) {
        self.flags &= !flag;
    }

    /// [`FLAG_LOST`].
    pub fn is_lost(&self) -> bool {
        self.test_flag(FLAG_LOST)
    }

    /// [`FLAG_WHITEOUT`].
    pub fn is_whiteout(&self) -> bool {
        self.test_flag(FLAG_WHITEOUT)
    }

    /// [`FLAG_DIRTY`].
    pub fn is_dirty(&self) -> bool {
        self.test_flag(FLAG_DIRTY)
    }

    /// [`FLAG_OMAP`].
    pub fn is_omap(&self) -> bool {
        self.test_flag(FLAG_OMAP)
    }

    /// [`FLAG_DATA_DIGEST`].
    pub fn is_data_digest(&self) -> bool {
        self.test_flag(FLAG_DATA_DIGEST)
    }

    /// [`FLAG_OMAP_DIGEST`].
    pub fn is_omap_digest(&self) -> bool {
        self.test_flag(FLAG_OMAP_DIGEST)
    }

    /// [`FLAG_CACHE_PIN`].
    pub fn is_cache_pinned(&self) -> bool {
        self.test_flag(FLAG_CACHE_PIN)
    }

    /// [`FLAG_MANIFEST`].
    pub fn has_manifest(&self) -> bool {
        self.test_flag(FLAG_MANIFEST)
    }

    /// Records the content's checksum.
    pub fn set_data_digest(&mut self, digest: u32) {
        self.set_flag(FLAG_DATA_DIGEST);
        self.data_digest = digest;
    }

    /// Records the omap's checksum.
    pub fn set_omap_digest(&mut self, digest: u32) {
        self.set_flag(FLAG_OMAP_DIGEST);
        self.omap_digest = digest;
    }

    /// Forgets the content's checksum.
    pub fn clear_data_digest(&mut self) {
        self.clear_flag(FLAG_DATA_DIGEST);
        self.data_digest = u32::MAX;
    }

    /// Forgets the omap's checksum.
    pub fn clear_omap_digest(&mut self) {
        self.clear_flag(FLAG_OMAP_DIGEST);
        self.omap_digest = u32::MAX;
    }

    /// The checksums of an object that was just made: both known.
    pub fn new_object(&mut self) {
        self.set_data_digest(u32::MAX);
        self.set_omap_digest(u32::MAX);
    }

    /// Copies what a clone takes over from its head.
    pub fn copy_user_bits(&mut self, head: &ObjectInfo) {
        self.size = head.size;
        self.mtime = head.mtime;
        self.local_mtime = head.local_mtime;
        self.last_reqid = head.last_reqid;
        self.truncate_seq = head.truncate_seq;
        self.truncate_size = head.truncate_size;
        self.flags = head.flags;
        self.user_version = head.user_version;
        self.data_digest = head.data_digest;
        self.omap_digest = head.omap_digest;
    }

    /// The names of the flags that are set, as Ceph prints them.
    pub fn flag_names(&self) -> Vec<&'static str> {
        [
            (FLAG_LOST, "lost"),
            (FLAG_WHITEOUT, "whiteout"),
            (FLAG_DIRTY, "dirty"),
            (FLAG_USES_TMAP, "uses_tmap"),
            (FLAG_OMAP, "omap"),
            (FLAG_DATA_DIGEST, "data_digest"),
            (FLAG_OMAP_DIGEST, "omap_digest"),
            (FLAG_CACHE_PIN, "cache_pin"),
            (FLAG_MANIFEST, "manifest"),
            (FLAG_REDIRECT_HAS_REFERENCE, "redirect_has_reference"),
        ]
        .into_iter()
        .filter(|&(flag, _)| self.test_flag(flag))
        .map(|(_, name)| name)
        .collect()
    }
}

impl Denc for ObjectInfo {
    fn encode(&self, w: &mut Writer) {
        // Old readers know one watch a client: the one with the smallest cookie.
        let mut old_watchers = BTreeMap::new();
        for ((_, name), watch) in &self.watchers {
            old_watchers.entry(*name).or_insert(watch);
        }
        w.envelope(17, 8, |w| {
            w.put(&self.soid);
            w.put(&self.soid.locator());
            w.u32(0); // category
            w.put(&self.version);
            w.put(&self.prior_version);
            w.put(&self.last_reqid);
            w.u64(self.size);
            w.put(&self.mtime);
            if self.soid.snap == NOSNAP {
                w.put(&OsdReqId::default()); // wrlock_by
            } else {
                w.u32(0); // legacy snaps
            }
            w.u64(self.truncate_seq);
            w.u64(self.truncate_size);
            w.bool(self.is_lost());
            w.count(old_watchers.len());
            for (name, watch) in old_watchers {
                w.put(&name);
                w.put(watch);
            }
            w.put(&EVersion::new(0, self.user_version));
            w.bool(self.test_flag(FLAG_USES_TMAP));
            w.put(&self.watchers);
            w.u32(self.flags);
            w.put(&self.local_mtime);
            w.u32(self.data_digest);
            w.u32(self.omap_digest);
            w.u64(self.expected_object_size);
            w.u64(self.expected_write_size);
            w.u32(self.alloc_hint_flags);
            if self.has_manifest() {
                w.put(&self.manifest);
            }
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<ObjectInfo, Error> {
        r.envelope("ObjectInfo", 17, 16, |r, v| {
            let soid: HObject = r.get()?;
            let _locator: crate::locator::ObjectLocator = r.get()?;
            r.blob_slice()?; // category
            let version = r.get()?;
            let prior_version = r.get()?;
            let last_reqid = r.get()?;
            let size = r.u64()?;
            let mtime = r.get()?;
            if soid.snap == NOSNAP {
                let _wrlock_by: OsdReqId = r.get()?;
            } else {
                let _legacy_snaps: Vec<SnapId> = r.get()?;
            }
            let truncate_seq = r.u64()?;
            let truncate_size = r.u64()?;
            r.u8()?; // lost, a flag since
            let _old_watchers: BTreeMap<EntityName, WatchInfo> = r.get()?;
            let user_version: EVersion = r.get()?;
            r.u8()?; // uses_tmap, a flag since
            let mut info = ObjectInfo {
                soid,
                version,
                prior_version,
                user_version: user_version.version,
                last_reqid,
                size,
                mtime,
                truncate_seq,
                truncate_size,
                watchers: r.get()?,
                flags: r.u32()?,
                local_mtime: r.get()?,
                data_digest: r.u32()?,
                omap_digest: r.u32()?,
                expected_object_size: r.u64()?,
                expected_write_size: r.u64()?,
                alloc_hint_flags: r.u32()?,
                manifest: ObjectManifest::None,
            };
            if v >= 17 && info.has_manifest() {
                info.manifest = r.get()?;
            }
            Ok(info)
        })
    }
}
