//! Entries of a checkpoint's runs: how objects become entries, and entries objects again.
//!
//! An entry belongs to one object and one of its parts; parts are sorted: head, chunks, omap keys.
//! What a checkpoint needs of an object that changes before its turn is put aside as [`Captured`].
//! The bytes: `docs/format-inkstore.md`.

use std::rc::Rc;

use bstr::{BStr, BString};
use bytes::Bytes;
use smallvec::SmallVec;
use types::hobject::GhObject;

use super::changed_keys::ChangedKeys;
use super::format::{BLOCK_LEN, Cursor, Malformed, Put};
use super::kept::Kept;
use super::key_map::{KeyMap, Looked};
use super::onode::{AllocHint, BlockPtr, CHUNK_BLOCKS, Chunk, Dirty, Onode, Patch, PatchSource};
use super::rec::{Value, parse_runs, put_runs};
use super::state::State;
use crate::{CollId, StoreError};

/// About how many bytes of chunks or omap keys one entry holds, at least.
const ENTRY_LEN: usize = 2048;
/// An entry holds at least so many times what the name in front of it takes: all but an object's first are there for
/// what they hold, and 200,000 short keys of an object with a name of 2,040 bytes were a run of 400 MB.
pub(super) const ENTRY_NAMES: usize = 16;
/// An omap is copied whole for a checkpoint that needs at least this part of it: one in so many
/// chunks.
const OMAP_SHARE: usize = 4;

const DEAD: u8 = 1;
const HEAD: u8 = 2;
const CHUNKS: u8 = 3;
const OMAP: u8 = 4;
/// Which blocks of a run begin with which object: the run's last entry, no object's.
pub(super) const INDEX: u8 = 5;
const OMAP_RANGES: u8 = 6;

const FRESH: u8 = 1;
const OMAP_CLEARED: u8 = 2;

/// Entries of a run, one behind the other.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Entries {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
    /// Where what the open one holds begins, behind the name; 0: none is open.
    body: usize,
}

impl Entries {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.body = 0;
    }

    /// The one that has not ended.
    fn open_len(&self) -> usize {
        self.bytes.len() - self.ends.last().unwrap_or(&0)
    }

    /// Begins one of an object; its contents are put behind.
    fn begin(&mut self, kind: u8, cid: &CollId, oid: &GhObject) -> &mut Vec<u8> {
        self.bytes.put_u8(kind);
        self.bytes.put_coll(cid);
        self.bytes.put_object(oid);
        self.body = self.bytes.len();
        &mut self.bytes
    }

    /// Ends what has been begun, if anything.
    fn end(&mut self) {
        if self.open_len() > 0 {
            self.ends.push(self.bytes.len());
            self.body = 0;
        }
    }

    fn end_if_long(&mut self) {
        let held = self.bytes.len() - self.body;
        let name = self.open_len() - held;
        if held >= ENTRY_LEN.max(ENTRY_NAMES * name) {
            self.end();
        }
    }

    /// The one of an object that is gone.
    pub(super) fn put_dead(&mut self, cid: &CollId, oid: &GhObject) {
        self.begin(DEAD, cid, oid);
        self.end();
    }

    /// Puts those of `other` behind.
    fn append(&mut self, other: &Entries) {
        let before = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends.iter().map(|end| before + end));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(&0).chain(&self.ends);
        begins.zip(&self.ends).map(|(&begin, &end)| &self.bytes[begin..end])
    }
}

/// What a checkpoint needs of an object that is about to change.
///
/// A PG's own object has thousands of keys, packed in memory, and all PGs' objects are changed as
/// soon as a checkpoint has begun: what they hold is copied as it is, and becomes entries when the
/// checkpoint comes to it.
///
/// Of its chunks the object itself keeps what changes ([`Kept`]), as long as it is there.
#[derive(Debug, Default)]
pub(super) struct Captured {
    head: Entries,
    chunks: Entries,
    /// Those of the omap, unless it is copied.
    omap_entries: Entries,
    omap: Option<OmapCopy>,
}

#[derive(Debug)]
struct OmapCopy {
    cid: CollId,
    oid: Rc<GhObject>,
    map: KeyMap,
    /// The keys that count, if not all do.
    keys: Option<ChangedKeys>,
}

impl Captured {
    pub(super) fn of(onode: &mut Onode, mut dirty: Dirty) -> Captured {
        let keys = std::mem::take(&mut dirty.omap);
        let mut captured = Captured::default();
        put_head(&mut captured.head, onode, &dirty);
        let needed = dirty.chunks_of(onode);
        if !needed.is_empty() {
            onode.kept = Some(Box::new(Kept::new(needed)));
        }
        let none = KeyMap::default();
        let map = onode.omap().map_or(&none, |omap| &omap.map);
        if !dirty.fresh && map.chunks() > OMAP_SHARE * map.chunks_with(&keys) {
            put_omap(&mut captured.omap_entries, &onode.cid, &onode.oid, map, Some(&keys));
            return captured;
        }
        captured.omap = Some(OmapCopy {
            cid: onode.cid,
            oid: onode.oid.clone(),
            map: map.clone(),
            keys: (!dirty.fresh).then_some(keys),
        });
        captured
    }

    /// The object is about to go: what it keeps of its chunks is put here.
    pub(super) fn take_chunks(&mut self, onode: &mut Onode) {
        put_kept(&mut self.chunks, onode);
    }

    /// Its entries; `live` is the object of that name now, if there is one.
    pub(super) fn put(self, entries: &mut Entries, live: Option<&mut Onode>) {
        entries.append(&self.head);
        entries.append(&self.chunks);
        if let Some(onode) = live {
            put_kept(entries, onode);
        }
        entries.append(&self.omap_entries);
        if let Some(OmapCopy { cid, oid, map, keys }) = self.omap {
            put_omap(entries, &cid, &oid, &map, keys.as_ref());
        }
    }
}

/// The entries for the parts of an object that `dirty` names.
pub(super) fn put_entries(entries: &mut Entries, onode: &Onode, dirty: &Dirty) {
    put_head(entries, onode, dirty);
    put_chunks(entries, onode, Kept::new(dirty.chunks_of(onode)));
    if let Some(omap) = onode.omap() {
        let keys = (!dirty.fresh).then_some(&dirty.omap);
        put_omap(entries, &onode.cid, &onode.oid, &omap.map, keys);
    }
}

/// Those of the chunks that an object keeps for a checkpoint, which it need not any more.
fn put_kept(entries: &mut Entries, onode: &mut Onode) {
    if let Some(kept) = onode.kept.take() {
        put_chunks(entries, onode, *kept);
    }
}

fn put_chunks(entries: &mut Entries, onode: &Onode, kept: Kept) {
    kept.for_each(onode.chunks(), |number, chunk| {
        if entries.open_len() == 0 {
            entries.begin(CHUNKS, &onode.cid, &onode.oid);
        }
        put_chunk(&mut entries.bytes, number, chunk);
        entries.end_if_long();
    });
    entries.end();
}

/// Those of omap keys: of `keys`, or of all.
fn put_omap(
    entries: &mut Entries,
    cid: &CollId,
    oid: &GhObject,
    map: &KeyMap,
    keys: Option<&ChangedKeys>,
) {
    for (first, end) in keys.iter().flat_map(|keys| keys.iter()) {
        let Some(end) = end else { continue };
        if entries.open_len() == 0 {
            entries.begin(OMAP_RANGES, cid, oid);
        }
        entries.bytes.put_blob(first);
        entries.bytes.put_blob(end);
        entries.end_if_long();
    }
    entries.end();
    let (mut last_key, mut last_value) = (Vec::new(), Vec::new());
    let mut put = |key: &[u8], value: Option<&Bytes>| {
        if entries.open_len() == 0 {
            entries.begin(OMAP, cid, oid);
            last_key.clear();
            last_value.clear();
        }
        put_key(&mut entries.bytes, key, value, (&last_key, &last_value));
        last_key.clear();
        last_value.clear();
        last_key.extend_from_slice(key);
        last_value.extend_from_slice(value.map_or(b"", |v| v));
        entries.end_if_long();
    };
    match keys {
        None => map.iter().for_each(|(key, value)| put(&key, Some(&value))),
        Some(keys) => {
            let mut looked = Looked::default();
            for (first, end) in keys.iter() {
                let Some(end) = end else {
                    put(first, map.get_next(first, &mut looked));
                    continue;
                };
                let within = map.from(first, false).take_while(|(key, _)| BStr::new(&**key) < end);
                within.for_each(|(key, value)| put(&key, Some(&value)));
            }
        }
    }
    entries.end();
}

/// That of all but chunks and omap keys, if any of it changed.
fn put_head(entries: &mut Entries, onode: &Onode, dirty: &Dirty) {
    if !(dirty.fresh || dirty.head || dirty.omap_cleared) {
        return;
    }
    let out = entries.begin(HEAD, &onode.cid, &onode.oid);
    let flags = if dirty.fresh { FRESH } else { 0 };
    out.put_u8(flags | if dirty.omap_cleared { OMAP_CLEARED } else { 0 });
    out.put_varint(onode.size);
    let hint = onode.hint();
    out.put_varint(hint.object_size);
    out.put_varint(hint.write_size);
    out.put_varint(hint.flags.into());
    out.put_blob(onode.omap().map_or(&[], |omap| &omap.header));
    out.put_varint(onode.attrs.len() as u64);
    for (name, value) in onode.attrs.iter() {
        out.put_blob(name);
        out.put_blob(value);
    }
    out.put_varint(onode.patches().len() as u64);
    for (&at, patch) in onode.patches() {
        out.put_varint(at);
        out.put_varint(patch.len.into());
        match &patch.source {
            PatchSource::Zeros => out.put_u8(0),
            PatchSource::Bytes(bytes) => {
                out.put_u8(1);
                out.put_bytes(bytes);
            }
            PatchSource::Block { ptr, skip } => {
                out.put_u8(2);
                out.put_varint(ptr.block.into());
                out.put_bytes(&ptr.crc.to_le_bytes());
                out.put_varint((*skip).into());
            }
        }
    }
    entries.end();
}

/// Number, which of the blocks are there, their places and checksums.
fn put_chunk(out: &mut Vec<u8>, number: u32, chunk: Option<&Chunk>) {
    out.put_varint(number.into());
    let blocks = chunk.map_or(&[][..], |c| &c[..]);
    let mask = (0..blocks.len()).filter(|&i| !blocks[i].is_hole()).fold(0_u16, |m, i| m | 1 << i);
    out.put_bytes(&mask.to_le_bytes());
    let there: SmallVec<[BlockPtr; CHUNK_BLOCKS as usize]> =
        blocks.iter().copied().filter(|p| !p.is_hole()).collect();
    put_runs(out, &there, 0);
}

/// Whether there is a value, and the key as what differs from the one before it in the entry; the
/// value likewise: the entries of a pg log are much alike.
fn put_key(out: &mut Vec<u8>, key: &[u8], value: Option<&Bytes>, last: (&[u8], &[u8])) {
    let shared = last.0.iter().zip(key).take_while(|(a, b)| a == b).count();
    out.put_varint((shared as u64) << 1 | u64::from(value.is_some()));
    out.put_blob(&key[shared..]);
    if let Some(value) = value {
        Value::put(out, value, Some(last.1));
    }
}

/// Applies one entry of a run to the state.
pub(super) fn load_entry(
    state: &mut State,
    entry: &[u8],
    device_blocks: u32,
) -> Result<(), StoreError> {
    let c = &mut Cursor::new(entry);
    let kind = c.u8()?;
    if kind == INDEX {
        return Ok(());
    }
    let (cid, oid) = (c.coll()?, c.object()?);
    if kind == DEAD {
        state.remove(&cid, &oid);
        return Ok(());
    }
    if kind == HEAD {
        let flags = c.clone().u8()?;
        if flags & FRESH != 0 {
            state.remove(&cid, &oid);
            // The manifest lists the collections that are left; others' entries are dead.
            state.make_collection_if_missing(cid);
            state.create(&cid, &oid);
        }
    }
    let slot = state.lookup(&cid, &oid).ok_or(Malformed)?;
    let onode = state.load(slot).ok_or(Malformed)?;
    match kind {
        HEAD => load_head(onode, c, device_blocks)?,
        CHUNKS => {
            while !c.is_empty() {
                load_chunk(onode, c, device_blocks)?;
            }
        }
        OMAP_RANGES => {
            while !c.is_empty() {
                let (first, end) = (c.blob()?, c.blob()?);
                onode.omap_mut().map.remove_range(first.into(), end.into());
            }
        }
        OMAP => {
            let (mut last, mut last_value) = (BString::default(), Bytes::new());
            while !c.is_empty() {
                let tag = c.len()?;
                let mut key = last.get(..tag >> 1).ok_or(Malformed)?.to_vec();
                key.extend_from_slice(c.blob()?);
                let key = BString::from(key);
                if tag & 1 == 0 {
                    onode.omap_mut().map.remove(BStr::new(&key));
                    last_value = Bytes::new();
                } else {
                    last_value = Value::parse(c)?.resolve(Some(&last_value))?;
                    let packs = onode.packs();
                    onode.omap_mut().map.insert(BStr::new(&key), &last_value, packs);
                }
                last = key;
            }
        }
        _ => return Err(Malformed.into()),
    }
    Ok(())
}

fn load_head(onode: &mut Onode, c: &mut Cursor<'_>, device_blocks: u32) -> Result<(), Malformed> {
    if c.u8()? & OMAP_CLEARED != 0 {
        onode.omap_mut().map.clear();
    }
    onode.size = c.varint()?;
    let (object_size, write_size, flags) = (c.varint()?, c.varint()?, c.varint_u32()?);
    onode.set_hint(AllocHint { object_size, write_size, flags });
    let header = c.blob()?;
    if onode.omap().is_some() || !header.is_empty() {
        onode.omap_mut().header = Bytes::copy_from_slice(header);
    }
    onode.attrs.clear();
    for _ in 0..c.count()? {
        let name = c.blob()?;
        onode.attrs.set(name, c.blob()?);
    }
    onode.clear_patches_uncounted();
    for _ in 0..c.count()? {
        let (at, len) = (c.varint()?, c.varint_u32()?);
        let source = match c.u8()? {
            0 => PatchSource::Zeros,
            1 => PatchSource::Bytes(Bytes::copy_from_slice(c.bytes(len as usize)?)),
            2 => {
                let ptr = BlockPtr { block: c.varint_u32()?, crc: c.u32()? };
                let skip = c.varint_u32()?;
                let fits = skip.checked_add(len).is_some_and(|n| u64::from(n) <= BLOCK_LEN);
                if ptr.block >= device_blocks || !fits {
                    return Err(Malformed);
                }
                PatchSource::Block { ptr, skip }
            }
            _ => return Err(Malformed),
        };
        if len == 0 || at % BLOCK_LEN + u64::from(len) > BLOCK_LEN {
            return Err(Malformed);
        }
        onode.insert_patch_uncounted(at, Patch { len, source });
    }
    Ok(())
}

fn load_chunk(onode: &mut Onode, c: &mut Cursor<'_>, device_blocks: u32) -> Result<(), Malformed> {
    let number = c.varint_u32()?;
    let mask = c.bytes(2)?;
    let mask = u16::from_le_bytes([mask[0], mask[1]]);
    let (ptrs, _) = parse_runs(c, mask.count_ones() as usize, 0, device_blocks)?;
    let mut ptrs = ptrs.into_iter();
    for i in 0..CHUNK_BLOCKS {
        let there = mask >> i & 1 == 1;
        let ptr = if there { ptrs.next().ok_or(Malformed)? } else { BlockPtr::HOLE };
        onode.set_ptr_uncounted(u64::from(number) * CHUNK_BLOCKS + i, ptr);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use device::memory::Choices;
    use types::SpgId;
    use types::hobject::HObject;

    use super::*;

    /// Writes at QD 128 took 100 ms instead of 18 when a checkpoint began: the next write to each PG
    /// made entries of the thousands of keys in its log, on all OSDs at once. They are copied as
    /// they are now, unless few of many are needed; what the checkpoint gets is what was there.
    #[test]
    fn what_changes_behind_the_beginning_is_copied_and_comes_as_it_was() {
        let pg: SpgId = "3.1".parse().unwrap();
        let (cid, oid) = (CollId::Pg(pg), pg.pgmeta());
        for (base, changed, copied) in [(false, 600, true), (true, 0, true), (false, 5, false)] {
            let mut state = State::new();
            state.make_collection(cid, 3);
            let slot = state.create(&cid, &oid).unwrap();
            let set = |state: &mut State, n: usize, value: &'static [u8]| {
                let (onode, space) = state.change(slot).unwrap();
                let key = format!("{n:020}");
                let place = onode.omap_mut().map.find(key.as_str().into());
                onode.omap_set(place, key.as_str().into(), value, space);
            };
            (0..1000).for_each(|n| set(&mut state, n, b"first"));
            state.mark_clean();
            (0..changed).for_each(|n| set(&mut state, n, b"second"));
            let onode = state.onode(slot).unwrap();
            let dirty = Dirty { fresh: base, ..onode.dirty.clone() };
            let (mut expected, mut entries) = (Entries::default(), Entries::default());
            put_entries(&mut expected, onode, &dirty);
            let key = onode.key();
            state.freeze(base);
            set(&mut state, 2000, b"third");
            let (onode, space) = state.change(slot).unwrap();
            onode.omap_rm_range("0".into(), "00000000000000000100".into(), space);
            let captured = &state.frozen.as_ref().unwrap().captured[&key];
            assert_eq!(captured.omap.is_some(), copied, "{changed} keys, base {base}");
            assert_eq!((state.next_frozen(&mut entries), entries), (Some(key), expected));
            assert_eq!(state.next_frozen(&mut Entries::default()), None);
        }
    }

    /// 200,000 short keys of an object with a name of 2,040 bytes were a run of 400 MB, and the device was full: the name
    /// counted as what an entry holds, so that each had one key.
    #[test]
    fn a_long_name_is_a_small_part_of_the_entries() {
        let cid = CollId::Pg("3.1".parse().unwrap());
        let entries_of = |name_len: usize| {
            let hobj = HObject { name: "n".repeat(name_len).into(), ..HObject::default() };
            let oid = GhObject::new(hobj);
            let mut state = State::new();
            state.make_collection(cid, 3);
            let slot = state.create(&cid, &oid).unwrap();
            let (onode, space) = state.change(slot).unwrap();
            for n in 0..20_000 {
                let key = format!("{n:020}");
                let place = onode.omap_mut().map.find(key.as_str().into());
                onode.omap_set(place, key.as_str().into(), b"value", space);
            }
            for n in 0..20_000 {
                onode.write_blocks(n * 40, &[BlockPtr { block: n as u32 + 10, crc: 1 }], space);
            }
            let mut entries = Entries::default();
            put_entries(&mut entries, onode, &Dirty { fresh: true, ..Dirty::default() });
            let mut loaded = State::new();
            entries.iter().for_each(|entry| load_entry(&mut loaded, entry, 1 << 20).unwrap());
            let (onode, loaded) =
                (state.find(&cid, &oid).unwrap(), loaded.find(&cid, &oid).unwrap());
            assert!(onode.pointers().eq(loaded.pointers()));
            let keys = |onode: &Onode| {
                let map = &onode.omap().unwrap().map;
                map.iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect::<Vec<_>>()
            };
            assert!(keys(onode) == keys(loaded));
            let space = &state.space;
            let estimate = space.metadata_estimate();
            assert!(estimate > entries.bytes.len() as u64, "{estimate} {name_len}");
            entries.bytes.len()
        };
        let (short, long) = (entries_of(20), entries_of(2040));
        assert!(long < short + short / 10, "{short} {long}");
    }

    /// A change of any kind; the same for the same choices and state.
    fn change(state: &mut State, cid: &CollId, choices: &mut Choices, blocks: &mut u32) {
        let names = ["a", "b", "c", "d", "e", "f"].map(|name| {
            GhObject::new(HObject {
                name: name.into(),
                pool: 3,
                snap: u64::MAX - 1,
                ..HObject::default()
            })
        });
        let mut any = || &names[choices.below(6) as usize];
        let (oid, other) = (any(), any());
        match choices.below(24) {
            0 => return state.remove(cid, oid),
            1 => return state.rename((cid, oid), (cid, other)),
            2 => return state.clone_object(cid, oid, other),
            3 => {
                return state.clone_range(
                    cid,
                    oid,
                    other,
                    (choices.below(90) << 12, 9 << 12, 4 << 12),
                );
            }
            _ => {}
        }
        let slot = state.create(cid, oid).unwrap();
        let (onode, space) = state.change(slot).unwrap();
        let block = choices.below(100);
        match choices.below(12) {
            0 => onode.punch(block << 12..(block + 30) << 12, space),
            1 => onode.truncate(block << 12, space),
            2 => onode.omap_clear(space),
            3 => onode.omap_rm(format!("{block:04}").as_str().into(), space),
            4..=6 => {
                let key = format!("{block:04}");
                let place = onode.omap_mut().map.find(key.as_str().into());
                onode.omap_set(place, key.as_str().into(), b"value", space);
            }
            7 => onode.set_attr(b"_", &[block as u8], space),
            _ => {
                *blocks += 2;
                onode.write_blocks(
                    block,
                    &[*blocks, *blocks + 1].map(|block| BlockPtr { block, crc: block }),
                    space,
                );
                onode.grow_to((block + 2) << 12);
            }
        }
    }

    /// Nothing told when an object that had changed while a checkpoint was written, and was renamed
    /// before it was its turn, lost its data: that takes a crash right after that checkpoint.
    #[test]
    fn a_checkpoint_has_the_state_as_it_was_whatever_happens() {
        let cid = CollId::Pg("3.1".parse().unwrap());
        for seed in 0..3000 {
            let (mut choices, mut blocks) = (Choices::new(seed), 10);
            let (base, before, since) =
                (choices.below(2) == 0, choices.below(60), choices.below(60));
            let frozen = || {
                let (mut choices, mut blocks) = (Choices::new(seed + 1_000_000), 10);
                let mut state = State::new();
                state.make_collection(cid, 3);
                (0..before).for_each(|_| change(&mut state, &cid, &mut choices, &mut blocks));
                state.mark_clean();
                (0..since).for_each(|_| change(&mut state, &cid, &mut choices, &mut blocks));
                state.freeze(base);
                state
            };
            let (mut quiet, mut expected) = (frozen(), Vec::new());
            let mut entries = Entries::default();
            while let Some(key) = quiet.next_frozen(&mut entries) {
                expected.push((key, std::mem::take(&mut entries)));
            }
            let (mut busy, mut found) = (frozen(), Vec::new());
            blocks += 10_000;
            loop {
                (0..choices.below(8))
                    .for_each(|_| change(&mut busy, &cid, &mut choices, &mut blocks));
                let Some(key) = busy.next_frozen(&mut entries) else { break };
                found.push((key, std::mem::take(&mut entries)));
            }
            assert_eq!(found, expected, "seed {seed}");
        }
    }
}
