//! Keyrings: who has which key and which caps, as Ceph's text file.
//!
//! ```text
//! [client.admin]
//!         key = AQ...==
//!         caps mon = "allow *"
//! ```
//!
//! (src/auth/KeyRing.cc at v16.2.)

use core::fmt::Write as _;
use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::entity::AuthEntityName;

use crate::ticket::check_version;
use crate::{AuthError, CryptoKey};

/// A key and the caps that go with it. Wire: EntityAuth v2.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EntityAuth {
    /// The entity's key.
    pub key: CryptoKey,
    /// Service name to encoded caps (a string inside a blob).
    pub caps: BTreeMap<String, Bytes>,
}

impl EntityAuth {
    /// A key with caps given as texts, by service name.
    pub fn new<'a>(
        key: CryptoKey,
        caps: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> EntityAuth {
        let mut auth = EntityAuth { key, caps: BTreeMap::new() };
        caps.into_iter().for_each(|(service, text)| auth.set_caps(service, text));
        auth
    }

    /// The text of the caps at one service.
    pub fn caps_text(&self, service: &str) -> Option<String> {
        String::from_bytes(self.caps.get(service)?).ok()
    }

    /// Sets the caps at one service.
    pub fn set_caps(&mut self, service: &str, text: &str) {
        self.caps.insert(service.to_owned(), text.to_owned().to_bytes());
    }
}

/// All ones: the user id of old.
const UID_DEFAULT: u64 = u64::MAX;

impl Denc for EntityAuth {
    fn encode(&self, w: &mut Writer) {
        w.u8(2);
        w.u64(UID_DEFAULT);
        self.key.encode(w);
        self.caps.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<EntityAuth, Error> {
        let version = check_version(r, "EntityAuth version", 3)?;
        if version >= 2 {
            r.u64()?;
        }
        let auth = EntityAuth { key: r.get()?, caps: r.get()? };
        if version >= 3 {
            // A key to come, in later releases.
            r.get::<CryptoKey>()?;
        }
        Ok(auth)
    }
}

/// Entities with their keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keyring {
    /// By name.
    pub keys: BTreeMap<AuthEntityName, EntityAuth>,
}

impl Keyring {
    /// No entity.
    pub fn new() -> Keyring {
        Keyring::default()
    }

    /// The entity's key.
    pub fn key(&self, name: &AuthEntityName) -> Option<&CryptoKey> {
        self.keys.get(name).map(|auth| &auth.key)
    }

    /// Reads the text of a keyring file. Unknown settings are ignored, as Ceph does.
    pub fn parse(text: &str) -> Result<Keyring, AuthError> {
        let mut keyring = Keyring::new();
        let mut current: Option<AuthEntityName> = None;
        for (line, number) in logical_lines(text) {
            let syntax = || AuthError::Syntax { line: number };
            let line = strip_comment(&line).trim().to_owned();
            if line.is_empty() {
                continue;
            }
            if let Some(section) = line.strip_prefix('[') {
                let name = section.strip_suffix(']').ok_or_else(syntax)?.trim();
                // Sections that name no entity are skipped with what is in them.
                current = name.parse().ok();
                if let Some(name) = &current {
                    keyring.keys.entry(name.clone()).or_default();
                }
                continue;
            }
            let (field, value) = line.split_once('=').ok_or_else(syntax)?;
            let Some(auth) = current.as_ref().and_then(|name| keyring.keys.get_mut(name)) else {
                continue;
            };
            let words: Vec<&str> =
                field.split([' ', '\t', '_']).filter(|word| !word.is_empty()).collect();
            let value = unquote(value.trim()).ok_or_else(syntax)?;
            match words.as_slice() {
                ["key"] => auth.key = CryptoKey::from_base64(&value).map_err(|_| syntax())?,
                ["caps", service] => auth.set_caps(service, &value),
                _ => {}
            }
        }
        Ok(keyring)
    }

    /// Reads a keyring file, or the encoded form some files have.
    pub fn from_file(bytes: &[u8]) -> Result<Keyring, AuthError> {
        match core::str::from_utf8(bytes) {
            Ok(text)
                if text.trim_start().starts_with(['[', '#', ';']) || text.trim().is_empty() =>
            {
                Keyring::parse(text)
            }
            _ => Ok(Keyring::from_bytes(&Bytes::copy_from_slice(bytes))?),
        }
    }

    /// The text of a keyring file, as `ceph auth export` and `ceph auth get` print it.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for (name, auth) in &self.keys {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "[{name}]");
            let _ = writeln!(out, "\tkey = {}", auth.key.to_base64());
            for service in auth.caps.keys() {
                let caps = auth.caps_text(service).unwrap_or_default();
                let _ = writeln!(out, "\tcaps {service} = \"{}\"", escape(&caps));
            }
        }
        out
    }
}

impl Denc for Keyring {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        self.keys.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Keyring, Error> {
        check_version(r, "KeyRing version", 1)?;
        Ok(Keyring { keys: r.get()? })
    }
}

/// Lines with continuations (a backslash at the end) joined, and the number each begins at.
fn logical_lines(text: &str) -> Vec<(String, usize)> {
    let mut lines = Vec::new();
    let mut open: Option<(String, usize)> = None;
    for (i, line) in text.lines().enumerate() {
        let (mut whole, number) = open.take().unwrap_or_default();
        let number = if number == 0 { i + 1 } else { number };
        match line.strip_suffix('\\') {
            Some(head) => {
                whole.push_str(head);
                open = Some((whole, number));
            }
            None => {
                whole.push_str(line);
                lines.push((whole, number));
            }
        }
    }
    lines.extend(open);
    lines
}

/// Cuts what follows `#` or `;` outside of quotes.
fn strip_comment(line: &str) -> &str {
    let mut quoted = false;
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            '#' | ';' if !quoted => return &line[..at],
            _ => {}
        }
    }
    line
}

/// The value without its quotes and escapes.
fn unquote(value: &str) -> Option<String> {
    let Some(inner) = value.strip_prefix('"') else { return Some(value.to_owned()) };
    let mut out = String::new();
    let mut chars = inner.chars();
    loop {
        match chars.next()? {
            '\\' => out.push(chars.next()?),
            '"' => break,
            c => out.push(c),
        }
    }
    chars.as_str().trim().is_empty().then_some(out)
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# a comment\n[client.admin]\n\tkey = AQDEhgLDx+tbFmXJnKwUrg9KAAAQABAAAAAAAAAAAAAAAAAAAAA=\n";

    #[test]
    fn what_is_printed_reads_back() {
        let key = CryptoKey::new([3; 16], types::time::UTime { sec: 5, nsec: 6 });
        let mut keyring = Keyring::new();
        let caps = [("mon", "allow *"), ("osd", "allow command \"x y\" with a=b")];
        keyring.keys.insert("client.admin".parse().unwrap(), EntityAuth::new(key, caps));
        let text = keyring.to_text();
        assert!(text.starts_with("[client.admin]\n\tkey = "));
        assert!(text.contains("\tcaps osd = \"allow command \\\"x y\\\" with a=b\"\n"));
        assert_eq!(Keyring::parse(&text), Ok(keyring.clone()));
        assert_eq!(Keyring::from_file(&keyring.to_bytes()), Ok(keyring));
    }

    #[test]
    fn dialect() {
        let key = CryptoKey::new([3; 16], types::time::UTime { sec: 5, nsec: 6 }).to_base64();
        let text = format!(
            "; x\n[mon.]\nkey={key} # tail\n caps_mon = allow \\\n*\n[global]\nfoo = bar\n\n[osd.0]\n"
        );
        let keyring = Keyring::parse(&text).unwrap();
        assert_eq!(keyring.keys.len(), 2);
        let mon = &keyring.keys[&"mon.".parse().unwrap()];
        assert_eq!(mon.caps_text("mon").unwrap(), "allow *");
        assert!(keyring.keys[&"osd.0".parse().unwrap()].key.is_empty());
    }

    #[test]
    fn wrong_lines_are_named() {
        assert_eq!(Keyring::parse(TEXT), Err(AuthError::Syntax { line: 3 }));
        assert_eq!(Keyring::parse("[mon.]\nkey"), Err(AuthError::Syntax { line: 2 }));
        assert_eq!(Keyring::parse("[mon."), Err(AuthError::Syntax { line: 1 }));
    }
}
