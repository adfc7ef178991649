//! Whose turn it is to be scrubbed.

use std::time::Duration;

use serde_json::json;
use sim::World;
use simtest::{Cluster, Plan};

/// Found by `loligo sim --seed 1197 --faults grow,shrink,snaps,remove,rot,osd,power,mon --short`:
/// 1.c to 1.f of 24 placement groups were not deep scrubbed within 300 s of being asked to.
///
/// 1. An OSD takes part in one scrub at a time, and each of its placement groups is due every few seconds.
/// 2. Once a second the OSD looked at its placement groups in the order of their numbers: the first
///    that was due took the slot.
/// 3. There were enough of low numbers to take it every time. The others were never scrubbed, whoever
///    asked for it.
/// 4. With turns taken in order two were left: OSDs that had started together looked at the same moment
///    of every second, each took its own slot, and each refused the other one.
#[test]
fn placement_groups_that_are_due_all_the_time_do_not_keep_the_slot_from_others() {
    let world = World::new(3);
    let options = "osd_scrub_min_interval = 2\nosd_deep_scrub_interval = 4\n".to_owned();
    let cluster = Cluster::make(&world.control(), Plan { options, ..Plan::default() });
    world.run_until(async move {
        let admin = cluster.start().await;
        let pool = json!({"prefix": "osd pool create", "pool": "p", "pg_num": 32, "autoscale_mode": "off"});
        cluster.command(&admin, pool).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        cluster.deep_scrub_all(&admin, Duration::from_secs(120)).await;
    });
}
