//! Reads that a client lets any copy answer (BALANCE_READS, LOCALIZE_READS), on one that does not
//! lead the PG.
//!
//! What is read here must be what the primary would read: every write that was acknowledged, none
//! that may be undone or that another member does not show yet. So the copy answers only
//!
//! - under the primary's lease, which all who could follow it wait for ([`super::peering::lease`]),
//!   and when it lacks nothing ([`super::peering::Peering::may_answer_reads`]);
//! - of objects without a write above the version up to which all members have all writes;
//! - if nothing of that has changed when the object has been read;
//! - of a snapshot of the pool, if the object was written since with knowledge of it. Else a write may be
//!   under way that has not come here and was begun by a map before the snapshot: it belongs to what the
//!   snapshot shows, and this copy would show it without. (Snapshots that clients manage are theirs to order:
//!   RBD has nothing under way when it takes one.)
//!
//! Otherwise it says EAGAIN, and the client asks the primary (`Objecter::handle_osd_op_reply`,
//! `src/osdc/Objecter.cc` at v16.2). It never waits, and brings nothing back: both are the primary's.

use std::rc::Rc;

use types::osd::ops;
use types::{EVersion, Errno, NOSNAP, SnapId};

use super::do_op::reply_len;
use super::{ClientOp, Pg};
use crate::ops::{
    Kind, LockKind, ObjectContexts, ObjectGuard, Reply, Request, check_request, execute,
};

/// Ops that look at one object and nothing else. Classes may ask for anything; watchers and requests
/// are known to the primary.
const LOOKS: [u16; 17] = [
    ops::READ,
    ops::SPARSE_READ,
    ops::MAPEXT,
    ops::STAT,
    ops::CMPEXT,
    ops::CHECKSUM,
    ops::ASSERT_VER,
    ops::LIST_SNAPS,
    ops::GETXATTR,
    ops::GETXATTRS,
    ops::CMPXATTR,
    ops::OMAPGETKEYS,
    ops::OMAPGETVALS,
    ops::OMAPGETHEADER,
    ops::OMAPGETVALSBYKEYS,
    ops::OMAP_CMP,
    ops::SYNC_READ,
];

fn only_looks(request: &Request) -> bool {
    !request.info.rwordered()
        && !request.info.pg_op
        && request.ops.iter().all(|op| LOOKS.contains(&op.code))
}

impl Pg {
    /// A read for this PG by the current map, whose client takes any copy.
    pub fn do_read_of_any_copy(&self, op: Box<ClientOp>) {
        if self.core.borrow().is_primary() {
            return self.do_op(op);
        }
        let since = self.core.borrow().log.head();
        let in_time = op.epoch >= self.core.borrow().info.history.same_interval_since;
        let servable = in_time
            && !self.is_erasure()
            && only_looks(&op.request)
            && check_request(&op.request, &self.host.limits()).is_ok()
            && self.is_stable(&op.request, None);
        if !servable {
            return self.leave_to_primary(op);
        }
        op.tracked.mark("started");
        self.host.env().go(read(self.rc(), op, since, self.generation.get()));
    }

    /// Whether this copy has the object as the primary shows it; `since`: and as it was then.
    fn is_stable(&self, request: &Request, since: Option<EVersion>) -> bool {
        let core = self.core.borrow();
        let bound = since.unwrap_or_else(|| core.stable_to());
        core.may_answer_reads(self.now())
            && (env::mutant("read-unstable") || !core.log.has_write_since(&request.oid, bound))
    }

    fn leave_to_primary(&self, op: Box<ClientOp>) {
        let refusal = Reply::refusal(&op.request, Errno::EAGAIN);
        op.reply(self.epoch(), refusal);
    }
}

/// Whether nothing under way can belong to what a snapshot of the pool shows of the object.
async fn is_settled(pg: &Rc<Pg>, guard: &ObjectGuard, snap: SnapId) -> bool {
    if snap == NOSNAP || !pg.pool().is_pool_snaps_mode() {
        return true;
    }
    let clones = guard.snapset_context(&pg.as_ops()).await;
    clones.is_ok_and(|clones| clones.borrow().snapset.seq >= snap)
}

async fn read(pg: Rc<Pg>, op: Box<ClientOp>, since: EVersion, generation: u64) {
    let contexts = ObjectContexts::for_one_read();
    let guard = contexts.lock(&op.request.oid.as_head(), LockKind::Read).await;
    if !is_settled(&pg, &guard, op.request.oid.snap).await {
        return pg.leave_to_primary(op);
    }
    let begun = pg.host.env().recent();
    let executed = execute(&pg.as_ops(), guard, op.request.clone()).await;
    let damaged = |reply: &Reply| {
        let eio = Errno::EIO.result();
        reply.result == eio || reply.ops.iter().any(|op| op.rval == eio)
    };
    let unchanged = generation == pg.generation.get() && pg.is_stable(&op.request, Some(since));
    match executed.kind {
        // A damaged copy here is no reason to tell the client of an error.
        Kind::Read(_) if unchanged && !damaged(&executed.reply) => {
            let bytes = reply_len(&executed.reply);
            pg.count_read_here(&op, begun, bytes);
            op.reply(pg.epoch(), executed.reply);
        }
        _ => pg.leave_to_primary(op),
    }
}
