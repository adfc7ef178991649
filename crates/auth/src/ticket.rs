//! Tickets and what they carry (src/auth/Auth.h, src/auth/cephx/CephxProtocol.h at v16.2).

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::entity::AuthEntityName;
use types::time::UTime;

use crate::CryptoKey;

/// The user id every ticket carries: all ones.
const UID_DEFAULT: u64 = u64::MAX;

/// What an entity may do at one service. Wire: AuthCapsInfo.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthCapsInfo {
    /// Everything (method none; no ticket says so).
    pub allow_all: bool,
    /// The encoded caps; empty, or a string such as `allow *`.
    pub caps: Bytes,
}

impl AuthCapsInfo {
    /// Caps from their text.
    pub fn from_text(text: &str) -> AuthCapsInfo {
        AuthCapsInfo { allow_all: false, caps: text.to_owned().to_bytes() }
    }

    /// Caps of a peer that was not asked (method none).
    pub fn allow_all() -> AuthCapsInfo {
        AuthCapsInfo { allow_all: true, caps: Bytes::new() }
    }

    /// The text inside; empty when there is none.
    pub fn text(&self) -> Result<String, Error> {
        if self.caps.is_empty() { Ok(String::new()) } else { String::from_bytes(&self.caps) }
    }
}

/// A bare u8 version, as these old types have.
pub(crate) fn check_version(
    r: &mut Reader<'_>,
    what: &'static str,
    newest: u8,
) -> Result<u8, Error> {
    match r.u8()? {
        v if v >= 1 && v <= newest => Ok(v),
        v => Err(Error::Invalid { what, value: u64::from(v) }),
    }
}

impl Denc for AuthCapsInfo {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.bool(self.allow_all);
        w.blob(&self.caps);
    }
    fn decode(r: &mut Reader<'_>) -> Result<AuthCapsInfo, Error> {
        check_version(r, "AuthCapsInfo version", 1)?;
        Ok(AuthCapsInfo { allow_all: r.bool()?, caps: r.blob()? })
    }
}

/// Who somebody is, and what they may do at the service the ticket is for. Wire: AuthTicket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthTicket {
    /// The entity.
    pub name: AuthEntityName,
    /// Its number in this cluster.
    pub global_id: u64,
    /// Start of validity.
    pub created: UTime,
    /// End of validity.
    pub expires: UTime,
    /// Caps at the service.
    pub caps: AuthCapsInfo,
    /// Always 0.
    pub flags: u32,
}

impl AuthTicket {
    /// Whether the times can be a monitor's: they hardly can where the ciphertext was changed, as it
    /// is not signed. Whether the time is over does not matter here: the secret that opens the
    /// ticket lives a bounded time.
    pub(crate) fn is_plausible(&self) -> bool {
        let [created, expires] = [self.created, self.expires];
        created.nsec.max(expires.nsec) < 1_000_000_000 && created <= expires
    }
}

impl Denc for AuthTicket {
    fn encode(&self, w: &mut Writer) {
        w.u8(2);
        self.name.encode(w);
        w.u64(self.global_id);
        w.u64(UID_DEFAULT);
        self.created.encode(w);
        self.expires.encode(w);
        self.caps.encode(w);
        w.u32(self.flags);
    }
    fn decode(r: &mut Reader<'_>) -> Result<AuthTicket, Error> {
        let version = check_version(r, "AuthTicket version", 2)?;
        let name = r.get()?;
        let global_id = r.u64()?;
        let uid = if version >= 2 { r.u64()? } else { UID_DEFAULT };
        if uid != UID_DEFAULT {
            return Err(Error::Invalid { what: "user id of a ticket", value: uid });
        }
        Ok(AuthTicket {
            name,
            global_id,
            created: r.get()?,
            expires: r.get()?,
            caps: r.get()?,
            flags: r.u32()?,
        })
    }
}

/// A ticket as its holder has it: sealed with a secret of the service. Wire: CephXTicketBlob.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TicketBlob {
    /// Which secret of the service opens it.
    pub secret_id: u64,
    /// The bare ciphertext of a [`ServiceTicketInfo`].
    pub blob: Bytes,
}

impl Denc for TicketBlob {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u64(self.secret_id);
        w.blob(&self.blob);
    }
    fn decode(r: &mut Reader<'_>) -> Result<TicketBlob, Error> {
        check_version(r, "CephXTicketBlob version", 1)?;
        Ok(TicketBlob { secret_id: r.u64()?, blob: r.blob()? })
    }
}

/// The half of a ticket that is for its holder. Wire: CephXServiceTicket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceTicket {
    /// Key shared with the service.
    pub session_key: CryptoKey,
    /// How long it lasts from now on.
    pub validity: UTime,
}

impl Denc for ServiceTicket {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        self.session_key.encode(w);
        self.validity.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<ServiceTicket, Error> {
        check_version(r, "CephXServiceTicket version", 1)?;
        Ok(ServiceTicket { session_key: r.get()?, validity: r.get()? })
    }
}

/// The half of a ticket that is for the service. Wire: CephXServiceTicketInfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceTicketInfo {
    /// Who holds it.
    pub ticket: AuthTicket,
    /// Key shared with the holder.
    pub session_key: CryptoKey,
}

impl Denc for ServiceTicketInfo {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        self.ticket.encode(w);
        self.session_key.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<ServiceTicketInfo, Error> {
        check_version(r, "CephXServiceTicketInfo version", 1)?;
        Ok(ServiceTicketInfo { ticket: r.get()?, session_key: r.get()? })
    }
}
