//! `ceph df` and MAX AVAIL against what a cluster of Ceph 16.2.15 said: three OSDs of 1 GiB, pools
//! of three copies, two copies and k=2 m=1.

use std::sync::Arc;

use command::{Format, Formatter};
use crush::{CrushMap, Location};
use maps::pgmap::{DeltaSettings, PgCount};
use maps::pool::{TYPE_ERASURE, TYPE_REPLICATED};
use maps::{OsdMap, PgMap, PgMapIncremental, PgPool};
use types::osd::{OsdStat, PgStat};
use types::{PgId, UTime};

fn osdmap() -> OsdMap {
    let mut crush = CrushMap::fresh();
    let place = Location::from([
        ("root".to_owned(), "default".to_owned()),
        ("host".to_owned(), "vm".to_owned()),
    ]);
    for osd in 0..3 {
        // An OSD tells its class before its place.
        crush.set_device_class(osd, "hdd").unwrap();
        let name = format!("osd.{osd}");
        crush.create_or_move_item(osd, 65, &name, &place).unwrap();
    }
    crush.add_simple_rule("replicated_rule", "default", "osd", "", true, 1).unwrap();
    crush.add_simple_rule("pe", "default", "osd", "", false, 3).unwrap();
    let mut map = OsdMap { crush: Arc::new(crush), full_ratio: 0.95, ..OsdMap::default() };
    map.set_max_osd(3);
    map.osd_state.fill(3);
    map.osd_weight.fill(0x10000);
    map.erasure_code_profiles.insert(
        "ep".to_owned(),
        [("k", "2"), ("m", "1")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
    );
    let pools = [
        ("device_health_metrics", 3, 1, 0),
        ("p1", 3, 8, 0),
        ("p2", 2, 16, 1000),
        ("pnoapp", 3, 4, 0),
    ];
    for (id, (name, size, pg_num, quota)) in (1..).zip(pools) {
        let pool = PgPool {
            kind: TYPE_REPLICATED,
            size,
            pg_num,
            quota_max_objects: quota,
            ..PgPool::default()
        };
        map.pools.insert(id, pool);
        map.pool_names.insert(id, name.to_owned());
    }
    let pe = PgPool {
        kind: TYPE_ERASURE,
        size: 3,
        pg_num: 8,
        crush_rule: 1,
        erasure_code_profile: "ep".to_owned(),
        ..PgPool::default()
    };
    map.pools.insert(5, pe);
    map.pool_names.insert(5, "pe".to_owned());
    map
}

fn pgmap() -> PgMap {
    let mut inc = PgMapIncremental { stamp: UTime::new(1, 0), ..PgMapIncremental::default() };
    let available = [1_073_567_283, 1_073_557_283, 1_073_557_283];
    for (osd, available) in (0..).zip(available) {
        let mut stat = OsdStat { num_osds: 1, ..OsdStat::default() };
        stat.statfs.total = 1 << 30;
        stat.statfs.available = available;
        inc.osd_stat_updates.insert(osd, stat);
    }
    // bytes, objects, writes, KiB written
    let pools = [
        (1, 0, 0, 0, 0),
        (2, 70_000, 8, 10, 71),
        (3, 10_000, 1, 1, 10),
        (4, 0, 0, 0, 0),
        (5, 10_000, 1, 1, 10),
    ];
    for (pool, bytes, objects, writes, kb) in pools {
        let mut stat = PgStat { state: 3, ..PgStat::default() };
        let sum = &mut stat.stats.sum;
        sum.num_bytes = bytes;
        sum.num_objects = objects;
        sum.num_wr = writes;
        sum.num_wr_kb = kb;
        inc.pg_stat_updates.insert(PgId::new(pool, 0), stat);
    }
    let mut map = PgMap::default();
    map.apply(&inc, DeltaSettings::default());
    map
}

#[test]
fn the_table_is_cephs() {
    let osdmap = osdmap();
    let digest = pgmap().digest_for(&osdmap);
    let trim = |s: &str| s.lines().map(|l| l.trim_end().to_owned()).collect::<Vec<_>>();
    assert_eq!(trim(&digest.df(&osdmap, true)), trim(include_str!("golden/df-detail.txt")));
    assert_eq!(digest.num_pg_active, 5);
}

#[test]
fn the_json_is_cephs() {
    let osdmap = osdmap();
    let digest = pgmap().digest_for(&osdmap);
    for (verbose, want) in
        [(false, include_str!("golden/df.json")), (true, include_str!("golden/df-detail.json"))]
    {
        let mut f = Formatter::new(Format::Json);
        f.object("", |f| digest.dump_df(&osdmap, verbose, f));
        assert_eq!(f.finish(), want.trim());
    }
}

#[test]
fn rates_are_averages_of_the_last_changes() {
    let mut map = pgmap();
    let mut stat = map.pg_stat[&PgId::new(2, 0)].clone();
    for second in 1..=20u32 {
        stat.stats.sum.num_wr += 4;
        stat.stats.sum.num_wr_kb += 40;
        let inc = PgMapIncremental {
            stamp: UTime::new(1 + 2 * second, 0),
            pg_stat_updates: [(PgId::new(2, 0), stat.clone())].into(),
            ..PgMapIncremental::default()
        };
        map.apply(&inc, DeltaSettings::default());
    }
    let io = map.digest.io_summary();
    assert_eq!(io.client_rate(), "20 KiB/s wr, 0 op/s rd, 2 op/s wr");
    assert_eq!(map.digest.pool_io_summary(2).client_rate(), io.client_rate());
    assert_eq!(map.digest.pool_io_summary(3).client_rate(), "");
}

#[test]
fn fullness_by_osd_is_cephs() {
    let osdmap = osdmap();
    let mut pgmap = pgmap();
    for (osd, pgs) in [(0, 31), (1, 33), (2, 31)] {
        pgmap.digest.num_pg_by_osd.insert(osd, PgCount { acting: pgs, ..PgCount::default() });
    }
    let trim = |s: &str| s.lines().map(|l| l.trim_end().to_owned()).collect::<Vec<_>>();
    for (tree, plain, json) in [
        (false, include_str!("golden/osd-df.txt"), include_str!("golden/osd-df.json")),
        (true, include_str!("golden/osd-df-tree.txt"), include_str!("golden/osd-df-tree.json")),
    ] {
        assert_eq!(trim(&pgmap.osd_df(&osdmap, None, tree)), trim(plain));
        let mut f = Formatter::new(Format::Json);
        f.object("", |f| pgmap.dump_osd_df(f, &osdmap, None, tree));
        assert_eq!(f.finish(), json.trim());
    }
}
