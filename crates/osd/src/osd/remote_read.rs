//! Reads of objects on other OSDs (copy-from), as an objecter makes them: to the primary by the
//! newest map, again when that changes. They go through a messenger of their own to the public
//! address of the primary (also where that is this OSD), where they are requests of a client with
//! the rights of an OSD's key (`ms_objecter` in `src/ceph_osd.cc` at v16.2).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, btree_map};
use std::rc::Rc;

use ::maps::OsdMap;
use env::LocalFuture;
use env::sync::{Receiver, Sender, oneshot};
use messages::{BackoffOp, MOSDBackoff, MOSDOp, MOSDOpReply, Message};
use msgr::Connection;
use types::entity::OSD;
use types::osd::ops::message_flags;
use types::{AddrVec, Epoch, Errno, HObject, OsdReqId, PgId, RawMessage, SpgId, UTime};

use super::Osd;
use crate::ops::{RemoteRead, RemoteReply};
use crate::pg::mapping_of;
use crate::pg::peering::Mapping;

/// One read under way: to whom it was sent by which map, and who waits for its answer.
struct Open {
    con: Connection,
    pgid: PgId,
    mapping: Mapping,
    addrs: AddrVec,
    answer: Sender<MOSDOpReply>,
}

/// Reads under way; one for each copy-from of a client.
#[derive(Default)]
pub(crate) struct RemoteReads {
    next: Cell<u64>,
    open: RefCell<BTreeMap<u64, Open>>,
}

impl RemoteReads {
    /// An answer, if it is of the OSD that was asked.
    pub(super) fn on_reply(&self, con: &Connection, raw: &RawMessage) -> Result<(), denc::Error> {
        let m = MOSDOpReply::decode(raw)?;
        let mut open = self.open.borrow_mut();
        if let btree_map::Entry::Occupied(read) = open.entry(raw.header.tid)
            && read.get().con == *con
        {
            read.remove().answer.send(m);
        }
        Ok(())
    }

    /// A connection is gone: its reads are made again.
    pub(super) fn on_reset(&self, con: &Connection) {
        self.open.borrow_mut().retain(|_, o| o.con != *con);
    }

    /// A PG of the source cannot serve, or can again. What it drops meanwhile (it does so until it knows that
    /// the backoff was seen) is read again at the end of it: all of the PG's, for a read more does no harm.
    pub(super) fn on_backoff(&self, con: &Connection, m: MOSDBackoff, map_epoch: Epoch) {
        match m.op {
            BackoffOp::Block => {
                con.send(MOSDBackoff { op: BackoffOp::AckBlock, map_epoch, ..m }.encode());
            }
            BackoffOp::Unblock => {
                let of_pg = |o: &Open| o.con == *con && o.pgid == m.pgid.pgid;
                self.open.borrow_mut().retain(|_, o| !of_pg(o));
            }
            BackoffOp::AckBlock => {}
        }
    }

    /// A new map. Where a new interval began the primary has dropped the read: it is made again.
    pub(super) fn on_map(&self, map: &OsdMap) {
        self.open.borrow_mut().retain(|_, o| {
            let mapping = mapping_of(map, o.pgid.spg());
            map.addrs(mapping.acting_primary) == Some(&o.addrs) && mapping == o.mapping
        });
    }
}

fn send(osd: &Osd, read: &RemoteRead) -> Option<Receiver<MOSDOpReply>> {
    let map = osd.current_map();
    let pgid = map.object_to_pg(&read.name, &read.locator)?;
    let mapping = mapping_of(&map, pgid.spg());
    let primary = mapping.primary()?;
    let addrs = map.is_up(primary.osd).then(|| map.addrs(primary.osd)).flatten()?.clone();
    let con = osd.objecter.connect_to(OSD, &addrs);
    let tid = osd.remote_reads.next.get() + 1;
    osd.remote_reads.next.set(tid);
    let oid = HObject::new(read.name.clone(), &read.locator, read.snap);
    let message = MOSDOp {
        pgid: SpgId { pgid, shard: primary.shard },
        hash: oid.hash,
        epoch: map.epoch,
        flags: read.flags | message_flags::READ,
        reqid: OsdReqId::default(),
        client_inc: 0,
        mtime: UTime::ZERO,
        locator: read.locator.clone(),
        object: read.name.clone(),
        ops: read.ops.clone(),
        snapid: read.snap,
        snap_seq: 0,
        snaps: Vec::new(),
        retry_attempt: 0,
        features: msgr::FEATURES_ALL,
    };
    let (answer, receiver) = oneshot();
    let open = Open { con: con.clone(), pgid, mapping, addrs, answer };
    osd.remote_reads.open.borrow_mut().insert(tid, open);
    con.send(message.encode().with_tid(tid));
    Some(receiver)
}

/// Pause before a read is tried again.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Reads; ends with an error only if the pool is gone.
pub(super) fn read(osd: Rc<Osd>, read: RemoteRead) -> LocalFuture<Result<RemoteReply, Errno>> {
    Box::pin(async move {
        loop {
            if osd.current_map().pool(read.locator.pool).is_none() {
                return Err(Errno::ENOENT);
            }
            if let Some(receiver) = send(&osd, &read)
                && let Ok(reply) = receiver.await
            {
                let ops = reply.ops.iter().map(|o| (o.rval, o.outdata.to_contiguous())).collect();
                let user_version = reply.user_version;
                return Ok(RemoteReply { result: reply.result, ops, user_version });
            }
            osd.env.sleep(PAUSE).await;
        }
    })
}
