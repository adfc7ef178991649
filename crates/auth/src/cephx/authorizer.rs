//! A client's proof to a service, made with a ticket.

use bytes::Bytes;
use denc::{Denc, Reader, Writer};

use super::wire::{Authorize, AuthorizeChallenge, AuthorizeReply};
use crate::{AuthError, CryptoKey, TicketBlob};

/// The client's side of one handshake with a service.
#[derive(Debug, Clone)]
pub struct Authorizer {
    base: Bytes,
    session_key: CryptoKey,
    nonce: u64,
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
        Authorizer {
            base: w.into_bytes(),
            session_key,
            nonce,
        }
    }

    fn payload(&self, challenge_plus_one: Option<u64>) -> Bytes {
        let authorize = Authorize {
            nonce: self.nonce,
            challenge_plus_one,
            filler: 0,
        };
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
