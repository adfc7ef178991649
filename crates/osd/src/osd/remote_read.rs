//! Reads of objects on other OSDs (copy-from), as an objecter makes them: to the primary by the
//! newest map, again when that changes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use env::LocalFuture;
use env::sync::{Receiver, Sender, oneshot};
use messages::{MOSDOp, MOSDOpReply, Message};
use msgr::Connection;
use types::entity::OSD;
use types::osd::ops::message_flags;
use types::{Errno, HObject, OsdReqId, RawMessage, UTime};

use super::Osd;
use crate::ops::{RemoteRead, RemoteReply};

/// Reads under way; one for each copy-from of a client.
#[derive(Default)]
pub(crate) struct RemoteReads {
    next: Cell<u64>,
    open: RefCell<BTreeMap<u64, (Option<Connection>, Sender<MOSDOpReply>)>>,
}

impl RemoteReads {
    /// An answer.
    pub(super) fn on_reply(&self, raw: &RawMessage) -> Result<(), denc::Error> {
        let m = MOSDOpReply::decode(raw)?;
        if let Some((_, sender)) = self.open.borrow_mut().remove(&raw.header.tid) {
            sender.send(m);
        }
        Ok(())
    }

    /// A connection is gone: its reads are made again.
    pub(super) fn on_reset(&self, _: &Osd, con: &Connection) {
        self.open.borrow_mut().retain(|_, (c, _)| c.as_ref() != Some(con));
    }

    /// The map changed: all are made again, to whoever is primary now.
    pub(super) fn on_map(&self, _: &Osd) {
        self.open.borrow_mut().clear();
    }
}

fn send(osd: &Osd, read: &RemoteRead) -> Option<Receiver<MOSDOpReply>> {
    let map = osd.current_map();
    let pgid = map.object_to_pg(&read.name, &read.locator)?;
    let primary = map.pg_to_up_acting(pgid).acting_primary;
    if !map.is_up(primary) {
        return None;
    }
    let con = if primary == osd.whoami {
        osd.cluster.loopback()
    } else {
        osd.cluster.connect_to(OSD, map.cluster_addrs_of(primary)?)
    };
    let tid = osd.remote_reads.next.get() + 1;
    osd.remote_reads.next.set(tid);
    let oid = HObject::new(read.name.clone(), &read.locator, read.snap);
    let message = MOSDOp {
        pgid: pgid.spg(),
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
    let (sender, receiver) = oneshot();
    osd.remote_reads.open.borrow_mut().insert(tid, (Some(con.clone()), sender));
    con.send(message.encode().with_tid(tid));
    Some(receiver)
}

/// Pause before a read is tried again.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Reads; ends with an error only if the pool is gone.
pub(super) fn read(
    osd: Rc<Osd>,
    read: RemoteRead,
) -> LocalFuture<Result<RemoteReply, Errno>> {
    Box::pin(async move {
        loop {
            if osd.current_map().pool(read.locator.pool).is_none() {
                return Err(Errno::ENOENT);
            }
            if let Some(receiver) = send(&osd, &read)
                && let Ok(reply) = receiver.await
            {
                let ops =
                    reply.ops.iter().map(|o| (o.rval, o.outdata.to_contiguous())).collect();
                let user_version = reply.user_version;
                return Ok(RemoteReply { result: reply.result, ops, user_version });
            }
            osd.env.sleep(PAUSE).await;
        }
    })
}
