//! The object map: two bits for each data object, kept ahead of the content, so that what does
//! not exist is neither read nor copied (`src/librbd/object_map/`, `src/common/bit_vector.hpp` at
//! v16.2).
//!
//! ```text
//! before a write:  -> EXISTS        before a removal: -> PENDING, after it: -> NONEXISTENT
//! at a snapshot (fast-diff): EXISTS -> EXISTS_CLEAN: unchanged since
//! ```
//! A crash leaves objects said to exist that do not, never the reverse. Only the holder of the
//! image's lock writes it, under a lock of its own on the map's object.
//!
//! ```text
//! object: u32 14 | envelope(1,1) { u64 count } | ceil(count/4) bytes, the first object in the
//!         high bits | u32 length | u32 crc of the 14 bytes | u32 n | n crcs of 4096-byte blocks
//! ```

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
pub(crate) use cls::rbd::{EXISTS, EXISTS_CLEAN, NONEXISTENT, PENDING};
use denc::{Denc, Error, Reader, Writer};
use env::sync::Notify;
use futures_util::future::join_all;
use types::crc::crc32c;

use crate::{ClientError, IoCtx, Operation};

/// Objects of the largest map (`cls_rbd`: 256000000).
pub(crate) const OBJECTS_MAX: u64 = 256_000_000;
/// Bytes covered by one checksum.
const BLOCK: usize = 4096;

/// Two bits an object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct States {
    len: u64,
    bits: Vec<u8>,
}

impl States {
    pub(crate) fn new(len: u64, state: u8) -> States {
        let bits = vec![state * 0b0101_0101; len.div_ceil(4) as usize];
        let mut states = States { len, bits };
        states.clear_tail();
        states
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn state(&self, object: u64) -> u8 {
        if object >= self.len {
            return NONEXISTENT;
        }
        self.bits[(object / 4) as usize] >> (6 - object % 4 * 2) & 3
    }

    pub(crate) fn set(&mut self, object: u64, state: u8) {
        if object < self.len {
            let shift = 6 - object % 4 * 2;
            let byte = &mut self.bits[(object / 4) as usize];
            *byte = *byte & !(3 << shift) | state << shift;
        }
    }

    pub(crate) fn resize(&mut self, len: u64, state: u8) {
        let old = self.len;
        self.bits.resize(len.div_ceil(4) as usize, 0);
        self.len = len;
        (old..len).for_each(|object| self.set(object, state));
        self.clear_tail();
    }

    fn clear_tail(&mut self) {
        if let (rest @ 1.., Some(last)) = (self.len % 4, self.bits.last_mut()) {
            *last &= !(0xff >> (rest * 2));
        }
    }
}

impl Denc for States {
    fn encode(&self, w: &mut Writer) {
        let mut header = Writer::new();
        header.envelope(1, 1, |w| w.u64(self.len));
        w.blob(header.as_slice());
        w.raw(&self.bits);
        w.counted(|w| {
            w.u32(crc32c(0, header.as_slice()));
            w.count(self.bits.chunks(BLOCK).len());
            self.bits.chunks(BLOCK).for_each(|block| w.u32(crc32c(0, block)));
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        let len = r.counted(|r| r.envelope("BitVector", 1, 1, |r, _| r.u64()))?;
        let bytes = usize::try_from(len.div_ceil(4)).unwrap_or(usize::MAX);
        let bits = r.slice(bytes)?.to_vec();
        // Checksums: verified by the class whenever it reads the map.
        r.blob_slice()?;
        Ok(States { len, bits })
    }
}

/// The map of an image's head, held by the owner of its lock.
pub(crate) struct ObjectMap {
    io: IoCtx,
    oid: String,
    states: RefCell<States>,
    /// Objects to be made EXISTS by the next update. Bound: the image's writes under way.
    wanted: RefCell<BTreeMap<u64, ()>>,
    updating: Cell<bool>,
    failed: RefCell<Option<ClientError>>,
    changed: Notify,
}

/// Reads a map; ENOENT, or a decode error.
pub(crate) async fn load(io: &IoCtx, oid: &str) -> Result<States, ClientError> {
    let ask = Operation::new().rbd("object_map_load", |_| ());
    io.operate(oid, ask).await?.decode(0)
}

impl ObjectMap {
    /// Locks and loads the map.
    pub(crate) async fn open(io: IoCtx, oid: String) -> Result<Rc<ObjectMap>, ClientError> {
        lock(&io, &oid).await?;
        let states = load(&io, &oid).await?;
        Ok(Rc::new(ObjectMap {
            io,
            oid,
            states: RefCell::new(states),
            wanted: RefCell::default(),
            updating: Cell::new(false),
            failed: RefCell::default(),
            changed: Notify::default(),
        }))
    }

    /// Unlocks it.
    pub(crate) async fn close(&self) -> Result<(), ClientError> {
        let unlock = Operation::new().rbd_unlock("");
        self.io.operate(self.oid.clone(), unlock).await.map(drop)
    }

    pub(crate) fn state(&self, object: u64) -> u8 {
        self.states.borrow().state(object)
    }

    pub(crate) fn objects(&self) -> u64 {
        self.states.borrow().len()
    }

    pub(crate) fn states(&self) -> States {
        self.states.borrow().clone()
    }

    fn assert_locked(&self) -> Operation {
        Operation::new().assert_rbd_locked("", "")
    }

    /// Makes a range of objects have a state; only those in `current`, if given.
    pub(crate) async fn set(
        &self,
        objects: Range<u64>,
        state: u8,
        current: Option<u8>,
    ) -> Result<(), ClientError> {
        let end = objects.end.min(self.objects());
        if objects.start >= end {
            return Ok(());
        }
        let range = objects.start..end;
        let update = self.assert_locked().object_map_update(range.clone(), state, current);
        self.io.operate(self.oid.clone(), update).await?;
        let mut states = self.states.borrow_mut();
        for object in range {
            let old = states.state(object);
            if current.is_none_or(|c| old == c || (c == EXISTS && old == EXISTS_CLEAN)) {
                states.set(object, state);
            }
        }
        Ok(())
    }

    /// Returns when the map says durably that the object may exist. What is asked for while an
    /// update is under way goes together into the next.
    pub(crate) async fn ensure_exists(self: &Rc<Self>, object: u64) -> Result<(), ClientError> {
        while self.state(object) != EXISTS {
            if object >= self.objects() {
                return Ok(());
            }
            if let Some(error) = self.failed.borrow().clone() {
                return Err(error);
            }
            self.wanted.borrow_mut().insert(object, ());
            let changed = self.changed.notified();
            if !self.updating.replace(true) {
                let map = self.clone();
                self.io.client().env().go(async move { map.update_wanted().await });
            }
            changed.await;
        }
        Ok(())
    }

    async fn update_wanted(self: Rc<Self>) {
        loop {
            let wanted = std::mem::take(&mut *self.wanted.borrow_mut());
            if wanted.is_empty() {
                self.updating.set(false);
                return;
            }
            let ranges = ranges_of(wanted.into_keys());
            // One operation each: a class method does not see what the same operation has written
            // before it, and would write the map's bytes back without it.
            let updates = ranges.iter().map(|range| {
                let update = self.assert_locked().object_map_update(range.clone(), EXISTS, None);
                self.io.operate(self.oid.clone(), update)
            });
            for (range, result) in ranges.iter().zip(join_all(updates).await) {
                match result {
                    Ok(_) => {
                        let mut states = self.states.borrow_mut();
                        range.clone().for_each(|object| states.set(object, EXISTS));
                    }
                    Err(error) => *self.failed.borrow_mut() = Some(error),
                }
            }
            self.changed.notify_all();
        }
    }

    /// Grows with objects that do not exist, or shrinks.
    pub(crate) async fn resize(&self, objects: u64) -> Result<(), ClientError> {
        let resize = resize_op(self.assert_locked(), objects);
        self.io.operate(self.oid.clone(), resize).await?;
        self.states.borrow_mut().resize(objects, NONEXISTENT);
        Ok(())
    }

    /// Copies the map for a snapshot; with fast-diff, all is unchanged from here on.
    pub(crate) async fn snap_add(&self, to: &str, fast_diff: bool) -> Result<(), ClientError> {
        let copy = self.states.borrow().to_bytes();
        self.io.operate(to, Operation::new().write_full(copy)).await?;
        if fast_diff {
            let clean = self.assert_locked().rbd_write("object_map_snap_add", |_| ());
            self.io.operate(self.oid.clone(), clean).await?;
            let mut states = self.states.borrow_mut();
            for object in 0..states.len() {
                if states.state(object) == EXISTS {
                    states.set(object, EXISTS_CLEAN);
                }
            }
        }
        Ok(())
    }

    /// Takes the state of a snapshot's map.
    pub(crate) async fn replace(&self, states: States) -> Result<(), ClientError> {
        // The lock's attribute stays.
        let replace = self.assert_locked().write_full(states.to_bytes());
        self.io.operate(self.oid.clone(), replace).await?;
        *self.states.borrow_mut() = states;
        Ok(())
    }

    /// A snapshot goes: what had changed up to it has changed up to this map's point too.
    pub(crate) async fn snap_remove(&self, removed: &States) -> Result<(), ClientError> {
        let merge = snap_remove_op(self.assert_locked(), removed);
        self.io.operate(self.oid.clone(), merge).await?;
        let fresh = load(&self.io, &self.oid).await?;
        *self.states.borrow_mut() = fresh;
        Ok(())
    }
}

/// Consecutive numbers as ranges.
fn ranges_of(objects: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for object in objects {
        match ranges.last_mut() {
            Some(last) if last.end == object => last.end += 1,
            _ => ranges.push(object..object + 1),
        }
    }
    ranges
}

pub(crate) fn resize_op(op: Operation, objects: u64) -> Operation {
    op.rbd_write("object_map_resize", |w| {
        w.u64(objects);
        w.u8(NONEXISTENT);
    })
}

pub(crate) fn snap_remove_op(op: Operation, removed: &States) -> Operation {
    op.rbd_write("object_map_snap_remove", |w| w.put(removed))
}

/// Takes the lock on a map's object from whomever holds it: the image's own lock is ours.
async fn lock(io: &IoCtx, oid: &str) -> Result<(), ClientError> {
    use types::Errno;
    loop {
        match io.operate(oid, Operation::new().rbd_lock("", "")).await {
            Err(ClientError::Errno(Errno::EBUSY)) => {}
            Err(ClientError::Errno(Errno::EEXIST)) => return Ok(()),
            other => return other.map(drop),
        }
        let info: cls::lock::LockInfo =
            io.operate(oid, Operation::new().rbd_lock_info()).await?.decode(0)?;
        for id in info.lockers.keys() {
            let break_it = Operation::new().rbd_break_lock(id.locker, &id.cookie);
            match io.operate(oid, break_it).await {
                Ok(_) | Err(ClientError::Errno(Errno::ENOENT)) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// The bytes of a map in which no object exists.
pub(crate) fn empty(objects: u64) -> Bytes {
    States::new(objects, NONEXISTENT).to_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_bits_an_object_survive_encoding() {
        let mut states = States::new(9, NONEXISTENT);
        for (object, state) in [(0, EXISTS), (3, EXISTS_CLEAN), (8, PENDING)] {
            states.set(object, state);
        }
        assert_eq!(states.bits, [0b0100_0011, 0, 0b1000_0000]);
        let bytes = states.to_bytes();
        // Of librbd 16.2.15: an image of nine objects, none of which exists.
        let of_librbd = b"\x0e\0\0\0\x01\x01\x08\0\0\0\x09\0\0\0\0\0\0\0\0\0\0\x0c\0\0\0\xaf\xc3\xb0\xe1\x01\0\0\0\0\0\0\0";
        assert_eq!(&empty(9)[..], of_librbd);
        assert_eq!(States::from_bytes_exact(&bytes).unwrap(), states);
        for cut in 0..bytes.len() {
            assert!(States::from_bytes_exact(&bytes.slice(..cut)).is_err());
        }
        states.resize(10, EXISTS);
        assert_eq!((states.state(8), states.state(9), states.state(10)), (PENDING, EXISTS, 0));
        states.resize(5, EXISTS);
        states.resize(9, NONEXISTENT);
        assert_eq!(states.state(8), NONEXISTENT);
    }

    #[test]
    fn neighbours_go_together() {
        assert_eq!(ranges_of([1, 2, 3, 7, 9, 10].into_iter()), [1..4, 7..8, 9..11]);
    }
}
