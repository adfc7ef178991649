//! Feature bits of images (`src/include/rbd/features.h` at v16.2) and constants of the on-disk
//! format that clients share (`src/include/rbd_types.h`).

/// Clones of snapshots.
pub const LAYERING: u64 = 1;
/// A stripe unit other than the object size.
pub const STRIPINGV2: u64 = 1 << 1;
/// One writer at a time.
pub const EXCLUSIVE_LOCK: u64 = 1 << 2;
/// Which data objects exist.
pub const OBJECT_MAP: u64 = 1 << 3;
/// Which data objects changed since the last snapshot.
pub const FAST_DIFF: u64 = 1 << 4;
/// Flattening reaches into snapshots.
pub const DEEP_FLATTEN: u64 = 1 << 5;
/// Writes go to a journal first.
pub const JOURNALING: u64 = 1 << 6;
/// Data objects lie in another pool.
pub const DATA_POOL: u64 = 1 << 7;
/// Some operation feature is in use.
pub const OPERATIONS: u64 = 1 << 8;
/// Source or destination of a live migration.
pub const MIGRATING: u64 = 1 << 9;
/// A mirror's copy: clients must not write.
pub const NON_PRIMARY: u64 = 1 << 10;
/// A persistent cache of a client holds writes.
pub const DIRTY_CACHE: u64 = 1 << 11;

/// All features of this release.
pub const ALL: u64 = (1 << 12) - 1;
/// Features a reader must know.
pub const INCOMPATIBLE: u64 = LAYERING | STRIPINGV2 | DATA_POOL | DIRTY_CACHE;
/// Features a writer must know.
pub const RW_INCOMPATIBLE: u64 = ALL;
/// Features that can be switched on and off.
pub const MUTABLE: u64 =
    EXCLUSIVE_LOCK | OBJECT_MAP | FAST_DIFF | JOURNALING | NON_PRIMARY | DIRTY_CACHE;
/// Features that can only be switched off.
pub const DISABLE_ONLY: u64 = DEEP_FLATTEN;
/// Features that only the class itself sets.
pub const INTERNAL: u64 = OPERATIONS | MIGRATING;

/// Operation features: what an image is part of.
pub mod operation {
    /// Clones of the second kind hang on a snapshot.
    pub const CLONE_PARENT: u64 = 1;
    /// A clone of the second kind.
    pub const CLONE_CHILD: u64 = 1 << 1;
    /// Member of a group.
    pub const GROUP: u64 = 1 << 2;
    /// Removed snapshots wait for their clones.
    pub const SNAP_TRASH: u64 = 1 << 3;
    /// All of this release.
    pub const ALL: u64 = (1 << 4) - 1;
}

/// The snapshot id of the image itself.
pub const NOSNAP: u64 = u64::MAX - 1;
/// The largest id of a snapshot.
pub const MAXSNAP: u64 = u64::MAX - 2;

/// The snapshot may be removed.
pub const UNPROTECTED: u8 = 0;
/// Being made removable: no new clones.
pub const UNPROTECTING: u8 = 1;
/// The snapshot may have clones.
pub const PROTECTED: u8 = 2;
