//! Ops on tmaps, the key-value maps that old clients kept in object data:
//! `blob header | u32 count | (string key, blob value) ...`, keys in order.

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Reader, Writer};
use types::Errno;
use types::bufferlist::BufferList;
use types::osd::OsdOp;
use types::osd::ops::ExtentArgs;

use super::op_context::{OpContext, Step, Stop};

/// Update commands.
const HDR: u8 = b'h';
const SET: u8 = b's';
const CREATE: u8 = b'c';
const RM: u8 = b'r';
const RM_SLOPPY: u8 = b'R';

/// tmap2omap: an object without a tmap is fine.
const NULL_OK: u8 = 1;

/// Whether a `tmap2omap` accepts an empty object.
pub(super) fn null_is_fine(op: &OsdOp) -> bool {
    op.args.0[0] & NULL_OK != 0
}

struct Tmap {
    header: Bytes,
    keys: BTreeMap<BString, Bytes>,
}

impl Tmap {
    fn parse(data: &Bytes) -> Result<Tmap, Errno> {
        if data.is_empty() {
            return Ok(Tmap { header: Bytes::new(), keys: BTreeMap::new() });
        }
        let mut r = Reader::new(data);
        let mut parse = || Ok::<_, denc::Error>(Tmap { header: r.blob()?, keys: r.get()? });
        parse().map_err(|_| Errno::EINVAL)
    }

    fn encode(&self) -> Bytes {
        let mut w = Writer::new();
        w.put(&self.header);
        w.put(&self.keys);
        w.into_bytes()
    }

    /// Runs update commands to their end.
    fn update(&mut self, commands: &Bytes) -> Result<(), Errno> {
        let mut r = Reader::new(commands);
        let invalid = |_| Errno::EINVAL;
        while r.remaining() > 0 {
            let command = r.u8().map_err(invalid)?;
            if command == HDR {
                self.header = r.blob().map_err(invalid)?;
                continue;
            }
            let key: BString = r.get().map_err(invalid)?;
            match command {
                SET => {
                    self.keys.insert(key, r.blob().map_err(invalid)?);
                }
                CREATE if self.keys.contains_key(&key) => return Err(Errno::EEXIST),
                CREATE => {
                    self.keys.insert(key, r.blob().map_err(invalid)?);
                }
                RM => {
                    self.keys.remove(&key).ok_or(Errno::ENOENT)?;
                }
                RM_SLOPPY => {
                    self.keys.remove(&key);
                }
                _ => return Err(Errno::EINVAL),
            }
        }
        Ok(())
    }
}

impl OpContext {
    async fn read_all(&mut self) -> Result<Bytes, Stop> {
        Ok(self.read_extent(&ExtentArgs::default()).await?.to_contiguous())
    }

    pub(super) async fn op_tmapget(&mut self, out: &mut BufferList) -> Step {
        out.push(self.read_all().await?);
        Ok(0)
    }

    pub(super) fn op_tmapput(&mut self, input: &Bytes) -> Step {
        // Parsing sorts the keys.
        let tmap = Tmap::parse(input)?;
        self.num_write += 1;
        self.write_whole(0, tmap.encode())
    }

    pub(super) async fn op_tmapup(&mut self, commands: &Bytes) -> Step {
        self.num_write += 1;
        if commands.is_empty() {
            return Ok(0);
        }
        let old = match self.read_all().await {
            Err(Stop::Errno(Errno::ENOENT)) => Bytes::new(),
            other => other?,
        };
        let mut tmap = Tmap::parse(&old)?;
        tmap.update(commands)?;
        self.write_whole(0, tmap.encode())
    }

    pub(super) async fn op_tmap2omap(&mut self, null_is_fine: bool) -> Step {
        self.num_write += 1;
        if self.obs.oi.size == 0 {
            return if null_is_fine { Ok(0) } else { Err(Errno::ENODATA.into()) };
        }
        let tmap = Tmap::parse(&self.read_all().await?)?;
        self.op_truncate(&ExtentArgs::default(), 0)?;
        self.op_omap_set_header(tmap.header)?;
        self.op_omap_set_vals(&tmap.keys.to_bytes())
    }
}
