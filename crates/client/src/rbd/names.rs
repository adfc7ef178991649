//! Names of an image's objects, and the numbers of its features (`src/include/rbd_types.h` at
//! v16.2).

use cls::rbd::snapshot::ParentImageSpec;

/// The list of a pool's images.
pub(crate) const DIRECTORY: &str = "rbd_directory";
/// Clones of the first kind, by parent snapshot.
pub(crate) const CHILDREN: &str = "rbd_children";
/// The lock that a writer holds on the header.
pub(crate) const LOCK: &str = "rbd_lock";
/// Its tag when a librbd (or this) holds it by itself.
pub(crate) const LOCK_TAG: &str = "internal";
/// What the lock's cookie begins with; the watch's cookie follows.
pub(crate) const LOCK_COOKIE: &str = "auto ";

pub(crate) fn id_object(name: &str) -> String {
    format!("rbd_id.{name}")
}

pub(crate) fn header(id: &str) -> String {
    format!("rbd_header.{id}")
}

pub(crate) fn header_of(spec: &ParentImageSpec) -> String {
    format!("rbd_header.{}", spec.image_id)
}

pub(crate) fn object_map(id: &str, snap: types::SnapId) -> String {
    if snap == types::snap::NOSNAP {
        format!("rbd_object_map.{id}")
    } else {
        format!("rbd_object_map.{id}.{snap:016x}")
    }
}

/// Features of an image.
pub mod features {
    pub use cls::rbd::features::{
        DATA_POOL, DEEP_FLATTEN, EXCLUSIVE_LOCK, FAST_DIFF, JOURNALING, LAYERING, MIGRATING,
        NON_PRIMARY, OBJECT_MAP, OPERATIONS, STRIPINGV2,
    };

    /// What `rbd create` gives (`rbd_default_features`).
    pub const DEFAULT: u64 = LAYERING | EXCLUSIVE_LOCK | OBJECT_MAP | FAST_DIFF | DEEP_FLATTEN;
    /// What this crate creates.
    pub const SUPPORTED: u64 = DEFAULT | STRIPINGV2 | DATA_POOL | OPERATIONS | JOURNALING;
    /// What it does not write to.
    pub const READ_ONLY: u64 = NON_PRIMARY;

    const NAMES: [(u64, &str); 11] = [
        (LAYERING, "layering"),
        (STRIPINGV2, "striping"),
        (EXCLUSIVE_LOCK, "exclusive-lock"),
        (OBJECT_MAP, "object-map"),
        (FAST_DIFF, "fast-diff"),
        (DEEP_FLATTEN, "deep-flatten"),
        (JOURNALING, "journaling"),
        (DATA_POOL, "data-pool"),
        (OPERATIONS, "operations"),
        (MIGRATING, "migrating"),
        (NON_PRIMARY, "non-primary"),
    ];

    /// The names of the bits, as `rbd info` prints them.
    pub fn names(bits: u64) -> Vec<&'static str> {
        NAMES.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect()
    }

    /// The bit of a name.
    pub fn parse(name: &str) -> Option<u64> {
        NAMES.iter().find(|(_, n)| *n == name).map(|(bit, _)| *bit)
    }
}
