//! What the named profiles allow at the monitors (src/mon/MonCap.cc at v16.2).

use types::entity::{self, AuthEntityName};

use super::constraint::Constraint;
use super::{MonGrant, Rwx};

fn blanket(allow: Rwx) -> MonGrant {
    MonGrant { allow, ..MonGrant::default() }
}

fn service(service: &str, allow: Rwx) -> MonGrant {
    MonGrant { service: service.to_owned(), allow, ..MonGrant::default() }
}

fn command(command: &str, arguments: &[(&str, Constraint)]) -> MonGrant {
    let arguments = arguments.iter().map(|(key, c)| ((*key).to_owned(), c.clone())).collect();
    MonGrant { command: command.to_owned(), arguments, ..MonGrant::default() }
}

fn equal(text: &str) -> Constraint {
    Constraint::Equal(text.to_owned())
}

fn prefix(text: &str) -> Constraint {
    Constraint::Prefix(text.to_owned())
}

fn regex(text: &str) -> Constraint {
    Constraint::Regex(text.to_owned())
}

const R: Rwx = Rwx::R;
const W: Rwx = Rwx::W;
const RW: Rwx = Rwx::R.or(Rwx::W);
const ALL: Rwx = Rwx::RWX;

/// Caps at OSDs that `bootstrap-rbd` keys may hand out: rbd profiles, optionally confined to pools.
const RBD_CAPS: &str =
    r#"([ ,]*profile(=|[ ]+)['"]?rbd[^ ,'"]*['"]?([ ]+pool(=|[ ]+)['"]?[^,'"]+['"]?)?)+"#;
/// An address with a nonce.
const ADDR_WITH_NONCE: &str = "[^/]+/[0-9]+";

/// The grants of a profile, checked by a daemon of that type, for that entity. An unknown profile
/// grants nothing.
pub(super) fn profile_grants(profile: &str, daemon: u8, name: &AuthEntityName) -> Vec<MonGrant> {
    match (profile, daemon) {
        ("read-only", _) => vec![blanket(R)],
        ("read-write", _) => vec![blanket(RW)],
        ("crash", entity::MGR) => vec![command("crash post", &[])],
        (_, entity::MON) => mon_grants(profile, name),
        _ => Vec::new(),
    }
}

fn mon_grants(profile: &str, name: &AuthEntityName) -> Vec<MonGrant> {
    match profile {
        "mon" => with_private_keys(name, vec![service("mon", ALL), service("log", ALL)]),
        "osd" => with_private_keys(
            name,
            vec![service("osd", ALL), service("mon", R), service("pg", RW), service("log", W)],
        ),
        "mds" => with_private_keys(
            name,
            vec![
                service("mds", ALL),
                service("mon", R),
                service("osd", R),
                command("osd pool rmsnap", &[]),
                command("osd blocklist", &[]),
                command("osd blacklist", &[]),
                service("log", W),
            ],
        ),
        "mgr" => with_private_keys(
            name,
            vec![
                service("mgr", ALL),
                service("log", RW),
                service("mon", RW),
                service("mds", RW),
                service("fs", RW),
                service("osd", RW),
                service("auth", ALL),
                service("config-key", RW),
                service("config", RW),
            ],
        ),
        "bootstrap-osd" => vec![
            service("mon", R),
            service("osd", R),
            command("mon getmap", &[]),
            command("osd new", &[]),
            command("osd purge-new", &[]),
        ],
        "bootstrap-mds" => bootstrap(
            "mds.",
            &[
                ("caps_mon", equal("allow profile mds")),
                ("caps_osd", equal("allow rwx")),
                ("caps_mds", equal("allow")),
            ],
        ),
        "bootstrap-mgr" => bootstrap("mgr.", &[("caps_mon", equal("allow profile mgr"))]),
        "bootstrap-rgw" => bootstrap(
            "client.rgw.",
            &[("caps_mon", equal("allow rw")), ("caps_osd", equal("allow rwx"))],
        ),
        "bootstrap-rbd" => bootstrap_rbd("profile rbd"),
        "bootstrap-rbd-mirror" => bootstrap_rbd("profile rbd-mirror"),
        "fs-client" => {
            vec![service("mon", R), service("mds", R), service("osd", R), service("pg", R)]
        }
        "simple-rados-client" => reads_objects(),
        "simple-rados-client-with-blocklist" => blocks_clients(),
        "rbd-mirror" => {
            let mut grants = blocks_clients();
            grants.push(command("config-key get", &[("key", prefix("rbd/mirror/"))]));
            grants
        }
        // Whom a mirror's other side knows: it reads what the cluster is called and says how it is reached itself.
        "rbd-mirror-peer" => {
            let mut grants = blocks_clients();
            grants.push(command("config-key get", &[("key", regex("rbd/mirror/[^/]+"))]));
            grants.push(command("config-key set", &[("key", prefix("rbd/mirror/peer/"))]));
            grants
        }
        _ if profile.starts_with("rbd") => blocks_clients(),
        "cephfs-mirror" => {
            let mut grants = reads_objects();
            grants.push(service("mds", R));
            grants.push(command("config-key get", &[("key", prefix("cephfs/mirror/peer/"))]));
            grants
        }
        "crash" => vec![service("mon", R)],
        "role-definer" => vec![service("mon", R), service("auth", ALL)],
        _ => Vec::new(),
    }
}

/// Whoever reads and writes objects.
fn reads_objects() -> Vec<MonGrant> {
    vec![service("mon", R), service("osd", R), service("pg", R)]
}

/// A client that may put a dead lock owner (an address with its nonce) on the blocklist.
fn blocks_clients() -> Vec<MonGrant> {
    let mut grants = reads_objects();
    for (list, op) in [("osd blocklist", "blocklistop"), ("osd blacklist", "blacklistop")] {
        grants.push(command(list, &[(op, equal("add")), ("addr", regex(ADDR_WITH_NONCE))]));
    }
    grants
}

/// A key with which keys of daemons of one kind, with fixed caps, can be made.
fn bootstrap(entity_prefix: &str, caps: &[(&str, Constraint)]) -> Vec<MonGrant> {
    let mut arguments = vec![("entity", prefix(entity_prefix))];
    arguments.extend_from_slice(caps);
    vec![
        service("mon", R),
        service("osd", R),
        command("mon getmap", &[]),
        command("auth get-or-create", &arguments),
    ]
}

fn bootstrap_rbd(caps_mon: &str) -> Vec<MonGrant> {
    let arguments = [
        ("entity", prefix("client.")),
        ("caps_mon", equal(caps_mon)),
        ("caps_osd", regex(RBD_CAPS)),
    ];
    vec![service("mon", R), command("auth get-or-create", &arguments)]
}

/// Daemons keep secrets of their own under `daemon-private/NAME/`.
fn with_private_keys(name: &AuthEntityName, mut grants: Vec<MonGrant>) -> Vec<MonGrant> {
    let own = prefix(&format!("daemon-private/{name}/"));
    for verb in ["get", "put", "set", "exists", "delete"] {
        grants.push(command(&format!("config-key {verb}"), &[("key", own.clone())]));
    }
    grants
}
