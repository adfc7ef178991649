//! What operators type and read: command signatures, their arguments, and Ceph's output forms
//! (JSON, XML, text tables, byte counts). Shared by every daemon that answers commands; knows no
//! single command but those that each answers about its process, and does no I/O.

mod admin;
mod args;
mod floats;
mod formatter;
mod reply;
mod signature;
mod table;
mod units;
pub mod version;

pub use admin::{admin_command, admin_signatures, heap};
pub use args::{ArgValue, BadArgument, CommandMap, ParseError};
pub use floats::{format_g, format_stream_float};
pub use formatter::{Format, Formatter};
pub use reply::CommandReply;
pub use signature::{Arg, ArgType, CommandTable, FLAG_DEPRECATED, FLAG_HIDDEN, FLAG_MGR};
pub use signature::{FLAG_NOFORWARD, FLAG_OBSOLETE, FLAG_POLL, SigPart, Signature};
pub use table::{Align, TextTable};
pub use units::{ByteU, SiU, format_bytes, format_si};
