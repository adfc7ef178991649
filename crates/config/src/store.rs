//! The values in force: one slot per option and source, strongest source wins.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;

use types::EntityAddr;

use crate::value::normalize;
use crate::{ConfFile, OptionDef, ValueError, option, options, parse_bool};

/// Where a value comes from, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Compiled in.
    Default,
    /// The monitor's configuration database.
    Mon,
    /// `ceph.conf`.
    File,
    /// The environment.
    Env,
    /// The command line.
    Cmdline,
    /// Set while running.
    Override,
    /// Fixed by the daemon itself.
    Final,
}

impl Source {
    /// Ceph's name of the source.
    pub fn name(self) -> &'static str {
        match self {
            Source::Default => "default",
            Source::Mon => "mon",
            Source::File => "file",
            Source::Env => "env",
            Source::Cmdline => "cmdline",
            Source::Override => "override",
            Source::Final => "final",
        }
    }
}

/// Why a setting is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetError {
    /// No such option (ENOENT).
    Unknown,
    /// A running daemon would not follow the change (ENOSYS, as Ceph answers).
    NotAtRuntime,
    /// A bad value (EINVAL).
    Value(ValueError),
}

impl fmt::Display for SetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetError::Unknown => f.write_str("unrecognized config option"),
            SetError::NotAtRuntime => f.write_str("cannot be changed at run time"),
            SetError::Value(error) => error.fmt(f),
        }
    }
}

/// Bytes beyond which the variables of a value are left as they are.
const EXPANDED_MAX: usize = 64 << 10;

/// Called with the names that changed.
pub type Observer = Rc<dyn Fn(&Config, &BTreeSet<String>)>;

/// One option as `config show` lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The option.
    pub name: &'static str,
    /// The value in force, variables expanded.
    pub value: String,
    /// The source in force.
    pub source: Source,
    /// Every value set, as written, by source.
    pub values: BTreeMap<Source, String>,
}

/// The options of one daemon or tool. Cheap to share by `Rc`.
pub struct Config {
    kind: String,
    id: String,
    cluster: String,
    host: String,
    pid: u32,
    is_daemon: bool,
    /// At most one entry per option of the table and source.
    values: RefCell<BTreeMap<&'static str, BTreeMap<Source, String>>>,
    observers: RefCell<Vec<(Vec<&'static str>, Observer)>>,
    /// See [`Config::on_log_reopen`].
    log_reopen: Cell<Option<fn()>>,
    /// See [`Config::revision`].
    revision: Cell<u64>,
    /// What [`Config::value`] has said of options since they had this revision: daemons ask for the same ones all the time. At most
    /// one entry per option of the table.
    said: RefCell<(u64, HashMap<&'static str, String>)>,
    /// See [`Config::facts`].
    facts: RefCell<BTreeMap<String, String>>,
    /// What the monitors sent and is not ours to take, as they sent it.
    ignored: RefCell<BTreeMap<String, String>>,
}

impl Config {
    /// The defaults for `kind.id`, e.g. ("osd", "0").
    pub fn new(kind: &str, id: &str) -> Config {
        Config {
            kind: kind.to_string(),
            id: id.to_string(),
            cluster: "ceph".to_string(),
            host: String::new(),
            pid: 0,
            is_daemon: kind != "client",
            values: RefCell::default(),
            observers: RefCell::default(),
            log_reopen: Cell::new(None),
            revision: Cell::new(1),
            said: RefCell::default(),
            facts: RefCell::default(),
            ignored: RefCell::default(),
        }
    }

    /// Sets what `$cluster`, `$host` and `$pid` stand for.
    pub fn with_identity(mut self, cluster: &str, host: &str, pid: u32) -> Config {
        self.cluster = cluster.to_string();
        self.host = host.to_string();
        self.pid = pid;
        self.said = RefCell::default();
        self
    }

    /// What is known of the machine and the build the daemon runs on (`kernel_version`, `cpu`, ...):
    /// daemons add it to what they tell the monitors of themselves.
    pub fn facts(&self) -> BTreeMap<String, String> {
        self.facts.borrow().clone()
    }

    /// Sets [`Config::facts`].
    pub fn set_facts(&self, facts: BTreeMap<String, String>) {
        *self.facts.borrow_mut() = facts;
    }

    /// Grows with every change of a value, from 1.
    pub fn revision(&self) -> u64 {
        self.revision.get()
    }

    /// `osd.0`.
    pub fn name(&self) -> String {
        format!("{}.{}", self.kind, self.id)
    }

    /// `osd`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// `0`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The cluster's name, `ceph` mostly.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The machine's short name.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Takes what the file says for this daemon: section `kind.id` before `kind` before
    /// `global`. Unknown names are left alone; bad values are returned with their error and not
    /// taken.
    pub fn load_file(&self, file: &ConfFile) -> Vec<(String, ValueError)> {
        let mut bad = Vec::new();
        for section in ["global", &self.kind, &self.name()] {
            for (name, value) in file.settings(section) {
                match self.store(name, value, Source::File) {
                    Ok(()) | Err(SetError::Unknown | SetError::NotAtRuntime) => {}
                    Err(SetError::Value(error)) => bad.push((name.to_string(), error)),
                }
            }
        }
        bad
    }

    /// Sets a value and tells observers.
    pub fn set(&self, name: &str, value: &str, source: Source) -> Result<(), SetError> {
        let before = self.value(name);
        self.store(name, value, source)?;
        if let (Some(option), true) = (option(name), before != self.value(name)) {
            self.notify(BTreeSet::from([option.name.to_string()]));
        }
        Ok(())
    }

    /// Sets a value while running; refused if the daemon would not follow.
    pub fn set_at_runtime(&self, name: &str, value: &str) -> Result<(), SetError> {
        let def = option(name).ok_or(SetError::Unknown)?;
        if !def.can_update_at_runtime() {
            return Err(SetError::NotAtRuntime);
        }
        self.set(name, value, Source::Override)
    }

    /// Takes a source's value away. Says whether there was one.
    pub fn unset(&self, name: &str, source: Source) -> Result<bool, SetError> {
        let def = option(name).ok_or(SetError::Unknown)?;
        let before = self.value(name);
        let had = self
            .values
            .borrow_mut()
            .get_mut(def.name)
            .is_some_and(|by_source| by_source.remove(&source).is_some());
        self.revision.set(self.revision.get() + 1);
        if before != self.value(name) {
            self.notify(BTreeSet::from([def.name.to_string()]));
        }
        Ok(had)
    }

    /// Replaces everything the monitor set (the content of MConfig). Unknown or refused settings
    /// are returned.
    pub fn set_mon_values(&self, settings: &BTreeMap<String, String>) -> Vec<String> {
        let watched: Vec<&'static str> = {
            let values = self.values.borrow();
            values
                .iter()
                .filter(|(_, by_source)| by_source.contains_key(&Source::Mon))
                .map(|(name, _)| *name)
                .chain(settings.keys().filter_map(|name| option(name)).map(|o| o.name))
                .collect()
        };
        let before: BTreeMap<&str, Option<String>> =
            watched.iter().map(|name| (*name, self.value(name))).collect();
        for by_source in self.values.borrow_mut().values_mut() {
            by_source.remove(&Source::Mon);
        }
        self.revision.set(self.revision.get() + 1);
        let mut ignored = Vec::new();
        for (name, value) in settings {
            let refused = option(name).is_none_or(|o| o.no_mon_update());
            if refused || self.store(name, value, Source::Mon).is_err() {
                ignored.push(name.clone());
            }
        }
        let kept = |name: &String| Some((name.clone(), settings.get(name)?.clone()));
        *self.ignored.borrow_mut() = ignored.iter().filter_map(kept).collect();
        let changed: BTreeSet<String> = before
            .iter()
            .filter(|(name, old)| self.value(name) != **old)
            .map(|(name, _)| name.to_string())
            .collect();
        if !changed.is_empty() {
            self.notify(changed);
        }
        ignored
    }

    /// Calls `observer` when one of `names` changes (any option if `names` is empty).
    pub fn observe(&self, names: &[&'static str], observer: Observer) {
        self.observers.borrow_mut().push((names.to_vec(), observer));
    }

    /// What `log reopen` does in this process; nothing without.
    pub fn on_log_reopen(&self, reopen: fn()) {
        self.log_reopen.set(Some(reopen));
    }

    /// Opens the log's file anew.
    pub(crate) fn reopen_log(&self) {
        if let Some(reopen) = self.log_reopen.get() {
            reopen();
        }
    }

    /// The value in force, variables expanded; `None` for an unknown name.
    pub fn value(&self, name: &str) -> Option<String> {
        let revision = self.revision.get();
        if let (said_at, said) = &*self.said.borrow()
            && *said_at == revision
            && let Some(value) = said.get(name)
        {
            return Some(value.clone());
        }
        let def = option(name)?;
        let value = self.expand(&self.raw(def).1, 0);
        let mut said = self.said.borrow_mut();
        if said.0 != revision {
            *said = (revision, HashMap::new());
        }
        said.1.insert(def.name, value.clone());
        Some(value)
    }

    /// The value in force, variables expanded; empty for an unknown name.
    pub fn str(&self, name: &str) -> String {
        let value = self.value(name);
        debug_assert!(value.is_some(), "no option {name}");
        value.unwrap_or_default()
    }

    /// What an option that may say `CHANNEL=VALUE ...`, or one value for all, says of a channel of the cluster log: the value of
    /// `default` where it does not name it, nothing without one (`get_conf_str_map_helper` in `src/common/str_map.cc` at v16.2).
    pub fn of_channel(&self, name: &str, channel: &str) -> String {
        let text = self.str(name);
        let words: Vec<&str> =
            text.split([' ', '\t', '\n', ',', ';']).filter(|word| !word.is_empty()).collect();
        if let [one] = words[..]
            && !one.contains('=')
        {
            return with_channel(one, channel);
        }
        let of = |key: &str| {
            let mut pairs = words.iter().filter_map(|word| word.split_once('='));
            pairs.rfind(|(name, _)| *name == key).map(|(_, value)| value)
        };
        of(channel).or_else(|| of("default")).map_or(String::new(), |v| with_channel(v, channel))
    }

    /// A whole number, size or time in force; 0 if it is none.
    pub fn int(&self, name: &str) -> i64 {
        let text = self.str(name);
        text.parse().or_else(|_| text.parse::<f64>().map(|f| f as i64)).unwrap_or(0)
    }

    /// A natural number, size or time in force; 0 if it is none.
    pub fn uint(&self, name: &str) -> u64 {
        let text = self.str(name);
        text.parse().or_else(|_| text.parse::<f64>().map(|f| f as u64)).unwrap_or(0)
    }

    /// A number in force; 0 if it is none.
    pub fn float(&self, name: &str) -> f64 {
        self.str(name).parse().unwrap_or(0.0)
    }

    /// A switch in force.
    pub fn bool(&self, name: &str) -> bool {
        parse_bool(&self.str(name)).is_ok_and(|on| on)
    }

    /// A time in force, from an option in seconds.
    pub fn duration(&self, name: &str) -> std::time::Duration {
        std::time::Duration::try_from_secs_f64(self.float(name)).unwrap_or_default()
    }

    /// The IP of the address in force, if there is one.
    pub fn ip(&self, name: &str) -> Option<IpAddr> {
        let addr: EntityAddr = self.str(name).parse().ok()?;
        addr.sock.map(|sock| sock.ip())
    }

    /// The source in force.
    pub fn source(&self, name: &str) -> Option<Source> {
        option(name).map(|def| self.raw(def).0)
    }

    /// The default of this kind of daemon, as written in the table.
    pub fn default_of(&self, def: &OptionDef) -> &'static str {
        if self.is_daemon && !def.daemon_default.is_empty() {
            def.daemon_default
        } else {
            def.default
        }
    }

    /// Every option with its values.
    pub fn show(&self) -> Vec<Shown> {
        options().iter().map(|def| self.show_one(def)).collect()
    }

    /// One option with its values.
    pub fn show_one(&self, def: &'static OptionDef) -> Shown {
        let values = self.values.borrow().get(def.name).cloned().unwrap_or_default();
        let (source, raw) = self.raw(def);
        Shown { name: def.name, value: self.expand(&raw, 0), source, values }
    }

    /// What the monitors set and this process does not take: options it has not, or not from them.
    pub fn ignored(&self) -> BTreeMap<String, String> {
        self.ignored.borrow().clone()
    }

    /// Every value set, as written: option to number of the source (Ceph's CONF_*) to value. With
    /// [`Config::ignored`] behind it, this is what a daemon reports to the manager
    /// (`get_config_bl` in `src/common/config.cc` at v16.2).
    pub fn set_values(&self) -> BTreeMap<String, BTreeMap<i32, String>> {
        let number = |(source, value): (&Source, &String)| (*source as i32, value.clone());
        self.values
            .borrow()
            .iter()
            .filter(|(_, values)| !values.is_empty())
            .map(|(name, values)| ((*name).to_string(), values.iter().map(number).collect()))
            .collect()
    }

    /// Every option's default (`get_defaults_bl`).
    pub fn defaults(&self) -> BTreeMap<String, String> {
        let of = |def: &'static OptionDef| (def.name.to_string(), self.default_of(def).to_string());
        options().iter().map(of).collect()
    }

    fn store(&self, name: &str, value: &str, source: Source) -> Result<(), SetError> {
        let def = option(name).ok_or(SetError::Unknown)?;
        let value = match value.contains('$') && def.takes_variables() {
            true => value.to_string(),
            false => normalize(def, value).map_err(SetError::Value)?,
        };
        self.values.borrow_mut().entry(def.name).or_default().insert(source, value);
        self.revision.set(self.revision.get() + 1);
        Ok(())
    }

    fn raw(&self, def: &'static OptionDef) -> (Source, String) {
        let values = self.values.borrow();
        match values.get(def.name).and_then(|by_source| by_source.last_key_value()) {
            Some((source, value)) => (*source, value.clone()),
            None => {
                let default = self.default_of(def);
                let text = if default.contains('$') {
                    default.to_string()
                } else {
                    normalize(def, default).unwrap_or_else(|_| default.to_string())
                };
                (Source::Default, text)
            }
        }
    }

    fn expand(&self, text: &str, depth: usize) -> String {
        // Options may name options, but not without end.
        if depth > 8 || !text.contains('$') {
            return text.to_string();
        }
        let mut out = String::new();
        let mut rest = text;
        // One that names itself ten times would be 10^8 long before it is deep.
        while let Some(at) = rest.find('$').filter(|_| out.len() < EXPANDED_MAX) {
            out.push_str(&rest[..at]);
            let after = &rest[at + 1..];
            let name_of = |text: &'_ str| -> usize {
                text.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(text.len())
            };
            let (name, next) = match after.strip_prefix('{') {
                Some(inner) => {
                    let (name, next) = inner.split_at(name_of(inner));
                    next.strip_prefix('}').map_or(("", after), |next| (name, next))
                }
                None => after.split_at(name_of(after)),
            };
            match self.variable(name, depth) {
                Some(value) => out.push_str(&value),
                None => {
                    out.push('$');
                    out.push_str(&after[..after.len() - next.len()]);
                }
            }
            rest = next;
        }
        out.push_str(rest);
        out
    }

    fn variable(&self, name: &str, depth: usize) -> Option<String> {
        Some(match name {
            "cluster" => self.cluster.clone(),
            "type" => self.kind.clone(),
            "id" | "num" => self.id.clone(),
            "name" => self.name(),
            "host" => self.host.clone(),
            "pid" => self.pid.to_string(),
            // Some number that no other of the process has.
            "cctid" => (&raw const *self as usize).to_string(),
            "home" => std::env::var("HOME").unwrap_or_default(),
            "data_dir" => {
                let data = match self.kind.as_str() {
                    "osd" => "osd_data",
                    "mon" => "mon_data",
                    "mgr" => "mgr_data",
                    _ => return None,
                };
                self.variable(data, depth)?
            }
            _ => self.expand(&self.raw(option(name)?).1, depth + 1),
        })
    }

    fn notify(&self, changed: BTreeSet<String>) {
        let observers: Vec<Observer> = self
            .observers
            .borrow()
            .iter()
            .filter(|(names, _)| {
                names.is_empty() || names.iter().any(|name| changed.contains(*name))
            })
            .map(|(_, observer)| observer.clone())
            .collect();
        for observer in observers {
            observer(self, &changed);
        }
    }
}

/// A value with the variable that stands for the channel expanded.
fn with_channel(value: &str, channel: &str) -> String {
    value.replace("${channel}", channel).replace("$channel", channel)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// `config set osd osd_max_backfills '$x'` switched the limit off, and a text that names itself ten times made every daemon
    /// expand it 10^8 times.
    #[test]
    fn variables_stand_in_texts_and_have_an_end() {
        let c = Config::new("osd", "0");
        assert!(c.set("osd_max_backfills", "$x", Source::Mon).is_err());
        assert_eq!(c.uint("osd_max_backfills"), 1);
        c.set("log_file", &"$log_file".repeat(10), Source::File).unwrap();
        assert!(c.str("log_file").len() < 2 * EXPANDED_MAX);
    }

    /// `$home` and `$data_dir` stayed as they are, so that a keyring there was not found, and names reached over digits. As
    /// ceph-conf of 16.2 expands them.
    #[test]
    fn variables_are_those_of_ceph() {
        let c = Config::new("osd", "3");
        assert_eq!(c.str("admin_socket"), "/var/run/ceph/ceph-osd.3.asok");
        let c = c.with_identity("c", "vm", 7);
        assert_eq!(c.str("admin_socket"), "/var/run/ceph/c-osd.3.asok");
        let expanded = |text: &str| {
            c.set("log_file", text, Source::File).unwrap();
            c.str("log_file")
        };
        assert_eq!(expanded("/var/log/$cluster2.log"), "/var/log/c2.log");
        assert_eq!(expanded("${cluster}9/${type}/$id2$pid.x"), "c9/osd/327.x");
        assert_eq!(expanded("$bogus $ {x} ${cluster2} ${id"), "$bogus $ {x} ${cluster2} ${id");
        assert_eq!(expanded("$home"), std::env::var("HOME").unwrap_or_default());
        c.set("osd_data", "/d/$name", Source::File).unwrap();
        assert_eq!(expanded("$data_dir/keyring"), "/d/osd.3/keyring");
        assert!(expanded("$cctid").parse::<usize>().is_ok());
    }

    /// What reads a float's option as a whole number found none, 0.
    #[test]
    fn floats_are_read_as_whole_numbers_too() {
        assert_eq!(Config::new("mon", "a").uint("mon_subscribe_interval"), 86400);
    }

    #[test]
    fn the_strongest_source_and_section_win() {
        let file = ConfFile::parse(
            "[global]\nosd_max_backfills = 2\nosd_data = /x/$name\n[osd]\nosd_max_backfills = 3\n\
             [osd.1]\nosd_max_backfills = 9\n",
        )
        .unwrap();
        let c = Config::new("osd", "0");
        assert!(c.load_file(&file).is_empty());
        assert_eq!(c.int("osd_max_backfills"), 3);
        assert_eq!(c.str("osd_data"), "/x/osd.0");
        c.set_mon_values(&BTreeMap::from([("osd_max_backfills".into(), "7".into())]));
        assert_eq!(c.int("osd_max_backfills"), 3);
        c.set_at_runtime("osd_max_backfills", "5").unwrap();
        assert_eq!(c.source("osd_max_backfills"), Some(Source::Override));
        assert_eq!(c.unset("osd_max_backfills", Source::Override), Ok(true));
        assert_eq!(c.int("osd_max_backfills"), 3);
        assert_eq!(c.set_at_runtime("bogus", "1"), Err(SetError::Unknown));
    }

    #[test]
    fn options_speak_of_channels() {
        let c = Config::new("mon", "a");
        let file = |channel: &str| c.of_channel("mon_cluster_log_file", channel);
        assert_eq!(file("cluster"), "/var/log/ceph/ceph.log");
        assert_eq!(file("audit"), "/var/log/ceph/ceph.audit.log");
        c.set("mon_cluster_log_file", "/x/$name.$channel", Source::File).unwrap();
        assert_eq!(file("audit"), "/x/mon.a.audit");
        c.set("mon_cluster_log_file", "cluster=/x/all;audit=", Source::File).unwrap();
        assert_eq!([file("cluster"), file("audit"), file("other")], ["/x/all", "", ""]);
    }

    /// Addresses are kept as Ceph writes them, types, ports and nonces too.
    #[test]
    fn addresses_have_ips() {
        let c = Config::new("osd", "0");
        assert_eq!(c.ip("public_addr"), None);
        for (text, ip) in [("10.0.0.1", "10.0.0.1"), ("v2:[::1]:6800/7", "::1")] {
            c.set("public_addr", text, Source::File).unwrap();
            assert_eq!(c.ip("public_addr"), Some(ip.parse().unwrap()), "{text}");
        }
        c.set("osd_max_backfills", "18E", Source::File).unwrap();
        assert_eq!(c.uint("osd_max_backfills"), 18_000_000_000_000_000_000);
    }

    #[test]
    fn observers_hear_changes_only() {
        let c = Config::new("osd", "0");
        let heard = Rc::new(Cell::new(0));
        let count = heard.clone();
        c.observe(&["osd_max_backfills"], Rc::new(move |_, _| count.set(count.get() + 1)));
        c.set_at_runtime("osd_max_backfills", "1").unwrap();
        assert_eq!(heard.get(), 0);
        c.set_mon_values(&BTreeMap::new());
        c.set_at_runtime("osd_max_backfills", "2").unwrap();
        assert_eq!(heard.get(), 1);
    }
}
