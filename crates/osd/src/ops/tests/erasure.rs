//! What clients may do in an erasure coded pool, with and without overwrites.

use maps::pool::{TYPE_ERASURE, pool_flags};
use store::Op;

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
        let lock = pg.contexts.lock(&request.oid.head(), LockKind::of(&request.info));
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
