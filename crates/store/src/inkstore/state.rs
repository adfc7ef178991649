//! All metadata in memory, and every change of it. The same functions apply a transaction when it
//! is submitted and when it is replayed from the log, so both end in the same state.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::ops::Bound;
use std::rc::Rc;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use types::ahead::fetch;
use types::hobject::GhObject;

use super::entries::{Captured, Entries, put_entries};
use super::name::{Name, Ranked, seek};
use super::objects::Objects;
use super::onode::{Dirty, Onode};
use super::space::Space;
use crate::check::{Existing, split_moves};
use crate::{CollId, StoreError};

/// Position of an onode in [`State`]; another object may have it later.
pub(super) type Slot = u32;

/// An object's name, the key under which checkpoints sort.
pub(super) type Key = (CollId, Name);

#[derive(Debug, Default)]
pub(super) struct Coll {
    pub(super) bits: u32,
    pub(super) objects: Objects,
}

/// Where each object is, by the hash of its name. In parts: one that grows does not keep writes
/// waiting while the others' entries are placed anew.
#[derive(Debug)]
struct Index([HashTable<(u32, Slot)>; INDEX_PARTS]);

const INDEX_PARTS: usize = 64;

/// Objects that a base looks up at once: the way down a tree for each took a third of its time. Few
/// in tests, so that much happens in between.
const AHEAD: usize = if cfg!(test) { 3 } else { 64 };

impl Default for Index {
    fn default() -> Index {
        Index([const { HashTable::new() }; INDEX_PARTS])
    }
}

/// Of all that an entry keeps of a name's hash, which part has it and what the part sorts it by.
fn place_of(hash: u32) -> (usize, u64) {
    let spread = u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash as usize % INDEX_PARTS, spread)
}

fn hash_of(cid: &CollId, oid: &GhObject) -> u32 {
    FixedState::default().hash_one((cid, &oid.hobj)) as u32
}

impl Index {
    fn find(&self, hash: u32, is_at: impl Fn(Slot) -> bool) -> Option<Slot> {
        let (part, place) = place_of(hash);
        let found = self.0[part].find(place, |entry| entry.0 == hash && is_at(entry.1));
        found.map(|entry| entry.1)
    }

    fn insert(&mut self, hash: u32, slot: Slot) {
        let (part, place) = place_of(hash);
        self.0[part].insert_unique(place, (hash, slot), |entry| place_of(entry.0).1);
    }

    fn remove(&mut self, hash: u32, slot: Slot) {
        let (part, place) = place_of(hash);
        if let Ok(entry) = self.0[part].find_entry(place, |entry| *entry == (hash, slot)) {
            entry.remove();
        }
    }
}

/// Names of objects changed or removed, by collection: put in order when it is their turn, since to
/// keep them in order takes longer than the change. With each, where it was then: mostly it still is. Bound:
/// as many as there are changes between two checkpoints.
type Changed = BTreeMap<CollId, Vec<(Name, Slot)>>;

/// Objects of a collection that a checkpoint comes to, the next one last.
#[derive(Debug)]
struct Turn {
    cid: CollId,
    names: Vec<(Name, Slot)>,
    /// Of how many at the end memory is on its way or there.
    fetched: usize,
}

/// Objects whose memory a checkpoint asks for at once.
const FETCHED: usize = 8;

impl Turn {
    fn next(&self) -> Option<(&CollId, &Name)> {
        self.names.last().map(|(name, _)| (&self.cid, name))
    }

    /// The next object, and where it was. They lie anywhere in memory, each in four places of which one tells
    /// of the next; so a few are asked for together, as [`fetch`] has it.
    fn pop(&mut self, onodes: &[Option<Box<Onode>>]) -> Option<(Key, Slot)> {
        if self.fetched == 0 {
            let first = self.names.len().saturating_sub(FETCHED);
            let coming = &self.names[first..];
            let places = || coming.iter().filter_map(|(_, slot)| onodes.get(*slot as usize));
            coming.iter().for_each(|(name, _)| fetch(&*name.oid));
            places().for_each(fetch);
            places().flatten().for_each(|onode| fetch(&**onode));
            coming.iter().for_each(|(name, _)| fetch(&name.oid.hobj.name[..]));
            places().flatten().for_each(|onode| onode.fetch());
            self.fetched = coming.len();
        }
        let (name, slot) = self.names.pop()?;
        self.fetched -= 1;
        Some(((self.cid, name), slot))
    }
}

/// A checkpoint being written: the state as it was when it began.
///
/// Nothing is copied when it begins. An onode of an older generation than the present is as it
/// was; before it changes, what the checkpoint needs of it goes to `captured`.
#[derive(Debug, Default)]
pub(super) struct Frozen {
    /// Holds every object, not only those changed since the checkpoint before.
    pub(super) base: bool,
    /// The state's generation when it began.
    pub(super) generation: u64,
    /// Of a base: the last object that was in `turn`.
    position: Option<Key>,
    /// Of others: objects of collections whose turn it has not been.
    todo: Changed,
    /// Those that come next. What became of them since, their onodes tell.
    turn: Option<Turn>,
    /// Objects changed since, as they were.
    pub(super) captured: BTreeMap<Key, Captured>,
}

impl Frozen {
    /// Which parts the checkpoint needs of an onode that is as it was, and which is clean
    /// afterwards; `None` if it needs nothing.
    fn take_dirty(&self, onode: &mut Onode) -> Option<Dirty> {
        if onode.generation > self.generation || !(self.base || onode.dirty.listed) {
            return None;
        }
        onode.generation = self.generation + 1;
        let mut dirty = std::mem::take(&mut onode.dirty);
        if self.base {
            dirty = Dirty { fresh: true, ..Dirty::default() };
        }
        Some(dirty)
    }

    /// The next object that was changed, in the order of names, and where it was then.
    fn next_changed(&mut self, onodes: &[Option<Box<Onode>>]) -> Option<(Key, Slot)> {
        loop {
            if let Some(next) = self.turn.as_mut().and_then(|turn| turn.pop(onodes)) {
                return Some(next);
            }
            let (cid, mut names) = self.todo.pop_first()?;
            names.sort_unstable_by(|a, b| b.cmp(a));
            names.dedup_by(|a, b| a.0 == b.0);
            self.turn = Some(Turn { cid, names, fetched: 0 });
        }
    }
}

fn list(changed: &mut Changed, key: Key, slot: Slot) {
    changed.entry(key.0).or_default().push((key.1, slot));
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) colls: BTreeMap<CollId, Coll>,
    onodes: Vec<Option<Box<Onode>>>,
    index: Index,
    vacant: Vec<Slot>,
    next_uid: u64,
    pub(super) space: Space,
    /// Objects changed or removed since the last checkpoint began.
    dirty: Changed,
    pub(super) frozen: Option<Frozen>,
    /// Grows when a checkpoint begins.
    pub(super) generation: u64,
    /// Handles given out before this generation began mean nothing any more.
    pub(super) handle_generation: u64,
    pub(super) next_handle: u32,
}

impl Coll {
    /// Objects of a range, in order.
    pub(super) fn range(
        &mut self,
        start: &GhObject,
        end: &GhObject,
    ) -> impl Iterator<Item = &GhObject> {
        let objects = self.objects.in_order();
        let bounds = |start: &(dyn Ranked + '_), end: &(dyn Ranked + '_)| {
            objects.range::<dyn Ranked, _>((Bound::Included(start), Bound::Excluded(end)))
        };
        let range = seek(start, |start| seek(end, |end| bounds(start, end)));
        range.map(|(name, _)| &*name.oid)
    }
}

impl Existing for State {
    fn collection_len(&self, cid: &CollId) -> Option<usize> {
        self.colls.get(cid).map(|c| c.objects.len())
    }
    fn object_exists(&self, cid: &CollId, oid: &GhObject) -> bool {
        self.lookup(cid, oid).is_some()
    }
}

impl State {
    pub(super) fn new() -> State {
        State { handle_generation: 1, ..State::default() }
    }

    pub(super) fn lookup(&self, cid: &CollId, oid: &GhObject) -> Option<Slot> {
        self.lookup_hashed(hash_of(cid, oid), cid, oid)
    }

    fn lookup_hashed(&self, hash: u32, cid: &CollId, oid: &GhObject) -> Option<Slot> {
        self.index.find(hash, |slot| {
            self.onode(slot).is_some_and(|onode| onode.cid == *cid && *onode.oid == *oid)
        })
    }

    /// The onode for a read.
    pub(super) fn find(&self, cid: &CollId, oid: &GhObject) -> Result<&Onode, StoreError> {
        match self.lookup(cid, oid).and_then(|slot| self.onode(slot)) {
            Some(onode) => Ok(onode),
            None if self.colls.contains_key(cid) => Err(StoreError::NoObject),
            None => Err(StoreError::NoCollection(*cid)),
        }
    }

    pub(super) fn onode(&self, slot: Slot) -> Option<&Onode> {
        self.onodes.get(slot as usize)?.as_deref()
    }

    pub(super) fn onodes(&self) -> impl Iterator<Item = &Onode> {
        self.onodes.iter().filter_map(Option::as_deref)
    }

    /// The onode to be changed, with the sums: saves what a checkpoint still needs of it first.
    pub(super) fn change(&mut self, slot: Slot) -> Option<(&mut Onode, &mut Space)> {
        let onode = self.onodes.get_mut(slot as usize)?.as_deref_mut()?;
        if let Some(frozen) = &mut self.frozen
            && onode.generation <= frozen.generation
        {
            if let Some(dirty) = frozen.take_dirty(onode) {
                frozen.captured.insert(onode.key(), Captured::of(onode, dirty));
            }
            onode.generation = self.generation;
        }
        // Any change lists the object; which parts changed, the onode knows.
        if !onode.dirty.listed {
            onode.dirty.listed = true;
            list(&mut self.dirty, onode.key(), slot);
        }
        Some((onode, &mut self.space))
    }

    /// The onode to be changed without regard to checkpoints: while loading one.
    pub(super) fn load(&mut self, slot: Slot) -> Option<&mut Onode> {
        self.onodes.get_mut(slot as usize)?.as_deref_mut()
    }

    /// Makes sure the object exists; `None` if its collection does not.
    pub(super) fn create(&mut self, cid: &CollId, oid: &GhObject) -> Option<Slot> {
        let hash = hash_of(cid, oid);
        if let Some(slot) = self.lookup_hashed(hash, cid, oid) {
            return Some(slot);
        }
        let coll = self.colls.get_mut(cid)?;
        let oid = Rc::new(oid.clone());
        self.next_uid += 1;
        let mut onode = Box::new(Onode::new(*cid, oid.clone(), self.next_uid));
        onode.generation = self.generation;
        onode.dirty.listed = true;
        let slot = match self.vacant.pop() {
            Some(slot) => {
                self.onodes[slot as usize] = Some(onode);
                slot
            }
            None => {
                self.onodes.push(Some(onode));
                (self.onodes.len() - 1) as Slot
            }
        };
        self.space.add_object(&oid);
        let name = Name::new(oid);
        coll.objects.insert(name.clone(), slot);
        self.index.insert(hash, slot);
        list(&mut self.dirty, (*cid, name), slot);
        Some(slot)
    }

    /// Removes an object if it is there.
    pub(super) fn remove(&mut self, cid: &CollId, oid: &GhObject) {
        if let Some(mut onode) = self.detach(cid, oid) {
            onode.release(&mut self.space);
        }
    }

    /// Takes an object out of its collection, leaving its references as they are.
    fn detach(&mut self, cid: &CollId, oid: &GhObject) -> Option<Box<Onode>> {
        let slot = self.lookup(cid, oid)?;
        self.change(slot);
        let mut onode = self.onodes[slot as usize].take()?;
        if let Some(frozen) = &mut self.frozen
            && onode.kept.is_some()
            && let Some(captured) = frozen.captured.get_mut(&onode.key())
        {
            captured.take_chunks(&mut onode);
        }
        list(&mut self.dirty, onode.key(), slot);
        let coll = self.colls.get_mut(cid)?;
        coll.objects.remove(oid, slot);
        self.index.remove(hash_of(cid, oid), slot);
        self.vacant.push(slot);
        self.space.drop_object(oid);
        Some(onode)
    }

    /// Makes `to` a copy of `from`, both in `cid`. Nothing happens if they are one.
    pub(super) fn clone_object(&mut self, cid: &CollId, from: &GhObject, to: &GhObject) {
        if from == to || self.lookup(cid, from).is_none() {
            return;
        }
        self.remove(cid, to);
        let (Some(from), Some(to)) = (self.lookup(cid, from), self.create(cid, to)) else { return };
        // Taken out for the time, so that both can be held.
        let Some(mut copy) = self.onodes[to as usize].take() else { return };
        if let Some(source) = self.onodes[from as usize].as_deref() {
            copy.copy_all(source, &mut self.space);
        }
        self.onodes[to as usize] = Some(copy);
    }

    /// Copies a range of data into `to`, which is created if missing.
    pub(super) fn clone_range(
        &mut self,
        cid: &CollId,
        from: &GhObject,
        to: &GhObject,
        range: (u64, u64, u64),
    ) {
        let (offset, len, to_offset) = range;
        let Some(source) = self.lookup(cid, from).and_then(|slot| self.onode(slot)) else { return };
        let len = len.min(source.size.saturating_sub(offset));
        let pieces = source.pieces(offset, len);
        let shift = (to_offset as i64).wrapping_sub(offset as i64);
        let Some(slot) = self.create(cid, to) else { return };
        let Some((onode, space)) = self.change(slot) else { return };
        if len > 0 {
            onode.put_pieces(pieces, shift, space);
            onode.grow_to(to_offset + len);
        }
    }

    /// Moves an object to another name, replacing what is there.
    pub(super) fn rename(&mut self, from: (&CollId, &GhObject), to: (&CollId, &GhObject)) {
        if from == to {
            return;
        }
        let Some(mut onode) = self.detach(from.0, from.1) else { return };
        self.remove(to.0, to.1);
        if let Some(slot) = self.create(to.0, to.1)
            && let Some(place) = self.onodes[slot as usize].as_mut()
        {
            (onode.cid, onode.oid, onode.uid) = (place.cid, place.oid.clone(), place.uid);
            (onode.dirty.fresh, onode.dirty.listed) = (true, true);
            onode.generation = self.generation;
            *place = onode;
        } else {
            onode.release(&mut self.space);
        }
    }

    pub(super) fn make_collection(&mut self, cid: CollId, bits: u32) {
        self.colls.entry(cid).or_default().bits = bits;
    }

    pub(super) fn make_collection_if_missing(&mut self, cid: CollId) {
        self.colls.entry(cid).or_default();
    }

    pub(super) fn remove_collection(&mut self, cid: &CollId) {
        self.colls.remove(cid);
    }

    /// Moves the objects of a split; handles mean nothing afterwards.
    pub(super) fn split(&mut self, from: &CollId, bits: u32, rem: u32, to: &CollId) {
        let Some(coll) = self.colls.get_mut(from) else { return };
        coll.bits = bits;
        let moved = coll.objects.in_order().keys().filter(|name| split_moves(&name.oid, bits, rem));
        let moved: Vec<Rc<GhObject>> = moved.map(|name| name.oid.clone()).collect();
        if let Some(coll) = self.colls.get_mut(to) {
            coll.bits = bits;
        }
        for oid in moved {
            self.rename((from, &oid), (to, &oid));
        }
        self.drop_handles();
    }

    /// Moves all objects of a merge; handles mean nothing afterwards.
    pub(super) fn merge(&mut self, from: &CollId, to: &CollId, bits: u32) {
        let Some(coll) = self.colls.get_mut(from) else { return };
        let moved: Vec<Rc<GhObject>> =
            coll.objects.in_order().keys().map(|name| name.oid.clone()).collect();
        for oid in moved {
            self.rename((from, &oid), (to, &oid));
        }
        self.colls.remove(from);
        if let Some(coll) = self.colls.get_mut(to) {
            coll.bits = bits;
        }
        self.drop_handles();
    }

    /// Forgets which handle means which object.
    pub(super) fn drop_handles(&mut self) {
        self.handle_generation += 1;
        self.next_handle = 0;
    }

    /// Freezes the state for a checkpoint.
    pub(super) fn freeze(&mut self, base: bool) {
        let todo = std::mem::take(&mut self.dirty);
        let frozen = Frozen {
            base,
            generation: self.generation,
            todo: if base { Changed::new() } else { todo },
            ..Frozen::default()
        };
        self.frozen = Some(frozen);
        self.generation += 1;
    }

    /// The next object of the frozen state, and its entries put into `entries`: one that says so if
    /// it was gone. `None` when all have been given.
    pub(super) fn next_frozen(&mut self, entries: &mut Entries) -> Option<Key> {
        let mut frozen = self.frozen.take()?;
        let next = match frozen.base {
            true => self.next_of_base(&mut frozen, entries),
            false => self.next_of_changed(&mut frozen, entries),
        };
        self.frozen = Some(frozen);
        next
    }

    fn next_of_changed(&mut self, frozen: &mut Frozen, entries: &mut Entries) -> Option<Key> {
        let (key, slot) = frozen.next_changed(&self.onodes)?;
        let still = |onode: &&Onode| onode.cid == key.0 && Rc::ptr_eq(&onode.oid, &key.1.oid);
        let live = match self.onode(slot).filter(still) {
            Some(_) => Some(slot),
            None => self.lookup(&key.0, &key.1.oid),
        };
        if let Some(captured) = frozen.captured.remove(&key) {
            captured.put(entries, live.and_then(|slot| self.load(slot)));
        } else if let Some(onode) = live.and_then(|slot| self.load(slot))
            && let Some(dirty) = frozen.take_dirty(onode)
        {
            put_entries(entries, onode, &dirty);
        } else {
            // There is none or, of a later generation, another.
            entries.put_dead(&key.0, &key.1.oid);
        }
        Some(key)
    }

    fn next_of_base(&mut self, frozen: &mut Frozen, entries: &mut Entries) -> Option<Key> {
        loop {
            if frozen.turn.as_ref().is_none_or(|turn| turn.names.is_empty()) {
                frozen.turn = self.turn_after(frozen.position.as_ref());
                if let Some(turn) = &frozen.turn {
                    frozen.position = turn.names.first().map(|(name, _)| (turn.cid, name.clone()));
                }
            }
            let live = frozen.turn.as_ref().and_then(Turn::next);
            let captured = frozen.captured.first_key_value().map(|(key, _)| (&key.0, &key.1));
            let captured_first = match (live, captured) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some(live), Some(captured)) => captured <= live,
            };
            if captured_first {
                let (key, captured) = frozen.captured.pop_first()?;
                let live = self.lookup(&key.0, &key.1.oid);
                captured.put(entries, live.and_then(|slot| self.load(slot)));
                return Some(key);
            }
            // What stands in the slot now is the object as it was, or of a later generation.
            let (key, slot) = frozen.turn.as_mut()?.pop(&self.onodes)?;
            if let Some(onode) = self.load(slot)
                && let Some(dirty) = frozen.take_dirty(onode)
            {
                put_entries(entries, onode, &dirty);
                return Some(key);
            }
        }
    }

    /// The first objects behind a name, or of all, of one collection.
    fn turn_after(&mut self, position: Option<&Key>) -> Option<Turn> {
        let from = position.map_or(Bound::Unbounded, |(cid, _)| Bound::Included(*cid));
        self.colls.range_mut((from, Bound::Unbounded)).find_map(|(cid, coll)| {
            let after = match position {
                Some((at, oid)) if at == cid => Bound::Excluded(oid.clone()),
                _ => Bound::Unbounded,
            };
            let next = coll.objects.in_order().range((after, Bound::Unbounded)).take(AHEAD);
            let mut next: Vec<_> = next.map(|(oid, &slot)| (oid.clone(), slot)).collect();
            next.reverse();
            (!next.is_empty()).then_some(Turn { cid: *cid, names: next, fetched: 0 })
        })
    }

    /// All that is there is in the checkpoint.
    pub(super) fn mark_clean(&mut self) {
        self.dirty.clear();
        for onode in self.onodes.iter_mut().filter_map(Option::as_deref_mut) {
            onode.dirty = Dirty::default();
        }
    }

    /// Counts all references and sums anew; gives each block referred to, once, to `on_block`.
    /// Every block is below `device_blocks`.
    pub(super) fn recount(&mut self, device_blocks: u32, mut on_block: impl FnMut(u32)) {
        let mut space = Space::default();
        let mut seen = vec![0_u64; (device_blocks as usize).div_ceil(64)];
        for onode in self.onodes() {
            space.add_object(&onode.oid);
            space.grow_omap(onode.omap_cost(), 0);
            space.grow_attrs(onode.attrs.cost(), 0);
            space.grow_patches(onode.patch_bytes(), 0);
            for ptr in onode.pointers() {
                let (word, bit) = (ptr.block as usize / 64, 1 << (ptr.block % 64));
                if seen[word] & bit == 0 {
                    seen[word] |= bit;
                    space.add_new(ptr.block);
                    on_block(ptr.block);
                } else {
                    space.add_shared(ptr.block);
                }
            }
        }
        self.space = space;
    }
}
