//! What clients may do in an erasure coded pool, with and without overwrites.

use maps::pool::{TYPE_ERASURE, pool_flags};
use store::Op;
use types::osd::ops::WriteSameArgs;

use super::*;

const STRIPE: u64 = 8;

fn make_erasure(pg: &TestPg, flags: u64) {
    let mut pool = pg.pool.borrow_mut();
    pool.kind = TYPE_ERASURE;
    pool.stripe_width = STRIPE as u32;
    pool.flags |= flags;
}

fn extent(code: u16, offset: u64, data: &'static [u8]) -> OsdOp {
    OsdOp::extent(code, offset, data.len() as u64, Bytes::from_static(data))
}

/// Without overwrites an object grows by whole stripes at its end, or is replaced.
#[test]
fn appends_only() {
    on_pg(|pg| async move {
        make_erasure(&pg, 0);
        let refused = Err(Errno::EOPNOTSUPP);
        assert_eq!(pg.op("a", extent(ops::WRITE, STRIPE, b"x")).await, refused);
        pg.op("a", extent(ops::WRITE, 0, b"01234567")).await.unwrap();
        assert_eq!(pg.op("a", extent(ops::WRITE, 0, b"x")).await, refused);
        assert_eq!(pg.op("a", extent(ops::WRITE, 3 * STRIPE, b"x")).await, refused);
        pg.op("a", extent(ops::APPEND, 0, b"89a")).await.unwrap();
        assert_eq!(pg.get("a").await.unwrap(), &b"0123456789a"[..]);
        // The last stripe is not whole any more.
        assert_eq!(pg.op("a", extent(ops::APPEND, 0, b"b")).await, refused);
        assert_eq!(pg.op("a", OsdOp::extent(ops::ZERO, 0, 1, Bytes::new())).await, refused);
        assert_eq!(pg.op("a", OsdOp::extent(ops::TRUNCATE, 0, 0, Bytes::new())).await, refused);
        pg.put("a", b"new").await;
        assert_eq!(pg.get("a").await.unwrap(), &b"new"[..]);
        pg.op("a", OsdOp::new(ops::DELETE)).await.unwrap();
        pg.check_stats().await;
    });
}

/// A zero beyond the end was refused, though it does nothing; a pattern that no object has room
/// for, with another error than that of its place. (A comparison of object operations with Ceph's
/// found both.)
#[test]
fn what_is_refused_and_what_does_nothing() {
    on_pg(|pg| async move {
        make_erasure(&pg, 0);
        pg.op("a", extent(ops::WRITE, 0, b"01234567")).await.unwrap();
        pg.op("a", OsdOp::extent(ops::ZERO, 8, 5, Bytes::new())).await.unwrap();
        assert_eq!(pg.get("a").await.unwrap(), &b"01234567"[..]);
        let cut = OsdOp::extent(ops::ZERO, 4, 5, Bytes::new());
        assert_eq!(pg.op("a", cut).await, Err(Errno::EOPNOTSUPP));
        let args = WriteSameArgs { offset: u64::MAX - 7, length: 8, data_length: 4 };
        let same = OsdOp::with(ops::WRITESAME, args, Bytes::from_static(b"abcd"));
        assert_eq!(pg.op("a", same).await, Err(Errno::EOPNOTSUPP));
    });
}

/// Listing the xattrs of an object that is not there yet failed with `ENOENT` in a vector that
/// writes. Ceph lists those of shards from memory, where there are none.
#[test]
fn xattrs_of_what_is_not_there() {
    on_pg(|pg| async move {
        make_erasure(&pg, 0);
        let write = extent(ops::WRITE, 0, b"01234567");
        let look = OsdOp::attr(ops::GETXATTR, b"x", b"").unwrap();
        let reply = pg.run(pg.request("a", vec![look, write.clone()])).await;
        assert_eq!(reply.result, Errno::ENOENT.result());
        let list = OsdOp::new(ops::GETXATTRS);
        let locks = call("lock", "list_locks", b"");
        let reply = pg.run(pg.request("a", vec![list, locks, write])).await;
        assert_eq!(reply.result, 0);
    });
}

#[test]
fn overwrites() {
    on_pg(|pg| async move {
        make_erasure(&pg, pool_flags::EC_OVERWRITES);
        pg.op("a", extent(ops::WRITE, 3, b"abc")).await.unwrap();
        pg.op("a", extent(ops::APPEND, 0, b"d")).await.unwrap();
        pg.op("a", OsdOp::extent(ops::TRUNCATE, 5, 0, Bytes::new())).await.unwrap();
        pg.op("a", OsdOp::extent(ops::ZERO, 3, 1, Bytes::new())).await.unwrap();
        assert_eq!(pg.get("a").await.unwrap(), &b"\0\0\0\0b"[..]);
        pg.check_stats().await;
    });
}

/// A replaced object is cut to nothing first: then its old content can be kept aside, and no
/// stripe has to be read.
#[test]
fn a_replaced_object_is_cut_to_nothing() {
    on_pg(|pg| async move {
        make_erasure(&pg, pool_flags::EC_OVERWRITES);
        pg.put("a", b"0123").await;
        let request = pg.request("a", vec![extent(ops::WRITEFULL, 0, b"01234567")]);
        let lock = pg.contexts.lock(&request.oid.head(), LockKind::of(&request));
        let executed = execute(&pg.as_pg(), lock.await, Rc::new(request)).await;
        let Kind::Write(pending) = executed.kind else { panic!("a write") };
        let t = pending.finish(pg.next(), 9).transaction;
        let is_cut = |op: &Op| matches!(op, Op::Truncate { size: 0, .. });
        let is_write = |op: &Op| matches!(op, Op::Write { .. });
        let (cut, write) = (t.ops().iter().position(is_cut), t.ops().iter().position(is_write));
        assert!(cut.is_some() && cut < write, "{:?}", t.ops());
    });
}

#[test]
fn what_shards_cannot_do() {
    on_pg(|pg| async move {
        make_erasure(&pg, pool_flags::EC_OVERWRITES);
        pg.put("a", b"abcdef").await;
        for code in [
            ops::SYNC_READ,
            ops::MAPEXT,
            ops::TMAPGET,
            ops::TMAPUP,
            ops::OMAPCLEAR,
            ops::OMAPSETHEADER,
        ] {
            let op = OsdOp::extent(code, 0, 0, Bytes::new());
            assert_eq!(pg.op("a", op).await, Err(Errno::EOPNOTSUPP), "{code:#x}");
        }
        // All that is there counts as data.
        let sparse =
            pg.op("a", OsdOp::extent(ops::SPARSE_READ, 2, 100, Bytes::new())).await.unwrap();
        let mut w = denc::Writer::new();
        w.put(&vec![(2_u64, 4_u64)]);
        w.blob(b"cdef");
        assert_eq!(sparse, w.into_bytes());
    });
}
