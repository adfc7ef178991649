//! The operations of `MOSDOp`: codes, flags, and the 38 bytes of each.
//!
//! ```text
//! u16 code | u32 flags | 28 bytes whose meaning the code tells | u32 payload length
//! ```
//!
//! Code = mode (read, write, cache) + type (data, attr, exec, pg) + number
//! (`src/include/rados.h` at v16.2). The 28 bytes are kept as they came, since a reply returns
//! them; typed views read and write them.

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};

use crate::bufferlist::BufferList;

/// Bits of a code that say what it does to the object.
pub const MODE: u16 = 0xf000;
/// Mode: reads.
pub const MODE_RD: u16 = 0x1000;
/// Mode: writes.
pub const MODE_WR: u16 = 0x2000;
/// Mode: reads and writes.
pub const MODE_RMW: u16 = 0x3000;
/// Mode: moves data between tiers.
pub const MODE_CACHE: u16 = 0x8000;
/// Bits of a code that say what it acts on.
pub const TYPE: u16 = 0x0f00;
/// Type: content and omap.
pub const TYPE_DATA: u16 = 0x0200;
/// Type: attributes.
pub const TYPE_ATTR: u16 = 0x0300;
/// Type: object classes.
pub const TYPE_EXEC: u16 = 0x0400;
/// Type: a whole PG.
pub const TYPE_PG: u16 = 0x0500;

macro_rules! op_codes {
    ($($name:ident $code:literal $text:literal)*) => {
        $(#[doc = concat!("`", $text, "`.")] pub const $name: u16 = $code;)*

        /// The op's name as Ceph prints it, `???` for codes it does not know.
        pub fn op_name(code: u16) -> &'static str {
            match code {
                $($name => $text,)*
                _ => "???",
            }
        }
    };
}

op_codes! {
    READ 0x1201 "read"
    STAT 0x1202 "stat"
    MAPEXT 0x1203 "mapext"
    MASKTRUNC 0x1204 "masktrunc"
    SPARSE_READ 0x1205 "sparse-read"
    NOTIFY 0x1206 "notify"
    NOTIFY_ACK 0x1207 "notify-ack"
    ASSERT_VER 0x1208 "assert-version"
    LIST_WATCHERS 0x1209 "list-watchers"
    LIST_SNAPS 0x120a "list-snaps"
    SYNC_READ 0x120b "sync_read"
    TMAPGET 0x120c "tmapget"
    OMAPGETKEYS 0x1211 "omap-get-keys"
    OMAPGETVALS 0x1212 "omap-get-vals"
    OMAPGETHEADER 0x1213 "omap-get-header"
    OMAPGETVALSBYKEYS 0x1214 "omap-get-vals-by-keys"
    OMAP_CMP 0x1219 "omap-cmp"
    ISDIRTY 0x121d "isdirty"
    COPY_GET 0x121e "copy-get"
    CHECKSUM 0x121f "checksum"
    CMPEXT 0x1220 "cmpext"
    GETXATTR 0x1301 "getxattr"
    GETXATTRS 0x1302 "getxattrs"
    CMPXATTR 0x1303 "cmpxattr"
    CALL 0x1401 "call"
    PGLS 0x1501 "pgls"
    PGLS_FILTER 0x1502 "pgls-filter"
    PG_HITSET_LS 0x1503 "pg-hitset-ls"
    PG_HITSET_GET 0x1504 "pg-hitset-get"
    PGNLS 0x1505 "pgnls"
    PGNLS_FILTER 0x1506 "pgnls-filter"
    SCRUBLS 0x1507 "scrubls"
    WRITE 0x2201 "write"
    WRITEFULL 0x2202 "writefull"
    TRUNCATE 0x2203 "truncate"
    ZERO 0x2204 "zero"
    DELETE 0x2205 "delete"
    APPEND 0x2206 "append"
    SETTRUNC 0x2208 "settrunc"
    TRIMTRUNC 0x2209 "trimtrunc"
    TMAPPUT 0x220b "tmapput"
    CREATE 0x220d "create"
    ROLLBACK 0x220e "rollback"
    WATCH 0x220f "watch"
    OMAPSETVALS 0x2215 "omap-set-vals"
    OMAPSETHEADER 0x2216 "omap-set-header"
    OMAPCLEAR 0x2217 "omap-clear"
    OMAPRMKEYS 0x2218 "omap-rm-keys"
    COPY_FROM 0x221a "copy-from"
    UNDIRTY 0x221c "undirty"
    SETALLOCHINT 0x2223 "set-alloc-hint"
    CACHE_PIN 0x2224 "cache-pin"
    CACHE_UNPIN 0x2225 "cache-unpin"
    WRITESAME 0x2226 "write-same"
    SET_REDIRECT 0x2227 "set-redirect"
    TIER_PROMOTE 0x2229 "tier-promote"
    UNSET_MANIFEST 0x222a "unset-manifest"
    OMAPRMKEYRANGE 0x222c "omap-rm-key-range"
    COPY_FROM2 0x222d "copy-from2"
    SETXATTR 0x2301 "setxattr"
    SETXATTRS 0x2302 "setxattrs"
    RESETXATTRS 0x2303 "resetxattrs"
    RMXATTR 0x2304 "rmxattr"
    TMAPUP 0x320a "tmapup"
    TMAP2OMAP 0x3222 "tmap2omap"
    CACHE_FLUSH 0x821f "cache-flush"
    CACHE_EVICT 0x8220 "cache-evict"
    CACHE_TRY_FLUSH 0x8221 "cache-try-flush"
    SET_CHUNK 0x8228 "set-chunk"
    TIER_FLUSH 0x822b "tier-flush"
    TIER_EVICT 0x822c "tier-evict"
}

/// Flags of the message (`MOSDOp.flags`).
pub mod message_flags {
    /// Wants an answer (old).
    pub const ACK: u32 = 0x1;
    /// Wants an answer when in memory (old).
    pub const ONNVRAM: u32 = 0x2;
    /// Wants an answer when durable.
    pub const ONDISK: u32 = 0x4;
    /// Sent before.
    pub const RETRY: u32 = 0x8;
    /// Has ops that read.
    pub const READ: u32 = 0x10;
    /// Has ops that write.
    pub const WRITE: u32 = 0x20;
    /// Refuse a snap context older than the object's.
    pub const ORDERSNAP: u32 = 0x40;
    /// Any replica may answer.
    pub const BALANCE_READS: u32 = 0x100;
    /// Runs alone.
    pub const PARALLELEXEC: u32 = 0x200;
    /// Acts on a PG, not on an object.
    pub const PGOP: u32 = 0x400;
    /// Has class calls.
    pub const EXEC: u32 = 0x800;
    /// Has public class calls (old).
    pub const EXEC_PUBLIC: u32 = 0x1000;
    /// The nearest replica may answer.
    pub const LOCALIZE_READS: u32 = 0x2000;
    /// Reads wait for writes before them.
    pub const RWORDERED: u32 = 0x4000;
    /// Do not use the cache tier.
    pub const IGNORE_CACHE: u32 = 0x8000;
    /// Skip the object's lock.
    pub const SKIPRWLOCKS: u32 = 0x1_0000;
    /// Do not follow the tier overlay.
    pub const IGNORE_OVERLAY: u32 = 0x2_0000;
    /// A flush of a cache tier.
    pub const FLUSH: u32 = 0x4_0000;
    /// The snap id names a clone.
    pub const MAP_SNAP_CLONE: u32 = 0x8_0000;
    /// Use the snap context even where the pool has its own.
    pub const ENFORCE_SNAPC: u32 = 0x10_0000;
    /// Was redirected here.
    pub const REDIRECTED: u32 = 0x20_0000;
    /// The client says truly whether it was redirected.
    pub const KNOWN_REDIR: u32 = 0x40_0000;
    /// Try even when full.
    pub const FULL_TRY: u32 = 0x80_0000;
    /// Write even when full.
    pub const FULL_FORCE: u32 = 0x100_0000;
    /// Do not follow redirects.
    pub const IGNORE_REDIRECT: u32 = 0x200_0000;
    /// Writes return their outputs.
    pub const RETURNVEC: u32 = 0x400_0000;
    /// The client understands a pool that fails ops with EIO.
    pub const SUPPORTSPOOLEIO: u32 = 0x800_0000;
}

/// Flags of one op (`OsdOp.flags`).
pub mod op_flags {
    /// `create` fails if the object exists.
    pub const EXCL: u32 = 0x1;
    /// The vector goes on if this op fails.
    pub const FAILOK: u32 = 0x2;
    /// Accesses are random.
    pub const FADVISE_RANDOM: u32 = 0x4;
    /// Accesses are sequential.
    pub const FADVISE_SEQUENTIAL: u32 = 0x8;
    /// Will be needed soon.
    pub const FADVISE_WILLNEED: u32 = 0x10;
    /// Will not be needed soon.
    pub const FADVISE_DONTNEED: u32 = 0x20;
    /// Used once.
    pub const FADVISE_NOCACHE: u32 = 0x40;
    /// `set-redirect`, `set-chunk`: take a reference.
    pub const WITH_REFERENCE: u32 = 0x80;
    /// Leave caches as they are.
    pub const BYPASS_CLEAN_CACHE: u32 = 0x100;
}

/// `WatchArgs.op`.
pub mod watch_op {
    /// End the watch.
    pub const UNWATCH: u8 = 0;
    /// A watch of old clients.
    pub const LEGACY_WATCH: u8 = 1;
    /// Begin a watch.
    pub const WATCH: u8 = 3;
    /// Take up a watch after a reconnect.
    pub const RECONNECT: u8 = 5;
    /// Still there.
    pub const PING: u8 = 7;

    /// The op's name as Ceph prints it.
    pub fn name(op: u8) -> &'static str {
        match op {
            UNWATCH => "unwatch",
            LEGACY_WATCH => "watch(legacy)",
            WATCH => "watch",
            RECONNECT => "reconnect",
            PING => "ping",
            _ => "???",
        }
    }
}

/// `XattrArgs.compare_op` and the codes in `omap-cmp`.
pub mod compare_op {
    /// Equal.
    pub const EQ: u8 = 1;
    /// Not equal.
    pub const NE: u8 = 2;
    /// Greater.
    pub const GT: u8 = 3;
    /// Greater or equal.
    pub const GTE: u8 = 4;
    /// Less.
    pub const LT: u8 = 5;
    /// Less or equal.
    pub const LTE: u8 = 6;
}

/// `XattrArgs.compare_mode`.
pub mod compare_mode {
    /// As strings of bytes.
    pub const STRING: u8 = 1;
    /// As numbers: the op's value is a u64, the attribute's a decimal text.
    pub const U64: u8 = 2;
}

/// `CopyFromArgs.flags`.
pub mod copy_from_flags {
    /// Part of a cache flush.
    pub const FLUSH: u8 = 1;
    /// Ignore the overlay at the source.
    pub const IGNORE_OVERLAY: u8 = 2;
    /// Ignore the cache at the source.
    pub const IGNORE_CACHE: u8 = 4;
    /// The source's snap id names a clone.
    pub const MAP_SNAP_CLONE: u8 = 8;
    /// Reads of the source wait for writes.
    pub const RWORDERED: u8 = 16;
    /// The payload ends with truncate size and sequence (`copy-from2`).
    pub const TRUNCATE_SEQ: u8 = 32;
}

macro_rules! views {
    ($($view:ident $read:ident $set:ident $text:literal {
        $($field:ident: $kind:ident $doc:literal),* $(,)?
    })*) => {
        $(
            #[doc = $text]
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
            pub struct $view {
                $(#[doc = $doc] pub $field: $kind,)*
            }
        )*

        impl OpArgs {
            $(
                #[doc = concat!("The bytes as [`", stringify!($view), "`].")]
                pub fn $read(&self) -> $view {
                    let mut at = 0;
                    $(
                        let mut bytes = [0; size_of::<$kind>()];
                        bytes.copy_from_slice(&self.0[at..at + size_of::<$kind>()]);
                        let $field = $kind::from_le_bytes(bytes);
                        at += size_of::<$kind>();
                    )*
                    let _ = at;
                    $view { $($field),* }
                }

                #[doc = concat!("Overwrites the bytes of [`", stringify!($view), "`].")]
                pub fn $set(&mut self, view: $view) {
                    let mut at = 0;
                    $(
                        let bytes = view.$field.to_le_bytes();
                        self.0[at..at + bytes.len()].copy_from_slice(&bytes);
                        at += bytes.len();
                    )*
                    let _ = at;
                }
            )*
        }

        $(
            impl From<$view> for OpArgs {
                fn from(view: $view) -> OpArgs {
                    let mut args = OpArgs::default();
                    args.$set(view);
                    args
                }
            }
        )*
    };
}

/// The 28 bytes of arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpArgs(pub [u8; 28]);

views! {
    ExtentArgs extent set_extent "A range of the content." {
        offset: u64 "Start.",
        length: u64 "Bytes; 0 reads to the end.",
        truncate_size: u64 "Truncate to this first, if `truncate_seq` is newer.",
        truncate_seq: u32 "Number of truncations the client knows of.",
    }
    XattrArgs xattr set_xattr "An attribute; name and value follow in the payload." {
        name_len: u32 "Bytes of the name.",
        value_len: u32 "Bytes of the value.",
        compare_op: u8 "One of [`compare_op`].",
        compare_mode: u8 "One of [`compare_mode`].",
    }
    ClsArgs cls set_cls "A class call; class, method and input follow in the payload." {
        class_len: u8 "Bytes of the class name.",
        method_len: u8 "Bytes of the method name.",
        argc: u8 "0.",
        indata_len: u32 "Bytes of the input.",
    }
    PglsArgs pgls set_pgls "A listing of a PG." {
        count: u64 "Most entries wanted.",
        start_epoch: u32 "Epoch in which the listing started.",
    }
    SnapArgs snap set_snap "A snapshot." {
        snapid: u64 "Its id.",
    }
    WatchArgs watch set_watch "A watch." {
        cookie: u64 "The watcher's name for it.",
        version: u64 "Not used.",
        op: u8 "One of [`watch_op`].",
        generation: u32 "The watcher's connection count.",
        timeout: u32 "Seconds; 0 for the OSD's default.",
    }
    NotifyArgs notify set_notify "A notify." {
        cookie: u64 "The notifier's name for it.",
    }
    AssertVerArgs assert_ver set_assert_ver "An expected version." {
        unused: u64 "Not used.",
        version: u64 "The object's user version must be this.",
    }
    AllocHintArgs alloc_hint set_alloc_hint "What the object will be like." {
        object_size: u64 "Expected size.",
        write_size: u64 "Expected size of writes.",
        flags: u32 "Expected access, `ALLOC_HINT_FLAG_*`.",
    }
    WriteSameArgs writesame set_writesame "A pattern repeated over a range." {
        offset: u64 "Start.",
        length: u64 "Bytes to fill: a multiple of `data_length`.",
        data_length: u64 "Bytes of the pattern in the payload.",
    }
    CopyFromArgs copy_from set_copy_from "The source of a copy." {
        snapid: u64 "The source's snap id.",
        src_version: u64 "Its user version, 0 for any.",
        flags: u8 "[`copy_from_flags`].",
        src_fadvise_flags: u32 "Op flags for reads of the source.",
    }
    CopyGetArgs copy_get set_copy_get "A step of a copy." {
        max: u64 "Most bytes wanted.",
    }
    ChecksumArgs checksum set_checksum "A range to checksum." {
        offset: u64 "Start.",
        length: u64 "Bytes.",
        chunk_size: u32 "Bytes of each checksummed piece, 0 for one piece.",
        kind: u8 "0 xxhash32, 1 xxhash64, 2 crc32c.",
    }
}

/// One operation with its input and, once done, its output.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OsdOp {
    /// The code: [`READ`] ...
    pub code: u16,
    /// [`op_flags`].
    pub flags: u32,
    /// The arguments; `extent()`, `xattr()` ... read them.
    pub args: OpArgs,
    /// Input, part of the request's payload.
    pub indata: Bytes,
    /// Output, part of the reply's payload.
    pub outdata: BufferList,
    /// Result of this op: 0, a count, or a negative errno.
    pub rval: i32,
}

/// The fixed part of an op on the wire, 38 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireOp {
    /// The code.
    pub code: u16,
    /// [`op_flags`].
    pub flags: u32,
    /// The arguments.
    pub args: OpArgs,
    /// Bytes of input (request) or output (reply) in the payload.
    pub payload_len: u32,
}

impl WireOp {
    /// Bytes of the encoding.
    pub const LEN: usize = 38;
}

impl Denc for WireOp {
    fn encode(&self, w: &mut Writer) {
        w.u16(self.code);
        w.u32(self.flags);
        w.raw(&self.args.0);
        w.u32(self.payload_len);
    }
    fn decode(r: &mut Reader<'_>) -> Result<WireOp, Error> {
        Ok(WireOp {
            code: r.u16()?,
            flags: r.u32()?,
            args: OpArgs(r.get()?),
            payload_len: r.u32()?,
        })
    }
}

impl OsdOp {
    /// An op with no arguments and no input.
    pub fn new(code: u16) -> OsdOp {
        OsdOp { code, ..OsdOp::default() }
    }

    /// The op `code` with arguments and input.
    pub fn with(code: u16, args: impl Into<OpArgs>, indata: Bytes) -> OsdOp {
        OsdOp { code, args: args.into(), indata, ..OsdOp::default() }
    }

    /// An op on a range; input of writes is `data`.
    pub fn extent(code: u16, offset: u64, length: u64, data: Bytes) -> OsdOp {
        OsdOp::with(code, ExtentArgs { offset, length, ..ExtentArgs::default() }, data)
    }

    /// A `call` of a class method. `None` if a name is above 255 bytes.
    pub fn call(class: &str, method: &str, input: &[u8]) -> Option<OsdOp> {
        let args = ClsArgs {
            class_len: class.len().try_into().ok()?,
            method_len: method.len().try_into().ok()?,
            argc: 0,
            indata_len: input.len().try_into().ok()?,
        };
        let payload = [class.as_bytes(), method.as_bytes(), input].concat();
        Some(OsdOp::with(CALL, args, payload.into()))
    }

    /// An attribute op. `None` if a part is above 4 GiB.
    pub fn attr(code: u16, name: &[u8], value: &[u8]) -> Option<OsdOp> {
        let args = XattrArgs {
            name_len: name.len().try_into().ok()?,
            value_len: value.len().try_into().ok()?,
            ..XattrArgs::default()
        };
        Some(OsdOp::with(code, args, [name, value].concat().into()))
    }

    /// The fixed part, with the length of the input or of the output as a request or reply
    /// wants it.
    pub fn wire(&self, payload_len: usize) -> WireOp {
        WireOp {
            code: self.code,
            flags: self.flags,
            args: self.args,
            payload_len: u32::try_from(payload_len).unwrap_or(u32::MAX),
        }
    }

    /// Name and value in the payload of an attribute op; `None` when the payload is shorter than
    /// the lengths say.
    pub fn attr_parts(&self) -> Option<(BString, Bytes)> {
        let args = self.args.xattr();
        let name_len = args.name_len as usize;
        let end = name_len.checked_add(args.value_len as usize)?;
        let name = self.indata.get(..name_len)?;
        (end <= self.indata.len()).then(|| (BString::from(name), self.indata.slice(name_len..end)))
    }

    /// Class, method and input in the payload of a `call`; `None` when the payload is shorter
    /// than the lengths say or a name is not UTF-8.
    pub fn call_parts(&self) -> Option<(&str, &str, Bytes)> {
        let args = self.args.cls();
        let class_end = usize::from(args.class_len);
        let method_end = class_end + usize::from(args.method_len);
        let end = method_end.checked_add(args.indata_len as usize)?;
        let class = core::str::from_utf8(self.indata.get(..class_end)?).ok()?;
        let method = core::str::from_utf8(self.indata.get(class_end..method_end)?).ok()?;
        (end <= self.indata.len()).then(|| (class, method, self.indata.slice(method_end..end)))
    }

    /// The op's name as Ceph prints it.
    pub fn name(&self) -> &'static str {
        op_name(self.code)
    }

    /// Whether the code's mode has the read bit.
    pub fn is_read_mode(&self) -> bool {
        self.code & MODE_RD != 0
    }

    /// Whether the code's mode has the write bit.
    pub fn is_write_mode(&self) -> bool {
        self.code & MODE_WR != 0
    }

    /// Whether this moves data between tiers.
    pub fn is_cache_mode(&self) -> bool {
        self.code & MODE_CACHE != 0
    }

    /// Whether this acts on attributes.
    pub fn is_attr_type(&self) -> bool {
        self.code & TYPE == TYPE_ATTR
    }

    /// Whether this acts on a whole PG.
    pub fn is_pg_type(&self) -> bool {
        self.code & TYPE == TYPE_PG
    }

    /// Whether the arguments are an [`ExtentArgs`].
    pub fn uses_extent(&self) -> bool {
        matches!(
            self.code,
            READ | MAPEXT
                | MASKTRUNC
                | SPARSE_READ
                | SYNC_READ
                | WRITE
                | WRITEFULL
                | TRUNCATE
                | ZERO
                | APPEND
                | TRIMTRUNC
                | CMPEXT
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forty_bytes_less_two() {
        let op = OsdOp::extent(WRITE, 4096, 3, Bytes::from_static(b"abc"));
        let bytes = op.wire(3).to_bytes();
        assert_eq!(bytes.len(), WireOp::LEN);
        let back = WireOp::from_bytes_exact(&bytes).unwrap();
        assert_eq!(back.args.extent().offset, 4096);
        assert_eq!((back.code, back.payload_len), (WRITE, 3));
    }

    #[test]
    fn parts_of_payloads() {
        let op = OsdOp::call("lock", "get_info", b"xyz").unwrap();
        assert_eq!(op.call_parts(), Some(("lock", "get_info", Bytes::from_static(b"xyz"))));
        let mut op = OsdOp::attr(SETXATTR, b"name", b"value").unwrap();
        assert_eq!(op.attr_parts().unwrap().1, &b"value"[..]);
        op.indata.truncate(8);
        assert_eq!(op.attr_parts(), None);
        assert_eq!(op_name(0x2223), "set-alloc-hint");
    }

    // Tier-evict had another number than clients send: they were told that there is no such op.
    #[test]
    fn ops_of_tiers_have_the_numbers_that_clients_send() {
        let sent = [0x821f, 0x8220, 0x8221, 0x8228, 0x2229, 0x222a, 0x822b, 0x822c];
        let ops = [
            CACHE_FLUSH,
            CACHE_EVICT,
            CACHE_TRY_FLUSH,
            SET_CHUNK,
            TIER_PROMOTE,
            UNSET_MANIFEST,
            TIER_FLUSH,
            TIER_EVICT,
        ];
        assert_eq!(ops, sent);
    }
}
