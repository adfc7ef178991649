//! A daemon's session with the manager: opened (0x700), configured (0x701), reported through
//! (0x702), closed (0x708).

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::MsgHeader;

use crate::Message;

/// Type 0x700: here I am.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MMgrOpen {
    /// The daemon's id: `0`.
    pub daemon_name: String,
    /// Its service, empty for the daemons of Ceph itself.
    pub service_name: String,
    /// A service daemon's metadata and status.
    pub service: Option<(BTreeMap<String, String>, BTreeMap<String, String>)>,
    /// Encoded map of option to (source to value), all that is not default.
    pub config: Bytes,
    /// Encoded map of option to default.
    pub config_defaults: Bytes,
}

impl Message for MMgrOpen {
    const TYPE: u16 = 0x700;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;
    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.daemon_name);
        w.put(&self.service_name);
        w.put(&self.service);
        w.blob(&self.config);
        w.blob(&self.config_defaults);
    }
    fn decode_front(r: &mut Reader<'_>, header: &MsgHeader, _: &Bytes) -> Result<Self, Error> {
        let mut open = MMgrOpen { daemon_name: r.get()?, ..MMgrOpen::default() };
        if header.version >= 2 {
            open.service_name = r.get()?;
            open.service = r.get()?;
        }
        if header.version >= 3 {
            open.config = r.blob()?;
            open.config_defaults = r.blob()?;
        }
        Ok(open)
    }
}

/// Type 0x708: goodbye.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct MMgrClose {
    /// See [`MMgrOpen`].
    pub daemon_name: String,
    /// See [`MMgrOpen`].
    pub service_name: String,
}
message!(MMgrClose, 0x708, 1 / 1);

/// Type 0x701: how to report. Queries of per-image and per-client metrics follow the numbers on
/// the wire; they are kept as they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MMgrConfigure {
    /// Seconds between reports.
    pub stats_period: u32,
    /// Report counters of this priority and above.
    pub stats_threshold: u32,
    /// The metric queries, encoded.
    pub queries: Bytes,
}

impl MMgrConfigure {
    /// A configuration without metric queries: an empty map and an absent message.
    pub fn plain(stats_period: u32, stats_threshold: u32) -> MMgrConfigure {
        MMgrConfigure { stats_period, stats_threshold, queries: Bytes::from_static(&[0; 5]) }
    }
}

impl Message for MMgrConfigure {
    const TYPE: u16 = 0x701;
    const VERSION: u16 = 4;
    const COMPAT: u16 = 1;
    fn encode_front(&self, w: &mut Writer) {
        w.u32(self.stats_period);
        w.u32(self.stats_threshold);
        w.raw(&self.queries);
    }
    fn decode_front(r: &mut Reader<'_>, header: &MsgHeader, _: &Bytes) -> Result<Self, Error> {
        Ok(MMgrConfigure {
            stats_period: r.u32()?,
            stats_threshold: if header.version >= 2 { r.u32()? } else { 0 },
            queries: r.rest(),
        })
    }
}

/// What a performance counter is. Wire: PerfCounterType v3.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 3, compat = 1)]
pub struct PerfCounterType {
    /// `osd.op_w`.
    pub path: String,
    /// One line.
    pub description: String,
    /// A few letters for tables.
    pub nick: String,
    /// Bits: 1 time, 2 u64, 4 average (with a count), 8 counter (only grows), 0x10 histogram.
    pub kind: u8,
    /// 0..10; 5 is useful, 8 interesting, 10 critical.
    #[denc(since = 2)]
    pub priority: u8,
    /// 0 bytes, 1 none.
    #[denc(since = 3)]
    pub unit: u8,
}

/// One number a daemon's health depends on. Wire: DaemonHealthMetric v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct DaemonHealthMetric {
    /// 0 slow ops, 1 pending PG creations.
    pub kind: u8,
    /// Kind's value: count in the low half, oldest in seconds in the high half for slow ops.
    pub value: u64,
}

/// Type 0x702: counters and health.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MMgrReport {
    /// See [`MMgrOpen`].
    pub daemon_name: String,
    /// Counters not reported before.
    pub declare_types: Vec<PerfCounterType>,
    /// Their values, in the order of their paths.
    pub packed: Bytes,
    /// Counters that are gone.
    pub undeclare_types: Vec<String>,
    /// See [`MMgrOpen`].
    pub service_name: String,
    /// A service daemon's status.
    pub daemon_status: Option<BTreeMap<String, String>>,
    /// Health.
    pub daemon_health_metrics: Vec<DaemonHealthMetric>,
    /// The configuration if it changed, as in [`MMgrOpen`].
    pub config: Bytes,
    /// Per-image and per-client metrics, task status and what newer senders append, encoded.
    pub rest: Bytes,
}

impl MMgrReport {
    /// `rest` without metrics: an empty map and two absent values.
    pub const NO_METRICS: Bytes = Bytes::from_static(&[0; 6]);
}

impl Message for MMgrReport {
    const TYPE: u16 = 0x702;
    const VERSION: u16 = 9;
    const COMPAT: u16 = 1;
    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.daemon_name);
        w.put(&self.declare_types);
        w.blob(&self.packed);
        w.put(&self.undeclare_types);
        w.put(&self.service_name);
        w.put(&self.daemon_status);
        w.put(&self.daemon_health_metrics);
        w.blob(&self.config);
        w.raw(&self.rest);
    }
    fn decode_front(r: &mut Reader<'_>, header: &MsgHeader, _: &Bytes) -> Result<Self, Error> {
        let mut report = MMgrReport {
            daemon_name: r.get()?,
            declare_types: r.get()?,
            packed: r.blob()?,
            ..MMgrReport::default()
        };
        if header.version >= 2 {
            report.undeclare_types = r.get()?;
        }
        if header.version >= 3 {
            report.service_name = r.get()?;
            report.daemon_status = r.get()?;
        }
        if header.version >= 5 {
            report.daemon_health_metrics = r.get()?;
        }
        if header.version >= 6 {
            report.config = r.blob()?;
        }
        report.rest = r.rest();
        Ok(report)
    }
}
