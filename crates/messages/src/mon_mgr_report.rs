//! What the active manager knows of the cluster, for the monitors (0x706).

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use maps::HealthCheckMap;
use types::{BufferList, MsgHeader};

use crate::{Message, PaxosHeader};

/// How far something long has come. Wire: ProgressEvent v2.
#[derive(Debug, Clone, PartialEq, Default, Denc)]
#[denc(v = 2, compat = 1)]
pub struct ProgressEvent {
    /// What goes on, with a bar.
    pub message: String,
    /// 0 to 1.
    pub progress: f32,
    /// Whether `ceph -s` shows it.
    #[denc(since = 2)]
    pub add_to_ceph_s: bool,
}

/// Type 0x706.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MMonMgrReport {
    /// See [`PaxosHeader`].
    pub paxos: PaxosHeader,
    /// Findings.
    pub health_checks: HealthCheckMap,
    /// Encoded ServiceMap; empty: as before.
    pub service_map: Bytes,
    /// What goes on.
    pub progress_events: BTreeMap<String, ProgressEvent>,
    /// The manager's global id, 0 from 16.2.0.
    pub gid: u64,
    /// Encoded PGMapDigest (the payload).
    pub pg_map_digest: Bytes,
}

impl Message for MMonMgrReport {
    const TYPE: u16 = 0x706;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;

    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.paxos);
        w.put(&self.health_checks);
        w.blob(&self.service_map);
        w.put(&self.progress_events);
        w.u64(self.gid);
    }
    fn payload(&self) -> BufferList {
        self.pg_map_digest.clone().into()
    }
    fn decode_front(r: &mut Reader<'_>, header: &MsgHeader, data: &Bytes) -> Result<Self, Error> {
        Ok(MMonMgrReport {
            paxos: r.get()?,
            health_checks: r.get()?,
            service_map: r.blob()?,
            progress_events: if header.version >= 2 { r.get()? } else { BTreeMap::new() },
            gid: if header.version >= 3 { r.u64()? } else { 0 },
            pg_map_digest: data.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_the_wire() {
        let mut report = MMonMgrReport {
            gid: 4123,
            pg_map_digest: Bytes::from_static(b"digest"),
            service_map: Bytes::from_static(b"map"),
            ..MMonMgrReport::default()
        };
        report.health_checks.add("PG_DEGRADED", maps::Severity::Warn, "worse", 3);
        report.progress_events.insert("e".into(), ProgressEvent::default());
        assert_eq!(MMonMgrReport::decode(&report.encode()).unwrap(), report);
    }
}
