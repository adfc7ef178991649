//! One monitor on loopback, for trying the real `ceph` against it:
//! `cargo run -p loligo-mon --example mon -- DIR PORT`, then `ceph -c DIR/ceph.conf -s`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use auth::{CryptoKey, EntityAuth, Keyring};
use maps::{MonInfo, MonMap};
use store::Kv;
use store::kv::RedbKv;
use types::{AddrVec, AuthEntityName, EntityAddr, UTime, Uuid, entity};

fn main() {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().expect("DIR"));
    let port: u16 = args.next().expect("PORT").parse().expect("a port");
    std::fs::create_dir_all(&dir).expect("a directory");
    env::real::Runtime::new().expect("a reactor").block_on(move |env| async move {
        let conf_path = dir.join("ceph.conf");
        let kv: Rc<dyn Kv> = Rc::new(RedbKv::open(&env, &dir.join("mon.db")).expect("a database"));
        let fresh = !conf_path.exists();
        if fresh {
            let mut id = [0; 16];
            env.fill_random(&mut id);
            let fsid = Uuid::from_random(id);
            let keyring = dir.join("keyring");
            let text = format!(
                "[global]\nfsid = {fsid}\nmon_host = v2:127.0.0.1:{port}\nkeyring = {}\nosd_crush_chooseleaf_type = 0\nmon_allow_pool_delete = true\n",
                keyring.display()
            );
            std::fs::write(&conf_path, text).expect("ceph.conf");
        }
        let conf = config::Config::new("mon", "a").with_identity("ceph", "localhost", 1);
        let text = std::fs::read_to_string(&conf_path).expect("ceph.conf");
        let bad = conf.load_file(&config::ConfFile::parse(&text).expect("a good ceph.conf"));
        assert!(bad.is_empty(), "{bad:?}");
        let conf = Rc::new(conf);
        if fresh {
            let now = UTime::from_duration(env.wall_clock());
            let fill = |buf: &mut [u8]| env.fill_random(buf);
            let mut keyring = Keyring::new();
            let all = [("mon", "allow *"), ("osd", "allow *"), ("mgr", "allow *"), ("mds", "allow *")];
            for (kind, name, caps) in [
                (entity::MON, "", &[("mon", "allow *")][..]),
                (entity::CLIENT, "admin", &all[..]),
                (entity::MGR, "x", &[("mon", "allow profile mgr"), ("osd", "allow *")][..]),
                (entity::OSD, "0", &[("mon", "allow profile osd"), ("osd", "allow *")][..]),
            ] {
                let auth = EntityAuth::new(CryptoKey::generate(&fill, now), caps.iter().copied());
                keyring.keys.insert(AuthEntityName::new(kind, name), auth);
            }
            std::fs::write(dir.join("keyring"), keyring.to_text()).expect("keyring");
            let sock = std::net::SocketAddr::from(([127, 0, 0, 1], port));
            let mut monmap = MonMap {
                fsid: conf.str("fsid").parse().expect("fsid"),
                epoch: 1,
                last_changed: now,
                created: now,
                min_mon_release: 16,
                persistent_features: maps::monmap::MonFeatures { bits: 255 },
                ..MonMap::default()
            };
            monmap.add(MonInfo {
                name: "a".into(),
                public_addrs: AddrVec::of(EntityAddr::msgr2(sock, 0)),
                ..MonInfo::default()
            });
            mon::mkfs(&*kv, &conf, &monmap, &keyring, now, &fill).expect("mkfs");
        }
        let metadata = BTreeMap::from([
            ("hostname".to_string(), "localhost".to_string()),
            ("ceph_version".to_string(), "ceph version 16.2.15 (loligo) pacific (stable)".to_string()),
        ]);
        let identity = mon::Identity { name: "a".to_string(), metadata };
        let mon = mon::Mon::start(env.clone(), conf, kv, identity).await.expect("a monitor");
        loop {
            env.sleep(Duration::from_secs(1)).await;
            if let Some(why) = mon.failure() {
                panic!("{why}");
            }
        }
    });
}
