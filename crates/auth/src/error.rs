//! Why an authentication step failed. The peer is at fault unless a variant says otherwise; the
//! exchange ends and the connection is refused.

use core::fmt;

/// What is wrong with a key, a ticket or an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthError {
    /// The bytes do not decode.
    Decode(denc::Error),
    /// A ciphertext does not open with the key: wrong key, or damaged.
    Sealed,
    /// A text is not a key or keyring; the line where it stops making sense (from 1; 0 = no line).
    Syntax {
        /// Line of the text.
        line: usize,
    },
    /// The entity has no key here.
    UnknownEntity,
    /// The service has no secret of that id (rotated away, or not fetched yet).
    UnknownSecret {
        /// Entity type of the service.
        service: u32,
        /// Id of the secret.
        id: u64,
    },
    /// The proof does not belong to the challenge and the key.
    BadProof,
    /// A challenge was answered that was never sent, or wrongly.
    BadChallenge,
    /// A global id is claimed that the ticket does not prove.
    BadGlobalId,
    /// The method is not one of those allowed.
    Method {
        /// Ceph's number of the method.
        method: u32,
    },
    /// The step does not belong here in the exchange.
    OutOfOrder,
    /// No ticket for the service.
    NoTicket {
        /// Entity type of the service.
        service: u32,
    },
    /// The other side answered with this errno (positive).
    Refused {
        /// Errno.
        errno: i32,
    },
    /// The ticket's time is over.
    Expired,
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuthError::Decode(e) => write!(f, "{e}"),
            AuthError::Sealed => f.write_str("does not open with this key"),
            AuthError::Syntax { line } => write!(f, "syntax error in line {line}"),
            AuthError::UnknownEntity => f.write_str("unknown entity"),
            AuthError::UnknownSecret { service, id } => {
                write!(f, "no secret {id} for service type {service}")
            }
            AuthError::BadProof => f.write_str("wrong proof of key"),
            AuthError::BadChallenge => f.write_str("wrong answer to the challenge"),
            AuthError::BadGlobalId => f.write_str("global id not proven"),
            AuthError::Method { method } => write!(f, "method {method} is not allowed"),
            AuthError::OutOfOrder => f.write_str("step out of order"),
            AuthError::NoTicket { service } => write!(f, "no ticket for service type {service}"),
            AuthError::Refused { errno } => write!(f, "refused with errno {errno}"),
            AuthError::Expired => f.write_str("ticket expired"),
        }
    }
}

impl std::error::Error for AuthError {}

impl From<denc::Error> for AuthError {
    fn from(e: denc::Error) -> AuthError {
        AuthError::Decode(e)
    }
}
