//! The bytes of a disk or file, and which of them would survive a power loss.
//!
//! Pages hold what reads see. Beside them stands an undo record for every 512-byte sector changed
//! since it was last synced: its earlier contents, oldest first. A sync forgets the records of
//! the writes it covers. A sync that fails has often lost them: whoever opens the file next finds what
//! a power loss would have left. At a power loss each recorded sector gets one of its contents back, so
//! that unsynced writes are lost, torn at sector bounds and reordered among each other, while a
//! sector itself never mixes old and new.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use crate::disk::{DiskFaults, DiskModel};
use crate::rng::{Rng, mix};
use crate::trace::fold;

const PAGE: usize = 4096;
const SECTOR: usize = 512;
/// Earlier contents remembered per sector; beyond it one is forgotten, but not the oldest, which alone is
/// known to be on the medium, nor what a sync that is under way makes so.
const VERSIONS_MAX: usize = 4;

/// What a power loss does to unsynced writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsynced {
    /// All survive (a process dies, its host does not).
    Kept,
    /// None survives.
    Lost,
    /// Each sector survives or not, by chance.
    Torn,
}

type Sector = [u8; SECTOR];

/// A sector before a write: `None` is all zeros.
#[derive(Debug)]
struct Earlier {
    /// The write that replaced it.
    write: u64,
    contents: Option<Box<Sector>>,
}

/// What has begun, and takes effect at its time.
#[derive(Debug)]
enum InFlight {
    Write(Write),
    /// Of all writes up to this one.
    Sync(u64),
}

/// A write that has begun.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) offset: u64,
    pub(crate) bufs: Vec<Bytes>,
    /// Whether it is durable once it has taken effect.
    pub(crate) durable: bool,
    /// The share of its sectors that takes effect at all.
    pub(crate) share: f64,
}

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Image {
    pages: BTreeMap<u64, Box<[u8; PAGE]>>,
    len: u64,
    len_synced: u64,
    undo: BTreeMap<u64, Vec<Earlier>>,
    /// Writes that have taken effect; the last one's number.
    writes: u64,
    in_flight: BTreeMap<(Duration, u64), InFlight>,
    begun: u64,
    /// A sync has failed, and what was not synced is gone from where it was kept.
    has_lost: bool,
    /// Operations that have failed.
    pub(crate) errors: u64,
    /// When the transfers asked for so far have ended.
    busy_until: Duration,
    /// The process that has the file open for writing.
    pub(crate) locked_by: Option<u32>,
    pub(crate) model: DiskModel,
    pub(crate) faults: DiskFaults,
    pub(crate) rng: Rng,
    hash: u64,
}

impl Image {
    pub(crate) fn new(len: u64, model: DiskModel, rng: Rng) -> Image {
        Image {
            pages: BTreeMap::new(),
            len,
            len_synced: len,
            undo: BTreeMap::new(),
            writes: 0,
            in_flight: BTreeMap::new(),
            begun: 0,
            has_lost: false,
            errors: 0,
            busy_until: Duration::ZERO,
            locked_by: None,
            model,
            faults: DiskFaults::default(),
            rng,
            hash: 0,
        }
    }

    /// The world has ended: nobody reads this any more, though a leaked task may hold it.
    pub(crate) fn forget(&mut self) {
        self.pages.clear();
        self.undo.clear();
        self.in_flight.clear();
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Sectors that a power loss could change.
    pub(crate) fn unsynced_sectors(&self) -> usize {
        self.undo.len()
    }

    /// Sums up all changes so far.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// When an operation begun at `now` that moves `bytes` ends.
    pub(crate) fn completion(&mut self, now: Duration, latency: Duration, bytes: u64) -> Duration {
        let transfer =
            bytes as u128 * 1_000_000_000 / u128::from(self.model.bytes_per_second.max(1));
        self.busy_until = self.busy_until.max(now) + Duration::from_nanos(transfer as u64);
        let latency = latency + self.rng.exponential(self.model.jitter_mean);
        self.busy_until + latency.mul_f64(self.model.slowness)
    }

    /// Whether an operation with this probability of failing does.
    pub(crate) fn fails(&mut self, probability: f64) -> bool {
        let fails = self.rng.chance(probability);
        self.errors += u64::from(fails);
        fails
    }

    /// The share of a failed write's sectors that takes effect.
    pub(crate) fn share_of_failed(&self) -> f64 {
        *self.rng.pick(&[0.0, 0.5, 1.0])
    }

    /// Begins a write that takes effect, and is durable if it is to be so, at `done`.
    pub(crate) fn begin_write(&mut self, done: Duration, write: Write) {
        self.begin(done, InFlight::Write(write));
    }

    /// Begins a sync of the writes that have taken effect; it has done so at `done`.
    pub(crate) fn begin_sync(&mut self, done: Duration) {
        self.begin(done, InFlight::Sync(self.writes));
    }

    fn begin(&mut self, done: Duration, what: InFlight) {
        self.begun += 1;
        self.in_flight.insert((done, self.begun), what);
    }

    /// A sync has failed: what it was to make durable may be gone, though reads still see it.
    pub(crate) fn sync_has_failed(&mut self) {
        self.has_lost |= self.rng.chance(0.5);
    }

    /// Somebody opens the file for writing, and finds what is there.
    pub(crate) fn open(&mut self, process: u32) {
        self.locked_by = Some(process);
        if std::mem::take(&mut self.has_lost) {
            self.tear(Unsynced::Torn);
        }
    }

    /// Lets what is in flight take effect whose time has come.
    pub(crate) fn settle(&mut self, now: Duration) {
        while let Some(entry) = self.in_flight.first_entry() {
            if entry.key().0 > now {
                return;
            }
            match entry.remove() {
                InFlight::Write(write) => {
                    let (from, durable) = (write.offset, write.durable);
                    let to = self.apply(write);
                    if durable {
                        self.sync_range(from, to);
                    }
                }
                InFlight::Sync(last_write) => self.sync(last_write),
            }
        }
    }

    /// Lets a write take effect; where it ends.
    fn apply(&mut self, write: Write) -> u64 {
        let mut offset = write.offset;
        for buf in write.bufs {
            self.write_share(write.share, offset, &buf);
            offset += buf.len() as u64;
        }
        offset
    }

    /// Changes so many of the sectors that a write is for, by chance.
    pub(crate) fn write_share(&mut self, share: f64, offset: u64, data: &[u8]) {
        if share >= 1.0 {
            return self.write(offset, data);
        }
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let step = rest.len().min(SECTOR - (at % SECTOR as u64) as usize);
            if self.rng.chance(share) {
                self.write(at, &rest[..step]);
            }
            rest = &rest[step..];
            at += step as u64;
        }
    }

    /// Makes what whole sectors hold durable.
    fn sync_range(&mut self, from: u64, to: u64) {
        self.hash = mix(self.hash ^ from ^ to.rotate_left(32));
        self.len_synced = self.len_synced.max(to);
        for sector in from / SECTOR as u64..to / SECTOR as u64 {
            self.undo.remove(&sector);
        }
    }

    /// Number of the last write that has taken effect: what a sync beginning now covers.
    pub(crate) fn last_write(&self) -> u64 {
        self.writes
    }

    /// Changes bytes at once; grows the file if they go beyond its end.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        self.hash = mix(self.hash ^ offset ^ fold(data).rotate_left(17));
        self.writes += 1;
        self.len = self.len.max(offset + data.len() as u64);
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let within = (at % SECTOR as u64) as usize;
            let step = rest.len().min(SECTOR - within);
            self.write_in_sector(at / SECTOR as u64, within, &rest[..step]);
            rest = &rest[step..];
            at += step as u64;
        }
    }

    fn write_in_sector(&mut self, sector: u64, within: usize, part: &[u8]) {
        const IN_PAGE: u64 = (PAGE / SECTOR) as u64;
        let start = (sector % IN_PAGE) as usize * SECTOR;
        let page = self.pages.get(&(sector / IN_PAGE));
        let contents = page.map(|page| {
            let mut contents = Box::new([0; SECTOR]);
            contents.copy_from_slice(&page[start..start + SECTOR]);
            contents
        });
        let versions = self.undo.entry(sector).or_default();
        versions.push(Earlier { write: self.writes, contents });
        if versions.len() > VERSIONS_MAX {
            let is_awaited = |earlier: &[Earlier]| {
                let covers = earlier[0].write..earlier[1].write;
                self.in_flight
                    .values()
                    .any(|w| matches!(w, InFlight::Sync(w) if covers.contains(w)))
            };
            let spare = versions.windows(2).position(|pair| !is_awaited(pair));
            if let Some(spare) = spare {
                versions.remove(spare + 1);
            }
        }
        let page = self.pages.entry(sector / IN_PAGE).or_insert_with(|| Box::new([0; PAGE]));
        page[start + within..start + within + part.len()].copy_from_slice(part);
    }

    /// Reads bytes; those never written are zeros.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) {
        let mut at = offset;
        let mut rest = buf;
        while !rest.is_empty() {
            let within = (at % PAGE as u64) as usize;
            let step = rest.len().min(PAGE - within);
            let (part, behind) = rest.split_at_mut(step);
            match self.pages.get(&(at / PAGE as u64)) {
                Some(page) => part.copy_from_slice(&page[within..within + step]),
                None => part.fill(0),
            }
            rest = behind;
            at += step as u64;
        }
    }

    /// Changes a file's length: new bytes are zeros.
    pub(crate) fn set_len(&mut self, len: u64) {
        self.hash = mix(self.hash ^ len);
        if len < self.len {
            let end = self.len.next_multiple_of(PAGE as u64);
            let first = len / PAGE as u64;
            let cut: Vec<u64> =
                self.pages.range(first..end / PAGE as u64).map(|(page, _)| *page).collect();
            for page in cut {
                let from = (page * PAGE as u64).max(len);
                let to = ((page + 1) * PAGE as u64).min(self.len);
                self.write(from, &[0; PAGE][..(to - from) as usize]);
            }
        }
        self.len = len;
    }

    /// Makes the writes up to this number durable, and the length.
    pub(crate) fn sync(&mut self, last_write: u64) {
        self.hash = mix(self.hash ^ last_write);
        self.len_synced = self.len;
        self.undo.retain(|_, versions| {
            versions.retain(|earlier| earlier.write > last_write);
            !versions.is_empty()
        });
    }

    /// Gives the space of a range back, or not.
    pub(crate) fn discard(&mut self, offset: u64, len: u64) {
        if self.rng.chance(0.5) {
            return;
        }
        let page = PAGE as u64;
        let pages = offset.div_ceil(page)..(offset + len) / page;
        if pages.is_empty() {
            return;
        }
        let mut behind = self.pages.split_off(&pages.start);
        self.pages.append(&mut behind.split_off(&pages.end));
        let in_page = (PAGE / SECTOR) as u64;
        let mut behind = self.undo.split_off(&(pages.start * in_page));
        self.undo.append(&mut behind.split_off(&(pages.end * in_page)));
    }

    /// The process that has opened it is no more.
    pub(crate) fn forsake(&mut self, process: u32) {
        if self.locked_by == Some(process) {
            self.locked_by = None;
        }
    }

    /// The process or its host has died.
    pub(crate) fn crash(&mut self, now: Duration, unsynced: Unsynced) {
        self.settle(now);
        self.locked_by = None;
        self.busy_until = now;
        for begun in std::mem::take(&mut self.in_flight).into_values() {
            if let InFlight::Write(write) = begun
                && self.rng.chance(0.5)
            {
                self.apply(write);
            }
        }
        if unsynced == Unsynced::Kept {
            // The host lives on and will write them back in its own time; a later power loss
            // finds them still unsynced.
            return;
        }
        self.has_lost = false;
        self.tear(unsynced);
        if unsynced == Unsynced::Lost || self.rng.chance(0.5) {
            self.len = self.len_synced;
        }
        self.len_synced = self.len;
    }

    /// What is not synced is lost, or some of it.
    fn tear(&mut self, unsynced: Unsynced) {
        let survival = *self.rng.pick(&[0.05, 0.5, 0.95]);
        for (sector, mut versions) in std::mem::take(&mut self.undo) {
            let chosen = match unsynced {
                Unsynced::Torn if self.rng.chance(survival) => continue,
                Unsynced::Torn => self.rng.below(versions.len() as u64) as usize,
                _ => 0,
            };
            self.restore(sector, versions.swap_remove(chosen).contents);
        }
    }

    fn restore(&mut self, sector: u64, contents: Option<Box<Sector>>) {
        const IN_PAGE: u64 = (PAGE / SECTOR) as u64;
        let start = (sector % IN_PAGE) as usize * SECTOR;
        if let Some(page) = self.pages.get_mut(&(sector / IN_PAGE)) {
            let zeros = [0; SECTOR];
            page[start..start + SECTOR].copy_from_slice(contents.as_deref().unwrap_or(&zeros));
        }
    }

    /// Flips one bit on the medium: no write, so no undo.
    pub(crate) fn flip_bit(&mut self, offset: u64, bit: u8) {
        self.hash = mix(self.hash ^ offset);
        let page = self.pages.entry(offset / PAGE as u64).or_insert_with(|| Box::new([0; PAGE]));
        page[(offset % PAGE as u64) as usize] ^= 1 << (bit % 8);
    }

    /// Where a write of `len` bytes meant for `offset` goes if it goes wrong.
    pub(crate) fn some_place(&self, offset: u64, len: u64) -> u64 {
        let pages = self.written_pages();
        let fits = |place: &u64| *place != offset && place + len <= self.len;
        match pages.is_empty() {
            true => offset,
            false => Some(*self.rng.pick(&pages)).filter(fits).unwrap_or(offset),
        }
    }

    /// Offsets of the pages ever written.
    pub(crate) fn written_pages(&self) -> Vec<u64> {
        self.pages.keys().map(|page| page * PAGE as u64).collect()
    }
}
