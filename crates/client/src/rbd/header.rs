//! What the header of an image says, read as a whole.

use std::collections::BTreeMap;

use cls::rbd::features::PROTECTED;
pub use cls::rbd::snapshot::ParentImageSpec;
use cls::rbd::snapshot::{SnapshotInfo, SnapshotNamespace};
use denc::Reader;
use futures_util::future::LocalBoxFuture;
use types::snap::NOSNAP;
use types::{Errno, SnapContext, SnapId, UTime};

use super::names::features;
use super::striping::Layout;
use crate::operation::Outcome;
use crate::{ClientError, IoCtx, Operation};

/// The object map does not tell the truth (`RBD_FLAG_OBJECT_MAP_INVALID`).
pub(crate) const FLAG_OBJECT_MAP_INVALID: u64 = 1;
/// Nor does it about changes (`RBD_FLAG_FAST_DIFF_INVALID`).
pub(crate) const FLAG_FAST_DIFF_INVALID: u64 = 2;
/// Snapshots asked for at a time: four calls each.
const SNAPS_AT_A_TIME: usize = 64;
/// How often a header that changes under the reader is read again.
const ATTEMPTS: usize = 10;

/// A parent, and how much of it is seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// Which.
    pub spec: ParentImageSpec,
    /// Bytes from the start of the image that the parent may hold.
    pub overlap: u64,
}

/// A snapshot of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapInfo {
    /// Id.
    pub id: SnapId,
    /// Name.
    pub name: String,
    /// Made by a user (not by a group, the trash or a mirror).
    pub user: bool,
    /// Bytes of the image then.
    pub size: u64,
    /// When.
    pub timestamp: UTime,
    /// Clones of the second kind.
    pub children: u32,
    /// Protected from removal.
    pub protected: bool,
    /// Bytes seen of the parent then.
    pub overlap: Option<u64>,
    /// Flags of its object map.
    pub(crate) flags: u64,
}

/// The whole header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) size: u64,
    pub(crate) layout: Layout,
    pub(crate) features: u64,
    pub(crate) flags: u64,
    pub(crate) prefix: String,
    /// -1: the header's own.
    pub(crate) data_pool: i64,
    pub(crate) created: UTime,
    pub(crate) snapc: SnapContext,
    pub(crate) snaps: BTreeMap<SnapId, SnapInfo>,
    pub(crate) parent: Option<Parent>,
    /// The spec even when the head has been flattened and only snapshots see the parent.
    pub(crate) parent_spec: Option<ParentImageSpec>,
}

fn at<'a>(
    outcome: &Outcome,
    index: usize,
    buf: &'a mut bytes::Bytes,
) -> Result<Reader<'a>, ClientError> {
    *buf = outcome.output(index)?;
    Ok(Reader::new(buf))
}

impl Header {
    /// Reads it; ENOENT.
    pub(crate) fn read<'a>(
        io: &'a IoCtx,
        oid: &'a str,
    ) -> LocalBoxFuture<'a, Result<Header, ClientError>> {
        Box::pin(async move {
            for _ in 0..ATTEMPTS {
                let mut header = Header::read_fixed(io, oid).await?;
                if header.read_snaps(io, oid).await? {
                    return Ok(header);
                }
            }
            Err(Errno::EAGAIN.into())
        })
    }

    async fn read_fixed(io: &IoCtx, oid: &str) -> Result<Header, ClientError> {
        let head = |w: &mut denc::Writer| w.u64(NOSNAP);
        let ask = Operation::new()
            .rbd("get_size", head)
            .rbd("get_features", |w| {
                w.u64(NOSNAP);
                w.bool(true);
            })
            .rbd("get_flags", head)
            .rbd("get_snapcontext", |_| ())
            .rbd("get_object_prefix", |_| ())
            .rbd("get_data_pool", |_| ())
            .rbd("get_create_timestamp", |_| ())
            .rbd("parent_get", |_| ())
            .rbd("parent_overlap_get", head)
            .rbd("get_stripe_unit_count", |_| ())
            .failok();
        let outcome = io.operate(oid, ask).await?;
        let buf = &mut bytes::Bytes::new();
        let mut r = at(&outcome, 0, buf)?;
        let (order, size) = (r.u8()?, r.u64()?);
        if !(12..=32).contains(&order) {
            return Err(Errno::EINVAL.into());
        }
        let (unit, count) = match outcome.output(9) {
            Ok(striping) => {
                let mut r = Reader::new(&striping);
                (r.u64()?, r.u64()?)
            }
            Err(ClientError::Errno(Errno::ENOEXEC | Errno::EINVAL)) => (1 << order, 1),
            Err(error) => return Err(error),
        };
        if unit == 0 || count == 0 || unit > 1 << order || (1 << order) % unit != 0 {
            return Err(Errno::EINVAL.into());
        }
        let spec: ParentImageSpec = outcome.decode(7)?;
        let overlap: Option<u64> = outcome.decode(8)?;
        let spec = spec.exists().then_some(spec);
        Ok(Header {
            size,
            layout: Layout { order, unit, count },
            features: at(&outcome, 1, buf)?.u64()?,
            flags: at(&outcome, 2, buf)?.u64()?,
            prefix: outcome.decode(4)?,
            data_pool: at(&outcome, 5, buf)?.i64()?,
            created: outcome.decode(6)?,
            snapc: outcome.decode(3)?,
            snaps: BTreeMap::new(),
            parent: spec.clone().zip(overlap).map(|(spec, overlap)| Parent { spec, overlap }),
            parent_spec: spec,
        })
    }

    /// False if a snapshot went away meanwhile.
    async fn read_snaps(&mut self, io: &IoCtx, oid: &str) -> Result<bool, ClientError> {
        for ids in self.snapc.snaps.chunks(SNAPS_AT_A_TIME) {
            let mut ask = Operation::new();
            for id in ids {
                let snap = |w: &mut denc::Writer| w.u64(*id);
                ask = ask
                    .rbd("snapshot_get", snap)
                    .rbd("get_protection_status", snap)
                    .rbd("parent_overlap_get", snap)
                    .rbd("get_flags", snap);
            }
            let outcome = match io.operate(oid, ask).await {
                Err(ClientError::Errno(Errno::ENOENT)) => return Ok(false),
                outcome => outcome?,
            };
            for (i, id) in ids.iter().enumerate() {
                let snap: SnapshotInfo = outcome.decode(4 * i)?;
                let info = SnapInfo {
                    id: *id,
                    name: snap.name.to_string(),
                    user: snap.namespace == SnapshotNamespace::User,
                    size: snap.image_size,
                    timestamp: snap.timestamp,
                    children: snap.child_count,
                    protected: outcome.decode::<u8>(4 * i + 1)? == PROTECTED,
                    overlap: outcome.decode(4 * i + 2)?,
                    flags: outcome.decode(4 * i + 3)?,
                };
                self.snaps.insert(*id, info);
            }
        }
        Ok(true)
    }

    pub(crate) fn has(&self, feature: u64) -> bool {
        self.features & feature == feature
    }

    /// Whether the object map of the head or a snapshot exists and tells the truth.
    pub(crate) fn object_map_valid(&self, snap: SnapId) -> bool {
        let flags = match self.snaps.get(&snap) {
            Some(info) => info.flags,
            None => self.flags,
        };
        self.has(features::OBJECT_MAP) && flags & FLAG_OBJECT_MAP_INVALID == 0
    }

    /// Size of the head or a snapshot.
    pub(crate) fn size_at(&self, snap: SnapId) -> u64 {
        self.snaps.get(&snap).map_or(self.size, |info| info.size)
    }

    /// Bytes of the parent seen by the head or a snapshot.
    pub(crate) fn overlap_at(&self, snap: SnapId) -> u64 {
        match self.snaps.get(&snap) {
            Some(info) => info.overlap.unwrap_or(0),
            None => self.parent.as_ref().map_or(0, |parent| parent.overlap),
        }
    }

    /// The user's snapshot of this name.
    pub(crate) fn snap_named(&self, name: &str) -> Option<&SnapInfo> {
        self.snaps.values().find(|info| info.user && info.name == name)
    }

    pub(crate) fn data_object(&self, object: u64) -> String {
        format!("{}.{object:016x}", self.prefix)
    }
}
