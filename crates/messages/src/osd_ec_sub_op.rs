//! Between the shards of an erasure coded PG: a write of one shard (108) and that it is durable
//! there (109), a read of one shard (110) and what it gave (111).

use bytes::Bytes;
use denc::{Error, Reader, Writer};
use types::message::{PRIORITY_DEFAULT, PRIORITY_HIGH};
use types::osd::{EcSubRead, EcSubReadReply, EcSubWrite, EcSubWriteReply};
use types::{Epoch, MsgHeader, SpgId};

use crate::Message;

/// Bytes of a trace that nobody follows: three numbers.
const TRACE_LEN: usize = 24;

/// Declares a message: PG, map, what it is about, interval, trace.
macro_rules! sub_op {
    ($(#[$doc:meta])* $name:ident($op:ty), $kind:literal, $v:literal / $c:literal, $min_epoch_since:literal, $priority:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            /// The PG, with the receiver's shard.
            pub pgid: SpgId,
            /// The sender's map.
            pub map_epoch: Epoch,
            /// Epoch of the interval.
            pub min_epoch: Epoch,
            /// What it is about.
            pub op: $op,
        }

        impl Message for $name {
            const TYPE: u16 = $kind;
            const VERSION: u16 = $v;
            const COMPAT: u16 = $c;
            const PRIORITY: u16 = $priority;

            fn encode_front(&self, w: &mut Writer) {
                w.put(&self.pgid);
                w.u32(self.map_epoch);
                w.put(&self.op);
                w.u32(self.min_epoch);
                w.zeros(TRACE_LEN);
            }

            fn decode_front(
                r: &mut Reader<'_>,
                header: &MsgHeader,
                _: &Bytes,
            ) -> Result<Self, Error> {
                let pgid = r.get()?;
                let map_epoch = r.u32()?;
                let op = r.get()?;
                let min_epoch = if header.version >= $min_epoch_since {
                    let min_epoch = r.u32()?;
                    r.slice(TRACE_LEN)?;
                    min_epoch
                } else {
                    map_epoch
                };
                Ok($name { pgid, map_epoch, min_epoch, op })
            }
        }
    };
}

sub_op!(
    /// Type 108.
    MOSDECSubOpWrite(EcSubWrite), 108, 2 / 1, 2, PRIORITY_DEFAULT
);
sub_op!(
    /// Type 109.
    MOSDECSubOpWriteReply(EcSubWriteReply), 109, 2 / 1, 2, PRIORITY_HIGH
);
sub_op!(
    /// Type 110.
    MOSDECSubOpRead(EcSubRead), 110, 3 / 1, 3, PRIORITY_DEFAULT
);
sub_op!(
    /// Type 111.
    MOSDECSubOpReadReply(EcSubReadReply), 111, 2 / 1, 2, PRIORITY_DEFAULT
);
