//! Snapshots: of pools, and ids of those that clients manage themselves.
//!
//! A removed snapshot goes into the map's queue (`new_removed_snaps`); OSDs trim it; when the
//! manager sees that no PG has it any more it leaves the queue (`new_purged_snaps`).

use maps::OsdMap;
use maps::pool::{PoolSnapInfo, pool_flags};
use types::{Errno, IntervalSet, SnapId};

use crate::commands::{Refusal, fail};
use crate::core::MonCore;
use crate::event::SessionId;

impl MonCore {
    pub(crate) fn create_pool_snap(&mut self, id: i64, name: &str) -> Result<(), Refusal> {
        let Some(mut pool) = self.pool_to_change(id) else { return fail(Errno::ENOENT, "") };
        if pool.has_flag(pool_flags::SELFMANAGED_SNAPS) {
            return fail(Errno::EINVAL, "");
        }
        if pool.snaps.values().any(|snap| snap.name == name) {
            return fail(Errno::EEXIST, "");
        }
        let stamp = self.now.wall;
        pool.flags |= pool_flags::POOL_SNAPS;
        pool.snap_seq += 1;
        let snapid = pool.snap_seq;
        pool.snaps.insert(snapid, PoolSnapInfo { snapid, stamp, name: name.to_string() });
        pool.snap_epoch = self.inc().epoch;
        self.put_pool(id, pool);
        Ok(())
    }

    pub(crate) fn delete_pool_snap(&mut self, id: i64, name: &str) -> Result<(), Refusal> {
        let Some(mut pool) = self.pool_to_change(id) else { return fail(Errno::ENOENT, "") };
        if pool.has_flag(pool_flags::SELFMANAGED_SNAPS) {
            return fail(Errno::EINVAL, "");
        }
        let found = pool.snaps.values().find(|snap| snap.name == name).map(|snap| snap.snapid);
        let Some(snapid) = found else { return fail(Errno::ENOENT, "") };
        pool.snaps.remove(&snapid);
        pool.snap_seq += 1;
        pool.snap_epoch = self.inc().epoch;
        self.put_pool(id, pool);
        self.queue_removed_snap(id, snapid);
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
        if queued || snap == 0 || self.is_purged(id, snap) {
            // Removed before: nothing to do, and no error for it.
            return Ok(());
        }
        let mut pool = pool;
        pool.snap_seq += 1;
        pool.snap_epoch = self.inc().epoch;
        self.put_pool(id, pool);
        self.queue_removed_snap(id, snap);
        Ok(())
    }

    fn queue_removed_snap(&mut self, id: i64, snap: SnapId) {
        self.inc().new_removed_snaps.entry(id).or_default().insert(snap, 1);
    }

    /// Whether a snapshot was removed and purged long ago.
    fn is_purged(&self, id: i64, snap: SnapId) -> bool {
        let key = crate::layout::key("osd_snap", &format!("purged_{id}"));
        let stored = self.kv.get(&key).ok().flatten();
        let set = stored.and_then(|bytes| <IntervalSet as denc::Denc>::from_bytes(&bytes).ok());
        set.is_some_and(|set| set.contains(snap))
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
            let key = crate::layout::key("osd_snap", &format!("purged_{id}"));
            let stored = self.kv.get(&key).ok().flatten();
            let mut all = stored
                .and_then(|bytes| <IntervalSet as denc::Denc>::from_bytes(&bytes).ok())
                .unwrap_or_default();
            all.union_with(&taken);
            self.batch().put(key, denc::Denc::to_bytes(&all));
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
