//! Tests of the class against an object in memory. Keys, values and errnos are those of release
//! 16.2.15's own class, which has been asked the same.

mod changes;
mod damage;
mod listing;
mod queues;
mod raw;
mod real;
mod versions;

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use types::{Errno, UTime};

use super::entry::{DirEntry, EntryMeta, EntryVer, ModifyOp};
use super::header::{CategoryStats, DirHeader};
use super::index::{CompleteOp, PrepareOp};
use super::key::ObjKey;
use crate::Output;
use crate::testing::TestObject;

/// No arguments.
const NOTHING: [u8; 0] = [];

/// An index shard without entries.
fn index() -> TestObject {
    let mut object = TestObject::default();
    object.rgw("bucket_init_index", &NOTHING).unwrap();
    object
}

fn object_key(name: &str, instance: &str) -> ObjKey {
    ObjKey { name: name.into(), instance: instance.into() }
}

fn meta(size: u64) -> EntryMeta {
    EntryMeta { category: 1, size, accounted_size: size, ..EntryMeta::default() }
}

/// What completes a change of an object in pool 7.
fn complete_op(op: ModifyOp, name: &str, tag: &str, epoch: u64, size: u64) -> CompleteOp {
    CompleteOp {
        op,
        key: object_key(name, ""),
        ver: EntryVer { pool: 7, epoch },
        meta: meta(size),
        tag: tag.into(),
        ..CompleteOp::default()
    }
}

impl TestObject {
    fn output(&mut self, method: &str, input: &impl Denc) -> Result<Output, Errno> {
        self.call_as_osd("rgw", method, &input.to_bytes())
    }

    /// A call; a negative result is an error too.
    fn rgw(&mut self, method: &str, input: &impl Denc) -> Result<Bytes, Errno> {
        let output = self.output(method, input)?;
        Errno::from_result(output.result).map_or(Ok(output.data), Err)
    }

    fn reply<T: Denc>(&mut self, method: &str, input: &impl Denc) -> T {
        let output = self.rgw(method, input).unwrap();
        T::from_bytes_exact(&output).unwrap()
    }

    fn prepare(&mut self, op: ModifyOp, name: &str, tag: &str) -> Result<(), Errno> {
        let (key, tag) = (object_key(name, ""), tag.into());
        self.rgw("bucket_prepare_op", &PrepareOp { op, key, tag, ..PrepareOp::default() })?;
        Ok(())
    }

    fn complete(&mut self, op: &CompleteOp) -> Result<(), Errno> {
        self.rgw("bucket_complete_op", op).map(|_| ())
    }

    /// An object as a gateway puts it, without a prepared change.
    fn add(&mut self, key: ObjKey, size: u64) {
        let op = CompleteOp { key, ..complete_op(ModifyOp::ADD, "", "", 0, size) };
        self.complete(&op).unwrap();
    }

    fn index_header(&self) -> DirHeader {
        DirHeader::from_bytes_exact(&self.header).unwrap()
    }

    /// The sums of the main category.
    fn sums(&self) -> CategoryStats {
        self.index_header().stats.get(&1).cloned().unwrap_or_default()
    }

    fn entry(&self, key: &[u8]) -> Option<DirEntry> {
        self.omap.get(&BString::from(key)).map(|bytes| DirEntry::from_bytes_exact(bytes).unwrap())
    }

    /// Keys, with `.` for a zero and `#` for what special ones begin with.
    fn keys(&self) -> Vec<String> {
        let readable = |key: &BString| {
            let bytes = key.iter().flat_map(|byte| match byte {
                0 => b".".to_vec(),
                0x80 => b"#".to_vec(),
                other => vec![*other],
            });
            String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
        };
        self.omap.keys().map(readable).collect()
    }

    fn wait(&mut self, secs: u32) {
        self.now = UTime::new(self.now.sec + secs, self.now.nsec);
    }
}
