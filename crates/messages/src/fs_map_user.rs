//! The names of file systems, for clients (103).

use denc::Denc;
use types::Epoch;

/// A file system's name. Wire: FSMapUser::fs_info_t v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct FsInfo {
    /// Its id.
    pub cid: i32,
    /// Its name.
    pub name: String,
}

/// Wire: FSMapUser v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct FsMapUser {
    /// The map's number.
    pub epoch: Epoch,
    /// The file system of clients that name none, -1 for none.
    pub legacy_client_fscid: i32,
    /// All of them.
    pub file_systems: Vec<FsInfo>,
}

/// Type 103.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct MFSMapUser {
    /// The map's number.
    pub epoch: Epoch,
    /// The map.
    pub fsmap: FsMapUser,
}
message!(MFSMapUser, 103, 1 / 1);
