//! Which entry of a log a request has made.
//!
//! On a primary each write asks for its request, puts one in and takes one out. The table has the
//! entries' numbers alone: what a number stands for is looked at in the entry's slot, and mostly
//! nothing is, as a new request meets none that is like it.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use types::OsdReqId;

use super::entries::{Entries, Kept};

/// Asked for one key at a time and never walked through, so the order of a hash table, which is the
/// same in every run with this hasher, reaches nothing. Who makes up requests that collide makes a
/// look-up as long as the log, which is bounded.
pub(super) type Index<K, V> = HashMap<K, V, FixedState>;

pub(super) fn hash(reqid: &OsdReqId) -> u64 {
    FixedState::default().hash_one((reqid.name.num, reqid.tid))
}

/// Numbers of entries by their requests. As many as there are entries, and what their objects
/// brought along.
#[derive(Debug, Clone, Default)]
pub(super) struct Requests {
    /// Of a request that made several the newest.
    own: HashTable<u32>,
    /// The newest entry an object brought a request with from elsewhere.
    brought: Index<OsdReqId, u32>,
}

impl Requests {
    pub(super) fn of(entries: &Entries) -> Requests {
        let mut requests = Requests::default();
        if !env::mutant("forget-requests") {
            requests.own.reserve(entries.len(), |_| 0);
            entries.numbered().for_each(|(number, _)| requests.insert(entries, number));
        }
        requests
    }

    /// The newest entry of a request.
    pub(super) fn find<'a>(&self, entries: &'a Entries, reqid: &OsdReqId) -> Option<Kept<'a>> {
        let is_of = |number: &u32| entries.by_number(*number).reqid() == *reqid;
        self.own.find(hash(reqid), is_of).map(|number| entries.by_number(*number))
    }

    /// The newest entry that a request came with.
    pub(super) fn find_brought<'a>(
        &self,
        entries: &'a Entries,
        reqid: &OsdReqId,
    ) -> Option<Kept<'a>> {
        self.brought.get(reqid).map(|number| entries.by_number(*number))
    }

    /// Takes an entry in, the newest of those that are here.
    pub(super) fn insert(&mut self, entries: &Entries, number: u32) {
        let e = entries.by_number(number);
        if e.reqid_is_indexed() {
            let reqid = e.reqid();
            let of = |number: &u32| entries.by_number(*number).reqid();
            match self.own.find_mut(hash(&reqid), |known| of(known) == reqid) {
                Some(known) => *known = number,
                None => {
                    self.own.insert_unique(hash(&reqid), number, |known| hash(&of(known)));
                }
            }
        }
        if e.says_more() {
            for (reqid, _) in &e.whole().extras().extra_reqids {
                self.brought.insert(*reqid, number);
            }
        }
    }

    /// Takes an entry out that is about to go.
    pub(super) fn remove(&mut self, entries: &Entries, number: u32) {
        let e = entries.by_number(number);
        if e.reqid_is_indexed()
            && let Ok(found) = self.own.find_entry(hash(&e.reqid()), |known| *known == number)
        {
            found.remove();
        }
        if e.says_more() {
            for (reqid, _) in &e.whole().extras().extra_reqids {
                if self.brought.get(reqid) == Some(&number) {
                    self.brought.remove(reqid);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use types::osd::{LogOp, PgLogEntry};
    use types::{EVersion, EntityName};

    use super::*;

    fn request(tid: u64) -> OsdReqId {
        OsdReqId { name: EntityName::client(1), tid, inc: 0 }
    }

    #[test]
    fn the_newest_entry_of_a_request_is_found_until_it_goes() {
        let mut entries = Entries::default();
        let mut requests = Requests::default();
        // Each request comes again after 40 entries, and is brought along by the next entry too.
        for version in 1..=1000 {
            let mut e = PgLogEntry {
                op: LogOp::MODIFY,
                version: EVersion::new(3, version),
                reqid: request(version % 40),
                ..PgLogEntry::default()
            };
            e.extras_mut().extra_reqids.push((request(version % 40 + 100), 7));
            let number = entries.push(&e, None);
            requests.insert(&entries, number);
            if entries.len() > 60 {
                requests.remove(&entries, entries.oldest_number());
                entries.pop();
            }
            let made_anew = Requests::of(&entries);
            for back in 0..40.min(version) {
                let at = EVersion::new(3, version - back);
                let (own, brought) = (request(at.version % 40), request(at.version % 40 + 100));
                for requests in [&requests, &made_anew] {
                    assert_eq!(requests.find(&entries, &own).map(|e| e.version()), Some(at));
                    assert_eq!(
                        requests.find_brought(&entries, &brought).map(|e| e.version()),
                        Some(at)
                    );
                    assert!(requests.find(&entries, &brought).is_none());
                }
            }
        }
        while !entries.is_empty() {
            requests.remove(&entries, entries.oldest_number());
            entries.pop();
        }
        assert!(requests.own.is_empty() && requests.brought.is_empty());
    }
}
