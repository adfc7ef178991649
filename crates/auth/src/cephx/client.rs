//! A client's (or daemon's) side with the monitors: proves its key, holds and renews tickets.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{Denc, Reader, Writer};
use types::entity::{self, AuthEntityName};
use types::time::UTime;

use super::authorizer::Authorizer;
use super::mon::StartRequest;
use super::wire::{
    Authenticate, ResponseHeader, ServerChallenge, ServiceTicketRequest, decode_ticket_reply,
    proof, request,
};
use crate::crypto::FillRandom;
use crate::rotating::{minus, plus};
use crate::{AuthError, CryptoKey, RotatingSecrets, TicketBlob};

/// A ticket in hand.
#[derive(Debug, Clone)]
pub struct HeldTicket {
    /// Key shared with the service.
    pub session_key: CryptoKey,
    /// The sealed ticket.
    pub blob: TicketBlob,
    /// When to ask for another: at three quarters of its life.
    pub renew_after: UTime,
    /// When it ends.
    pub expires: UTime,
}

/// An entity with its key, its global id and its tickets.
#[derive(Debug, Clone)]
pub struct CephxClient {
    name: AuthEntityName,
    key: CryptoKey,
    global_id: u64,
    /// One per service that exists: at most 8.
    tickets: BTreeMap<u32, HeldTicket>,
}

const AUTH: u32 = entity::AUTH as u32;

impl CephxClient {
    /// An entity that has nothing but its key.
    pub fn new(name: AuthEntityName, key: CryptoKey) -> CephxClient {
        CephxClient { name, key, global_id: 0, tickets: BTreeMap::new() }
    }

    /// The entity.
    pub fn name(&self) -> &AuthEntityName {
        &self.name
    }

    /// Its number in the cluster; 0 before the first authentication.
    pub fn global_id(&self) -> u64 {
        self.global_id
    }

    /// The ticket for a service.
    pub fn ticket(&self, service: u8) -> Option<&HeldTicket> {
        self.tickets.get(&u32::from(service))
    }

    /// Payload of AUTH_REQUEST to a monitor.
    pub fn start(&self) -> Bytes {
        StartRequest { name: self.name.clone(), global_id: self.global_id }.to_bytes()
    }

    /// AUTH_REPLY_MORE has come: payload of AUTH_REQUEST_MORE. `want` are the services to get
    /// tickets for (bits of entity types).
    pub fn on_challenge(
        &self,
        payload: &Bytes,
        want: u32,
        fill: FillRandom<'_>,
    ) -> Result<Bytes, AuthError> {
        let challenge = ServerChallenge::from_bytes(payload)?;
        let mut client_challenge = [0; 8];
        fill(&mut client_challenge);
        let client_challenge = u64::from_le_bytes(client_challenge);
        let old_ticket = self.tickets.get(&AUTH).map(|held| held.blob.clone()).unwrap_or_default();
        let mut w = Writer::new();
        w.u16(request::AUTH_SESSION_KEY);
        Authenticate {
            version: 3,
            client_challenge,
            key: proof(&self.key, challenge.server_challenge, client_challenge),
            old_ticket,
            other_keys: want | AUTH,
        }
        .encode(&mut w);
        Ok(w.into_bytes())
    }

    /// AUTH_DONE of a monitor has come: takes the tickets; session key and connection secret.
    pub fn on_done(
        &mut self,
        global_id: u64,
        payload: &Bytes,
        now: UTime,
    ) -> Result<(CryptoKey, Bytes), AuthError> {
        let mut r = Reader::new(payload);
        expect(&mut r, request::AUTH_SESSION_KEY)?;
        let old_key = self.tickets.get(&AUTH).map(|held| held.session_key.clone());
        let key = self.key.clone();
        self.take_tickets(&key, old_key.as_ref(), &mut r, now)?;
        self.global_id = global_id;
        let session_key = match self.tickets.get(&AUTH) {
            Some(held) => held.session_key.clone(),
            None => return Err(AuthError::NoTicket { service: AUTH }),
        };
        let mut secret = Bytes::new();
        if r.remaining() > 0 {
            let sealed = r.blob()?;
            if !sealed.is_empty() {
                secret = session_key.open(Reader::new(&sealed).blob_slice()?)?;
            }
            let extra = r.blob()?;
            if !extra.is_empty() {
                self.take_tickets(&session_key, None, &mut Reader::new(&extra), now)?;
            }
        }
        Ok((session_key, secret))
    }

    fn take_tickets(
        &mut self,
        key: &CryptoKey,
        old_session_key: Option<&CryptoKey>,
        r: &mut Reader<'_>,
        now: UTime,
    ) -> Result<(), AuthError> {
        for got in decode_ticket_reply(key, old_session_key, r)? {
            if got.service > u32::from(u8::MAX) {
                continue;
            }
            let validity = got.ticket.validity;
            let expires = plus(now, validity);
            let quarter = UTime::from_duration(validity.to_duration() / 4);
            let held = HeldTicket {
                session_key: got.ticket.session_key,
                blob: got.blob,
                renew_after: minus(expires, quarter),
                expires,
            };
            self.tickets.insert(got.service, held);
        }
        Ok(())
    }

    /// Which of the wanted services lack a ticket, or have one due for renewal.
    pub fn needs(&self, want: u32, now: UTime) -> u32 {
        (0..8)
            .map(|bit| 1_u32 << bit)
            .filter(|service| want & service != 0)
            .filter(|service| self.tickets.get(service).is_none_or(|held| held.renew_after <= now))
            .sum()
    }

    /// When the first of the tickets held is due for renewal.
    pub fn next_renewal(&self) -> Option<UTime> {
        self.tickets.values().map(|held| held.renew_after).min()
    }

    /// Whether the auth ticket itself is at its end: renew by a new handshake, not by
    /// [`CephxClient::renew_request`].
    pub fn must_authenticate(&self, now: UTime) -> bool {
        self.tickets.get(&AUTH).is_none_or(|held| held.renew_after <= now)
    }

    /// MAuth payload that renews tickets for `keys`.
    pub fn renew_request(&self, keys: u32, fill: FillRandom<'_>) -> Result<Bytes, AuthError> {
        let authorizer = self.authorizer(entity::AUTH, fill)?;
        let mut w = Writer::new();
        w.u16(request::PRINCIPAL_SESSION_KEY);
        w.raw(&authorizer.request());
        ServiceTicketRequest { keys }.encode(&mut w);
        Ok(w.into_bytes())
    }

    /// MAuth payload that asks for the own service's rotating secrets.
    pub fn rotating_request() -> Bytes {
        request::ROTATING_KEY.to_bytes()
    }

    /// MAuthReply has come: takes renewed tickets, or gives the rotating secrets.
    pub fn on_reply(
        &mut self,
        payload: &Bytes,
        now: UTime,
    ) -> Result<Option<RotatingSecrets>, AuthError> {
        let mut r = Reader::new(payload);
        let header: ResponseHeader = r.get()?;
        if header.status != 0 {
            return Err(AuthError::Refused { errno: header.status.saturating_neg() });
        }
        match header.request {
            request::PRINCIPAL_SESSION_KEY => {
                let held = self.tickets.get(&AUTH).ok_or(AuthError::NoTicket { service: AUTH })?;
                let key = held.session_key.clone();
                self.take_tickets(&key, None, &mut r, now)?;
                Ok(None)
            }
            request::ROTATING_KEY => Ok(Some(self.key.open(r.blob_slice()?)?)),
            _ => Err(AuthError::OutOfOrder),
        }
    }

    /// An authorizer for a service.
    pub fn authorizer(&self, service: u8, fill: FillRandom<'_>) -> Result<Authorizer, AuthError> {
        let service = u32::from(service);
        let held = self.tickets.get(&service).ok_or(AuthError::NoTicket { service })?;
        let mut nonce = [0; 8];
        fill(&mut nonce);
        Ok(Authorizer::new(
            self.global_id,
            service,
            &held.blob,
            held.session_key.clone(),
            u64::from_le_bytes(nonce),
        ))
    }

    /// Drops all tickets (the monitors refused the old one); the global id goes with them.
    pub fn forget_all(&mut self) {
        self.tickets.clear();
        self.global_id = 0;
    }
}

fn expect(r: &mut Reader<'_>, kind: u16) -> Result<(), AuthError> {
    let header: ResponseHeader = r.get()?;
    if header.status != 0 {
        return Err(AuthError::Refused { errno: header.status.saturating_neg() });
    }
    if header.request == kind { Ok(()) } else { Err(AuthError::OutOfOrder) }
}
