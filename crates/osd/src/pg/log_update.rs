//! Log entries that change no object: the refusal of a client's write, and objects given up as lost. A
//! primary of ours sends them as a write with an empty transaction. Ceph's has a message of its own
//! (`PrimaryLogPG::submit_log_entries`), which its copies in PGs shared with it have to answer.

use messages::{MOSDPGUpdateLogMissing, MOSDPGUpdateLogMissingReply, Message};
use store::Transaction;
use types::PgShard;

use super::Pg;

impl Pg {
    /// Entries from the primary.
    pub fn on_log_update(&self, from: PgShard, m: MOSDPGUpdateLogMissing) {
        let (reset, follows) = {
            let core = self.core.borrow();
            (core.last_peering_reset, core.follows())
        };
        if m.map_epoch < reset || !follows {
            tracing::debug!(pg = %self.pgid, "old log entries");
            return;
        }
        if !self.is_next(&m.entries) {
            return;
        }
        for e in &m.entries {
            self.contexts.forget(&e.soid);
            let mut core = self.core.borrow_mut();
            // What is behind, backfill brings as it is then.
            if e.soid <= core.info.last_backfill {
                core.missing.add_next_event(e);
            }
        }
        let mut t = Transaction::new();
        let undoable = self.is_erasure();
        let last_complete_ondisk =
            self.log_shard_write(m.entries, undoable, m.pg_roll_forward_to, m.pg_trim_to, &mut t);
        self.write_dirty(&mut t);
        let committed = self.submit_timed(t);
        let (pg, generation, rep_tid) = (self.rc(), self.generation.get(), m.rep_tid);
        self.host.env().go(async move {
            if let Err(e) = committed.await {
                return pg.host.store_failed(&e);
            }
            if generation != pg.generation.get() {
                return;
            }
            let (map_epoch, min_epoch) = pg.epochs();
            let reply = MOSDPGUpdateLogMissingReply {
                map_epoch,
                min_epoch,
                pgid: pg.pgid_at(from),
                from: pg.whoami().shard,
                rep_tid,
                last_complete_ondisk,
            };
            pg.host.send_osd(from.osd, reply.encode().with_tid(rep_tid));
        });
    }
}
