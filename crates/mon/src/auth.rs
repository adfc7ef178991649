//! Entities, rotating secrets and global ids (`src/mon/AuthMonitor.cc` at v16.2). The commands
//! are in `commands/auth.rs`, the handshake in `shell/auth_server.rs`.

use auth::cephx::{MonRules, answer_in_session};
use auth::{CryptoKey, EntityAuth, KeyServer, KeyServerData, TicketLifetimes};
use bytes::Bytes;
use config::Config;
use denc::Denc;
use messages::{MAuth, MAuthReply};
use store::{Kv, KvBatch, KvError};
use types::{AuthEntityName, Errno, RawMessage, UTime};

use crate::core::{LoadError, MonCore};
use crate::event::wire;
use crate::event::{Effect, SessionId};
use crate::layout::{self, AUTH};
use crate::standing::Role;

/// Global ids below are for monitors and old clients.
const GLOBAL_ID_MIN: u64 = 4096;
/// Ids reserved with one commit.
const GLOBAL_ID_PREALLOC: u64 = 10_000;

/// Numbers of clients and daemons. They are reserved in the log by the thousand, for one monitor
/// each, and then given out from memory; what is left of a reservation when a monitor stops is
/// never used.
#[derive(Debug, Clone, Default)]
pub(crate) struct GlobalIds {
    next: u64,
    /// Ours go up to here.
    end: u64,
    /// Ours when those are used up.
    spare: Option<(u64, u64)>,
    /// More have been asked for.
    asked: bool,
    /// All below are reserved, by what is pending at the latest.
    max: u64,
    /// Reservations in the pending and in the proposed batch: for which monitor (0: us), from, to.
    pending: Vec<(u64, u64, u64)>,
    proposed: Vec<(u64, u64, u64)>,
}

impl GlobalIds {
    pub(crate) fn load(kv: &dyn Kv) -> Result<GlobalIds, KvError> {
        let max = layout::get_u64(kv, AUTH, "max_global_id")?.unwrap_or(GLOBAL_ID_MIN);
        Ok(GlobalIds { max, ..GlobalIds::default() })
    }

    /// Loads again what is committed; numbers that are ours stay so.
    pub(crate) fn reload(&mut self, kv: &dyn Kv) -> Result<(), KvError> {
        let GlobalIds { next, end, spare, .. } = std::mem::take(self);
        *self = GlobalIds { next, end, spare, ..GlobalIds::load(kv)? };
        Ok(())
    }

    pub(crate) fn on_proposed(&mut self) {
        self.proposed.append(&mut self.pending);
    }

    fn grant(&mut self, from: u64, to: u64) {
        self.asked = false;
        if self.next < self.end {
            self.spare = Some((from, to));
        } else {
            (self.next, self.end) = (from, to);
        }
    }

    fn left(&self) -> u64 {
        self.end - self.next + self.spare.map_or(0, |(from, to)| to - from)
    }
}

/// The key of an entity's record.
pub(crate) fn entity_key(name: &AuthEntityName) -> Bytes {
    layout::key(AUTH, &format!("entity_{name}"))
}

/// Has global ids begin where none was given before. They name clients in the logs of placement groups, where an
/// operation of one that had been another's would count as done. The milliseconds since 1970 are more than a
/// cluster can have given out.
pub(crate) fn put_ids_of_another_life(batch: &mut KvBatch, now: UTime) {
    let millis = u64::from(now.sec) * 1000 + u64::from(now.nsec / 1_000_000);
    layout::put_u64(batch, AUTH, "max_global_id", millis);
}

/// Writes an entity.
pub(crate) fn put_entity(batch: &mut KvBatch, name: &AuthEntityName, auth: &EntityAuth) {
    batch.put(entity_key(name), auth.to_bytes());
}

pub(crate) fn load_keys(kv: &dyn Kv, conf: &Config) -> Result<KeyServer, LoadError> {
    let mut data = KeyServerData::default();
    for (key, value) in layout::all(kv, AUTH)? {
        let decode = |error| LoadError::Decode { what: format!("auth/{key}"), error };
        if let Some(name) = key.strip_prefix("entity_") {
            let name: AuthEntityName = name
                .parse()
                .map_err(|_| LoadError::Inconsistent { what: format!("auth/{key}") })?;
            data.secrets.insert(name, EntityAuth::from_bytes(&value).map_err(decode)?);
        } else if key == "rotating" {
            data.decode_rotating(&value).map_err(decode)?;
        }
    }
    let mut extra = auth::Keyring::new();
    if let Some(bytes) = layout::get(kv, AUTH, "mon_keyring")? {
        extra = auth::Keyring::from_bytes(&bytes)
            .map_err(|error| LoadError::Decode { what: "auth/mon_keyring".into(), error })?;
    }
    Ok(KeyServer { data, extra, lifetimes: lifetimes(conf) })
}

fn lifetimes(conf: &Config) -> TicketLifetimes {
    TicketLifetimes {
        auth: UTime::from_secs_f64(conf.float("auth_mon_ticket_ttl")),
        service: UTime::from_secs_f64(conf.float("auth_service_ticket_ttl")),
    }
}

impl MonCore {
    /// A number for somebody new; `None` while a reservation is under way.
    pub fn new_global_id(&mut self) -> Option<u64> {
        if self.auth_ids.left() < GLOBAL_ID_PREALLOC / 2 {
            self.want_ids();
        }
        let ids = &mut self.auth_ids;
        if ids.next >= ids.end {
            (ids.next, ids.end) = ids.spare.take()?;
        }
        ids.next += 1;
        Some(ids.next - 1)
    }

    /// Whether somebody new could be given a number.
    pub fn has_global_ids(&self) -> bool {
        self.auth_ids.left() > 0
    }

    /// Sees to it that there will be more numbers.
    pub(crate) fn want_ids(&mut self) {
        if std::mem::replace(&mut self.auth_ids.asked, true) {
            return;
        }
        match self.standing.role {
            Role::Leader => self.reserve_ids(0),
            Role::Peon => self.effect(Effect::WantIds),
            Role::Out => self.auth_ids.asked = false,
        }
    }

    /// Reserves numbers for a monitor; 0 is this one.
    pub(crate) fn reserve_ids(&mut self, whom: u64) {
        let from = self.auth_ids.max;
        let to = from + GLOBAL_ID_PREALLOC;
        self.auth_ids.max = to;
        self.auth_ids.pending.push((whom, from, to));
        layout::put_u64(self.batch(), AUTH, "max_global_id", to);
    }

    /// Reservations are committed.
    pub(crate) fn ids_committed(&mut self) {
        for (whom, from, to) in std::mem::take(&mut self.auth_ids.proposed) {
            match whom {
                0 => self.auth_ids.grant(from, to),
                _ => self.effect(Effect::GrantIds(whom, (from, to))),
            }
        }
    }

    /// The leader has reserved numbers for us.
    pub fn take_ids(&mut self, (from, to): (u64, u64)) {
        self.auth_ids.grant(from, to);
    }

    /// The leader is another one: what was asked of the last one may not come.
    pub(crate) fn ask_ids_again(&mut self) {
        self.auth_ids.asked = false;
        if self.auth_ids.left() < GLOBAL_ID_PREALLOC / 2 {
            self.want_ids();
        }
    }

    /// What a monitor that begins to lead does first: reserve ids, make rotating secrets.
    pub(crate) fn auth_begin(&mut self) {
        self.ask_ids_again();
        self.tick_auth();
    }

    pub(crate) fn tick_auth(&mut self) {
        let due = {
            let mut keys = self.keys.borrow_mut();
            keys.lifetimes = lifetimes(&self.conf);
            keys.rotation_due(self.now.wall, &*self.fill)
        };
        if let Some(rotating) = due {
            let taken = self.keys.borrow_mut().data.decode_rotating(&rotating);
            debug_assert!(taken.is_ok(), "own encoding");
            self.batch().put(layout::key(AUTH, "rotating"), rotating);
        }
    }

    /// A new random key.
    pub(crate) fn new_key(&self) -> CryptoKey {
        CryptoKey::generate(&*self.fill, self.now.wall)
    }

    /// Adds or replaces an entity.
    pub(crate) fn auth_put(&mut self, name: &AuthEntityName, auth: EntityAuth) {
        put_entity(self.batch(), name, &auth);
        self.keys.borrow_mut().data.secrets.insert(name.clone(), auth);
    }

    /// Removes an entity; says whether it was there.
    pub(crate) fn auth_remove(&mut self, name: &AuthEntityName) -> bool {
        self.batch().delete(entity_key(name));
        self.keys.borrow_mut().data.secrets.remove(name).is_some()
    }

    /// MAuth inside an open session: rotating secrets, renewed tickets.
    pub(crate) fn on_auth(&mut self, from: SessionId, raw: &RawMessage, request: MAuth) {
        let Some(session) = self.sessions.get(&from) else { return };
        let peer = session.peer.clone();
        let result = {
            let keys = self.keys.borrow();
            let rules = MonRules {
                keys: &keys,
                now: self.now.wall,
                fill: &*self.fill,
                allow_insecure_reclaim: self.conf.bool("auth_allow_insecure_global_id_reclaim"),
            };
            match &peer.handshake {
                Some(handshake) => handshake.answer_in_session(&request.payload, &rules),
                None => answer_in_session(&peer.auth_name, &request.payload, &rules),
            }
        };
        let mut reply = MAuthReply {
            protocol: request.protocol,
            global_id: peer.global_id,
            ..MAuthReply::default()
        };
        match result {
            Ok(payload) => reply.payload = payload,
            Err(error) => {
                reply.result = -Errno::EACCES.0;
                reply.message = error.to_string();
            }
        }
        self.send(from, wire(&reply).with_tid(raw.header.tid));
    }
}
