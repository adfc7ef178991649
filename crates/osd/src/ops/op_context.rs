//! The state of one op vector while it runs: the object as it will be, the transaction that makes
//! it so, and what is to be counted, logged and told.

use std::rc::Rc;

use bstr::BString;
use bytes::Bytes;
use maps::PgPool;
use store::{CollId, StoreError, Transaction};
use types::osd::{ObjectCleanRegions, ObjectStatSum, OsdOp, SnapSet};
use types::{Errno, GhObject, HObject, IntervalSet, OsdReqId, SnapContext, UTime};

use super::execute::Request;
use super::object_context::{ObjectContext, ObjectGuard, ObjectState};
use super::pg::{Limits, Pg};
use super::shared::Shared;
use super::watch::Effects;

/// Why a vector stops.
#[derive(Debug)]
pub(super) enum Stop {
    /// An op failed.
    Errno(Errno),
    /// What an object was to be copied from cannot be: answered at once, and not logged.
    NoSource(Errno),
    /// An object the op needs is missing or degraded: try again after its recovery.
    Blocked(HObject),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Stop {
        Stop::Errno(errno)
    }
}

impl From<StoreError> for Stop {
    fn from(e: StoreError) -> Stop {
        Stop::Errno(Errno(e.errno()))
    }
}

/// What an op gives: its result (0 or a positive number) and output are left in its slot.
pub(super) type Step = Result<i32, Stop>;

/// What the vector did to the clients' xattrs, in order.
#[derive(Debug)]
pub(super) enum AttrChange {
    /// Set or removed one.
    One(BString, Option<Bytes>),
    /// Removed all.
    Clear,
    /// Replaced them by some this context does not know.
    Unknown,
}

/// The state.
pub(super) struct OpContext {
    pub(super) pg: Rc<dyn Pg>,
    pub(super) guard: ObjectGuard,
    pub(super) request: Rc<Request>,
    pub(super) limits: Rc<Limits>,
    pub(super) pool: Rc<PgPool>,
    pub(super) coll: CollId,
    /// The object as last submitted.
    pub(super) obc: Rc<ObjectContext>,
    /// Its name in the store.
    pub(super) goid: Rc<GhObject>,
    /// The object as it will be.
    pub(super) obs: Shared<ObjectState>,
    /// Its clones as they will be.
    pub(super) snapset: Shared<SnapSet>,
    /// The write's snap context.
    pub(super) snapc: SnapContext,
    /// What changes the object (the clone before it and its info behind it are added at the end).
    pub(super) t: Transaction,
    /// Whether anything is to be logged, even with nothing in `t`.
    pub(super) modify: bool,
    /// Whether the change is one clients see: raises the user version.
    pub(super) user_modify: bool,
    /// What the user version becomes unless `user_modify` raises it.
    pub(super) user_at_version: u64,
    /// Client's time of the change; zero leaves the object's.
    pub(super) mtime: UTime,
    pub(super) undirty: bool,
    pub(super) cache_evict: bool,
    pub(super) stats: ObjectStatSum,
    /// Byte ranges that differ from the newest clone; kept only if there is or will be a clone.
    pub(super) modified: IntervalSet,
    pub(super) tracks_modified: bool,
    pub(super) clean: ObjectCleanRegions,
    pub(super) attr_changes: Vec<AttrChange>,
    pub(super) effects: Effects,
    /// Requests that made the source of a copy what it is.
    pub(super) extra_reqids: Vec<(OsdReqId, u64, i32)>,
    /// Reads and writes so far, to hold class methods to their word.
    pub(super) num_read: u32,
    pub(super) num_write: u32,
    /// Ops done so far, nested ones too.
    pub(super) steps: u32,
    /// Bytes of answers so far, and of what copies have brought beside data: with the data in `t`
    /// up to `Limits::held`.
    pub(super) held: u64,
    /// How many operations of `t` have been looked at, and the bytes of data in them.
    counted: (usize, u64),
    /// The ops done so far with their results and outputs.
    pub(super) results: Vec<OsdOp>,
}

impl OpContext {
    pub(super) fn new(
        pg: Rc<dyn Pg>,
        guard: ObjectGuard,
        request: Rc<Request>,
        obc: Rc<ObjectContext>,
        snapc: SnapContext,
    ) -> OpContext {
        let obs = obc.obs.borrow().clone();
        let snapset = obc.ssc.borrow().snapset.clone();
        let will_clone = snapc.snaps.first().is_some_and(|&newest| newest > snapset.seq);
        OpContext {
            limits: pg.limits(),
            pool: pg.pool(),
            coll: pg.coll(),
            goid: guard.goid(&pg, &obs.oi.soid),
            user_at_version: obs.oi.user_version,
            mtime: request.mtime,
            tracks_modified: will_clone || !snapset.clones.is_empty(),
            obs,
            snapset,
            snapc,
            obc,
            pg,
            guard,
            t: Transaction::new(),
            modify: false,
            user_modify: false,
            undirty: false,
            cache_evict: false,
            stats: ObjectStatSum::default(),
            modified: IntervalSet::new(),
            clean: ObjectCleanRegions::default(),
            attr_changes: Vec::new(),
            effects: Effects::default(),
            extra_reqids: Vec::new(),
            num_read: 0,
            num_write: 0,
            steps: 0,
            held: 0,
            counted: (0, 0),
            results: Vec::with_capacity(request.ops.len()),
            request,
        }
    }

    /// Bytes of data in `t`. A request of 65535 writes asks after each of them: what has been counted is not
    /// counted again.
    pub(super) fn data_len(&mut self) -> u64 {
        let (looked_at, bytes) = self.counted;
        let bytes = bytes + self.t.data_len_from(looked_at);
        self.counted = (self.t.ops().len(), bytes);
        bytes
    }

    /// Nothing is left of what the vector has done to the store's object.
    pub(super) fn drop_changes(&mut self) {
        self.t = Transaction::new();
        self.counted = (0, 0);
    }

    /// Whether a client sees an object here now.
    pub(super) fn is_visible(&self) -> bool {
        self.obs.is_visible()
    }

    /// `ENOENT` unless a client sees an object here now.
    pub(super) fn need_visible(&self) -> Result<(), Errno> {
        if self.is_visible() { Ok(()) } else { Err(Errno::ENOENT) }
    }

    /// Makes the object exist, and visible, as every write does.
    pub(super) fn create_if_absent(&mut self) {
        if !self.obs.exists {
            self.stats.num_objects += 1;
            self.obs.exists = true;
            self.obs.oi.new_object();
            self.t.touch(&self.coll, &self.goid);
        } else if self.obs.oi.is_whiteout() {
            self.obs.oi.clear_flag(types::osd::object_info::FLAG_WHITEOUT);
            self.stats.num_whiteouts -= 1;
        }
    }

    /// The info changes although no op of the store does.
    pub(super) fn note_change(&mut self) {
        self.modify = true;
    }

    /// Data of the range differs from now on.
    pub(super) fn mark_data_dirty(&mut self, offset: u64, len: u64) {
        self.clean.mark_data_region_dirty(offset, len);
    }

    /// Data of the range differs from the newest clone's.
    pub(super) fn mark_modified(&mut self, offset: u64, len: u64) {
        if self.tracks_modified {
            self.modified.insert(offset, len);
        }
    }

    /// A read of `len` bytes is counted.
    pub(super) fn count_read(&mut self, len: usize) {
        self.stats.num_rd += 1;
        self.stats.num_rd_kb += kb(len as u64);
    }

    /// Sets the size, with the statistics.
    pub(super) fn set_size(&mut self, size: u64) {
        if self.obs.oi.size != size {
            self.stats.num_bytes += size as i64 - self.obs.oi.size as i64;
            self.obs.oi.size = size;
        }
    }

    /// Whether the vector has something to log and replicate.
    pub(super) fn is_mutation(&self) -> bool {
        self.modify || !self.t.is_empty()
    }
}

/// Kilobytes, rounded up.
pub(super) fn kb(len: u64) -> i64 {
    len.div_ceil(1024) as i64
}
