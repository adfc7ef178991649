//! What an operator does to a cluster that is in use and breaks: the pool gets more placement
//! groups or fewer, an OSD is emptied, taken out of the cluster and comes back as a new one.

use std::time::Duration;

use bytes::Bytes;
use client::Client;
use serde_json::{Value, json};
use sim::Rng;

use crate::{Cluster, diary};

/// Placement groups of the clients' pool at most.
const PG_NUM_MAX: u64 = 32;
/// How long an OSD is given to become empty.
const EMPTY_IN: Duration = Duration::from_secs(60);

async fn ask(admin: &Client, json: Value) -> client::Answer {
    let answer = admin.mon_command(json.to_string(), Bytes::new()).await;
    answer.expect("the monitor answers")
}

/// One to eight more placement groups (or some less if it `shrinks`, too), all at once or one after
/// the other as the manager has it.
pub(crate) async fn grow(cluster: &Cluster, admin: &Client, rng: &Rng, shrinks: bool) {
    let get = json!({"prefix": "osd pool get", "pool": "p", "var": "pg_num", "format": "json"});
    let now: Value = serde_json::from_slice(&ask(admin, get).await.outb).unwrap_or_default();
    let now = now["pg_num"].as_u64().expect("the pool has placement groups");
    let to = match shrinks && rng.chance(0.4) {
        true => now.saturating_sub(1 + rng.below(now)).max(1),
        false => (now + 1 + rng.below(8)).min(PG_NUM_MAX),
    };
    if to == now {
        return;
    }
    diary::note(cluster.world(), format!("from {now} to {to} placement groups"));
    for var in ["pg_num", "pgp_num"] {
        let set = json!({"prefix": "osd pool set", "pool": "p", "var": var, "val": to.to_string()});
        let answer = ask(admin, set).await;
        if answer.rc == -16 {
            // EBUSY: those of the last time are still being made, or merged.
            return;
        }
        assert_eq!(answer.rc, 0, "{var} = {to}: {}", answer.outs);
    }
}

/// Takes an OSD out. Once nothing is on it that is nowhere else, it is removed, and comes back after
/// a while, empty and with the same number; `end` is when it is too late for that.
pub(crate) async fn remove(cluster: &Cluster, admin: &Client, rng: &Rng, osd: u32, end: Duration) {
    let world = cluster.world().clone();
    let ids = [osd.to_string()];
    diary::note(&world, format!("osd.{osd} is to be emptied"));
    let answer = ask(admin, json!({"prefix": "osd out", "ids": ids})).await;
    assert_eq!(answer.rc, 0, "{}", answer.outs);
    let patience = (world.now() + EMPTY_IN).min(end);
    let is_empty = || async {
        let may = json!({"prefix": "osd safe-to-destroy", "ids": ids, "format": "json"});
        let answer = admin.mgr_command(may.to_string(), Bytes::new());
        let asker = world.node("client.admin");
        match asker.timeout(Duration::from_secs(5), answer).await {
            Ok(Ok(answer)) => {
                let json: Value = serde_json::from_slice(&answer.outb).unwrap_or_default();
                answer.rc == 0 && json["safe_to_destroy"] == json!([osd])
            }
            _ => false,
        }
    };
    while !is_empty().await {
        if world.now() >= patience {
            let answer = ask(admin, json!({"prefix": "osd in", "ids": ids})).await;
            assert_eq!(answer.rc, 0, "{}", answer.outs);
            return;
        }
        world.sleep(Duration::from_millis(500)).await;
    }
    diary::note(&world, format!("osd.{osd} is removed"));
    cluster.remove_osd(admin, osd).await;
    world.sleep(rng.between(Duration::ZERO, Duration::from_secs(4))).await;
    diary::note(&world, format!("osd.{osd} is new"));
    cluster.renew_osd(admin, osd).await;
}
