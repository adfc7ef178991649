//! `osd pool ...` without `get` and `set`.

use std::collections::BTreeMap;

use command::{CommandReply, format_bytes, format_si};
use maps::PgPool;
use types::Errno;

use super::cmd::{Cmd, CmdResult, Refusal, fail, refuse, say, unhandled};
use super::pool_set::parse_int;
use crate::core::MonCore;
use crate::osd::pools::NewPool;

/// Applications of a pool at most.
const APPLICATIONS_MAX: usize = 64;
/// Keys of an application's metadata at most.
const KEYS_MAX: usize = 64;
/// Length of names and values of that metadata.
const KEY_LEN_MAX: usize = 128;

impl MonCore {
    pub(crate) fn cmd_pool(&mut self, cmd: &Cmd) -> CmdResult {
        match cmd.prefix.as_str() {
            "osd pool ls" => self.pool_ls(cmd),
            "osd pool create" => self.pool_create(cmd),
            "osd pool rm" | "osd pool delete" => self.pool_rm(cmd),
            "osd pool rename" => self.pool_rename(cmd),
            "osd pool mksnap" => {
                let (id, name, _) = self.pool_arg(cmd)?;
                let snap = cmd.name("snap")?;
                match self.create_pool_snap(id, snap.as_bytes()) {
                    Err(Refusal { errno: Errno::EEXIST, .. }) => {
                        say(format!("pool {name} snap {snap} already exists"))
                    }
                    Err(Refusal { errno: Errno::EINVAL, .. }) => {
                        fail(Errno::EINVAL, format!("pool {name} is in selfmanaged snaps mode"))
                    }
                    Err(other) => Err(other),
                    Ok(()) => say(format!("created pool {name} snap {snap}")),
                }
            }
            "osd pool rmsnap" => {
                let (id, name, _) = self.pool_arg(cmd)?;
                let snap = cmd.string("snap")?;
                match self.delete_pool_snap(id, snap.as_bytes()) {
                    Err(Refusal { errno: Errno::ENOENT, .. }) => {
                        say(format!("pool {name} snap {snap} does not exist"))
                    }
                    Err(Refusal { errno: Errno::EINVAL, .. }) => {
                        fail(Errno::EINVAL, format!("pool {name} is in selfmanaged snaps mode"))
                    }
                    Err(other) => Err(other),
                    Ok(()) => say(format!("removed pool {name} snap {snap}")),
                }
            }
            "osd pool set-quota" => self.pool_set_quota(cmd),
            "osd pool get-quota" => self.pool_get_quota(cmd),
            "osd pool get" => self.pool_get(cmd),
            "osd pool set" => self.pool_set(cmd),
            "osd pool application enable"
            | "osd pool application disable"
            | "osd pool application set"
            | "osd pool application rm" => self.pool_application(cmd),
            "osd pool application get" => self.pool_application_get(cmd),
            _ => unhandled(),
        }
    }

    /// The pool named by `pool`: id, name, as it will be.
    pub(crate) fn pool_arg(&mut self, cmd: &Cmd) -> Result<(i64, String, PgPool), Refusal> {
        let name = cmd.string("pool")?;
        let map = self.next_map();
        let found = map.lookup_pool(&name).and_then(|id| Some((id, map.pool(id)?.clone())));
        match found {
            Some((id, pool)) => Ok((id, name, pool)),
            None => fail(Errno::ENOENT, format!("unrecognized pool '{name}'")),
        }
    }

    fn pool_ls(&mut self, cmd: &Cmd) -> CmdResult {
        let map = self.osdmap();
        let detail = cmd.map.opt_string("detail")?.is_some_and(|d| d == "detail");
        Ok(cmd.output(
            |f| {
                f.array("pools", |f| {
                    for (id, name) in &map.pool_names {
                        match map.pool(*id) {
                            Some(pool) if detail => {
                                f.object("pool", |f| map.dump_pool("pool_id", *id, pool, f));
                            }
                            _ => f.dump_string("pool_name", name),
                        }
                    }
                });
            },
            || {
                if !detail {
                    return map.pool_names.values().map(|name| format!("{name}\n")).collect();
                }
                map.print_pools() + "\n"
            },
        ))
    }

    fn pool_create(&mut self, cmd: &Cmd) -> CmdResult {
        let name = cmd.string("pool")?;
        let mut new = NewPool {
            name: name.clone(),
            pg_num: cmd.map.opt_int("pg_num")?,
            pgp_num: cmd.map.opt_int("pgp_num")?,
            size: cmd.map.opt_int("size")?,
            pg_num_min: cmd.map.opt_int("pg_num_min")?,
            pg_num_max: cmd.map.opt_int("pg_num_max")?,
            target_size_bytes: cmd.map.opt_int("target_size_bytes")?,
            target_size_ratio: cmd.map.opt_float("target_size_ratio")?,
            autoscale_mode: cmd.map.opt_string("autoscale_mode")?.unwrap_or_default(),
            rule: cmd.map.opt_string("rule")?.unwrap_or_default(),
            profile: cmd.map.opt_string("erasure_code_profile")?.unwrap_or_default(),
            bulk: cmd.map.flag("bulk"),
            ..NewPool::default()
        };
        let expected = cmd.map.opt_int("expected_num_objects")?.unwrap_or(0);
        new.expected_num_objects = u64::try_from(expected).unwrap_or(0);
        let kind = match cmd.map.opt_string("pool_type")? {
            Some(kind) => kind,
            None => self.conf.str("osd_pool_default_type"),
        };
        new.erasure = kind == "erasure";
        if let Some(id) = self.next_map().lookup_pool(&name) {
            let pool = self.next_map().pool(id).cloned();
            if pool.is_some_and(|p| p.is_erasure() != new.erasure) {
                return fail(Errno::EINVAL, format!("pool '{name}' cannot change to type {kind}"));
            }
            return say(format!("pool '{name}' already exists"));
        }
        if !new.erasure && !new.profile.is_empty() {
            // On the command line a replicated pool's rule stands where a profile would, and the number of
            // objects where the rule would.
            let rule = std::mem::take(&mut new.profile);
            let objects = std::mem::replace(&mut new.rule, rule);
            if !objects.is_empty() {
                new.expected_num_objects = u64::try_from(parse_int(&objects)?).unwrap_or(0);
            }
        }
        self.create_pool(&new)?;
        say(format!("pool '{name}' created"))
    }

    fn pool_rm(&mut self, cmd: &Cmd) -> CmdResult {
        let name = cmd.string("pool")?;
        let again = cmd.map.opt_string("pool2")?.unwrap_or_default();
        let sure = cmd.map.flag("yes_i_really_really_mean_it")
            || cmd.map.flag("yes_i_really_really_mean_it_not_faking");
        let Some(id) = self.next_map().lookup_pool(&name) else {
            return say(format!("pool '{name}' does not exist"));
        };
        if again != name || !sure {
            return fail(
                Errno::EPERM,
                format!(
                    "WARNING: this will *PERMANENTLY DESTROY* all data stored in pool {name}.  If you are *ABSOLUTELY CERTAIN* that is what you want, pass the pool name *twice*, followed by --yes-i-really-really-mean-it."
                ),
            );
        }
        self.delete_pool(id)?;
        say(format!("pool '{name}' removed"))
    }

    fn pool_rename(&mut self, cmd: &Cmd) -> CmdResult {
        let (from, to) = (cmd.string("srcpool")?, cmd.name("destpool")?);
        let map = self.next_map();
        let source = map.lookup_pool(&from);
        let target = map.lookup_pool(&to);
        match (source, target) {
            (None, Some(_)) => {
                // Done before, it seems.
                say(format!(
                    "pool '{from}' does not exist; pool '{to}' does -- assuming successful rename"
                ))
            }
            (None, None) => fail(Errno::ENOENT, format!("unrecognized pool '{from}'")),
            (Some(_), Some(_)) => fail(Errno::EEXIST, format!("pool '{to}' already exists")),
            (Some(id), None) => {
                self.inc().new_pool_names.insert(id, to.clone());
                say(format!("pool '{from}' renamed to '{to}'"))
            }
        }
    }

    fn pool_set_quota(&mut self, cmd: &Cmd) -> CmdResult {
        let (id, name, mut pool) = self.pool_arg(cmd)?;
        let (field, text) = (cmd.string("field")?, cmd.string("val")?);
        let parsed = match field.as_str() {
            "max_bytes" => config::parse_iec(&text),
            _ => config::parse_si_unsigned(&text),
        };
        let value = parsed
            .map_err(|why| refuse(Errno::EINVAL, format!("error parsing value '{text}': {why}")))?;
        match field.as_str() {
            "max_objects" => pool.quota_max_objects = value,
            _ => pool.quota_max_bytes = value,
        }
        self.put_pool(id, pool);
        say(format!("set-quota {field} = {value} for pool {name}"))
    }

    fn pool_get_quota(&mut self, cmd: &Cmd) -> CmdResult {
        let (id, name, pool) = self.pool_arg(cmd)?;
        let (bytes, objects) = self.stat.pool_sum(id);
        Ok(cmd.output(
            |f| {
                f.object("pool_quotas", |f| {
                    f.dump_string("pool_name", &name);
                    f.dump_int("pool_id", id);
                    f.dump_unsigned("quota_max_objects", pool.quota_max_objects);
                    f.dump_unsigned("current_num_objects", objects);
                    f.dump_unsigned("quota_max_bytes", pool.quota_max_bytes);
                    f.dump_unsigned("current_num_bytes", bytes);
                });
            },
            || {
                let objects_text = match pool.quota_max_objects {
                    0 => "N/A".to_string(),
                    max => format!(
                        "{} objects  (current num objects: {} objects)",
                        format_si(max),
                        objects
                    ),
                };
                let bytes_text = match pool.quota_max_bytes {
                    0 => "N/A".to_string(),
                    max => format!(
                        "{}  (current num bytes: {} bytes)",
                        format_bytes(max),
                        bytes
                    ),
                };
                format!(
                    "quotas for pool '{name}':\n  max objects: {objects_text}\n  max bytes  : {bytes_text}"
                )
            },
        ))
    }

    fn pool_application(&mut self, cmd: &Cmd) -> CmdResult {
        let (id, name, mut pool) = self.pool_arg(cmd)?;
        let app = cmd.string("app")?;
        let sure = cmd.map.flag("yes_i_really_mean_it");
        let apps = &mut pool.application_metadata;
        let text = match cmd.prefix.as_str() {
            "osd pool application enable" => {
                if app.is_empty() {
                    return fail(Errno::EINVAL, "application name must be provided");
                }
                if !apps.is_empty() && !apps.contains_key(&app) && !sure {
                    return fail(
                        Errno::EPERM,
                        format!(
                            "Are you SURE? Pool '{name}' already has an enabled application; pass --yes-i-really-mean-it to proceed anyway"
                        ),
                    );
                }
                if apps.len() >= APPLICATIONS_MAX && !apps.contains_key(&app) {
                    return fail(Errno::EINVAL, "too many enabled applications on pool");
                }
                if app.len() > KEY_LEN_MAX {
                    return fail(Errno::EINVAL, "application name too long");
                }
                let text = format!("enabled application '{app}' on pool '{name}'");
                if apps.contains_key(&app) {
                    return say(text);
                }
                apps.insert(app, BTreeMap::new());
                text
            }
            "osd pool application disable" => {
                if !sure {
                    return fail(
                        Errno::EPERM,
                        "Are you SURE? Disabling an application within a pool might result in loss of application functionality; pass --yes-i-really-mean-it to proceed anyway",
                    );
                }
                if apps.remove(&app).is_none() {
                    return say(format!("application '{app}' is not enabled on pool '{name}'"));
                }
                format!("disable application '{app}' on pool '{name}'")
            }
            "osd pool application set" => {
                let Some(keys) = apps.get_mut(&app) else {
                    return fail(
                        Errno::ENOENT,
                        format!("application '{app}' is not enabled on pool '{name}'"),
                    );
                };
                let (key, value) = (cmd.string("key")?, cmd.string("value")?);
                if keys.len() >= KEYS_MAX && !keys.contains_key(&key) {
                    return fail(
                        Errno::EINVAL,
                        format!("too many keys set for application '{app}' on pool '{name}'"),
                    );
                }
                if key.len() > KEY_LEN_MAX || value.len() > KEY_LEN_MAX {
                    return fail(
                        Errno::EINVAL,
                        format!("key or value too long (max {KEY_LEN_MAX})"),
                    );
                }
                let text =
                    format!("set application '{app}' key '{key}' to '{value}' on pool '{name}'");
                keys.insert(key, value);
                text
            }
            _ => {
                let Some(keys) = apps.get_mut(&app) else {
                    return fail(
                        Errno::ENOENT,
                        format!("application '{app}' is not enabled on pool '{name}'"),
                    );
                };
                let key = cmd.string("key")?;
                if keys.remove(&key).is_none() {
                    return say(format!(
                        "application '{app}' on pool '{name}' does not have key '{key}'"
                    ));
                }
                format!("removed application '{app}' key '{key}' on pool '{name}'")
            }
        };
        self.put_pool(id, pool);
        say(text)
    }

    fn pool_application_get(&mut self, cmd: &Cmd) -> CmdResult {
        let map = self.osdmap();
        let app = cmd.map.opt_string("app")?;
        let key = cmd.map.opt_string("key")?;
        let Some(name) = cmd.map.opt_string("pool")? else {
            return Ok(cmd.structured(|f| {
                f.object("pools", |f| {
                    for (id, pool) in &map.pools {
                        let name = map.pool_names.get(id).map_or("", String::as_str);
                        f.object(name, |f| dump_apps(f, &pool.application_metadata));
                    }
                });
            }));
        };
        let Some(pool) = map.lookup_pool(&name).and_then(|id| map.pool(id)) else {
            return fail(Errno::ENOENT, format!("unrecognized pool '{name}'"));
        };
        let Some(app) = app else {
            return Ok(cmd.structured(|f| {
                f.object(&name, |f| dump_apps(f, &pool.application_metadata));
            }));
        };
        let Some(keys) = pool.application_metadata.get(&app) else {
            return fail(Errno::ENOENT, format!("pool '{name}' has no application '{app}'"));
        };
        let Some(key) = key else {
            return Ok(cmd.structured(|f| {
                f.object(&app, |f| keys.iter().for_each(|(k, v)| f.dump_string(k, v)));
            }));
        };
        match keys.get(&key) {
            Some(value) => Ok(CommandReply::data(format!("{value}\n"))),
            None => Err(refuse(
                Errno::ENOENT,
                format!("application '{app}' on pool '{name}' does not have key '{key}'"),
            )),
        }
    }
}

fn dump_apps(f: &mut command::Formatter, apps: &BTreeMap<String, BTreeMap<String, String>>) {
    for (app, keys) in apps {
        f.object(app, |f| keys.iter().for_each(|(k, v)| f.dump_string(k, v)));
    }
}
