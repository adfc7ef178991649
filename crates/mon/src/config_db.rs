//! The central configuration: which options are set for whom, and what that comes to for one
//! daemon or client (`src/mon/ConfigMap.cc` at v16.2).
//!
//! A setting's key is `[section/][mask/]option`. The section is `global`, a type, or an entity
//! with any number of dotted parts; masks narrow it: `class:ssd`, `host:name`, `rack:r1`.

use std::collections::BTreeMap;

/// What narrows a section.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mask {
    /// CRUSH location type and name, or empty.
    pub(crate) location: Option<(String, String)>,
    /// Device class, or empty.
    pub(crate) device_class: String,
}

impl Mask {
    /// As `config dump` shows it.
    pub(crate) fn text(&self) -> String {
        let mut parts = Vec::new();
        if let Some((kind, name)) = &self.location {
            parts.push(format!("{kind}:{name}"));
        }
        if !self.device_class.is_empty() {
            parts.push(format!("class:{}", self.device_class));
        }
        parts.join("/")
    }

    fn precision(&self) -> u32 {
        u32::from(self.location.is_some()) + u32::from(!self.device_class.is_empty())
    }

    fn matches(&self, who: &Entity<'_>) -> bool {
        let class = self.device_class.is_empty() || self.device_class == who.device_class;
        let place = self.location.as_ref().is_none_or(|(kind, name)| {
            who.location.iter().any(|(k, n)| k == kind && n == name)
                || (kind == "host" && name == who.host)
        });
        class && place
    }
}

/// Whose options are asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entity<'a> {
    /// `osd.3`, `client.rgw.a`.
    pub(crate) name: &'a str,
    /// Short host name, or empty.
    pub(crate) host: &'a str,
    /// CRUSH location: type and name.
    pub(crate) location: &'a [(String, String)],
    /// Device class, or empty.
    pub(crate) device_class: &'a str,
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) section: String,
    pub(crate) mask: Mask,
    pub(crate) option: String,
    pub(crate) value: String,
}

/// All settings.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConfigDb {
    /// By stored key without `config/`. As many as operators set.
    settings: BTreeMap<String, Setting>,
}

impl ConfigDb {
    /// Sets a key; false if it is no valid one.
    pub(crate) fn insert(&mut self, key: &str, value: &str) -> bool {
        let (who, option) = split_key(key);
        let Some((section, mask)) = parse_who(who) else { return false };
        let setting =
            Setting { section, mask, option: option.to_string(), value: value.to_string() };
        self.settings.insert(key.to_string(), setting);
        true
    }

    /// Removes a key.
    pub(crate) fn remove(&mut self, key: &str) -> Option<Setting> {
        self.settings.remove(key)
    }

    /// Other keys of the same setting: earlier versions stored masks as a command had written them.
    pub(crate) fn other_keys(&self, key: &str) -> Vec<String> {
        let (who, option) = split_key(key);
        let Some((section, mask)) = parse_who(who) else { return Vec::new() };
        let same = self.settings.iter().filter(|(other, s)| {
            other.as_str() != key && s.option == option && s.section == section && s.mask == mask
        });
        same.map(|(other, _)| other.clone()).collect()
    }

    /// The value stored under a key.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.settings.get(key).map(|s| s.value.as_str())
    }

    /// All settings in the order shown: global, then each type followed by its entities.
    pub(crate) fn dump(&self) -> Vec<&Setting> {
        // By stored key within a section: narrower masks come before the bare section.
        let mut all: Vec<&Setting> = self.settings.values().collect();
        let kinds = ["global", "mon", "mgr", "osd", "mds", "client"];
        all.sort_by_key(|s| {
            let kind = s.section.split('.').next().unwrap_or("");
            let rank = kinds.iter().position(|k| *k == kind).unwrap_or(kinds.len());
            (rank, s.section.clone(), s.option.clone())
        });
        all
    }

    /// The settings in force for one entity, by option: later sections win over earlier ones,
    /// narrower masks over wider ones.
    pub(crate) fn for_entity(&self, who: &Entity<'_>) -> BTreeMap<String, &Setting> {
        let mut sections = vec!["global".to_string()];
        let mut dotted = String::new();
        for part in who.name.split('.') {
            if !dotted.is_empty() {
                dotted.push('.');
            }
            dotted.push_str(part);
            sections.push(dotted.clone());
        }
        let mut result: BTreeMap<String, &Setting> = BTreeMap::new();
        for section in sections {
            let mut here: BTreeMap<&str, &Setting> = BTreeMap::new();
            for setting in self.settings.values() {
                if setting.section != section || !setting.mask.matches(who) {
                    continue;
                }
                let slot = here.entry(&setting.option).or_insert(setting);
                if setting.mask.precision() > slot.mask.precision() {
                    *slot = setting;
                }
            }
            result.extend(here.into_iter().map(|(k, v)| (k.to_string(), v)));
        }
        result
    }
}

/// The key under which a setting is stored, without `config/`: one for each section and mask, however a
/// command writes them.
pub(crate) fn stored_key(who: &str, option: &str) -> String {
    match parse_who(who) {
        Some((section, mask)) if mask == Mask::default() => format!("{section}/{option}"),
        Some((section, mask)) => format!("{section}/{}/{option}", mask.text()),
        None => format!("{who}/{option}"),
    }
}

/// Section and mask of a target such as `osd/class:ssd`; `None` if it is no valid one.
pub(crate) fn parse_who(who: &str) -> Option<(String, Mask)> {
    let mut section = "global".to_string();
    let mut mask = Mask::default();
    let known = |word: &str| {
        let kind = word.split('.').next().unwrap_or("");
        matches!(kind, "global" | "mon" | "mgr" | "osd" | "mds" | "client")
    };
    for (i, part) in who.split('/').enumerate() {
        match part.split_once(':') {
            Some(("class", class)) => mask.device_class = class.to_string(),
            Some((kind, name)) if !kind.is_empty() => {
                mask.location = Some((kind.to_string(), name.to_string()));
            }
            Some(_) => return None,
            None if i == 0 && (known(part) || part.is_empty()) => {
                if !part.is_empty() {
                    section = part.to_string();
                }
            }
            None => return None,
        }
    }
    Some((section, mask))
}

/// Target and option of a stored key. Options of manager modules have slashes themselves.
fn split_key(key: &str) -> (&str, &str) {
    if let Some(at) = key.find("/mgr/") {
        return (&key[..at], &key[at + 1..]);
    }
    key.rsplit_once('/').unwrap_or(("", key))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A setting that a command wrote with its masks in another order, or with `global/`, was another one: it stayed in
    /// force when the first was removed.
    #[test]
    fn a_setting_has_one_key() {
        assert_eq!(stored_key("osd/class:ssd/host:h", "a"), "osd/host:h/class:ssd/a");
        assert_eq!(stored_key("host:h", "a"), stored_key("global/host:h", "a"));
        assert_eq!(stored_key("", "a"), "global/a");
        let mut db = ConfigDb::default();
        for key in ["osd/class:ssd/host:h/a", "osd/host:h/class:ssd/a", "osd/host:h/a", "host:h/b"]
        {
            assert!(db.insert(key, "1"));
        }
        let others = |who| db.other_keys(&stored_key(who, "a"));
        assert_eq!(others("osd/host:h/class:ssd"), ["osd/class:ssd/host:h/a"]);
        assert_eq!(others("osd/host:h"), Vec::<String>::new());
        assert_eq!(db.other_keys(&stored_key("global/host:h", "b")), ["host:h/b"]);
    }

    #[test]
    fn narrower_targets_win() {
        let mut db = ConfigDb::default();
        for (key, value) in [
            ("global/a", "1"),
            ("osd/a", "2"),
            ("osd/class:ssd/a", "3"),
            ("osd.1/a", "4"),
            ("client.rgw/b", "5"),
        ] {
            assert!(db.insert(key, value));
        }
        let get = |name, class, option: &str| {
            let who = Entity { name, device_class: class, ..Entity::default() };
            db.for_entity(&who).get(option).map(|s| s.value.clone())
        };
        assert_eq!(get("mon.a", "", "a").as_deref(), Some("1"));
        assert_eq!(get("osd.0", "hdd", "a").as_deref(), Some("2"));
        assert_eq!(get("osd.0", "ssd", "a").as_deref(), Some("3"));
        assert_eq!(get("osd.1", "ssd", "a").as_deref(), Some("4"));
        assert_eq!(get("client.rgw.x", "", "b").as_deref(), Some("5"));
    }

    #[test]
    fn targets_are_checked() {
        assert!(parse_who("osd.1").is_some());
        assert!(parse_who("osd/host:x/class:ssd").is_some());
        assert!(parse_who("nonsense").is_none());
        assert_eq!(split_key("mgr/mgr/balancer/mode"), ("mgr", "mgr/balancer/mode"));
    }
}
