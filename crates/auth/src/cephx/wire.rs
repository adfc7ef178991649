//! The small structs of the exchange.

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};

use crate::key_server::SessionAuthInfo;
use crate::ticket::check_version;
use crate::{AuthError, CryptoKey, ServiceTicket, ServiceTicketInfo, TicketBlob};

/// First byte of an AUTH_REQUEST to a monitor by somebody without tickets.
pub const AUTH_MODE_MON: u8 = 10;
/// First bytes up to this one are authorizers.
pub const AUTH_MODE_AUTHORIZER_MAX: u8 = 9;

/// Request types inside a session or a handshake with a monitor.
pub(crate) mod request {
    pub(crate) const AUTH_SESSION_KEY: u16 = 0x0100;
    pub(crate) const PRINCIPAL_SESSION_KEY: u16 = 0x0200;
    pub(crate) const ROTATING_KEY: u16 = 0x0400;
}

/// Wire: CephXServerChallenge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerChallenge {
    /// Random, not 0.
    pub server_challenge: u64,
}

impl Denc for ServerChallenge {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u64(self.server_challenge);
    }
    fn decode(r: &mut Reader<'_>) -> Result<ServerChallenge, Error> {
        check_version(r, "CephXServerChallenge version", 1)?;
        Ok(ServerChallenge { server_challenge: r.u64()? })
    }
}

/// The proof of a key is made from this. Wire: CephXChallengeBlob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChallengeBlob {
    /// The monitor's number.
    pub server_challenge: u64,
    /// The client's number.
    pub client_challenge: u64,
}

impl Denc for ChallengeBlob {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.server_challenge);
        w.u64(self.client_challenge);
    }
    fn decode(r: &mut Reader<'_>) -> Result<ChallengeBlob, Error> {
        Ok(ChallengeBlob { server_challenge: r.u64()?, client_challenge: r.u64()? })
    }
}

/// What the holder of `key` answers to a challenge.
pub fn proof(key: &CryptoKey, server_challenge: u64, client_challenge: u64) -> u64 {
    let sealed = key.seal(|w| ChallengeBlob { server_challenge, client_challenge }.encode(w));
    let mut w = Writer::new();
    w.blob(&sealed);
    w.as_slice().as_chunks::<8>().0.iter().fold(0, |sum, word| sum ^ u64::from_le_bytes(*word))
}

/// Wire: CephXAuthenticate v2 (16.2.0) and v3 (which promises the old ticket if there is one).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authenticate {
    /// 1, 2 or 3.
    pub version: u8,
    /// The client's number.
    pub client_challenge: u64,
    /// See [`proof`].
    pub key: u64,
    /// The auth ticket held so far; empty blob for none.
    pub old_ticket: TicketBlob,
    /// Services to give tickets for (bits of entity types); since v2.
    pub other_keys: u32,
}

impl Denc for Authenticate {
    fn encode(&self, w: &mut Writer) {
        w.u8(self.version);
        w.u64(self.client_challenge);
        w.u64(self.key);
        self.old_ticket.encode(w);
        if self.version >= 2 {
            w.u32(self.other_keys);
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<Authenticate, Error> {
        let version = check_version(r, "CephXAuthenticate version", u8::MAX)?;
        Ok(Authenticate {
            version,
            client_challenge: r.u64()?,
            key: r.u64()?,
            old_ticket: r.get()?,
            other_keys: if version >= 2 { r.u32()? } else { 0 },
        })
    }
}

/// The sealed part of an authorizer. Wire: CephXAuthorize v2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authorize {
    /// Random.
    pub nonce: u64,
    /// The service's challenge plus one, once it has been sent.
    pub challenge_plus_one: Option<u64>,
    /// What stands in the challenge's place before (0 in practice).
    pub filler: u64,
}

impl Denc for Authorize {
    fn encode(&self, w: &mut Writer) {
        w.u8(2);
        w.u64(self.nonce);
        w.bool(self.challenge_plus_one.is_some());
        w.u64(self.challenge_plus_one.unwrap_or(self.filler));
    }
    fn decode(r: &mut Reader<'_>) -> Result<Authorize, Error> {
        let version = check_version(r, "CephXAuthorize version", u8::MAX)?;
        let nonce = r.u64()?;
        if version < 2 {
            return Ok(Authorize { nonce, challenge_plus_one: None, filler: 0 });
        }
        let have = r.bool()?;
        let value = r.u64()?;
        let (challenge_plus_one, filler) = if have { (Some(value), 0) } else { (None, value) };
        Ok(Authorize { nonce, challenge_plus_one, filler })
    }
}

/// Wire: CephXAuthorizeChallenge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuthorizeChallenge {
    /// Random, not 0.
    pub server_challenge: u64,
}

impl Denc for AuthorizeChallenge {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u64(self.server_challenge);
    }
    fn decode(r: &mut Reader<'_>) -> Result<AuthorizeChallenge, Error> {
        check_version(r, "CephXAuthorizeChallenge version", 1)?;
        Ok(AuthorizeChallenge { server_challenge: r.u64()? })
    }
}

/// The service's last word. Wire: CephXAuthorizeReply (v2 with a secret, v1 without).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizeReply {
    /// Proves that the service could open the ticket.
    pub nonce_plus_one: u64,
    /// Keys of a secure connection; empty in crc mode.
    pub connection_secret: Bytes,
}

impl Denc for AuthorizeReply {
    fn encode(&self, w: &mut Writer) {
        w.u8(if self.connection_secret.is_empty() { 1 } else { 2 });
        w.u64(self.nonce_plus_one);
        if !self.connection_secret.is_empty() {
            w.blob(&self.connection_secret);
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<AuthorizeReply, Error> {
        let version = check_version(r, "CephXAuthorizeReply version", u8::MAX)?;
        Ok(AuthorizeReply {
            nonce_plus_one: r.u64()?,
            connection_secret: if version >= 2 { r.blob()? } else { Bytes::new() },
        })
    }
}

/// Wire: CephXServiceTicketRequest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceTicketRequest {
    /// Services to give tickets for (bits of entity types).
    pub keys: u32,
}

impl Denc for ServiceTicketRequest {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u32(self.keys);
    }
    fn decode(r: &mut Reader<'_>) -> Result<ServiceTicketRequest, Error> {
        check_version(r, "CephXServiceTicketRequest version", 1)?;
        Ok(ServiceTicketRequest { keys: r.u32()? })
    }
}

/// Wire: CephXResponseHeader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHeader {
    /// The request type answered.
    pub request: u16,
    /// 0, or a negative errno.
    pub status: i32,
}

impl Denc for ResponseHeader {
    fn encode(&self, w: &mut Writer) {
        w.u16(self.request);
        w.i32(self.status);
    }
    fn decode(r: &mut Reader<'_>) -> Result<ResponseHeader, Error> {
        Ok(ResponseHeader { request: r.u16()?, status: r.i32()? })
    }
}

/// Writes tickets sealed for their holder with `key`; each ticket's blob is itself sealed with
/// `old_session_key` if the holder showed an old ticket.
pub(crate) fn encode_ticket_reply(
    key: &CryptoKey,
    tickets: &[SessionAuthInfo],
    old_session_key: Option<&CryptoKey>,
    w: &mut Writer,
) {
    w.u8(1);
    w.count(tickets.len());
    for info in tickets {
        w.u32(info.service);
        w.u8(1);
        let ticket =
            ServiceTicket { session_key: info.session_key.clone(), validity: info.validity };
        w.blob(&key.seal(|w| ticket.encode(w)));
        let inside = ServiceTicketInfo {
            ticket: info.ticket.clone(),
            session_key: info.session_key.clone(),
        };
        let blob = TicketBlob {
            secret_id: info.secret_id,
            blob: info.service_secret.seal(|w| inside.encode(w)),
        }
        .to_bytes();
        w.bool(old_session_key.is_some());
        match old_session_key {
            Some(old) => w.blob(&old.seal(|w| w.blob(&blob))),
            None => w.blob(&blob),
        }
    }
}

/// A ticket as its holder receives it.
#[derive(Debug)]
pub(crate) struct ReceivedTicket {
    pub(crate) service: u32,
    pub(crate) ticket: ServiceTicket,
    pub(crate) blob: TicketBlob,
}

/// Reads what [`encode_ticket_reply`] wrote.
pub(crate) fn decode_ticket_reply(
    key: &CryptoKey,
    old_session_key: Option<&CryptoKey>,
    r: &mut Reader<'_>,
) -> Result<Vec<ReceivedTicket>, AuthError> {
    check_version(r, "ticket reply version", 1)?;
    let n = r.count(10)?;
    let mut tickets = Vec::with_capacity(n.min(32));
    for _ in 0..n {
        let service = r.u32()?;
        check_version(r, "ticket version", 1)?;
        let ticket = key.open(r.blob_slice()?)?;
        let sealed = r.bool()?;
        let bytes = r.blob()?;
        let bytes = if sealed {
            old_session_key.ok_or(AuthError::Sealed)?.open::<Bytes>(&bytes)?
        } else {
            bytes
        };
        tickets.push(ReceivedTicket { service, ticket, blob: TicketBlob::from_bytes(&bytes)? });
    }
    Ok(tickets)
}

/// The connection secret as it is sealed in AUTH_DONE: a string.
pub(crate) fn random_secret(secure: bool, fill: crate::FillRandom<'_>) -> Bytes {
    let mut secret = vec![0; if secure { crate::CONNECTION_SECRET_LEN } else { 0 }];
    if secure {
        fill(&mut secret);
    }
    Bytes::from(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proof_has_cephs_value() {
        let key = CryptoKey::new(core::array::from_fn(|i| i as u8), types::time::UTime::ZERO);
        let proof = proof(&key, 0x1122_3344_5566_7788, 0x99aa_bbcc_ddee_ff00);
        assert_eq!(proof, 0x4fad_d850_10bc_ad18);
    }
}
