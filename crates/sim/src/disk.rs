//! A disk or file of a host, from the outside: how it behaves, what goes wrong with it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::image::Image;

/// How fast a disk is.
#[derive(Debug, Clone, Copy)]
pub struct DiskModel {
    /// Smallest unit of direct I/O in bytes; writes tear at 512 bytes whatever this is.
    pub block_len: u32,
    /// Time of a read besides its transfer.
    pub read: Duration,
    /// Time of a write besides its transfer.
    pub write: Duration,
    /// Time of a sync.
    pub sync: Duration,
    /// Mean of what is added to each of them (exponentially distributed).
    pub jitter_mean: Duration,
    /// Transfers queue behind each other at this rate.
    pub bytes_per_second: u64,
    /// Factor on all times but transfers: 1 is sound, 100 is a disk about to die.
    pub slowness: f64,
}

impl Default for DiskModel {
    /// A data-centre SSD.
    fn default() -> DiskModel {
        DiskModel {
            block_len: 4096,
            read: Duration::from_micros(80),
            write: Duration::from_micros(20),
            sync: Duration::from_micros(200),
            jitter_mean: Duration::from_micros(30),
            bytes_per_second: 2_000_000_000,
            slowness: 1.0,
        }
    }
}

/// Probabilities with which operations fail with EIO.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiskFaults {
    /// Of a read.
    pub read: f64,
    /// Of a write, which may then have taken effect or not, or some of its sectors have.
    pub write: f64,
    /// Of a sync, which then has synced nothing; what it was to sync may be lost.
    pub sync: f64,
    /// Probability that a write is reported done and has gone to another place, where something
    /// was written before.
    pub misdirect: f64,
    /// Probability that a read is reported done and has one bit wrong.
    pub garble: f64,
    /// What is written or synced from now on never completes, and never fails.
    pub hangs: bool,
}

/// Handle to a disk or file; it outlives the processes that open it.
#[derive(Debug, Clone)]
pub struct Disk(pub(crate) Arc<Mutex<Image>>);

impl Disk {
    pub(crate) fn image(&self) -> MutexGuard<'_, Image> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.image().len()
    }

    /// Changes its speed for operations from now on.
    pub fn set_model(&self, model: DiskModel) {
        self.image().model = model;
    }

    /// Its speed.
    pub fn model(&self) -> DiskModel {
        self.image().model
    }

    /// Changes what fails from now on.
    pub fn set_faults(&self, faults: DiskFaults) {
        self.image().faults = faults;
    }

    /// How many operations have failed with EIO.
    pub fn errors(&self) -> u64 {
        self.image().errors
    }

    /// What reads see now: zeros beyond the end.
    pub fn peek(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut buf = vec![0; len];
        self.image().read(offset, &mut buf);
        buf
    }

    /// Flips one bit (of 0 to 7) of a byte, behind everyone's back.
    pub fn flip_bit(&self, offset: u64, bit: u8) {
        self.image().flip_bit(offset, bit);
    }

    /// Flips `count` bits at random places that were ever written; says where.
    pub fn rot(&self, count: usize) -> Vec<u64> {
        let mut image = self.image();
        let pages = image.written_pages();
        if pages.is_empty() {
            return Vec::new();
        }
        let places: Vec<u64> =
            (0..count).map(|_| image.rng.pick(&pages) + image.rng.below(4096)).collect();
        for place in &places {
            let bit = image.rng.below(8) as u8;
            image.flip_bit(*place, bit);
        }
        places
    }

    /// 512-byte sectors whose last change a power loss could undo.
    pub fn unsynced_sectors(&self) -> usize {
        self.image().unsynced_sectors()
    }
}
