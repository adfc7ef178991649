//! What class `fifo` does with its objects.

use ::types::Errno;
use bytes::Bytes;
use denc::{Denc, Writer};

use super::*;
use crate::testing::TestObject;

fn create(id: &str, exclusive: bool) -> CreateMetaOp {
    CreateMetaOp {
        id: id.into(),
        max_part_size: 1000,
        max_entry_size: 100,
        exclusive,
        ..CreateMetaOp::default()
    }
}

fn meta(object: &mut TestObject) -> Result<Info, Errno> {
    let reply = object.call("fifo", "get_meta", &GetMetaOp::default())?;
    let reply = GetMetaReply::from_bytes_exact(&reply).unwrap();
    assert_eq!((reply.part_header_size, reply.part_entry_overhead), (512, 58));
    Ok(reply.info)
}

fn update(object: &mut TestObject, op: &UpdateMetaOp) -> Result<(), Errno> {
    object.call("fifo", "update_meta", op).map(|_| ())
}

fn part_of(full_size_threshold: u64) -> TestObject {
    let params = DataParams { max_part_size: 1000, max_entry_size: 100, full_size_threshold };
    let mut object = TestObject::default();
    object.call("fifo", "init_part", &InitPartOp { params, ..InitPartOp::default() }).unwrap();
    object
}

fn push(object: &mut TestObject, entries: &[&str]) -> Result<i32, Errno> {
    let op = PushPartOp {
        data_bufs: entries.iter().map(|e| Bytes::copy_from_slice(e.as_bytes())).collect(),
        total_len: entries.iter().map(|e| e.len() as u64).sum(),
        ..PushPartOp::default()
    };
    object.call_raw("fifo", "push_part", &op.to_bytes()).map(|output| output.result)
}

fn page(object: &mut TestObject, ofs: u64, max_entries: i32) -> Result<ListPartReply, Errno> {
    let op = ListPartOp { ofs, max_entries, ..ListPartOp::default() };
    let reply = object.call("fifo", "part_list", &op)?;
    Ok(ListPartReply::from_bytes_exact(&reply).unwrap())
}

fn words(reply: &ListPartReply) -> Vec<String> {
    reply.entries.iter().map(|e| String::from_utf8(e.data.to_vec()).unwrap()).collect()
}

fn trim(object: &mut TestObject, ofs: u64, exclusive: bool) -> Result<(), Errno> {
    object.call("fifo", "trim_part", &TrimPartOp { ofs, exclusive, ..TrimPartOp::default() })?;
    Ok(())
}

fn header(object: &mut TestObject) -> PartHeader {
    let reply = object.call("fifo", "get_part_info", &GetPartInfoOp {}).unwrap();
    GetPartInfoReply::from_bytes_exact(&reply).unwrap().header
}

#[test]
fn a_fifo_is_made_once() {
    let mut object = TestObject::default();
    assert_eq!(meta(&mut object), Err(Errno::ENOENT));
    for op in [create("", false), CreateMetaOp { max_entry_size: 1001, ..create("f", false) }] {
        assert_eq!(object.call("fifo", "create_meta", &op), Err(Errno::EINVAL));
    }
    object.call("fifo", "create_meta", &create("f", true)).unwrap();
    let info = meta(&mut object).unwrap();
    assert_eq!((info.version.instance.len(), info.version.ver), (16, 1));
    assert_eq!((&info.oid_prefix[..2], info.oid_prefix.len()), (&b"f."[..], 13));
    assert_eq!(info.params.full_size_threshold, 1000 - 100 - 58);
    object.call("fifo", "create_meta", &create("f", false)).unwrap();
    let others = [
        create("f", true),
        create("g", false),
        CreateMetaOp { oid_prefix: Some("p".into()), ..create("f", false) },
    ];
    for op in others {
        assert_eq!(object.call("fifo", "create_meta", &op), Err(Errno::EEXIST));
    }
    // One that a client has only touched.
    let mut empty = TestObject { exists: true, ..TestObject::default() };
    assert_eq!(meta(&mut empty), Err(Errno::ENODATA));
    assert_eq!(empty.call("fifo", "create_meta", &create("f", false)), Err(Errno::EIO));
}

#[test]
fn a_fifo_changes_under_its_version() {
    let mut object = TestObject::default();
    object.call("fifo", "create_meta", &create("f", true)).unwrap();
    let version = meta(&mut object).unwrap().version;
    let entry = JournalEntry { op: JournalOp::Create, part_num: 3 };
    let op = UpdateMetaOp {
        version: version.clone(),
        head_part_num: Some(3),
        journal_entries_add: vec![entry],
        ..UpdateMetaOp::default()
    };
    assert_eq!(update(&mut object, &UpdateMetaOp::default()), Err(Errno::EINVAL));
    update(&mut object, &op).unwrap();
    let info = meta(&mut object).unwrap();
    assert_eq!((info.version.ver, info.head_part_num, info.journal.len()), (2, 3, 1));
    assert_eq!(update(&mut object, &op), Err(Errno::ECANCELED));
    // The same again is no change, and no new version.
    update(&mut object, &UpdateMetaOp { version: info.version.clone(), ..op }).unwrap();
    assert_eq!(meta(&mut object).unwrap(), info);
    let done = UpdateMetaOp {
        version: info.version,
        journal_entries_rm: vec![entry],
        ..UpdateMetaOp::default()
    };
    update(&mut object, &done).unwrap();
    assert!(meta(&mut object).unwrap().journal.is_empty());
}

/// Found by reading: real OSDs fail an assertion when they store such an entry.
#[test]
fn a_journal_entry_of_no_kind_is_refused() {
    for (op, part_num) in [(-1i32, 1i64), (4, 1), (1, -1)] {
        let mut w = Writer::new();
        w.envelope(1, 1, |w| {
            w.i32(op);
            w.i64(part_num);
            w.blob(b"");
        });
        assert!(JournalEntry::from_bytes(&w.into_bytes()).is_err());
    }
}

#[test]
fn a_part_takes_entries_until_it_is_full() {
    let mut object = part_of(700);
    let params = DataParams { max_part_size: 1, ..DataParams::default() };
    let other = InitPartOp { params, ..InitPartOp::default() };
    assert_eq!(object.call("fifo", "init_part", &other), Err(Errno::EEXIST));
    assert_eq!(push(&mut object, &[]), Err(Errno::EFAULT));
    assert_eq!(push(&mut object, &["x"; 20]), Err(Errno::EINVAL));
    assert_eq!(push(&mut object, &["a", "b", "c"]), Ok(3));
    assert_eq!(push(&mut object, &["d", "e"]), Ok(1));
    assert_eq!(push(&mut object, &["f"]), Err(Errno::ERANGE));
    let header = header(&mut object);
    assert_eq!((header.min_ofs, header.last_ofs, header.next_ofs), (512, 689, 748));
    assert_eq!((header.min_index, header.max_index, header.is_full()), (0, 4, true));
    let op = PushPartOp { total_len: 7, ..PushPartOp::default() };
    assert_eq!(part_of(700).call("fifo", "push_part", &op), Err(Errno::EINVAL));
}

#[test]
fn a_part_is_listed_and_trimmed_by_offset() {
    let mut object = part_of(700);
    push(&mut object, &["a", "b", "c", "d"]).unwrap();
    let all = page(&mut object, 0, 100).unwrap();
    assert_eq!(
        (words(&all), all.more, all.full_part),
        (["a", "b", "c", "d"].map(String::from).into(), false, true)
    );
    let first = page(&mut object, 0, 1).unwrap();
    assert_eq!((first.entries[0].ofs, first.more), (512, true));
    assert_eq!(words(&page(&mut object, 512, 2).unwrap()), ["b", "c"]);
    assert_eq!(words(&page(&mut object, 5000, 2).unwrap()), [""; 0]);
    assert_eq!(page(&mut object, 0, -1).unwrap().entries.len(), 0);
    assert_eq!(page(&mut object, 520, 2), Err(Errno::ERANGE));
    trim(&mut object, 571, true).unwrap();
    assert_eq!(words(&page(&mut object, 0, 9).unwrap()), ["b", "c", "d"]);
    trim(&mut object, 571, false).unwrap();
    trim(&mut object, 512, false).unwrap();
    assert_eq!((header(&mut object).min_ofs, header(&mut object).min_index), (630, 2));
    assert_eq!(words(&page(&mut object, 0, 9).unwrap()), ["c", "d"]);
    trim(&mut object, 9999, false).unwrap();
    assert!(!object.exists);
    // One that is not full stays.
    let mut object = part_of(700);
    push(&mut object, &["a"]).unwrap();
    trim(&mut object, 9999, false).unwrap();
    assert_eq!((header(&mut object).min_ofs, header(&mut object).min_index), (571, 1));
}

/// Whatever stands in a part, a method ends with an answer.
#[test]
fn a_broken_part_is_an_error() {
    let mut whole = part_of(900);
    push(&mut whole, &["abc", "de"]).unwrap();
    for at in 0..whole.data.len() {
        for byte in [0, 1, 0x7f, 0xff] {
            let mut object = whole.clone();
            object.data[at] = byte;
            let _ = page(&mut object, 0, 9);
            let _ = page(&mut object, 512, 9);
            let _ = trim(&mut object.clone(), 512, false);
            // Ones far away are the object store's to refuse.
            let far = object.call("fifo", "get_part_info", &GetPartInfoOp {}).is_ok_and(|reply| {
                let header = GetPartInfoReply::from_bytes_exact(&reply).unwrap().header;
                header.next_ofs > 1 << 20
            });
            if !far {
                let _ = push(&mut object, &["f"]);
            }
        }
    }
}
