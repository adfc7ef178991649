//! Capabilities: what parses, what it allows.

use std::collections::BTreeMap;

use auth::caps::{
    AppMetadata, ClassCall, MdsCap, MgrCap, MgrRequest, MonCap, MonRequest, OsdCap, OsdRequest, Rwx,
};
use types::addr::EntityAddr;
use types::entity::{AuthEntityName, MON};

fn addr() -> EntityAddr {
    "10.1.2.3:0/7".parse().unwrap()
}

fn args(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn mon(cap: &str, service: &str, command: &str, given: &[(&str, &str)], wanted: Rwx) -> bool {
    let name: AuthEntityName = "osd.3".parse().unwrap();
    MonCap::parse(cap).unwrap().is_capable(&MonRequest {
        daemon: MON,
        name: &name,
        service,
        command,
        arguments: &args(given),
        wanted,
        addr: &addr(),
    })
}

#[test]
fn mon_texts() {
    for text in [
        "allow *",
        "allow r",
        "allow rwx",
        "allow all",
        "allow service foo x",
        "allow service=foo rwx",
        "allow command foo",
        "allow command=foo",
        "allow command \"foo bar\" with a=b, allow r",
        "allow command abc with a prefix x b regex \"y+\" network 10.0.0.0/8",
        "allow profile osd",
        "profile rbd",
        "profile=rbd;allow r",
        "allow r fsname=a",
        " allow r ,  allow w network [fe80::]/64 ",
    ] {
        let cap = MonCap::parse(text).unwrap_or_else(|e| panic!("{e}"));
        assert!(!cap.grants.is_empty());
    }
    for text in ["allow", "allow q", "foo", "allow r allow w", "allow rwx x", "allow command"] {
        assert!(MonCap::parse(text).is_err(), "{text}");
    }
    assert_eq!(
        MonCap::parse("allow r, bogus").unwrap_err().to_string(),
        "mon capability parse failed, stopped at ', bogus' of 'allow r, bogus'"
    );
    assert!(MonCap::parse("allow *").unwrap().is_allow_all());
    assert!(MonCap::parse("").unwrap().grants.is_empty());
    let shown = MonCap::parse("allow command \"a b\" with k=\"v w\",profile osd").unwrap();
    assert_eq!(shown.to_string(), "allow command \"a b\" with k=\"v w\", allow profile osd");
}

#[test]
fn mon_rights() {
    assert!(mon("allow r, allow w", "osd", "", &[], Rwx::R.or(Rwx::W)));
    assert!(!mon("allow r", "osd", "", &[], Rwx::W));
    assert!(!mon("allow rwx", "config-key", "", &[], Rwx::R));
    assert!(mon("allow *", "config-key", "", &[], Rwx::R));
    assert!(mon("allow service osd rw", "osd", "", &[], Rwx::W));
    assert!(!mon("allow service osd rw", "pg", "", &[], Rwx::R));
    assert!(mon("allow command foo with a=b", "x", "foo", &[("a", "b")], Rwx::RWX));
    assert!(!mon("allow command foo with a=b", "x", "foo", &[], Rwx::R));
    assert!(mon("profile osd", "osd", "osd crush set", &[], Rwx::RWX));
    assert!(mon("allow profile osd", "log", "", &[], Rwx::W));
    assert!(!mon("allow profile osd", "auth", "", &[], Rwx::R));
    let private = [("key", "daemon-private/osd.3/x")];
    assert!(mon("profile osd", "config-key", "config-key set", &private, Rwx::RWX));
    let other = [("key", "daemon-private/osd.4/x")];
    assert!(!mon("profile osd", "config-key", "config-key set", &other, Rwx::W));
    let dead = [("blocklistop", "add"), ("addr", "10.0.0.1:0/123")];
    assert!(mon("profile rbd", "osd", "osd blocklist", &dead, Rwx::RWX));
    let no_nonce = [("blocklistop", "add"), ("addr", "10.0.0.1:0")];
    assert!(!mon("profile rbd", "osd", "osd blocklist", &no_nonce, Rwx::W));
    let handed = [
        ("entity", "client.x"),
        ("caps_mon", "profile rbd"),
        ("caps_osd", "profile rbd pool=a, profile rbd-read-only pool b"),
    ];
    assert!(mon("profile bootstrap-rbd", "auth", "auth get-or-create", &handed, Rwx::RWX));
    assert!(mon("allow r network 10.0.0.0/8", "osd", "", &[], Rwx::R));
    assert!(!mon("allow r network 10.2.0.0/16", "osd", "", &[], Rwx::R));
}

fn call<'a>(class: &'a str, method: &'a str, write: bool, allow_listed: bool) -> ClassCall<'a> {
    ClassCall { class, method, read: !write, write, allow_listed }
}

struct Op<'a> {
    pool: &'a str,
    ns: &'a str,
    object: &'a str,
    rw: (bool, bool),
    classes: &'a [ClassCall<'a>],
}

const READ: Op<'_> = Op { pool: "p", ns: "", object: "o", rw: (true, false), classes: &[] };

fn osd(cap: &str, op: &Op<'_>) -> bool {
    let mut apps = AppMetadata::new();
    apps.insert("cephfs".to_owned(), args(&[("data", "fs1")]));
    let cap = OsdCap::parse(cap).unwrap_or_else(|e| panic!("{e}"));
    cap.is_capable(&OsdRequest {
        pool: op.pool,
        namespace: op.ns.as_bytes(),
        app_metadata: &apps,
        object: op.object.as_bytes(),
        read: op.rw.0,
        write: op.rw.1,
        classes: op.classes,
        addr: &addr(),
    })
}

#[test]
fn osd_texts() {
    for text in [
        "allow *",
        "allow r",
        "allow rwx pool=foo",
        "allow rwx pool foo namespace=bar",
        "allow pool foo rwx",
        "allow pool=\"foo bar\" namespace='' r",
        "allow rw namespace=bar* object_prefix x",
        "allow r class-read pool p",
        "allow class-read, allow class-write",
        "allow class foo",
        "allow class foo bar",
        "allow pool rbd class \"foo\"",
        "allow rw tag cephfs data=fs1",
        "allow rw tag cephfs *=*",
        "allow rw namespace=n tag rbd all = all",
        "profile rbd",
        "profile rbd pool=images namespace=x",
        "profile=rbd-read-only network 10.0.0.0/8",
        "allow all;allow x",
        "allow rwx network ::1/128",
    ] {
        OsdCap::parse(text).unwrap_or_else(|e| panic!("{e}"));
    }
    for text in ["allow", "allow foo", "allow pool foo", "rwx", "allow rwx bar", "allow rwx pool"] {
        assert!(OsdCap::parse(text).is_err(), "{text}");
    }
    assert!(OsdCap::parse("allow *").unwrap().is_allow_all());
    assert!(!OsdCap::parse("allow * pool=x").unwrap().is_allow_all());
}

#[test]
fn osd_rights() {
    let write = Op { rw: (false, true), ..READ };
    assert!(osd("allow r", &READ) && !osd("allow r", &write) && osd("allow rw", &write));
    assert!(osd("allow r pool=p", &READ) && !osd("allow r pool=q", &READ));
    assert!(osd("allow r namespace=''", &READ) && !osd("allow r namespace=n", &READ));
    let n = Op { ns: "n1", ..READ };
    assert!(osd("allow r namespace=n*", &n) && !osd("allow r namespace=n", &n));
    assert!(osd("allow r object_prefix o", &READ) && !osd("allow r object_prefix x", &READ));
    for tag in ["data=fs1", "*=*", "data=*", "*=fs1"] {
        assert!(osd(&format!("allow r tag cephfs {tag}"), &READ), "{tag}");
    }
    for tag in ["cephfs data=fs2", "cephfs x=*", "rbd *=*", "cephfs *=x"] {
        assert!(!osd(&format!("allow r tag {tag}"), &READ), "{tag}");
    }
    let listed = [call("lock", "lock", true, true)];
    let op = Op { classes: &listed, rw: (false, false), ..READ };
    assert!(osd("allow x", &op) && osd("allow class-write", &op) && !osd("allow rw", &op));
    let unlisted = [call("mine", "m", false, false), call("lock", "lock", true, true)];
    let op = Op { classes: &unlisted, rw: (false, false), ..READ };
    assert!(!osd("allow x", &op) && osd("allow *", &op));
    assert!(osd("allow class mine m, allow x", &op));
    assert!(!osd("allow class mine other, allow x", &op));
    let header = [call("rbd", "child_attach", true, true)];
    let op = Op { classes: &header, object: "rbd_header.1", rw: (false, false), ..READ };
    assert!(osd("profile rbd-read-only", &op));
    assert!(!osd("profile rbd-read-only", &Op { object: "other", ..op }));
    assert!(osd("profile rbd pool=p", &write) && !osd("profile rbd pool=q", &write));
    // A client confined to a namespace reads what the pool configures for all of them.
    let metadata = [call("rbd", "metadata_list", true, false)];
    let info = Op { object: "rbd_info", ..READ };
    let list = Op { classes: &metadata, rw: (false, false), ..info };
    for profile in ["rbd", "rbd-read-only"] {
        let cap = format!("profile {profile} pool=p namespace=n");
        assert!(osd(&cap, &list) && !osd(&cap, &READ), "{cap}");
    }
    assert!(osd("profile rbd pool=q namespace=n", &info));
}

/// Who was confined to a namespace could take no snapshot of an image there (EPERM): the monitor asked
/// whether the capability let him write an object without a name outside of all namespaces.
#[test]
fn who_writes_to_some_of_a_pool_s_objects_takes_snapshots_of_it() {
    let mut apps = AppMetadata::new();
    apps.insert("cephfs".to_owned(), args(&[("data", "fs1")]));
    let writes = |cap: &str| OsdCap::parse(cap).unwrap().writes_to_pool("p", &apps, &addr());
    for cap in [
        "profile rbd pool=p namespace=n",
        "profile rbd pool=p",
        "profile rbd",
        "allow *",
        "allow rwx pool=p namespace=n",
        "allow w pool=p object_prefix x",
        "profile rbd pool=q namespace=n, allow rw pool p",
        "allow rw tag cephfs data=fs1",
        "allow rw namespace=n tag cephfs data=*",
    ] {
        assert!(writes(cap), "{cap}");
    }
    for cap in [
        "profile rbd pool=q namespace=n",
        "profile rbd namespace=n",
        "profile rbd-read-only pool=p",
        "allow rx pool=p",
        "allow rw object_prefix x",
        "allow rw tag cephfs data=fs2",
        "allow rw tag rbd *=*",
        "allow rwx pool=p network 203.0.113.0/24",
        "profile nonsense pool=p",
    ] {
        assert!(!writes(cap), "{cap}");
    }
}

#[test]
fn mgr_and_mds() {
    let ask = |cap: &str, module: &str, command: &str, given: &[(&str, &str)], wanted: Rwx| {
        let cap = MgrCap::parse(cap).unwrap_or_else(|e| panic!("{e}"));
        cap.is_capable(&MgrRequest {
            service: "mgr",
            module,
            command,
            arguments: &args(given),
            wanted,
            addr: &addr(),
        })
    };
    assert!(ask("allow rw", "m", "c", &[], Rwx::W));
    assert!(!ask("allow r", "m", "c", &[], Rwx::W));
    assert!(ask("allow module m rw", "m", "", &[], Rwx::W));
    assert!(!ask("allow module m with a=b rw", "m", "", &[], Rwx::W));
    assert!(ask("allow module m with a=b rw", "m", "", &[("a", "b")], Rwx::W));
    assert!(ask("allow command c with a=b", "m", "c", &[("a", "b")], Rwx::RWX));
    assert!(ask("profile rbd pool=p", "rbd_support", "", &[("pool", "p")], Rwx::W));
    assert!(!ask("profile rbd-read-only", "rbd_support", "x", &[], Rwx::W));
    assert!(ask("profile crash", "crash", "crash post", &[], Rwx::RWX));
    assert!(!ask("allow profile osd", "m", "c", &[], Rwx::R));
    assert!(MgrCap::parse("profile nope").is_err());
    assert!(MgrCap::parse("profile rbd x=y").is_err());
    let shown = MgrCap::parse("allow module m with k prefix v rw").unwrap();
    assert_eq!(shown.grants[0].to_string(), "allow module m with k prefix v rw");

    for text in [
        "allow",
        "allow *",
        "allow rw path=/a",
        "allow rwps fsname=x path=\"/b c\"",
        "allow r uid=1 gids=1,2, allow rw root_squash",
        "allow rw fsname=a root_squash",
    ] {
        MdsCap::parse(text).unwrap_or_else(|e| panic!("{e}"));
    }
    assert!(MdsCap::parse("allow zz").is_err());
    assert_eq!(MdsCap::parse("allow r uid=1 gids=1,2").unwrap().grants[0].gids, [1, 2]);
}
