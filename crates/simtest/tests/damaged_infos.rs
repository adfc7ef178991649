//! Copies whose object info does not decode.

use std::time::Duration;

use bytes::Bytes;
use client::{Client, IoCtx, Operation};
use sim::World;
use simtest::{Cluster, Plan};
use store::{CollId, Transaction};
use types::osd::ObjListSnapResponse;
use types::osd::ops::{self, OsdOp};
use types::{GhObject, HObject, NOSNAP, ObjectLocator, PgId, SNAPDIR, SnapContext, SnapId, SpgId};

const LIMIT: Duration = Duration::from_secs(120);
/// One object's entry stays in the log, the other's is trimmed.
const OPTIONS: &str = "osd_heartbeat_grace = 6\n\
                       osd_min_pg_log_entries = 3\n\
                       osd_max_pg_log_entries = 3\n\
                       osd_pg_log_trim_min = 1\n";

fn oid(io: &IoCtx, name: &str, snap: SnapId) -> HObject {
    let locator = ObjectLocator { pool: io.pool_id(), ..ObjectLocator::default() };
    HObject::new(name, &locator, snap)
}

/// Damages the primary's object infos of objects of the only PG, and waits until it leads again.
async fn damage(cluster: &Cluster, admin: &Client, oids: &[HObject]) {
    let pgid = PgId::new(u64::try_from(oids[0].pool).unwrap(), 0);
    let map = admin.osdmap();
    let shard = if map.pools[&oids[0].pool].is_erasure() { 0 } else { types::pg::NO_SHARD };
    let whoami = map.pg_to_up_acting(pgid).acting_primary;
    let primary = u32::try_from(whoami).unwrap();
    let mut damage = Transaction::new();
    for oid in oids {
        let oid = GhObject { shard, ..GhObject::from(oid.clone()) };
        let rubbish = Bytes::from_static(b"no object info");
        damage.setattr(&CollId::Pg(SpgId { pgid, shard }), &oid, "_", rubbish);
    }
    let before = map.up_from(whoami);
    cluster.change_store(primary, damage).await;
    cluster.start_osd(primary);
    // Nothing but the primary's own copy is looked at until it leads again.
    let leads = |map: &maps::OsdMap| {
        map.up_from(whoami) > before && map.pg_to_up_acting(pgid).acting_primary == whoami
    };
    while !leads(&admin.osdmap()) {
        cluster.world().sleep(Duration::from_millis(100)).await;
        admin.wait_for_latest_osdmap().await.unwrap();
    }
}

/// A primary whose own copy had an object info that did not decode answered EIO, though others had
/// good copies, and pushed the damaged one to whoever lacked it. Now it fetches one of those, as it
/// does when data cannot be read; of which version, the log knows, or else whoever has it.
fn live(code: Option<(u32, u32)>) {
    let world = World::new(17);
    let plan = Plan { options: OPTIONS.to_owned(), code, ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        let io = admin.io_ctx("p").await.unwrap();
        let content = |name: &str| Bytes::from(format!("content of {name}"));
        for name in ["read", "written", "a", "b", "c", "d", "e", "newest"] {
            io.write_full(name, content(name)).await.unwrap();
        }
        cluster.wait_until_clean(&admin, LIMIT).await;
        let oids = ["read", "written", "newest"].map(|name| oid(&io, name, NOSNAP));
        damage(&cluster, &admin, &oids).await;
        let append = io.append("written", Bytes::from_static(b", and more"));
        cluster.in_time(&admin, "a write", LIMIT, append).await.unwrap();
        for name in ["read", "newest"] {
            let read = cluster.in_time(&admin, name, LIMIT, io.read(name, 0, 0)).await;
            assert_eq!(read.unwrap(), content(name));
        }
        assert_eq!(&io.read("written", 0, 0).await.unwrap()[..], b"content of written, and more");
        cluster.wait_until_clean(&admin, LIMIT).await;
        // What could undo the write goes when nothing else comes.
        cluster.world().sleep(Duration::from_secs(10)).await;
        cluster.compare_replicas(&admin).await;
    });
}

#[test]
fn are_fetched_from_other_replicas() {
    live(None);
}

#[test]
fn are_computed_from_other_shards() {
    live(Some((2, 1)));
}

/// Snap trimming took a clone whose object info did not decode for one that is gone: it forgot it,
/// and the clone stayed for ever.
#[test]
fn of_clones_that_are_to_go_are_fetched_before() {
    let world = World::new(18);
    let plan = Plan { options: OPTIONS.to_owned(), ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        let io = admin.io_ctx("p").await.unwrap();
        let snap = admin.selfmanaged_snap_create(io.pool_id()).await.unwrap();
        let later = io.clone().with_snap_context(SnapContext { seq: snap, snaps: vec![snap] });
        for name in ["whole", "damaged"] {
            io.write_full(name, Bytes::from_static(b"before")).await.unwrap();
            later.write_full(name, Bytes::from_static(b"after")).await.unwrap();
        }
        cluster.wait_until_clean(&admin, LIMIT).await;
        damage(&cluster, &admin, &[oid(&io, "damaged", snap)]).await;
        cluster.wait_until_clean(&admin, LIMIT).await;
        admin.selfmanaged_snap_remove(io.pool_id(), snap).await.unwrap();
        cluster.world().sleep(Duration::from_secs(20)).await;
        cluster.wait_until_clean(&admin, LIMIT).await;
        for name in ["whole", "damaged"] {
            let list = Operation::new().op(OsdOp::new(ops::LIST_SNAPS));
            let listed = io.clone().with_snap_read(SNAPDIR).operate(name, list).await.unwrap();
            let left = listed.decode::<ObjListSnapResponse>(0).unwrap().clones;
            assert_eq!(
                left.iter().map(|clone| clone.cloneid).collect::<Vec<_>>(),
                [NOSNAP],
                "{name}"
            );
        }
        cluster.compare_replicas(&admin).await;
    });
}
