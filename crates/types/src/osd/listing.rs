//! Outputs of listing ops: objects of a PG, watchers, clones.

use bstr::BString;
use denc::{Denc, Error, Reader, Writer};

use crate::addr::EntityAddr;
use crate::entity::EntityName;
use crate::hobject::HObject;
use crate::snap::SnapId;

/// One object of a listing: namespace, name, locator key; bare.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct NlsEntry {
    /// Namespace.
    pub namespace: BString,
    /// Name.
    pub name: BString,
    /// Locator key, empty when it equals the name.
    pub locator: BString,
}

/// Output of `pgnls`. Wire: pg_nls_response_t v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct PgNlsResponse {
    /// Where the next call starts.
    pub handle: HObject,
    /// The objects.
    pub entries: Vec<NlsEntry>,
}

/// Output of `pgls`. Wire: pg_ls_response_t: u8 1, handle, (name, key)...
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PgLsResponse {
    /// Where the next call starts.
    pub handle: HObject,
    /// Names and locator keys.
    pub entries: Vec<(BString, BString)>,
}

impl Denc for PgLsResponse {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.put(&self.handle);
        w.put(&self.entries);
    }
    fn decode(r: &mut Reader<'_>) -> Result<PgLsResponse, Error> {
        match r.u8()? {
            1 => Ok(PgLsResponse { handle: r.get()?, entries: r.get()? }),
            other => Err(Error::Invalid { what: "pgls response version", value: other.into() }),
        }
    }
}

/// Wire: watch_item_t v2/c1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 2, compat = 1)]
pub struct WatchItem {
    /// The watcher.
    pub name: EntityName,
    /// Its name for the watch.
    pub cookie: u64,
    /// Seconds.
    pub timeout_seconds: u32,
    /// Its address.
    #[denc(since = 2)]
    pub addr: EntityAddr,
}

/// Output of `list-watchers`. Wire: obj_list_watch_response_t v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ObjListWatchResponse {
    /// The watches.
    pub entries: Vec<WatchItem>,
}

/// Wire: clone_info v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct CloneInfo {
    /// Its id, or the head.
    pub cloneid: SnapId,
    /// Snapshots it serves, oldest first.
    pub snaps: Vec<SnapId>,
    /// Ranges shared with the next newer.
    pub overlap: Vec<(u64, u64)>,
    /// Bytes.
    pub size: u64,
}

/// Output of `list-snaps`. Wire: obj_list_snap_response_t v2/c1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 2, compat = 1)]
pub struct ObjListSnapResponse {
    /// Clones, oldest first, then the head if there is one.
    pub clones: Vec<CloneInfo>,
    /// Newest snapshot the head has seen.
    #[denc(since = 2)]
    pub seq: SnapId,
}
