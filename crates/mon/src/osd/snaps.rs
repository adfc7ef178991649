//! Snapshots: of pools, and ids of those that clients manage themselves.
//!
//! A removed snapshot goes into the map's queue (`new_removed_snaps`); OSDs trim it; when the
//! manager sees that no PG has it any more it leaves the queue (`new_purged_snaps`) and is kept
//! among the purged. So is the number that each removal takes of a pool's sequence, which no
//! snapshot will ever have: what is kept is few intervals then, however many were removed
//! (`pending_pseudo_purged_snaps` in `src/mon/OSDMonitor.h`).

use bytes::Bytes;
use denc::Denc;
use maps::pool::{PoolSnapInfo, pool_flags};
use maps::{OsdMap, PgPool};
use types::{Errno, IntervalSet, SnapId};

use crate::commands::{Refusal, check_name, fail};
use crate::core::MonCore;
use crate::event::SessionId;

fn purged_key(pool: i64) -> Bytes {
    crate::layout::key("osd_snap", &format!("purged_{pool}"))
}

impl MonCore {
    pub(crate) fn create_pool_snap(&mut self, id: i64, name: &[u8]) -> Result<(), Refusal> {
        let Some(mut pool) = self.pool_to_change(id) else { return fail(Errno::ENOENT, "") };
        if pool.has_flag(pool_flags::SELFMANAGED_SNAPS) {
            return fail(Errno::EINVAL, "");
        }
        if pool.snaps.values().any(|snap| snap.name == name) {
            return fail(Errno::EEXIST, "");
        }
        check_name(name)?;
        let stamp = self.now.wall;
        pool.flags |= pool_flags::POOL_SNAPS;
        pool.snap_seq += 1;
        let snapid = pool.snap_seq;
        pool.snaps.insert(snapid, PoolSnapInfo { snapid, stamp, name: name.into() });
        pool.snap_epoch = self.inc().epoch;
        self.put_pool(id, pool);
        Ok(())
    }

    pub(crate) fn delete_pool_snap(&mut self, id: i64, name: &[u8]) -> Result<(), Refusal> {
        let Some(mut pool) = self.pool_to_change(id) else { return fail(Errno::ENOENT, "") };
        if pool.has_flag(pool_flags::SELFMANAGED_SNAPS) {
            return fail(Errno::EINVAL, "");
        }
        let found = pool.snaps.values().find(|snap| snap.name == name).map(|snap| snap.snapid);
        let Some(snapid) = found else { return fail(Errno::ENOENT, "") };
        pool.snaps.remove(&snapid);
        self.remove_snap(id, pool, snapid);
        Ok(())
    }

    pub(crate) fn create_unmanaged_snap(&mut self, id: i64) -> Result<SnapId, Refusal> {
        let Some(mut pool) = self.pool_to_change(id) else { return fail(Errno::ENOENT, "") };
        if pool.has_flag(pool_flags::POOL_SNAPS) {
            return fail(Errno::EINVAL, "");
        }
        pool.flags |= pool_flags::SELFMANAGED_SNAPS;
        // A pool's first is 2 (`add_unmanaged_snap` in `src/osd/osd_types.cc`).
        pool.snap_seq = pool.snap_seq.max(1) + 1;
        let snapid = pool.snap_seq;
        pool.snap_epoch = self.inc().epoch;
        self.put_pool(id, pool);
        Ok(snapid)
    }

    pub(crate) fn delete_unmanaged_snap(&mut self, id: i64, snap: SnapId) -> Result<(), Refusal> {
        let Some(pool) = self.pool_to_change(id) else { return fail(Errno::ENOENT, "") };
        if pool.has_flag(pool_flags::POOL_SNAPS) {
            return fail(Errno::EINVAL, "");
        }
        if !pool.has_flag(pool_flags::SELFMANAGED_SNAPS) {
            return fail(Errno::EOPNOTSUPP, "");
        }
        let map = self.next_map();
        let queued = map.removed_snaps_queue.get(&id).is_some_and(|q| q.contains(snap));
        if snap > pool.snap_seq {
            return fail(Errno::ENOENT, "");
        }
        if queued || snap == 0 || self.purged_snaps(id).contains(snap) {
            // Removed before: nothing to do, and no error for it.
            return Ok(());
        }
        self.remove_snap(id, pool, snap);
        Ok(())
    }

    /// Queues a snapshot to be trimmed.
    fn remove_snap(&mut self, id: i64, mut pool: PgPool, snap: SnapId) {
        pool.snap_seq += 1;
        let number = pool.snap_seq;
        pool.snap_epoch = self.inc().epoch;
        self.put_pool(id, pool);
        self.inc().new_removed_snaps.entry(id).or_default().insert(snap, 1);
        let mut taken = IntervalSet::new();
        taken.insert(number, 1);
        self.add_purged_snaps(id, &taken);
    }

    /// What was removed and purged long ago, with what is pending.
    fn purged_snaps(&mut self, id: i64) -> &mut IntervalSet {
        let kv = &self.kv;
        self.osd.ever_purged.entry(id).or_insert_with(|| {
            let stored = kv.get(&purged_key(id)).ok().flatten();
            stored.and_then(|bytes| IntervalSet::from_bytes(&bytes).ok()).unwrap_or_default()
        })
    }

    fn add_purged_snaps(&mut self, id: i64, more: &IntervalSet) {
        let all = self.purged_snaps(id);
        all.union_with(more);
        let bytes = all.to_bytes();
        self.batch().put(purged_key(id), bytes);
    }

    /// Forgets the purged snapshots of a pool that goes.
    pub(crate) fn forget_purged_snaps(&mut self, id: i64) {
        self.osd.ever_purged.remove(&id);
        self.batch().delete(purged_key(id));
    }

    /// Takes out of the queue what the manager says is purged.
    pub(crate) fn tick_snaps(&mut self) {
        let purged = std::mem::take(&mut self.osd.purged_snaps);
        let map = self.next_map();
        let mut left = self.conf.uint("mon_max_snap_prune_per_epoch");
        for (id, set) in purged {
            let Some(queue) = map.removed_snaps_queue.get(&id) else { continue };
            let mut taken = IntervalSet::new();
            for (start, len) in set.intersection(queue).iter() {
                let len = len.min(left);
                if len > 0 {
                    taken.insert(start, len);
                    left -= len;
                }
            }
            if taken.is_empty() {
                continue;
            }
            self.add_purged_snaps(id, &taken);
            self.inc().new_purged_snaps.insert(id, taken);
        }
    }

    /// A client without write rights at the monitor may manage snapshots of pools whose OSD
    /// rights it has (`allow rwx pool=x`, `profile rbd`).
    pub(crate) fn unmanaged_snap_allowed(&self, from: SessionId, map: &OsdMap, id: i64) -> bool {
        let Some(session) = self.sessions.get(&from) else { return false };
        let Some(pool) = map.pool(id) else { return false };
        let name = map.pool_names.get(&id).map_or("", String::as_str);
        let keys = self.keys.borrow();
        let text = keys.auth(&session.peer.auth_name).and_then(|auth| auth.caps_text("osd"));
        crate::caps::osd_pool_writable(&text.unwrap_or_default(), name, pool, &session.peer)
    }
}
