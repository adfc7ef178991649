//! Names of an image's objects, and the numbers of its features (`src/include/rbd_types.h` at
//! v16.2).

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

pub(crate) fn object_map(id: &str, snap: types::SnapId) -> String {
    if snap == types::snap::NOSNAP {
        format!("rbd_object_map.{id}")
    } else {
        format!("rbd_object_map.{id}.{snap:016x}")
    }
}

/// Features of an image.
pub mod features {
    /// May have a parent.
    pub const LAYERING: u64 = 1;
    /// Stripes other than whole objects.
    pub const STRIPINGV2: u64 = 2;
    /// One writer at a time.
    pub const EXCLUSIVE_LOCK: u64 = 4;
    /// Knows which objects exist.
    pub const OBJECT_MAP: u64 = 8;
    /// The object map knows what changed since a snapshot.
    pub const FAST_DIFF: u64 = 16;
    /// Flattening detaches the snapshots too.
    pub const DEEP_FLATTEN: u64 = 32;
    /// Writes go through a journal.
    pub const JOURNALING: u64 = 64;
    /// Content in another pool.
    pub const DATA_POOL: u64 = 128;
    /// Uses operations older clients must not touch.
    pub const OPERATIONS: u64 = 256;
    /// Being migrated.
    pub const MIGRATING: u64 = 512;
    /// A mirror's copy.
    pub const NON_PRIMARY: u64 = 1024;

    /// What `rbd create` gives (`rbd_default_features`).
    pub const DEFAULT: u64 = LAYERING | EXCLUSIVE_LOCK | OBJECT_MAP | FAST_DIFF | DEEP_FLATTEN;
    /// What this crate creates.
    pub const SUPPORTED: u64 = DEFAULT | STRIPINGV2 | DATA_POOL | OPERATIONS;
    /// What it does not write to.
    pub const READ_ONLY: u64 = JOURNALING | NON_PRIMARY;

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
