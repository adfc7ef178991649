//! A client's proof to a service, made with a ticket.

use bytes::Bytes;
use denc::{Denc, Reader, Writer};

use types::{AuthEntityName, UTime, entity};

use super::wire::{Authorize, AuthorizeChallenge, AuthorizeReply};
use crate::ticket::ServiceTicketInfo;
use crate::{AuthCapsInfo, AuthError, AuthTicket, CryptoKey, FillRandom, KeyServer, TicketBlob};

/// The client's side of one handshake with a service.
#[derive(Debug, Clone)]
pub struct Authorizer {
    base: Bytes,
    session_key: CryptoKey,
    nonce: u64,
}

/// An authorizer by which a monitor proves itself to a daemon of kind `service`: another monitor, for whom
/// the ticket is sealed with the key of `mon.`, which both have, or a manager, for whom it is sealed as
/// everybody's, and who may be asked anything (`src/mon/Monitor.cc` at v16.2: get_authorizer).
pub fn mon_authorizer(
    keys: &KeyServer,
    service: u8,
    now: UTime,
    fill: FillRandom<'_>,
) -> Result<Authorizer, AuthError> {
    let name = AuthEntityName::new(entity::MON, "");
    let own_key = keys.auth(&name).ok_or(AuthError::UnknownEntity)?.key.clone();
    let parent = AuthTicket {
        name,
        global_id: 0,
        created: now,
        expires: now,
        caps: AuthCapsInfo::default(),
        flags: 0,
    };
    let info = match service {
        entity::MON => keys.self_sealed_auth_info(service, &parent, own_key, now, fill)?,
        _ => {
            let mut info = keys.session_auth_info(service, &parent, now, fill)?;
            info.ticket.caps = AuthCapsInfo::from_text("allow *");
            info
        }
    };
    let inside =
        ServiceTicketInfo { ticket: info.ticket.clone(), session_key: info.session_key.clone() };
    let blob = TicketBlob {
        secret_id: info.secret_id,
        blob: info.service_secret.seal(|w| inside.encode(w)),
    };
    let mut nonce = [0; 8];
    fill(&mut nonce);
    let nonce = u64::from_le_bytes(nonce);
    Ok(Authorizer::new(0, info.service, &blob, info.session_key, nonce))
}

impl Authorizer {
    /// An authorizer for the holder `global_id` of a ticket for `service`.
    pub fn new(
        global_id: u64,
        service: u32,
        ticket: &TicketBlob,
        session_key: CryptoKey,
        nonce: u64,
    ) -> Authorizer {
        let mut w = Writer::new();
        w.u8(1);
        w.u64(global_id);
        w.u32(service);
        ticket.encode(&mut w);
        Authorizer { base: w.into_bytes(), session_key, nonce }
    }

    fn payload(&self, challenge_plus_one: Option<u64>) -> Bytes {
        let authorize = Authorize { nonce: self.nonce, challenge_plus_one, filler: 0 };
        let mut w = Writer::new();
        w.raw(&self.base);
        w.blob(&self.session_key.seal(|w| authorize.encode(w)));
        w.into_bytes()
    }

    /// Payload of AUTH_REQUEST.
    pub fn request(&self) -> Bytes {
        self.payload(None)
    }

    /// AUTH_REPLY_MORE has come: payload of AUTH_REQUEST_MORE.
    pub fn on_challenge(&self, payload: &[u8]) -> Result<Bytes, AuthError> {
        let challenge: AuthorizeChallenge = self.session_key.open(payload)?;
        Ok(self.payload(Some(challenge.server_challenge.wrapping_add(1))))
    }

    /// AUTH_DONE has come: session key and connection secret.
    pub fn on_done(&self, payload: &Bytes) -> Result<(CryptoKey, Bytes), AuthError> {
        let mut r = Reader::new(payload);
        let reply: AuthorizeReply = self.session_key.open(r.blob_slice()?)?;
        if reply.nonce_plus_one != self.nonce.wrapping_add(1) {
            return Err(AuthError::BadProof);
        }
        Ok((self.session_key.clone(), reply.connection_secret))
    }
}
