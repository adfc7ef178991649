//! Authentication as pure steps over bytes: cephx and none, keyrings, tickets, rotating secrets,
//! capabilities. Knows no sockets and no clock: times and random bytes come in as arguments.

pub mod caps;
pub mod cephx;
mod crypto;
mod error;
mod key_server;
mod keyring;
pub mod none;
mod rotating;
mod ticket;

pub use crypto::{CryptoKey, FillRandom, SECRET_LEN};
pub use error::AuthError;
pub use key_server::{
    KeyIncrement, KeyServer, KeyServerData, MonSecrets, SERVICES, ServiceSecrets, SessionAuthInfo,
    TicketLifetimes,
};
pub use keyring::{EntityAuth, Keyring};
pub use rotating::{ExpiringCryptoKey, KEYS_MAX, RotatingSecrets};
pub use ticket::{AuthCapsInfo, AuthTicket, ServiceTicket, ServiceTicketInfo, TicketBlob};

/// No authentication: everybody is who he says.
pub const METHOD_NONE: u32 = 1;
/// Tickets and shared keys.
pub const METHOD_CEPHX: u32 = 2;

/// Frames carry checksums.
pub const MODE_CRC: u32 = 1;
/// Frames are encrypted.
pub const MODE_SECURE: u32 = 2;
/// Bytes of a connection secret in secure mode (crc mode has none).
pub const CONNECTION_SECRET_LEN: usize = 64;
