//! One session an OSD: its connection and the backoffs it asked for.

use std::collections::{BTreeMap, BTreeSet};

use maps::OsdMap;
use messages::MOSDBackoff;
use msgr::{Connection, Messenger};
use types::entity::OSD;
use types::{AddrVec, HObject, OsdId, SpgId};

/// Backoffs of one session; more are not kept (operations are then sent and dropped there, and
/// sent again when the interval changes).
const BACKOFFS_MAX: usize = 65536;

struct Session {
    con: Connection,
    addrs: AddrVec,
    /// By PG and first object: number and end.
    backoffs: BTreeMap<(SpgId, HObject), (u64, HObject)>,
}

/// Bound: one for each OSD of the map.
#[derive(Default)]
pub(crate) struct Sessions {
    by_osd: BTreeMap<OsdId, Session>,
}

impl Sessions {
    /// The connection to an OSD that is up.
    pub(crate) fn open(
        &mut self,
        osd: OsdId,
        map: &OsdMap,
        messenger: &Messenger,
    ) -> Option<Connection> {
        if !map.is_up(osd) {
            return None;
        }
        let addrs = map.addrs(osd)?;
        if let Some(session) = self.by_osd.get(&osd) {
            if session.addrs == *addrs && !session.con.is_closed() {
                return Some(session.con.clone());
            }
            session.con.mark_down();
        }
        let con = messenger.connect_to(OSD, addrs);
        let session = Session { con: con.clone(), addrs: addrs.clone(), backoffs: BTreeMap::new() };
        self.by_osd.insert(osd, session);
        Some(con)
    }

    pub(crate) fn connection(&self, osd: OsdId) -> Option<Connection> {
        self.by_osd.get(&osd).map(|s| s.con.clone())
    }

    /// Whether this is the OSD's present connection.
    pub(crate) fn is_current(&self, osd: OsdId, con: &Connection) -> bool {
        self.by_osd.get(&osd).is_some_and(|s| s.con.id() == con.id())
    }

    pub(crate) fn osd_of(&self, con: &Connection) -> Option<OsdId> {
        self.by_osd.iter().find(|(_, s)| s.con.id() == con.id()).map(|(osd, _)| *osd)
    }

    /// Closes sessions with OSDs that the map shows down or elsewhere.
    pub(crate) fn close_stale(&mut self, map: &OsdMap) -> BTreeSet<OsdId> {
        let stale = |osd: OsdId, s: &Session| {
            !map.is_up(osd) || map.addrs(osd).is_none_or(|addrs| *addrs != s.addrs)
        };
        let gone: BTreeSet<OsdId> =
            self.by_osd.iter().filter(|(osd, s)| stale(**osd, s)).map(|(osd, _)| *osd).collect();
        for osd in &gone {
            if let Some(session) = self.by_osd.remove(osd) {
                session.con.mark_down();
            }
        }
        gone
    }

    /// Forgets the session of a connection that broke.
    pub(crate) fn reset(&mut self, con: &Connection) -> Option<OsdId> {
        let osd = self.osd_of(con)?;
        if let Some(session) = self.by_osd.remove(&osd) {
            session.con.mark_down();
        }
        Some(osd)
    }

    pub(crate) fn back_off(&mut self, osd: OsdId, message: &MOSDBackoff) {
        if let Some(session) = self.by_osd.get_mut(&osd)
            && session.backoffs.len() < BACKOFFS_MAX
        {
            let key = (message.pgid, message.begin.clone());
            session.backoffs.insert(key, (message.id, message.end.clone()));
        }
    }

    /// Ends a backoff; its range.
    pub(crate) fn resume(
        &mut self,
        osd: OsdId,
        message: &MOSDBackoff,
    ) -> Option<(HObject, HObject)> {
        let session = self.by_osd.get_mut(&osd)?;
        let key = (message.pgid, message.begin.clone());
        if session.backoffs.get(&key)?.0 != message.id {
            return None;
        }
        let (_, end) = session.backoffs.remove(&key)?;
        Some((key.1, end))
    }

    pub(crate) fn is_backed_off(&self, osd: OsdId, pg: &SpgId, object: &HObject) -> bool {
        let Some(session) = self.by_osd.get(&osd) else { return false };
        session
            .backoffs
            .range(..=(*pg, object.clone()))
            .next_back()
            .is_some_and(|((of, begin), (_, end))| of == pg && (object == begin || object < end))
    }
}
