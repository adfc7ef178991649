//! A deep scrub of everything, asked for when a cluster is at rest: what the daemons themselves say
//! of their copies.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use client::Client;
use serde_json::{Value, json};
use types::Errno;

use crate::Cluster;

/// When a command is given again: its OSD may have been told by a manager that had just come.
const AGAIN: Duration = Duration::from_secs(20);

impl Cluster {
    /// As an operator who has replaced a disk: waits until all is clean, and asks for scrubs of what
    /// was found inconsistent with the old one. By itself the next scrub may come a day later (short
    /// life 1464 of those in which the pool grows).
    pub(crate) async fn wait_until_mended(&self, client: &Client, limit: Duration) {
        let done = Rc::new(Cell::new(false));
        let (cluster, asker, ended) = (self.clone(), client.clone(), done.clone());
        self.world().spawn(async move {
            while !ended.get() {
                for pgid in cluster.inconsistent(&asker).await {
                    let ask = json!({"prefix": "pg deep-scrub", "pgid": pgid});
                    // If nobody leads it now, the next time will do.
                    let _ = asker.mgr_command(ask.to_string(), Bytes::new()).await;
                }
                cluster.world().sleep(AGAIN).await;
            }
        });
        self.wait_until_clean(client, limit).await;
        done.set(true);
    }

    /// Placement groups that scrubs have found inconsistent.
    async fn inconsistent(&self, client: &Client) -> Vec<String> {
        let ask = json!({"prefix": "pg ls", "states": ["inconsistent"], "format": "json"});
        let answer = client.mgr_command(ask.to_string(), Bytes::new()).await;
        let answer = answer.expect("the manager answers");
        let json: Value = serde_json::from_slice(&answer.outb).unwrap_or_default();
        let pgs = json["pg_stats"].as_array().cloned().unwrap_or_default();
        pgs.iter().filter_map(|pg| Some(pg["pgid"].as_str()?.to_owned())).collect()
    }

    /// Deep scrubs all placement groups; panics if one finds an error, or after `limit`.
    pub async fn deep_scrub_all(&self, client: &Client, limit: Duration) {
        let world = self.world().clone();
        let end = world.now() + limit;
        let before = self.deep_scrubs(client).await;
        let mut ask_at = world.now();
        loop {
            let now = self.deep_scrubs(client).await;
            let due: Vec<&String> =
                before.keys().filter(|pgid| now.get(*pgid) == before.get(*pgid)).collect();
            if due.is_empty() {
                break;
            }
            assert!(world.now() < end, "not deep scrubbed after {limit:?}: {due:?}");
            if world.now() >= ask_at {
                ask_at = world.now() + AGAIN;
                for pgid in due {
                    let ask = json!({"prefix": "pg deep-scrub", "pgid": pgid});
                    let answer = client.mgr_command(ask.to_string(), Bytes::new()).await;
                    let answer = answer.expect("the manager answers");
                    // The primary may be about to open its session with another manager: life 9363. A pool
                    // that shrinks may have merged it since it was listed, and it is not waited for then: short
                    // life 1205.
                    let later =
                        [Errno::EAGAIN, Errno::ENOENT].map(Errno::result).contains(&answer.rc);
                    assert!(later || answer.rc == 0, "deep-scrub {pgid}: {}", answer.outs);
                }
            }
            world.sleep(Duration::from_millis(500)).await;
        }
    }

    /// When each placement group was deep scrubbed last. Panics if scrubs have found errors.
    async fn deep_scrubs(&self, client: &Client) -> BTreeMap<String, String> {
        let ask = json!({"prefix": "pg ls", "format": "json"}).to_string();
        let answer = client.mgr_command(ask, Bytes::new()).await.expect("the manager answers");
        let json: Value = serde_json::from_slice(&answer.outb).expect("JSON");
        let pgs = json["pg_stats"].as_array().expect("placement groups");
        let of_pg = |pg: &Value| {
            let text = |name: &str| pg[name].as_str().unwrap_or_default().to_owned();
            let errors = pg["stat_sum"]["num_scrub_errors"].as_u64();
            assert_eq!(errors, Some(0), "pg {}: scrub found errors", text("pgid"));
            (text("pgid"), text("last_deep_scrub_stamp"))
        };
        pgs.iter().map(of_pg).collect()
    }
}
