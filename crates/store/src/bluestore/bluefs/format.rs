//! What BlueFS writes (docs/format-bluefs.md): labels, the superblock, and records of its log. Pure.

use std::collections::{BTreeMap, BTreeSet};

use types::crc::crc32c;

use crate::varint::{Input, put_varint};

/// Unit of all writes.
pub(super) const BLOCK_LEN: u64 = 4096;
/// Bytes at each device's start that hold no files: label, superblocks, room.
pub(super) const RESERVED_LEN: u64 = 64 << 10;
/// Where the superblock is on the first of the devices: twice.
pub(super) const SUPERBLOCK_AT: [u64; 2] = [4096, 8192];

/// What a device is to BlueFS; the numbers are Ceph's (BDEV_WAL, BDEV_DB, BDEV_SLOW).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Role {
    /// `block.wal`: write-ahead logs.
    Wal,
    /// `block.db`: everything else.
    Db,
    /// `block`: everything when there is no other, and what no longer fits there.
    Main,
}

impl Role {
    pub(super) const ALL: [Role; 3] = [Role::Wal, Role::Db, Role::Main];

    fn of(n: u64) -> Option<Role> {
        Role::ALL.get(usize::try_from(n).ok()?).copied()
    }
}

/// A run of a device that a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Extent {
    pub(super) role: Role,
    /// Both multiples of [`BLOCK_LEN`].
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// Puts an extent behind others, as one with the last if it continues it.
pub(super) fn join(extents: &mut Vec<Extent>, next: Extent) {
    match extents.last_mut() {
        Some(last) if last.role == next.role && last.offset + last.len == next.offset => {
            last.len += next.len;
        }
        _ => extents.push(next),
    }
}

/// Bytes of extents.
pub(super) fn extents_len(extents: &[Extent]) -> u64 {
    extents.iter().map(|e| e.len).sum()
}

/// The parts of extents that hold `len` bytes from `offset` on. `None`: they end before.
pub(super) fn pieces(extents: &[Extent], offset: u64, len: u64) -> Option<Vec<Extent>> {
    let (mut at, end) = (0, offset.checked_add(len)?);
    let mut found = Vec::new();
    for e in extents {
        let (from, to) = (at.max(offset), (at + e.len).min(end));
        if from < to {
            found.push(Extent { role: e.role, offset: e.offset + (from - at), len: to - from });
        }
        at += e.len;
    }
    (at >= end).then_some(found)
}

/// A file as the log knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Fnode {
    pub(super) ino: u64,
    /// Whether it consists of frames, which tell where it ends: a write-ahead log.
    pub(super) framed: bool,
    /// Bytes that were durable when this was written; for frames, with their headers.
    pub(super) size: u64,
    pub(super) extents: Vec<Extent>,
}

/// A change of what there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Op {
    /// Nothing is there yet; what number comes next. The first of a log.
    Begin { next_ino: u64 },
    /// A directory is there.
    Dir(Vec<u8>),
    /// A directory is gone.
    DirGone(Vec<u8>),
    /// A file is so.
    File(Fnode),
    /// A path is a file, and no other.
    Link(Vec<u8>, u64),
    /// A path is nothing.
    Unlink(Vec<u8>),
    /// Source and target: the first is nothing, the second what the first was.
    Rename(Vec<u8>, Vec<u8>),
    /// The log goes on there.
    LogExtent(Extent),
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn take_bytes(input: &mut Input<'_>) -> Option<Vec<u8>> {
    let len = usize::try_from(input.count()?).ok()?;
    let (bytes, rest) = input.0.split_at_checked(len)?;
    input.0 = rest;
    Some(bytes.to_vec())
}

fn put_extent(out: &mut Vec<u8>, e: &Extent) {
    put_varint(out, e.role as u64);
    put_varint(out, e.offset / BLOCK_LEN);
    put_varint(out, e.len / BLOCK_LEN);
}

fn take_extent(input: &mut Input<'_>) -> Option<Extent> {
    let role = Role::of(input.varint()?)?;
    let (offset, len) = (input.varint()?, input.varint()?);
    let extent =
        Extent { role, offset: offset.checked_mul(BLOCK_LEN)?, len: len.checked_mul(BLOCK_LEN)? };
    extent.offset.checked_add(extent.len)?;
    (len > 0).then_some(extent)
}

fn put_extents(out: &mut Vec<u8>, extents: &[Extent]) {
    put_varint(out, extents.len() as u64);
    extents.iter().for_each(|e| put_extent(out, e));
}

fn take_extents(input: &mut Input<'_>) -> Option<Vec<Extent>> {
    (0..input.count()?).map(|_| take_extent(input)).collect()
}

impl Op {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Op::Begin { next_ino } => {
                out.push(1);
                put_varint(out, *next_ino);
            }
            Op::Dir(path) => {
                out.push(2);
                put_bytes(out, path);
            }
            Op::DirGone(path) => {
                out.push(3);
                put_bytes(out, path);
            }
            Op::File(fnode) => {
                out.push(4);
                put_varint(out, fnode.ino);
                out.push(fnode.framed.into());
                put_varint(out, fnode.size);
                put_extents(out, &fnode.extents);
            }
            Op::Link(path, ino) => {
                out.push(5);
                put_bytes(out, path);
                put_varint(out, *ino);
            }
            Op::Unlink(path) => {
                out.push(6);
                put_bytes(out, path);
            }
            Op::Rename(from, to) => {
                out.push(7);
                put_bytes(out, from);
                put_bytes(out, to);
            }
            Op::LogExtent(extent) => {
                out.push(8);
                put_extent(out, extent);
            }
        }
    }

    fn take(input: &mut Input<'_>) -> Option<Op> {
        Some(match input.byte()? {
            1 => Op::Begin { next_ino: input.varint()? },
            2 => Op::Dir(take_bytes(input)?),
            3 => Op::DirGone(take_bytes(input)?),
            4 => {
                let ino = input.varint()?;
                let framed = match input.byte()? {
                    0 => false,
                    1 => true,
                    _ => return None,
                };
                let (size, extents) = (input.varint()?, take_extents(input)?);
                if size > extents_len(&extents) {
                    return None;
                }
                Op::File(Fnode { ino, framed, size, extents })
            }
            5 => Op::Link(take_bytes(input)?, input.varint()?),
            6 => Op::Unlink(take_bytes(input)?),
            7 => Op::Rename(take_bytes(input)?, take_bytes(input)?),
            8 => Op::LogExtent(take_extent(input)?),
            _ => return None,
        })
    }
}

/// What is before a record's operations: magic, crc32c of what follows it (seeded with the file
/// system's own), number, place in the log, length of the operations.
const RECORD_HEADER_LEN: usize = 4 + 4 + 8 + 8 + 4;
const RECORD_MAGIC: &[u8; 4] = b"BFlg";
/// Longest record: far above what some hundred files need.
const RECORD_LEN_MAX: u64 = 64 << 20;

/// A record, padded to blocks.
pub(super) fn record(seed: u32, seq: u64, position: u64, ops: &[Op]) -> Vec<u8> {
    let mut out = vec![0; RECORD_HEADER_LEN];
    ops.iter().for_each(|op| op.put(&mut out));
    let len = (out.len() - RECORD_HEADER_LEN) as u32;
    out[..4].copy_from_slice(RECORD_MAGIC);
    out[8..16].copy_from_slice(&seq.to_le_bytes());
    out[16..24].copy_from_slice(&position.to_le_bytes());
    out[24..28].copy_from_slice(&len.to_le_bytes());
    let crc = crc32c(seed, &out[8..]);
    out[4..8].copy_from_slice(&crc.to_le_bytes());
    out.resize(out.len().next_multiple_of(BLOCK_LEN as usize), 0);
    out
}

/// Bytes of the log that the record takes which begins with this block, and its number, if it
/// looks like one.
pub(super) fn record_len(block: &[u8]) -> Option<(u64, u64)> {
    let header = block.get(..RECORD_HEADER_LEN)?;
    let seq = u64::from_le_bytes(header[8..16].try_into().ok()?);
    let len = u64::from(u32::from_le_bytes(header[24..28].try_into().ok()?));
    let whole = (len + RECORD_HEADER_LEN as u64).next_multiple_of(BLOCK_LEN);
    (header.starts_with(RECORD_MAGIC) && whole <= RECORD_LEN_MAX).then_some((whole, seq))
}

/// The operations of a record that is at `position`, if it is whole.
pub(super) fn record_ops(seed: u32, position: u64, bytes: &[u8]) -> Option<Vec<Op>> {
    let header = bytes.get(..RECORD_HEADER_LEN)?;
    let len = u32::from_le_bytes(header[24..28].try_into().ok()?) as usize;
    let end = RECORD_HEADER_LEN.checked_add(len)?;
    let crc = crc32c(seed, bytes.get(8..end)?);
    if !header.starts_with(RECORD_MAGIC)
        || crc.to_le_bytes() != header[4..8]
        || position.to_le_bytes() != header[16..24]
    {
        return None;
    }
    let mut input = Input(&bytes[RECORD_HEADER_LEN..end]);
    let mut ops = Vec::new();
    while !input.0.is_empty() {
        ops.push(Op::take(&mut input)?);
    }
    Some(ops)
}

/// Where all begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Superblock {
    pub(super) uuid: [u8; 16],
    /// Another each time one is made.
    pub(super) salt: u64,
    /// Grows with each one written; the larger holds.
    pub(super) version: u64,
    /// Number of the log's first record.
    pub(super) first_seq: u64,
    /// Lengths of the devices there are, 0 for none.
    pub(super) device_lens: [u64; 3],
    /// Where the log begins.
    pub(super) log: Vec<Extent>,
}

const SUPERBLOCK_MAGIC: &[u8; 24] = b"loligo bluefs super v1\n\0";
const LABEL_MAGIC: &[u8; 24] = b"loligo bluefs device 1\n\0";

/// A block with magic, length, contents, checksum. `None` if it does not fit.
fn block(magic: &[u8; 24], own: &[u8]) -> Option<Vec<u8>> {
    let mut out = magic.to_vec();
    out.extend_from_slice(&(own.len() as u32).to_le_bytes());
    out.extend_from_slice(own);
    let crc = crc32c(u32::MAX, &out);
    out.extend_from_slice(&crc.to_le_bytes());
    if out.len() as u64 > BLOCK_LEN {
        return None;
    }
    out.resize(BLOCK_LEN as usize, 0);
    Some(out)
}

fn of_block<'a>(magic: &[u8; 24], block: &'a [u8]) -> Option<&'a [u8]> {
    let rest = block.strip_prefix(magic)?;
    let len = u32::from_le_bytes(rest.get(..4)?.try_into().ok()?) as usize;
    let end = len.checked_add(magic.len() + 4)?;
    let crc = block.get(end..end.checked_add(4)?)?;
    let own = block.get(magic.len() + 4..end)?;
    (crc32c(u32::MAX, &block[..end]).to_le_bytes() == crc).then_some(own)
}

impl Superblock {
    /// Its block; `None` if the log is in too many pieces.
    pub(super) fn to_block(&self) -> Option<Vec<u8>> {
        let mut own = self.uuid.to_vec();
        own.extend_from_slice(&self.salt.to_le_bytes());
        put_varint(&mut own, self.version);
        put_varint(&mut own, self.first_seq);
        self.device_lens.iter().for_each(|len| put_varint(&mut own, *len));
        put_extents(&mut own, &self.log);
        block(SUPERBLOCK_MAGIC, &own)
    }

    /// That of a block, if it is one.
    pub(super) fn of_block(bytes: &[u8]) -> Option<Superblock> {
        let mut input = Input(of_block(SUPERBLOCK_MAGIC, bytes)?);
        let superblock = Superblock {
            uuid: input.array()?,
            salt: u64::from_le_bytes(input.array()?),
            version: input.varint()?,
            first_seq: input.varint()?,
            device_lens: [input.varint()?, input.varint()?, input.varint()?],
            log: take_extents(&mut input)?,
        };
        input.0.is_empty().then_some(superblock)
    }
}

/// Seed of the checksums of records and frames: what another file system left on the device is not
/// taken for this one's.
pub(super) fn seed(uuid: [u8; 16], salt: u64) -> u32 {
    crc32c(crc32c(u32::MAX, &uuid), &salt.to_le_bytes())
}

/// The first block of a device that is only BlueFS's.
pub(super) fn label(uuid: [u8; 16], role: Role) -> Vec<u8> {
    let mut own = uuid.to_vec();
    own.push(role as u8);
    // Seventeen bytes fit.
    block(LABEL_MAGIC, &own).unwrap_or_default()
}

/// Whether a device's first block is such a label.
pub(super) fn is_label(bytes: &[u8], uuid: [u8; 16], role: Role) -> bool {
    of_block(LABEL_MAGIC, bytes)
        .is_some_and(|own| own.starts_with(&uuid) && own[16..] == [role as u8])
}

/// What there is, by the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Names {
    pub(super) dirs: BTreeSet<Vec<u8>>,
    pub(super) paths: BTreeMap<Vec<u8>, u64>,
    pub(super) files: BTreeMap<u64, Fnode>,
    pub(super) next_ino: u64,
}

impl Names {
    /// Makes a change. `None`: it contradicts what there is.
    pub(super) fn apply(&mut self, op: &Op) -> Option<()> {
        match op {
            Op::Begin { next_ino } => {
                *self = Names { next_ino: *next_ino, ..Names::default() };
            }
            Op::Dir(path) => {
                self.dirs.insert(path.clone());
            }
            Op::DirGone(path) => {
                self.dirs.remove(path);
            }
            Op::File(fnode) => {
                self.next_ino = self.next_ino.max(fnode.ino.checked_add(1)?);
                self.files.insert(fnode.ino, fnode.clone());
            }
            Op::Link(path, ino) => {
                self.files.get(ino)?;
                self.unlink(path);
                self.paths.insert(path.clone(), *ino);
            }
            Op::Unlink(path) => self.unlink(path),
            Op::Rename(from, to) => {
                let ino = self.paths.remove(from)?;
                self.unlink(to);
                self.paths.insert(to.clone(), ino);
            }
            Op::LogExtent(_) => {}
        }
        Some(())
    }

    fn unlink(&mut self, path: &[u8]) {
        if let Some(ino) = self.paths.remove(path) {
            self.files.remove(&ino);
        }
    }

    /// All of it as operations.
    pub(super) fn ops(&self) -> Vec<Op> {
        let mut ops = vec![Op::Begin { next_ino: self.next_ino }];
        ops.extend(self.dirs.iter().cloned().map(Op::Dir));
        ops.extend(self.files.values().cloned().map(Op::File));
        let links = self.paths.iter();
        ops.extend(links.map(|(path, ino)| Op::Link(path.clone(), *ino)));
        ops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_names() -> Names {
        let mut names = Names::default();
        let extent =
            |n: u64| Extent { role: Role::ALL[n as usize % 3], offset: n << 20, len: 65_536 };
        let mut ops = vec![Op::Begin { next_ino: 2 }, Op::Dir(b"db".to_vec())];
        for n in 2..9 {
            ops.push(Op::File(Fnode {
                ino: n,
                framed: n % 2 == 0,
                size: n * 100,
                extents: vec![extent(n), extent(n + 10)],
            }));
            ops.push(Op::Link(format!("db/{n}").into(), n));
        }
        ops.push(Op::Unlink(b"db/3".to_vec()));
        ops.push(Op::Rename(b"db/4".to_vec(), b"db/5".to_vec()));
        ops.iter().for_each(|op| names.apply(op).unwrap());
        names
    }

    #[test]
    fn what_there_is_survives_as_one_record() {
        let names = some_names();
        assert_eq!(names.paths.len(), 5);
        assert_eq!(names.files.len(), 5);
        let bytes = record(9, 77, 8192, &names.ops());
        let (len, seq) = record_len(&bytes).unwrap();
        assert_eq!((len, seq), (bytes.len() as u64, 77));
        let mut again = Names::default();
        for op in record_ops(9, 8192, &bytes).unwrap() {
            again.apply(&op).unwrap();
        }
        assert_eq!(again, names);
        assert_eq!(record_ops(9, 4096, &bytes), None);
        assert_eq!(record_ops(8, 8192, &bytes), None);
    }

    #[test]
    fn damaged_blocks_are_none() {
        let names = some_names();
        let whole = record(9, 77, 0, &names.ops());
        let end = whole.iter().rposition(|b| *b != 0).unwrap();
        let superblock = Superblock {
            uuid: [3; 16],
            salt: 8,
            version: 5,
            first_seq: 9,
            device_lens: [0, 1 << 30, 1 << 40],
            log: vec![Extent { role: Role::Db, offset: 65_536, len: 65_536 }],
        };
        let block = superblock.to_block().unwrap();
        assert_eq!(Superblock::of_block(&block), Some(superblock));
        let label = label([3; 16], Role::Wal);
        assert!(is_label(&label, [3; 16], Role::Wal));
        assert!(!is_label(&label, [3; 16], Role::Db));
        for at in 0..=end {
            let mut bad = whole.clone();
            bad[at] ^= 1 << (at % 8);
            assert_eq!(record_ops(9, 0, &bad), None, "{at}");
        }
        for at in 0..100 {
            let mut bad = block.clone();
            bad[at] ^= 1 << (at % 8);
            if at < 60 {
                assert_eq!(Superblock::of_block(&bad), None, "{at}");
            }
            let mut bad = label.clone();
            bad[at] ^= 1 << (at % 8);
            assert!(at >= 49 || !is_label(&bad, [3; 16], Role::Wal), "{at}");
        }
        // A sound checksum over nonsense is refused, too.
        for n in 0..4000_u64 {
            let ops = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
            let mut input = Input(&ops);
            let _ = Op::take(&mut input);
        }
    }
}
