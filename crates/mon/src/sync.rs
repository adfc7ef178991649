//! `sync_force`: a monitor whose database is thought damaged throws it away at its next start and
//! copies another's (`Monitor::sync_force` at v16.2). It comes back as a new member, like one that
//! was wiped by hand ([the argument](../../../docs/quorum.md)).

use auth::{FillRandom, Keyring};
use bytes::Bytes;
use denc::Denc;
use store::{Kv, KvBatch, KvError};

use crate::core::LoadError;
use crate::layout::{self, AUTH, MON_SYNC};
use crate::mkfs::join;

const FORCE: &str = "force_sync";

/// From the next start on, the database is another's copy.
pub(crate) fn force(kv: &dyn Kv) -> Result<(), KvError> {
    let mut batch = KvBatch::new();
    layout::put_u64(&mut batch, MON_SYNC, FORCE, 1);
    kv.commit(batch)
}

/// Throws the database away if [`force`] asked for it: what is left is the newest monitor map, the
/// monitors' key and a new number. Says whether it did.
pub(crate) fn erase_if_forced(kv: &dyn Kv, fill: FillRandom<'_>) -> Result<bool, LoadError> {
    if layout::get_u64(kv, MON_SYNC, FORCE)?.is_none() {
        return Ok(false);
    }
    let monmap = crate::monmap::load(kv)?;
    let keyring = layout::get(kv, AUTH, "mon_keyring")?.unwrap_or_default();
    let keyring = Keyring::from_bytes(&keyring)
        .map_err(|error| LoadError::Decode { what: "the monitors' keyring".to_string(), error })?;
    // One batch: a crash leaves the old database, still marked, or the new one.
    let mut batch = KvBatch::new();
    batch.delete_range(Bytes::new(), Bytes::from_static(&[0xff]));
    join(&mut batch, &monmap, &keyring, fill);
    kv.commit(batch)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use auth::{CryptoKey, EntityAuth};
    use config::Config;
    use maps::{MonInfo, MonMap};
    use store::kv::MemKv;
    use types::{AuthEntityName, UTime, entity};

    use super::*;
    use crate::layout::{MONMAP, OSDMAP, RAFT};

    #[test]
    fn a_forced_sync_leaves_the_map_the_key_and_a_new_number() {
        let kv = MemKv::new();
        let counter = Cell::new(1u8);
        let fill = |buf: &mut [u8]| {
            counter.set(counter.get() + 1);
            buf.fill(counter.get());
        };
        let mut keyring = Keyring::new();
        for (kind, id) in [(entity::MON, ""), (entity::CLIENT, "admin")] {
            let key = CryptoKey::generate(&fill, UTime::default());
            let auth = EntityAuth::new(key, [("mon", "allow *")]);
            keyring.keys.insert(AuthEntityName::new(kind, id), auth);
        }
        let mut monmap = MonMap::default();
        monmap.add(MonInfo { name: "a".into(), ..MonInfo::default() });
        let conf = Config::new("mon", "a");
        crate::mkfs(&kv, &conf, &monmap, &keyring, UTime::default(), &fill).unwrap();
        let mut batch = KvBatch::new();
        layout::put_u64(&mut batch, RAFT, "id", 7);
        kv.commit(batch).unwrap();
        let before = layout::get(&kv, AUTH, "mon_keyring").unwrap();

        assert!(!erase_if_forced(&kv, &fill).unwrap());
        force(&kv).unwrap();
        assert!(erase_if_forced(&kv, &fill).unwrap());
        assert!(!erase_if_forced(&kv, &fill).unwrap(), "once");
        assert_eq!(layout::get(&kv, AUTH, "mon_keyring").unwrap(), before);
        assert_eq!(crate::monmap::load(&kv).unwrap().size(), 1);
        assert_eq!(layout::get_u64(&kv, RAFT, "copying").unwrap(), Some(1));
        assert!(layout::get_u64(&kv, RAFT, "id").unwrap().is_some_and(|id| id != 7));
        assert_eq!(layout::get_u64(&kv, OSDMAP, "last").unwrap(), None);
        assert_eq!(layout::all(&kv, AUTH).unwrap().len(), 1, "no client's key");
        assert_eq!(layout::get_u64(&kv, MONMAP, "last").unwrap(), Some(1));
    }
}
