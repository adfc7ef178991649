//! Capabilities: what an entity may do at each kind of service, as text that Ceph's users know.
//!
//! | service | file | Ceph |
//! |---|---|---|
//! | mon | `mon.rs`, `mon_profiles.rs` | src/mon/MonCap.cc |
//! | osd | `osd.rs` | src/osd/OSDCap.cc |
//! | mgr | `mgr.rs` | src/mgr/MgrCap.cc |
//! | mds | `mds.rs` | src/mds/MDSAuthCaps.cc (grammar alone) |

mod constraint;
mod cursor;
mod mds;
mod mgr;
mod mon;
mod mon_profiles;
mod network;
mod osd;

use core::fmt;

pub use constraint::Constraint;
pub use mds::{MdsCap, MdsGrant};
pub use mgr::{MgrCap, MgrGrant, MgrRequest};
pub use mon::{MonCap, MonGrant, MonRequest};
pub use network::Network;
pub use osd::{AppMetadata, ClassCall, OsdCap, OsdGrant, OsdMatch, OsdRequest, OsdSpec};

/// Reading, writing, executing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rwx {
    bits: u8,
}

impl Rwx {
    /// Nothing.
    pub const NONE: Rwx = Rwx { bits: 0 };
    /// Reading.
    pub const R: Rwx = Rwx { bits: 2 };
    /// Writing.
    pub const W: Rwx = Rwx { bits: 4 };
    /// Executing.
    pub const X: Rwx = Rwx { bits: 8 };
    /// The three of them.
    pub const RWX: Rwx = Rwx { bits: 14 };
    /// `*`: more than the three of them together.
    pub const ANY: Rwx = Rwx { bits: 0xff };

    /// Both together.
    #[must_use]
    pub const fn or(self, other: Rwx) -> Rwx {
        Rwx { bits: self.bits | other.bits }
    }

    /// Whether all of `wanted` are here.
    pub const fn has(self, wanted: Rwx) -> bool {
        self.bits & wanted.bits == wanted.bits
    }

    /// Those of a request.
    pub fn wanted(read: bool, write: bool, exec: bool) -> Rwx {
        let pick = |on: bool, rwx: Rwx| if on { rwx } else { Rwx::NONE };
        pick(read, Rwx::R).or(pick(write, Rwx::W)).or(pick(exec, Rwx::X))
    }

    fn read(c: &mut cursor::Cursor<'_>) -> Option<Rwx> {
        if c.wildcard() {
            return Some(Rwx::ANY);
        }
        let [r, w, x] = c.rwx()?;
        Some(Rwx::wanted(r, w, x))
    }
}

impl fmt::Display for Rwx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Rwx::ANY {
            return f.write_str("*");
        }
        for (rwx, letter) in [(Rwx::R, "r"), (Rwx::W, "w"), (Rwx::X, "x")] {
            if self.has(rwx) {
                f.write_str(letter)?;
            }
        }
        Ok(())
    }
}

/// A text is no capability. Prints as Ceph tells its users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapsError {
    /// Name of the service.
    pub service: &'static str,
    /// Where reading stopped.
    pub stopped_at: String,
    /// The whole text.
    pub text: String,
}

impl fmt::Display for CapsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CapsError { service, stopped_at, text } = self;
        write!(f, "{service} capability parse failed, stopped at '{stopped_at}' of '{text}'")
    }
}

impl std::error::Error for CapsError {}

/// Reads all of `text` as grants.
fn parse_all<'a, T>(
    service: &'static str,
    text: &'a str,
    grant: impl Fn(&mut cursor::Cursor<'a>) -> Option<T>,
) -> Result<Vec<T>, CapsError> {
    match cursor::grants(text, grant) {
        (found, "") if !found.is_empty() => Ok(found),
        (_, rest) => Err(CapsError { service, stopped_at: rest.to_owned(), text: text.to_owned() }),
    }
}
