//! Copies of the state, piece by piece, without monitors around them.

use std::cell::Cell;

use auth::{CryptoKey, EntityAuth, Keyring};
use config::Config;
use maps::{MonInfo, MonMap};
use store::kv::MemKv;
use types::{AuthEntityName, UTime, entity};

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
