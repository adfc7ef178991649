//! Snapshots of the pool, made and removed while clients work. Writes go under whatever snapshot
//! the primary's map has, so of each object a snapshot is taken at some moment between the order
//! and the time when every OSD has the map: to its history that is an operation as others are.

use std::collections::BTreeMap;
use std::time::Duration;

use client::Client;
use serde_json::json;
use sim::Rng;
use types::Epoch;

use crate::object::Action;
use crate::{Cluster, Workload, diary};

/// Snapshots kept at most.
const SNAPS_MAX: usize = 8;

/// Makes and removes snapshots until the workload is stopped.
pub(crate) async fn run(cluster: Cluster, admin: Client, load: Workload, rng: Rng) {
    let world = cluster.world().clone();
    let _running = load.running_guard();
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    let mut number = 0;
    while !load.stopped() {
        world.sleep(rng.between(Duration::from_millis(100), Duration::from_secs(4))).await;
        if names.len() >= SNAPS_MAX || (!names.is_empty() && rng.chance(0.3)) {
            let chosen: Vec<u64> = names.keys().copied().collect();
            let snap = *rng.pick(&chosen);
            load.forget_snap(snap).await;
            let name = names.remove(&snap).unwrap_or_default();
            diary::note(&world, format!("snapshot {snap} of the pool is removed"));
            let order = json!({"prefix": "osd pool rmsnap", "pool": "p", "snap": name});
            cluster.command(&admin, order).await;
            continue;
        }
        number += 1;
        let name = format!("s{number}");
        admin.wait_for_latest_osdmap().await.expect("the monitor answers");
        let id = admin.osdmap().lookup_pool("p").expect("the pool");
        let newest = |admin: &Client| admin.osdmap().pool(id).map_or(0, |pool| pool.snap_seq);
        let snap = newest(&admin) + 1;
        diary::note(&world, format!("snapshot {snap} of the pool"));
        let begun = load.begin_everywhere(&Action::PoolSnap { snap });
        let order = json!({"prefix": "osd pool mksnap", "pool": "p", "snap": name});
        cluster.command(&admin, order).await;
        admin.wait_for_latest_osdmap().await.expect("the monitor answers");
        assert_eq!(newest(&admin), snap, "nobody else makes snapshots");
        let epoch: Epoch = admin.osdmap().pool(id).map_or(0, |pool| pool.snap_epoch);
        while cluster.running_osds().iter().any(|(_, osd)| osd.current_map().epoch < epoch) {
            world.sleep(Duration::from_millis(20)).await;
        }
        load.end_everywhere(begun);
        load.remember_snap(snap);
        names.insert(snap, name);
    }
}
