//! Copies of the state, piece by piece, without monitors around them.

use std::cell::Cell;

use auth::{CryptoKey, EntityAuth, Keyring};
use config::Config;
use maps::{MonInfo, MonMap};
use store::kv::MemKv;
use types::{AddrVec, AuthEntityName, EntityAddr, UTime, entity};

use super::*;
use crate::layout::CONFIG_KEY;

const NOW: Duration = Duration::from_secs(1000);
const SOURCE: MemberId = MemberId(3);

/// A monitor's database as it is made.
fn fresh_kv() -> Rc<dyn Kv> {
    let kv = MemKv::new();
    let counter = Cell::new(1u8);
    let fill = |buf: &mut [u8]| {
        counter.set(counter.get() + 1);
        buf.fill(counter.get());
    };
    let mut keyring = Keyring::new();
    let key = CryptoKey::generate(&fill, UTime::default());
    let auth = EntityAuth::new(key, [("mon", "allow *")]);
    keyring.keys.insert(AuthEntityName::new(entity::MON, ""), auth);
    let mut monmap = MonMap::default();
    monmap.add(MonInfo { name: "a".into(), ..MonInfo::default() });
    let conf = Config::new("mon", "a");
    crate::mkfs(&kv, &conf, &monmap, &keyring, UTime::default(), &fill).unwrap();
    Rc::new(kv)
}

fn open(kv: &Rc<dyn Kv>) -> Replica {
    // Not elected at once, though nobody else votes.
    let timing = Timing { stagger: Duration::from_secs(5), ..Timing::default() };
    Replica::open(kv.clone(), "a", timing, NOW, &|| 77).unwrap()
}

/// A piece of another monitor's state, of a later entry than any here.
fn piece(entries: Vec<(Bytes, Bytes)>, last: bool) -> Piece {
    let base = Base { index: 9, term: 1, members: Members::sole(SOURCE, "b") };
    Piece { after: Bytes::new(), entries, base, last }
}

/// The first piece of a copy deletes what was there, and the monitor map comes some pieces later. A
/// monitor killed in between never started again: its database had no map and no key.
#[test]
fn a_monitor_killed_while_it_copies_can_start_and_ask_again() {
    let kv = fresh_kv();
    let before = layout::get(&*kv, AUTH, "mon_keyring").unwrap();
    let replica = open(&kv);
    replica.begin_copy(SOURCE);
    let key = layout::key(CONFIG_KEY, "x");
    assert!(replica.take_piece(SOURCE, piece(vec![(key, Bytes::new())], false)).unwrap());
    drop(replica);

    assert_eq!(crate::monmap::load(&*kv).unwrap().size(), 1);
    assert_eq!(layout::get(&*kv, AUTH, "mon_keyring").unwrap(), before);
    assert_eq!(layout::get_u64(&*kv, layout::OSDMAP, "last").unwrap(), None);
    let again = open(&kv);
    assert!(!again.is_whole() && again.copy_due());
    // What comes later stands.
    again.begin_copy(SOURCE);
    let newer = MonMap { epoch: 2, ..crate::monmap::load(&*kv).unwrap() };
    let (last, map) = (layout::key(MONMAP, "last"), layout::numbered(MONMAP, "", 2));
    let entries =
        vec![(map, newer.to_bytes()), (last, Bytes::copy_from_slice(&2u64.to_le_bytes()))];
    assert!(again.take_piece(SOURCE, piece(entries, true)).unwrap());
    assert_eq!(crate::monmap::load(&*kv).unwrap().epoch, 2);
}

/// With the first piece of a copy the state is gone, but the log heard of it with the last one: until
/// then the monitor could be elected, and lead without a state.
#[test]
fn a_monitor_without_a_state_does_not_lead() {
    let leads_after = |torn: bool| {
        let replica = open(&fresh_kv());
        if torn {
            replica.begin_copy(SOURCE);
            assert!(replica.take_piece(SOURCE, piece(Vec::new(), false)).unwrap());
        }
        for seconds in 0..60 {
            replica.take_early(NOW + Duration::from_secs(seconds));
            replica.store().unwrap();
        }
        replica.raft().is_leader()
    };
    assert!(leads_after(false));
    assert!(!leads_after(true));
}

/// The mark that `sync_force` leaves for the next start went to others with the state: they erased
/// their databases too.
#[test]
fn what_is_a_monitors_alone_is_not_copied() {
    let (from, to) = (fresh_kv(), fresh_kv());
    crate::sync::force(&*from).unwrap();
    let (from, to) = (open(&from), open(&to));
    let all = from.piece(Bytes::new()).unwrap().unwrap();
    assert!(all.last && all.entries.len() > 5);
    let own = |entries: &[(Bytes, Bytes)]| entries.iter().filter(|(key, _)| is_own(key)).count();
    assert_eq!(own(&all.entries), 0);
    // Nor is it taken from a monitor that sends it.
    to.begin_copy(SOURCE);
    let mark = (layout::key(MON_SYNC, "force_sync"), Bytes::copy_from_slice(&1u64.to_le_bytes()));
    assert!(to.take_piece(SOURCE, piece(vec![mark], false)).unwrap());
    assert_eq!(layout::get_u64(&*to.kv, MON_SYNC, "force_sync").unwrap(), None);
}

/// Two monitors of three are gone for good. What is left has a log of three members, of which its own vote
/// is no majority, and in it what nobody has told it is committed.
#[test]
fn a_monitor_given_a_map_of_its_own_goes_on_with_all_that_it_has() {
    let kv = fresh_kv();
    drop(open(&kv));
    let own = layout::get_u64(&*kv, RAFT, "id").unwrap().map(MemberId).unwrap();
    let last = last_entry(&*kv).unwrap().unwrap().1;
    let mut three = Members::sole(own, "a");
    three.set(MemberId(3), "b", true);
    three.set(MemberId(5), "c", true);
    let told = layout::key(CONFIG_KEY, "told");
    let mut change = KvBatch::new();
    change.put(told.clone(), Bytes::from_static(b"x"));
    let mut batch = KvBatch::new();
    let payloads = [Payload::Members(three), Payload::Data(encode_batch(&change))];
    for (index, payload) in (last + 1..).zip(payloads) {
        batch.put(entry_key(index), Entry { index, term: 4, payload }.to_bytes());
    }
    batch.put(raft_key("hard"), HardState { term: 6, vote: MemberId(3) }.to_bytes());
    kv.commit(batch).unwrap();

    let stored = crate::extract_monmap(&*kv).unwrap();
    assert_eq!(stored.last_entry, Some((4, last + 2)));
    let addr = |port| EntityAddr::msgr2(([127, 0, 0, 1], port).into(), 0);
    let mon = |name: &str, port| MonInfo {
        name: name.into(),
        public_addrs: AddrVec::of(addr(port)),
        ..MonInfo::default()
    };
    let mut map = stored.monmap.clone();
    let inject = |map: &MonMap| {
        crate::inject_monmap(&*kv, "a", &map.to_bytes(), UTime::default())
            .map_err(|e| e.to_string())
    };
    assert!(inject(&map).unwrap_err().contains("no address"));
    map.add(mon("a", 3301));
    map.add(mon("b", 3302));
    assert!(inject(&map).unwrap_err().contains("--rm b"));
    assert!(
        inject(&MonMap { fsid: types::Uuid([7; 16]), ..map.clone() })
            .unwrap_err()
            .contains("cluster")
    );
    map.remove("b");
    assert_eq!(inject(&map).unwrap(), stored.monmap.epoch + 1);

    let replica = open(&kv);
    for second in 0..60 {
        replica.raft_mut().note_time(NOW + Duration::from_secs(second));
        while replica.store().unwrap().1 {}
        replica.apply().unwrap();
    }
    assert!(replica.raft().is_leader());
    assert!(replica.is_whole());
    assert_eq!(kv.get(&told).unwrap().as_deref(), Some(&b"x"[..]));
    let now = crate::monmap::load(&*kv).unwrap();
    assert_eq!((now.epoch, now.size()), (stored.monmap.epoch + 1, 1));
    assert_eq!(now.mon_info["a"].public_addrs, AddrVec::of(addr(3301)));
    let members = replica.raft().members().clone();
    assert_eq!(members, Members::sole(own, "a"));
}
