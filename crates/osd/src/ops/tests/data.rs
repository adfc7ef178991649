//! Reading and writing data.

use types::crc;
use types::osd::ops::{
    AssertVerArgs, ChecksumArgs, ExtentArgs, WriteSameArgs, XattrArgs, compare_mode, compare_op,
    op_flags,
};
use types::page_sums::{PAGE, PageSums, of_pages};

use super::*;

fn write(offset: u64, data: &'static [u8]) -> OsdOp {
    OsdOp::extent(ops::WRITE, offset, data.len() as u64, Bytes::from_static(data))
}

fn read(offset: u64, len: u64) -> OsdOp {
    OsdOp::extent(ops::READ, offset, len, Bytes::new())
}

#[test]
fn write_read_append_truncate_zero() {
    on_pg(|pg| async move {
        assert_eq!(pg.get("a").await, Err(Errno::ENOENT));
        pg.op("a", write(3, b"abc")).await.unwrap();
        assert_eq!(pg.get("a").await.unwrap(), &b"\0\0\0abc"[..]);
        let append = OsdOp::extent(ops::APPEND, 0, 2, Bytes::from_static(b"de"));
        pg.op("a", append).await.unwrap();
        assert_eq!(pg.op("a", read(4, 100)).await.unwrap(), &b"bcde"[..]);
        assert_eq!(pg.op("a", read(100, 1)).await.unwrap(), &b""[..]);
        pg.op("a", OsdOp::extent(ops::TRUNCATE, 5, 0, Bytes::new())).await.unwrap();
        assert_eq!(pg.get("a").await.unwrap(), &b"\0\0\0ab"[..]);
        pg.op("a", OsdOp::extent(ops::TRUNCATE, 7, 0, Bytes::new())).await.unwrap();
        assert_eq!(pg.get("a").await.unwrap(), &b"\0\0\0ab\0\0"[..]);
        pg.op("a", OsdOp::extent(ops::ZERO, 3, 1, Bytes::new())).await.unwrap();
        assert_eq!(pg.get("a").await.unwrap(), &b"\0\0\0\0b\0\0"[..]);
        // A zero that reaches the end cuts the object there.
        pg.op("a", OsdOp::extent(ops::ZERO, 5, 100, Bytes::new())).await.unwrap();
        assert_eq!(pg.get("a").await.unwrap(), &b"\0\0\0\0b"[..]);
        pg.put("a", b"x").await;
        assert_eq!(pg.get("a").await.unwrap(), &b"x"[..]);
        assert_eq!(pg.stats.borrow().num_objects, 1);
        pg.op("a", OsdOp::new(ops::DELETE)).await.unwrap();
        assert_eq!(last_op(&pg), LogOp::DELETE);
        assert_eq!(pg.get("a").await, Err(Errno::ENOENT));
        assert_eq!(pg.op("a", OsdOp::new(ops::DELETE)).await, Err(Errno::ENOENT));
        assert_eq!(last_op(&pg), LogOp::ERROR);
        pg.check_stats().await;
    });
}

#[test]
fn sizes_are_limited() {
    on_pg(|pg| async move {
        let max = pg.limits.borrow().object_size;
        assert_eq!(pg.op("a", write(max, b"x")).await, Err(Errno::EFBIG));
        assert_eq!(pg.op("a", write(max - 1, b"xy")).await, Err(Errno::EFBIG));
        assert_eq!(pg.op("a", write(u64::MAX, b"x")).await, Err(Errno::EFBIG));
        pg.op("a", write(max - 1, b"x")).await.unwrap();
        let truncate = OsdOp::extent(ops::TRUNCATE, max, 0, Bytes::new());
        assert_eq!(pg.op("a", truncate).await, Err(Errno::EFBIG));
        let mut short = write(0, b"abc");
        short.args.set_extent(ExtentArgs { length: 4, ..ExtentArgs::default() });
        assert_eq!(pg.op("a", short).await, Err(Errno::EINVAL));

        let long = |len: usize| "n".repeat(len);
        let reply = pg.run(pg.request(&long(2049), vec![read(0, 0)])).await;
        assert_eq!((reply.result, reply.executed), (Errno::ENAMETOOLONG.result(), false));
        assert_eq!(pg.op(&long(2048), write(0, b"x")).await, Ok(Bytes::new()));
        assert_eq!(pg.op("", read(0, 0)).await, Err(Errno::EINVAL));
        let mut request = pg.request("a", vec![read(0, 0)]);
        request.oid.namespace = long(257).into();
        assert_eq!(pg.run(request).await.result, Errno::ENAMETOOLONG.result());
        pg.limits.borrow_mut().write_size = 2;
        assert_eq!(pg.op("a", write(0, b"abc")).await, Err(Errno::EMSGSIZE));
    });
}

#[test]
fn truncate_sequences() {
    on_pg(|pg| async move {
        pg.put("a", b"0123456789").await;
        let extent = |offset, length, seq, size| ExtentArgs {
            offset,
            length,
            truncate_seq: seq,
            truncate_size: size,
        };
        // A read that knows of a truncation not arrived yet.
        let op = OsdOp::with(ops::READ, extent(0, 10, 1, 4), Bytes::new());
        assert_eq!(pg.op("a", op).await.unwrap(), &b"0123"[..]);
        // A write that knows of it truncates first.
        let op = OsdOp::with(ops::WRITE, extent(6, 1, 1, 4), Bytes::from_static(b"x"));
        pg.op("a", op).await.unwrap();
        assert_eq!(pg.get("a").await.unwrap(), &b"0123\0\0x"[..]);
        // The truncation itself is then old.
        let op = OsdOp::with(ops::TRUNCATE, extent(4, 0, 1, 4), Bytes::new());
        pg.op("a", op).await.unwrap();
        assert_eq!(pg.get("a").await.unwrap().len(), 7);
        // A write that does not know of it may not grow the object.
        let op = OsdOp::with(ops::WRITE, extent(5, 4, 0, 0), Bytes::from_static(b"abcd"));
        pg.op("a", op).await.unwrap();
        assert_eq!(pg.get("a").await.unwrap(), &b"0123\0ab"[..]);
        let op = OsdOp::with(ops::TRIMTRUNC, extent(0, 0, 2, 3), Bytes::new());
        pg.op("a", op).await.unwrap();
        assert_eq!(pg.get("a").await.unwrap(), &b"012"[..]);
        pg.check_stats().await;
    });
}

#[test]
fn stat_create_and_versions() {
    on_pg(|pg| async move {
        let mut exclusive = OsdOp::new(ops::CREATE);
        exclusive.flags = op_flags::EXCL;
        assert_eq!(pg.op("a", OsdOp::new(ops::STAT)).await, Err(Errno::ENOENT));
        let reply = pg.run(pg.request("a", vec![exclusive.clone()])).await;
        assert_eq!(reply.result, 0);
        let at = EVersion::new(1, 1);
        assert_eq!(reply.versions.on_wire(), (at, at, 1));
        assert_eq!(pg.op("a", exclusive).await, Err(Errno::EEXIST));
        pg.op("a", OsdOp::new(ops::CREATE)).await.unwrap();
        let stat = pg.op("a", OsdOp::new(ops::STAT)).await.unwrap();
        let (size, mtime) = <(u64, UTime)>::from_bytes_exact(&stat).unwrap();
        assert_eq!((size, mtime), (0, UTime::new(1_600_000_000, 0)));

        let reply = pg.run(pg.request("a", vec![read(0, 0)])).await;
        let (bad, replay, user) = reply.versions.on_wire();
        assert_eq!((bad, replay), (EVersion { version: user, epoch: 0 }, EVersion::ZERO));
        let check = |version| {
            let args = AssertVerArgs { unused: 0, version };
            OsdOp::with(ops::ASSERT_VER, args, Bytes::new())
        };
        assert_eq!(pg.op("a", check(0)).await, Err(Errno::EINVAL));
        assert_eq!(pg.op("a", check(user - 1)).await, Err(Errno::ERANGE));
        assert_eq!(pg.op("a", check(user + 1)).await, Err(Errno::EOVERFLOW));
        assert!(pg.op("a", check(user)).await.is_ok());
        // A failed check undoes the whole vector.
        let vector = vec![check(user - 1), write(0, b"never")];
        let reply = pg.run(pg.request("a", vector)).await;
        assert_eq!(reply.result, Errno::ERANGE.result());
        assert_eq!((reply.ops[0].rval, reply.ops[1].rval), (Errno::ERANGE.result(), 0));
        assert_eq!(pg.get("a").await.unwrap(), &b""[..]);
        assert_eq!(last_op(&pg), LogOp::ERROR);
        assert_eq!(pg.last_entry().return_code, Errno::ERANGE.result());
    });
}

/// A vector that makes an object and removes it was logged as a change, with a user version of its
/// own. Nothing happens by it, in Ceph.
#[test]
fn what_a_vector_makes_and_removes_was_never_there() {
    on_pg(|pg| async move {
        pg.put("other", b"data").await;
        let vector = vec![write(0, b"data"), OsdOp::new(ops::DELETE)];
        let reply = pg.run(pg.request("a", vector)).await;
        let at = EVersion::new(1, 2);
        assert_eq!((reply.result, reply.versions.on_wire()), (0, (at, at, 0)));
        assert_eq!(last_op(&pg), LogOp::ERROR);
        let vector = vec![write(0, b"data"), OsdOp::new(ops::DELETE), write(1, b"x")];
        assert_eq!(pg.run(pg.request("a", vector)).await.result, 0);
        assert_eq!(pg.get("a").await.unwrap(), &b"\0x"[..]);
        pg.check_stats().await;
    });
}

/// Extents of an object that is not there were none, in a vector that may write. Ceph's store has
/// no such object (`ENOENT`), though a read of it gives nothing.
#[test]
fn extents_of_what_is_not_there() {
    on_pg(|pg| async move {
        for (code, result) in [(ops::READ, 0), (ops::SPARSE_READ, -2), (ops::MAPEXT, -2)] {
            let look = OsdOp::extent(code, 0, 10, Bytes::new());
            for vector in
                [vec![look.clone(), OsdOp::new(ops::CREATE)], vec![OsdOp::new(ops::CREATE), look]]
            {
                let reply = pg.run(pg.request("a", vector)).await;
                assert_eq!(reply.result, result, "{code:#x}");
                if result == 0 {
                    pg.op("a", OsdOp::new(ops::DELETE)).await.unwrap();
                }
            }
        }
    });
}

#[test]
fn failing_is_allowed_to_some_ops() {
    on_pg(|pg| async move {
        let mut may_fail = OsdOp::attr(ops::GETXATTR, b"none", b"").unwrap();
        may_fail.flags = op_flags::FAILOK;
        pg.put("a", b"data").await;
        let reply = pg.run(pg.request("a", vec![may_fail, read(0, 0)])).await;
        assert_eq!(reply.result, 0);
        assert_eq!(reply.ops[0].rval, Errno::ENODATA.result());
        assert_eq!(reply.ops[1].outdata.to_contiguous(), &b"data"[..]);
        assert_eq!(reply.ops[1].args.extent().length, 4);
    });
}

#[test]
fn comparing_and_checksumming() {
    on_pg(|pg| async move {
        pg.put("a", b"abcdefgh").await;
        let compare = |offset, data: &'static [u8]| {
            OsdOp::extent(ops::CMPEXT, offset, data.len() as u64, Bytes::from_static(data))
        };
        assert!(pg.op("a", compare(2, b"cd")).await.is_ok());
        assert_eq!(pg.op("a", compare(2, b"cX")).await, Err(Errno(4096)));
        // Past the end is zeros.
        assert!(pg.op("a", compare(7, b"h\0\0")).await.is_ok());
        assert_eq!(pg.op("a", compare(7, b"h\0x")).await, Err(Errno(4097)));
        let reply = pg.run(pg.request("a", vec![compare(0, b"Xb"), write(0, b"!")])).await;
        assert_eq!(reply.result, -4095);
        assert_eq!(pg.get("a").await.unwrap(), &b"abcdefgh"[..]);

        let sum = |kind, chunk_size, init: Vec<u8>| {
            let args = ChecksumArgs { offset: 0, length: 8, chunk_size, kind };
            OsdOp::with(ops::CHECKSUM, args, init.into())
        };
        let out = pg.op("a", sum(2, 4, vec![255; 4])).await.unwrap();
        let sums: Vec<u32> = Vec::from_bytes_exact(&out).unwrap();
        assert_eq!(sums, [crc::crc32c(u32::MAX, b"abcd"), crc::crc32c(u32::MAX, b"efgh")]);
        let out = pg.op("a", sum(1, 0, vec![0; 8])).await.unwrap();
        assert_eq!(out.len(), 12);
        assert_eq!(pg.op("a", sum(2, 3, vec![0; 4])).await, Err(Errno::EINVAL));
        assert_eq!(pg.op("a", sum(9, 0, vec![0; 8])).await, Err(Errno::EINVAL));
        assert_eq!(pg.op("a", sum(0, 0, vec![0; 3])).await, Err(Errno::EINVAL));
    });
}

#[test]
fn writesame_and_sparse_read() {
    on_pg(|pg| async move {
        let same = |offset, length, pattern: &'static [u8]| {
            let args = WriteSameArgs { offset, length, data_length: pattern.len() as u64 };
            OsdOp::with(ops::WRITESAME, args, Bytes::from_static(pattern))
        };
        pg.op("a", same(2, 6, b"ab")).await.unwrap();
        assert_eq!(pg.get("a").await.unwrap(), &b"\0\0ababab"[..]);
        assert_eq!(pg.op("a", same(0, 5, b"ab")).await, Err(Errno::EINVAL));
        assert_eq!(pg.op("a", same(0, 1 << 40, b"ab")).await, Err(Errno::EFBIG));
        pg.op("a", same(0, 0, b"")).await.unwrap();
        let sparse = |offset, len| OsdOp::extent(ops::SPARSE_READ, offset, len, Bytes::new());
        let out = pg.op("a", sparse(0, 8)).await.unwrap();
        let (extents, data): (Vec<(u64, u64)>, Bytes) = Denc::from_bytes_exact(&out).unwrap();
        assert_eq!(extents.iter().map(|e| e.1).sum::<u64>(), data.len() as u64);
        let mut image = vec![0; 8];
        let mut at = 0;
        for (offset, len) in extents {
            let len = len as usize;
            image[offset as usize..][..len].copy_from_slice(&data[at..at + len]);
            at += len;
        }
        assert_eq!(image, b"\0\0ababab");
    });
}

#[test]
fn full_pools_refuse_growth() {
    on_pg(|pg| async move {
        pg.put("a", b"data").await;
        pg.pool.borrow_mut().flags |= maps::pool::pool_flags::FULL;
        // A client that ignores the map's flag is left waiting.
        assert!(pg.try_run(pg.request("b", vec![write(0, b"x")])).await.is_none());
        let mut request = pg.request("b", vec![write(0, b"x")]);
        request.flags |= message_flags::FULL_TRY;
        assert_eq!(pg.run(request).await.result, Errno::ENOSPC.result());
        pg.pool.borrow_mut().flags |= maps::pool::pool_flags::FULL_QUOTA;
        let mut request = pg.request("b", vec![write(0, b"x")]);
        request.flags |= message_flags::FULL_TRY;
        assert_eq!(pg.run(request).await.result, Errno::EDQUOT.result());
        pg.op("a", OsdOp::new(ops::DELETE)).await.unwrap();
        let mut request = pg.request("b", vec![write(0, b"x")]);
        request.flags |= message_flags::FULL_FORCE;
        assert_eq!(pg.run(request).await.result, 0);
        pg.check_stats().await;
    });
}

#[test]
fn unknown_and_tier_ops() {
    on_pg(|pg| async move {
        pg.put("a", b"data").await;
        assert_eq!(pg.op("a", OsdOp::new(0x12ff)).await, Err(Errno::EOPNOTSUPP));
        assert_eq!(pg.op("a", OsdOp::new(ops::CACHE_FLUSH)).await, Err(Errno::EINVAL));
        assert_eq!(pg.op("a", OsdOp::new(ops::CACHE_EVICT)).await, Err(Errno::EINVAL));
        assert_eq!(pg.op("a", OsdOp::new(ops::CACHE_PIN)).await, Err(Errno::EINVAL));
        assert_eq!(pg.op("a", OsdOp::new(ops::ISDIRTY)).await.unwrap(), &b"\x01"[..]);
        pg.op("a", OsdOp::new(ops::UNDIRTY)).await.unwrap();
        assert_eq!(pg.op("a", OsdOp::new(ops::ISDIRTY)).await.unwrap(), &b"\0"[..]);
        assert_eq!(OpInfo::of(&[], 0, &ClassLists::default()), Err(Errno::EINVAL));
        assert_eq!(
            OpInfo::of(&[call("none", "x", b"")], 0, &ClassLists::default()),
            Err(Errno::EPERM)
        );
        assert_eq!(
            OpInfo::of(&[call("rbd", "x", b"")], 0, &ClassLists::default()),
            Err(Errno::EOPNOTSUPP)
        );
        assert_eq!(
            OpInfo::of(&[call("lock", "none", b"")], 0, &ClassLists::default()),
            Err(Errno::EOPNOTSUPP)
        );
    });
}

#[test]
fn clean_regions_tell_what_recovery_must_copy() {
    on_pg(|pg| async move {
        pg.put("a", b"0123456789").await;
        pg.op("a", write(2, b"xy")).await.unwrap();
        let clean = pg.last_entry().clean_regions;
        assert_eq!(clean.dirty_regions().to_string(), "[2~2]");
        assert!(!clean.omap_is_dirty());
        pg.op("a", OsdOp::new(ops::DELETE)).await.unwrap();
        assert!(pg.last_entry().clean_regions.omap_is_dirty());
    });
}

/// Random vectors found a write that says that it comes before a truncation to more than the store
/// can hold: the store refused the transaction, and the OSD went down.
#[test]
fn a_truncate_size_no_object_may_have_is_refused() {
    on_pg(|pg| async move {
        pg.put("a", b"abc").await;
        let mut op = write(0, b"x");
        op.args.set_extent(ExtentArgs {
            offset: 0,
            length: 1,
            truncate_size: 1 << 40,
            truncate_seq: 7,
        });
        assert_eq!(pg.op("a", op).await, Err(Errno::EFBIG));
        assert_eq!(pg.get("a").await.unwrap(), &b"abc"[..]);
    });
}

/// A digest is made of what is known of the pages that came: the bytes are not looked at again.
#[test]
fn digests_of_pages_that_are_known() {
    on_pg(|pg| async move {
        pg.limits.borrow_mut().skip_data_digest = false;
        let data: Bytes = (0..3 * PAGE + 5).map(|i| (i >> 3) as u8).collect();
        let requests = |sums: PageSums, whole_name, parts_name| {
            let (whole, rest) = (data.clone(), data.slice(PAGE..));
            let full = OsdOp::extent(ops::WRITEFULL, 0, whole.len() as u64, whole.clone());
            let first = OsdOp::extent(ops::WRITE, 0, PAGE as u64, whole.slice(..PAGE));
            let behind = OsdOp::extent(ops::WRITE, PAGE as u64, rest.len() as u64, rest);
            let of = |name, op| Request { sums: Some(sums.clone()), ..pg.request(name, vec![op]) };
            [of(whole_name, full), of(parts_name, first), of(parts_name, behind)]
        };
        let known = PageSums::of(data.clone(), of_pages(&data)).unwrap();
        for request in requests(known, "a", "b") {
            assert_eq!(pg.run(request).await.result, 0);
            pg.check_digests().await;
        }
        let invented = PageSums::of(data.clone(), [7, 8, 9].into_iter()).unwrap();
        for request in requests(invented, "c", "d") {
            assert_eq!(pg.run(request).await.result, 0);
        }
        let whole = pg.object_info("c").await.data_digest;
        assert_eq!(pg.object_info("d").await.data_digest, whole);
        assert_ne!(whole, crc::crc32c(u32::MAX, &data));
    });
}

/// `osd_skip_data_digest`: a digest there was goes with the next write, and none comes.
#[test]
fn digests_that_are_not_wanted() {
    on_pg(|pg| async move {
        pg.limits.borrow_mut().skip_data_digest = false;
        for name in ["a", "b"] {
            pg.op(name, write(0, b"abc")).await.unwrap();
            assert!(pg.object_info(name).await.is_data_digest());
        }
        pg.limits.borrow_mut().skip_data_digest = true;
        pg.op("a", write(3, b"def")).await.unwrap();
        pg.put("b", b"abcdef").await;
        for name in ["a", "b"] {
            assert!(!pg.object_info(name).await.is_data_digest(), "{name}");
        }
    });
}

/// An operation that writes an object and then reads all of it reads what the store has, which the digest of what it
/// wrote does not fit: the object was called damaged and fetched from a copy, and then all that again, for ever.
#[test]
fn what_an_operation_wrote_itself_is_not_damaged() {
    on_pg(|pg| async move {
        pg.limits.borrow_mut().skip_data_digest = false;
        pg.put("a", b"abc").await;
        let whole = OsdOp::extent(ops::WRITEFULL, 0, 3, Bytes::from_static(b"xyz"));
        let both = pg.request("a", vec![whole, read(0, 3)]);
        assert_eq!(pg.run(both).await.result, Errno::EIO.result());
        assert!(pg.damaged.borrow().is_empty());
        assert_eq!(pg.get("a").await.unwrap(), "abc");
    });
}

/// Such a write may also fill the object up with zeros: the digest of what was there is void.
#[test]
fn digests_of_objects_that_grow_by_zeros() {
    on_pg(|pg| async move {
        pg.limits.borrow_mut().skip_data_digest = false;
        pg.put("a", b"abc").await;
        let empty = OsdOp::extent(ops::WRITE, 10, 0, Bytes::new());
        pg.op("a", empty).await.unwrap();
        pg.check_digests().await;
        pg.put("b", b"abc").await;
        let mut op = write(9, b"x");
        op.args.set_extent(ExtentArgs { offset: 9, length: 1, truncate_size: 9, truncate_seq: 7 });
        pg.op("b", op).await.unwrap();
        pg.check_digests().await;
        assert_eq!(pg.get("b").await.unwrap().len(), 10);
    });
}

/// A request of a few bytes an op had the OSD hold 128 MiB for each of its ops, until it had no memory left.
#[test]
fn what_one_request_holds_has_a_bound() {
    on_pg(|pg| async move {
        let same = |offset| {
            let args = WriteSameArgs { offset, length: 48 << 20, data_length: 1 };
            OsdOp::with(ops::WRITESAME, args, Bytes::from_static(b"x"))
        };
        let read = || OsdOp::extent(ops::READ, 0, 48 << 20, Bytes::new());
        let result = async |op: &dyn Fn() -> OsdOp, times: usize| {
            let ops = (0..times).map(|_| op()).collect();
            pg.run(pg.request("a", ops)).await.result
        };
        assert_eq!(result(&|| same(0), 5).await, 0);
        assert_eq!(result(&|| same(0), 6).await, Errno::EFBIG.result());
        assert_eq!(result(&read, 5).await, 0);
        assert_eq!(result(&read, 6).await, Errno::EFBIG.result());
    });
}

/// A deep scrub's checksums were recorded in whatever was there by then.
#[test]
fn digests_of_another_version_are_not_recorded() {
    on_pg(|pg| async move {
        pg.op("a", OsdOp::extent(ops::WRITE, 5, 3, Bytes::from_static(b"abc"))).await.unwrap();
        let version = pg.last_update();
        let record = async |version| {
            let oid = oid("a");
            let guard = pg.contexts.lock(&oid, LockKind::Write).await;
            let digests = digests::Digests { version, data: Some(1), omap: None };
            digests::record(&pg.as_pg(), guard, &oid, &digests).await.unwrap().is_some()
        };
        assert!(record(version).await);
        pg.op("a", OsdOp::extent(ops::WRITE, 6, 1, Bytes::from_static(b"x"))).await.unwrap();
        assert!(!record(version).await);
        assert!(record(pg.last_update()).await);
    });
}

/// A `zero` past the end answered 0, where it leaves the result of the op before it (a comparison that
/// holds is 1), since nothing changes. (A comparison of object operations with Ceph's found it.)
#[test]
fn what_zeroes_nothing_leaves_the_result_before_it() {
    on_pg(|pg| async move {
        pg.put("a", b"0123").await;
        let mut holds = OsdOp::attr(ops::CMPXATTR, b"x", &[0; 8]).unwrap();
        let args = holds.args.xattr();
        let (compare_op, compare_mode) = (compare_op::EQ, compare_mode::U64);
        holds.args.set_xattr(XattrArgs { compare_op, compare_mode, ..args });
        let past = OsdOp::extent(ops::ZERO, 8, 5, Bytes::new());
        let reply = pg.run(pg.request("a", vec![holds, past.clone()])).await;
        assert_eq!((reply.result, reply.ops[1].rval), (1, 1));
        let reply = pg.run(pg.request("a", vec![past])).await;
        assert_eq!(reply.result, 0);
    });
}

/// A read of a whole object compared it with the digest that is known of it, and a sparse read, which is how librbd reads, did not: it gave
/// damaged bytes of stores that have no checksums.
#[test]
fn sparse_reads_notice_damage() {
    on_pg(|pg| async move {
        pg.limits.borrow_mut().skip_data_digest = false;
        pg.put("a", b"abc").await;
        let mut damage = Transaction::new();
        damage.write(&pg.coll(), &GhObject::from(oid("a")), 0, Bytes::from_static(b"abd"));
        pg.store().submit(damage).await.unwrap();
        let sparse = |offset| OsdOp::extent(ops::SPARSE_READ, offset, 3, Bytes::new());
        for (op, notices) in [(read(0, 3), true), (sparse(0), true), (sparse(1), false)] {
            assert_eq!(pg.op("a", op).await == Err(Errno::EIO), notices);
            assert_eq!(pg.damaged.borrow_mut().drain(..).next() == Some(oid("a")), notices);
        }
    });
}
