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
use crate::event::SessionId;
use crate::event::wire;
use crate::layout::{self, AUTH};

/// Global ids below are for monitors and old clients.
const GLOBAL_ID_MIN: u64 = 4096;
/// Ids reserved with one commit.
const GLOBAL_ID_PREALLOC: u64 = 10_000;

/// Numbers of clients and daemons. Ids are reserved in the log by the thousand and then given
/// out from memory; what is left of a reservation when a monitor stops is never used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GlobalIds {
    next: u64,
    /// Committed bound.
    reserved: u64,
    /// Bound in the pending batch.
    wanted: u64,
}

impl GlobalIds {
    pub(crate) fn load(kv: &dyn Kv) -> Result<GlobalIds, KvError> {
        let reserved = layout::get_u64(kv, AUTH, "max_global_id")?.unwrap_or(GLOBAL_ID_MIN);
        Ok(GlobalIds {
            next: reserved,
            reserved,
            wanted: reserved,
        })
    }
}

/// The key of an entity's record.
pub(crate) fn entity_key(name: &AuthEntityName) -> Bytes {
    layout::key(AUTH, &format!("entity_{name}"))
}

/// Writes an entity.
pub(crate) fn put_entity(batch: &mut KvBatch, name: &AuthEntityName, auth: &EntityAuth) {
    batch.put(entity_key(name), auth.to_bytes());
}

pub(crate) fn load_keys(kv: &dyn Kv, conf: &Config) -> Result<KeyServer, LoadError> {
    let mut data = KeyServerData::default();
    for (key, value) in layout::all(kv, AUTH)? {
        let decode = |error| LoadError::Decode {
            what: format!("auth/{key}"),
            error,
        };
        if let Some(name) = key.strip_prefix("entity_") {
            let name: AuthEntityName = name.parse().map_err(|_| LoadError::Inconsistent {
                what: format!("auth/{key}"),
            })?;
            data.secrets
                .insert(name, EntityAuth::from_bytes(&value).map_err(decode)?);
        } else if key == "rotating" {
            data.decode_rotating(&value).map_err(decode)?;
        }
    }
    let mut extra = auth::Keyring::new();
    if let Some(bytes) = layout::get(kv, AUTH, "mon_keyring")? {
        extra = auth::Keyring::from_bytes(&bytes).map_err(|error| LoadError::Decode {
            what: "auth/mon_keyring".into(),
            error,
        })?;
    }
    Ok(KeyServer {
        data,
        extra,
        lifetimes: lifetimes(conf),
    })
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
        if self.auth_ids.next >= self.auth_ids.reserved {
            self.reserve_global_ids();
            return None;
        }
        let id = self.auth_ids.next;
        self.auth_ids.next += 1;
        if self.auth_ids.reserved - self.auth_ids.next < GLOBAL_ID_PREALLOC / 2 {
            self.reserve_global_ids();
        }
        Some(id)
    }

    fn reserve_global_ids(&mut self) {
        if self.auth_ids.wanted > self.auth_ids.reserved {
            return;
        }
        let wanted = self.auth_ids.reserved + GLOBAL_ID_PREALLOC;
        self.auth_ids.wanted = wanted;
        layout::put_u64(self.batch(), AUTH, "max_global_id", wanted);
    }

    /// After a commit that has no other pending behind it, the reservation holds.
    pub(crate) fn auth_committed(&mut self) {
        if let Ok(Some(max)) = layout::get_u64(&*self.kv, AUTH, "max_global_id") {
            self.auth_ids.reserved = max;
        }
    }

    /// What a monitor that begins to lead does first: reserve ids, make rotating secrets.
    pub(crate) fn auth_begin(&mut self) {
        self.reserve_global_ids();
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
        self.keys
            .borrow_mut()
            .data
            .secrets
            .insert(name.clone(), auth);
    }

    /// Removes an entity; says whether it was there.
    pub(crate) fn auth_remove(&mut self, name: &AuthEntityName) -> bool {
        self.batch().delete(entity_key(name));
        self.keys.borrow_mut().data.secrets.remove(name).is_some()
    }

    /// MAuth inside an open session: rotating secrets, renewed tickets.
    pub(crate) fn on_auth(&mut self, from: SessionId, raw: &RawMessage, request: MAuth) {
        let Some(session) = self.sessions.get(&from) else {
            return;
        };
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
