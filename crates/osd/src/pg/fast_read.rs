//! Reads of pools with `fast_read`: all shards are asked at once, and the first that make the
//! object whole are taken. A slow shard does not hold a read up; each read costs all of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use env::sync::Notify;
use types::{Errno, HObject, PgShard};

use super::Pg;

/// What has come of one read. Bounded by the shards of a PG.
struct Answers {
    chunks: RefCell<BTreeMap<i8, Bytes>>,
    /// Members whose chunk is damaged.
    damaged: RefCell<Vec<PgShard>>,
    /// Shards that have not answered.
    left: Cell<usize>,
    changed: Notify,
}

impl Pg {
    /// The same part of the chunks of the first `count` members that can give it; fewer if fewer
    /// can. With those that turned out to be damaged meanwhile.
    pub(super) async fn read_first(
        &self,
        oid: &HObject,
        members: Vec<PgShard>,
        (offset, len): (u64, u64),
        count: usize,
    ) -> (BTreeMap<i8, Bytes>, Vec<PgShard>) {
        let answers = Rc::new(Answers {
            chunks: RefCell::default(),
            damaged: RefCell::default(),
            left: Cell::new(members.len()),
            changed: Notify::default(),
        });
        for member in members {
            let (pg, oid, answers) = (self.rc(), oid.clone(), answers.clone());
            self.host.env().go(async move {
                let parts = pg.read_chunks(&oid, vec![member], offset, len, false).await;
                for (member, part) in parts {
                    match part {
                        Ok(part) => {
                            answers.chunks.borrow_mut().insert(member.shard, part.data);
                        }
                        // The member is gone, or the interval has ended: the log would be full of that.
                        Err(Errno::EAGAIN) => {}
                        Err(errno) => {
                            tracing::warn!(pg = %pg.pgid, %oid, %member, "shard cannot be read: {errno}");
                            if errno == Errno::EIO {
                                answers.damaged.borrow_mut().push(member);
                            }
                        }
                    }
                }
                answers.left.set(answers.left.get() - 1);
                answers.changed.notify_all();
            });
        }
        loop {
            let changed = answers.changed.notified();
            if answers.chunks.borrow().len() >= count || answers.left.get() == 0 {
                return (answers.chunks.take(), answers.damaged.take());
            }
            changed.await;
        }
    }
}
