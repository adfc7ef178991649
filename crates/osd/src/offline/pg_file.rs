//! A placement group as a file, in the form `ceph-objectstore-tool --op export` writes
//! (`src/tools/RadosDump.h` at v16.2). Little-endian.
//!
//! ```text
//! u32 0xffceffce | u32 version 2 | u32 18, length of a header | u32 10, length of a footer
//! sections: header: envelope v1 { u32 kind << 24 | kind << 16 | 0xffce, s64 length }
//!           body, and unless it is empty a footer: envelope v1 { u32 0xecffffce }
//!
//! PG_BEGIN      envelope v3/c2 { pg_t, superblock, s8 shard }
//! PG_METADATA   envelope v6/c6 { u8 10, u32 epoch, pg_info_t, pg_log_t, past intervals, OSDMap,
//!                                u32 0 (divergent priors), pg_missing_t }
//! then for each object
//!   OBJECT_BEGIN  envelope v3/c1 { hobject_t, u64 generation, s8 shard, object_info_t }
//!   DATA          envelope v1 { u64 offset, u64 length, blob }      any number
//!   ATTRS         envelope v1 { map of xattrs }
//!   OMAP_HDR      envelope v1 { blob }                              if there is one
//!   OMAP          envelope v1 { map of keys }                       any number
//!   OBJECT_END    empty
//! PG_END        empty
//! ```
//!
//! There is no checksum: a cut file is known by its missing end.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::osd::{ObjectInfo, OsdSuperblock, PastIntervals, PgInfo, PgLog, PgMissing};
use types::{EVersion, Epoch, GhObject, HObject, PgId, SpgId};

use super::TransferError;

const MAGIC: u32 = 0xffce_ffce;
const VERSION: u32 = 2;
const SHORT_MAGIC: u32 = 0xffce;
const END_MAGIC: u32 = 0xecff_ffce;
const HEADER_LEN: usize = 18;
const FOOTER_LEN: usize = 10;
/// Longest section that is read: an object's data comes in pieces of a MiB, maps and logs are
/// tens of MiB at most.
const SECTION_MAX: u64 = 1 << 30;
/// On-disk version of a PG's notes (`_infover`).
const PG_VERSION: u8 = 10;

/// Kinds of sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "see the module")]
pub enum Kind {
    PgBegin = 1,
    PgEnd = 2,
    ObjectBegin = 3,
    ObjectEnd = 4,
    Data = 5,
    Attrs = 6,
    OmapHeader = 7,
    Omap = 8,
    PgMetadata = 9,
}

impl Kind {
    const ALL: [Kind; 9] = [
        Kind::PgBegin,
        Kind::PgEnd,
        Kind::ObjectBegin,
        Kind::ObjectEnd,
        Kind::Data,
        Kind::Attrs,
        Kind::OmapHeader,
        Kind::Omap,
        Kind::PgMetadata,
    ];
}

/// Section PG_BEGIN.
#[derive(Debug, Clone, PartialEq)]
pub struct PgBegin {
    /// Which.
    pub pgid: SpgId,
    /// Of the OSD it was on.
    pub superblock: OsdSuperblock,
}

impl Denc for PgBegin {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 2, |w| {
            w.put(&self.pgid.pgid);
            w.put(&self.superblock);
            w.i8(self.pgid.shard);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<PgBegin, Error> {
        r.envelope("pg_begin", 3, 3, |r, _| {
            let (pgid, superblock): (PgId, _) = (r.get()?, r.get()?);
            let shard = r.i8()?;
            Ok(PgBegin { pgid: SpgId { pgid, shard }, superblock })
        })
    }
}

/// Section PG_METADATA.
#[derive(Debug, Clone)]
pub struct PgMetadata {
    /// The map the PG is at.
    pub epoch: Epoch,
    /// Its info.
    pub info: PgInfo,
    /// Its log.
    pub log: PgLog,
    /// Intervals since it was clean.
    pub past_intervals: PastIntervals,
    /// The map of `epoch` as the monitors encoded it.
    pub osdmap: Bytes,
    /// What it misses.
    pub missing: PgMissing,
}

impl Denc for PgMetadata {
    fn encode(&self, w: &mut Writer) {
        w.envelope(6, 6, |w| {
            w.u8(PG_VERSION);
            w.u32(self.epoch);
            w.put(&self.info);
            w.put(&self.log);
            w.put(&self.past_intervals);
            w.raw(&self.osdmap);
            w.u32(0);
            w.put(&self.missing);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<PgMetadata, Error> {
        r.envelope("metadata_section", 6, 6, |r, _| {
            r.u8()?;
            let epoch = r.u32()?;
            let (info, log, past_intervals) = (r.get()?, r.get()?, r.get()?);
            let osdmap = r.raw_envelope()?;
            r.get::<BTreeMap<EVersion, HObject>>()?;
            let missing = r.get()?;
            Ok(PgMetadata { epoch, info, log, past_intervals, osdmap, missing })
        })
    }
}

/// Section OBJECT_BEGIN.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectBegin {
    /// Which.
    pub oid: GhObject,
    /// Its attribute `_`.
    pub info: ObjectInfo,
}

impl Denc for ObjectBegin {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 1, |w| {
            w.put(&self.oid.hobj);
            w.u64(self.oid.generation);
            w.i8(self.oid.shard);
            w.put(&self.info);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<ObjectBegin, Error> {
        r.envelope("object_begin", 3, 3, |r, _| {
            let oid = GhObject { hobj: r.get()?, generation: r.u64()?, shard: r.i8()?, max: false };
            Ok(ObjectBegin { oid, info: r.get()? })
        })
    }
}

/// Section DATA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Data {
    /// Where in the object.
    pub offset: u64,
    /// What.
    pub bytes: Bytes,
}

impl Denc for Data {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u64(self.offset);
            w.u64(self.bytes.len() as u64);
            w.put(&self.bytes);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Data, Error> {
        r.envelope("data_section", 1, 1, |r, _| {
            let (offset, _) = (r.u64()?, r.u64()?);
            Ok(Data { offset, bytes: r.get()? })
        })
    }
}

/// Sections ATTRS, OMAP and OMAP_HDR: one value in an envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct One<T>(pub T);

/// What ATTRS and OMAP hold.
pub type Map = One<BTreeMap<BString, Bytes>>;

impl<T: Denc> Denc for One<T> {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| w.put(&self.0));
    }
    fn decode(r: &mut Reader<'_>) -> Result<One<T>, Error> {
        r.envelope("section", 1, 1, |r, _| Ok(One(r.get()?)))
    }
}

fn header(kind: Kind, len: usize) -> Bytes {
    let kind = kind as u32;
    let mut w = Writer::new();
    w.envelope(1, 1, |w| {
        w.u32(kind << 24 | kind << 16 | SHORT_MAGIC);
        w.i64(len as i64);
    });
    w.into_bytes()
}

fn footer() -> Bytes {
    One(END_MAGIC).to_bytes()
}

/// Writes a file.
#[derive(Debug)]
pub struct PgFileWriter<W> {
    out: W,
}

impl<W: Write> PgFileWriter<W> {
    /// Begins a file.
    pub fn new(mut out: W) -> Result<PgFileWriter<W>, TransferError> {
        for n in [MAGIC, VERSION, HEADER_LEN as u32, FOOTER_LEN as u32] {
            out.write_all(&n.to_le_bytes())?;
        }
        Ok(PgFileWriter { out })
    }

    /// Writes a section.
    pub fn section(&mut self, kind: Kind, body: &impl Denc) -> Result<(), TransferError> {
        let body = body.to_bytes();
        self.out.write_all(&header(kind, body.len()))?;
        self.out.write_all(&body)?;
        Ok(self.out.write_all(&footer())?)
    }

    /// Writes a section without content.
    pub fn mark(&mut self, kind: Kind) -> Result<(), TransferError> {
        Ok(self.out.write_all(&header(kind, 0))?)
    }

    /// What was given.
    pub fn into_inner(self) -> W {
        self.out
    }
}

/// Reads a file.
#[derive(Debug)]
pub struct PgFileReader<R> {
    input: R,
    at: u64,
}

impl<R: Read> PgFileReader<R> {
    /// Begins a file.
    pub fn new(input: R) -> Result<PgFileReader<R>, TransferError> {
        let mut file = PgFileReader { input, at: 0 };
        let start = file.read(16)?;
        let mut r = Reader::new(&start);
        let (magic, version) = (r.u32()?, r.u32()?);
        let lens = (r.u32()? as usize, r.u32()? as usize);
        if magic != MAGIC {
            return Err(TransferError::Format("it does not begin as one".into()));
        }
        if version != VERSION || lens != (HEADER_LEN, FOOTER_LEN) {
            return Err(TransferError::Format(format!("version {version}, not {VERSION}")));
        }
        Ok(file)
    }

    fn read(&mut self, len: usize) -> Result<Bytes, TransferError> {
        // Grows as bytes come: a length is only what the file says.
        let mut buf = Vec::new();
        let read = self.input.by_ref().take(len as u64).read_to_end(&mut buf)?;
        if read < len {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
        }
        self.at += len as u64;
        Ok(buf.into())
    }

    /// The next section.
    pub fn section(&mut self) -> Result<(Kind, Bytes), TransferError> {
        let at = self.at;
        let bad = |what: &str| TransferError::Format(format!("{what} at byte {at}"));
        let header = self.read(HEADER_LEN)?;
        let (kind, len) = Reader::new(&header)
            .envelope("header", 1, 1, |r, _| Ok((r.u32()?, r.i64()?)))
            .map_err(|_| bad("a damaged header"))?;
        let kind = Kind::ALL.into_iter().find(|k| *k as u32 == kind >> 24);
        let kind = kind.ok_or_else(|| bad("an unknown section"))?;
        let len = u64::try_from(len).ok().filter(|len| *len <= SECTION_MAX);
        let len = len.ok_or_else(|| bad("a section of a bad length"))? as usize;
        let body = self.read(len)?;
        if len > 0 && self.read(FOOTER_LEN)? != footer() {
            return Err(bad("a section without its end"));
        }
        Ok((kind, body))
    }
}
