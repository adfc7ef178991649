//! Who is told which part of the map (`MDSMonitor::check_sub` at v16.2).
//!
//! | name | sent |
//! |---|---|
//! | `fsmap` | all of it (managers, commands) |
//! | `fsmap.user` | names and numbers (clients that mount by name) |
//! | `mdsmap` | to an MDS: its file system's, or one with itself alone while it waits; to a client: the default file system's |
//! | `mdsmap.N` | file system N's (clients) |

use denc::Denc;
use maps::FsMap;
use maps::mdsmap::{FS_NONE, FsId, MdsMap};
use messages::{FsInfo, FsMapUser, MFSMap, MFSMapUser, MMDSMap};
use types::{Epoch, RawMessage};

use crate::core::MonCore;
use crate::event::{SessionId, wire};

impl MonCore {
    /// Sends a subscriber what is due; gives the epoch it wants next, `None`: nothing was due.
    pub(crate) fn serve_fsmap(&mut self, id: SessionId, name: &str, next: u64) -> Option<u64> {
        let epoch = self.mds.published.epoch;
        match name {
            _ if next > u64::from(epoch) => return None,
            "fsmap" => {
                let m = MFSMap { epoch, fsmap: self.fsmap_for(id) };
                self.send_now(id, wire(&m));
            }
            "fsmap.user" => {
                let map = self.fsmap_for(id);
                let all = map.filesystems.values();
                let fsmap = FsMapUser {
                    epoch,
                    legacy_client_fscid: map.legacy_client_fscid,
                    file_systems: all
                        .map(|fs| FsInfo { cid: fs.fscid, name: fs.name().to_string() })
                        .collect(),
                };
                self.send_now(id, wire(&MFSMapUser { epoch, fsmap }));
            }
            _ => {
                let map = self.mdsmap_for(id, name, next)?;
                let message = self.mdsmap_message(&map);
                self.send_now(id, message);
                return Some(u64::from(map.epoch) + 1);
            }
        }
        Some(u64::from(epoch) + 1)
    }

    /// Whether a session may know a file system of that name, and change it as far as it may change any.
    pub(crate) fn may_know(&self, id: SessionId, fs_name: &str) -> bool {
        let names = self.sessions.get(&id).and_then(|session| session.caps.mon.fs_names());
        names.is_none_or(|names| names.contains(&fs_name))
    }

    /// The committed map without the file systems that a session may not know.
    pub(crate) fn fsmap_for(&self, id: SessionId) -> FsMap {
        self.known_of(id, &self.mds.published)
    }

    /// The same of any map.
    pub(crate) fn known_of(&self, id: SessionId, map: &FsMap) -> FsMap {
        let mut map = map.clone();
        map.filesystems.retain(|_, fs| self.may_know(id, fs.name()));
        let known: Vec<FsId> = map.filesystems.keys().copied().collect();
        map.mds_roles.retain(|_, fscid| *fscid == FS_NONE || known.contains(fscid));
        map
    }

    /// A map as it is sent.
    fn mdsmap_message(&self, map: &MdsMap) -> RawMessage {
        wire(&MMDSMap {
            fsid: self.monmap.fsid,
            epoch: map.epoch,
            map: map.to_bytes(),
            fs_name: String::new(),
        })
    }

    /// A map of an epoch in which an MDS has no place.
    fn null_mdsmap(&self, epoch: Epoch) -> MdsMap {
        let compat = self.mds.published.default_compat.clone();
        MdsMap { epoch, compat, ..MdsMap::default() }
    }

    /// Tells an MDS, once it is committed, that it has no place any more: it begins anew.
    pub(super) fn send_away(&mut self, id: SessionId) {
        let message = self.mdsmap_message(&self.null_mdsmap(self.mds.map.epoch));
        self.send(id, message);
    }

    /// The map that a subscriber is to have, if it is one of the epochs from `next` on.
    fn mdsmap_for(&self, id: SessionId, name: &str, next: u64) -> Option<MdsMap> {
        let map = &self.mds.published;
        let peer = &self.sessions.get(&id)?.peer;
        let gid = peer.global_id;
        let (own, waits) = match peer.name.is_mds() {
            true => (map.fs_of(gid), map.standby_daemons.get(&gid)),
            false => {
                let fscid = match name.strip_prefix("mdsmap.") {
                    Some(number) => number.parse::<FsId>().ok()?,
                    None => map.legacy_client_fscid,
                };
                let fs = map.filesystems.get(&fscid).filter(|fs| self.may_know(id, fs.name()));
                (Some(fs?), None)
            }
        };
        let epoch = match own {
            Some(fs) => fs.mds_map.epoch,
            None => map.standby_epochs.get(&gid).copied().unwrap_or(map.epoch),
        };
        if next > u64::from(epoch) {
            return None;
        }
        Some(match own {
            Some(fs) => fs.mds_map.clone(),
            None => MdsMap {
                info: waits.map(|info| (gid, info.clone())).into_iter().collect(),
                ..self.null_mdsmap(epoch)
            },
        })
    }
}
