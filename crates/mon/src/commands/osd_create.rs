//! `osd new`, `osd create`, and what `osd destroy` and `osd purge` come to.

use auth::{CryptoKey, EntityAuth};
use bytes::Bytes;
use command::CommandReply;
use crush::{EditError, is_valid_name};
use maps::osdmap::osd_state;
use types::{AuthEntityName, Errno, OsdId, Uuid, entity};

use super::cmd::{Cmd, CmdResult, Refusal, fail, not_yet, refuse, say, unhandled};
use super::crush::crush_refusal;
use crate::core::MonCore;

impl MonCore {
    pub(crate) fn cmd_osd_create(&mut self, cmd: &Cmd) -> CmdResult {
        match cmd.prefix.as_str() {
            "osd new" => {
                let text = cmd.string("uuid")?;
                let uuid: Uuid = text
                    .parse()
                    .map_err(|_| refuse(Errno::EINVAL, format!("invalid uuid value '{text}'")))?;
                let secrets = parse_secrets(&cmd.input)?;
                if let Some(osd) = self.next_map().identify_osd(uuid) {
                    self.check_same_secrets(osd, uuid, &secrets)?;
                }
                let osd = self.new_osd(uuid, self.asked_id(cmd)?, &secrets)?;
                self.take_secrets(osd, uuid, &secrets)?;
                Ok(id_reply(cmd, osd))
            }
            "osd create" => {
                let uuid = match cmd.map.opt_string("uuid")? {
                    Some(text) => text.parse().map_err(|_| {
                        refuse(Errno::EINVAL, format!("invalid uuid value '{text}'"))
                    })?,
                    None => Uuid::ZERO,
                };
                // The id counts only with a uuid; both together make the command repeatable.
                let wanted = self.asked_id(cmd)?.filter(|_| !uuid.is_zero());
                if wanted.is_some_and(|osd| self.next_map().is_destroyed(osd)) {
                    let text =
                        "ceph osd create has been deprecated. Please use ceph osd new instead.";
                    return fail(Errno::EINVAL, text);
                }
                let osd = self.new_osd(uuid, wanted, &Secrets::default())?;
                Ok(id_reply(cmd, osd))
            }
            "osd destroy-actual" | "osd purge-actual" | "osd purge-new" => self.destroy(cmd),
            _ => unhandled(),
        }
    }

    fn asked_id(&self, cmd: &Cmd) -> Result<Option<OsdId>, Refusal> {
        let asked = cmd.map.contains("id");
        asked.then(|| self.osd_id(cmd, "id")).transpose()
    }

    /// The id of a new OSD, or of the one that has the uuid already. Nothing is changed where the secrets are refused.
    fn new_osd(
        &mut self,
        uuid: Uuid,
        wanted: Option<OsdId>,
        secrets: &Secrets,
    ) -> Result<OsdId, Refusal> {
        let map = self.next_map();
        if !uuid.is_zero()
            && let Some(osd) = map.identify_osd(uuid)
        {
            if wanted.is_some_and(|id| id != osd) {
                return fail(
                    Errno::EEXIST,
                    format!("uuid {uuid} already in use for different id {osd}"),
                );
            }
            return Ok(osd);
        }
        let max = self.max_osd_limit();
        let osd = match wanted {
            Some(osd) if map.exists(osd) => {
                if !map.is_destroyed(osd) {
                    return fail(
                        Errno::EINVAL,
                        format!("id {osd} already in use and does not match uuid {uuid}"),
                    );
                }
                self.check_no_other_key(osd, secrets)?;
                // A destroyed OSD is replaced under its old id.
                self.set_osd_state(osd, map.state(osd) ^ (osd_state::DESTROYED | osd_state::NEW));
                self.inc().new_uuid.insert(osd, uuid);
                return Ok(osd);
            }
            Some(osd) if osd >= 0 => osd,
            Some(_) => return fail(Errno::EINVAL, "invalid osd id"),
            None => {
                let free = |osd: &OsdId| !map.exists(*osd) && !self.osd.map.exists(*osd);
                (0..).find(free).unwrap_or(map.max_osd)
            }
        };
        if self.is_being_removed(osd) {
            return not_yet();
        }
        if i64::from(osd) >= max {
            return fail(Errno::ERANGE, format!("cannot exceed mon_max_osd ({max})"));
        }
        self.check_no_other_key(osd, secrets)?;
        let inc = self.inc();
        if osd >= map.max_osd && osd + 1 > inc.new_max_osd {
            inc.new_max_osd = osd + 1;
        }
        self.set_osd_state(osd, osd_state::EXISTS | osd_state::NEW);
        if !uuid.is_zero() {
            self.inc().new_uuid.insert(osd, uuid);
        }
        Ok(osd)
    }

    /// A key may be left of an OSD that had the id before.
    fn check_no_other_key(&self, osd: OsdId, s: &Secrets) -> Result<(), Refusal> {
        let name = AuthEntityName::new(entity::OSD, osd.to_string());
        let known = self.keys.borrow().data.secrets.get(&name).map(|auth| auth.key.clone());
        match (known, &s.cephx) {
            (Some(known), Some(key)) if known != *key => {
                let text = format!("entity {name} exists but key does not match");
                fail(Errno::EEXIST, text)
            }
            _ => Ok(()),
        }
    }

    /// An OSD that is there already is only "created" again with the secrets it has.
    fn check_same_secrets(&self, osd: OsdId, uuid: Uuid, s: &Secrets) -> Result<(), Refusal> {
        let same = |name: &AuthEntityName, key: &CryptoKey| {
            self.keys.borrow().data.secrets.get(name).is_some_and(|auth| auth.key == *key)
        };
        let osd_name = AuthEntityName::new(entity::OSD, osd.to_string());
        let mut differs = s.cephx.as_ref().is_some_and(|key| !same(&osd_name, key));
        if let (Some(lockbox), Some(dmcrypt)) = (&s.lockbox, &s.dmcrypt) {
            differs |= !same(&lockbox_name(uuid), lockbox);
            let entry = self.config_keys(&format!("dm-crypt/osd/{uuid}/luks"))?;
            differs |= !entry.iter().any(|(_, value)| *value == dmcrypt.as_bytes());
        }
        if differs {
            return fail(
                Errno::EEXIST,
                format!("osd.{osd} with uuid {uuid} exists and has other secrets"),
            );
        }
        Ok(())
    }

    fn take_secrets(&mut self, osd: OsdId, uuid: Uuid, s: &Secrets) -> Result<(), Refusal> {
        let name = AuthEntityName::new(entity::OSD, osd.to_string());
        if let Some(key) = &s.cephx
            && !self.keys.borrow().data.secrets.contains_key(&name)
        {
            let auth = EntityAuth::new(
                key.clone(),
                [("mgr", "allow profile osd"), ("mon", "allow profile osd"), ("osd", "allow *")],
            );
            self.auth_put(&name, auth);
        }
        if let (Some(lockbox), Some(dmcrypt)) = (&s.lockbox, &s.dmcrypt) {
            let caps =
                format!("allow command \"config-key get\" with key=\"dm-crypt/osd/{uuid}/luks\"");
            let auth = EntityAuth::new(lockbox.clone(), [("mon", caps.as_str())]);
            self.auth_put(&lockbox_name(uuid), auth);
            let entry = format!("dm-crypt/osd/{uuid}/luks");
            self.config_key_put(&entry, Bytes::from(dmcrypt.clone()));
        }
        if let Some(class) = &s.device_class {
            let mut crush = self.crush_to_change();
            if crush.class_of(osd) != Some(class.as_str()) {
                crush.remove_device_class(osd);
                crush.names.entry(osd).or_insert_with(|| format!("osd.{osd}"));
                crush.max_devices = crush.max_devices.max(osd + 1);
                crush.set_device_class(osd, class).map_err(crush_refusal)?;
                self.set_crush(&crush);
            }
        }
        Ok(())
    }

    fn destroy(&mut self, cmd: &Cmd) -> CmdResult {
        let osd = self.osd_id(cmd, "id")?;
        let purge = cmd.prefix != "osd destroy-actual";
        let map = self.next_map();
        if !cmd.map.flag("yes_i_really_mean_it") {
            return fail(
                Errno::EPERM,
                "Are you SURE?  Did you verify with 'ceph osd safe-to-destroy'?  This will mean real, permanent data loss, as well as deletion of cephx and lockbox keys. Pass --yes-i-really-mean-it if you really do.",
            );
        }
        if !map.exists(osd) {
            return say(format!("osd.{osd} does not exist"));
        }
        if map.is_up(osd) {
            return fail(Errno::EBUSY, format!("osd.{osd} is not `down`."));
        }
        if cmd.prefix == "osd purge-new" && map.state(osd) & osd_state::NEW == 0 {
            return fail(
                Errno::EPERM,
                format!("osd.{osd} has been used: purge-new is for OSDs that never started"),
            );
        }
        let uuid = map.uuid(osd);
        self.auth_remove(&AuthEntityName::new(entity::OSD, osd.to_string()));
        if !uuid.is_zero() {
            self.auth_remove(&lockbox_name(uuid));
            let prefix = format!("dm-crypt/osd/{uuid}/");
            for (key, _) in self.config_keys(&prefix)? {
                self.config_key_remove(&key);
            }
        }
        for (key, _) in self.config_keys(&format!("daemon-private/osd.{osd}/"))? {
            self.config_key_remove(&key);
        }
        if purge {
            let mut crush = self.crush_to_change();
            let linked = crush.is_linked(osd) || crush.name_of(osd).is_some();
            if linked {
                // An OSD without a place has nothing to be removed but its name.
                match crush.remove_item(osd, None, false) {
                    Ok(()) | Err(crush::EditError::NotFound(_)) => {}
                    Err(other) => return Err(crush_refusal(other)),
                }
                self.set_crush(&crush);
            }
            self.remove_osd(osd);
            return say(format!("purged osd.{osd}"));
        }
        if !map.is_destroyed(osd) {
            self.set_osd_state(osd, (map.state(osd) | osd_state::DESTROYED) & !osd_state::NEW);
            self.inc().new_uuid.insert(osd, Uuid::ZERO);
        }
        self.remove_osd_metadata(osd);
        say(format!("destroyed osd.{osd}"))
    }
}

fn lockbox_name(uuid: Uuid) -> AuthEntityName {
    AuthEntityName::new(entity::CLIENT, format!("osd-lockbox.{uuid}"))
}

fn id_reply(cmd: &Cmd, osd: OsdId) -> CommandReply {
    cmd.output(|f| f.object("created_osd", |f| f.dump_int("osdid", osd)), || format!("{osd}\n"))
}

/// What comes with `osd new -i`.
#[derive(Default)]
struct Secrets {
    cephx: Option<CryptoKey>,
    lockbox: Option<CryptoKey>,
    dmcrypt: Option<String>,
    device_class: Option<String>,
}

fn parse_secrets(input: &[u8]) -> Result<Secrets, Refusal> {
    if input.iter().all(u8::is_ascii_whitespace) {
        return Ok(Secrets::default());
    }
    let bad = || refuse(Errno::EINVAL, "unable to parse json params");
    let value: serde_json::Value = serde_json::from_slice(input).map_err(|_| bad())?;
    let object = value.as_object().ok_or_else(bad)?;
    let get = |key: &str| object.get(key).and_then(|v| v.as_str()).map(str::to_string);
    let key_of = |key: &str, what: &str| {
        let of_text = |text: String| CryptoKey::from_base64(&text);
        let no_key = |_| refuse(Errno::EINVAL, format!("the {what} secret is no key"));
        get(key).map(of_text).transpose().map_err(no_key)
    };
    let secrets = Secrets {
        cephx: key_of("cephx_secret", "cephx")?,
        lockbox: key_of("cephx_lockbox_secret", "lockbox")?,
        dmcrypt: get("dmcrypt_key"),
        device_class: get("crush_device_class"),
    };
    if let Some(class) = secrets.device_class.as_ref().filter(|class| !is_valid_name(class)) {
        return Err(crush_refusal(EditError::InvalidName(class.clone())));
    }
    let (lockbox, dmcrypt) = (secrets.lockbox.is_some(), secrets.dmcrypt.is_some());
    if lockbox != dmcrypt {
        return fail(
            Errno::EINVAL,
            "must specify both 'cephx_lockbox_secret' and 'dmcrypt_key', or neither",
        );
    }
    if lockbox && secrets.cephx.is_none() {
        return fail(Errno::EINVAL, "requires a cephx secret as well");
    }
    Ok(secrets)
}
