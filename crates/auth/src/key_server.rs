//! The monitors' key store: entities with keys and caps, and the services' rotating secrets.
//! State only; a monitor commits changes through its log and applies them here
//! (src/auth/cephx/CephxKeyServer.{h,cc} at v16.2).

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::entity::{self, AuthEntityName};
use types::time::UTime;

use crate::crypto::FillRandom;
use crate::keyring::{EntityAuth, Keyring};
use crate::rotating::{RotatingSecrets, minus};
use crate::ticket::check_version;
use crate::{AuthCapsInfo, AuthError, AuthTicket, CryptoKey};

/// Services that have rotating secrets, in the order in which they are rotated.
pub const SERVICES: [u8; 5] = [entity::AUTH, entity::MON, entity::OSD, entity::MDS, entity::MGR];

/// How long tickets last. Ceph's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TicketLifetimes {
    /// `auth_mon_ticket_ttl`, 72 h.
    pub auth: UTime,
    /// `auth_service_ticket_ttl`, 1 h.
    pub service: UTime,
}

impl Default for TicketLifetimes {
    fn default() -> TicketLifetimes {
        TicketLifetimes { auth: UTime::new(72 * 3600, 0), service: UTime::new(3600, 0) }
    }
}

impl TicketLifetimes {
    /// Lifetime of a ticket for that service.
    pub fn of(&self, service: u8) -> UTime {
        if service == entity::AUTH { self.auth } else { self.service }
    }
}

/// Everything that is persistent. Wire: KeyServerData.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyServerData {
    /// Version of the monitors' auth state.
    pub version: u64,
    /// Raised by each rotation.
    pub rotating_ver: u64,
    /// Entities.
    pub secrets: BTreeMap<AuthEntityName, EntityAuth>,
    /// By service (entity type).
    pub rotating: BTreeMap<u32, RotatingSecrets>,
}

impl Denc for KeyServerData {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u64(self.version);
        w.u64(self.rotating_ver);
        self.secrets.encode(w);
        self.rotating.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<KeyServerData, Error> {
        check_version(r, "KeyServerData version", 1)?;
        Ok(KeyServerData {
            version: r.get()?,
            rotating_ver: r.get()?,
            secrets: r.get()?,
            rotating: r.get()?,
        })
    }
}

impl KeyServerData {
    /// The rotating part alone, as an increment carries it.
    pub fn encode_rotating(&self) -> Bytes {
        let mut w = Writer::new();
        w.u8(1);
        w.u64(self.rotating_ver);
        self.rotating.encode(&mut w);
        w.into_bytes()
    }

    /// Takes the rotating part over.
    pub fn decode_rotating(&mut self, bytes: &Bytes) -> Result<(), Error> {
        let mut r = Reader::new(bytes);
        check_version(&mut r, "rotating secrets version", 1)?;
        (self.rotating_ver, self.rotating) = (r.u64()?, r.get()?);
        Ok(())
    }

    /// Applies an increment.
    pub fn apply(&mut self, increment: &KeyIncrement) -> Result<(), Error> {
        match increment {
            KeyIncrement::Nop => {}
            KeyIncrement::Add(name, auth) => {
                self.secrets.insert(name.clone(), auth.clone());
            }
            KeyIncrement::Del(name) => {
                self.secrets.remove(name);
            }
            KeyIncrement::SetRotating(bytes) => self.decode_rotating(bytes)?,
        }
        Ok(())
    }
}

/// A change. Wire: KeyServerData::Incremental.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyIncrement {
    /// Nothing.
    Nop,
    /// An entity is added or replaced.
    Add(AuthEntityName, EntityAuth),
    /// An entity is removed.
    Del(AuthEntityName),
    /// New rotating secrets ([`KeyServerData::encode_rotating`]).
    SetRotating(Bytes),
}

const OP_NOP: u32 = 0;
const OP_ADD: u32 = 1;
const OP_DEL: u32 = 2;
const OP_SET_ROTATING: u32 = 3;

impl Denc for KeyIncrement {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        match self {
            KeyIncrement::SetRotating(bytes) => {
                w.u32(OP_SET_ROTATING);
                w.blob(bytes);
            }
            KeyIncrement::Nop => {
                w.u32(OP_NOP);
                AuthEntityName::default().encode(w);
                EntityAuth::default().encode(w);
            }
            KeyIncrement::Add(name, auth) => {
                w.u32(OP_ADD);
                name.encode(w);
                auth.encode(w);
            }
            KeyIncrement::Del(name) => {
                w.u32(OP_DEL);
                name.encode(w);
                EntityAuth::default().encode(w);
            }
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<KeyIncrement, Error> {
        check_version(r, "KeyServerData::Incremental version", 1)?;
        let op = r.u32()?;
        if op == OP_SET_ROTATING {
            return Ok(KeyIncrement::SetRotating(r.blob()?));
        }
        let name = r.get()?;
        let auth = r.get()?;
        match op {
            OP_NOP => Ok(KeyIncrement::Nop),
            OP_ADD => Ok(KeyIncrement::Add(name, auth)),
            OP_DEL => Ok(KeyIncrement::Del(name)),
            _ => Err(Error::Invalid { what: "auth increment", value: u64::from(op) }),
        }
    }
}

/// The key store with what is not persistent.
#[derive(Debug, Clone, Default)]
pub struct KeyServer {
    /// The persistent part.
    pub data: KeyServerData,
    /// Keys from the monitor's own keyring file (`mon.`), looked up after the others.
    pub extra: Keyring,
    /// How long tickets last.
    pub lifetimes: TicketLifetimes,
}

/// What a ticket is made from.
#[derive(Debug, Clone)]
pub struct SessionAuthInfo {
    /// Entity type of the service.
    pub service: u32,
    /// Which of the service's secrets seals the ticket.
    pub secret_id: u64,
    /// That secret.
    pub service_secret: CryptoKey,
    /// Who, until when, with which caps.
    pub ticket: AuthTicket,
    /// Key shared by holder and service.
    pub session_key: CryptoKey,
    /// Lifetime as told to the holder.
    pub validity: UTime,
}

/// Gives the secrets that open tickets.
pub trait ServiceSecrets {
    /// The rotating secret of that id.
    fn service_secret(&self, service: u32, id: u64) -> Option<CryptoKey>;
    /// The entity's own key (tickets sealed with a service's own key, monitors among themselves).
    fn own_secret(&self, name: &AuthEntityName) -> Option<CryptoKey>;
}

impl ServiceSecrets for KeyServer {
    fn service_secret(&self, service: u32, id: u64) -> Option<CryptoKey> {
        self.data.rotating.get(&service)?.secret(id).cloned()
    }
    fn own_secret(&self, name: &AuthEntityName) -> Option<CryptoKey> {
        // With an empty key anybody could make tickets.
        let auth = self.auth(name).filter(|auth| !auth.key.is_empty());
        auth.map(|auth| auth.key.clone())
    }
}

/// What opens authorizers at a monitor: the key of `mon.`, by which other monitors prove themselves.
/// A ticket for a service says what its holder may do there, and opens nothing here
/// (src/mon/Monitor.cc at v16.2: handle_auth_request looks into its keyring file alone).
#[derive(Debug)]
pub struct MonSecrets<'a>(pub &'a KeyServer);

impl ServiceSecrets for MonSecrets<'_> {
    fn service_secret(&self, _: u32, _: u64) -> Option<CryptoKey> {
        None
    }
    fn own_secret(&self, name: &AuthEntityName) -> Option<CryptoKey> {
        let mon = *name == AuthEntityName::new(entity::MON, "");
        if mon { self.0.own_secret(name) } else { None }
    }
}

impl KeyServer {
    /// The entity's key and caps.
    pub fn auth(&self, name: &AuthEntityName) -> Option<&EntityAuth> {
        self.data.secrets.get(name).or_else(|| self.extra.keys.get(name))
    }

    /// The entity's caps at a service (by its name); empty when it has none there.
    pub fn caps(&self, name: &AuthEntityName, service: &str) -> Result<AuthCapsInfo, AuthError> {
        let auth = self.auth(name).ok_or(AuthError::UnknownEntity)?;
        let caps = auth.caps.get(service).cloned().unwrap_or_default();
        Ok(AuthCapsInfo { allow_all: false, caps })
    }

    /// Secret with which tickets for the service are sealed now, its id, and how long a ticket may
    /// last (never beyond the secret).
    pub fn current_secret(
        &self,
        service: u8,
        now: UTime,
    ) -> Result<(u64, CryptoKey, UTime), AuthError> {
        let (id, key) = self
            .data
            .rotating
            .get(&u32::from(service))
            .and_then(|secrets| secrets.current(now))
            .ok_or(AuthError::UnknownSecret { service: service.into(), id: 0 })?;
        let ttl = self.lifetimes.of(service).min(minus(key.expiration, now));
        Ok((id, key.key.clone(), ttl))
    }

    /// A ticket for `service`, for the holder of `parent`, with the caps it has there.
    pub fn session_auth_info(
        &self,
        service: u8,
        parent: &AuthTicket,
        now: UTime,
        fill: FillRandom<'_>,
    ) -> Result<SessionAuthInfo, AuthError> {
        let (secret_id, service_secret, ttl) = self.current_secret(service, now)?;
        self.sealed_with(service, parent, (secret_id, service_secret, ttl), now, fill)
    }

    /// The same, sealed with a key the caller gives, of secret id 2^64-1: a monitor makes its own
    /// tickets for other monitors with the key of `mon.`.
    pub fn self_sealed_auth_info(
        &self,
        service: u8,
        parent: &AuthTicket,
        secret: CryptoKey,
        now: UTime,
        fill: FillRandom<'_>,
    ) -> Result<SessionAuthInfo, AuthError> {
        self.sealed_with(service, parent, (u64::MAX, secret, self.lifetimes.service), now, fill)
    }

    fn sealed_with(
        &self,
        service: u8,
        parent: &AuthTicket,
        (secret_id, service_secret, ttl): (u64, CryptoKey, UTime),
        now: UTime,
        fill: FillRandom<'_>,
    ) -> Result<SessionAuthInfo, AuthError> {
        let mut ticket = parent.clone();
        ticket.created = now;
        ticket.expires = crate::rotating::plus(now, ttl);
        // Monitors look caps up themselves: their tickets carry none.
        if service != entity::MON {
            ticket.caps = self.caps(&ticket.name, entity::kind_name(service))?;
        }
        Ok(SessionAuthInfo {
            service: service.into(),
            secret_id,
            service_secret,
            ticket,
            session_key: CryptoKey::generate(fill, now),
            validity: ttl,
        })
    }

    /// The rotating part after the rotations that are due, to be committed as
    /// [`KeyIncrement::SetRotating`]; `None` if none is due. Nothing is changed here.
    pub fn rotation_due(&self, now: UTime, fill: FillRandom<'_>) -> Option<Bytes> {
        let mut next = self.data.clone();
        let mut added = 0;
        for service in SERVICES {
            let ttl = self.lifetimes.of(service);
            let secrets = next.rotating.entry(service.into()).or_default();
            added += secrets.rotate(now, ttl, || CryptoKey::generate(fill, now));
        }
        next.rotating_ver += 1;
        (added > 0).then(|| next.encode_rotating())
    }

    /// A daemon's rotating secrets, sealed with its own key: the answer to a request for them.
    pub fn rotating_sealed(&self, name: &AuthEntityName) -> Result<Bytes, AuthError> {
        let key = &self.auth(name).ok_or(AuthError::UnknownEntity)?.key;
        let secrets = self
            .data
            .rotating
            .get(&name.kind)
            .ok_or(AuthError::UnknownSecret { service: name.kind, id: 0 })?;
        Ok(key.seal(|w| secrets.encode(w)))
    }
}
