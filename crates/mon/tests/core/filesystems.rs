//! File systems: who holds which rank, who loses it, who is told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use denc::Denc;
use maps::fsmap::Filesystem;
use maps::mdsmap::{MdsInfo, MdsState};
use maps::{FsMap, MdsMap};
use messages::{
    MFSMap, MFSMapUser, MMDSBeacon, MMDSLoadTargets, MMDSMap, MMonSubscribe, MdsHealth,
    MdsHealthMetric, PaxosHeader, SubscribeItem,
};
use types::{EntityName, entity};

use crate::bench::*;

/// MDSs on the bench, each with its own session and what it has seen.
pub(crate) struct Mds {
    pub(crate) session: u64,
    pub(crate) name: &'static str,
    seq: u64,
    pub(crate) state: MdsState,
    pub(crate) map: MdsMap,
    health: MdsHealth,
    /// The file system that it rather serves.
    pub(crate) fs: String,
}

fn subscribe(b: &mut Bench, session: u64, what: &str) {
    let what = BTreeMap::from([(what.to_string(), SubscribeItem { start: 0, flags: 0 })]);
    b.send(session, &MMonSubscribe { what, hostname: "h".into() });
}

impl Mds {
    /// One that begins.
    pub(crate) fn boot(b: &mut Bench, session: u64, name: &'static str) -> Mds {
        let mut mds = Mds {
            session,
            name,
            seq: 0,
            state: MdsState::BOOT,
            map: MdsMap::default(),
            health: MdsHealth::default(),
            fs: String::new(),
        };
        mds.open(b);
        mds.beacon(b);
        b.pass(Duration::ZERO);
        mds.look(b);
        mds
    }

    /// Its session with the monitor.
    pub(crate) fn open(&self, b: &mut Bench) {
        let (session, caps) = (self.session, "allow profile mds");
        let kind = EntityName::new(entity::MDS, 4000 + session as i64);
        b.open(session, kind, &format!("mds.{}", self.name), caps, 6000 + session as u16);
        subscribe(b, session, "mdsmap");
    }

    pub(crate) fn gid(&self) -> u64 {
        4000 + self.session
    }

    pub(crate) fn beacon(&mut self, b: &mut Bench) {
        self.beacon_of(b, self.gid());
    }

    /// A beacon that says that it is of this MDS.
    fn beacon_of(&mut self, b: &mut Bench, gid: u64) {
        self.seq += 1;
        let beacon = MMDSBeacon {
            paxos: PaxosHeader::at(self.map.epoch.into()),
            fsid: FSID.parse().unwrap(),
            gid,
            state: self.state,
            seq: self.seq,
            name: self.name.to_string(),
            compat: MdsInfo::default().compat(),
            health: self.health.clone(),
            sys_info: BTreeMap::from([("hostname".to_string(), "h".to_string())]),
            features: 1,
            fs: self.fs.clone(),
        };
        b.send(self.session, &beacon);
    }

    /// Takes the newest map, and the state that it gives.
    pub(crate) fn look(&mut self, b: &mut Bench) -> MdsState {
        if let Some(m) = b.take::<MMDSMap>(self.session).pop() {
            self.map = MdsMap::from_bytes(&m.map).unwrap();
            self.state = self.map.info.get(&self.gid()).map_or(MdsState::DNE, |info| info.state);
        }
        self.state
    }

    /// Says that it is in another state, and sees what becomes of it.
    pub(crate) fn say(&mut self, b: &mut Bench, state: MdsState) -> MdsState {
        self.state = state;
        self.beacon(b);
        b.pass(Duration::ZERO);
        self.look(b)
    }
}

pub(crate) fn fsmap(b: &mut Bench) -> FsMap {
    let admin = if b.sent.contains_key(&1) { 1 } else { b.admin() };
    subscribe(b, admin, "fsmap");
    b.take::<MFSMap>(admin).pop().unwrap().fsmap
}

fn the_fs(b: &mut Bench) -> Filesystem {
    fsmap(b).filesystems.into_values().next().unwrap()
}

/// A cluster with a file system and its pools, whose monitors have long been there.
fn with_fs() -> Bench {
    let mut b = Bench::new(fresh_kv());
    b.pass(Duration::from_secs(70));
    let admin = b.admin();
    for pool in ["meta", "data", "meta2", "data2"] {
        b.out(admin, &format!(r#"{{"prefix":"osd pool create","pool":"{pool}"}}"#));
    }
    b.out(admin, r#"{"prefix":"fs new","fs_name":"one","metadata":"meta","data":"data"}"#);
    b
}

/// Lets time go by in which these are heard each second.
fn live(b: &mut Bench, seconds: u64, alive: &mut [&mut Mds]) {
    for _ in 0..seconds {
        for mds in alive.iter_mut() {
            mds.beacon(b);
        }
        b.pass(Duration::from_secs(1));
        b.pass(Duration::ZERO);
        for mds in alive.iter_mut() {
            mds.look(b);
        }
    }
}

/// One that holds the file system's only rank.
fn active(b: &mut Bench) -> Mds {
    let mut a = Mds::boot(b, 2, "a");
    b.pass(Duration::from_secs(1));
    b.pass(Duration::ZERO);
    assert_eq!(a.look(b), MdsState::CREATING);
    assert_eq!(a.say(b, MdsState::ACTIVE), MdsState::ACTIVE);
    a
}

#[test]
fn who_is_silent_loses_its_rank_and_can_write_no_more() {
    let mut b = with_fs();
    let _a = active(&mut b);
    let mut other = Mds::boot(&mut b, 3, "b");
    assert_eq!(other.state, MdsState::STANDBY);
    live(&mut b, 14, &mut [&mut other]);
    assert_eq!(the_fs(&mut b).mds_map.up[&0], 4002);
    live(&mut b, 3, &mut [&mut other]);
    assert_eq!(other.state, MdsState::REPLAY);
    let fs = the_fs(&mut b).mds_map;
    assert_eq!((fs.up[&0], fs.info.len()), (4003, 1));
    let osdmap = b.map();
    assert!(osdmap.blocklist.contains_key(&addr(6002).as_any()), "{:?}", osdmap.blocklist);
    // With the next map of the OSDs, which came in the same commit.
    assert!(fs.last_failure_osd_epoch <= osdmap.epoch && fs.last_failure_osd_epoch > 0);
    let next = [MdsState::RECONNECT, MdsState::REJOIN, MdsState::ACTIVE];
    for state in next {
        assert_eq!(other.say(&mut b, state), state);
    }
}

/// An MDS whose monitor was not in the quorum lost its rank at each election.
#[test]
fn after_an_election_everybody_gets_more_time() {
    let mut b = Bench::new(fresh_kv());
    let admin = b.admin();
    for pool in ["meta", "data"] {
        b.out(admin, &format!(r#"{{"prefix":"osd pool create","pool":"{pool}"}}"#));
    }
    b.out(admin, r#"{"prefix":"fs new","fs_name":"one","metadata":"meta","data":"data"}"#);
    let a = active(&mut b);
    let mut other = Mds::boot(&mut b, 3, "b");
    live(&mut b, 50, &mut [&mut other]);
    assert_eq!(the_fs(&mut b).mds_map.up[&0], a.gid());
    live(&mut b, 15, &mut [&mut other]);
    assert_eq!(the_fs(&mut b).mds_map.up[&0], other.gid());
}

/// What the monitors had missed themselves would have cost every MDS its rank.
#[test]
fn nobody_loses_a_rank_while_nobody_is_heard() {
    let mut b = with_fs();
    let a = active(&mut b);
    let other = Mds::boot(&mut b, 3, "b");
    b.pass(Duration::from_secs(100));
    let map = fsmap(&mut b);
    assert!(map.mds(a.gid()).unwrap().is_laggy());
    assert_eq!(map.fs_of(a.gid()).unwrap().mds_map.up[&0], a.gid());
    assert_eq!(map.mds(other.gid()).map(|info| info.state), Some(MdsState::STANDBY));
}

#[test]
fn what_rests_on_an_old_map_counts_for_nothing() {
    let mut b = with_fs();
    let mut a = Mds::boot(&mut b, 2, "a");
    let seen = a.map.epoch;
    b.pass(Duration::from_secs(1));
    b.pass(Duration::ZERO);
    assert_eq!(a.look(&mut b), MdsState::CREATING);
    let newest = std::mem::replace(&mut a.map.epoch, seen);
    a.state = MdsState::ACTIVE;
    a.beacon(&mut b);
    b.pass(Duration::ZERO);
    assert_eq!(b.take::<MMDSBeacon>(2).pop().unwrap().paxos.version, u64::from(newest));
    assert_eq!(the_fs(&mut b).mds_map.info[&a.gid()].state, MdsState::CREATING);
    // Nor what it may not become.
    a.map.epoch = newest;
    a.say(&mut b, MdsState::REJOIN);
    assert_eq!(the_fs(&mut b).mds_map.info[&a.gid()].state, MdsState::CREATING);
    // Nor what is said in another's name.
    b.open(5, EntityName::new(entity::MDS, 4005), "mds.d", "allow profile mds", 6005);
    let mut thief = Mds { session: 5, name: "a", seq: 100, ..a };
    thief.state = MdsState::DAMAGED;
    thief.beacon_of(&mut b, 4002);
    b.pass(Duration::ZERO);
    assert!(the_fs(&mut b).mds_map.damaged.is_empty());
    thief.session = 2;
    thief.beacon_of(&mut b, 4002);
    b.pass(Duration::ZERO);
    assert_eq!(the_fs(&mut b).mds_map.damaged, BTreeSet::from([0]), "its own word counts");
}

/// Who followed a rank and went after its holder took the mark of the blocked holder with it: the next one to hold the
/// rank would not have waited for the OSDs to know that the last one is blocked. (Ceph's monitors still do that.)
#[test]
fn a_follower_that_goes_does_not_undo_that_the_holder_is_blocked() {
    let mut b = with_fs();
    let mut a = active(&mut b);
    let mut other = Mds::boot(&mut b, 3, "b");
    b.out(1, r#"{"prefix":"fs set","fs_name":"one","var":"allow_standby_replay","val":"true"}"#);
    live(&mut b, 2, &mut [&mut a, &mut other]);
    assert_eq!(other.state, MdsState::STANDBY_REPLAY);
    // A follower holds nothing, whatever an operator says: the monitor ended on a map that contradicts itself.
    let set = r#"{"prefix":"mds set_state","gid":4003,"state":13}"#;
    assert_ne!(b.command(1, set).rc, 0);
    b.out(1, r#"{"prefix":"fs fail","fs_name":"one"}"#);
    let fs = the_fs(&mut b).mds_map;
    assert!(fs.info.is_empty() && fs.failed == BTreeSet::from([0]));
    let osdmap = b.map();
    assert!(osdmap.blocklist.contains_key(&addr(6002).as_any()));
    assert!(fs.last_failure_osd_epoch > 0 && fs.last_failure_osd_epoch <= osdmap.epoch);
}

#[test]
fn ranks_come_and_go_as_wanted() {
    let mut b = with_fs();
    let admin = 1;
    let mut a = active(&mut b);
    let mut other = Mds::boot(&mut b, 3, "b");
    b.out(admin, r#"{"prefix":"fs set","fs_name":"one","var":"max_mds","val":"2"}"#);
    live(&mut b, 2, &mut [&mut a, &mut other]);
    assert_eq!(other.state, MdsState::CREATING);
    other.say(&mut b, MdsState::ACTIVE);
    a.look(&mut b);
    let targets =
        MMDSLoadTargets { paxos: PaxosHeader::at(0), gid: a.gid(), targets: BTreeSet::from([1]) };
    b.send(a.session, &targets);
    b.pass(Duration::ZERO);
    assert_eq!(the_fs(&mut b).mds_map.info[&a.gid()].export_targets, BTreeSet::from([1]));
    a.look(&mut b);
    other.look(&mut b);
    b.out(admin, r#"{"prefix":"fs set","fs_name":"one","var":"max_mds","val":"1"}"#);
    live(&mut b, 2, &mut [&mut a]);
    assert_eq!(other.look(&mut b), MdsState::STOPPING);
    // It is sent away, to begin anew; its rank is remembered.
    assert_eq!(other.say(&mut b, MdsState::STOPPED), MdsState::DNE);
    let fs = the_fs(&mut b).mds_map;
    assert_eq!((fs.in_.len(), fs.stopped), (1, BTreeSet::from([1])));
    let mut again = Mds::boot(&mut b, 4, "b");
    b.out(admin, r#"{"prefix":"fs set","fs_name":"one","var":"max_mds","val":"2"}"#);
    live(&mut b, 2, &mut [&mut a, &mut again]);
    assert_eq!(again.state, MdsState::STARTING);
}

#[test]
fn a_damaged_rank_is_given_to_nobody() {
    let mut b = with_fs();
    let mut a = active(&mut b);
    let mut other = Mds::boot(&mut b, 3, "b");
    a.say(&mut b, MdsState::DAMAGED);
    live(&mut b, 20, &mut [&mut other]);
    assert_eq!(other.state, MdsState::STANDBY);
    assert_eq!(the_fs(&mut b).mds_map.damaged, BTreeSet::from([0]));
    let health = b.out(1, r#"{"prefix":"health","detail":"detail"}"#);
    assert!(health.contains("[ERR] MDS_DAMAGE: 1 mds daemon damaged"), "{health}");
    assert_eq!(
        b.command(1, r#"{"prefix":"mds repaired","role":"0"}"#).outs,
        "repaired: restoring rank 1:0"
    );
    live(&mut b, 2, &mut [&mut other]);
    assert_eq!(other.state, MdsState::REPLAY);
}

#[test]
fn what_an_mds_finds_wrong_is_a_matter_of_health_until_it_says_otherwise() {
    let mut b = with_fs();
    let mut a = active(&mut b);
    a.health.metrics = vec![MdsHealthMetric {
        kind: 10,
        severity: 1,
        message: "3 slow requests are blocked > 30 secs".into(),
        metadata: BTreeMap::new(),
    }];
    live(&mut b, 1, &mut [&mut a]);
    let health = b.out(1, r#"{"prefix":"health","detail":"detail"}"#);
    let wanted =
        "[WRN] MDS_SLOW_REQUEST: 1 MDSs report slow requests\n    mds.a(mds.0): 3 slow requests";
    assert!(health.contains(wanted), "{health}");
    a.health.metrics.clear();
    live(&mut b, 1, &mut [&mut a]);
    let health = b.out(1, r#"{"prefix":"health","detail":"detail"}"#);
    assert!(!health.contains("MDS_SLOW"), "{health}");
}

#[test]
fn who_may_know_one_file_system_is_told_of_no_other() {
    let mut b = with_fs();
    b.out(1, r#"{"prefix":"fs new","fs_name":"two","metadata":"meta2","data":"data2"}"#);
    b.open(7, EntityName::client(4007), "client.one", "allow r fsname=one", 5007);
    for what in ["fsmap", "fsmap.user", "mdsmap.1", "mdsmap.2"] {
        subscribe(&mut b, 7, what);
    }
    let names =
        |map: FsMap| map.filesystems.values().map(|fs| fs.name().to_owned()).collect::<Vec<_>>();
    assert_eq!(names(b.take::<MFSMap>(7).pop().unwrap().fsmap), ["one"]);
    let user = b.take::<MFSMapUser>(7).pop().unwrap().fsmap;
    assert_eq!(user.file_systems.iter().map(|fs| fs.name.as_str()).collect::<Vec<_>>(), ["one"]);
    let maps = b.take::<MMDSMap>(7);
    let maps: Vec<MdsMap> = maps.iter().map(|m| MdsMap::from_bytes(&m.map).unwrap()).collect();
    assert_eq!(maps.iter().map(|map| map.fs_name.as_str()).collect::<Vec<_>>(), ["one"]);
    assert!(b.out(7, r#"{"prefix":"fs ls"}"#).starts_with("name: one,"));
    assert_ne!(b.command(7, r#"{"prefix":"fs get","fs_name":"two"}"#).rc, 0);
    // Nor of what it was like before, and it changes none.
    let epoch = fsmap(&mut b).epoch;
    b.out(1, r#"{"prefix":"fs set","fs_name":"one","var":"max_mds","val":"2"}"#);
    let old = b.out(7, &format!(r#"{{"prefix":"fs dump","epoch":{epoch}}}"#));
    assert!(old.contains("'one'") && !old.contains("'two'"), "{old}");
    b.open(8, EntityName::client(4008), "client.rw", "allow rw fsname=one", 5008);
    let fail = |name| format!(r#"{{"prefix":"fs fail","fs_name":"{name}"}}"#);
    assert_eq!(b.command(8, &fail("two")).rc, -1);
    assert_eq!(b.command(8, &fail("one")).rc, 0);
    assert_eq!(names(fsmap(&mut b)), ["one", "two"]);
}

/// What a leader had changed of the map and could not commit any more stays unknown to the next one.
#[test]
fn a_map_survives_the_monitor_as_it_was_committed() {
    let kv = fresh_kv();
    let mut b = Bench::new(kv.clone());
    let admin = b.admin();
    for pool in ["meta", "data"] {
        b.out(admin, &format!(r#"{{"prefix":"osd pool create","pool":"{pool}"}}"#));
    }
    b.out(admin, r#"{"prefix":"fs new","fs_name":"one","metadata":"meta","data":"data"}"#);
    let mut a = active(&mut b);
    let before = fsmap(&mut b);
    b.loses_proposals = true;
    a.state = MdsState::DAMAGED;
    a.beacon(&mut b);
    b.pass(Duration::from_secs(1));
    drop(b);
    let mut b = Bench::new(kv);
    let mut after = fsmap(&mut b);
    assert_eq!(after.filesystems, before.filesystems);
    after.epoch = before.epoch;
    assert_eq!(after, before);
    let metadata = b.out(1, r#"{"prefix":"mds metadata","who":"a"}"#);
    assert!(metadata.contains("hostname"), "{metadata}");
}
