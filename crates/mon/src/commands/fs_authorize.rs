//! `fs authorize`: a key for paths of a file system (`src/mon/AuthMonitor.cc` at v16.2).

use std::collections::BTreeMap;

use auth::EntityAuth;
use types::Errno;

use super::auth::{entity, keyring_reply, set_caps};
use super::cmd::{Cmd, CmdResult, Refusal, fail, refuse};
use crate::caps;
use crate::core::MonCore;

/// What an MDS, the monitors and OSDs allow whom a list of paths, each with its flags and perhaps `root_squash`,
/// is for.
fn caps_for(fs: Option<&str>, words: &[String]) -> Result<BTreeMap<String, String>, Refusal> {
    let fsname = fs.map_or(String::new(), |fs| format!(" fsname={fs}"));
    let (mut mds, mut osd) = (Vec::new(), "r");
    let mut words = words.iter().map(String::as_str).peekable();
    while let (Some(path), Some(flags)) = (words.next(), words.next()) {
        if flags != "r" && !flags.starts_with("rw") {
            return fail(Errno::EINVAL, "Permission flags must start with 'r' or 'rw'.");
        }
        if flags != "r" {
            osd = "rw";
        }
        let mut grant = format!("allow {flags}{fsname}");
        if path != "/" {
            grant.push_str(&format!(" path={path}"));
        }
        if words.next_if_eq(&"root_squash").is_some() {
            grant.push_str(" root_squash");
        }
        mds.push(grant);
    }
    let tag = fs.unwrap_or("*");
    Ok(BTreeMap::from([
        ("mds".to_string(), mds.join(", ")),
        ("mon".to_string(), format!("allow r{fsname}")),
        ("osd".to_string(), format!("allow {osd} tag cephfs data={tag}")),
    ]))
}

impl MonCore {
    pub(super) fn fs_authorize(&mut self, cmd: &Cmd) -> CmdResult {
        let name = entity(cmd, "entity").map_err(|_| refuse(Errno::EINVAL, "bad entity name"))?;
        let fs = cmd.string("filesystem")?;
        let one = (!matches!(fs.as_str(), "*" | "all")).then_some(fs.as_str());
        if one.is_some_and(|fs| self.mds.map.by_name(fs).is_none()) {
            return fail(Errno::EINVAL, format!("filesystem {fs} does not exist."));
        }
        let wanted = caps_for(one, &cmd.map.strings("caps")?)?;
        for (service, text) in &wanted {
            caps::check_text(service, text).map_err(|text| refuse(Errno::EINVAL, text))?;
        }
        let old = self.keys.borrow().data.secrets.get(&name).cloned();
        let auth = match old {
            Some(auth) => {
                let same = wanted
                    .iter()
                    .all(|(service, text)| auth.caps_text(service).as_deref() == Some(text));
                if !same {
                    return fail(
                        Errno::EINVAL,
                        format!(
                            "{name} already has fs capabilities that differ from those supplied. To \
                             generate a new auth key for {name}, first remove {name} from configuration \
                             files, execute 'ceph auth rm {name}', then execute this command again."
                        ),
                    );
                }
                auth
            }
            None => {
                let mut auth = EntityAuth { key: self.new_key(), ..EntityAuth::default() };
                set_caps(&mut auth, &wanted);
                self.auth_put(&name, auth.clone());
                auth
            }
        };
        Ok(keyring_reply(cmd, &name, &auth, false))
    }
}
