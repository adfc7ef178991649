//! What classes `queue`, `2pc_queue` and `rgw_gc` do with their object.

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use types::{Errno, UTime};

use super::ring::{Head, Marker};
use super::*;
use crate::queue_2pc::{
    CommitOp, ExpireOp, ReservationId, ReservationsRet, ReserveOp, UrgentData as ReservedData,
};
use crate::rgw::gc;
use crate::rgw_gc::{QueueInitOp, QueueRemoveEntriesOp, UrgentData};
use crate::testing::TestObject;

fn ring_of(queue_size: u64) -> TestObject {
    let mut object = TestObject { exists: true, ..TestObject::default() };
    let op = InitOp { queue_size, ..InitOp::default() };
    object.call("queue", "queue_init", &op).unwrap();
    object
}

fn push(object: &mut TestObject, entries: &[&str]) -> Result<(), Errno> {
    let data = entries.iter().map(|e| Bytes::copy_from_slice(e.as_bytes())).collect();
    object.call("queue", "queue_enqueue", &EnqueueOp { data }).map(|_| ())
}

fn page(object: &mut TestObject, max: u64, start_marker: &str) -> Result<ListRet, Errno> {
    let op = ListOp { max, start_marker: start_marker.into() };
    let reply = object.call("queue", "queue_list_entries", &op)?;
    Ok(ListRet::from_bytes_exact(&reply).unwrap())
}

fn words(ret: &ListRet) -> Vec<String> {
    ret.entries.iter().map(|e| String::from_utf8(e.data.to_vec()).unwrap()).collect()
}

fn remove(object: &mut TestObject, end_marker: &BString) -> Result<(), Errno> {
    let op = RemoveOp { end_marker: end_marker.clone() };
    object.call("queue", "queue_remove_entries", &op).map(|_| ())
}

#[test]
fn a_queue_is_made_once_and_of_an_object() {
    let op = InitOp { queue_size: 100, ..InitOp::default() };
    let mut object = TestObject::default();
    assert_eq!(object.call("queue", "queue_init", &op), Err(Errno::ENOENT));
    object.exists = true;
    assert_eq!(page(&mut object, 1, ""), Err(Errno::EINVAL));
    object.call("queue", "queue_init", &op).unwrap();
    assert_eq!(object.call("queue", "queue_init", &op), Err(Errno::EEXIST));
    let reply = object.call_raw("queue", "queue_get_capacity", &Bytes::new()).unwrap();
    assert_eq!(GetCapacityRet::from_bytes_exact(&reply.data).unwrap().queue_capacity, 100);
    let ret = page(&mut object, 1, "").unwrap();
    assert_eq!((ret.is_truncated, ret.next_marker, ret.entries), (false, "0/1024".into(), vec![]));
    // A head that does not fit before the entries.
    let op = InitOp { urgent_data: vec![0; 1000].into(), max_urgent_data_size: 10, ..op };
    let mut object = TestObject { exists: true, ..TestObject::default() };
    assert_eq!(object.call("queue", "queue_init", &op), Err(Errno::EINVAL));
    let op = InitOp { queue_size: u64::MAX, ..InitOp::default() };
    assert_eq!(object.call("queue", "queue_init", &op), Err(Errno::EINVAL));
}

/// Each way an entry can meet the end of the ring: in its magic number, its length, its data, and
/// exactly with its own end.
#[test]
fn entries_come_back_wherever_they_meet_the_end() {
    for size in 40..80 {
        let mut object = ring_of(size);
        let mut queued = std::collections::VecDeque::new();
        for n in 0..60 {
            let word = format!("{n}{}", "x".repeat(n % 7));
            while push(&mut object, &[&word]) == Err(Errno::ENOSPC) {
                let ret = page(&mut object, 1, "").unwrap();
                assert_eq!(words(&ret), [queued.pop_front().unwrap()]);
                remove(&mut object, &ret.next_marker).unwrap();
            }
            queued.push_back(word);
            let ret = page(&mut object, 100, "").unwrap();
            assert_eq!((words(&ret), ret.is_truncated), (queued.clone().into(), false));
            assert!(object.data.len() as u64 <= 1024 + size);
        }
    }
}

#[test]
fn a_listing_goes_on_where_the_last_one_ended() {
    let mut object = ring_of(1 << 20);
    let long = "y".repeat(100_000);
    push(&mut object, &["a", &long, "", "d"]).unwrap();
    let first = page(&mut object, 2, "").unwrap();
    assert_eq!((words(&first), first.is_truncated), (vec!["a".to_owned(), long], true));
    assert_eq!(first.entries[0].marker, "0/1024");
    assert_eq!(first.entries[1].marker, "0/1035");
    let marker = first.next_marker.to_string();
    let second = page(&mut object, 2, &marker).unwrap();
    assert_eq!((words(&second), second.is_truncated), (vec![String::new(), "d".to_owned()], false));
    let end = second.next_marker.to_string();
    assert_eq!(page(&mut object, 2, &end).unwrap().entries, []);
    // None asked for: what Ceph answers leads back to the start.
    let none = page(&mut object, 0, &marker).unwrap();
    assert_eq!(
        (none.entries.len(), none.is_truncated, none.next_marker),
        (0, true, first.next_marker)
    );
}

/// Found by reading: Ceph looks for room once, and a second entry behind one that fills the ring
/// goes over the oldest.
#[test]
fn a_full_ring_takes_no_more() {
    let mut object = ring_of(33);
    assert_eq!(push(&mut object, &["a", "b", "c", "d"]), Err(Errno::ENOSPC));
    let mut object = ring_of(33);
    push(&mut object, &["a", "b", "c"]).unwrap();
    assert_eq!(push(&mut object, &["d"]), Err(Errno::ENOSPC));
    assert_eq!(push(&mut object, &[]), Err(Errno::ENOSPC));
    assert_eq!(words(&page(&mut object, 9, "").unwrap()), ["a", "b", "c"]);
    let all = page(&mut object, 9, "").unwrap().next_marker;
    assert_eq!(all, "1/1024");
    remove(&mut object, &all).unwrap();
    push(&mut object, &["d"]).unwrap();
    assert_eq!(words(&page(&mut object, 9, "").unwrap()), ["d"]);
    assert!(object.data[1035..].iter().all(|byte| *byte == 0));
}

#[test]
fn only_what_is_queued_can_be_removed() {
    let mut object = ring_of(100);
    remove(&mut object, &"7/7".into()).unwrap();
    push(&mut object, &["a", "b", "c"]).unwrap();
    let first = page(&mut object, 1, "").unwrap().next_marker;
    remove(&mut object, &first).unwrap();
    // Again, as a client does that had no answer: nothing happens.
    remove(&mut object, &first).unwrap();
    for marker in ["0/1024", "0/1058", "1/1024", "1/1100", "", "x", "0/99999999", "9/1040"] {
        assert_eq!(remove(&mut object, &marker.into()), Err(Errno::EINVAL), "{marker}");
    }
    assert_eq!(words(&page(&mut object, 9, "").unwrap()), ["b", "c"]);
}

/// Whatever stands in the object or in a marker, a method ends with an answer.
#[test]
fn a_broken_queue_is_an_error() {
    let mut object = ring_of(100);
    push(&mut object, &["abc"]).unwrap();
    for marker in ["0/1", "0/1025", "0/1037", "0/9999", "5/18446744073709551615", "0/"] {
        let _ = page(&mut object, 9, marker);
    }
    let whole = object.clone();
    for at in 0..whole.data.len() {
        for byte in [0, 1, 0x7f, 0xff] {
            let mut object = whole.clone();
            object.data[at] = byte;
            let _ = page(&mut object, 9, "");
            let _ = push(&mut object, &["d", "e"]);
            let _ = remove(&mut object, &"0/1037".into());
        }
    }
    let head = Head {
        max_head_size: 1024,
        front: Marker { generation: u64::MAX, offset: 1100 },
        tail: Marker { generation: 0, offset: 1030 },
        queue_size: 1124,
        ..Head::default()
    };
    let mut object = whole;
    let bytes = head.to_bytes();
    object.data[10..10 + bytes.len()].copy_from_slice(&bytes);
    assert_eq!(page(&mut object, 9, ""), Err(Errno::EIO));
}

/// All garbage, as much as is usual.
const ALL: gc::ListOp =
    gc::ListOp { marker: BString::new(Vec::new()), max: 0, expired_only: false };

fn gc_queue(num_deferred_entries: u64) -> TestObject {
    let mut object = TestObject { exists: true, ..TestObject::default() };
    let op = QueueInitOp { size: 1 << 20, num_deferred_entries };
    object.call("rgw_gc", "rgw_gc_queue_init", &op).unwrap();
    object
}

fn gc_call(
    object: &mut TestObject,
    method: &str,
    tag: &str,
    expiration_secs: u32,
) -> Result<(), Errno> {
    let info = gc::ObjInfo { tag: tag.into(), ..gc::ObjInfo::default() };
    object.call("rgw_gc", method, &gc::SetEntryOp { expiration_secs, info }).map(|_| ())
}

fn gc_page(object: &mut TestObject, op: &gc::ListOp) -> (Vec<String>, bool, BString) {
    let reply = object.call("rgw_gc", "rgw_gc_queue_list_entries", op).unwrap();
    let ret = gc::ListRet::from_bytes_exact(&reply).unwrap();
    let tags = ret.entries.iter().map(|info| info.tag.to_string()).collect();
    (tags, ret.truncated, ret.next_marker)
}

fn gc_remove(object: &mut TestObject, num_entries: u64) {
    let op = QueueRemoveEntriesOp { num_entries };
    object.call("rgw_gc", "rgw_gc_queue_remove_entries", &op).unwrap();
}

fn urgent(object: &TestObject) -> UrgentData {
    let start = Bytes::copy_from_slice(&object.data[10..]);
    UrgentData::from_bytes_exact(&Head::from_bytes(&start).unwrap().urgent_data).unwrap()
}

#[test]
fn garbage_is_listed_when_its_time_has_come() {
    let mut object = gc_queue(50);
    for (tag, secs) in [("a", 0), ("b", 60), ("c", 0), ("d", 0)] {
        gc_call(&mut object, "rgw_gc_queue_enqueue", tag, secs).unwrap();
    }
    let expired = gc::ListOp { expired_only: true, ..ALL };
    assert_eq!(gc_page(&mut object, &ALL).0, ["a", "b", "c", "d"]);
    assert_eq!(gc_page(&mut object, &expired).0, ["a", "c", "d"]);
    // One left out counts all the same.
    let (tags, truncated, next) = gc_page(&mut object, &gc::ListOp { max: 3, ..expired.clone() });
    assert_eq!((tags, truncated), (vec!["a".to_owned(), "c".to_owned()], true));
    let rest = gc::ListOp { marker: next, ..expired.clone() };
    assert_eq!(gc_page(&mut object, &rest), (vec!["d".to_owned()], false, BString::default()));
    object.now = UTime::new(object.now.sec + 61, 0);
    assert_eq!(gc_page(&mut object, &expired).0, ["a", "b", "c", "d"]);
    gc_remove(&mut object, 3);
    assert_eq!(gc_page(&mut object, &ALL).0, ["d"]);
    gc_remove(&mut object, 0);
    assert_eq!(gc_page(&mut object, &ALL).0, [""; 0]);
    gc_remove(&mut object, 5);
}

#[test]
fn deferred_garbage_is_passed_over() {
    let mut object = gc_queue(50);
    for tag in ["a", "b", "c", "d"] {
        gc_call(&mut object, "rgw_gc_queue_enqueue", tag, 0).unwrap();
    }
    for tag in ["a", "c"] {
        gc_call(&mut object, "rgw_gc_queue_update_entry", tag, 60).unwrap();
    }
    assert_eq!(gc_page(&mut object, &gc::ListOp { max: 2, ..ALL }).0, ["b", "d"]);
    // Those passed over before the last of them go with it.
    gc_remove(&mut object, 1);
    assert_eq!(gc_page(&mut object, &ALL).0, ["d"]);
    assert_eq!(urgent(&object).num_head_urgent_entries, 2);
}

#[test]
fn a_deferral_ends_with_the_entry_of_its_time() {
    let mut object = gc_queue(50);
    gc_call(&mut object, "rgw_gc_queue_update_entry", "a", 60).unwrap();
    gc_call(&mut object, "rgw_gc_queue_enqueue", "a", 60).unwrap();
    gc_remove(&mut object, 1);
    assert_eq!(urgent(&object).deferred, []);
    assert_eq!(urgent(&object).num_head_urgent_entries, 0);
}

/// The head has 3 KiB for them, and Ceph forgets to store the xattr that an entry's removal changed.
#[test]
fn deferrals_that_do_not_fit_go_into_an_xattr() {
    let mut object = gc_queue(200);
    let tag = |n| format!("{n:040}");
    for n in 0..100 {
        gc_call(&mut object, "rgw_gc_queue_update_entry", &tag(n), 60).unwrap();
    }
    let UrgentData { num_head_urgent_entries, num_xattr_urgent_entries, .. } = urgent(&object);
    assert_eq!((num_head_urgent_entries, num_xattr_urgent_entries), (58, 42));
    for n in 98..100 {
        gc_call(&mut object, "rgw_gc_queue_enqueue", &tag(n), n * 60 - 97 * 60).unwrap();
    }
    gc_call(&mut object, "rgw_gc_queue_update_entry", &tag(99), 600).unwrap();
    assert_eq!(gc_page(&mut object, &ALL).0, [tag(98)]);
    gc_remove(&mut object, 1);
    assert_eq!(urgent(&object).num_xattr_urgent_entries, 41);
    let kept =
        Vec::<(BString, UTime)>::from_bytes(&object.attrs[&BString::from("cls_queue_urgent_data")]);
    assert_eq!(kept.unwrap().len(), 41);
    assert_eq!(gc_call(&mut gc_queue(0), "rgw_gc_queue_update_entry", "a", 0), Err(Errno::ENOSPC));
}

fn reserved(queue_size: u64) -> TestObject {
    let mut object = TestObject { exists: true, ..TestObject::default() };
    let op = InitOp { queue_size, ..InitOp::default() };
    object.call("2pc_queue", "2pc_queue_init", &op).unwrap();
    object
}

fn reserve(object: &mut TestObject, size: u64, entries: u32) -> Result<u32, Errno> {
    let reply = object.call("2pc_queue", "2pc_queue_reserve", &ReserveOp { size, entries })?;
    Ok(ReservationId::from_bytes_exact(&reply).unwrap().id)
}

fn commit(object: &mut TestObject, id: u32, data: &str) -> Result<(), Errno> {
    let op = CommitOp { id, data: vec![Bytes::copy_from_slice(data.as_bytes())] };
    object.call("2pc_queue", "2pc_queue_commit", &op).map(|_| ())
}

fn reservations(object: &mut TestObject) -> Vec<u32> {
    let reply = object.call_raw("2pc_queue", "2pc_queue_list_reservations", &Bytes::new()).unwrap();
    let ret = ReservationsRet::from_bytes_exact(&reply.data).unwrap();
    ret.reservations.iter().map(|(id, _)| *id).collect()
}

fn reserved_data(object: &TestObject) -> ReservedData {
    let start = Bytes::copy_from_slice(&object.data[10..]);
    ReservedData::from_bytes_exact(&Head::from_bytes(&start).unwrap().urgent_data).unwrap()
}

#[test]
fn what_is_reserved_can_be_queued() {
    let mut object = reserved(100);
    assert_eq!(reserve(&mut object, 0, 1), Err(Errno::EINVAL));
    assert_eq!(reserve(&mut object, 1, 0), Err(Errno::EINVAL));
    assert_eq!(reserve(&mut object, 91, 1), Err(Errno::ENOSPC));
    assert_eq!(reserve(&mut object, u64::MAX, u32::MAX), Err(Errno::ENOSPC));
    assert_eq!(reserve(&mut object, 20, 2), Ok(1));
    assert_eq!(reserve(&mut object, 51, 1), Err(Errno::ENOSPC));
    assert_eq!(reserve(&mut object, 10, 1), Ok(2));
    assert_eq!(reservations(&mut object), [1, 2]);
    assert_eq!(commit(&mut object, 2, "more than reserved"), Err(Errno::EINVAL));
    commit(&mut object, 2, "ten").unwrap();
    assert_eq!(commit(&mut object, 2, "ten"), Err(Errno::ENOENT));
    assert_eq!(reservations(&mut object), [1]);
    object.call("2pc_queue", "2pc_queue_abort", &ReservationId { id: 1 }).unwrap();
    object.call("2pc_queue", "2pc_queue_abort", &ReservationId { id: 1 }).unwrap();
    assert_eq!(reservations(&mut object), [0; 0]);
    assert_eq!(reserved_data(&object).reserved_size, 0);
    let op = ListOp { max: 9, ..ListOp::default() };
    let reply = object.call("2pc_queue", "2pc_queue_list_entries", &op).unwrap();
    let ret = ListRet::from_bytes_exact(&reply).unwrap();
    assert_eq!(words(&ret), ["ten"]);
    let op = RemoveOp { end_marker: ret.next_marker };
    object.call("2pc_queue", "2pc_queue_remove_entries", &op).unwrap();
}

/// What reservations add for the lengths of their entries was never given back, as in 16.2: an empty queue was
/// full once enough had gone through it.
#[test]
fn a_queue_that_is_empty_again_has_all_its_room() {
    let mut object = reserved(100);
    for _ in 0..20 {
        let id = reserve(&mut object, 1, 1).unwrap();
        commit(&mut object, id, "x").unwrap();
        let op = ListOp { max: 9, ..ListOp::default() };
        let reply = object.call("2pc_queue", "2pc_queue_list_entries", &op).unwrap();
        let end_marker = ListRet::from_bytes_exact(&reply).unwrap().next_marker;
        object.call("2pc_queue", "2pc_queue_remove_entries", &RemoveOp { end_marker }).unwrap();
    }
}

#[test]
fn reservations_beyond_the_head_are_in_an_xattr() {
    let mut object = reserved(1 << 30);
    for n in 1..=1000 {
        object.now = UTime::new(n, 0);
        assert_eq!(reserve(&mut object, 10, 1), Ok(n));
    }
    let data = reserved_data(&object);
    assert_eq!((data.reservations.len(), data.has_xattrs), (904, true));
    assert_eq!(reservations(&mut object).len(), 1000);
    commit(&mut object, 1000, "x").unwrap();
    commit(&mut object, 1, "x").unwrap();
    object.call("2pc_queue", "2pc_queue_abort", &ReservationId { id: 999 }).unwrap();
    let op = ExpireOp { stale_time: UTime::new(997, 0) };
    object.call("2pc_queue", "2pc_queue_expire_reservations", &op).unwrap();
    assert_eq!(reservations(&mut object), [997, 998]);
    assert_eq!(reserved_data(&object).reserved_size, 10 * 1000 + 20);
}
