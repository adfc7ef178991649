//! The encoding of a transaction: ObjectStore::Transaction v9 (`src/os/Transaction.h` at v16.2).
//!
//! ```text
//! envelope 9,9:  blob data | blob ops | map coll_t -> u32 | map ghobject_t -> u32 | totals
//! op (72 bytes): u32 op, cid, oid | u64 off, len | u32 dest_cid, dest_oid | u64 dest_off
//!                u32 hint | u64 expected_object_size, expected_write_size | u32 bits, rem
//! totals:        u64 ops | u32 longest write: length, offset, place in data | u32 fadvise flags
//! ```
//!
//! What an op needs beyond its fixed fields follows in `data` in the order of the ops: written
//! bytes and header as blobs, names as strings, maps and sets counted.

use std::collections::BTreeSet;

use denc::{Denc, Error, Reader, Writer};
use smallvec::SmallVec;
use types::hobject::GhObject;

use crate::{CollId, CollIndex, ObjectIndex, Op, Transaction};

const OP_NOP: u32 = 0;
const OP_CREATE: u32 = 7;
const OP_TOUCH: u32 = 9;
const OP_WRITE: u32 = 10;
const OP_ZERO: u32 = 11;
const OP_TRUNCATE: u32 = 12;
const OP_REMOVE: u32 = 13;
const OP_SETATTR: u32 = 14;
const OP_SETATTRS: u32 = 15;
const OP_RMATTR: u32 = 16;
const OP_CLONE: u32 = 17;
const OP_MKCOLL: u32 = 20;
const OP_RMCOLL: u32 = 21;
const OP_RMATTRS: u32 = 28;
const OP_CLONERANGE2: u32 = 30;
const OP_OMAP_CLEAR: u32 = 31;
const OP_OMAP_SETKEYS: u32 = 32;
const OP_OMAP_RMKEYS: u32 = 33;
const OP_OMAP_SETHEADER: u32 = 34;
const OP_SPLIT_COLLECTION2: u32 = 36;
const OP_OMAP_RMKEYRANGE: u32 = 37;
const OP_COLL_MOVE_RENAME: u32 = 38;
const OP_SETALLOCHINT: u32 = 39;
const OP_COLL_HINT: u32 = 40;
const OP_TRY_RENAME: u32 = 41;
const OP_COLL_SET_BITS: u32 = 42;
const OP_MERGE_COLLECTION: u32 = 43;

/// Bytes of one encoded op.
const OP_LEN: usize = 72;
/// Room for what who receives the transaction of a write adds to it: another object, three operations
/// on that.
const MORE_OPS: usize = 3;
const MORE_OBJECTS: usize = 1;

/// The fixed fields of every op; those an op does not use are zero.
#[derive(Debug, Default, Clone, Copy)]
struct Fixed {
    op: u32,
    cid: CollIndex,
    oid: ObjectIndex,
    off: u64,
    len: u64,
    dest_cid: CollIndex,
    dest_oid: ObjectIndex,
    dest_off: u64,
    hint: u32,
    expected_object_size: u64,
    expected_write_size: u64,
    split_bits: u32,
    split_rem: u32,
}

impl Fixed {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.op);
        w.u32(self.cid);
        w.u32(self.oid);
        w.u64(self.off);
        w.u64(self.len);
        w.u32(self.dest_cid);
        w.u32(self.dest_oid);
        w.u64(self.dest_off);
        w.u32(self.hint);
        w.u64(self.expected_object_size);
        w.u64(self.expected_write_size);
        w.u32(self.split_bits);
        w.u32(self.split_rem);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Fixed, Error> {
        Ok(Fixed {
            op: r.u32()?,
            cid: r.u32()?,
            oid: r.u32()?,
            off: r.u64()?,
            len: r.u64()?,
            dest_cid: r.u32()?,
            dest_oid: r.u32()?,
            dest_off: r.u64()?,
            hint: r.u32()?,
            expected_object_size: r.u64()?,
            expected_write_size: r.u64()?,
            split_bits: r.u32()?,
            split_rem: r.u32()?,
        })
    }
}

/// The longest write: receivers are told where its data begins, so that they can align it.
#[derive(Debug, Default, Clone, Copy)]
struct LongestWrite {
    /// Which of the operations.
    number: usize,
    len: u32,
    offset: u32,
    /// Place in `data`.
    at: u32,
}

/// Where the data of a write is.
pub(super) struct DataPlace {
    /// Which of the operations.
    pub(super) number: usize,
    /// Place in the encoding.
    pub(super) at: usize,
}

impl Op {
    /// The fixed fields; what does not fit there is appended to `data`, which begins at `start`.
    fn encode(
        &self,
        number: usize,
        data: &mut Writer,
        start: usize,
        longest: &mut LongestWrite,
    ) -> Fixed {
        let on = |op, cid, oid| Fixed { op, cid, oid, ..Fixed::default() };
        match *self {
            Op::Nop => Fixed { op: OP_NOP, ..Fixed::default() },
            Op::Touch { cid, oid } => on(OP_TOUCH, cid, oid),
            Op::Create { cid, oid } => on(OP_CREATE, cid, oid),
            Op::Write { cid, oid, offset, data: ref bytes } => {
                let len = bytes.len() as u32;
                if len > longest.len {
                    // The offset is cut to 32 bits, as in Ceph.
                    let at = (data.len() - start) as u32 + 4;
                    *longest = LongestWrite { number, len, offset: offset as u32, at };
                }
                data.shared_blob(bytes);
                Fixed { off: offset, len: len.into(), ..on(OP_WRITE, cid, oid) }
            }
            Op::Zero { cid, oid, offset, len } => {
                Fixed { off: offset, len, ..on(OP_ZERO, cid, oid) }
            }
            Op::Truncate { cid, oid, size } => Fixed { off: size, ..on(OP_TRUNCATE, cid, oid) },
            Op::Remove { cid, oid } => on(OP_REMOVE, cid, oid),
            Op::SetAttr { cid, oid, ref name, ref value } => {
                data.put(name);
                data.put(value);
                on(OP_SETATTR, cid, oid)
            }
            Op::SetAttrs { cid, oid, ref attrs } => {
                data.put(attrs);
                on(OP_SETATTRS, cid, oid)
            }
            Op::RmAttr { cid, oid, ref name } => {
                data.put(name);
                on(OP_RMATTR, cid, oid)
            }
            Op::RmAttrs { cid, oid } => on(OP_RMATTRS, cid, oid),
            Op::Clone { cid, oid, to } => Fixed { dest_oid: to, ..on(OP_CLONE, cid, oid) },
            Op::CloneRange { cid, oid, to, offset, len, to_offset } => Fixed {
                dest_oid: to,
                off: offset,
                len,
                dest_off: to_offset,
                ..on(OP_CLONERANGE2, cid, oid)
            },
            Op::MkColl { cid, bits } => Fixed { split_bits: bits, ..on(OP_MKCOLL, cid, 0) },
            Op::RmColl { cid } => on(OP_RMCOLL, cid, 0),
            Op::OmapClear { cid, oid } => on(OP_OMAP_CLEAR, cid, oid),
            Op::OmapSetKeys { cid, oid, ref entries } => {
                data.put(entries);
                on(OP_OMAP_SETKEYS, cid, oid)
            }
            Op::OmapRmKeys { cid, oid, ref keys } => {
                data.put(keys);
                on(OP_OMAP_RMKEYS, cid, oid)
            }
            Op::OmapRmKeyRange { cid, oid, ref first, ref last } => {
                data.put(first);
                data.put(last);
                on(OP_OMAP_RMKEYRANGE, cid, oid)
            }
            Op::OmapSetHeader { cid, oid, ref header } => {
                data.put(header);
                on(OP_OMAP_SETHEADER, cid, oid)
            }
            Op::CollMoveRename { cid, oid, to_cid, to } => {
                Fixed { dest_cid: to_cid, dest_oid: to, ..on(OP_COLL_MOVE_RENAME, cid, oid) }
            }
            Op::TryRename { cid, oid, to } => Fixed { dest_oid: to, ..on(OP_TRY_RENAME, cid, oid) },
            Op::SetAllocHint { cid, oid, object_size, write_size, flags } => Fixed {
                expected_object_size: object_size,
                expected_write_size: write_size,
                hint: flags,
                ..on(OP_SETALLOCHINT, cid, oid)
            },
            Op::CollHint { cid, kind, ref hint } => {
                data.put(hint);
                Fixed { hint: kind, ..on(OP_COLL_HINT, cid, 0) }
            }
            Op::CollSetBits { cid, bits } => {
                Fixed { split_bits: bits, ..on(OP_COLL_SET_BITS, cid, 0) }
            }
            Op::SplitCollection { cid, bits, rem, to_cid } => Fixed {
                dest_cid: to_cid,
                split_bits: bits,
                split_rem: rem,
                ..on(OP_SPLIT_COLLECTION2, cid, 0)
            },
            Op::MergeCollection { cid, to_cid, bits } => {
                Fixed { dest_cid: to_cid, split_bits: bits, ..on(OP_MERGE_COLLECTION, cid, 0) }
            }
        }
    }

    fn decode(f: Fixed, data: &mut Reader<'_>) -> Result<Op, Error> {
        let Fixed { cid, oid, off: offset, len, dest_cid: to_cid, dest_oid: to, .. } = f;
        Ok(match f.op {
            OP_NOP => Op::Nop,
            OP_TOUCH => Op::Touch { cid, oid },
            OP_CREATE => Op::Create { cid, oid },
            OP_WRITE => {
                let data = data.blob()?;
                if data.len() as u64 != len {
                    return Err(Error::Invalid { what: "Transaction write length", value: len });
                }
                Op::Write { cid, oid, offset, data }
            }
            OP_ZERO => Op::Zero { cid, oid, offset, len },
            OP_TRUNCATE => Op::Truncate { cid, oid, size: offset },
            OP_REMOVE => Op::Remove { cid, oid },
            OP_SETATTR => Op::SetAttr { cid, oid, name: data.get()?, value: data.get()? },
            OP_SETATTRS => Op::SetAttrs { cid, oid, attrs: data.get()? },
            OP_RMATTR => Op::RmAttr { cid, oid, name: data.get()? },
            OP_RMATTRS => Op::RmAttrs { cid, oid },
            OP_CLONE => Op::Clone { cid, oid, to },
            OP_CLONERANGE2 => Op::CloneRange { cid, oid, to, offset, len, to_offset: f.dest_off },
            OP_MKCOLL => Op::MkColl { cid, bits: f.split_bits },
            OP_RMCOLL => Op::RmColl { cid },
            OP_OMAP_CLEAR => Op::OmapClear { cid, oid },
            OP_OMAP_SETKEYS => Op::OmapSetKeys { cid, oid, entries: data.get()? },
            OP_OMAP_RMKEYS => Op::OmapRmKeys { cid, oid, keys: data.get()? },
            OP_OMAP_RMKEYRANGE => {
                Op::OmapRmKeyRange { cid, oid, first: data.get()?, last: data.get()? }
            }
            OP_OMAP_SETHEADER => Op::OmapSetHeader { cid, oid, header: data.get()? },
            OP_COLL_MOVE_RENAME => Op::CollMoveRename { cid, oid, to_cid, to },
            OP_TRY_RENAME => Op::TryRename { cid, oid, to },
            OP_SETALLOCHINT => Op::SetAllocHint {
                cid,
                oid,
                object_size: f.expected_object_size,
                write_size: f.expected_write_size,
                flags: f.hint,
            },
            OP_COLL_HINT => Op::CollHint { cid, kind: f.hint, hint: data.get()? },
            OP_COLL_SET_BITS => Op::CollSetBits { cid, bits: f.split_bits },
            OP_SPLIT_COLLECTION2 => {
                Op::SplitCollection { cid, bits: f.split_bits, rem: f.split_rem, to_cid }
            }
            OP_MERGE_COLLECTION => Op::MergeCollection { cid, to_cid, bits: f.split_bits },
            op => {
                return Err(Error::Invalid { what: "Transaction op", value: op.into() });
            }
        })
    }

    /// Whether every index is below its table's length.
    fn indices_fit(&mut self, colls: usize, objects: usize) -> bool {
        let (mut coll_fits, mut object_fits) = (true, true);
        self.renumber(&mut |cid| coll_fits &= (*cid as usize) < colls, &mut |oid| {
            object_fits &= (*oid as usize) < objects
        });
        coll_fits && object_fits
    }
}

/// Reads the map from values to their index as a table: each value once, indices 0..n. With room for `more`.
fn table<T: Ord + Denc>(
    r: &mut Reader<'_>,
    what: &'static str,
    more: usize,
) -> Result<Vec<T>, Error> {
    let count = r.u32()?;
    // Nearly always one.
    if count == 1 {
        let (value, index) = (r.get()?, r.u32()?);
        if index != 0 {
            return Err(Error::Invalid { what, value: index.into() });
        }
        let mut values = Vec::with_capacity(1 + more);
        values.push(value);
        return Ok(values);
    }
    let mut named: Vec<(T, u32)> = Vec::new();
    for _ in 0..count {
        named.push(r.get()?);
    }
    named.sort_by_key(|(_, index)| *index);
    for (place, (_, index)) in named.iter().enumerate() {
        if *index as usize != place {
            return Err(Error::Invalid { what, value: (*index).into() });
        }
    }
    let distinct: BTreeSet<&T> = named.iter().map(|(value, _)| value).collect();
    if distinct.len() < named.len() {
        return Err(Error::Invalid { what, value: named.len() as u64 });
    }
    Ok(named.into_iter().map(|(value, _)| value).collect())
}

/// The inverse of [`table`], borrowed, in Ceph's map order.
fn encode_table<T: Ord + Denc>(values: &[T], w: &mut Writer) {
    let mut order: SmallVec<[usize; 4]> = (0..values.len()).collect();
    order.sort_by_key(|&i| &values[i]);
    w.count(values.len());
    for i in order {
        w.put(&values[i]);
        w.u32(i as u32);
    }
}

impl Transaction {
    /// Appends the encoding; where in it the data of the longest write is.
    pub(super) fn encode_to(&self, w: &mut Writer) -> Option<DataPlace> {
        let mut longest = LongestWrite::default();
        let mut ops = Writer::with_capacity(OP_LEN * self.ops.len());
        let (begin, mut start) = (w.len(), 0);
        w.envelope(9, 9, |w| {
            w.counted(|w| {
                start = w.len();
                for (number, op) in self.ops.iter().enumerate() {
                    op.encode(number, w, start, &mut longest).encode(&mut ops);
                }
            });
            w.blob(ops.as_slice());
            encode_table(&self.colls, w);
            encode_table(&self.objects, w);
            w.u64(self.ops.len() as u64);
            w.u32(longest.len);
            w.u32(longest.offset);
            w.u32(longest.at);
            w.u32(self.fadvise_flags);
        });
        let LongestWrite { number, at, len, .. } = longest;
        (len > 0).then_some(DataPlace { number, at: start - begin + at as usize })
    }
}

impl Denc for Transaction {
    fn encode(&self, w: &mut Writer) {
        self.encode_to(w);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Transaction, Error> {
        r.envelope("Transaction", 9, 9, |r, _| {
            let data = r.blob()?;
            let op_bytes = r.blob()?;
            let colls: Vec<CollId> = table(r, "Transaction collection index", 0)?;
            let objects: Vec<GhObject> = table(r, "Transaction object index", MORE_OBJECTS)?;
            let count = r.u64()?;
            let _ = (r.u32()?, r.u32()?, r.u32()?);
            let fadvise_flags = r.u32()?;
            if op_bytes.len() as u64 != count.saturating_mul(OP_LEN as u64) {
                return Err(Error::Invalid { what: "Transaction op count", value: count });
            }
            let (mut op_reader, mut data_reader) = (Reader::new(&op_bytes), Reader::new(&data));
            let mut ops = Vec::with_capacity(op_bytes.len() / OP_LEN + MORE_OPS);
            for _ in 0..count {
                let fixed = Fixed::decode(&mut op_reader)?;
                let mut op = Op::decode(fixed, &mut data_reader)?;
                if !op.indices_fit(colls.len(), objects.len()) {
                    return Err(Error::Invalid {
                        what: "Transaction index",
                        value: fixed.op.into(),
                    });
                }
                ops.push(op);
            }
            let mut t = Transaction { ops, colls, objects, fadvise_flags, ..Transaction::new() };
            t.index_objects();
            Ok(t)
        })
    }
}
