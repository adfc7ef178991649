//! The log of a PG: what each write did, and the requests it still remembers.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};

use super::clean_regions::ObjectCleanRegions;
use super::mod_desc::ObjectModDesc;
use crate::hobject::HObject;
use crate::reqid::OsdReqId;
use crate::snap::SnapId;
use crate::time::UTime;
use crate::version::EVersion;

/// What an entry did. Wire: s32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Denc)]
pub struct LogOp(pub i32);

impl LogOp {
    /// A write.
    pub const MODIFY: LogOp = LogOp(1);
    /// A clone was made.
    pub const CLONE: LogOp = LogOp(2);
    /// A deletion.
    pub const DELETE: LogOp = LogOp(3);
    /// A lost write was given up for the version before.
    pub const LOST_REVERT: LogOp = LogOp(5);
    /// A lost object was given up.
    pub const LOST_DELETE: LogOp = LogOp(6);
    /// A lost object was marked so.
    pub const LOST_MARK: LogOp = LogOp(7);
    /// A promotion from the base tier.
    pub const PROMOTE: LogOp = LogOp(8);
    /// An object was marked clean after a flush.
    pub const CLEAN: LogOp = LogOp(9);
    /// Nothing but a failed request.
    pub const ERROR: LogOp = LogOp(10);

    /// The name as Ceph prints it.
    pub fn name(self) -> &'static str {
        match self {
            LogOp::MODIFY => "modify",
            LogOp::CLONE => "clone",
            LogOp::DELETE => "delete",
            LogOp::LOST_REVERT => "l_revert",
            LogOp::LOST_DELETE => "l_delete",
            LogOp::LOST_MARK => "l_mark",
            LogOp::PROMOTE => "promote",
            LogOp::CLEAN => "clean",
            LogOp::ERROR => "error",
            _ => "unknown",
        }
    }
}

/// What one op of a write returned. Wire: pg_log_op_return_item_t: s32, blob, bare.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct LogOpReturn {
    /// Its result.
    pub rval: i32,
    /// Its output.
    pub outdata: Bytes,
}

/// Wire: pg_log_entry_t v14/c4.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PgLogEntry {
    /// What it did.
    pub op: LogOp,
    /// To which object.
    pub soid: HObject,
    /// The object's version after.
    pub version: EVersion,
    /// The object's version before, 0'0 if there was none.
    pub prior_version: EVersion,
    /// Version clients see.
    pub user_version: u64,
    /// The request.
    pub reqid: OsdReqId,
    /// When, by the client's clock.
    pub mtime: UTime,
    /// How to undo it.
    pub mod_desc: ObjectModDesc,
    /// The request's result.
    pub return_code: i32,
    /// What it left untouched.
    pub clean_regions: ObjectCleanRegions,
    /// What else it says, if anything: [`PgLogEntry::extras`].
    pub extras: Option<Box<LogExtras>>,
}

/// What few entries say; an OSD keeps thousands that do not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogExtras {
    /// [`LogOp::LOST_REVERT`]: the version that is back.
    pub reverting_to: EVersion,
    /// [`LogOp::CLONE`]: the clone's snapshots, an encoded `Vec<SnapId>`.
    pub snaps: Bytes,
    /// Requests that came with the object (copy-from, promotion) and their user versions.
    pub extra_reqids: Vec<(OsdReqId, u64)>,
    /// Results of those that failed, by index.
    pub extra_reqid_return_codes: BTreeMap<u32, i32>,
    /// What its ops returned, if it asked to keep that.
    pub op_returns: Vec<LogOpReturn>,
}

static NO_EXTRAS: LogExtras = LogExtras {
    reverting_to: EVersion::ZERO,
    snaps: Bytes::new(),
    extra_reqids: Vec::new(),
    extra_reqid_return_codes: BTreeMap::new(),
    op_returns: Vec::new(),
};

impl LogExtras {
    /// As entries hold it: nothing, where it says nothing.
    pub fn boxed(self) -> Option<Box<LogExtras>> {
        (self != NO_EXTRAS).then(|| Box::new(self))
    }
}

impl PgLogEntry {
    /// What few entries say.
    pub fn extras(&self) -> &LogExtras {
        self.extras.as_deref().unwrap_or(&NO_EXTRAS)
    }

    /// The same, for who has something to say.
    pub fn extras_mut(&mut self) -> &mut LogExtras {
        self.extras.get_or_insert_default()
    }

    /// Whether a clone was made.
    pub fn is_clone(&self) -> bool {
        self.op == LogOp::CLONE
    }

    /// Whether the object exists no more.
    pub fn is_delete(&self) -> bool {
        matches!(self.op, LogOp::DELETE | LogOp::LOST_DELETE)
    }

    /// Whether this is [`LogOp::ERROR`].
    pub fn is_error(&self) -> bool {
        self.op == LogOp::ERROR
    }

    /// Whether this is [`LogOp::LOST_REVERT`].
    pub fn is_lost_revert(&self) -> bool {
        self.op == LogOp::LOST_REVERT
    }

    /// Whether the reqid is a client's that may come again: any known op.
    pub fn reqid_is_indexed(&self) -> bool {
        !self.reqid.is_blank()
            && matches!(self.op, LogOp::MODIFY | LogOp::DELETE | LogOp::ERROR | LogOp::LOST_DELETE)
    }

    /// The clone's snapshots.
    pub fn decoded_snaps(&self) -> Result<Vec<SnapId>, Error> {
        let snaps = &self.extras().snaps;
        if snaps.is_empty() { Ok(Vec::new()) } else { Vec::from_bytes(snaps) }
    }

    /// The key it is stored under.
    pub fn key_name(&self) -> String {
        self.version.key_name()
    }
}

impl Denc for PgLogEntry {
    fn encode(&self, w: &mut Writer) {
        let extras = self.extras();
        w.envelope(14, 4, |w| {
            w.put(&self.op);
            w.put(&self.soid);
            w.put(&self.version);
            // Readers of before reverting_to take it for prior_version.
            if self.is_lost_revert() {
                w.put(&extras.reverting_to);
            } else {
                w.put(&self.prior_version);
            }
            w.put(&self.reqid);
            w.put(&self.mtime);
            if self.is_lost_revert() {
                w.put(&self.prior_version);
            }
            w.blob(&extras.snaps);
            w.u64(self.user_version);
            w.put(&self.mod_desc);
            w.put(&extras.extra_reqids);
            if self.is_error() {
                w.i32(self.return_code);
            }
            if !extras.extra_reqids.is_empty() {
                w.put(&extras.extra_reqid_return_codes);
            }
            w.put(&self.clean_regions);
            if !self.is_error() {
                w.i32(self.return_code);
            }
            w.put(&extras.op_returns);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<PgLogEntry, Error> {
        r.envelope("PgLogEntry", 14, 11, |r, v| {
            let mut entry = PgLogEntry {
                op: r.get()?,
                soid: r.get()?,
                version: r.get()?,
                prior_version: r.get()?,
                reqid: r.get()?,
                mtime: r.get()?,
                ..PgLogEntry::default()
            };
            let mut extras = LogExtras::default();
            if entry.is_lost_revert() {
                extras.reverting_to = entry.prior_version;
                entry.prior_version = r.get()?;
            }
            extras.snaps = r.blob()?;
            entry.user_version = r.u64()?;
            entry.mod_desc = r.get()?;
            extras.extra_reqids = r.get()?;
            if entry.is_error() {
                entry.return_code = r.i32()?;
            }
            if v >= 12 && !extras.extra_reqids.is_empty() {
                extras.extra_reqid_return_codes = r.get()?;
            }
            entry.clean_regions =
                if v >= 13 { r.get()? } else { ObjectCleanRegions::fully_dirty() };
            if v >= 14 {
                if !entry.is_error() {
                    entry.return_code = r.i32()?;
                }
                extras.op_returns = r.get()?;
            }
            entry.extras = extras.boxed();
            Ok(entry)
        })
    }
}

/// A request remembered after its entry was trimmed. Wire: pg_log_dup_t v2/c1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 2, compat = 1)]
pub struct PgLogDup {
    /// The request.
    pub reqid: OsdReqId,
    /// The version it made.
    pub version: EVersion,
    /// Version clients see.
    pub user_version: u64,
    /// Its result.
    pub return_code: i32,
    /// What its ops returned.
    #[denc(since = 2)]
    pub op_returns: Vec<LogOpReturn>,
}

impl PgLogDup {
    /// What remains of an entry.
    pub fn of(entry: &PgLogEntry) -> PgLogDup {
        PgLogDup {
            reqid: entry.reqid,
            version: entry.version,
            user_version: entry.user_version,
            return_code: entry.return_code,
            op_returns: entry.extras().op_returns.clone(),
        }
    }

    /// The key it is stored under.
    pub fn key_name(&self) -> String {
        format!("dup_{}", self.version.key_name())
    }
}

/// Wire: pg_log_t v7/c3.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 7, compat = 3, oldest = 7)]
pub struct PgLog {
    /// Version of the newest entry.
    pub head: EVersion,
    /// Version before the oldest entry.
    pub tail: EVersion,
    /// Entries, oldest first.
    pub log: VecDeque<PgLogEntry>,
    /// Entries after this can still be undone.
    pub can_rollback_to: EVersion,
    /// What undoing entries up to here needed is gone.
    pub rollback_info_trimmed_to: EVersion,
    /// Requests of trimmed entries, oldest first.
    pub dups: VecDeque<PgLogDup>,
}
