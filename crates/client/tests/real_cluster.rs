//! Against a running cluster, real Ceph 16.2 or ours. `CEPH_PEER` names a folder with `ceph.conf`
//! and a keyring of client.admin (`keyring` or `ceph.client.admin.keyring`); without it the test
//! says so and passes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use auth::Keyring;
use bytes::Bytes;
use client::{Client, ClientError, Operation, Options};
use config::{ConfFile, Config};
use env::real::Runtime;
use types::Errno;

fn peer() -> Option<(Rc<Config>, Keyring)> {
    let Some(dir) = std::env::var_os("CEPH_PEER").map(PathBuf::from) else {
        eprintln!("CEPH_PEER is not set: nothing is checked");
        return None;
    };
    let conf = std::fs::read_to_string(dir.join("ceph.conf")).unwrap();
    let config = Config::new("client", "admin");
    config.load_file(&ConfFile::parse(&conf).unwrap());
    let keyring = ["keyring", "ceph.client.admin.keyring"]
        .iter()
        .find_map(|name| std::fs::read(dir.join(name)).ok())
        .unwrap();
    Some((Rc::new(config), Keyring::from_file(&keyring).unwrap()))
}

#[test]
fn objects_live_in_a_running_cluster() {
    let Some((config, keyring)) = peer() else { return };
    Runtime::new().unwrap().block_on(|env| async move {
        let all = env.timeout(Duration::from_secs(60), async {
            let client =
                Client::connect(env.clone(), config, &keyring, Options::default()).await.unwrap();
            let create =
                r#"{"prefix":"osd pool create","pool":"loligo-client","pg_num":8,"pgp_num":8}"#;
            let answer = client.mon_command(create, Bytes::new()).await.unwrap();
            assert_eq!(answer.rc, 0, "{}", answer.outs);
            let io = client.io_ctx("loligo-client").await.unwrap();

            // Content.
            assert_eq!(io.read("none", 0, 0).await, Err(ClientError::Errno(Errno::ENOENT)));
            let first = io.write_full("a", Bytes::from_static(b"hello world")).await.unwrap();
            let second = io.append("a", Bytes::from_static(b"!")).await.unwrap();
            assert!(second > first);
            io.write("a", 0, Bytes::from_static(b"J")).await.unwrap();
            assert_eq!(&io.read("a", 0, 0).await.unwrap()[..], b"Jello world!");
            assert_eq!(&io.read("a", 6, 5).await.unwrap()[..], b"world");
            assert_eq!(io.stat("a").await.unwrap().0, 12);
            io.truncate("a", 5).await.unwrap();
            assert_eq!(&io.read("a", 0, 100).await.unwrap()[..], b"Jello");

            // Several ops at once, all or none.
            let two = Operation::new().create(true).write(0, Bytes::from_static(b"x"));
            let twice = io.operate("a", two).await;
            assert_eq!(twice, Err(ClientError::Errno(Errno::EEXIST)));

            // Attributes and omap.
            io.setxattr("a", "colour", b"red").await.unwrap();
            assert_eq!(&io.getxattr("a", "colour").await.unwrap()[..], b"red");
            assert_eq!(io.getxattrs("a").await.unwrap().len(), 1);
            io.rmxattr("a", "colour").await.unwrap();
            let none = io.getxattr("a", "colour").await;
            assert_eq!(none, Err(ClientError::Errno(Errno::ENODATA)));
            let many: BTreeMap<_, _> =
                (0..2500).map(|i| (format!("k{i:05}").into(), Bytes::from(vec![7; 3]))).collect();
            io.omap_set("a", &many).await.unwrap();
            assert_eq!(io.omap_get("a").await.unwrap(), many);

            // A class, a namespace, a snapshot of one's own.
            let said = io.exec("a", "hello", "say_hello", b"").await.unwrap();
            assert_eq!(&said[..], b"Hello, world!");
            let other = io.clone().with_namespace("ns");
            other.write_full("a", Bytes::from_static(b"other")).await.unwrap();
            assert_eq!(&other.read("a", 0, 0).await.unwrap()[..], b"other");

            // Listing, in and over namespaces; many at once.
            let writes = (0..200).map(|i| {
                let io = io.clone();
                env.spawn_with_handle(async move {
                    io.write_full(format!("o{i}"), Bytes::from(vec![i as u8; 4096])).await
                })
            });
            for write in writes.collect::<Vec<_>>() {
                write.await.unwrap();
            }
            let mut names: Vec<_> = io.list().await.unwrap().into_iter().map(|e| e.name).collect();
            names.sort();
            assert_eq!(names.len(), 201);
            let everywhere = io.clone().with_all_namespaces().list().await.unwrap();
            assert_eq!(everywhere.len(), 202);
            io.remove("a").await.unwrap();
            assert_eq!(io.stat("a").await, Err(ClientError::Errno(Errno::ENOENT)));

            // Commands elsewhere.
            let version = client.osd_command(0, r#"{"prefix":"version"}"#, Bytes::new()).await;
            assert_eq!(version.unwrap().rc, 0);
            let nowhere = client.osd_command(99, r#"{"prefix":"version"}"#, Bytes::new()).await;
            assert!(nowhere.is_err());
            let stat = client.mgr_command(r#"{"prefix":"pg stat"}"#, Bytes::new()).await.unwrap();
            assert_eq!(stat.rc, 0, "{}", stat.outs);

            // A pool that goes away.
            let delete = r#"{"prefix":"osd pool delete","pool":"loligo-client",
                "pool2":"loligo-client","yes_i_really_really_mean_it":true}"#;
            let answer = client.mon_command(delete, Bytes::new()).await.unwrap();
            assert_eq!(answer.rc, 0, "{}", answer.outs);
            client.wait_for_latest_osdmap().await.unwrap();
            let gone = io.read("o1", 0, 0).await;
            assert!(gone == Err(ClientError::Errno(Errno::ENOENT)));
            client.shutdown();
        });
        all.await.expect("done within a minute");
    });
}
