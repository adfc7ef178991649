//! Rotating service secrets: three live at a time, previous, current and next.
//!
//! Tickets are sealed with the middle one, so that a service that fetched its secrets at any time
//! in the last period can open tickets made now, and one that fetches now can open old tickets
//! (src/auth/Auth.h: RotatingSecrets; src/auth/cephx/CephxKeyServer.cc at v16.2).

use std::collections::BTreeMap;

use denc::{Denc, Error, Reader, Writer};
use types::time::UTime;

use crate::CryptoKey;
use crate::ticket::check_version;

/// Live secrets of one service. More are dropped, oldest first.
pub const KEYS_MAX: usize = 3;

/// A secret and when it ends. Wire: ExpiringCryptoKey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiringCryptoKey {
    /// The secret.
    pub key: CryptoKey,
    /// End of its use.
    pub expiration: UTime,
}

impl Denc for ExpiringCryptoKey {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        self.key.encode(w);
        self.expiration.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<ExpiringCryptoKey, Error> {
        check_version(r, "ExpiringCryptoKey version", 1)?;
        Ok(ExpiringCryptoKey { key: r.get()?, expiration: r.get()? })
    }
}

/// The live secrets of one service. Wire: RotatingSecrets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RotatingSecrets {
    /// By id; at most [`KEYS_MAX`] in those we make.
    pub secrets: BTreeMap<u64, ExpiringCryptoKey>,
    /// Highest id given out.
    pub max_ver: u64,
}

impl RotatingSecrets {
    /// Adds the newest secret, dropping the oldest beyond [`KEYS_MAX`]; its id.
    pub fn add(&mut self, key: ExpiringCryptoKey) -> u64 {
        self.max_ver += 1;
        self.secrets.insert(self.max_ver, key);
        while self.secrets.len() > KEYS_MAX {
            self.secrets.pop_first();
        }
        self.max_ver
    }

    /// The middle secret, with which tickets are sealed; the next one if it has expired.
    pub fn current(&self, now: UTime) -> Option<(u64, &ExpiringCryptoKey)> {
        let mut keys = self.secrets.iter().peekable();
        if self.secrets.len() > 1 {
            keys.next();
        }
        let (mut id, mut key) = keys.next()?;
        if key.expiration < now
            && let Some(next) = keys.next()
        {
            (id, key) = next;
        }
        Some((*id, key))
    }

    /// The newest secret.
    pub fn newest(&self) -> Option<&ExpiringCryptoKey> {
        self.secrets.last_key_value().map(|(_, key)| key)
    }

    /// Whether the owner must make another secret.
    pub fn need_new(&self, now: UTime) -> bool {
        match self.secrets.iter().nth(1) {
            Some((_, current)) => self.secrets.len() < KEYS_MAX || current.expiration <= now,
            None => true,
        }
    }

    /// Makes secrets until three are live and the current one is not expired; how many.
    ///
    /// `ttl` is the lifetime of a ticket sealed with them; `make` makes a key.
    pub fn rotate(&mut self, now: UTime, ttl: UTime, mut make: impl FnMut() -> CryptoKey) -> usize {
        let mut added = 0;
        while self.need_new(now) {
            let from = match self.newest() {
                None => now,
                Some(newest) => plus(now, ttl).max(newest.expiration),
            };
            self.add(ExpiringCryptoKey { key: make(), expiration: plus(from, ttl) });
            added += 1;
        }
        added
    }

    /// The secret of that id.
    pub fn secret(&self, id: u64) -> Option<&CryptoKey> {
        self.secrets.get(&id).map(|key| &key.key)
    }
}

impl Denc for RotatingSecrets {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        self.secrets.encode(w);
        w.u64(self.max_ver);
    }
    fn decode(r: &mut Reader<'_>) -> Result<RotatingSecrets, Error> {
        check_version(r, "RotatingSecrets version", 1)?;
        Ok(RotatingSecrets { secrets: r.get()?, max_ver: r.u64()? })
    }
}

/// Sum of two times, kept within the type.
pub(crate) fn plus(a: UTime, b: UTime) -> UTime {
    let nsec = u64::from(a.nsec) + u64::from(b.nsec);
    let sec = u64::from(a.sec) + u64::from(b.sec) + nsec / 1_000_000_000;
    UTime { sec: u32::try_from(sec).unwrap_or(u32::MAX), nsec: (nsec % 1_000_000_000) as u32 }
}

/// `a - b`, zero if that is negative.
pub(crate) fn minus(a: UTime, b: UTime) -> UTime {
    let nanos = |t: UTime| u64::from(t.sec) * 1_000_000_000 + u64::from(t.nsec);
    let left = nanos(a).saturating_sub(nanos(b));
    UTime { sec: (left / 1_000_000_000) as u32, nsec: (left % 1_000_000_000) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(sec: u32) -> UTime {
        UTime { sec, nsec: 0 }
    }

    #[test]
    fn three_are_made_at_once_and_one_per_period_after() {
        let mut n = 0;
        let mut make = || {
            n += 1;
            CryptoKey::new([n; 16], at(0))
        };
        let mut secrets = RotatingSecrets::default();
        assert_eq!(secrets.rotate(at(1000), at(3600), &mut make), 3);
        let ends: Vec<u32> = secrets.secrets.values().map(|k| k.expiration.sec).collect();
        assert_eq!(ends, [4600, 8200, 11800]);
        assert_eq!(secrets.current(at(1000)).unwrap().0, 2);
        assert_eq!(secrets.rotate(at(8199), at(3600), &mut make), 0);
        assert_eq!(secrets.rotate(at(8200), at(3600), &mut make), 1);
        assert_eq!(secrets.secrets.keys().copied().collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(secrets.current(at(8200)).unwrap().0, 3);
        // Asleep for long: all are replaced.
        assert_eq!(secrets.rotate(at(100_000), at(3600), &mut make), 2);
        assert!(secrets.current(at(100_000)).unwrap().1.expiration > at(100_000));
    }
}
