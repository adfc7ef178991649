//! What to do with one object: several ops that happen together or not at all, and what came of
//! them.

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Writer};
use types::osd::ops::{self, OpArgs, OsdOp, message_flags, op_flags};
use types::{Errno, UTime};

use crate::ClientError;

/// Ops in order. Building takes no network; ops that cannot be written (names above what the
/// format holds) make the whole operation invalid, told by `operate`.
#[derive(Debug, Clone, Default)]
pub struct Operation {
    pub(crate) ops: Vec<OsdOp>,
    /// `message_flags`, beside what the ops' codes say.
    pub(crate) flags: u32,
    pub(crate) is_write: bool,
    pub(crate) invalid: bool,
}

/// What came of one op.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpOutcome {
    /// 0, a count, or a negative errno.
    pub rval: i32,
    /// Output.
    pub data: Bytes,
}

/// What came of an operation that did not fail.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// 0, or what the ops gave (1 at the end of a PG's listing).
    pub result: i32,
    /// One for each op.
    pub ops: Vec<OpOutcome>,
    /// The object's version.
    pub version: u64,
}

impl Outcome {
    /// Output of op `index`; its own error if it failed.
    pub fn output(&self, index: usize) -> Result<Bytes, ClientError> {
        let op = self.ops.get(index).ok_or(ClientError::Errno(Errno::EINVAL))?;
        match Errno::from_result(op.rval) {
            Some(errno) if op.rval < 0 => Err(errno.into()),
            _ => Ok(op.data.clone()),
        }
    }

    /// Output of op `index`, decoded.
    pub fn decode<T: Denc>(&self, index: usize) -> Result<T, ClientError> {
        Ok(denc::Reader::new(&self.output(index)?).get()?)
    }
}

fn encoded<T: Denc>(value: &T) -> Bytes {
    let mut w = Writer::new();
    value.encode(&mut w);
    w.into_bytes()
}

impl Operation {
    /// Nothing yet.
    pub fn new() -> Operation {
        Operation::default()
    }

    /// Adds any op.
    #[must_use]
    pub fn op(mut self, op: OsdOp) -> Operation {
        self.is_write |= op.code & ops::MODE_WR != 0;
        self.ops.push(op);
        self
    }

    /// Adds all of another.
    #[must_use]
    pub(crate) fn then(mut self, other: Operation) -> Operation {
        self.ops.extend(other.ops);
        self.flags |= other.flags;
        self.is_write |= other.is_write;
        self.invalid |= other.invalid;
        self
    }

    fn maybe(mut self, op: Option<OsdOp>) -> Operation {
        match op {
            Some(op) => self.op(op),
            None => {
                self.invalid = true;
                self
            }
        }
    }

    /// With flags of the message (`message_flags`).
    #[must_use]
    pub fn with_flags(mut self, flags: u32) -> Operation {
        self.flags |= flags;
        self
    }

    /// As a write even if no op says so (class methods that write).
    #[must_use]
    pub fn as_write(mut self) -> Operation {
        self.is_write = true;
        self
    }

    /// The last op may fail without failing the operation.
    #[must_use]
    pub fn failok(mut self) -> Operation {
        if let Some(op) = self.ops.last_mut() {
            op.flags |= op_flags::FAILOK;
        }
        self
    }

    /// Writes at an offset.
    #[must_use]
    pub fn write(self, offset: u64, data: Bytes) -> Operation {
        let len = data.len() as u64;
        self.op(OsdOp::extent(ops::WRITE, offset, len, data))
    }
    /// Replaces the content.
    #[must_use]
    pub fn write_full(self, data: Bytes) -> Operation {
        let len = data.len() as u64;
        self.op(OsdOp::extent(ops::WRITEFULL, 0, len, data))
    }
    /// Writes at the end.
    #[must_use]
    pub fn append(self, data: Bytes) -> Operation {
        let len = data.len() as u64;
        self.op(OsdOp::extent(ops::APPEND, 0, len, data))
    }
    /// Zeros a range.
    #[must_use]
    pub fn zero(self, offset: u64, len: u64) -> Operation {
        self.op(OsdOp::extent(ops::ZERO, offset, len, Bytes::new()))
    }
    /// Cuts or grows.
    #[must_use]
    pub fn truncate(self, size: u64) -> Operation {
        self.op(OsdOp::extent(ops::TRUNCATE, size, 0, Bytes::new()))
    }
    /// Creates; `exclusive` fails if it exists.
    #[must_use]
    pub fn create(self, exclusive: bool) -> Operation {
        let mut op = OsdOp::new(ops::CREATE);
        op.flags = if exclusive { op_flags::EXCL } else { 0 };
        self.op(op)
    }
    /// Removes.
    #[must_use]
    pub fn remove(self) -> Operation {
        self.op(OsdOp::new(ops::DELETE))
    }
    /// Fails unless the object has this version.
    #[must_use]
    pub fn assert_version(self, version: u64) -> Operation {
        let args = ops::AssertVerArgs { unused: 0, version };
        self.op(OsdOp::with(ops::ASSERT_VER, args, Bytes::new()))
    }
    /// Sets an attribute.
    #[must_use]
    pub fn setxattr(self, name: &str, value: &[u8]) -> Operation {
        self.maybe(OsdOp::attr(ops::SETXATTR, name.as_bytes(), value))
    }
    /// Removes an attribute.
    #[must_use]
    pub fn rmxattr(self, name: &str) -> Operation {
        self.maybe(OsdOp::attr(ops::RMXATTR, name.as_bytes(), b""))
    }
    /// Sets keys.
    #[must_use]
    pub fn omap_set(self, values: &BTreeMap<BString, Bytes>) -> Operation {
        self.op(OsdOp::with(ops::OMAPSETVALS, OpArgs::default(), encoded(values)))
    }
    /// Removes keys.
    #[must_use]
    pub fn omap_rm_keys(self, keys: &[BString]) -> Operation {
        self.op(OsdOp::with(ops::OMAPRMKEYS, OpArgs::default(), encoded(&keys.to_vec())))
    }
    /// Removes all keys and the header.
    #[must_use]
    pub fn omap_clear(self) -> Operation {
        self.op(OsdOp::new(ops::OMAPCLEAR))
    }
    /// Sets the header.
    #[must_use]
    pub fn omap_set_header(self, header: Bytes) -> Operation {
        self.op(OsdOp::with(ops::OMAPSETHEADER, OpArgs::default(), header))
    }
    /// Takes the content back to a snapshot.
    #[must_use]
    pub fn rollback(self, snapid: u64) -> Operation {
        self.op(OsdOp::with(ops::ROLLBACK, ops::SnapArgs { snapid }, Bytes::new()))
    }

    /// Reads a range; length 0 reads to the end.
    #[must_use]
    pub fn read(self, offset: u64, len: u64) -> Operation {
        self.op(OsdOp::extent(ops::READ, offset, len, Bytes::new()))
    }
    /// Size and time.
    #[must_use]
    pub fn stat(self) -> Operation {
        self.op(OsdOp::new(ops::STAT))
    }
    /// An attribute.
    #[must_use]
    pub fn getxattr(self, name: &str) -> Operation {
        self.maybe(OsdOp::attr(ops::GETXATTR, name.as_bytes(), b""))
    }
    /// All attributes.
    #[must_use]
    pub fn getxattrs(self) -> Operation {
        self.op(OsdOp::new(ops::GETXATTRS))
    }
    /// Keys and values after a key, with a prefix, at most `max`.
    #[must_use]
    pub fn omap_get_vals(self, after: &BString, max: u64, prefix: &BString) -> Operation {
        let mut w = Writer::new();
        w.put(after);
        w.u64(max);
        w.put(prefix);
        self.op(OsdOp::with(ops::OMAPGETVALS, OpArgs::default(), w.into_bytes()))
    }
    /// Keys after a key, at most `max`.
    #[must_use]
    pub fn omap_get_keys(self, after: &BString, max: u64) -> Operation {
        let mut w = Writer::new();
        w.put(after);
        w.u64(max);
        self.op(OsdOp::with(ops::OMAPGETKEYS, OpArgs::default(), w.into_bytes()))
    }
    /// Values of keys.
    #[must_use]
    pub fn omap_get_vals_by_keys(self, keys: &[BString]) -> Operation {
        let input = encoded(&keys.to_vec());
        self.op(OsdOp::with(ops::OMAPGETVALSBYKEYS, OpArgs::default(), input))
    }
    /// The header.
    #[must_use]
    pub fn omap_get_header(self) -> Operation {
        self.op(OsdOp::new(ops::OMAPGETHEADER))
    }
    /// Calls a method of an object class. Add [`Operation::as_write`] for one that writes.
    #[must_use]
    pub fn exec(mut self, class: &str, method: &str, input: &[u8]) -> Operation {
        self.flags |= message_flags::EXEC;
        self.maybe(OsdOp::call(class, method, input))
    }

    /// `message_flags` of the ops.
    pub(crate) fn message_flags(&self) -> u32 {
        let mode = if self.is_write { message_flags::WRITE } else { message_flags::READ };
        let reads = self.is_write && self.ops.iter().any(|op| op.code & ops::MODE_RD != 0);
        self.flags | mode | if reads { message_flags::READ } else { 0 }
    }
}

/// Output of `stat`.
pub(crate) fn decode_stat(output: &Bytes) -> Result<(u64, UTime), ClientError> {
    let mut r = denc::Reader::new(output);
    Ok((r.u64()?, r.get()?))
}
