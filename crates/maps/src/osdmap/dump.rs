//! The map as `ceph osd dump` shows it.
