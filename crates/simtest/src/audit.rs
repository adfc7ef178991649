//! What must hold of running daemons at any moment, looked at again and again while a life goes on:
//!
//! * a PG has one primary an interval, in everybody's eyes;
//! * PG logs: versions grow, head and tail are the info's, nothing is missing above the head;
//! * an OSD's map never gets older, and an epoch is one map (its crc), whoever holds it;
//! * an OSD takes part in osd_max_backfills (1) recoveries and backfills at most, each way;
//! * nobody has a map newer than the monitor's, that is: none the monitor has forgotten again.
//!
//! At rest nothing is under way, and the members of a PG have one log and all objects.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use client::Client;
use osd::Osd;
use osd::pg::reserver::Stand;
use types::{Epoch, OsdId, PgId};

use crate::{Cluster, diary, pg_logs};

#[derive(Default)]
struct Seen {
    /// Who led a PG in an interval, and who said so.
    primaries: RefCell<BTreeMap<(PgId, Epoch), (OsdId, u32)>>,
    /// The crc of an epoch's map.
    maps: RefCell<BTreeMap<Epoch, u32>>,
    /// The map each OSD has, while it runs.
    epochs: RefCell<BTreeMap<u32, (Weak<Osd>, Epoch)>>,
    newest: Cell<Epoch>,
    rounds: Cell<u64>,
}

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct Audit(Rc<Seen>);

impl Audit {
    /// How often it was looked.
    pub(crate) fn rounds(&self) -> u64 {
        self.0.rounds.get()
    }

    /// Looks at every running OSD; panics at what must not be.
    pub(crate) fn look(&self, cluster: &Cluster, clients: &[Client]) {
        self.0.rounds.set(self.0.rounds.get() + 1);
        for client in clients {
            let map = client.osdmap();
            if map.epoch > self.0.newest.replace(self.0.newest.get().max(map.epoch)) {
                let (up, members) = (map.up_osds().collect(), cluster.members().len());
                diary::map(cluster.world(), map.epoch, up, members);
            }
            self.same_map("a client", map.epoch, map.crc);
        }
        for (id, osd) in cluster.running_osds() {
            let map = osd.current_map();
            self.same_map(&format!("osd.{id}"), map.epoch, map.crc);
            let mut epochs = self.0.epochs.borrow_mut();
            let before = epochs.insert(id, (Rc::downgrade(&osd), map.epoch));
            if let Some((weak, epoch)) = before
                && weak.ptr_eq(&Rc::downgrade(&osd))
            {
                assert!(map.epoch >= epoch, "osd.{id} goes from osdmap {epoch} to {}", map.epoch);
            }
            for slots in osd.reservations() {
                let taken = slots.iter().filter(|(.., stand)| *stand == Stand::Granted).count();
                assert!(taken <= 1, "osd.{id} gave out more than osd_max_backfills: {slots:?}");
            }
            for pg in osd.audit().0 {
                let pgid = pg.pgid.pgid;
                assert!(pg.wrong.is_empty(), "osd.{id} pg {pgid} at {}: {:?}", pg.epoch, pg.wrong);
                let me = i32::try_from(id).expect("few OSDs");
                if !(pg.active && pg.primary == me) {
                    continue;
                }
                let mut primaries = self.0.primaries.borrow_mut();
                let known = primaries.entry((pgid, pg.interval)).or_insert((pg.primary, id));
                assert_eq!(
                    known.0, pg.primary,
                    "pg {pgid} has two primaries in the interval from {} on (by osd.{} and osd.{id})",
                    pg.interval, known.1
                );
            }
        }
    }

    fn same_map(&self, who: &str, epoch: Epoch, crc: u32) {
        // Clients do not keep the crc of a map they made from an incremental one.
        if crc == 0 {
            return;
        }
        let known = *self.0.maps.borrow_mut().entry(epoch).or_insert(crc);
        assert_eq!(known, crc, "{who} has another osdmap {epoch} than others had");
    }

    /// Whether OSDs have client ops or writes of their own under way, or snapshots to trim: a removal that came
    /// beside the last scrubs was trimmed when these had ended, on what was left while OSDs were stopped one after
    /// the other for the comparison (life 52021630).
    pub(crate) fn are_ops_under_way(&self, cluster: &Cluster) -> bool {
        cluster.running_osds().iter().any(|(_, osd)| {
            let (pgs, ops) = osd.audit();
            !ops.is_empty() || pgs.iter().any(|pg| pg.in_flight > 0 || pg.trims)
        })
    }

    /// At rest, with no client left: nothing is under way anywhere.
    pub(crate) fn nothing_left(&self, cluster: &Cluster) {
        for (id, osd) in cluster.running_osds() {
            let (pgs, ops) = osd.audit();
            assert!(ops.is_empty(), "osd.{id} has client ops that nobody waits for: {ops:?}");
            for pg in pgs {
                assert_eq!(pg.in_flight, 0, "osd.{id} pg {}: ops that nobody waits for", pg.pgid);
            }
        }
    }

    /// At rest: who acts has the log that its primary has, and by its own account every object.
    pub(crate) fn same_logs(&self, cluster: &Cluster, client: &Client) {
        let map = client.osdmap();
        let mut known = BTreeMap::new();
        for (id, osd) in cluster.running_osds() {
            let me = i32::try_from(id).expect("few OSDs");
            for pg in osd.all_pgs() {
                let (log, pg) = (pg.log_audit(), pg.audit());
                let acting = map.pg_to_up_acting(pg.pgid.pgid).acting;
                let acts = match usize::try_from(pg.pgid.shard) {
                    Ok(shard) => acting.get(shard) == Some(&me),
                    Err(_) => acting.contains(&me),
                };
                if !acts {
                    continue;
                }
                assert_eq!(pg.missing, 0, "osd.{id} pg {}: clean, and lacks objects", pg.pgid);
                let logs: &mut Vec<_> = known.entry(pg.pgid.pgid).or_default();
                for (other, others) in logs.iter() {
                    let wrong = pg_logs::differences(others, &log);
                    let pgid = pg.pgid;
                    assert!(wrong.is_empty(), "pg {pgid}: osd.{other} and osd.{id}: {wrong}");
                }
                logs.push((id, log));
            }
        }
    }
}
