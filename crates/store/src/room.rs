//! Room in a folder, for stores whose database is there: what it takes of the store's size, and what
//! the file system has left.
//!
//! Both are measured when they are asked for and when much has been put since; in between, what is put
//! counts as if it stayed. So nothing is refused by a guess, and no write costs a call.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::StoreError;
use crate::kv::{Kv, storage};

/// What was found by looking. In bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// What the database takes of the store's size.
    pub(crate) database: u64,
    /// What the file system has left beyond what the database needs to go on.
    pub(crate) free: u64,
}

/// What a transaction takes. In bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Of the store's size, by the database.
    pub(crate) database: u64,
    /// Of the file system.
    pub(crate) files: u64,
}

/// What a transaction adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Growth {
    /// Data, and what goes with it.
    Data,
    /// Metadata, or the owner's own data: may have the last of the room, for an owner must note things
    /// when clients have taken all else.
    Metadata,
    /// Nothing, in the end: there is always room for it.
    Nothing,
}

#[derive(Debug, Default)]
struct Known {
    found: Found,
    since: Taken,
    /// Bytes to the next measurement.
    step: u64,
    /// Where transactions are refused.
    refused_at: u64,
}

/// The room of a store.
#[derive(Debug)]
pub(crate) struct Room {
    /// The size.
    limit: u64,
    known: Mutex<Known>,
}

/// No measurement is made for less.
const STEP_MIN: u64 = 1 << 20;
/// Most that is kept of the size for metadata.
const MARGIN_MAX: u64 = 64 << 20;
/// Most that is kept in the file system for compactions and logs.
const KEPT_MAX: u64 = 1 << 30;
/// Kept there besides what a compaction of all may write.
const KEPT_MIN: u64 = 8 << 20;

/// With less than this share of its size left a store looks for what deletions hide.
pub(crate) const TIGHT_SHARE: u64 = 4;

/// What of `free` bytes a file system has beyond what a database of so many may need.
pub(crate) fn beyond_need(free: u64, database: u64) -> u64 {
    free.saturating_sub((database + KEPT_MIN).min(KEPT_MAX))
}

/// The same of the file system that a database is on; no limit if it is on none.
pub(crate) fn file_system_room(kv: &dyn Kv) -> Result<u64, StoreError> {
    match kv.file_system_free().map_err(storage)? {
        Some(free) => Ok(beyond_need(free, kv.range_bytes(b"", b"").map_err(storage)?)),
        None => Ok(u64::MAX),
    }
}

impl Room {
    /// Of a store of `limit` bytes that has `used` now. It may have more than its size (which can be
    /// made smaller; what a journal brings again is there twice); its owner must be able to note things
    /// nevertheless, or nothing could ever be removed.
    pub(crate) fn new(limit: u64, used: u64) -> Room {
        let refused_at = Room::refused_at(limit, used);
        Room { limit, known: Mutex::new(Known { refused_at, ..Known::default() }) }
    }

    /// Where transactions are refused if there are `used` bytes.
    fn refused_at(limit: u64, used: u64) -> u64 {
        if used > limit { used + limit / 16 } else { limit }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that only metadata may have.
    fn margin(&self) -> u64 {
        (self.limit / 64).min(MARGIN_MAX)
    }

    /// What is left of `size` beside `data` bytes of objects, and in the file system.
    fn left(known: &Known, size: u64, data: u64) -> [u64; 2] {
        let database = known.found.database + known.since.database;
        let of_size = size.saturating_sub(data.saturating_add(database));
        [of_size, known.found.free.saturating_sub(known.since.files)]
    }

    /// Takes over what was found, `waiting` being what is not to be seen there yet.
    fn measured(&self, known: &mut Known, found: Found, waiting: Taken, data: u64) {
        (known.found, known.since) = (found, waiting);
        let used = data.saturating_add(found.database).saturating_add(waiting.database);
        known.refused_at = known.refused_at.min(Room::refused_at(self.limit, used));
        let [of_size, of_files] = Room::left(known, self.limit, data);
        let step = (of_size.min(of_files) / 16).max(STEP_MIN);
        known.step = step + waiting.files.max(waiting.database);
    }

    /// What is left for data beside `data` bytes of it, by a new measurement.
    pub(crate) fn measure(&self, found: Found, waiting: Taken, data: u64) -> u64 {
        let mut known = self.known();
        self.measured(&mut known, found, waiting, data);
        let [of_size, of_files] = Room::left(&known, self.limit, data);
        of_size.min(of_files).saturating_sub(self.margin())
    }

    /// Counts what a transaction takes, after which there are `data` bytes of objects; whether there is
    /// room, by a new measurement (`look`: what there is, and what is to come) if it seems not.
    pub(crate) fn take(
        &self,
        data: u64,
        taken: Taken,
        growth: Growth,
        look: impl Fn() -> Result<(Found, Taken), StoreError>,
    ) -> Result<bool, StoreError> {
        let mut known = self.known();
        let margin = match growth {
            Growth::Data => self.margin(),
            _ => 0,
        };
        let fits = |[of_size, of_files]: [u64; 2]| {
            let has_room = of_size >= taken.database + margin && of_files >= taken.files + margin;
            has_room || growth == Growth::Nothing
        };
        let is_due = known.since.files.max(known.since.database) >= known.step;
        if is_due || !fits(Room::left(&known, known.refused_at, data)) {
            let (found, waiting) = look()?;
            self.measured(&mut known, found, waiting, data);
            if !fits(Room::left(&known, known.refused_at, data)) {
                return Ok(false);
            }
        }
        known.since.database += taken.database;
        known.since.files += taken.files;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Takes a MiB of keys at a time until it is refused; how often, and how often was looked.
    fn filled(room: &Room, growth: Growth, look: impl Fn(u64) -> Found) -> (u64, u64) {
        let (taken, looked) = (Cell::new(0), Cell::new(0));
        let one = Taken { database: MIB, files: MIB };
        let look = || {
            looked.set(looked.get() + 1);
            Ok((look(taken.get()), Taken::default()))
        };
        while taken.get() < 1000 && room.take(0, one, growth, look).unwrap() {
            taken.set(taken.get() + 1);
        }
        (taken.get(), looked.get())
    }

    #[test]
    fn keys_are_limited_by_the_size_and_by_the_file_system() {
        let found = |n: u64| Found { database: n * MIB, free: (100 - n.min(100)) * MIB };
        assert_eq!(filled(&Room::new(64 * MIB, 0), Growth::Metadata, found).0, 64);
        // The last 64th is not for data.
        assert_eq!(filled(&Room::new(64 * MIB, 0), Growth::Data, found).0, 63);
        assert_eq!(filled(&Room::new(1 << 40, 0), Growth::Metadata, found).0, 100);
        assert_eq!(filled(&Room::new(64 * MIB, 0), Growth::Nothing, found).0, 1000);
        // One that has more than its size has none left, but for notes.
        let over = Room::new(64 * MIB, 80 * MIB);
        let found = Found { database: 80 * MIB, free: 1 << 40 };
        assert_eq!(over.measure(found, Taken::default(), 0), 0);
        assert_eq!(
            filled(&over, Growth::Metadata, |n| Found { database: (80 + n) * MIB, ..found }).0,
            4
        );
    }

    /// A FileStore took a quarter more than its size: what its journal brought again after a kill was in LevelDB twice, and
    /// what that allowed its owner held until the next opening, when all had long been removed.
    #[test]
    fn one_that_has_shrunk_is_limited_by_its_size_again() {
        let room = Room::new(64 * MIB, 80 * MIB);
        let found = |database| Found { database: database * MIB, free: 1 << 40 };
        assert_eq!(filled(&room, Growth::Metadata, |n| found(80 + n)).0, 4);
        room.measure(found(10), Taken::default(), 0);
        assert_eq!(filled(&room, Growth::Metadata, |n| found(10 + n)).0, 54);
    }

    #[test]
    fn what_is_put_counts_until_it_is_looked_again_and_that_is_seldom() {
        // All that is put replaces what was there before.
        let (taken, looked) = filled(&Room::new(64 * MIB, 0), Growth::Metadata, |_| Found {
            database: MIB,
            free: 1 << 40,
        });
        assert_eq!(taken, 1000);
        assert!((10..400).contains(&looked), "{looked}");
        // What waits to be applied is not there yet, and is room no more.
        let room = Room::new(64 * MIB, 0);
        let waiting = Taken { database: 60 * MIB, files: 60 * MIB };
        let look = || Ok((Found { database: 0, free: 1 << 40 }, waiting));
        let take = |mib| {
            let taken = Taken { database: mib * MIB, files: mib * MIB };
            room.take(0, taken, Growth::Metadata, look).unwrap()
        };
        assert!(!take(5) && take(4));
    }
}
