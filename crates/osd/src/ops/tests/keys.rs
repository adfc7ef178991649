//! Attributes and omap.

use std::collections::{BTreeMap, BTreeSet};

use denc::Writer;
use types::osd::ops::{XattrArgs, compare_mode, compare_op};

use super::*;

fn set(name: &str, value: &[u8]) -> OsdOp {
    OsdOp::attr(ops::SETXATTR, name.as_bytes(), value).unwrap()
}

fn attr(code: u16, name: &str) -> OsdOp {
    OsdOp::attr(code, name.as_bytes(), b"").unwrap()
}

fn omap(code: u16, input: Bytes) -> OsdOp {
    OsdOp { indata: input, ..OsdOp::new(code) }
}

fn vals(pairs: &[(&str, &'static str)]) -> BTreeMap<BString, Bytes> {
    pairs.iter().map(|(k, v)| (key(k), Bytes::from_static(v.as_bytes()))).collect()
}

#[test]
fn xattrs() {
    on_pg(|pg| async move {
        assert_eq!(pg.op("a", attr(ops::GETXATTR, "x")).await, Err(Errno::ENOENT));
        assert_eq!(pg.op("a", attr(ops::RMXATTR, "x")).await, Err(Errno::ENOENT));
        pg.op("a", set("x", b"1")).await.unwrap();
        pg.op("a", set("y", b"")).await.unwrap();
        assert_eq!(pg.op("a", attr(ops::GETXATTR, "x")).await.unwrap(), &b"1"[..]);
        assert_eq!(pg.op("a", attr(ops::GETXATTR, "z")).await, Err(Errno::ENODATA));
        let all = pg.op("a", OsdOp::new(ops::GETXATTRS)).await.unwrap();
        let all: BTreeMap<BString, Bytes> = Denc::from_bytes_exact(&all).unwrap();
        assert_eq!(all, vals(&[("x", "1"), ("y", "")]));
        pg.op("a", attr(ops::RMXATTR, "x")).await.unwrap();
        pg.op("a", attr(ops::RMXATTR, "never")).await.unwrap();
        assert_eq!(pg.op("a", attr(ops::GETXATTR, "x")).await, Err(Errno::ENODATA));
        assert_eq!(pg.op("a", set(&"n".repeat(101), b"")).await, Err(Errno::ENAMETOOLONG));
        pg.op("a", set(&"n".repeat(100), b"")).await.unwrap();
        pg.limits.borrow_mut().attr_size = 3;
        assert_eq!(pg.op("a", set("x", b"long")).await, Err(Errno::EFBIG));
        let mut lies = set("x", b"1");
        lies.args.set_xattr(XattrArgs { name_len: 50, ..XattrArgs::default() });
        assert_eq!(pg.op("a", lies).await, Err(Errno::EINVAL));
        // As in Ceph, an attribute with no name is the object's info, and stays so.
        pg.limits.borrow_mut().attr_size = 0;
        pg.op("a", set("", b"1")).await.unwrap();
        let info = pg.op("a", attr(ops::GETXATTR, "")).await.unwrap();
        assert!(types::osd::ObjectInfo::from_bytes_exact(&info).is_ok());
        pg.op("a", attr(ops::RMXATTR, "")).await.unwrap();
        // The cache agrees with the store after all that.
        let all = pg.op("a", OsdOp::new(ops::GETXATTRS)).await.unwrap();
        pg.contexts.forget(&oid("a"));
        assert_eq!(pg.op("a", OsdOp::new(ops::GETXATTRS)).await.unwrap(), all);
    });
}

#[test]
fn many_xattrs_are_read_from_the_store() {
    on_pg(|pg| async move {
        for i in 0..40 {
            pg.op("a", set(&format!("x{i}"), &[i; 1000])).await.unwrap();
        }
        assert_eq!(pg.op("a", attr(ops::GETXATTR, "x39")).await.unwrap(), &[39; 1000][..]);
        assert_eq!(pg.op("a", attr(ops::GETXATTR, "z")).await, Err(Errno::ENODATA));
        let all = pg.op("a", OsdOp::new(ops::GETXATTRS)).await.unwrap();
        let all: BTreeMap<BString, Bytes> = Denc::from_bytes_exact(&all).unwrap();
        assert_eq!(all.len(), 40);
    });
}

#[test]
fn cmpxattr() {
    on_pg(|pg| async move {
        pg.op("a", set("x", b"bb")).await.unwrap();
        pg.op("a", set("n", b"12")).await.unwrap();
        let compare = |name: &str, value: &[u8], op, mode| {
            let mut cmp = OsdOp::attr(ops::CMPXATTR, name.as_bytes(), value).unwrap();
            let args = cmp.args.xattr();
            cmp.args.set_xattr(XattrArgs { compare_op: op, compare_mode: mode, ..args });
            cmp
        };
        // The given value stands on the left.
        for (value, op, holds) in [
            (&b"bb"[..], compare_op::EQ, true),
            (b"b", compare_op::EQ, false),
            (b"b", compare_op::NE, true),
            (b"c", compare_op::GT, true),
            (b"bb", compare_op::GTE, true),
            (b"a", compare_op::LT, true),
            (b"c", compare_op::LTE, false),
        ] {
            let result = pg.op("a", compare("x", value, op, compare_mode::STRING)).await;
            assert_eq!(result.is_ok(), holds, "{value:?} {op}");
            assert!(holds || result == Err(Errno::ECANCELED));
        }
        let number = |n: u64, op| compare("n", &n.to_le_bytes(), op, compare_mode::U64);
        assert!(pg.op("a", number(12, compare_op::EQ)).await.is_ok());
        assert!(pg.op("a", number(13, compare_op::GT)).await.is_ok());
        assert_eq!(pg.op("a", number(11, compare_op::GT)).await, Err(Errno::ECANCELED));
        // An attribute that is not there is empty, or 0.
        assert!(pg.op("a", compare("z", b"", compare_op::EQ, compare_mode::STRING)).await.is_ok());
        let zero = compare("z", &[0; 8], compare_op::EQ, compare_mode::U64);
        assert!(pg.op("a", zero).await.is_ok());
        assert_eq!(
            pg.op("a", compare("x", b"", 9, compare_mode::STRING)).await,
            Err(Errno::EINVAL)
        );
        assert_eq!(pg.op("a", compare("x", b"", 1, 9)).await, Err(Errno::EINVAL));
        // Guarding a write.
        let guard = compare("x", b"no", compare_op::EQ, compare_mode::STRING);
        let reply = pg.run(pg.request("a", vec![guard, set("x", b"cc")])).await;
        assert_eq!(reply.result, Errno::ECANCELED.result());
        assert_eq!(pg.op("a", attr(ops::GETXATTR, "x")).await.unwrap(), &b"bb"[..]);
    });
}

async fn get_vals(
    pg: &TestPg,
    after: &str,
    max: u64,
    prefix: &str,
) -> (Vec<(String, String)>, bool) {
    let mut w = Writer::new();
    w.put(&key(after));
    w.u64(max);
    w.put(&key(prefix));
    let out = pg.op("a", omap(ops::OMAPGETVALS, w.into_bytes())).await.unwrap();
    let (vals, more): (Vec<(String, String)>, bool) = Denc::from_bytes_exact(&out).unwrap();
    (vals, more)
}

async fn get_keys(pg: &TestPg, after: &str, max: u64) -> (Vec<String>, bool) {
    let mut w = Writer::new();
    w.put(&key(after));
    w.u64(max);
    let out = pg.op("a", omap(ops::OMAPGETKEYS, w.into_bytes())).await.unwrap();
    Denc::from_bytes_exact(&out).unwrap()
}

#[test]
fn omap_keys_values_header() {
    on_pg(|pg| async move {
        let pairs = vals(&[("a1", "1"), ("a2", "2"), ("b1", "3"), ("b2", "4"), ("c", "5")]);
        pg.op("a", omap(ops::OMAPSETVALS, pairs.to_bytes())).await.unwrap();
        assert_eq!(pg.stats.borrow().num_objects_omap, 1);
        assert_eq!(get_keys(&pg, "", 10).await.0, ["a1", "a2", "b1", "b2", "c"]);
        assert_eq!(get_keys(&pg, "a2", 2).await, (vec!["b1".into(), "b2".into()], true));
        assert_eq!(get_keys(&pg, "b1", 2).await, (vec!["b2".into(), "c".into()], false));
        assert_eq!(get_keys(&pg, "", 0).await, (vec![], true));
        let (found, more) = get_vals(&pg, "", 10, "b").await;
        assert_eq!(found, [("b1".into(), "3".into()), ("b2".into(), "4".into())]);
        assert!(!more);
        assert!(get_vals(&pg, "", 1, "b").await.1);
        assert_eq!(get_vals(&pg, "b1", 1, "b").await, (vec![("b2".into(), "4".into())], false));
        assert_eq!(get_vals(&pg, "c", 1, "b").await.0, []);
        pg.limits.borrow_mut().omap_entries = 2;
        assert_eq!(get_keys(&pg, "", 10).await, (vec!["a1".into(), "a2".into()], true));

        let by_keys: BTreeSet<BString> = [key("c"), key("none"), key("a1")].into();
        let out = pg.op("a", omap(ops::OMAPGETVALSBYKEYS, by_keys.to_bytes())).await.unwrap();
        let found: BTreeMap<BString, Bytes> = Denc::from_bytes_exact(&out).unwrap();
        assert_eq!(found, vals(&[("a1", "1"), ("c", "5")]));

        pg.op("a", omap(ops::OMAPSETHEADER, Bytes::from_static(b"head"))).await.unwrap();
        let header = pg.op("a", OsdOp::new(ops::OMAPGETHEADER)).await.unwrap();
        assert_eq!(header, &b"head"[..]);
        let rm: BTreeSet<BString> = [key("a1"), key("none")].into();
        pg.op("a", omap(ops::OMAPRMKEYS, rm.to_bytes())).await.unwrap();
        let range = (key("b"), key("b2")).to_bytes();
        pg.op("a", omap(ops::OMAPRMKEYRANGE, range)).await.unwrap();
        pg.limits.borrow_mut().omap_entries = 1024;
        assert_eq!(get_keys(&pg, "", 10).await.0, ["a2", "b2", "c"]);
        pg.check_stats().await;
        pg.op("a", OsdOp::new(ops::OMAPCLEAR)).await.unwrap();
        assert_eq!(get_keys(&pg, "", 10).await.0, Vec::<String>::new());
        assert_eq!(pg.op("a", OsdOp::new(ops::OMAPGETHEADER)).await.unwrap(), &b""[..]);
        pg.check_stats().await;
        for code in [ops::OMAPCLEAR, ops::OMAPRMKEYS, ops::OMAPRMKEYRANGE] {
            assert_eq!(pg.op("none", OsdOp::new(code)).await, Err(Errno::ENOENT));
        }
        let bad = omap(ops::OMAPSETVALS, Bytes::from_static(b"\xff\xff\xff\xff"));
        assert_eq!(pg.op("a", bad).await, Err(Errno::EINVAL));
    });
}

/// Listings ended one entry too soon, and those of keys counted the values: a listing ends with the
/// entry that reaches osd_max_omap_bytes_per_request, counted as it is encoded.
#[test]
fn listings_are_cut_where_cephs_are() {
    on_pg(|pg| async move {
        let pairs = vals(&[("a1", "1"), ("a2", "a longer value"), ("b1", "3"), ("b2", "4")]);
        pg.op("a", omap(ops::OMAPSETVALS, pairs.to_bytes())).await.unwrap();
        for (bytes, keys, values) in [(1, 1, 1), (6, 1, 1), (7, 2, 1), (12, 2, 2), (35, 4, 2)] {
            pg.limits.borrow_mut().omap_bytes = bytes;
            let (found, more) = get_keys(&pg, "", 10).await;
            assert_eq!((found.len(), more), (keys, keys < 4), "{bytes}");
            let (found, more) = get_vals(&pg, "", 10, "").await;
            assert_eq!((found.len(), more), (values, true), "{bytes}");
        }
        pg.limits.borrow_mut().omap_bytes = 12;
        assert!(!get_vals(&pg, "", 10, "a").await.1);
    });
}

/// A page was collected up to osd_max_omap_bytes_per_request, a GiB, and then refused (EFBIG) as more than an answer may hold: an
/// object whose values are long could not be listed, not even in part.
#[test]
fn listings_come_in_pages_that_an_answer_holds() {
    on_pg(|pg| async move {
        let names: Vec<String> = (0..6).map(|n| format!("k{n}")).collect();
        let pairs: BTreeMap<BString, Bytes> =
            names.iter().map(|name| (key(name), Bytes::from_static(&[b'v'; 20]))).collect();
        pg.op("a", omap(ops::OMAPSETVALS, pairs.to_bytes())).await.unwrap();
        // Two of the three of 30 bytes that would fit without the count and the flag.
        pg.limits.borrow_mut().held = 90;
        let mut listed: Vec<String> = Vec::new();
        for more in [true, true, false] {
            let after = listed.last().cloned().unwrap_or_default();
            let (page, has_more) = get_vals(&pg, &after, 10, "").await;
            assert_eq!((page.len(), has_more), (2, more));
            listed.extend(page.into_iter().map(|(name, _)| name));
        }
        assert_eq!(listed, names);
        assert_eq!(get_keys(&pg, "", 10).await, (names, false));
        // The second of a vector has what the first has left.
        let list = |max: u64| omap(ops::OMAPGETVALS, (key(""), max, key("")).to_bytes());
        pg.limits.borrow_mut().held = 165;
        let reply = pg.run(pg.request("a", vec![list(3), list(10)])).await;
        let pages: Vec<u32> = reply.ops.iter().map(|op| entries_of(&op.outdata)).collect();
        assert_eq!((reply.result, pages), (0, vec![3, 2]));
        // An entry that no answer holds is refused.
        pg.limits.borrow_mut().held = 30;
        assert_eq!(pg.op("a", list(10)).await, Err(Errno::EFBIG));
    });
}

/// How many entries a listing has.
fn entries_of(listing: &types::bufferlist::BufferList) -> u32 {
    u32::from_le_bytes(listing.to_contiguous()[..4].try_into().unwrap())
}

/// Where the object is made by the same vector, listing and comparing its omap found what was not
/// set yet to be empty. Ceph's store has no such object (`ENOENT`).
#[test]
fn omap_of_what_the_vector_makes() {
    on_pg(|pg| async move {
        let set = omap(ops::OMAPSETVALS, vals(&[("k", "m")]).to_bytes());
        let wanted = BTreeMap::from([(key("k"), (Bytes::new(), 1))]);
        let keys = (key(""), 10_u64).to_bytes();
        let listing = (key(""), 10_u64, key("")).to_bytes();
        for (op, result) in [
            (omap(ops::OMAP_CMP, wanted.to_bytes()), Errno::ENOENT.result()),
            (omap(ops::OMAPGETKEYS, keys), Errno::ENOENT.result()),
            (omap(ops::OMAPGETVALS, listing), Errno::ENOENT.result()),
            (omap(ops::OMAPGETVALSBYKEYS, vec![key("k")].to_bytes()), 0),
            (OsdOp::new(ops::OMAPGETHEADER), 0),
        ] {
            let reply = pg.run(pg.request("a", vec![set.clone(), op.clone()])).await;
            assert_eq!(reply.result, result, "{op:?}");
            if result == 0 {
                pg.op("a", OsdOp::new(ops::DELETE)).await.unwrap();
            }
        }
    });
}

#[test]
fn omap_cmp() {
    on_pg(|pg| async move {
        pg.op("a", omap(ops::OMAPSETVALS, vals(&[("k", "m")]).to_bytes())).await.unwrap();
        let compare = |name: &str, value: &'static [u8], op: i32| {
            let wanted = BTreeMap::from([(key(name), (Bytes::from_static(value), op))]);
            omap(ops::OMAP_CMP, wanted.to_bytes())
        };
        assert!(pg.op("a", compare("k", b"m", 1)).await.is_ok());
        assert_eq!(pg.op("a", compare("k", b"x", 1)).await, Err(Errno::ECANCELED));
        // The stored value stands on the left.
        assert!(pg.op("a", compare("k", b"z", 5)).await.is_ok());
        assert!(pg.op("a", compare("k", b"a", 3)).await.is_ok());
        assert!(pg.op("a", compare("none", b"", 1)).await.is_ok());
        assert_eq!(pg.op("a", compare("k", b"m", 2)).await, Err(Errno::EINVAL));
        assert_eq!(pg.op("none", compare("k", b"m", 1)).await, Err(Errno::ENOENT));
    });
}

#[test]
fn tmaps() {
    on_pg(|pg| async move {
        let mut w = Writer::new();
        w.blob(b"head");
        w.put(&vals(&[("b", "2")]));
        pg.op("a", omap(ops::TMAPPUT, w.into_bytes())).await.unwrap();
        let mut w = Writer::new();
        w.u8(b's');
        w.put(&key("a"));
        w.blob(b"1");
        w.u8(b'r');
        w.put(&key("b"));
        let update = w.into_bytes();
        pg.op("a", omap(ops::TMAPUP, update.clone())).await.unwrap();
        assert_eq!(pg.op("a", omap(ops::TMAPUP, update)).await, Err(Errno::ENOENT));
        let out = pg.op("a", OsdOp::new(ops::TMAPGET)).await.unwrap();
        let (header, keys): (Bytes, BTreeMap<BString, Bytes>) =
            Denc::from_bytes_exact(&out).unwrap();
        assert_eq!((header, keys), (Bytes::from_static(b"head"), vals(&[("a", "1")])));
        pg.op("a", OsdOp::new(ops::TMAP2OMAP)).await.unwrap();
        assert_eq!(get_keys(&pg, "", 10).await.0, ["a"]);
        assert_eq!(pg.get("a").await.unwrap(), &b""[..]);
        assert_eq!(pg.op("a", OsdOp::new(ops::TMAP2OMAP)).await, Err(Errno::ENODATA));
    });
}
