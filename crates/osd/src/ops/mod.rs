//! The op interpreter: what a `MOSDOp` does to one object, with the meaning `PrimaryLogPG` gives it
//! (`src/osd/PrimaryLogPG.cc` at v16.2). It owns object contexts and their locks, snapshots and
//! clones, watch and notify, listing, and object classes' access to objects. It relies on the PG
//! around it ([`Pg`]) for order of versions, the log, replication, recovery and sending replies.
//!
//! # The contract with the PG
//!
//! A client's op goes through these steps. Steps marked *sync* must run with no `await` between
//! them; that is what makes the order of versions the order of submission.
//!
//! 1. *sync, on arrival* [`Request::of`] takes a `MOSDOp` apart: it gives the errno to answer at
//!    once or a [`Request`], whose [`OpInfo`] says what it may do and
//!    which rights it needs ([`OpInfo::rights`]). The PG checks epoch and caps, and answers
//!    duplicates from its log ([`Reply::duplicate`]). PG ops (`info.pg_op`) go to
//!    [`execute_pg_op`], which needs no lock. For the rest, [`check_request`] makes `do_op`'s
//!    checks of names, sizes and snap ids (answer [`Reply::refusal`]).
//! 2. *sync, on arrival* `contexts.lock(&head, LockKind::of(&request))` takes a place in the object's
//!    queue. Places are granted in the order they are taken (readers together, writers one after
//!    the other), so the arrival order of one object's ops is kept whatever awaits come later.
//!    Recovery, scrub and snap trimming take the same locks.
//! 3. *task* await the lock (`try_now` saves a poll when it is free), then [`execute`]. It runs the
//!    ops against the object (reads go to the store, which already shows every submitted write)
//!    and gives an [`Executed`].
//! 4. *sync* by [`Executed::kind`]:
//!    - `Read`: await `guard.settled()` (an op that might have written may have seen what is not
//!      durable yet), `effects.apply(..)`, send `reply`, drop the guard.
//!    - `LogError`: `effects.apply(..)`, append the one ERROR entry made by [`error_entry`] (so
//!      that a resend gets the same answer), [`Reply::set_logged`], replicate, drop the guard, and
//!      send the reply when the entry has committed.
//!    - `Write`: [`PendingWrite::finish`] with the next version gives a [`Mutation`]: the store
//!      transaction, the log entries (clone first, head last; each one's version is one above the
//!      one before), statistics and the reply. Submit it with the log's own changes and send
//!      `MOSDRepOp`. `finish` also makes the new state visible in the object context and turns the
//!      guard into one that lets the next *writer* in (writes of one object pipeline, as Ceph's
//!      do) while readers wait. When all acting replicas have committed: send the reply,
//!      `effects.apply(..)`, drop the guard (readers go on).
//!    - `Blocked`: the named object is missing here or degraded: recover it, and start again from
//!      step 2 (`execute` had no effect, the guard is gone).
//!    - `Dropped`: forget the op, the client will resend (pool full without FULL_TRY).
//! 5. On an interval change: drop all queued ops, `contexts.clear()`; guards may outlive it.
//!
//! A sender whose address is blocklisted is answered EBLOCKLISTED before step 2; a map that
//! blocklists someone calls [`ObjectContexts::evict_watches`].
//!
//! Replicas apply `Mutation::transaction` and the log as they come. The transaction has the rows of
//! the snap mapper in it.
//!
//! Recovery or backfill that writes an object beneath the contexts calls `contexts.forget(&oid)`.
//! Snap trimming is [`snap_trim::trim_object`], one clone at a time, then as a `Write`. A watch
//! that times out calls [`Pg::on_watch_timeout`]; the PG then runs [`watch::execute_timeout`] like
//! an op, and [`ObjectContexts::end_overdue_watches`] when it has recovered an object. When a client's session resets, its owner calls [`Client::reset`]; there is one
//! [`Client`] a session, shared by all PGs.

mod attrs;
mod class;
mod class_lists;
mod copy;
pub mod digests;
mod execute;
mod finish;
mod list;
pub mod object_context;
mod op_context;
mod op_info;
mod pg;
mod read;
mod shared;
pub mod snap_mapper;
pub mod snap_trim;
mod snaps;
mod tmap;
pub mod watch;
mod write;
mod xxhash;

pub use class_lists::ClassLists;
pub use execute::{Executed, Kind, Reply, Request, Versions, check_request, execute};
pub use finish::{Mutation, PendingWrite, error_entry};
pub use list::execute_pg_op;
pub use object_context::{Lock, LockKind, ObjectContext, ObjectContexts, ObjectGuard};
pub use op_info::{ClassUse, OpInfo, Rights};
pub use pg::{Limits, MissingObject, Pg, RemoteRead, RemoteReply};
pub use snap_mapper::SnapMapper;
pub use watch::{Client, Effects, Overdue, Sink};

#[cfg(test)]
mod tests;
