//! The end of a write: versions, the object's info, the log entries, and the new state in memory
//! (`finish_ctx`, `record_write_error` in `src/osd/PrimaryLogPG.cc`).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use denc::Denc;
use store::{Key, Op, Transaction};
use types::osd::{LogExtras, LogOp, LogOpReturn, ObjectModDesc, ObjectStatSum, OsdOp, PgLogEntry};
use types::{EVersion, HObject, NOSNAP, UTime};

use super::execute::{Reply, Request, Versions};
use super::object_context::{OI_ATTR, ObjectGuard, ObjectState, SS_ATTR, SnapSetContext, bounded};
use super::op_context::{AttrChange, OpContext};
use super::pg::Pg;
use super::shared::Shared;
use super::watch::Effects;

/// Bytes that an encoded object info usually takes, and some more.
const INFO_ROOM: usize = 512;

/// A write that has been executed and waits for its version. Finish it before anything else takes
/// one; dropping it leaves no trace.
pub struct PendingWrite {
    pub(super) inner: Pending,
}

/// What is pending.
pub(super) enum Pending {
    /// A client's write or a watch that ends.
    Op(Box<OpContext>, Reply),
    /// The trimming of one clone.
    Trim(Box<super::snap_trim::Trim>),
    /// Digests that scrub found.
    Info(Box<super::digests::InfoUpdate>),
}

/// A change to replicate.
pub struct Mutation {
    /// The head it belongs to.
    pub soid: HObject,
    /// The change of the store, for this OSD and its replicas.
    pub transaction: Transaction,
    /// What the log gets, in order of their versions; the last is that of the reply.
    pub entries: Vec<PgLogEntry>,
    /// The last entry's version.
    pub at_version: EVersion,
    /// Largest user version of the PG from now on (`info.last_user_version`).
    pub user_version: u64,
    /// Change of the PG's statistics.
    pub stats: ObjectStatSum,
    /// Held until all replicas have committed.
    pub guard: ObjectGuard,
    /// What to tell whom after that.
    pub effects: Effects,
    /// The answer to send after that.
    pub reply: Reply,
}

impl PendingWrite {
    /// Gives the write its versions, from `at` on, and makes its effect visible to whoever gets
    /// the object next. `last_user_version` is the PG's.
    pub fn finish(self, at: EVersion, last_user_version: u64) -> Mutation {
        match self.inner {
            Pending::Op(ctx, reply) => ctx.finish(reply, at, last_user_version),
            Pending::Trim(trim) => trim.finish(at, last_user_version),
            Pending::Info(update) => update.finish(at, last_user_version),
        }
    }

    /// The change so far, without what versions add; `None` if it is of attributes alone.
    pub fn transaction(&self) -> Option<&Transaction> {
        match &self.inner {
            Pending::Op(ctx, _) => Some(&ctx.t),
            Pending::Trim(_) | Pending::Info(_) => None,
        }
    }

    /// The objects of a pool that the write changes or copies from.
    pub fn objects(&self, pool: i64) -> BTreeSet<HObject> {
        match &self.inner {
            Pending::Op(ctx, _) => {
                let named = ctx.t.objects().iter().map(|oid| oid.hobj.clone());
                let named = named.filter(|oid| oid.pool == pool);
                named.chain([ctx.obs.oi.soid.clone()]).collect()
            }
            Pending::Trim(trim) => trim.objects().into(),
            Pending::Info(update) => update.objects().into(),
        }
    }

    /// Takes the write back if a snapshot that it may make a clone for has been removed since it
    /// was executed: trimming may be over, and nobody would trim that clone. It is to be executed
    /// again under the guard.
    pub fn unless_snaps_removed(self, pg: &Rc<dyn Pg>) -> Result<PendingWrite, ObjectGuard> {
        match self.inner {
            Pending::Op(ctx, _) if ctx.snapc.snaps.iter().any(|&s| pg.is_snap_removed(s)) => {
                Err(ctx.guard)
            }
            inner => Ok(PendingWrite { inner }),
        }
    }

    /// Bytes the write adds to the store, for full-ness checks.
    pub fn data_len(&self) -> u64 {
        match &self.inner {
            Pending::Op(ctx, _) => ctx.t.data_len(),
            Pending::Trim(_) | Pending::Info(_) => 0,
        }
    }
}

impl OpContext {
    fn finish(
        mut self: Box<Self>,
        mut reply: Reply,
        at: EVersion,
        last_user_version: u64,
    ) -> Mutation {
        let mut at = at;
        let mut entries = Vec::with_capacity(1);
        let mut transaction = core::mem::take(&mut self.t);
        if self.obs.oi.soid.snap == NOSNAP
            && let Some((mut clone_first, clone)) = self.make_writeable(&mut at)
        {
            clone_first.append(transaction);
            transaction = clone_first;
            entries.push(clone.entry);
            self.guard.insert_clone(clone.snap, clone.context);
        }
        let returnvec = self.request.info.returnvec;
        let soid = self.obs.oi.soid.clone();
        let prior_version = self.obc.obs.borrow().oi.version;
        if self.user_modify {
            // At least the entry's own number, for clients that only know that one.
            let next = last_user_version.max(self.obs.oi.user_version) + 1;
            self.user_at_version = next.max(at.version);
            self.obs.oi.user_version = self.user_at_version;
        }
        let exists = self.obs.exists;
        if exists {
            let oi = &mut self.obs.oi;
            oi.version = at;
            oi.prior_version = prior_version;
            if !self.request.reqid.is_blank() {
                oi.last_reqid = self.request.reqid;
            }
            if !self.mtime.is_zero() {
                oi.mtime = self.mtime;
                oi.local_mtime = UTime::from_duration(self.pg.env().wall_clock());
            }
            let info = (Key::from(OI_ATTR), self.obs.oi.to_bytes_in(INFO_ROOM));
            let clones = (soid.snap == NOSNAP && !self.keeps_snapset(&transaction))
                .then(|| (Key::from(SS_ATTR), self.snapset.to_bytes()));
            transaction.setattrs(&self.coll, &self.goid, [info].into_iter().chain(clones));
        } else {
            self.obs = Shared::new(ObjectState::absent(&soid));
        }

        let mut entry = PgLogEntry {
            op: if exists { LogOp::MODIFY } else { LogOp::DELETE },
            soid: soid.clone(),
            version: at,
            prior_version,
            user_version: self.user_at_version,
            reqid: self.request.reqid,
            mtime: self.mtime,
            mod_desc: ObjectModDesc::unrollbackable(),
            clean_regions: core::mem::take(&mut self.clean),
            ..PgLogEntry::default()
        };
        if returnvec {
            entry.return_code = reply.result;
            entry.extras =
                LogExtras { op_returns: op_returns(&reply.ops), ..LogExtras::default() }.boxed();
        }
        for (index, (reqid, user_version, code)) in (0_u32..).zip(&self.extra_reqids) {
            let extras = entry.extras_mut();
            extras.extra_reqids.push((*reqid, *user_version));
            if *code != 0 {
                extras.extra_reqid_return_codes.insert(index, *code);
            }
        }
        entries.push(entry);

        self.publish();
        reply.versions = Versions::Write { replay: at, user: self.user_at_version };
        let this = *self;
        this.guard.submitted();
        Mutation {
            soid,
            transaction,
            entries,
            at_version: at,
            user_version: last_user_version.max(this.user_at_version),
            stats: this.stats,
            guard: this.guard,
            effects: this.effects,
            reply,
        }
    }

    /// Whether the head's xattr already says what the clones are, and will after the transaction.
    fn keeps_snapset(&self, t: &Transaction) -> bool {
        let ssc = self.obc.ssc.borrow();
        ssc.exists && ssc.snapset == self.snapset && t.ops().iter().all(keeps_attrs)
    }

    /// Shows the new state to those who come next.
    fn publish(&mut self) {
        let mut attrs = self.obc.attrs.borrow_mut();
        for change in core::mem::take(&mut self.attr_changes) {
            match (change, &mut *attrs) {
                (AttrChange::Clear, attrs) => *attrs = Some(BTreeMap::new()),
                (AttrChange::Unknown, attrs) => *attrs = None,
                (AttrChange::One(name, Some(value)), Some(attrs)) => {
                    attrs.insert(name, value);
                }
                (AttrChange::One(name, None), Some(attrs)) => {
                    attrs.remove(&name);
                }
                (AttrChange::One(..), None) => {}
            }
        }
        *attrs = attrs.take().and_then(bounded);
        *self.obc.ssc.borrow_mut() = if self.obs.exists {
            SnapSetContext { snapset: self.snapset.clone(), exists: true }
        } else {
            SnapSetContext::default()
        };
        *self.obc.obs.borrow_mut() = self.obs.clone();
    }
}

/// The log entry of a write that failed or changed nothing, so that its resend gets the same
/// answer. The reply's version is the entry's (`Reply::set_logged`).
pub fn error_entry(request: &Request, reply: &Reply, at: EVersion) -> PgLogEntry {
    let op_returns = match request.info.returnvec {
        true => op_returns(&reply.ops),
        false => Vec::new(),
    };
    PgLogEntry {
        op: LogOp::ERROR,
        soid: request.oid.clone(),
        version: at,
        reqid: request.reqid,
        return_code: reply.result,
        extras: LogExtras { op_returns, ..LogExtras::default() }.boxed(),
        mod_desc: ObjectModDesc::unrollbackable(),
        ..PgLogEntry::default()
    }
}

/// Whether an operation leaves the xattrs it does not name.
fn keeps_attrs(op: &Op) -> bool {
    matches!(
        op,
        Op::Write { .. }
            | Op::Zero { .. }
            | Op::Truncate { .. }
            | Op::SetAllocHint { .. }
            | Op::OmapSetKeys { .. }
            | Op::OmapRmKeys { .. }
            | Op::OmapRmKeyRange { .. }
            | Op::OmapClear { .. }
            | Op::OmapSetHeader { .. }
            | Op::SetAttr { .. }
            | Op::SetAttrs { .. }
            | Op::RmAttr { .. }
    )
}

fn op_returns(ops: &[OsdOp]) -> Vec<LogOpReturn> {
    let item = |op: &OsdOp| LogOpReturn { rval: op.rval, outdata: op.outdata.to_contiguous() };
    ops.iter().map(item).collect()
}
