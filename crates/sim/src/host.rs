//! Hosts: what outlives a process.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use env::within::Within;

use crate::disk::DiskModel;
use crate::image::Unsynced;
use crate::process::Process;

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kill {
    /// What the other ends of its connections see.
    pub sockets: Sockets,
    /// What becomes of writes not yet synced.
    pub unsynced: Unsynced,
}

/// What peers see of a killed process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sockets {
    /// Connections end and new ones are refused, as when the kernel cleans up.
    End,
    /// Nothing at all, as when the host is gone: until it is back, nothing is answered.
    Silence,
}

impl Kill {
    /// kill -9: sockets end, all completed writes survive.
    pub const PROCESS: Kill = Kill { sockets: Sockets::End, unsynced: Unsynced::Kept };
    /// Power loss: silence, unsynced writes torn.
    pub const POWER: Kill = Kill { sockets: Sockets::Silence, unsynced: Unsynced::Torn };
}

/// A host.
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) ip: IpAddr,
    pub(crate) process: Option<Rc<Process>>,
    /// Whether its kernel answers: refuses connections, resets unknown ones.
    pub(crate) up: bool,
    pub(crate) wall_skew_nanos: i64,
    pub(crate) drift_ppm: i32,
    pub(crate) next_port: u16,
    pub(crate) disk_model: DiskModel,
    /// What its process shares with those of other hosts ([`crate::Control::share_process`]).
    pub(crate) shared: Option<Rc<RefCell<Within>>>,
}

impl Host {
    pub(crate) fn new(name: &str, index: usize, disk_model: DiskModel) -> Host {
        let [.., high, low] = (index as u32).to_be_bytes();
        Host {
            name: name.to_owned(),
            ip: Ipv4Addr::new(10, 0, high, low).into(),
            process: None,
            up: true,
            wall_skew_nanos: 0,
            drift_ppm: 0,
            next_port: EPHEMERAL_MIN,
            disk_model,
            shared: None,
        }
    }

    /// Whether both are of one shared process.
    pub(crate) fn shares_process(&self, other: &Host) -> bool {
        let both = self.shared.as_ref().zip(other.shared.as_ref());
        both.is_some_and(|(one, other)| Rc::ptr_eq(one, other))
    }

    pub(crate) fn ephemeral_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = port.checked_add(1).unwrap_or(EPHEMERAL_MIN);
        port
    }
}

/// First port of outgoing connections and of listeners that leave the choice.
const EPHEMERAL_MIN: u16 = 32768;
