//! The commands of the manager: who may run them, which there are, and their dispatch.

mod autoscale;
mod balancer;
mod config_show;
pub(crate) mod crash;
mod devices;
mod form;
mod fs_status;
mod fs_volume;
pub(crate) mod metadata;
mod modules;
pub(crate) mod osd;
mod osd_df;
mod pg;
mod reweight;
mod scrub;
mod table;
mod tell;

use std::collections::BTreeMap;
use std::rc::Rc;

use auth::caps::{MgrCap, MgrRequest, Rwx};
use bstr::BString;
use bytes::Bytes;
use command::{CommandMap, CommandReply, Signature};
use msgr::Connection;
use types::entity;

pub(crate) use table::{TABLE, flags_of, table};
pub(crate) use tell::tell;

use crate::daemon::Mgr;
use crate::{progress, rbd_support};

const ENOENT: i32 = 2;
const EAGAIN: i32 = 11;
const EACCES: i32 = 13;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;

/// What somebody without caps gets.
pub(crate) fn access_denied() -> CommandReply {
    CommandReply::error(
        EACCES,
        "access denied: does your client key have mgr caps? See \
         http://docs.ceph.com/en/latest/mgr/administrator/#client-authentication",
    )
}

fn caps_of(con: &Connection) -> MgrCap {
    let info = con.peer_caps();
    if info.allow_all {
        return MgrCap::allow_all();
    }
    info.text().ok().and_then(|text| MgrCap::parse(&text).ok()).unwrap_or_default()
}

/// Whether the peer may use `ceph tell mgr.x`.
pub(crate) fn may_tell(con: &Connection) -> bool {
    con.peer_kind() == entity::MGR || caps_of(con).is_allow_all()
}

fn may_run(con: &Connection, command: &Signature, map: &CommandMap) -> bool {
    let arguments: BTreeMap<String, String> = map
        .iter()
        .filter(|(key, _)| *key != "prefix" && *key != "target")
        .filter_map(|(key, _)| Some((key.to_owned(), map.opt_string(key).ok()??)))
        .collect();
    let perm = |letter: char| command.perm.contains(letter);
    // Ceph answers these from a module in Python.
    let (service, module) = match rbd_support::is_command(map.prefix()) {
        true => ("py", "rbd_support"),
        false => (command.module.as_str(), ""),
    };
    caps_of(con).is_capable(&MgrRequest {
        service,
        module,
        command: map.prefix(),
        arguments: &arguments,
        wanted: Rwx::wanted(perm('r'), perm('w'), perm('x')),
        addr: &con.peer_socket_addr(),
    })
}

/// Runs a command of a client.
pub(crate) async fn run(
    mgr: &Rc<Mgr>,
    con: &Connection,
    cmd: &[BString],
    input: Bytes,
) -> CommandReply {
    let map = match CommandMap::parse(cmd) {
        Ok(map) => map,
        Err(error) => return CommandReply::error(EINVAL, error.to_string()),
    };
    if !map.has_prefix() {
        return CommandReply::error(EINVAL, "");
    }
    if map.prefix() == "get_command_descriptions" {
        return CommandReply::data(table().descriptions(map.format(), true));
    }
    let table = table();
    let Some(command) = table.find(map.prefix()) else {
        return if caps_of(con).is_allow_all() {
            CommandReply::error(EINVAL, "command not supported")
        } else {
            access_denied()
        };
    };
    if !may_run(con, command, &map) {
        return access_denied();
    }
    if let Err(error) = map.check(command) {
        return CommandReply::error(EINVAL, error.to_string());
    }
    if rbd_support::is_command(map.prefix()) {
        let perm = |letter: char| command.perm.contains(letter);
        let caller = rbd_support::Caller {
            caps: caps_of(con),
            addr: con.peer_socket_addr(),
            wanted: Rwx::wanted(perm('r'), perm('w'), perm('x')),
        };
        return rbd_support::command(mgr, &caller, &map).await;
    }
    dispatch(mgr, &map, &input).await
}

async fn dispatch(mgr: &Rc<Mgr>, map: &CommandMap, input: &Bytes) -> CommandReply {
    match map.prefix() {
        "pg scrub" | "pg deep-scrub" | "pg repair" => return scrub::of_pg(mgr, map),
        "osd scrub" | "osd deep-scrub" | "osd repair" => return scrub::of_osds(mgr, map),
        "osd pool scrub" | "osd pool deep-scrub" | "osd pool repair" => {
            return scrub::of_pools(mgr, map);
        }
        "osd df" => return osd_df::run(mgr, map),
        "osd pool stats" => return osd::pool_stats(mgr, map),
        "osd ok-to-stop" => return osd::ok_to_stop(mgr, map),
        "osd safe-to-destroy" => return osd::safe_to_destroy(mgr, map),
        "osd destroy" | "osd purge" => return osd::destroy(mgr, map).await,
        "fs status" => return fs_status::run(mgr, map).await,
        prefix if prefix.starts_with("fs volume ") => return fs_volume::run(mgr, map).await,
        "osd status" => return osd::status(mgr, map).await,
        "config show" | "config show-with-defaults" => return config_show::run(mgr, map),
        prefix if prefix.starts_with("progress") => return progress::command(mgr, prefix).await,
        prefix if prefix.starts_with("crash ") => return crash::run(mgr, map, input).await,
        prefix if prefix.starts_with("device ") => return devices::run(mgr, map).await,
        prefix if prefix.starts_with("balancer ") => return balancer::run(mgr, map).await,
        "osd pool autoscale-status" => return autoscale::run(mgr, map),
        prefix if prefix.ends_with(" noautoscale") => {
            return autoscale::noautoscale(mgr, map).await;
        }
        prefix if prefix.contains("reweight-by") => return reweight::run(mgr, map).await,
        prefix if prefix.contains("force-") => return scrub::force(mgr, map),
        _ => {}
    }
    pg::run(mgr, map)
        .or_else(|| modules::run(mgr, map))
        .unwrap_or_else(|| CommandReply::error(EINVAL, "command not supported"))
}
