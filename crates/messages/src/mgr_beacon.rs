//! A manager's sign of life to the monitors (0x703).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use maps::mgrmap::ModuleInfo;
use types::{AddrVec, MsgHeader, Uuid};

use crate::{Message, PaxosHeader};

/// What Ceph writes where a command once said which interfaces offer it.
const AVAILABILITY: &str = "cli,rest";

/// A command as daemons tell each other. Wire: MonCommand v1.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MonCommand {
    /// Its signature in compact form: `pg ls name=pool,type=CephInt,req=false`.
    pub cmdstring: String,
    /// One sentence for people.
    pub helpstring: String,
    /// The service whose caps it needs.
    pub module: String,
    /// Letters of `rwx`.
    pub req_perms: String,
    /// Bits as in command descriptions.
    pub flags: u64,
}

impl Denc for MonCommand {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.cmdstring);
            w.put(&self.helpstring);
            w.put(&self.module);
            w.put(&self.req_perms);
            w.blob(AVAILABILITY.as_bytes());
            w.u64(self.flags);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.envelope("MonCommand", 1, 1, |r, _| {
            let (cmdstring, helpstring) = (r.get()?, r.get()?);
            let (module, req_perms) = (r.get()?, r.get()?);
            let _: Bytes = r.blob()?;
            Ok(MonCommand { cmdstring, helpstring, module, req_perms, flags: r.u64()? })
        })
    }
}

/// Type 0x703.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MMgrBeacon {
    /// See [`PaxosHeader`].
    pub paxos: PaxosHeader,
    /// Where it listens.
    pub server_addrs: AddrVec,
    /// Its global id.
    pub gid: u64,
    /// Whether it serves (active) or could.
    pub available: bool,
    /// Its name, without `mgr.`.
    pub name: String,
    /// The cluster.
    pub fsid: Uuid,
    /// The commands it answers; sent when it becomes active.
    pub command_descs: Vec<MonCommand>,
    /// About the daemon: `ceph mgr metadata`.
    pub metadata: BTreeMap<String, String>,
    /// URLs of its services by module.
    pub services: BTreeMap<String, String>,
    /// Modules it has.
    pub modules: Vec<ModuleInfo>,
    /// Its feature bits.
    pub mgr_features: u64,
    /// Clients inside it: names and addresses, of the same length.
    pub clients: Vec<(String, AddrVec)>,
}

impl Message for MMgrBeacon {
    const TYPE: u16 = 0x703;
    const VERSION: u16 = 11;
    const COMPAT: u16 = 8;
    const PRIORITY: u16 = types::message::PRIORITY_HIGH;

    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.paxos);
        w.put(&self.server_addrs);
        w.u64(self.gid);
        w.bool(self.available);
        w.put(&self.name);
        w.put(&self.fsid);
        let names: BTreeSet<String> = self.modules.iter().map(|m| m.name.clone()).collect();
        w.put(&names);
        w.put(&self.command_descs);
        w.put(&self.metadata);
        w.put(&self.services);
        w.put(&self.modules);
        w.u64(self.mgr_features);
        let (names, addrs): (Vec<String>, Vec<AddrVec>) = self.clients.iter().cloned().unzip();
        w.put(&addrs);
        w.put(&names);
    }

    fn decode_front(r: &mut Reader<'_>, header: &MsgHeader, _: &Bytes) -> Result<Self, Error> {
        let mut beacon = MMgrBeacon {
            paxos: r.get()?,
            server_addrs: r.get()?,
            gid: r.u64()?,
            available: r.bool()?,
            name: r.get()?,
            fsid: r.get()?,
            ..MMgrBeacon::default()
        };
        let _: BTreeSet<String> = r.get()?;
        beacon.command_descs = r.get()?;
        beacon.metadata = r.get()?;
        beacon.services = r.get()?;
        beacon.modules = r.get()?;
        if header.version >= 9 {
            beacon.mgr_features = r.u64()?;
        }
        if header.version >= 10 {
            let addrs: Vec<AddrVec> = r.get()?;
            let names: Vec<String> =
                if header.version >= 11 { r.get()? } else { vec![String::new(); addrs.len()] };
            if names.len() != addrs.len() {
                return Err(Error::Invalid {
                    what: "clients of a mgr beacon",
                    value: names.len() as u64,
                });
            }
            beacon.clients = names.into_iter().zip(addrs).collect();
        }
        Ok(beacon)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beacon_survives_the_wire() {
        let beacon = MMgrBeacon {
            gid: 4123,
            available: true,
            name: "x".into(),
            command_descs: vec![MonCommand {
                cmdstring: "pg stat".into(),
                helpstring: "counts".into(),
                module: "pg".into(),
                req_perms: "r".into(),
                flags: 8,
            }],
            metadata: [("arch".to_owned(), "x86_64".to_owned())].into(),
            modules: vec![ModuleInfo {
                name: "status".into(),
                can_run: true,
                ..Default::default()
            }],
            clients: vec![("status".into(), AddrVec::default())],
            ..MMgrBeacon::default()
        };
        assert_eq!(MMgrBeacon::decode(&beacon.encode()).unwrap(), beacon);
    }

    #[test]
    fn a_command_is_written_as_ceph_writes_it() {
        // From the object corpus of 16.2.0.
        let command = MonCommand {
            cmdstring: "pg stat".into(),
            helpstring: "show placement group status.".into(),
            module: "pg".into(),
            req_perms: "r".into(),
            flags: 8,
        };
        let mut w = Writer::new();
        w.put(&command);
        let golden = b"\x01\x01J\0\0\0\x07\0\0\0pg stat\x1c\0\0\0show placement group status.\
            \x02\0\0\0pg\x01\0\0\0r\x08\0\0\0cli,rest\x08\0\0\0\0\0\0\0";
        assert_eq!(&w.into_bytes()[..], &golden[..]);
    }
}
