//! The AES-128-GCM stream of one direction of a secure connection.
//!
//! ```text
//! connection secret (64)   key 0..16 | nonce server->client 16..28 | nonce client->server 28..40
//! nonce (12)               u32 fixed | u64 counter, raised by one after each record
//! ```

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use super::FrameError;

/// Bytes of a connection secret in secure mode.
pub const SECRET_LEN: usize = 64;
/// Bytes of a record's tag.
pub(super) const TAG_LEN: usize = 16;

/// Key and running nonce of one direction.
pub struct GcmStream {
    key: LessSafeKey,
    fixed: [u8; 4],
    counter: u64,
}

/// Shows no key.
impl core::fmt::Debug for GcmStream {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "GcmStream({})", self.counter)
    }
}

/// The streams to receive and to send with, or an error if the secret is not of 64 bytes.
pub fn rx_tx_streams(secret: &[u8], is_server: bool) -> Result<(GcmStream, GcmStream), FrameError> {
    if secret.len() != SECRET_LEN {
        return Err(FrameError::Sealed);
    }
    let stream = |nonce: &[u8]| -> Result<GcmStream, FrameError> {
        let key = UnboundKey::new(&AES_128_GCM, &secret[..16]).map_err(|_| FrameError::Sealed)?;
        let mut fixed = [0; 4];
        let mut counter = [0; 8];
        fixed.copy_from_slice(&nonce[..4]);
        counter.copy_from_slice(&nonce[4..]);
        let counter = u64::from_le_bytes(counter);
        Ok(GcmStream { key: LessSafeKey::new(key), fixed, counter })
    };
    let from_server = stream(&secret[16..28])?;
    let from_client = stream(&secret[28..40])?;
    Ok(if is_server { (from_client, from_server) } else { (from_server, from_client) })
}

impl GcmStream {
    fn next_nonce(&mut self) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&self.fixed);
        nonce[4..].copy_from_slice(&self.counter.to_le_bytes());
        self.counter = self.counter.wrapping_add(1);
        Nonce::assume_unique_for_key(nonce)
    }

    /// Opens a record in place (its tag are the last 16 bytes); the plain bytes lie in front.
    pub fn open(&mut self, record: &mut [u8]) -> Result<(), FrameError> {
        let nonce = self.next_nonce();
        self.key.open_in_place(nonce, Aad::empty(), record).map_err(|_| FrameError::Sealed)?;
        Ok(())
    }

    /// Seals bytes in place; the tag to put behind them.
    pub fn seal(&mut self, record: &mut [u8]) -> [u8; TAG_LEN] {
        let nonce = self.next_nonce();
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::empty(), record);
        let mut out = [0; TAG_LEN];
        // Sealing fails only above GCM's 64 GiB a record.
        out.copy_from_slice(tag.expect("a record far below 64 GiB").as_ref());
        out
    }
}
