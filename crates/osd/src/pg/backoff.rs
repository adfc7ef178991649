//! Backoffs: a PG that cannot serve tells clients to keep their ops instead of queueing them, and
//! tells them when to send them again (`PrimaryLogPG::do_request`, `PG::add_backoff` in `src/osd`
//! at v16.2).
//!
//! ```text
//! client -- op ------> OSD    PG down, incomplete or below min_size; or the object is unfound
//!        <- BLOCK ----        of the whole PG, or of one object (begin == end)
//!        -- ACK_BLOCK >       from here on the client holds ops of that range
//!        <- UNBLOCK --        active, another interval, or the object is there
//! ```
//!
//! What a client sent before it knew of BLOCK is dropped: it sends that again after UNBLOCK. The
//! session keeps a released backoff until its BLOCK is acknowledged, for ops that are still on
//! their way.

use std::rc::Rc;

use types::HObject;

use super::peering::State;
use super::{ClientOp, Pg};
use crate::osd::session::Session;

/// One backoff that this PG has asked of a session.
pub(super) struct Asked {
    session: Rc<Session>,
    begin: HObject,
    id: u64,
}

impl Pg {
    /// Whether ops of all objects are to be kept by the clients.
    fn backs_off(&self) -> bool {
        let core = self.core.borrow();
        matches!(core.state(), State::Down | State::Incomplete)
            || core.is_activated() && !core.is_active()
            || core.is_peering() && self.host.backs_off_while_peering()
    }

    /// Takes an op that its sender has to keep: one that was told to, or that is told now.
    pub(super) fn back_off(&self, op: Box<ClientOp>) -> Option<Box<ClientOp>> {
        let session = op.session.clone();
        let begin = self.pgid.pgid.first_object();
        let told = session.is_backed_off(self.pgid, &begin)
            || session.is_backed_off(self.pgid, &op.request.oid.as_head());
        if told {
            tracing::debug!(pg = %self.pgid, epoch = op.epoch, "op dropped: backoff");
            op.tracked.mark("dropped: backoff");
            return None;
        }
        if !self.backs_off() {
            return Some(op);
        }
        let end = self.pgid.pgid.end_object(self.pool().pg_num);
        if !self.ask(&session, begin, end) {
            return Some(op);
        }
        op.tracked.mark("dropped: backoff");
        None
    }

    /// Takes an op of an object that no OSD in reach has.
    pub(super) fn back_off_unfound(
        &self,
        oid: &HObject,
        op: Box<ClientOp>,
    ) -> Option<Box<ClientOp>> {
        let head = op.request.oid.head();
        let unfound = self.recovery.unfound.borrow().contains(oid);
        if !unfound || *oid != head || !self.host.backs_off_unfound() {
            return Some(op);
        }
        let session = op.session.clone();
        if !self.ask(&session, head.clone(), head) {
            return Some(op);
        }
        op.tracked.mark("dropped: backoff");
        None
    }

    fn ask(&self, session: &Rc<Session>, begin: HObject, end: HObject) -> bool {
        let Some(id) = session.back_off(self.pgid, self.epoch(), &begin, &end) else {
            return false;
        };
        // Bounded by the sessions' own bound.
        let asked = Asked { session: session.clone(), begin, id };
        let mut backoffs = self.backoffs.borrow_mut();
        backoffs.retain(|b| !b.session.con.is_closed());
        backoffs.push(asked);
        true
    }

    /// What waits in a PG that came to a state in which clients keep their ops goes back to them.
    pub(super) fn back_off_waiting(&self) {
        if self.waiting.borrow().is_empty() || !self.backs_off() {
            return;
        }
        let ops = std::mem::take(&mut *self.waiting.borrow_mut());
        let kept = ops.into_iter().filter_map(|op| self.back_off(op)).collect();
        *self.waiting.borrow_mut() = kept;
    }

    /// The PG serves, or this interval is over: clients send what they kept.
    pub(super) fn release_backoffs(&self) {
        let epoch = self.epoch();
        for b in std::mem::take(&mut *self.backoffs.borrow_mut()) {
            b.session.release(self.pgid, epoch, &b.begin, b.id);
        }
    }

    /// An object can be served again.
    pub(super) fn release_backoffs_of(&self, oid: &HObject) {
        let epoch = self.epoch();
        self.backoffs.borrow_mut().retain(|b| {
            if b.begin == *oid {
                b.session.release(self.pgid, epoch, &b.begin, b.id);
            }
            b.begin != *oid
        });
    }
}
