//! The objecter alone: no monitor and no OSD answers, each test says what comes.

use std::net::SocketAddr;

use bytes::Bytes;
use maps::PgPool;
use maps::osdmap::{OsdInfo, OsdXinfo, osd_state, osdmap_flags};
use monclient::Settings;
use msgr::{Policies, Policy};
use sim::World;
use types::addr::EntityAddr;
use types::{AddrVec, AuthEntityName, EVersion, EntityName, ObjectLocator, PgId, Uuid};

use super::*;

const POOL: i64 = 1;
const PG: PgId = PgId { pool: 1, seed: 0 };

/// osd.0 serves the one PG of the pool.
fn map(addrs: &AddrVec, epoch: u32, flags: u32) -> OsdMap {
    let pool = PgPool { kind: 1, size: 1, min_size: 1, pg_num: 1, pgp_num: 1, ..PgPool::default() };
    OsdMap {
        epoch,
        flags,
        pools: [(POOL, pool)].into(),
        pool_names: [(POOL, "p".to_owned())].into(),
        max_osd: 1,
        osd_state: vec![osd_state::EXISTS | osd_state::UP],
        osd_weight: vec![0x10000],
        client_addrs: vec![addrs.clone()],
        cluster_addrs: vec![addrs.clone()],
        hb_back_addrs: vec![addrs.clone()],
        hb_front_addrs: vec![addrs.clone()],
        osd_info: vec![OsdInfo::default()],
        osd_xinfo: vec![OsdXinfo::default()],
        osd_uuid: vec![Uuid::ZERO],
        pg_temp: [(PG, vec![0])].into(),
        require_osd_release: 16,
        ..OsdMap::default()
    }
}

type Outcomes = Rc<RefCell<BTreeMap<&'static str, Result<Outcome, ClientError>>>>;

struct Bench {
    world: World,
    objecter: Rc<Objecter>,
    addrs: AddrVec,
    outcomes: Outcomes,
}

impl Bench {
    /// With map 1.
    fn new() -> Bench {
        let world = World::new(1);
        world.node("osd");
        let addr = SocketAddr::new(world.control().ip("osd"), 6800);
        let env = world.node("client");
        let policies = Policies::new(Policy::lossy_client());
        let config = msgr::Config::new(EntityName::client(-1), 5, policies);
        let messenger = Messenger::new(env.clone(), config);
        let settings = Settings::new(AuthEntityName::new(8, "x"), None, Vec::new());
        let monc = MonClient::new(env.clone(), messenger.clone(), settings);
        let bench = Bench {
            objecter: Objecter::new(env, messenger, monc, true),
            world,
            addrs: AddrVec::of(EntityAddr::msgr2(addr, 0)),
            outcomes: Outcomes::default(),
        };
        bench.take_map(1, 0);
        bench
    }

    /// A whole map comes; the monitors have none before it.
    fn take_map(&self, epoch: u32, flags: u32) {
        let (bytes, _) = map(&self.addrs, epoch, flags).encode_with_crc();
        let maps = [(epoch, bytes)].into();
        let message = MOSDMap { maps, oldest_map: epoch, newest_map: epoch, ..MOSDMap::default() };
        self.objecter.on_osd_map(&message);
        assert_eq!(self.objecter.osdmaps.epoch(), epoch);
    }

    /// Begins an operation on the object; its number.
    fn submit(&self, object: &'static str, flags: u32, snapid: SnapId) -> u64 {
        let base = Base {
            object: object.into(),
            locator: ObjectLocator { key: "key".into(), ..ObjectLocator::pool(POOL) },
            flags,
            copy: 0,
            keeps_watch: false,
        };
        let request = Request { base, ops: Vec::new(), snapid, snapc: SnapContext::default() };
        let (objecter, outcomes) = (self.objecter.clone(), self.outcomes.clone());
        let tid = objecter.next_tid.get();
        drop(self.world.control().spawn(async move {
            let outcome = objecter.submit(request).await;
            outcomes.borrow_mut().insert(object, outcome);
        }));
        self.go_on();
        tid
    }

    fn go_on(&self) {
        self.world.run_for(Duration::from_millis(1));
    }

    fn con(&self) -> Connection {
        self.objecter.sessions.borrow().connection(0).unwrap()
    }

    fn attempts(&self, tid: u64) -> i32 {
        self.objecter.ops.borrow()[&tid].attempts
    }

    /// The answer to the last attempt.
    fn answer(&self, tid: u64) -> RawMessage {
        let reply = MOSDOpReply {
            object: BString::default(),
            pgid: PG,
            flags: 0,
            result: 0,
            bad_replay_version: EVersion::default(),
            epoch: 1,
            ops: Vec::new(),
            retry_attempt: self.attempts(tid) - 1,
            replay_version: EVersion::default(),
            user_version: 7,
        };
        reply.encode().with_tid(tid)
    }

    fn back_off(&self, op: BackoffOp, object: &str) {
        let locator = ObjectLocator { key: "key".into(), ..ObjectLocator::pool(POOL) };
        let head = HObject::new(object, &locator, NOSNAP);
        let (begin, end) = (head.clone(), head);
        let message = MOSDBackoff { pgid: PG.spg(), map_epoch: 1, op, id: 1, begin, end };
        self.objecter.on_backoff(&self.con(), &message);
    }
}

/// An OSD that has not found an object tells clients to keep what they ask of its head, in which it is written what the
/// snapshots are. Reads of snapshots were not among that, so that nothing told them to go again, and they did not end.
#[test]
fn backoffs_of_a_head_are_for_its_snapshots_too() {
    for snapid in [NOSNAP, 4] {
        // Where the key is the name, the OSD's names of objects have none.
        for object in ["o", "key"] {
            let bench = Bench::new();
            let held = bench.submit(object, message_flags::READ, snapid);
            assert_eq!(bench.attempts(held), 1);
            bench.back_off(BackoffOp::Block, object);
            let kept = bench.submit(object, message_flags::READ, snapid);
            let other = bench.submit("other", message_flags::READ, snapid);
            assert_eq!((bench.attempts(kept), bench.attempts(other)), (0, 1));
            bench.back_off(BackoffOp::Unblock, object);
            assert_eq!([held, kept, other].map(|tid| bench.attempts(tid)), [2, 1, 1]);
        }
    }
}

/// A cluster became full while a write was on its way. Its answer came behind the map that says so, and was
/// dropped: who wrote waited for room for what had been written.
#[test]
fn what_went_before_a_pause_is_answered_in_it() {
    for (pause, flags) in [
        (osdmap_flags::FULL, message_flags::WRITE),
        (osdmap_flags::PAUSEWR, message_flags::WRITE),
        (osdmap_flags::PAUSERD, message_flags::READ),
    ] {
        let bench = Bench::new();
        let [answered, dropped] = ["answered", "dropped"].map(|o| bench.submit(o, flags, NOSNAP));
        bench.take_map(2, pause);
        let late = bench.submit("late", flags, NOSNAP);
        assert_eq!([answered, dropped, late].map(|tid| bench.attempts(tid)), [1, 1, 0]);
        bench.objecter.on_reply(&bench.con(), &bench.answer(answered));
        bench.go_on();
        assert_eq!(bench.outcomes.borrow()["answered"].as_ref().unwrap().version, 7);
        // The OSD had that map first, and dropped it.
        bench.take_map(3, pause);
        assert_eq!([dropped, late].map(|tid| bench.attempts(tid)), [1, 0]);
        assert!(bench.objecter.ops.borrow()[&dropped].waits_for_map());
        bench.take_map(4, 0);
        assert_eq!([dropped, late].map(|tid| bench.attempts(tid)), [2, 1]);
    }
}

/// `loligo bench rados` on a pool without OSDs said nothing, for ever.
#[test]
fn what_nobody_answers_is_known_with_its_reason() {
    let bench = Bench::new();
    assert_eq!(bench.objecter.longest_wait(), None);
    let first = bench.submit("first", message_flags::WRITE, NOSNAP);
    let waits = || {
        let waiting = bench.objecter.longest_wait().unwrap();
        (waiting.time.as_secs(), waiting.reason)
    };
    assert_eq!(waits(), (0, WaitReason::Answer(PG.spg(), 0)));
    bench.world.run_for(Duration::from_secs(7));
    bench.submit("second", message_flags::READ, NOSNAP);
    assert_eq!(waits(), (7, WaitReason::Answer(PG.spg(), 0)));
    bench.take_map(2, osdmap_flags::PAUSEWR);
    assert_eq!(waits().1, WaitReason::Paused);
    bench.objecter.on_reply(&bench.con(), &bench.answer(first));
    bench.go_on();
    assert_eq!(waits(), (0, WaitReason::Answer(PG.spg(), 0)), "the second");
    let mut down = map(&bench.addrs, 3, 0);
    down.osd_state = vec![osd_state::EXISTS];
    let maps = [(3, down.encode_with_crc().0)].into();
    let message = MOSDMap { maps, oldest_map: 3, newest_map: 3, ..MOSDMap::default() };
    bench.objecter.on_osd_map(&message);
    assert_eq!(waits().1, WaitReason::NoOsd(PG.spg()));
    assert_eq!(waits().1.to_string(), "no OSD serves placement group 1.0");
}

/// A PG went to other OSDs and came back, and the client got no map of between: what it had asked the OSD had
/// dropped, and nothing in the two maps that the client compared told it to ask again.
#[test]
fn skipped_maps_let_everything_go_again() {
    let bench = Bench::new();
    let tid = bench.submit("o", message_flags::WRITE, NOSNAP);
    bench.take_map(2, 0);
    assert_eq!(bench.attempts(tid), 1);
    bench.take_map(5, 0);
    assert_eq!(bench.attempts(tid), 2);
    bench.objecter.on_reply(&bench.con(), &bench.answer(tid));
    bench.go_on();
    assert!(bench.outcomes.borrow()["o"].is_ok());
    // What waits for the end of a pause does so still.
    let tid = bench.submit("paused", message_flags::WRITE, NOSNAP);
    bench.take_map(8, osdmap_flags::PAUSEWR);
    assert_eq!(bench.attempts(tid), 1);
    bench.take_map(9, 0);
    assert_eq!(bench.attempts(tid), 2);
}

/// An answer that does not decode, such as a redirect to another pool, was warned of, and who had asked waited for ever.
#[test]
fn an_answer_that_does_not_decode_ends_the_operation() {
    let bench = Bench::new();
    let tid = bench.submit("o", message_flags::READ, NOSNAP);
    let mut raw = bench.answer(tid);
    let mut front = raw.front.to_vec();
    // In front of the trace.
    let redirect = front.len() - 25;
    assert_eq!(std::mem::replace(&mut front[redirect], 1), 0);
    raw.front = Bytes::from(front);
    bench.objecter.on_reply(&bench.con(), &raw);
    bench.go_on();
    let outcome = bench.outcomes.borrow_mut().remove("o");
    assert!(matches!(outcome, Some(Err(ClientError::Decode(_)))), "{outcome:?}");
    assert!(bench.objecter.ops.borrow().is_empty());
}
