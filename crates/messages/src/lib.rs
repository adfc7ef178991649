//! Message bodies: what is between a message's header and its payload. One file a message (a
//! request and its reply share one), layouts as 16.2 sends them (src/messages/*.h at v16.2).
//! Sockets are not known here.
//!
//! A body whose front is its fields in order derives `Denc` and is declared by `message!`; the
//! others implement [`Message`] by hand.

use bytes::Bytes;
use denc::{Error, Reader, Writer};
use types::message::PRIORITY_DEFAULT;
use types::{BufferList, MsgHeader, RawMessage};

/// Header flags of 16.2: front and data are checksummed.
const HEADER_FLAGS: u8 = 3;
/// Room that a front begins with, in bytes, unless its message says otherwise.
const FRONT_ROOM: usize = 1024;

/// A message with a known layout.
pub trait Message: Sized {
    /// `header.kind`.
    const TYPE: u16;
    /// Version of the front we write.
    const VERSION: u16;
    /// Oldest reader that can read it.
    const COMPAT: u16;
    /// Priority unless the sender changes it.
    const PRIORITY: u16 = PRIORITY_DEFAULT;
    /// Room that the front begins with, in bytes: a usual one fits without growing.
    const ROOM: usize = FRONT_ROOM;

    /// Writes the front.
    fn encode_front(&self, w: &mut Writer);
    /// The payload, by reference.
    fn payload(&self) -> BufferList {
        BufferList::new()
    }
    /// Reads the front; `data` is the message's payload.
    fn decode_front(r: &mut Reader<'_>, header: &MsgHeader, data: &Bytes) -> Result<Self, Error>;

    /// The message ready to send; seq and tid are the carrier's.
    fn encode(&self) -> RawMessage {
        let mut w = Writer::with_capacity(Self::ROOM);
        self.encode_front(&mut w);
        let data = self.payload();
        let header = MsgHeader {
            kind: Self::TYPE,
            priority: Self::PRIORITY,
            version: Self::VERSION,
            compat_version: Self::COMPAT,
            data_off: data.page_offset(),
            flags: HEADER_FLAGS,
            ..MsgHeader::default()
        };
        RawMessage { header, front: w.into_bytes(), middle: Bytes::new(), data }
    }

    /// Reads a message of this type; one that needs a newer reader is refused.
    fn decode(raw: &RawMessage) -> Result<Self, Error> {
        if raw.header.compat_version > Self::VERSION {
            return Err(Error::Invalid {
                what: "message compat version",
                value: raw.header.compat_version.into(),
            });
        }
        let data = raw.data.to_contiguous();
        Self::decode_front(&mut Reader::new(&raw.front), &raw.header, &data)
    }
}

/// Declares messages whose front is the body's own encoding:
/// `message!(MMonMap, 4, 1/1)`, or with a priority `message!(MOSDPGInfo2, 132, 1/1, 196)`.
macro_rules! message {
    ($name:ty, $kind:expr, $v:literal / $c:literal) => {
        message!($name, $kind, $v / $c, types::message::PRIORITY_DEFAULT);
    };
    ($name:ty, $kind:expr, $v:literal / $c:literal, $priority:expr) => {
        impl $crate::Message for $name {
            const TYPE: u16 = $kind;
            const VERSION: u16 = $v;
            const COMPAT: u16 = $c;
            const PRIORITY: u16 = $priority;
            fn encode_front(&self, w: &mut denc::Writer) {
                denc::Denc::encode(self, w);
            }
            fn decode_front(
                r: &mut denc::Reader<'_>,
                _: &types::MsgHeader,
                _: &bytes::Bytes,
            ) -> Result<Self, denc::Error> {
                denc::Denc::decode(r)
            }
        }
    };
}

mod auth;
mod command;
mod config;
mod fs_map;
mod fs_map_user;
mod get_pool_stats;
mod kv_data;
mod log;
mod mds_beacon;
mod mds_map;
mod mgr_beacon;
mod mgr_digest;
mod mgr_map;
mod mgr_session;
mod mon_get_version;
mod mon_map;
mod mon_mgr_report;
mod mon_subscribe;
mod osd_alive;
mod osd_backoff;
mod osd_beacon;
mod osd_boot;
mod osd_ec_sub_op;
mod osd_failure;
mod osd_force_recovery;
mod osd_full;
mod osd_map;
mod osd_mark_me;
mod osd_op;
mod osd_op_reply;
pub mod osd_perf_query;
mod osd_pg_created;
mod osd_pg_peering;
mod osd_pg_push;
mod osd_pg_ready_to_merge;
mod osd_pg_scan;
mod osd_pg_temp;
mod osd_pg_update_log_missing;
mod osd_ping;
mod osd_repop;
mod osd_scrub;
mod paxos;
mod pg_stats;
mod ping;
mod pool_op;
mod reserve;
mod statfs;
mod watch_notify;

pub use auth::{MAuth, MAuthReply};
pub use command::{
    MCommand, MCommandReply, MMgrCommand, MMgrCommandReply, MMonCommand, MMonCommandAck,
};
pub use config::{MConfig, MGetConfig};
pub use fs_map::MFSMap;
pub use fs_map_user::{FsInfo, FsMapUser, MFSMapUser};
pub use get_pool_stats::{MGetPoolStats, MGetPoolStatsReply};
pub use kv_data::MKVData;
pub use log::{LogEntry, MLog, MLogAck};
pub use mds_beacon::{MMDSBeacon, MdsHealth, MdsHealthMetric};
pub use mds_map::{MMDSLoadTargets, MMDSMap};
pub use mgr_beacon::{MMgrBeacon, MonCommand};
pub use mgr_digest::MMgrDigest;
pub use mgr_map::{MMgrMap, MServiceMap};
pub use mgr_session::{
    DaemonHealthMetric, MMgrClose, MMgrConfigure, MMgrOpen, MMgrReport, PerfCounterType,
};
pub use mon_get_version::{MMonGetVersion, MMonGetVersionReply};
pub use mon_map::{MMonGetMap, MMonMap};
pub use mon_mgr_report::{MMonMgrReport, ProgressEvent};
pub use mon_subscribe::{MMonSubscribe, MMonSubscribeAck, SUBSCRIBE_ONETIME, SubscribeItem};
pub use osd_alive::MOSDAlive;
pub use osd_backoff::{BackoffOp, MOSDBackoff};
pub use osd_beacon::MOSDBeacon;
pub use osd_boot::MOSDBoot;
pub use osd_ec_sub_op::{
    MOSDECSubOpRead, MOSDECSubOpReadReply, MOSDECSubOpWrite, MOSDECSubOpWriteReply,
};
pub use osd_failure::{FAILURE_FAILED, FAILURE_IMMEDIATE, MOSDFailure};
pub use osd_force_recovery::MOSDForceRecovery;
pub use osd_full::MOSDFull;
pub use osd_map::MOSDMap;
pub use osd_mark_me::{MOSDMarkMeDead, MOSDMarkMeDown};
pub use osd_op::MOSDOp;
pub use osd_op_reply::{MOSDOpReply, REACHED};
pub use osd_pg_created::MOSDPGCreated;
pub use osd_pg_peering::{
    MOSDPGCreate2, MOSDPGInfo2, MOSDPGLease, MOSDPGLeaseAck, MOSDPGLog, MOSDPGNotify,
    MOSDPGNotify2, MOSDPGQuery2, MOSDPGRemove,
};
pub use osd_pg_push::{
    MOSDPGPull, MOSDPGPush, MOSDPGPushReply, MOSDPGRecoveryDelete, MOSDPGRecoveryDeleteReply,
};
pub use osd_pg_ready_to_merge::MOSDPGReadyToMerge;
pub use osd_pg_scan::{BackfillOp, MOSDPGBackfill, MOSDPGBackfillRemove, MOSDPGScan, ScanOp};
pub use osd_pg_temp::MOSDPGTemp;
pub use osd_pg_update_log_missing::{MOSDPGUpdateLogMissing, MOSDPGUpdateLogMissingReply};
pub use osd_ping::{MOSDPing, PingOp, SignedSpan};
pub use osd_repop::{MOSDRepOp, MOSDRepOpReply};
pub use osd_scrub::{MOSDRepScrub, MOSDRepScrubMap, MOSDScrub2, MOSDScrubReserve, ScrubReserveOp};
pub use paxos::PaxosHeader;
pub use pg_stats::{MPGStats, MPGStatsAck};
pub use ping::MPing;
pub use pool_op::{MPoolOp, MPoolOpReply, PoolOpCode};
pub use reserve::{MBackfillReserve, MOSDPGTrim, MRecoveryReserve};
pub use statfs::{MStatfs, MStatfsReply};
pub use watch_notify::{MWatchNotify, NotifyOpcode};
