//! A service's side: opens a ticket, sends a challenge, checks the answer.

use bytes::Bytes;
use denc::{Denc, Reader, Writer};
use types::entity::AuthEntityName;

use super::wire::{Authorize, AuthorizeChallenge, AuthorizeReply, random_secret};
use crate::crypto::{FillRandom, random_nonzero};
use crate::key_server::ServiceSecrets;
use crate::ticket::check_version;
use crate::{AuthError, AuthTicket, CryptoKey, ServiceTicketInfo, TicketBlob};

/// The service's side of one handshake.
#[derive(Debug, Default)]
pub struct ServiceHandler {
    challenge: Option<u64>,
}

/// What to answer.
#[derive(Debug)]
pub enum ServiceStep {
    /// AUTH_REPLY_MORE with this payload.
    Challenge(Bytes),
    /// AUTH_DONE.
    Done(Box<Verified>),
}

/// A peer with a valid ticket.
#[derive(Debug, Clone)]
pub struct Verified {
    /// Who, with which caps here.
    pub ticket: AuthTicket,
    /// Key of the session.
    pub session_key: CryptoKey,
    /// Keys of a secure connection; empty in crc mode.
    pub connection_secret: Bytes,
    /// Payload of AUTH_DONE.
    pub reply: Bytes,
}

/// Opens an authorizer: whose ticket it is, the ticket, and the part sealed with the ticket's
/// session key.
pub(crate) fn open_authorizer(
    r: &mut Reader<'_>,
    secrets: &dyn ServiceSecrets,
) -> Result<(u32, ServiceTicketInfo, Authorize), AuthError> {
    check_version(r, "authorizer version", 1)?;
    let global_id = r.u64()?;
    let service = r.u32()?;
    let blob: TicketBlob = r.get()?;
    // 2^64-1 stands for the service's own key: `mon.` among monitors.
    let secret = if blob.secret_id == u64::MAX {
        secrets.own_secret(&AuthEntityName { kind: service, id: String::new() })
    } else {
        secrets.service_secret(service, blob.secret_id)
    };
    let secret = secret.ok_or(AuthError::UnknownSecret { service, id: blob.secret_id })?;
    let mut info: ServiceTicketInfo = secret.open(&blob.blob)?;
    if !info.ticket.is_plausible() {
        return Err(AuthError::Sealed);
    }
    // No monitor makes a ticket that allows all, and the bit that says so is easily flipped.
    info.ticket.caps.allow_all = false;
    if info.ticket.global_id != global_id {
        return Err(AuthError::BadGlobalId);
    }
    let authorize = info.session_key.open(r.blob_slice()?)?;
    Ok((service, info, authorize))
}

impl ServiceHandler {
    /// A handshake that has not begun.
    pub fn new() -> ServiceHandler {
        ServiceHandler::default()
    }

    /// AUTH_REQUEST or AUTH_REQUEST_MORE has come.
    pub fn step(
        &mut self,
        payload: &Bytes,
        secure: bool,
        secrets: &dyn ServiceSecrets,
        fill: FillRandom<'_>,
    ) -> Result<ServiceStep, AuthError> {
        let (_, info, authorize) = open_authorizer(&mut Reader::new(payload), secrets)?;
        let key = &info.session_key;
        let (Some(challenge), Some(answer)) = (self.challenge, authorize.challenge_plus_one) else {
            if self.challenge.is_some() {
                return Err(AuthError::BadChallenge);
            }
            let server_challenge = random_nonzero(fill);
            self.challenge = Some(server_challenge);
            let sealed = key.seal(|w| AuthorizeChallenge { server_challenge }.encode(w));
            return Ok(ServiceStep::Challenge(sealed));
        };
        if answer != challenge.wrapping_add(1) {
            return Err(AuthError::BadChallenge);
        }
        let connection_secret = random_secret(secure, fill);
        let reply = AuthorizeReply {
            nonce_plus_one: authorize.nonce.wrapping_add(1),
            connection_secret: connection_secret.clone(),
        };
        let mut w = Writer::new();
        w.blob(&key.seal(|w| reply.encode(w)));
        Ok(ServiceStep::Done(Box::new(Verified {
            session_key: key.clone(),
            ticket: info.ticket,
            connection_secret,
            reply: w.into_bytes(),
        })))
    }
}
