//! What the shards of an erasure coded PG tell each other (`src/osd/ECMsgTypes.cc`,
//! `src/osd/ECUtil.cc` at v16.2).

use std::collections::{BTreeMap, BTreeSet};

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};

use super::hit_set::PgHitSetHistory;
use super::pg_log::PgLogEntry;
use super::pg_stat::PgStat;
use crate::hobject::HObject;
use crate::pg::PgShard;
use crate::reqid::OsdReqId;
use crate::version::EVersion;

/// A versioned struct kept as it came: version, compat, length and all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enveloped(pub Bytes);

/// An empty struct of version 1.
impl Default for Enveloped {
    fn default() -> Enveloped {
        Enveloped(Bytes::from_static(&[1, 1, 0, 0, 0, 0]))
    }
}

impl Denc for Enveloped {
    fn encode(&self, w: &mut Writer) {
        w.raw(&self.0);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Enveloped, Error> {
        let (version, compat) = (r.u8()?, r.u8()?);
        let body = r.blob()?;
        let mut w = Writer::with_capacity(body.len() + 6);
        w.u8(version);
        w.u8(compat);
        w.blob(&body);
        Ok(Enveloped(w.into_bytes()))
    }
}

/// A write of one shard. Wire: ECSubWrite v4/c1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 4, compat = 1, oldest = 4)]
pub struct EcSubWrite {
    /// The primary.
    pub from: PgShard,
    /// Its number for the write.
    pub tid: u64,
    /// The client's request.
    pub reqid: OsdReqId,
    /// The object.
    pub soid: HObject,
    /// The PG's statistics after.
    pub stats: PgStat,
    /// The store's transaction.
    pub transaction: Enveloped,
    /// The version.
    pub at_version: EVersion,
    /// Trim the log to here.
    pub trim_to: EVersion,
    /// The log entries.
    pub log_entries: Vec<PgLogEntry>,
    /// Temporary objects that now exist.
    pub temp_added: BTreeSet<HObject>,
    /// Temporary objects that no more do.
    pub temp_removed: BTreeSet<HObject>,
    /// Hit sets, if they changed.
    pub updated_hit_set_history: Option<PgHitSetHistory>,
    /// No entry up to here will be undone.
    pub roll_forward_to: EVersion,
    /// The shard only takes the log, it is being backfilled or recovered.
    pub backfill_or_async_recovery: bool,
}

/// Wire: ECSubWriteReply v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct EcSubWriteReply {
    /// The shard.
    pub from: PgShard,
    /// The primary's number for the write.
    pub tid: u64,
    /// The shard has no object missing up to here.
    pub last_complete: EVersion,
    /// It is durable.
    pub committed: bool,
    /// It is readable.
    pub applied: bool,
}

/// A read of one shard. Wire: ECSubRead v3/c2.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 3, compat = 2, oldest = 3)]
pub struct EcSubRead {
    /// The primary.
    pub from: PgShard,
    /// Its number for the read.
    pub tid: u64,
    /// Ranges: offset, length, op flags.
    pub to_read: BTreeMap<HObject, Vec<(u64, u64, u32)>>,
    /// Objects whose attributes it wants too.
    pub attrs_to_read: BTreeSet<HObject>,
    /// Parts of each chunk: (first, count).
    pub subchunks: BTreeMap<HObject, Vec<(i32, i32)>>,
}

/// Wire: ECSubReadReply v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct EcSubReadReply {
    /// The shard.
    pub from: PgShard,
    /// The primary's number for the read.
    pub tid: u64,
    /// Bytes by offset.
    pub buffers_read: BTreeMap<HObject, Vec<(u64, Bytes)>>,
    /// Attributes.
    pub attrs_read: BTreeMap<HObject, BTreeMap<BString, Bytes>>,
    /// Negative errno of what failed.
    pub errors: BTreeMap<HObject, i32>,
}

/// Checksums of an object's shards, attribute `hinfo_key`. Wire: ECUtil::HashInfo v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct EcHashInfo {
    /// Bytes of each shard.
    pub total_chunk_size: u64,
    /// CRC-32C of each, from -1.
    pub cumulative_shard_hashes: Vec<u32>,
}
