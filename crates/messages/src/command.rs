//! Commands as JSON texts: to monitors (50, 51), OSDs and monitors by `tell` (97, 98) and the
//! manager (0x709, 0x70a). Input and output travel as payload.

use bstr::BString;
use bytes::Bytes;
use denc::{Error, Reader, Writer};
use types::{BufferList, MsgHeader, Uuid};

use crate::{Message, PaxosHeader};

macro_rules! command {
    ($(#[$doc:meta])* $name:ident, $kind:literal $(, $paxos:ident)?) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name {
            $(/// See [`PaxosHeader`].
            pub $paxos: PaxosHeader,)?
            /// The cluster.
            pub fsid: Uuid,
            /// One JSON object, mostly in one piece. What is not UTF-8 is none: that is for the answer to say.
            pub cmd: Vec<BString>,
            /// Input.
            pub input: Bytes,
        }
        impl Message for $name {
            const TYPE: u16 = $kind;
            const VERSION: u16 = 1;
            const COMPAT: u16 = 1;
            fn encode_front(&self, w: &mut Writer) {
                $(w.put(&self.$paxos);)?
                w.put(&self.fsid);
                w.put(&self.cmd);
            }
            fn payload(&self) -> BufferList {
                self.input.clone().into()
            }
            fn decode_front(
                r: &mut Reader<'_>,
                _: &MsgHeader,
                data: &Bytes,
            ) -> Result<Self, Error> {
                Ok($name {
                    $($paxos: r.get()?,)?
                    fsid: r.get()?,
                    cmd: r.get()?,
                    input: data.clone(),
                })
            }
        }
    };
}

command!(
    /// Type 50: a command to the monitors.
    MMonCommand, 50, paxos
);
command!(
    /// Type 97: `tell` to an OSD or a monitor.
    MCommand, 97
);
command!(
    /// Type 0x709: a command to the manager.
    MMgrCommand, 0x709
);

macro_rules! reply {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name {
            /// 0 or a negative errno.
            pub rc: i32,
            /// Status text.
            pub outs: String,
            /// Output.
            pub outb: Bytes,
        }
        impl Message for $name {
            const TYPE: u16 = $kind;
            const VERSION: u16 = 1;
            const COMPAT: u16 = 1;
            fn encode_front(&self, w: &mut Writer) {
                w.i32(self.rc);
                w.put(&self.outs);
            }
            fn payload(&self) -> BufferList {
                self.outb.clone().into()
            }
            fn decode_front(
                r: &mut Reader<'_>,
                _: &MsgHeader,
                data: &Bytes,
            ) -> Result<Self, Error> {
                Ok($name { rc: r.i32()?, outs: r.get()?, outb: data.clone() })
            }
        }
    };
}

reply!(
    /// Type 98: the answer to [`MCommand`].
    MCommandReply, 98
);
reply!(
    /// Type 0x70a: the answer to [`MMgrCommand`].
    MMgrCommandReply, 0x70a
);

/// Type 51: the answer to [`MMonCommand`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MMonCommandAck {
    /// Version of the map that the command changed or read.
    pub paxos: PaxosHeader,
    /// 0 or a negative errno.
    pub rc: i32,
    /// Status text.
    pub outs: String,
    /// The command, echoed.
    pub cmd: Vec<BString>,
    /// Output.
    pub outb: Bytes,
}

impl Message for MMonCommandAck {
    const TYPE: u16 = 51;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.paxos);
        w.i32(self.rc);
        w.put(&self.outs);
        w.put(&self.cmd);
    }
    fn payload(&self) -> BufferList {
        self.outb.clone().into()
    }
    fn decode_front(r: &mut Reader<'_>, _: &MsgHeader, data: &Bytes) -> Result<Self, Error> {
        Ok(MMonCommandAck {
            paxos: r.get()?,
            rc: r.i32()?,
            outs: r.get()?,
            cmd: r.get()?,
            outb: data.clone(),
        })
    }
}
