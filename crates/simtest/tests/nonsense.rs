//! Clients that send OSDs what makes no sense.

use std::time::Duration;

use bytes::Bytes;
use messages::{MOSDOp, Message};
use sim::World;
use simtest::{Cluster, Plan};
use types::osd::ops::{self, OsdOp, message_flags};
use types::{MsgHeader, NOSNAP, ObjectLocator, OsdId, OsdReqId, PgId, RawMessage, UTime};

use crate::raw_client::RawClient;

/// Ops of a map that nobody has wait for it and hold their share of what an OSD takes of clients. Then came a
/// message that does not decode: the OSD ended the connection, and forgot neither the ops nor the
/// shares. From then on it took nothing of any client.
#[test]
fn who_is_thrown_out_leaves_nothing() {
    const MOST: usize = 1 << 20;
    let world = World::new(31);
    let options = format!("osd_client_message_size_cap = {MOST}\n");
    let cluster = Cluster::make(&world.control(), Plan { options, ..Plan::default() });
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        let limit = Duration::from_secs(60);
        cluster.wait_until_clean(&admin, limit).await;
        let io = admin.io_ctx("p").await.unwrap();
        io.write_full("o", Bytes::from_static(b"before")).await.unwrap();

        let raw = RawClient::connect(&cluster, "stranger").await;
        let early = |tid: u64| {
            let mut op = OsdOp::new(ops::WRITEFULL);
            op.indata = Bytes::from(vec![1; MOST / 4 - 1000]);
            let locator = ObjectLocator { pool: io.pool_id(), ..ObjectLocator::default() };
            let message = MOSDOp {
                pgid: PgId { pool: io.pool_id() as u64, seed: 0 }.spg(),
                hash: 0,
                epoch: 0xffff_fff0,
                flags: message_flags::WRITE,
                reqid: OsdReqId::default(),
                client_inc: 0,
                mtime: UTime::ZERO,
                locator,
                object: "x".into(),
                ops: vec![op],
                snapid: NOSNAP,
                snap_seq: 0,
                snaps: Vec::new(),
                retry_attempt: 0,
                features: u64::MAX,
            };
            message.encode().with_tid(tid)
        };
        let nonsense = RawMessage {
            header: MsgHeader {
                kind: MOSDOp::TYPE,
                version: 8,
                compat_version: 3,
                ..MsgHeader::default()
            },
            front: Bytes::from_static(&[0xff; 40]),
            ..RawMessage::default()
        };
        // Whoever leads the placement group is among them.
        for osd in cluster.members() {
            let messages = (1..=4).map(early).chain([nonsense.clone()]);
            raw.send(&admin, osd as OsdId, messages);
        }
        world.sleep(Duration::from_secs(5)).await;
        let write = io.write_full("o", Bytes::from(vec![2; 100_000]));
        cluster.in_time(&admin, "a write beside them", limit, write).await.unwrap();
    });
}
