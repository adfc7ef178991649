//! Erasure code profiles: `osd erasure-code-profile set|rm` (`parse_erasure_code_profile`,
//! `normalize_profile` in `src/mon/OSDMonitor.cc`).

use std::collections::BTreeMap;

use ::config::parse_iec;
use erasure::{BadProfile, Plugin, Profile};
use serde_json::Value;
use types::Errno;

use super::cmd::{done, say};
use super::{Cmd, CmdResult, Refusal, check_name, fail, refuse};
use crate::core::MonCore;

/// A profile as the map keeps it.
type ProfileMap = BTreeMap<String, String>;

impl MonCore {
    pub(super) fn profile_set(&mut self, cmd: &Cmd) -> CmdResult {
        let name = cmd.name("name")?;
        let force = cmd.map.flag("force");
        let default = self.conf.str("osd_pool_default_erasure_code_profile");
        let given = cmd.map.strings("profile")?;
        given.iter().try_for_each(check_name)?;
        // Names of before the rules had names of their own; kept, they would mean nothing.
        let key_of = |pair: &String| pair.split_once('=').map(|(key, _)| key.to_string());
        for key in given.iter().filter_map(key_of) {
            if let Some(rest) = key.strip_prefix("ruleset-") {
                let text =
                    format!("property '{key}' is no longer supported; try 'crush-{rest}' instead");
                return fail(Errno::EINVAL, text);
            }
        }
        let mut profile = with_defaults(str_map(&default)?, &given);
        let map = self.next_map();
        if let Some(domain) = profile.get("crush-failure-domain").filter(|d| !d.is_empty())
            && map.crush.type_id(domain).is_none()
        {
            return fail(
                Errno::EINVAL,
                format!(
                    "erasure-code-profile {} contains an invalid failure-domain \"{domain}\"",
                    profile_text(&profile)
                ),
            );
        }
        complete(&mut profile, force)?;
        if let Some(old) = map.erasure_code_profiles.get(&name) {
            if *old == profile {
                return done();
            }
            if !force {
                return fail(
                    Errno::EPERM,
                    format!(
                        "will not override erasure code profile {name} because the existing profile {} is different from the proposed profile {}",
                        profile_text(old),
                        profile_text(&profile)
                    ),
                );
            }
        }
        let inc = self.inc();
        inc.old_erasure_code_profiles.retain(|old| *old != name);
        inc.new_erasure_code_profiles.insert(name, profile);
        done()
    }

    /// The profile of that name. `default`, where it was removed, is made anew of the option.
    pub(crate) fn erasure_profile(&mut self, name: &str) -> Result<Option<ProfileMap>, Refusal> {
        let known = self.next_map().erasure_code_profiles.get(name).cloned();
        if known.is_some() || name != "default" {
            return Ok(known);
        }
        let profile = str_map(&self.conf.str("osd_pool_default_erasure_code_profile"))?;
        let inc = self.inc();
        inc.old_erasure_code_profiles.retain(|old| old != name);
        inc.new_erasure_code_profiles.insert(name.to_owned(), profile.clone());
        Ok(Some(profile))
    }

    pub(super) fn profile_rm(&mut self, cmd: &Cmd) -> CmdResult {
        let name = cmd.string("name")?;
        let map = self.next_map();
        let users: Vec<String> = map
            .pools
            .iter()
            .filter(|(_, p)| p.is_erasure() && p.erasure_code_profile == name)
            .map(|(id, _)| map.pool_names.get(id).cloned().unwrap_or_default())
            .collect();
        if !users.is_empty() {
            return fail(
                Errno::EBUSY,
                format!("{} pool(s) are using the erasure code profile '{name}'", users.join(" ")),
            );
        }
        if !map.erasure_code_profiles.contains_key(&name) {
            return say(format!("erasure-code-profile {name} does not exist"));
        }
        let inc = self.inc();
        inc.new_erasure_code_profiles.remove(&name);
        inc.old_erasure_code_profiles.push(name);
        done()
    }
}

/// `get_json_str_map`: what an option says, a JSON object or words of `key=value`.
pub(crate) fn str_map(text: &str) -> Result<ProfileMap, Refusal> {
    let kind = match serde_json::from_str(text) {
        Err(_) => return Ok(pairs(text.split_whitespace())),
        Ok(Value::Object(object)) => {
            let texts = object.into_iter().filter_map(|(key, value)| match value {
                Value::String(value) => Some((key, value)),
                _ => None,
            });
            return Ok(texts.collect());
        }
        // json_spirit's numbers of types.
        Ok(Value::Array(_)) => 1,
        Ok(Value::String(_)) => 2,
        Ok(Value::Bool(_)) => 3,
        Ok(Value::Number(_)) => 4,
        Ok(Value::Null) => 6,
    };
    let text = format!("{text} must be a JSON object but is of type {kind} instead");
    fail(Errno::EINVAL, text)
}

fn pairs<'a>(words: impl Iterator<Item = &'a str>) -> ProfileMap {
    words
        .filter(|word| *word != "--force")
        .map(|word| word.split_once('=').unwrap_or((word, "")))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// What was asked for, over the default profile; over nothing if it names another plugin.
fn with_defaults(mut profile: ProfileMap, given: &[String]) -> ProfileMap {
    let asked = pairs(given.iter().map(String::as_str));
    if let Some(plugin) = asked.get("plugin")
        && profile.get("plugin") != Some(plugin)
    {
        profile.clear();
    }
    profile.extend(asked);
    profile.entry("plugin".to_owned()).or_insert_with(|| "jerasure".to_owned());
    profile
}

/// The code of a profile.
pub(crate) fn code_of(profile: &ProfileMap) -> Result<Profile, Refusal> {
    Profile::of(profile).map_err(|bad| {
        let errno = match bad {
            BadProfile::NoPlugin(_) => Errno::EIO,
            BadProfile::NoTechnique(..) => Errno::ENOENT,
            BadProfile::Unsupported(..) => Errno::EOPNOTSUPP,
            BadProfile::NotANumber(..) | BadProfile::OutOfRange(_) => Errno::EINVAL,
        };
        refuse(errno, bad.to_string())
    })
}

/// Bytes of a piece of a stripe, if the profile says them.
pub(crate) fn stripe_unit(profile: &ProfileMap, code: &Profile) -> Result<Option<u64>, Refusal> {
    let Some(text) = profile.get("stripe_unit") else { return Ok(None) };
    let unit = parse_iec(text).map_err(|why| {
        refuse(Errno::EINVAL, format!("could not parse stripe_unit '{text}': {why}"))
    })?;
    let Some(unit) = usize::try_from(unit).ok().filter(|u| *u > 0) else {
        return fail(Errno::EINVAL, format!("could not parse stripe_unit '{text}'"));
    };
    let padded = code.chunk_len(unit.saturating_mul(code.k));
    if padded != unit {
        return fail(
            Errno::EINVAL,
            format!(
                "stripe_unit {unit} does not match ec profile alignment. Would be padded to {padded}"
            ),
        );
    }
    Ok(Some(unit as u64))
}

/// Writes out what the plugin would take for granted.
fn complete(profile: &mut ProfileMap, force: bool) -> Result<(), Refusal> {
    const PAGE_LEN: u64 = 4096;
    let code = code_of(profile)?;
    let unit = stripe_unit(profile, &code)?;
    if unit.is_some_and(|unit| unit % PAGE_LEN != 0) && !force {
        return fail(
            Errno::EINVAL,
            "stripe_unit should be a multiple of 4096 bytes for best performance.use --force to \
             override this check",
        );
    }
    let mut put = |key: &str, value: String| {
        let known = profile.entry(key.to_owned()).or_default();
        if known.is_empty() {
            *known = value;
        }
    };
    put("k", code.k.to_string());
    put("m", code.m.to_string());
    put("technique", code.technique.name().to_owned());
    put("crush-root", "default".to_owned());
    put("crush-failure-domain", "host".to_owned());
    put("crush-device-class", String::new());
    if code.plugin == Plugin::Jerasure {
        put("w", code.w.to_string());
        if code.technique.has_packets() {
            put("packetsize", code.packet_len.to_string());
        }
        if code.technique.may_align_each_chunk() {
            put("jerasure-per-chunk-alignment", "false".to_owned());
        }
    }
    Ok(())
}

/// `{a=b,c=d}`.
fn profile_text(profile: &ProfileMap) -> String {
    let pairs: Vec<String> = profile.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("{{{}}}", pairs.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: &str = "plugin=jerasure technique=reed_sol_van k=2 m=2";

    fn set(words: &str) -> Result<String, String> {
        let given: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let mut profile = with_defaults(pairs(DEFAULT.split_whitespace()), &given);
        complete(&mut profile, false).map_err(|refusal| refusal.text)?;
        Ok(profile_text(&profile))
    }

    /// As a real Ceph 16.2 shows them.
    #[test]
    fn profiles_are_completed() {
        let crush = "crush-device-class=,crush-failure-domain=host,crush-root=default";
        let jerasure = |k: &str, m: &str| {
            Ok(format!(
                "{{{crush},jerasure-per-chunk-alignment=false,k={k},m={m},plugin=jerasure,technique=reed_sol_van,w=8}}"
            ))
        };
        assert_eq!(set(""), jerasure("2", "2"));
        assert_eq!(set("k=3"), jerasure("3", "2"));
        let packets = "jerasure-per-chunk-alignment=false,k=4,m=2,packetsize=2048,plugin=jerasure,technique=cauchy_orig,w=8";
        assert_eq!(set("technique=cauchy_orig k=4"), Ok(format!("{{{crush},{packets}}}")));
        let packets = "k=2,m=2,packetsize=64,plugin=jerasure,technique=liberation,w=7";
        assert_eq!(set("technique=liberation packetsize=64"), Ok(format!("{{{crush},{packets}}}")));
        let isa = format!("{{{crush},k=7,m=3,plugin=isa,technique=reed_sol_van}}");
        assert_eq!(set("plugin=isa"), Ok(isa));
    }

    /// The default profile was read as words only: a JSON object, which Ceph takes as well, made one without a plugin
    /// (`qa/standalone/mon/osd-erasure-code-profile.sh`).
    #[test]
    fn a_default_may_be_json() {
        let text = r#"{"plugin":"isa","k":"3"}"#;
        assert_eq!(str_map(text).map_err(|r| r.text), Ok(pairs(["plugin=isa", "k=3"].into_iter())));
        let said = str_map("1").map_err(|refusal| refusal.text);
        assert_eq!(said, Err("1 must be a JSON object but is of type 4 instead".to_owned()));
    }

    #[test]
    fn refusals() {
        for (words, said) in [
            (
                "technique=nope",
                "technique=nope is not a valid coding technique.  Choose one of the following: reed_sol_van, reed_sol_r6_op, cauchy_orig, cauchy_good, liberation, blaum_roth, liber8tion",
            ),
            ("k=1", "k=1 must be >= 2"),
            (
                "k=a",
                "could not convert k=a to int because Expected option value to be integer, got 'a', set to default 7",
            ),
            ("m=0", "m=0 must be >= 1"),
            ("w=7", "ReedSolomonVandermonde: w=7 must be one of {8, 16, 32} : revert to 8"),
            (
                "plugin=isa k=4 m=5",
                "Vandermonde: m=5 should be less than 5 to guarantee an MDS codec: revert to m=4",
            ),
            (
                "stripe_unit=1024",
                "stripe_unit should be a multiple of 4096 bytes for best performance.use --force to override this check",
            ),
            (
                "stripe_unit=1000",
                "stripe_unit 1000 does not match ec profile alignment. Would be padded to 1024",
            ),
        ] {
            assert_eq!(set(words), Err(said.to_owned()), "{words}");
        }
        let lrc = set("plugin=lrc k=4 m=2 l=3").unwrap_err();
        assert!(lrc.starts_with("plugin=lrc is not supported"), "{lrc}");
    }
}
