//! Class `rgw`: what the RADOS Gateway keeps in omap: bucket indexes, garbage, lifecycle, usage,
//! resharding (`src/cls/rgw/` at v16.2).
//!
//! A bucket index shard is one object without data: the sums in its omap header ([`header`]), its
//! entries under the keys of [`key`].

pub mod bi;
pub mod bilog;
pub mod check;
pub mod entry;
pub mod gc;
pub mod header;
pub mod index;
pub mod key;
pub mod lc;
pub mod link;
pub mod list;
pub mod object;
pub mod olh;
mod packed;
pub mod reshard;
pub mod suggest;
#[cfg(test)]
mod tests;
pub mod usage;
mod version;

use crate::registry::class_method as method;
use crate::{Class, Flags};

/// The class.
pub const CLASS: Class = Class {
    name: "rgw",
    methods: &[
        method!("bucket_init_index", Flags::RD_WR, index::init),
        method!("bucket_set_tag_timeout", Flags::RD_WR, index::set_tag_timeout),
        method!("bucket_list", Flags::RD, list::list),
        method!("bucket_check_index", Flags::RD, check::check),
        method!("bucket_rebuild_index", Flags::RD_WR, check::rebuild),
        method!("bucket_update_stats", Flags::RD_WR, index::update_stats),
        method!("bucket_prepare_op", Flags::RD_WR, index::prepare),
        method!("bucket_complete_op", Flags::RD_WR, index::complete),
        method!("bucket_link_olh", Flags::RD_WR, link::link),
        method!("bucket_unlink_instance", Flags::RD_WR, link::unlink),
        method!("bucket_read_olh_log", Flags::RD, olh::read_log),
        method!("bucket_trim_olh_log", Flags::RD_WR, olh::trim_log),
        method!("bucket_clear_olh", Flags::RD_WR, olh::clear),
        method!("obj_remove", Flags::RD_WR, object::remove),
        method!("obj_store_pg_ver", Flags::WR, object::store_pg_ver),
        method!("obj_check_attrs_prefix", Flags::RD, object::check_attrs_prefix),
        method!("obj_check_mtime", Flags::RD, object::check_mtime),
        method!("bi_get", Flags::RD, bi::get),
        method!("bi_put", Flags::RD_WR, bi::put),
        method!("bi_list", Flags::RD, bi::list),
        method!("bi_log_list", Flags::RD, bilog::list),
        method!("bi_log_trim", Flags::RD_WR, bilog::trim),
        method!("bi_log_resync", Flags::RD_WR, bilog::resync),
        method!("bi_log_stop", Flags::RD_WR, bilog::stop),
        method!("dir_suggest_changes", Flags::RD_WR, suggest::suggest),
        method!("user_usage_log_add", Flags::RD_WR, usage::add),
        method!("user_usage_log_read", Flags::RD, usage::read),
        method!("user_usage_log_trim", Flags::RD_WR, usage::trim),
        method!("usage_log_clear", Flags::WR, usage::clear),
        method!("gc_set_entry", Flags::RD_WR, gc::set_entry),
        method!("gc_defer_entry", Flags::RD_WR, gc::defer_entry),
        method!("gc_list", Flags::RD, gc::list),
        method!("gc_remove", Flags::RD_WR, gc::remove),
        method!("lc_get_entry", Flags::RD, lc::get_entry),
        method!("lc_set_entry", Flags::RD_WR, lc::set_entry),
        method!("lc_rm_entry", Flags::RD_WR, lc::rm_entry),
        method!("lc_get_next_entry", Flags::RD, lc::get_next_entry),
        method!("lc_put_head", Flags::RD_WR, lc::put_head),
        method!("lc_get_head", Flags::RD, lc::get_head),
        method!("lc_list_entries", Flags::RD, lc::list_entries),
        method!("reshard_add", Flags::RD_WR, reshard::add),
        method!("reshard_list", Flags::RD, reshard::list),
        method!("reshard_get", Flags::RD, reshard::get),
        method!("reshard_remove", Flags::RD_WR, reshard::remove),
        method!("set_bucket_resharding", Flags::RD_WR, reshard::set_bucket),
        method!("clear_bucket_resharding", Flags::RD_WR, reshard::clear_bucket),
        method!("guard_bucket_resharding", Flags::RD, reshard::guard_bucket),
        method!("get_bucket_resharding", Flags::RD, reshard::get_bucket),
    ],
    filters: &[],
};
