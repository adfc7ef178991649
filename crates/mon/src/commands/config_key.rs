//! `config-key ...`: a small store of keys and values for operators and manager modules
//! (`src/mon/ConfigKeyService.cc` at v16.2).

use bytes::Bytes;
use types::Errno;

use super::cmd::{Cmd, CmdResult, fail, say, unhandled};
use crate::core::MonCore;
use crate::layout;

impl MonCore {
    pub(crate) fn cmd_config_key(&mut self, cmd: &Cmd) -> CmdResult {
        match cmd.prefix.as_str() {
            "config-key get" => {
                let key = cmd.string("key")?;
                match self.config_key_get(&key)? {
                    Some(value) => Ok(command::CommandReply::data(value)),
                    None => fail(Errno::ENOENT, ""),
                }
            }
            "config-key set" | "config-key put" => self.config_key_set(cmd),
            "config-key rm" | "config-key del" => {
                let key = cmd.string("key")?;
                if self.config_key_get(&key)?.is_none() {
                    return say("key deleted");
                }
                self.batch().delete(layout::key(layout::CONFIG_KEY, &key));
                self.overlay.insert(key.clone(), None);
                self.kv_changed(&key);
                say("key deleted")
            }
            "config-key exists" => {
                let key = cmd.string("key")?;
                match self.config_key_get(&key)? {
                    Some(_) => say(format!("key '{key}' exists")),
                    None => fail(Errno::ENOENT, format!("key '{key}' doesn't exist")),
                }
            }
            "config-key ls" | "config-key list" => {
                let keys = self.config_keys("")?;
                Ok(cmd.structured(|f| {
                    f.array("keys", |f| {
                        for (key, _) in &keys {
                            f.dump_string("key", key);
                        }
                    });
                }))
            }
            "config-key dump" => {
                let prefix = cmd.map.opt_string("key")?.unwrap_or_default();
                let keys = self.config_keys(&prefix)?;
                Ok(cmd.structured(|f| {
                    f.object("config-key store", |f| {
                        for (key, value) in &keys {
                            match printable(value) {
                                Some(text) => f.dump_string(key, text),
                                None => f.dump_string(
                                    key,
                                    format!("<<< binary blob of length {} >>>", value.len()),
                                ),
                            }
                        }
                    });
                }))
            }
            _ => unhandled(),
        }
    }

    fn config_key_set(&mut self, cmd: &Cmd) -> CmdResult {
        let key = cmd.string("key")?;
        let value = match cmd.map.opt_string("val")? {
            Some(value) => Bytes::from(value),
            None => cmd.input.clone(),
        };
        let max = self.conf.uint("mon_config_key_max_entry_size");
        if value.len() as u64 > max {
            return fail(
                Errno::EFBIG,
                format!(
                    "error: entry size limited to {max} bytes. Use 'mon config key max entry size' to manually adjust"
                ),
            );
        }
        self.config_key_put(&key, value);
        say(format!("set {key}"))
    }

    /// Sets a key in the pending batch.
    pub(crate) fn config_key_put(&mut self, key: &str, value: Bytes) {
        self.batch().put(layout::key(layout::CONFIG_KEY, key), value.clone());
        self.overlay.insert(key.to_string(), Some(value));
        self.kv_changed(key);
    }

    /// Removes a key in the pending batch.
    pub(crate) fn config_key_remove(&mut self, key: &str) {
        self.batch().delete(layout::key(layout::CONFIG_KEY, key));
        self.overlay.insert(key.to_string(), None);
        self.kv_changed(key);
    }

    /// A key's value, changes under way included.
    pub(crate) fn config_key_get(&self, key: &str) -> Result<Option<Bytes>, store::KvError> {
        match self.overlay.get(key) {
            Some(value) => Ok(value.clone()),
            None => layout::get(&*self.kv, layout::CONFIG_KEY, key),
        }
    }

    /// All keys that begin so, with values, changes under way included.
    pub(crate) fn config_keys(&self, prefix: &str) -> Result<Vec<(String, Bytes)>, store::KvError> {
        let start = layout::key(layout::CONFIG_KEY, prefix);
        let end = layout::end_of(layout::CONFIG_KEY);
        let skip = layout::CONFIG_KEY.len() + 1;
        let mut keys: std::collections::BTreeMap<String, Bytes> = self
            .kv
            .range(&start, &end, 1_000_000)?
            .into_iter()
            .map(|(k, v)| (String::from_utf8_lossy(&k[skip..]).into_owned(), v))
            .collect();
        for (key, value) in &self.overlay {
            match value {
                Some(value) => keys.insert(key.clone(), value.clone()),
                None => keys.remove(key),
            };
        }
        keys.retain(|key, _| key.starts_with(prefix));
        Ok(keys.into_iter().collect())
    }
}

fn printable(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?;
    let binary = text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t' | '\r'));
    (!binary).then_some(text)
}
