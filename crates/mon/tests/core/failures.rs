//! OSDs that fail, that stop, and what one may say of placement groups.

use std::collections::BTreeMap;
use std::time::Duration;

use messages::{
    FAILURE_FAILED, FAILURE_IMMEDIATE, MOSDFailure, MOSDFull, MOSDMarkMeDown, MOSDPGTemp,
    PaxosHeader,
};
use types::{AddrVec, EntityName, PgId};

use crate::bench::*;

/// A report of whoever has seen every map so far.
pub(crate) fn failure(target: i32, flags: u8, failed_for: i32) -> MOSDFailure {
    MOSDFailure {
        paxos: PaxosHeader::at(0),
        fsid: FSID.parse().unwrap(),
        target_osd: target,
        target_addrs: AddrVec::of(addr(6800 + target as u16)),
        epoch: 1000,
        flags,
        failed_for,
    }
}

/// A session of a run of an OSD that has ended.
fn earlier_run(b: &mut Bench, osd: i32) -> u64 {
    let caps = "allow profile osd";
    b.open(200, EntityName::osd(osd), &format!("osd.{osd}"), caps, 6900);
    200
}

#[test]
fn a_refused_connection_is_believed_at_once_silence_needs_two_reporters() {
    let mut b = Bench::new(fresh_kv());
    let osds = b.three_osds();
    b.send(osds[0], &failure(2, FAILURE_FAILED, 30));
    b.pass(Duration::from_secs(1));
    assert!(b.map().is_up(2));
    b.send(osds[1], &failure(2, FAILURE_FAILED, 30));
    b.pass(Duration::from_secs(1));
    assert!(b.map().is_down(2));
    b.send(osds[0], &failure(1, FAILURE_FAILED | FAILURE_IMMEDIATE, 0));
    b.pass(Duration::ZERO);
    assert!(b.map().is_down(1));
}

/// A report that nobody took back stayed for ever: days later a single one of another OSD marked down an OSD that was
/// alive.
#[test]
fn reports_of_failures_grow_old() {
    let mut b = Bench::new(fresh_kv());
    let osds = b.three_osds();
    b.send(osds[0], &failure(2, FAILURE_FAILED, 30));
    // More than osd_heartbeat_grace and osd_heartbeat_stale.
    b.pass(Duration::from_secs(700));
    b.send(osds[1], &failure(2, FAILURE_FAILED, 30));
    b.pass(Duration::from_secs(1));
    assert!(b.map().is_up(2));
    b.send(osds[0], &failure(2, FAILURE_FAILED, 30));
    b.pass(Duration::from_secs(1));
    assert!(b.map().is_down(2));
    // How long an OSD has been silent is nothing against what is said of it now.
    let mut b = Bench::new(fresh_kv());
    let osds = b.three_osds();
    b.send(osds[0], &failure(2, FAILURE_FAILED, 700));
    b.pass(Duration::from_secs(3));
    assert!(b.map().is_up(2));
    b.send(osds[1], &failure(2, FAILURE_FAILED, 700));
    b.pass(Duration::from_secs(1));
    assert!(b.map().is_down(2));
}

/// A report that was written before its target came up again, under the addresses it had before, counted against the new
/// run; and one of a run of the reporter that had ended counted like any other.
#[test]
fn a_report_is_about_one_run_and_of_one() {
    let mut b = Bench::new(fresh_kv());
    let osds = b.three_osds();
    let refused = failure(2, FAILURE_FAILED | FAILURE_IMMEDIATE, 0);
    let epoch = b.map().up_from(2) - 1;
    b.send(osds[0], &MOSDFailure { epoch, ..refused.clone() });
    let late = earlier_run(&mut b, 0);
    b.send(late, &refused);
    b.pass(Duration::ZERO);
    assert!(b.map().is_up(2));
    b.send(osds[0], &MOSDFailure { epoch: epoch + 1, ..refused });
    b.pass(Duration::ZERO);
    assert!(b.map().is_down(2));
}

/// An OSD that stopped in order was marked down although its host must not be, and however few others were up: such an
/// order of operators held for reports of others alone.
#[test]
fn an_osd_that_stops_stays_up_where_it_may_not_go_down() {
    let mut b = Bench::with(fresh_kv(), "mon_osd_min_up_ratio = 0.9");
    let osds = b.three_osds();
    let stop = |b: &mut Bench, osd: i32| {
        let m = MOSDMarkMeDown {
            paxos: PaxosHeader::at(0),
            fsid: FSID.parse().unwrap(),
            target_osd: osd,
            target_addrs: AddrVec::of(addr(6800 + osd as u16)),
            epoch: 1000,
            request_ack: true,
            down_and_dead: osd == 0,
        };
        b.send(osds[osd as usize], &m);
        b.pass(Duration::ZERO);
        assert_eq!(b.take::<MOSDMarkMeDown>(osds[osd as usize]).len(), 1, "it waits for that");
        b.map().is_down(osd)
    };
    b.out(1, r#"{"prefix":"osd add-nodown","ids":["h0"]}"#);
    assert!(!stop(&mut b, 0));
    b.out(1, r#"{"prefix":"osd rm-nodown","ids":["h0"]}"#);
    assert!(stop(&mut b, 0));
    assert!(!stop(&mut b, 1), "two of three are fewer than 0.9");
    let log = b.out(1, r#"{"prefix":"log last","num":100}"#);
    assert!(log.lines().any(|l| l.ends_with("osd.0 marked itself down and dead")), "{log}");
}

/// Whoever had led a placement group, and whoever had never, could map it elsewhere for a while, and undo by a wish that came
/// late what the new primary had asked for.
#[test]
fn only_its_primary_maps_a_placement_group_elsewhere() {
    let mut b = Bench::new(fresh_kv());
    let osds = b.three_osds();
    b.out(1, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    let pgid = PgId::new(b.map().lookup_pool("p").unwrap() as u64, 0);
    let up = b.map().pg_to_up_acting(pgid).up;
    let [first, second, third] = [up[0], up[1], up[2]];
    let wish = |b: &mut Bench, from: u64, osds: &[i32], forced: bool| {
        let pg_temp = BTreeMap::from([(pgid, osds.to_vec())]);
        b.send(from, &MOSDPGTemp { map_epoch: 1000, pg_temp, forced, ..MOSDPGTemp::default() });
        b.pass(Duration::ZERO);
        b.map().pg_temp.get(&pgid).cloned()
    };
    let session = |osd: i32| osds[osd as usize];
    let (other, late) = ([second, first, third], [first, third, second]);
    assert_eq!(wish(&mut b, session(second), &other, false), None);
    let earlier = earlier_run(&mut b, first);
    assert_eq!(wish(&mut b, earlier, &other, false), None);
    assert_eq!(wish(&mut b, session(first), &other, false), Some(other.to_vec()));
    assert_eq!(wish(&mut b, session(first), &late, false), Some(other.to_vec()));
    assert_eq!(wish(&mut b, session(first), &late, true), Some(late.to_vec()));
}

/// The wish for what a placement group had was no change to the monitor, and who led it by order led it on: Ceph takes a
/// wish to mean that its first OSD leads.
#[test]
fn a_wish_ends_the_lead_of_a_temporary_primary() {
    let mut b = Bench::new(fresh_kv());
    let osds = b.three_osds();
    b.out(1, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    let pgid = PgId::new(b.map().lookup_pool("p").unwrap() as u64, 0);
    let up = b.map().pg_to_up_acting(pgid).up;
    let other = vec![up[1], up[0], up[2]];
    let pg_temp = BTreeMap::from([(pgid, other)]);
    let wish = MOSDPGTemp { map_epoch: 1000, pg_temp, ..MOSDPGTemp::default() };
    b.send(osds[up[0] as usize], &wish);
    b.pass(Duration::ZERO);
    let lead = up[2];
    b.out(1, &format!(r#"{{"prefix":"osd primary-temp","pgid":"{pgid}","id":"{lead}"}}"#));
    assert_eq!(b.map().pg_to_up_acting(pgid).acting_primary, lead);
    b.send(osds[lead as usize], &wish);
    b.pass(Duration::ZERO);
    let map = b.map();
    assert!(map.primary_temp.is_empty());
    assert_eq!(map.pg_to_up_acting(pgid).acting_primary, up[1]);
}

/// That it is full was believed of an OSD whose run had ended: the next one, on a larger disk, was full as well.
#[test]
fn an_ended_run_does_not_say_how_full_an_osd_is() {
    let mut b = Bench::new(fresh_kv());
    let osds = b.three_osds();
    let state = maps::osdmap::osd_state::FULL;
    let full = MOSDFull { state, ..MOSDFull::default() };
    let late = earlier_run(&mut b, 0);
    for (session, expected) in [(late, 0), (osds[0], state)] {
        b.send(session, &full);
        b.pass(Duration::ZERO);
        assert_eq!(b.map().state(0) & state, expected);
    }
}

/// An OSD that was destroyed stayed in for as long as one that may come back, which may be for ever.
#[test]
fn a_destroyed_osd_goes_out_in_time() {
    let mut b = Bench::with(fresh_kv(), "mon_osd_down_out_interval = 0\n");
    let osds = b.three_osds();
    for osd in [1, 2] {
        b.send(osds[0], &failure(osd, FAILURE_FAILED | FAILURE_IMMEDIATE, 0));
        b.pass(Duration::ZERO);
    }
    b.out(1, r#"{"prefix":"osd destroy-actual","id":2,"yes_i_really_mean_it":true}"#);
    b.pass(Duration::from_secs(500));
    assert!(!b.map().is_out(2));
    b.pass(Duration::from_secs(200));
    assert!(b.map().is_out(2) && !b.map().is_out(1));
}
