//! librbd in Rust: block devices over the objects of a pool, in Ceph's image format 2, so that
//! librbd and this open the same images, in turn or at the same time (`src/librbd/` at v16.2).
//!
//! ```text
//! pool/namespace:  rbd_directory          names and ids of all images
//!                  rbd_id.NAME            the image's id
//!                  rbd_header.ID          size, features, snapshots, parent; lock and watchers
//!                  rbd_object_map.ID[.S]  two bits for each data object, of the head and of snapshots
//! data pool:       rbd_data.ID.N          the content, 2^order bytes each, none until written
//!                  journal.ID, journal_data.POOL.ID.N    with journaling: changes before they are made
//! ```
//!
//! Everything is write-through: a write that has returned is durable, `flush` has nothing to do.
//! Operations run beside one another; what overlaps and is not waited for may end in any order.
//! Not here: the copying side of mirroring, encryption (such images open read-only or
//! not at all, with an error that says so). Images being migrated are touched by that only.
//!
//! Large futures are boxed, so that they are compiled here and not in each crate that awaits them
//! (`docs/dependencies.md`, "What a build takes").

mod class;
mod clone;
mod copyup;
mod create;
mod header;
mod image;
mod journal;
mod lock;
mod maintain;
mod migration;
mod mirror;
mod names;
mod object_map;
mod object_use;
mod pool;
mod progress;
mod read;
mod remove;
mod snapshot;
mod striping;
mod trash;
mod watcher;
mod write;

pub use clone::clone;
pub use create::{CreateOptions, create, list};
pub use header::{Parent, ParentImageSpec, SnapInfo};
pub use image::{Image, ImageInfo, OpenOptions};
pub use migration::{
    Migration, MigrationEnd, MigrationState, migration, migration_abort, migration_commit,
    migration_execute,
};
pub use mirror::BY_SNAPSHOT;
pub use names::features;
pub use pool::{image_id, image_name, mirror_image, mirror_images, mirror_mode, namespace_list};
pub use progress::OnProgress;
pub use read::{Allocated, is_hole};
pub use remove::{remove, remove_with};
pub use trash::{trash_get, trash_list, trash_purge, trash_remove};
