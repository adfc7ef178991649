//! Groups of images and the trash, as methods exchange them (`src/cls/rbd/cls_rbd_types.h` at
//! v16.2).

use bstr::{BString, ByteSlice};
use denc::Denc;
use types::{Errno, UTime};

/// An image of a group. Wire: cls::rbd::GroupImageSpec v1.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
#[denc(v = 1, compat = 1)]
pub struct GroupImageSpec {
    /// Image.
    pub image_id: BString,
    /// Pool, -1 for none.
    pub pool_id: i64,
}

/// What keys of a group's images begin with.
pub(super) const IMAGE_PREFIX: &[u8] = b"image_";

impl GroupImageSpec {
    /// The group's omap key of the image: `image_POOL16_ID`, empty for no image.
    pub fn key(&self) -> BString {
        if self.pool_id == -1 {
            return BString::default();
        }
        let mut key = format!("image_{:016x}_", self.pool_id).into_bytes();
        key.extend_from_slice(&self.image_id);
        key.into()
    }

    /// The image of a key.
    pub fn from_key(key: &[u8]) -> Result<GroupImageSpec, Errno> {
        let rest = key.strip_prefix(IMAGE_PREFIX).ok_or(Errno::EIO)?;
        let (pool, image_id) = rest.split_once_str("_").ok_or(Errno::EIO)?;
        let pool = core::str::from_utf8(pool).map_err(|_| Errno::EIO)?;
        let pool = u64::from_str_radix(pool, 16).map_err(|_| Errno::EIO)?;
        Ok(GroupImageSpec { image_id: image_id.into(), pool_id: pool.cast_signed() })
    }
}

/// An image of a group and how firmly it is linked. Wire: cls::rbd::GroupImageStatus v1.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
#[denc(v = 1, compat = 1)]
pub struct GroupImageStatus {
    /// Image.
    pub spec: GroupImageSpec,
    /// attached 0, incomplete 1.
    pub state: u8,
}

/// A group. Wire: cls::rbd::GroupSpec v1.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
#[denc(v = 1, compat = 1)]
pub struct GroupSpec {
    /// Pool, -1 for no group.
    pub pool_id: i64,
    /// Group.
    pub group_id: BString,
}

impl Default for GroupSpec {
    fn default() -> GroupSpec {
        GroupSpec { pool_id: -1, group_id: BString::default() }
    }
}

/// A snapshot of an image. Wire: cls::rbd::ImageSnapshotSpec v1.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ImageSnapshotSpec {
    /// Pool.
    pub pool: i64,
    /// Image.
    pub image_id: BString,
    /// Snapshot.
    pub snap_id: u64,
}

/// The state of a group's snapshot while its images' are being taken.
pub const GROUP_SNAPSHOT_INCOMPLETE: u8 = 0;

/// A snapshot of a group. Wire: cls::rbd::GroupSnapshot v1.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
#[denc(v = 1, compat = 1)]
pub struct GroupSnapshot {
    /// Id.
    pub id: BString,
    /// Name.
    pub name: BString,
    /// incomplete 0, complete 1.
    pub state: u8,
    /// The images' snapshots.
    pub snaps: Vec<ImageSnapshotSpec>,
}

/// An image in the trash. Wire: cls::rbd::TrashImageSpec v2.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
#[denc(v = 2, compat = 1)]
pub struct TrashImageSpec {
    /// Who put it there: user 0, mirroring 1, migration 2, removing 3, user as a parent 4.
    pub source: u8,
    /// The name it had.
    pub name: BString,
    /// When it was put there.
    pub deletion_time: UTime,
    /// Until when it must stay.
    pub deferment_end_time: UTime,
    /// normal 0, moving 1, removing 2, restoring 3.
    #[denc(since = 2)]
    pub state: u8,
}
