//! `auth ...`: entities with their keys and capabilities (`src/mon/AuthMonitor.cc` at v16.2).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use auth::{AuthError, CryptoKey, EntityAuth, Keyring};
use command::{CommandReply, Formatter};
use types::{AuthEntityName, Errno};

use super::cmd::{Cmd, CmdResult, Refusal, done, fail, refuse, say, unhandled};
use crate::caps;
use crate::core::MonCore;

impl MonCore {
    pub(crate) fn cmd_auth(&mut self, cmd: &Cmd) -> CmdResult {
        match cmd.prefix.as_str() {
            "auth ls" | "auth list" => Ok(self.auth_list(cmd)),
            "auth get" => {
                let name = entity(cmd, "entity")?;
                let auth = self.auth_find(&name)?;
                let mut reply = keyring_reply(cmd, &name, &auth, true);
                reply.outs = format!("exported keyring for {name}");
                Ok(reply)
            }
            "auth export" => self.auth_export(cmd),
            "auth get-key" | "auth print-key" | "auth print_key" => {
                let name = entity(cmd, "entity")?;
                match self.keys.borrow().auth(&name) {
                    Some(auth) => Ok(key_reply(cmd, &auth.key)),
                    None => fail(Errno::ENOENT, format!("don't have {name}")),
                }
            }
            "auth add" => self.auth_add(cmd),
            "auth get-or-create" | "auth get-or-create-key" => self.auth_get_or_create(cmd),
            "auth caps" => self.auth_caps(cmd),
            "auth rm" | "auth del" => {
                let name = entity(cmd, "entity")?;
                if !self.keys.borrow().data.secrets.contains_key(&name) {
                    return say(format!("entity {name} does not exist"));
                }
                self.auth_remove(&name);
                say("updated")
            }
            "auth import" => self.auth_import(cmd),
            _ => unhandled(),
        }
    }

    fn auth_find(&self, name: &AuthEntityName) -> Result<EntityAuth, Refusal> {
        let keys = self.keys.borrow();
        let found = keys.data.secrets.get(name).cloned();
        found.ok_or_else(|| refuse(Errno::ENOENT, format!("failed to find {name} in keyring")))
    }

    fn auth_list(&self, cmd: &Cmd) -> CommandReply {
        let keys = self.keys.borrow();
        let secrets = &keys.data.secrets;
        let mut reply = cmd.output(
            |f| {
                f.object("auth", |f| {
                    f.array("auth_dump", |f| {
                        secrets.iter().for_each(|(name, auth)| dump_entity(f, name, auth));
                    });
                });
            },
            || {
                let mut out = String::new();
                for (name, auth) in secrets {
                    let _ = writeln!(out, "{name}\n\tkey: {}", auth.key.to_base64());
                    for service in auth.caps.keys() {
                        let text = auth.caps_text(service).unwrap_or_default();
                        let _ = writeln!(out, "\tcaps: [{service}] {text}");
                    }
                }
                out
            },
        );
        if cmd.format.is_plain() {
            reply.outs = "installed auth entries:\n".to_string();
        }
        reply
    }

    fn auth_export(&self, cmd: &Cmd) -> CmdResult {
        if let Some(text) = cmd.map.opt_string("entity")? {
            let name = parse_entity(&text)?;
            let keys = self.keys.borrow();
            let Some(auth) = keys.data.secrets.get(&name) else {
                // Ceph names an empty key here, not the entity.
                let key = "AAAAAAAAAAAAAAAA";
                return fail(Errno::ENOENT, format!("no key for auth(key={key})"));
            };
            let mut reply = keyring_reply(cmd, &name, auth, true);
            reply.outs = format!("export auth(key={})", auth.key.to_base64());
            return Ok(reply);
        }
        let keys = self.keys.borrow();
        let mut reply = cmd.output(
            |f| {
                f.array("auth_dump", |f| {
                    keys.data.secrets.iter().for_each(|(name, auth)| dump_entity(f, name, auth));
                });
            },
            || Keyring { keys: keys.data.secrets.clone() }.to_text(),
        );
        reply.outs = "exported master keyring".to_string();
        Ok(reply)
    }

    fn auth_add(&mut self, cmd: &Cmd) -> CmdResult {
        let name = entity(cmd, "entity").map_err(|_| refuse(Errno::EINVAL, "bad entity name"))?;
        let wanted = caps_of(cmd)?;
        let mut auth = EntityAuth::default();
        if cmd.input.is_empty() {
            set_caps(&mut auth, &wanted);
        } else {
            auth = from_keyring(cmd, &name)?;
            if !wanted.is_empty() && !auth.caps.is_empty() {
                return fail(
                    Errno::EINVAL,
                    "caps cannot be specified both in keyring and in command",
                );
            }
            if auth.caps.is_empty() {
                set_caps(&mut auth, &wanted);
            }
        }
        if let Some(old) = self.keys.borrow().data.secrets.get(&name) {
            if !cmd.input.is_empty() && old.key != auth.key {
                return fail(Errno::EEXIST, format!("entity {name} exists but key does not match"));
            }
            let services = auth.caps.keys().chain(old.caps.keys());
            let differs = |service: &&String| old.caps.get(*service) != auth.caps.get(*service);
            if let Some(service) = services.into_iter().find(differs) {
                return fail(
                    Errno::EINVAL,
                    format!("entity {name} exists but cap {service} does not match"),
                );
            }
            return done();
        }
        if auth.key.is_empty() {
            auth.key = self.new_key();
        }
        self.auth_put(&name, auth);
        say(format!("added key for {name}"))
    }

    fn auth_get_or_create(&mut self, cmd: &Cmd) -> CmdResult {
        let name = entity(cmd, "entity")?;
        let wanted = caps_of(cmd)?;
        let key_only = cmd.prefix == "auth get-or-create-key";
        let old = self.keys.borrow().data.secrets.get(&name).cloned();
        let auth = match old {
            Some(auth) => {
                for (service, text) in &wanted {
                    if auth.caps_text(service).as_deref() != Some(text) {
                        return fail(
                            Errno::EINVAL,
                            format!("key for {name} exists but cap {service} does not match"),
                        );
                    }
                }
                auth
            }
            None => {
                let mut auth = EntityAuth::default();
                if !cmd.input.is_empty() {
                    auth = from_keyring(cmd, &name)?;
                }
                set_caps(&mut auth, &wanted);
                if auth.key.is_empty() {
                    auth.key = self.new_key();
                }
                self.auth_put(&name, auth.clone());
                auth
            }
        };
        Ok(match key_only {
            true => key_reply(cmd, &auth.key),
            false => keyring_reply(cmd, &name, &auth, false),
        })
    }

    fn auth_caps(&mut self, cmd: &Cmd) -> CmdResult {
        let name = entity(cmd, "entity")?;
        let wanted = caps_of(cmd)?;
        let old = self.keys.borrow().data.secrets.get(&name).cloned();
        let Some(mut auth) = old else {
            return fail(Errno::ENOENT, format!("couldn't find entry {name}"));
        };
        auth.caps = BTreeMap::new();
        set_caps(&mut auth, &wanted);
        self.auth_put(&name, auth);
        say(format!("updated caps for {name}"))
    }

    fn auth_import(&mut self, cmd: &Cmd) -> CmdResult {
        if cmd.input.is_empty() {
            return fail(Errno::EINVAL, "auth import: no data supplied");
        }
        let keyring = parse_keyring(cmd)?;
        if keyring.keys.values().any(|auth| auth.caps.is_empty()) {
            return fail(Errno::EINVAL, "auth import: no caps supplied");
        }
        if let Some((name, _)) = keyring.keys.iter().find(|(_, auth)| auth.key.is_empty()) {
            return fail(Errno::EINVAL, format!("auth import: {name} has no key in the keyring"));
        }
        for (name, auth) in keyring.keys {
            self.auth_put(&name, auth);
        }
        say("imported keyring")
    }
}

pub(super) fn entity(cmd: &Cmd, key: &str) -> Result<AuthEntityName, Refusal> {
    parse_entity(&cmd.string(key)?)
}

fn parse_entity(text: &str) -> Result<AuthEntityName, Refusal> {
    text.parse().map_err(|_| refuse(Errno::EINVAL, format!("invalid entity_auth {text}")))
}

/// The alternating services and capabilities of the command. Each must parse, for a known service; what keyrings have is taken
/// as it is, as in Ceph: an old cluster has some that say nothing today.
fn caps_of(cmd: &Cmd) -> Result<BTreeMap<String, String>, Refusal> {
    let words = cmd.map.strings("caps")?;
    if !words.len().is_multiple_of(2) {
        return fail(Errno::EINVAL, "bad capabilities request; odd number of arguments");
    }
    let pairs = words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
    let caps: BTreeMap<_, _> = pairs.collect();
    for (service, text) in &caps {
        caps::check_text(service, text).map_err(|text| refuse(Errno::EINVAL, text))?;
    }
    Ok(caps)
}

pub(super) fn set_caps(auth: &mut EntityAuth, caps: &BTreeMap<String, String>) {
    for (service, text) in caps {
        auth.set_caps(service, text);
    }
}

fn parse_keyring(cmd: &Cmd) -> Result<Keyring, Refusal> {
    let bad =
        || refuse(Errno::EINVAL, "error decoding keyring cannot parse buffer: Malformed input");
    let keyring = Keyring::from_file(&cmd.input).map_err(|error| match error {
        AuthError::Syntax { .. } => {
            refuse(Errno::EINVAL, format!("error decoding keyring: {error}"))
        }
        _ => bad(),
    })?;
    if keyring.keys.is_empty() { Err(bad()) } else { Ok(keyring) }
}

fn from_keyring(cmd: &Cmd, name: &AuthEntityName) -> Result<EntityAuth, Refusal> {
    let mut keyring = parse_keyring(cmd)?;
    keyring.keys.remove(name).ok_or_else(|| {
        refuse(Errno::EINVAL, format!("key for {name} not found in provided keyring"))
    })
}

fn dump_entity(f: &mut Formatter, name: &AuthEntityName, auth: &EntityAuth) {
    f.object("auth_entity", |f| {
        f.dump_stream("entity", name);
        f.dump_string("key", auth.key.to_base64());
        f.object("caps", |f| {
            for service in auth.caps.keys() {
                f.dump_string(service, auth.caps_text(service).unwrap_or_default());
            }
        });
    });
}

fn key_reply(cmd: &Cmd, key: &CryptoKey) -> CommandReply {
    cmd.output(|f| f.object("auth", |f| f.dump_string("key", key.to_base64())), || key.to_base64())
}

pub(super) fn keyring_reply(
    cmd: &Cmd,
    name: &AuthEntityName,
    auth: &EntityAuth,
    caps: bool,
) -> CommandReply {
    cmd.output(
        |f| f.array("auth_entities", |f| dump_entity(f, name, auth)),
        || {
            let mut shown = auth.clone();
            if !caps {
                shown.caps.clear();
            }
            Keyring { keys: BTreeMap::from([(name.clone(), shown)]) }.to_text()
        },
    )
}
