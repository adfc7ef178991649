//! The answer to a command.

use bytes::Bytes;

use crate::Formatter;

/// What a command answers: `ceph` prints `outs` to stderr and `outb` to stdout.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandReply {
    /// 0 or a negative errno.
    pub rc: i32,
    /// Status text, one line mostly.
    pub outs: String,
    /// Output data.
    pub outb: Bytes,
}

impl CommandReply {
    /// Success with output data.
    pub fn data(outb: impl Into<Bytes>) -> CommandReply {
        CommandReply { rc: 0, outs: String::new(), outb: outb.into() }
    }

    /// Success with a status text.
    pub fn text(outs: impl Into<String>) -> CommandReply {
        CommandReply { rc: 0, outs: outs.into(), outb: Bytes::new() }
    }

    /// Failure; `errno` is positive.
    pub fn error(errno: i32, outs: impl Into<String>) -> CommandReply {
        CommandReply { rc: -errno, outs: outs.into(), outb: Bytes::new() }
    }

    /// Success with what the formatter holds.
    pub fn formatted(f: Formatter) -> CommandReply {
        CommandReply::data(f.finish())
    }
}
