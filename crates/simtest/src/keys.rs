//! The keys of a simulated cluster.

use auth::{CryptoKey, EntityAuth, Keyring};
use env::Env;
use types::UTime;
use types::entity::{self, AuthEntityName};

/// Everybody's key and caps.
pub(crate) fn keyring(env: &Env, osds: u32) -> Keyring {
    let now = UTime::from_duration(env.wall_clock());
    let mut all: Vec<(u8, String, Vec<(&str, &str)>)> = vec![
        (entity::MON, String::new(), vec![("mon", "allow *")]),
        (
            entity::CLIENT,
            "admin".to_owned(),
            vec![("mon", "allow *"), ("osd", "allow *"), ("mgr", "allow *"), ("mds", "allow *")],
        ),
        (
            entity::MGR,
            "x".to_owned(),
            vec![("mon", "allow profile mgr"), ("osd", "allow *"), ("mds", "allow *")],
        ),
    ];
    for osd in 0..osds {
        let caps =
            vec![("mon", "allow profile osd"), ("mgr", "allow profile osd"), ("osd", "allow *")];
        all.push((entity::OSD, osd.to_string(), caps));
    }
    let mut ring = Keyring::new();
    for (kind, name, caps) in all {
        let key = CryptoKey::generate(&|buf: &mut [u8]| env.fill_random(buf), now);
        ring.keys.insert(AuthEntityName::new(kind, &name), EntityAuth::new(key, caps));
    }
    ring
}
