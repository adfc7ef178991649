//! Snapshots and parents as image headers store them and methods exchange them
//! (`src/cls/rbd/cls_rbd.h`, `cls_rbd_types.h` at v16.2).
//!
//! ```text
//! cls_rbd_snap v8/8:   u64 id | name | u64 size | u8 protection | u64 flags | namespace
//!                      | utime | u32 children | optional u64 parent overlap
//! before compat 8:     ... u64 size | u64 features | parent | u8 protection ...
//! ```

use std::collections::{BTreeMap, BTreeSet};

use bstr::BString;
use denc::{Denc, Error, Reader, Writer};
use types::UTime;

use super::features::{NOSNAP, UNPROTECTED};

/// Who made a snapshot and why. Wire: cls::rbd::SnapshotNamespace v1.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SnapshotNamespace {
    /// A user's.
    #[default]
    User,
    /// Part of a snapshot of a group.
    Group {
        /// Pool of the group.
        pool: i64,
        /// The group.
        group_id: BString,
        /// The group's snapshot.
        group_snapshot_id: BString,
    },
    /// Removed by its user while clones still need it.
    Trash {
        /// The name it had.
        original_name: BString,
        /// The kind of namespace it was in.
        original_kind: u32,
    },
    /// Taken for mirroring.
    Mirror(MirrorSnapshot),
    /// Of a kind that this release does not know.
    Unknown(u32),
}

/// Kinds of namespaces. Wire: u32.
pub mod namespace_kind {
    /// [`super::SnapshotNamespace::User`].
    pub const USER: u32 = 0;
    /// [`super::SnapshotNamespace::Group`].
    pub const GROUP: u32 = 1;
    /// [`super::SnapshotNamespace::Trash`].
    pub const TRASH: u32 = 2;
    /// [`super::SnapshotNamespace::Mirror`].
    pub const MIRROR: u32 = 3;
}

/// States of a mirror snapshot. Wire: u8.
pub mod mirror_snapshot_state {
    /// Taken on the primary image.
    pub const PRIMARY: u8 = 0;
    /// The last of a primary image before it was demoted.
    pub const PRIMARY_DEMOTED: u8 = 1;
    /// A copy.
    pub const NON_PRIMARY: u8 = 2;
    /// A copy of the last before a demotion.
    pub const NON_PRIMARY_DEMOTED: u8 = 3;
}

/// A mirror snapshot's particulars. Wire: cls::rbd::MirrorSnapshotNamespace, bare.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct MirrorSnapshot {
    /// One of [`mirror_snapshot_state`].
    pub state: u8,
    /// All data is there.
    pub complete: bool,
    /// Peers that have yet to copy it.
    pub mirror_peer_uuids: BTreeSet<BString>,
    /// Where a copy comes from.
    pub primary_mirror_uuid: BString,
    /// Of a copy, the snapshot copied; of a primary, the snapshot since which nothing changed.
    pub primary_snap_id: u64,
    /// How far the copy is.
    pub last_copied_object_number: u64,
    /// Snapshot ids there to snapshot ids here.
    pub snap_seqs: BTreeMap<u64, u64>,
}

impl Default for MirrorSnapshot {
    fn default() -> MirrorSnapshot {
        MirrorSnapshot {
            state: mirror_snapshot_state::NON_PRIMARY,
            complete: false,
            mirror_peer_uuids: BTreeSet::new(),
            primary_mirror_uuid: BString::default(),
            primary_snap_id: NOSNAP,
            last_copied_object_number: 0,
            snap_seqs: BTreeMap::new(),
        }
    }
}

impl SnapshotNamespace {
    /// One of [`namespace_kind`].
    pub fn kind(&self) -> u32 {
        match self {
            SnapshotNamespace::User => namespace_kind::USER,
            SnapshotNamespace::Group { .. } => namespace_kind::GROUP,
            SnapshotNamespace::Trash { .. } => namespace_kind::TRASH,
            SnapshotNamespace::Mirror(_) => namespace_kind::MIRROR,
            SnapshotNamespace::Unknown(kind) => *kind,
        }
    }

    /// Whether the snapshot waits in the trash.
    pub fn is_trash(&self) -> bool {
        matches!(self, SnapshotNamespace::Trash { .. })
    }
}

impl Denc for SnapshotNamespace {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u32(self.kind());
            match self {
                SnapshotNamespace::User | SnapshotNamespace::Unknown(_) => {}
                SnapshotNamespace::Group { pool, group_id, group_snapshot_id } => {
                    w.i64(*pool);
                    w.put(group_id);
                    w.put(group_snapshot_id);
                }
                SnapshotNamespace::Trash { original_name, original_kind } => {
                    w.put(original_name);
                    w.u32(*original_kind);
                }
                SnapshotNamespace::Mirror(mirror) => w.put(mirror),
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<SnapshotNamespace, Error> {
        r.envelope("SnapshotNamespace", 1, 1, |r, _| {
            Ok(match r.u32()? {
                namespace_kind::USER => SnapshotNamespace::User,
                namespace_kind::GROUP => SnapshotNamespace::Group {
                    pool: r.get()?,
                    group_id: r.get()?,
                    group_snapshot_id: r.get()?,
                },
                namespace_kind::TRASH => {
                    SnapshotNamespace::Trash { original_name: r.get()?, original_kind: r.get()? }
                }
                namespace_kind::MIRROR => SnapshotNamespace::Mirror(r.get()?),
                kind => SnapshotNamespace::Unknown(kind),
            })
        })
    }
}

/// A snapshot as `snapshot_get` replies. Wire: cls::rbd::SnapshotInfo v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct SnapshotInfo {
    /// Id.
    pub id: u64,
    /// Who made it.
    pub namespace: SnapshotNamespace,
    /// Name.
    pub name: BString,
    /// Bytes of the image when it was taken.
    pub image_size: u64,
    /// When it was taken.
    pub timestamp: UTime,
    /// Clones of the second kind.
    pub child_count: u32,
}

/// The snapshot a clone was made of. Wire: cls::rbd::ParentImageSpec v1.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ParentImageSpec {
    /// Pool, -1 for no parent.
    pub pool_id: i64,
    /// Namespace in the pool.
    pub pool_namespace: BString,
    /// Image.
    pub image_id: BString,
    /// Snapshot.
    pub snap_id: u64,
}

impl Default for ParentImageSpec {
    fn default() -> ParentImageSpec {
        ParentImageSpec {
            pool_id: -1,
            pool_namespace: BString::default(),
            image_id: BString::default(),
            snap_id: NOSNAP,
        }
    }
}

impl ParentImageSpec {
    /// Whether there is a parent.
    pub fn exists(&self) -> bool {
        self.pool_id >= 0 && !self.image_id.is_empty() && self.snap_id != NOSNAP
    }
}

/// A clone of the second kind. Wire: cls::rbd::ChildImageSpec v2.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
#[denc(v = 2, compat = 1)]
pub struct ChildImageSpec {
    /// Pool.
    pub pool_id: i64,
    /// Image.
    pub image_id: BString,
    /// Namespace in the pool.
    #[denc(since = 2)]
    pub pool_namespace: BString,
}

impl Default for ChildImageSpec {
    fn default() -> ChildImageSpec {
        ChildImageSpec {
            pool_id: -1,
            image_id: BString::default(),
            pool_namespace: BString::default(),
        }
    }
}

impl Ord for ChildImageSpec {
    fn cmp(&self, other: &ChildImageSpec) -> core::cmp::Ordering {
        let key = |c: &ChildImageSpec| (c.pool_id, c.pool_namespace.clone(), c.image_id.clone());
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for ChildImageSpec {
    fn partial_cmp(&self, other: &ChildImageSpec) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The parent in an image's header. Wire: cls_rbd_parent v2, which v1 readers refuse.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parent {
    /// Which.
    pub spec: ParentImageSpec,
    /// Bytes of the image's head that the parent lies under; `None` when only snapshots have it.
    pub head_overlap: Option<u64>,
}

impl Parent {
    /// Whether there is a parent.
    pub fn exists(&self) -> bool {
        self.spec.exists()
    }
}

impl Denc for Parent {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| {
            w.i64(self.spec.pool_id);
            w.put(&self.spec.pool_namespace);
            w.put(&self.spec.image_id);
            w.u64(self.spec.snap_id);
            w.put(&self.head_overlap);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Parent, Error> {
        r.envelope("Parent", 2, 1, |r, v| {
            let pool_id = r.get()?;
            let pool_namespace = if v >= 2 { r.get()? } else { BString::default() };
            Ok(Parent {
                spec: ParentImageSpec {
                    pool_id,
                    pool_namespace,
                    image_id: r.get()?,
                    snap_id: r.get()?,
                },
                head_overlap: if v >= 2 { r.get()? } else { Some(r.u64()?) },
            })
        })
    }
}

/// A snapshot in an image's header. Wire: cls_rbd_snap v8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snap {
    /// Id.
    pub id: u64,
    /// Name.
    pub name: BString,
    /// Bytes of the image when it was taken.
    pub image_size: u64,
    /// Unprotected, unprotecting or protected.
    pub protection_status: u8,
    /// The parent, in records of releases before 14; newer ones only store the overlap.
    pub parent: Parent,
    /// The image's flags when it was taken.
    pub flags: u64,
    /// When it was taken.
    pub timestamp: UTime,
    /// Who made it.
    pub namespace: SnapshotNamespace,
    /// Clones of the second kind.
    pub child_count: u32,
    /// Bytes the parent lies under.
    pub parent_overlap: Option<u64>,
}

impl Default for Snap {
    fn default() -> Snap {
        Snap {
            id: NOSNAP,
            name: BString::default(),
            image_size: 0,
            protection_status: UNPROTECTED,
            parent: Parent::default(),
            flags: 0,
            timestamp: UTime::default(),
            namespace: SnapshotNamespace::User,
            child_count: 0,
            parent_overlap: None,
        }
    }
}

impl Snap {
    /// Whether the snapshot lies on a parent.
    pub fn has_parent(&self) -> bool {
        self.parent.spec.pool_id != -1 || self.parent_overlap.is_some()
    }
}

impl Denc for Snap {
    fn encode(&self, w: &mut Writer) {
        w.envelope(8, 8, |w| {
            w.u64(self.id);
            w.put(&self.name);
            w.u64(self.image_size);
            w.u8(self.protection_status);
            w.u64(self.flags);
            w.put(&self.namespace);
            w.put(&self.timestamp);
            w.u32(self.child_count);
            w.put(&self.parent_overlap);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Snap, Error> {
        // The layout hangs on compat, which only the raw bytes show.
        let raw = r.raw_envelope()?;
        let is_old = raw[1] < 8;
        Reader::new(&raw).envelope("Snap", 8, 1, |r, v| {
            let mut snap =
                Snap { id: r.get()?, name: r.get()?, image_size: r.get()?, ..Snap::default() };
            if is_old {
                r.u64()?; // features, never used
                if v >= 2 {
                    snap.parent = r.get()?;
                }
            }
            if v >= 3 {
                snap.protection_status = r.get()?;
            }
            if v >= 4 {
                snap.flags = r.get()?;
            }
            if v >= 5 {
                snap.namespace = r.get()?;
            }
            if v >= 6 {
                snap.timestamp = r.get()?;
            }
            if v >= 7 {
                snap.child_count = r.get()?;
            }
            if v >= 8 {
                snap.parent_overlap = r.get()?;
            }
            Ok(snap)
        })
    }
}

/// A live migration, in the headers of both images. Wire: cls::rbd::MigrationSpec v3.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MigrationSpec {
    /// 1 in the source's header, 2 in the destination's.
    pub header_type: u8,
    /// Pool of the other image.
    pub pool_id: i64,
    /// Namespace of the other image.
    pub pool_namespace: BString,
    /// Name of the other image.
    pub image_name: BString,
    /// Id of the other image.
    pub image_id: BString,
    /// Snapshot ids there to snapshot ids here.
    pub snap_seqs: BTreeMap<u64, u64>,
    /// Bytes still read from the source.
    pub overlap: u64,
    /// Whether clones are flattened.
    pub flatten: bool,
    /// Whether the source was mirrored.
    pub mirroring: bool,
    /// error 0, preparing 1, prepared 2, executing 3, executed 4, aborting 5.
    pub state: u8,
    /// What went wrong.
    pub state_description: BString,
    /// How it was mirrored.
    pub mirror_image_mode: u8,
    /// A source outside this cluster, as JSON.
    pub source_spec: BString,
}

impl Denc for MigrationSpec {
    fn encode(&self, w: &mut Writer) {
        let compat = if self.source_spec.is_empty() { 1 } else { 3 };
        w.envelope(3, compat, |w| {
            w.u8(self.header_type);
            w.i64(self.pool_id);
            w.put(&self.pool_namespace);
            w.put(&self.image_name);
            w.put(&self.image_id);
            w.put(&self.snap_seqs);
            w.u64(self.overlap);
            w.bool(self.flatten);
            w.bool(self.mirroring);
            w.u8(self.state);
            w.put(&self.state_description);
            w.u8(self.mirror_image_mode);
            w.put(&self.source_spec);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<MigrationSpec, Error> {
        r.envelope("MigrationSpec", 3, 1, |r, v| {
            Ok(MigrationSpec {
                header_type: r.get()?,
                pool_id: r.get()?,
                pool_namespace: r.get()?,
                image_name: r.get()?,
                image_id: r.get()?,
                snap_seqs: r.get()?,
                overlap: r.get()?,
                flatten: r.get()?,
                mirroring: r.get()?,
                state: r.get()?,
                state_description: r.get()?,
                mirror_image_mode: if v >= 2 { r.get()? } else { 0 },
                source_spec: if v >= 3 { r.get()? } else { BString::default() },
            })
        })
    }
}
