//! `ceph pg ID query` and its kin.
