//! cephx's symmetric keys: AES-128-CBC with a fixed IV and PKCS#7 padding.
//!
//! ```text
//! sealed(T):  encryption of  u8 1 | u64 magic | T         (src/auth/cephx/CephxProtocol.h, v16.2)
//! ```
//!
//! The fixed IV is Ceph's choice; every plaintext opens with the magic and secrets or nonces.

use core::fmt;

use aes::Aes128;
use aes::cipher::block_padding::Pkcs7;
use aes::cipher::{BlockModeDecrypt, BlockModeEncrypt, KeyIvInit};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::time::UTime;

use crate::AuthError;

/// Length of an AES-128 secret in bytes.
pub const SECRET_LEN: usize = 16;

const BLOCK: usize = 16;
const IV: &[u8; BLOCK] = b"cephsageyudagreg";
const MAGIC: u64 = 0xff00_9cad_8826_aa55;
const TYPE_NONE: u16 = 0;
const TYPE_AES: u16 = 1;

/// A source of secure random bytes.
pub type FillRandom<'a> = &'a dyn Fn(&mut [u8]);

/// A symmetric key. Wire: CryptoKey.
#[derive(Clone, PartialEq, Eq)]
pub struct CryptoKey {
    /// When it was made.
    pub created: UTime,
    /// The AES-128 secret; `None` is the empty key (type 0), which seals nothing.
    secret: Option<[u8; SECRET_LEN]>,
}

impl Default for CryptoKey {
    fn default() -> CryptoKey {
        CryptoKey { created: UTime { sec: 0, nsec: 0 }, secret: None }
    }
}

/// Shows no secret.
impl fmt::Debug for CryptoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CryptoKey({})", if self.secret.is_some() { "aes" } else { "none" })
    }
}

impl CryptoKey {
    /// The key with this secret.
    pub fn new(secret: [u8; SECRET_LEN], created: UTime) -> CryptoKey {
        CryptoKey { created, secret: Some(secret) }
    }

    /// A new random key.
    pub fn generate(fill: FillRandom<'_>, created: UTime) -> CryptoKey {
        let mut secret = [0; SECRET_LEN];
        fill(&mut secret);
        CryptoKey::new(secret, created)
    }

    /// Reads the form keyrings show: base64 of the encoding.
    pub fn from_base64(text: &str) -> Result<CryptoKey, AuthError> {
        let syntax = AuthError::Syntax { line: 0 };
        let bytes = STANDARD.decode(text.trim()).map_err(|_| syntax.clone())?;
        CryptoKey::from_bytes_exact(&Bytes::from(bytes)).map_err(|_| syntax)
    }

    /// The form keyrings show.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(self.to_bytes())
    }

    /// The raw secret: the key of a connection's AUTH_SIGNATURE.
    pub fn secret(&self) -> Option<&[u8; SECRET_LEN]> {
        self.secret.as_ref()
    }

    /// Whether this is the empty key.
    pub fn is_empty(&self) -> bool {
        self.secret.is_none()
    }

    /// Encrypts bytes. An empty key gives them back as they are, as Ceph's does.
    pub fn encrypt(&self, plain: &[u8]) -> Vec<u8> {
        let pad = BLOCK - plain.len() % BLOCK;
        let mut buf = Vec::with_capacity(plain.len() + pad);
        buf.extend_from_slice(plain);
        let Some(secret) = &self.secret else { return buf };
        buf.resize(plain.len() + pad, 0);
        let key = cbc::Encryptor::<Aes128>::new(secret.into(), IV.into());
        let done = key.encrypt_padded::<Pkcs7>(&mut buf, plain.len());
        // Room for the padding is all that it asks for.
        done.expect("room for a padded last block");
        buf
    }

    /// Opens what `encrypt` gave.
    pub fn decrypt(&self, sealed: &[u8]) -> Result<Vec<u8>, AuthError> {
        let mut buf = sealed.to_vec();
        let Some(secret) = &self.secret else { return Ok(buf) };
        let key = cbc::Decryptor::<Aes128>::new(secret.into(), IV.into());
        let plain = key.decrypt_padded::<Pkcs7>(&mut buf).map_err(|_| AuthError::Sealed)?.len();
        buf.truncate(plain);
        Ok(buf)
    }

    /// Seals what `fields` writes: the bare ciphertext.
    pub fn seal(&self, fields: impl FnOnce(&mut Writer)) -> Bytes {
        let mut w = Writer::with_capacity(96);
        w.u8(1);
        w.u64(MAGIC);
        fields(&mut w);
        Bytes::from(self.encrypt(w.as_slice()))
    }

    /// Opens a bare ciphertext and decodes a value from it.
    pub fn open<T: Denc>(&self, sealed: &[u8]) -> Result<T, AuthError> {
        let plain = Bytes::from(self.decrypt(sealed)?);
        let mut r = Reader::new(&plain);
        let header = r.u8().and_then(|_version| r.u64());
        if header != Ok(MAGIC) {
            return Err(AuthError::Sealed);
        }
        Ok(r.get()?)
    }
}

impl Denc for CryptoKey {
    fn encode(&self, w: &mut Writer) {
        w.u16(if self.secret.is_some() { TYPE_AES } else { TYPE_NONE });
        self.created.encode(w);
        let secret = self.secret.as_ref().map_or(&[][..], |s| &s[..]);
        w.u16(secret.len() as u16);
        w.raw(secret);
    }
    fn decode(r: &mut Reader<'_>) -> Result<CryptoKey, Error> {
        let kind = r.u16()?;
        let created = r.get()?;
        let len = r.u16()?;
        let bytes = r.slice(usize::from(len))?;
        let secret = match kind {
            TYPE_NONE => None,
            TYPE_AES => Some(bytes.try_into().map_err(|_| Error::Invalid {
                what: "length of an AES secret",
                value: u64::from(len),
            })?),
            _ => {
                return Err(Error::Invalid { what: "CryptoKey type", value: u64::from(kind) });
            }
        };
        Ok(CryptoKey { created, secret })
    }
}

/// A random number that is not 0: server challenges.
pub(crate) fn random_nonzero(fill: FillRandom<'_>) -> u64 {
    loop {
        let mut bytes = [0; 8];
        fill(&mut bytes);
        let n = u64::from_le_bytes(bytes);
        if n != 0 {
            return n;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> CryptoKey {
        CryptoKey::new(core::array::from_fn(|i| i as u8), UTime { sec: 0, nsec: 0 })
    }

    #[test]
    fn the_empty_sealed_value_has_cephs_bytes() {
        let want = [
            0x4e, 0xf8, 0x33, 0x41, 0xab, 0x40, 0xb0, 0x6b, 0xff, 0x95, 0x3e, 0xe7, 0xe7, 0x5c,
            0xa9, 0xa2,
        ];
        assert_eq!(&key().seal(|_| {})[..], &want[..]);
    }

    #[test]
    fn what_is_sealed_opens_and_what_is_damaged_does_not() {
        for len in 0..70 {
            let plain = vec![7; len];
            let sealed = key().encrypt(&plain);
            assert_eq!(key().decrypt(&sealed), Ok(plain));
            assert!(key().decrypt(&sealed[..sealed.len() - 1]).is_err());
        }
        assert!(key().decrypt(&[]).is_err());
        let sealed = key().seal(|w| w.u64(5));
        assert_eq!(key().open::<u64>(&sealed), Ok(5));
        let mut bad = sealed.to_vec();
        bad[3] ^= 1;
        assert_eq!(key().open::<u64>(&bad), Err(AuthError::Sealed));
    }

    #[test]
    fn base64_round_trip() {
        let text = key().to_base64();
        assert_eq!(CryptoKey::from_base64(&text), Ok(key()));
        assert!(CryptoKey::from_base64("AQ==").is_err());
    }
}
