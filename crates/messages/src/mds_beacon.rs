//! A metadata server's sign of life to the monitors, and their answer (100).

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use maps::mdsmap::{FS_NONE, MdsState, RANK_NONE};
use types::osd::CompatSet;
use types::{MsgHeader, Uuid};

use crate::{Message, PaxosHeader};

/// Something an MDS finds wrong. Wire: MDSHealthMetric v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct MdsHealthMetric {
    /// What, by Ceph's number (mds_metric_t).
    pub kind: u16,
    /// 0 an error, 1 a warning, 2 fine.
    pub severity: u8,
    /// For people.
    pub message: String,
    /// Facts by name.
    pub metadata: BTreeMap<String, String>,
}

/// What an MDS finds wrong. Wire: MDSHealth v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct MdsHealth {
    /// All of it.
    pub metrics: Vec<MdsHealthMetric>,
}

/// Type 100.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MMDSBeacon {
    /// See [`PaxosHeader`]: the epoch of the map that the MDS has, or should have.
    pub paxos: PaxosHeader,
    /// The cluster.
    pub fsid: Uuid,
    /// The MDS.
    pub gid: u64,
    /// What it does, or wants to do.
    pub state: MdsState,
    /// Number of the beacon.
    pub seq: u64,
    /// Its name, without `mds.`.
    pub name: String,
    /// What it can read and write.
    pub compat: CompatSet,
    /// What it finds wrong.
    pub health: MdsHealth,
    /// About the daemon: `ceph mds metadata`. Sent while it boots.
    pub sys_info: BTreeMap<String, String>,
    /// Its feature bits.
    pub features: u64,
    /// Name of the file system it rather serves (`mds_join_fs`).
    pub fs: String,
}

impl Message for MMDSBeacon {
    const TYPE: u16 = 100;
    const VERSION: u16 = 8;
    const COMPAT: u16 = 6;
    const PRIORITY: u16 = types::message::PRIORITY_HIGH;

    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.paxos);
        w.put(&self.fsid);
        w.u64(self.gid);
        w.i32(self.state.0);
        w.u64(self.seq);
        w.put(&self.name);
        w.i32(RANK_NONE); // standby_for_rank
        w.blob(b""); // standby_for_name
        w.put(&self.compat);
        w.put(&self.health);
        if self.state == MdsState::BOOT {
            w.put(&self.sys_info);
        }
        w.u64(self.features);
        w.i32(FS_NONE); // standby_for_fscid
        w.bool(false); // standby_replay
        w.put(&self.fs);
    }

    fn decode_front(r: &mut Reader<'_>, header: &MsgHeader, _: &Bytes) -> Result<Self, Error> {
        let (paxos, fsid, gid) = (r.get()?, r.get()?, r.u64()?);
        let (state, seq, name) = (MdsState(r.i32()?), r.u64()?, r.get()?);
        r.i32()?;
        let _: Bytes = r.blob()?;
        let (compat, health) = (r.get()?, r.get()?);
        let sys_info = if state == MdsState::BOOT { r.get()? } else { BTreeMap::new() };
        let features = r.u64()?;
        r.i32()?;
        if header.version >= 7 {
            r.bool()?;
        }
        let fs = if header.version >= 8 { r.get()? } else { String::new() };
        Ok(MMDSBeacon {
            paxos,
            fsid,
            gid,
            state,
            seq,
            name,
            compat,
            health,
            sys_info,
            features,
            fs,
        })
    }
}
