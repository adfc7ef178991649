//! Class `rbd`: everything of block devices that must happen at the object itself
//! (`src/cls/rbd/` at v16.2). Its structs are public: clients encode them too.

mod bit_vector;
mod children;
mod data;
mod directory;
pub mod features;
mod group_spec;
mod groups;
mod header;
mod keys;
mod metadata;
mod migration;
mod mirror;
mod mirror_images;
pub mod mirror_status;
mod object_map;
mod old_format;
mod parent;
pub mod snapshot;
mod snapshots;
#[cfg(test)]
mod tests;
mod trash;

pub use bit_vector::{BitVector, EXISTS, EXISTS_CLEAN, NONEXISTENT, PENDING};
pub use group_spec::{
    GROUP_SNAPSHOT_INCOMPLETE, GroupImageSpec, GroupImageStatus, GroupSnapshot, GroupSpec,
    ImageSnapshotSpec, TrashImageSpec,
};

use crate::registry::class_method as method;
use crate::{Class, Flags};

const RD: Flags = Flags::RD;
const WR: Flags = Flags::WR;
const RD_WR: Flags = Flags::RD_WR;
const PROMOTE: Flags = Flags::RD_WR.and(Flags::PROMOTE);

/// The class.
pub const CLASS: Class = Class {
    name: "rbd",
    methods: &[
        // The header.
        method!("create", RD_WR, header::create),
        method!("get_features", RD, header::get_features),
        method!("set_features", RD_WR, header::set_features),
        method!("get_all_features", RD, header::get_all_features),
        method!("op_features_get", RD, header::op_features_get),
        method!("op_features_set", RD_WR, header::op_features_set),
        method!("get_size", RD, header::get_size),
        method!("set_size", RD_WR, header::set_size),
        method!("get_flags", RD, header::get_flags),
        method!("set_flags", RD_WR, header::set_flags),
        method!("get_stripe_unit_count", RD, header::get_stripe_unit_count),
        method!("set_stripe_unit_count", RD_WR, header::set_stripe_unit_count),
        method!("get_create_timestamp", RD, header::get_create_timestamp),
        method!("get_access_timestamp", RD, header::get_access_timestamp),
        method!("get_modify_timestamp", RD, header::get_modify_timestamp),
        method!("set_access_timestamp", RD_WR, header::set_access_timestamp),
        method!("set_modify_timestamp", RD_WR, header::set_modify_timestamp),
        method!("get_object_prefix", RD, header::get_object_prefix),
        method!("get_data_pool", RD, header::get_data_pool),
        method!("get_snapcontext", RD, header::get_snapcontext),
        // Snapshots.
        method!("get_snapshot_name", RD, snapshots::get_snapshot_name),
        method!("get_snapshot_timestamp", RD, snapshots::get_snapshot_timestamp),
        method!("snapshot_get", RD, snapshots::get),
        method!("snapshot_add", RD_WR, snapshots::add),
        method!("snapshot_remove", RD_WR, snapshots::remove),
        method!("snapshot_rename", RD_WR, snapshots::rename),
        method!("snapshot_trash_add", RD_WR, snapshots::trash_add),
        method!("snapshot_get_limit", RD, snapshots::get_limit),
        method!("snapshot_set_limit", RD_WR, snapshots::set_limit),
        method!("get_protection_status", RD, snapshots::get_protection_status),
        method!("set_protection_status", RD_WR, snapshots::set_protection_status),
        // Parents and children.
        method!("get_parent", RD, parent::get_parent),
        method!("set_parent", RD_WR, parent::set_parent),
        method!("remove_parent", RD_WR, parent::remove_parent),
        method!("parent_get", RD, parent::get),
        method!("parent_overlap_get", RD, parent::overlap_get),
        method!("parent_attach", RD_WR, parent::parent_attach),
        method!("parent_detach", RD_WR, parent::parent_detach),
        method!("add_child", RD_WR, children::add_child),
        method!("remove_child", RD_WR, children::remove_child),
        method!("get_children", RD, children::get_children),
        method!("child_attach", RD_WR, children::child_attach),
        method!("child_detach", RD_WR, children::child_detach),
        method!("children_list", RD, children::children_list),
        // Metadata and migration.
        method!("metadata_list", RD, metadata::list),
        method!("metadata_set", RD_WR, metadata::set),
        method!("metadata_remove", RD_WR, metadata::remove),
        method!("metadata_get", RD, metadata::get),
        method!("migration_set", RD_WR, migration::set),
        method!("migration_set_state", RD_WR, migration::set_state),
        method!("migration_get", RD, migration::get),
        method!("migration_remove", RD_WR, migration::remove),
        // Directories.
        method!("get_id", RD, directory::get_id),
        method!("set_id", RD_WR, directory::set_id),
        method!("dir_get_id", RD, directory::dir_get_id),
        method!("dir_get_name", RD, directory::dir_get_name),
        method!("dir_list", RD, directory::list),
        method!("dir_add_image", RD_WR, directory::add_entry),
        method!("dir_remove_image", RD_WR, directory::remove_entry),
        method!("dir_rename_image", RD_WR, directory::rename_entry),
        method!("dir_state_assert", RD, directory::state_assert),
        method!("dir_state_set", RD_WR, directory::state_set),
        method!("namespace_add", RD_WR, directory::namespace_add),
        method!("namespace_remove", RD_WR, directory::namespace_remove),
        method!("namespace_list", RD, directory::namespace_list),
        // The object map.
        method!("object_map_load", RD, object_map::load),
        method!("object_map_save", RD_WR, object_map::save),
        method!("object_map_resize", RD_WR, object_map::resize),
        method!("object_map_update", RD_WR, object_map::update),
        method!("object_map_snap_add", RD_WR, object_map::snap_add),
        method!("object_map_snap_remove", RD_WR, object_map::snap_remove),
        // Images of format 1.
        method!("snap_list", RD, old_format::snap_list),
        method!("snap_add", RD_WR, old_format::snap_add),
        method!("snap_remove", RD_WR, old_format::snap_remove),
        method!("snap_rename", RD_WR, old_format::snap_rename),
        // Mirroring.
        method!("mirror_uuid_get", RD, mirror::uuid_get),
        method!("mirror_uuid_set", RD_WR, mirror::uuid_set),
        method!("mirror_mode_get", RD, mirror::mode_get),
        method!("mirror_mode_set", RD_WR, mirror::mode_set),
        method!("mirror_peer_ping", RD_WR, mirror::peer_ping),
        method!("mirror_peer_list", RD, mirror::peer_list),
        method!("mirror_peer_add", RD_WR, mirror::peer_add),
        method!("mirror_peer_remove", RD_WR, mirror::peer_remove),
        method!("mirror_peer_set_client", RD_WR, mirror::peer_set_client),
        method!("mirror_peer_set_cluster", RD_WR, mirror::peer_set_cluster),
        method!("mirror_peer_set_direction", RD_WR, mirror::peer_set_direction),
        method!("mirror_image_list", RD, mirror_images::list),
        method!("mirror_image_get_image_id", RD, mirror_images::get_image_id),
        method!("mirror_image_get", RD, mirror_images::get),
        method!("mirror_image_set", RD_WR, mirror_images::set),
        method!("mirror_image_remove", RD_WR, mirror_images::remove),
        method!("mirror_image_status_set", PROMOTE, mirror_images::status_set),
        method!("mirror_image_status_remove", RD_WR, mirror_images::status_remove),
        method!("mirror_image_status_get", RD, mirror_images::status_get),
        method!("mirror_image_status_list", RD, mirror_images::status_list),
        method!("mirror_image_status_get_summary", RD, mirror_images::status_get_summary),
        method!("mirror_image_status_remove_down", RD_WR, mirror_images::status_remove_down),
        method!("mirror_image_instance_get", RD, mirror_images::instance_get),
        method!("mirror_image_instance_list", RD, mirror_images::instance_list),
        method!("mirror_instances_list", RD, mirror_images::instances_list),
        method!("mirror_instances_add", PROMOTE, mirror_images::instances_add),
        method!("mirror_instances_remove", RD_WR, mirror_images::instances_remove),
        method!("mirror_image_map_list", RD, mirror_images::map_list),
        method!("mirror_image_map_update", WR, mirror_images::map_update),
        method!("mirror_image_map_remove", WR, mirror_images::map_remove),
        method!("mirror_image_snapshot_unlink_peer", RD_WR, mirror_images::snapshot_unlink_peer),
        method!(
            "mirror_image_snapshot_set_copy_progress",
            RD_WR,
            mirror_images::snapshot_set_copy_progress
        ),
        // Groups.
        method!("group_dir_list", RD, directory::list),
        method!("group_dir_add", RD_WR, directory::add_entry),
        method!("group_dir_remove", RD_WR, directory::remove_entry),
        method!("group_dir_rename", RD_WR, directory::rename_entry),
        method!("group_image_remove", RD_WR, groups::image_remove),
        method!("group_image_list", RD, groups::image_list),
        method!("group_image_set", RD_WR, groups::image_set),
        method!("image_group_add", RD_WR, groups::image_group_add),
        method!("image_group_remove", RD_WR, groups::image_group_remove),
        method!("image_group_get", RD, groups::image_group_get),
        method!("group_snap_set", RD_WR, groups::snap_set),
        method!("group_snap_remove", RD_WR, groups::snap_remove),
        method!("group_snap_get_by_id", RD, groups::snap_get_by_id),
        method!("group_snap_list", RD, groups::snap_list),
        // The trash.
        method!("trash_add", RD_WR, trash::add),
        method!("trash_remove", RD_WR, trash::remove),
        method!("trash_list", RD, trash::list),
        method!("trash_get", RD, trash::get),
        method!("trash_state_set", RD_WR, trash::state_set),
        // Data objects.
        method!("copyup", RD_WR, data::copyup),
        method!("sparse_copyup", RD_WR, data::sparse_copyup),
        method!("assert_snapc_seq", RD_WR, data::assert_snapc_seq),
        method!("sparsify", RD_WR, data::sparsify),
    ],
    filters: &[],
};
