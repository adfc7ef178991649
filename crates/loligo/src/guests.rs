//! Ceph's own daemons that `loligo up` starts beside ours: metadata servers (`ceph-mds`) for CephFS, and a gateway
//! (`radosgw`) for S3.
//!
//! ```text
//! DIR/mds/a              mds.a is to be there: each start starts it
//! DIR/mds/a/keyring      the monitors know it, and there is a file system
//! DIR/rgw/a/keyring      client.rgw.a; its port is in ceph.conf, in [client.rgw.a]
//! ```
//! Cut off at any place, the next start goes on from there.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use config::ConfFile;
use env::Env;
use serde_json::{Value, json};

use crate::admin_socket;
use crate::failure::Failure;
use crate::layout::{Layout, make_private_folder, parse_conf, sync_parent, write_private};
use crate::session::AdminSession;

/// A kind of them.
#[derive(Debug)]
pub(crate) struct Guest {
    /// As folders and logs have it: `mds`.
    pub(crate) kind: &'static str,
    pub(crate) program: &'static str,
    package: &'static str,
    /// What a daemon's name begins with, and what of that is its type.
    entity: (&'static str, &'static str),
    caps: &'static [&'static str],
}

pub(crate) const MDS: Guest = Guest {
    kind: "mds",
    program: "ceph-mds",
    package: "ceph-mds",
    entity: ("mds", ""),
    caps: &[
        "mon",
        "profile mds",
        "mgr",
        "profile mds",
        "osd",
        "allow rw tag cephfs *=*",
        "mds",
        "allow",
    ],
};
pub(crate) const RGW: Guest = Guest {
    kind: "rgw",
    program: "radosgw",
    package: "radosgw",
    entity: ("client", "rgw."),
    caps: &["mon", "allow rw", "osd", "allow rwx"],
};
pub(crate) const GUESTS: [&Guest; 2] = [&MDS, &RGW];

/// Names of metadata servers, in order: Ceph's must not begin with a digit.
pub(crate) const MDS_NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
/// The gateway.
const RGW_NAME: &str = "a";
/// The file system that is made where there is none, with its pools named as by `ceph fs volume create`.
const FILE_SYSTEM: &str = "cephfs";
/// The gateway makes seven pools, the last ones with the first bucket, and a file system has two: with Ceph's 250 placement
/// groups an OSD, three OSDs and 32 of each pool the first upload was refused.
const PGS_OPTION: &str = "mon_max_pg_per_osd";
const PGS_OF_AN_OSD: u64 = 1000;
/// `CEPH_MDSMAP_NOT_JOINABLE` (`src/include/ceph_fs.h` at v16.2): a file system that takes no MDS.
const NOT_JOINABLE: u64 = 1;
/// States of an MDS that waits for nothing.
const SETTLED: [&str; 3] = ["up:active", "up:standby", "up:standby-replay"];

/// Whether a daemon (`mds.a`) is one of them.
pub(crate) fn is_guest(name: &str) -> bool {
    name.split_once('.').is_some_and(|(kind, _)| Guest::of(kind).is_some())
}

impl Guest {
    /// The kind of that name, if it is one of Ceph's own.
    pub(crate) fn of(kind: &str) -> Option<&'static Guest> {
        GUESTS.into_iter().find(|guest| guest.kind == kind)
    }

    /// What `--id` is given of a daemon whose folder has that name.
    pub(crate) fn id(&self, name: &str) -> String {
        format!("{}{name}", self.entity.1)
    }

    fn entity(&self, name: &str) -> String {
        format!("{}.{}", self.entity.0, self.id(name))
    }

    /// Where its program is.
    pub(crate) fn find(&self) -> Result<PathBuf, Failure> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path)
            .map(|folder| folder.join(self.program))
            .find(|file| file.is_file());
        found.ok_or_else(|| {
            Failure::new(format!(
                "there is no {} in the PATH: it is Ceph's own, 'sudo apt-get install {}' brings it",
                self.program, self.package
            ))
        })
    }
}

/// Has so many metadata servers and, if a port is given, a gateway there from now on.
pub(crate) fn invite(layout: &Layout, mdss: usize, rgw_port: Option<u16>) -> Result<(), Failure> {
    let names = MDS_NAMES.iter().take(mdss).map(|name| (&MDS, *name));
    let gateway = rgw_port.map(|_| (&RGW, RGW_NAME));
    let invited: Vec<_> = names.chain(gateway).collect();
    if invited.is_empty() {
        return Ok(());
    }
    // The configuration first: what has a folder is started.
    let text = fs::read_to_string(layout.conf())?;
    let conf = parse_conf(&layout.conf(), &text)?;
    let (dir, mut new) = (layout.dir().display(), text.clone());
    if mdss > 0 && conf.get("mds", "keyring").is_none() {
        new.push_str(&format!(
            "\n[mds]\nmds_data = {dir}/mds/$id\nkeyring = {dir}/mds/$id/keyring\n"
        ));
    }
    let section = gateway_section();
    if let Some(port) = rgw_port
        && conf.get(&section, "rgw_frontends").is_none()
    {
        new.push_str(&format!(
            "\n[{section}]\n\
             rgw_data = {dir}/rgw/{RGW_NAME}\n\
             keyring = {dir}/rgw/{RGW_NAME}/keyring\n\
             rgw_frontends = beast endpoint=127.0.0.1:{port}\n\
             rgw_dns_name = localhost\n\
             admin_socket = {dir}/run/rgw.{RGW_NAME}.asok\n\
             log_file = {dir}/log/rgw.{RGW_NAME}.log\n"
        ));
    }
    if new != text {
        write_private(&layout.conf(), &new)?;
    }
    for (guest, name) in invited {
        let data = layout.data(guest.kind, name);
        make_private_folder(&data)?;
        sync_parent(&data)?;
    }
    Ok(())
}

fn gateway_section() -> String {
    RGW.entity(RGW_NAME)
}

/// The port of the gateway, if there is one.
pub(crate) fn rgw_port(conf: &ConfFile) -> Option<u16> {
    let frontends = conf.get(&gateway_section(), "rgw_frontends")?;
    frontends.rsplit_once(':')?.1.trim().parse().ok()
}

/// Makes one known to the monitors, unless it is: then it can be started.
pub(crate) async fn register(
    session: &AdminSession,
    layout: &Layout,
    guest: &Guest,
    name: &str,
) -> Result<(), Failure> {
    let keyring = layout.data(guest.kind, name).join("keyring");
    if keyring.exists() {
        return Ok(());
    }
    make_room_for_pools(session).await?;
    if guest.kind == MDS.kind {
        make_file_system(session).await?;
    }
    let request =
        json!({"prefix": "auth get-or-create", "entity": guest.entity(name), "caps": guest.caps});
    let text = session.command(&request.to_string(), "").await?;
    write_private(&keyring, &text)
}

/// Has the monitors take as many placement groups as a file system, S3 and some pools of one's own need.
async fn make_room_for_pools(session: &AdminSession) -> Result<(), Failure> {
    let request = format!(r#"{{"prefix":"config get","who":"mon","key":"{PGS_OPTION}"}}"#);
    let most = session.command(&request, "").await?;
    if most.trim().parse::<u64>().is_ok_and(|most| most >= PGS_OF_AN_OSD) {
        return Ok(());
    }
    let value = PGS_OF_AN_OSD.to_string();
    let request =
        json!({"prefix": "config set", "who": "global", "name": PGS_OPTION, "value": value});
    session.command(&request.to_string(), "").await.map(drop)
}

async fn file_systems(session: &AdminSession) -> Result<Vec<Value>, Failure> {
    let map = session.json(r#"{"prefix":"fs dump","format":"json"}"#, "").await?;
    Ok(map["filesystems"].as_array().cloned().unwrap_or_default())
}

/// A file system, unless there is one.
async fn make_file_system(session: &AdminSession) -> Result<(), Failure> {
    if !file_systems(session).await?.is_empty() {
        return Ok(());
    }
    let pool = |of| format!("cephfs.{FILE_SYSTEM}.{of}");
    for of in ["meta", "data"] {
        let request = json!({"prefix": "osd pool create", "pool": pool(of)});
        session.command(&request.to_string(), "").await?;
    }
    let request = json!({
        "prefix": "fs new", "fs_name": FILE_SYSTEM, "metadata": pool("meta"), "data": pool("data")
    });
    session.command(&request.to_string(), "").await.map(drop)
}

/// Which of them (`mds.a`) does not serve yet.
pub(crate) async fn awaits(
    env: &Env,
    session: &AdminSession,
    layout: &Layout,
    names: &[String],
) -> Result<Option<String>, Failure> {
    let of = |guest: &Guest| {
        let prefix = format!("{}.", guest.kind);
        names.iter().filter(move |name| name.starts_with(&prefix)).collect::<Vec<_>>()
    };
    let mdss = of(&MDS);
    let mut active = 0;
    for mds in &mdss {
        // The map may have what it was before it died.
        let status = admin_socket::ask(env, &layout.admin_socket(mds), "status").await;
        let state = status.as_ref().and_then(|status| status["state"].as_str());
        match state {
            Some(state) if SETTLED.contains(&state) => active += u64::from(state == SETTLED[0]),
            _ => return Ok(Some((*mds).clone())),
        }
    }
    if let [first, ..] = mdss[..] {
        let ranks: u64 = file_systems(session).await?.iter().map(ranks_of).sum();
        if active < ranks.min(mdss.len() as u64) {
            return Ok(Some(first.clone()));
        }
    }
    for gateway in of(&RGW) {
        let conf = layout.read_conf()?;
        let Some(port) = conf.as_ref().and_then(rgw_port) else { continue };
        match env.connect(SocketAddr::from(([127, 0, 0, 1], port))).await {
            Ok(stream) => stream.close(),
            Err(_) => return Ok(Some(gateway.clone())),
        }
    }
    Ok(None)
}

/// How many MDSs a file system wants to be active.
fn ranks_of(file_system: &Value) -> u64 {
    let map = &file_system["mdsmap"];
    match map["flags"].as_u64().unwrap_or(0) & NOT_JOINABLE {
        0 => map["max_mds"].as_u64().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_takes_no_mds_is_not_waited_for() {
        let of = |flags: u64| ranks_of(&json!({"mdsmap": {"flags": flags, "max_mds": 2}}));
        assert_eq!((of(0x12), of(0x13)), (2, 0));
    }

    #[test]
    fn who_is_invited_has_a_place_and_is_in_the_configuration_once() {
        let dir = std::env::temp_dir().join(format!("loligo-guests-{}", std::process::id()));
        let layout = Layout::create(&dir).unwrap();
        // A section in which somebody has set something else is no reason to leave the rest out.
        let theirs = "[global]\nfsid = x\n[mds]\ndebug_mds = 1\n[client.rgw.a]\ndebug_rgw = 1\n";
        fs::write(layout.conf(), theirs).unwrap();
        invite(&layout, 0, None).unwrap();
        assert_eq!(layout.daemons(), [""; 0]);
        for _ in 0..2 {
            invite(&layout, 2, Some(7480)).unwrap();
            assert_eq!(layout.daemons(), ["mds.a", "mds.b", "rgw.a"]);
            let conf = layout.read_conf().unwrap().unwrap();
            assert_eq!(rgw_port(&conf), Some(7480));
            assert_eq!(conf.get("mds", "debug_mds"), Some("1"));
            let text = fs::read_to_string(layout.conf()).unwrap();
            assert_eq!(
                (text.matches("mds_data =").count(), text.matches("rgw_data =").count()),
                (1, 1)
            );
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
