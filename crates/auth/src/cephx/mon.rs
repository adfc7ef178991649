//! The monitor's side: challenge, proof, tickets; and requests inside an open session.

use bytes::Bytes;
use denc::{Denc, Reader, Writer};
use types::entity::{self, AuthEntityName};
use types::time::UTime;

use super::service::open_authorizer;
use super::wire::{
    AUTH_MODE_MON, Authenticate, ResponseHeader, ServerChallenge, ServiceTicketRequest,
    encode_ticket_reply, proof, random_secret, request,
};
use crate::crypto::{FillRandom, random_nonzero};
use crate::key_server::{KeyServer, ServiceSecrets};
use crate::rotating::plus;
use crate::{AuthCapsInfo, AuthError, AuthTicket, CryptoKey, ServiceTicketInfo};

/// First payload to a monitor: who asks. Both methods send it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartRequest {
    /// The entity.
    pub name: AuthEntityName,
    /// 0, or the global id to keep.
    pub global_id: u64,
}

impl StartRequest {
    /// Whether a first payload is one of these (else it is an authorizer).
    pub fn is_one(payload: &[u8]) -> bool {
        payload.first() == Some(&AUTH_MODE_MON)
    }
}

impl Denc for StartRequest {
    fn encode(&self, w: &mut Writer) {
        w.u8(AUTH_MODE_MON);
        self.name.encode(w);
        w.u64(self.global_id);
    }
    fn decode(r: &mut Reader<'_>) -> Result<StartRequest, denc::Error> {
        match r.u8()? {
            AUTH_MODE_MON => Ok(StartRequest { name: r.get()?, global_id: r.u64()? }),
            mode => Err(denc::Error::Invalid { what: "auth mode", value: mode.into() }),
        }
    }
}

/// How the entity came by its global id (src/auth/AuthServiceHandler.h: global_id_status_t).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GlobalIdStatus {
    /// New, and the client will show its ticket when it comes back.
    New,
    /// New, and the client may come back without its ticket.
    NewNotExposed,
    /// Kept, proven by the old ticket.
    Reclaimed,
    /// Kept without proof, because the settings allow it.
    ReclaimedInsecurely,
}

/// What the monitor's settings and state say.
pub struct MonRules<'a> {
    /// Keys.
    pub keys: &'a KeyServer,
    /// Now.
    pub now: UTime,
    /// Randomness.
    pub fill: FillRandom<'a>,
    /// `auth_allow_insecure_global_id_reclaim`: old clients may keep a global id without a ticket.
    pub allow_insecure_reclaim: bool,
}

/// The monitor's side of one handshake.
#[derive(Debug)]
pub struct MonHandler {
    name: AuthEntityName,
    global_id: u64,
    new_global_id: bool,
    server_challenge: u64,
}

/// A proven entity.
#[derive(Debug, Clone)]
pub struct Authenticated {
    /// Payload of AUTH_DONE.
    pub reply: Bytes,
    /// The entity's caps at the monitors.
    pub caps: AuthCapsInfo,
    /// Key of the session.
    pub session_key: CryptoKey,
    /// Keys of a secure connection; empty in crc mode.
    pub connection_secret: Bytes,
    /// How it came by its global id.
    pub global_id_status: GlobalIdStatus,
}

impl MonHandler {
    /// Begins: the payload of AUTH_REPLY_MORE. `global_id` is the one the client keeps, or a new
    /// one given to it (`new_global_id`).
    pub fn start(
        name: AuthEntityName,
        global_id: u64,
        new_global_id: bool,
        fill: FillRandom<'_>,
    ) -> (MonHandler, Bytes) {
        let server_challenge = random_nonzero(fill);
        let handler = MonHandler { name, global_id, new_global_id, server_challenge };
        (handler, ServerChallenge { server_challenge }.to_bytes())
    }

    /// The entity.
    pub fn name(&self) -> &AuthEntityName {
        &self.name
    }

    /// Its global id.
    pub fn global_id(&self) -> u64 {
        self.global_id
    }

    /// Checks the proof (payload of AUTH_REQUEST_MORE) and makes tickets.
    pub fn authenticate(
        &self,
        payload: &Bytes,
        secure: bool,
        rules: &MonRules<'_>,
    ) -> Result<Authenticated, AuthError> {
        let mut r = Reader::new(payload);
        if r.u16()? != request::AUTH_SESSION_KEY {
            return Err(AuthError::OutOfOrder);
        }
        let req: Authenticate = r.get()?;
        let MonRules { keys, now, fill, .. } = *rules;
        // An empty key seals nothing: anybody could prove it.
        let auth = keys.auth(&self.name).filter(|auth| !auth.key.is_empty());
        let auth = auth.ok_or(AuthError::UnknownEntity)?;
        if req.key != proof(&auth.key, self.server_challenge, req.client_challenge) {
            return Err(AuthError::BadProof);
        }
        let (global_id_status, old) = self.old_ticket(&req, rules)?;

        let parent = AuthTicket {
            name: self.name.clone(),
            global_id: self.global_id,
            created: now,
            expires: plus(now, keys.lifetimes.auth),
            caps: AuthCapsInfo::default(),
            flags: 0,
        };
        let mut info = keys.session_auth_info(entity::AUTH, &parent, now, fill)?;
        info.ticket.caps = AuthCapsInfo::default();
        let session_key = info.session_key.clone();
        let connection_secret = random_secret(secure, fill);

        let mut w = Writer::new();
        ResponseHeader { request: request::AUTH_SESSION_KEY, status: 0 }.encode(&mut w);
        let ticket = info.ticket.clone();
        let old_key = old.as_ref().map(|info| &info.session_key);
        encode_ticket_reply(&auth.key, &[info], old_key, &mut w);
        if req.other_keys != 0 {
            let sealed = session_key.seal(|w| w.blob(&connection_secret));
            w.counted(|w| w.blob(&sealed));
            let others = tickets_for(req.other_keys & !u32::from(entity::AUTH), &ticket, rules);
            w.counted(|w| {
                if !others.is_empty() {
                    encode_ticket_reply(&session_key, &others, None, w);
                }
            });
        }
        Ok(Authenticated {
            reply: w.into_bytes(),
            caps: keys.caps(&self.name, entity::kind_name(entity::MON))?,
            session_key,
            connection_secret,
            global_id_status,
        })
    }

    /// Answers an MAuth inside the session that this handshake opened: as [`answer_in_session`],
    /// and a new auth ticket for a client whose own is near its end (it proves its key again, with
    /// the handshake's challenge).
    pub fn answer_in_session(
        &self,
        payload: &Bytes,
        rules: &MonRules<'_>,
    ) -> Result<Bytes, AuthError> {
        if Reader::new(payload).u16()? == request::AUTH_SESSION_KEY {
            return Ok(self.authenticate(payload, false, rules)?.reply);
        }
        answer_in_session(&self.name, payload, rules)
    }

    /// Decides whether the global id is the client's own.
    fn old_ticket(
        &self,
        req: &Authenticate,
        rules: &MonRules<'_>,
    ) -> Result<(GlobalIdStatus, Option<ServiceTicketInfo>), AuthError> {
        let may_omit = req.version < 3;
        if self.new_global_id {
            let status = if may_omit { GlobalIdStatus::NewNotExposed } else { GlobalIdStatus::New };
            return Ok((status, None));
        }
        let service = u32::from(entity::AUTH);
        let opened = rules
            .keys
            .service_secret(service, req.old_ticket.secret_id)
            .and_then(|secret| secret.open::<ServiceTicketInfo>(&req.old_ticket.blob).ok())
            .filter(|old| old.ticket.global_id == self.global_id);
        match opened {
            Some(old) => Ok((GlobalIdStatus::Reclaimed, Some(old))),
            None if may_omit && rules.allow_insecure_reclaim => {
                Ok((GlobalIdStatus::ReclaimedInsecurely, None))
            }
            None => Err(AuthError::BadGlobalId),
        }
    }
}

/// Tickets for the services whose bits are set and that have secrets; unknown bits are left out.
fn tickets_for(
    keys: u32,
    parent: &AuthTicket,
    rules: &MonRules<'_>,
) -> Vec<crate::key_server::SessionAuthInfo> {
    (0..8_u8)
        .map(|bit| 1_u8 << bit)
        .filter(|service| keys & u32::from(*service) != 0)
        .filter_map(|service| {
            rules.keys.session_auth_info(service, parent, rules.now, rules.fill).ok()
        })
        .collect()
}

/// Answers an MAuth inside the open session of `name`: rotating secrets of a daemon, or renewed
/// service tickets.
pub fn answer_in_session(
    name: &AuthEntityName,
    payload: &Bytes,
    rules: &MonRules<'_>,
) -> Result<Bytes, AuthError> {
    let mut r = Reader::new(payload);
    let kind = r.u16()?;
    let mut w = Writer::new();
    ResponseHeader { request: kind, status: 0 }.encode(&mut w);
    match kind {
        request::ROTATING_KEY => w.blob(&rules.keys.rotating_sealed(name)?),
        request::PRINCIPAL_SESSION_KEY => {
            // Its authorizer, made with the auth ticket, has no challenge: it came inside an
            // authenticated session.
            let (service, info, _) = open_authorizer(&mut r, rules.keys)?;
            let req: ServiceTicketRequest = r.get()?;
            if service != u32::from(entity::AUTH) || info.ticket.name != *name {
                return Err(AuthError::BadProof);
            }
            let tickets = tickets_for(req.keys, &info.ticket, rules);
            encode_ticket_reply(&info.session_key, &tickets, None, &mut w);
        }
        _ => return Err(AuthError::OutOfOrder),
    }
    Ok(w.into_bytes())
}
