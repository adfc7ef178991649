//! What one may do at the monitors.
//!
//! ```text
//! grant:  allow RWX [fsname=FS] | allow service S RWX | allow command "C" [with k=v ...]
//!       | [allow] profile P [network N]      each with an optional `network N`
//! ```

use core::fmt;
use std::collections::BTreeMap;

use denc::{Denc, Error, Reader, Writer};
use types::addr::EntityAddr;
use types::entity::AuthEntityName;

use super::constraint::{Arguments, all_match, quoted, read_arguments, write_arguments};
use super::cursor::Cursor;
use super::mon_profiles::profile_grants;
use super::{CapsError, Network, Rwx, parse_all};

/// Which daemon asks: a profile means something else at the mgr.
#[derive(Debug, Clone, Copy)]
pub struct MonRequest<'a> {
    /// Entity type of the daemon that checks ([`types::entity::MON`] or `MGR`).
    pub daemon: u8,
    /// Who asks.
    pub name: &'a AuthEntityName,
    /// Module of the command, or the service a message belongs to.
    pub service: &'a str,
    /// Command prefix; empty for messages.
    pub command: &'a str,
    /// Arguments of the command.
    pub arguments: &'a BTreeMap<String, String>,
    /// What is needed.
    pub wanted: Rwx,
    /// Where the peer is.
    pub addr: &'a EntityAddr,
}

/// One thing that is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MonGrant {
    /// Only for this service; empty for all.
    pub service: String,
    /// The rights of this profile instead.
    pub profile: String,
    /// Only this command; empty for all.
    pub command: String,
    /// What the command's arguments must look like.
    pub arguments: Arguments,
    /// The rights.
    pub allow: Rwx,
    /// Only for this file system.
    pub fs_name: Option<String>,
    /// Only from there.
    pub network: Option<Network>,
}

/// All that is allowed. Wire: MonCap v4 (its text).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MonCap {
    /// As it was written.
    pub text: String,
    /// The grants.
    pub grants: Vec<MonGrant>,
}

impl MonCap {
    /// Names of the file systems that may be known; `None`: all.
    pub fn fs_names(&self) -> Option<Vec<&str>> {
        let names: Option<Vec<&str>> = self.grants.iter().map(|g| g.fs_name.as_deref()).collect();
        names.filter(|names| !names.is_empty())
    }
}

impl MonGrant {
    fn is_allow_all(&self) -> bool {
        self.allow == Rwx::ANY
            && self.service.is_empty()
            && self.profile.is_empty()
            && self.command.is_empty()
            && self.fs_name.is_none()
    }

    /// What this grant allows of a request.
    fn allowed(&self, req: &MonRequest<'_>) -> Rwx {
        if !self.profile.is_empty() {
            return profile_grants(&self.profile, req.daemon, req.name)
                .iter()
                .fold(Rwx::NONE, |sum, grant| sum.or(grant.allowed(req)));
        }
        if !self.service.is_empty() {
            return if self.service == req.service { self.allow } else { Rwx::NONE };
        }
        if !self.command.is_empty() {
            let fits = self.command == req.command && all_match(&self.arguments, req.arguments);
            return if fits { Rwx::RWX } else { Rwx::NONE };
        }
        // Blanket rights do not reach the config-key store; `*` was checked before.
        if req.service == "config-key" { Rwx::NONE } else { self.allow }
    }

    fn read(c: &mut Cursor<'_>) -> Option<MonGrant> {
        c.attempt(MonGrant::read_rwx)
            .or_else(|| c.attempt(MonGrant::read_profile))
            .or_else(|| c.attempt(MonGrant::read_service))
            .or_else(|| c.attempt(MonGrant::read_command))
    }

    fn allow_then(c: &mut Cursor<'_>) -> Option<()> {
        (c.literal("allow") && c.spaces()).then_some(())
    }

    fn read_rwx(c: &mut Cursor<'_>) -> Option<MonGrant> {
        MonGrant::allow_then(c)?;
        let allow = Rwx::read(c)?;
        let fs_name = c.attempt(|c| {
            let found = c.keyword("fsname") && c.equals_or_spaces();
            if found { c.word() } else { None }
        });
        Some(MonGrant { allow, fs_name, network: c.network(), ..MonGrant::default() })
    }

    fn read_profile(c: &mut Cursor<'_>) -> Option<MonGrant> {
        c.attempt(MonGrant::allow_then);
        let found = c.literal("profile") && c.equals_or_spaces();
        let profile = if found { c.word()? } else { return None };
        Some(MonGrant { profile, network: c.network(), ..MonGrant::default() })
    }

    fn read_service(c: &mut Cursor<'_>) -> Option<MonGrant> {
        MonGrant::allow_then(c)?;
        let found = c.literal("service") && c.equals_or_spaces();
        let service = if found { c.word()? } else { return None };
        let allow = if c.spaces() {
            Rwx::read(c)?
        } else {
            return None;
        };
        Some(MonGrant { service, allow, network: c.network(), ..MonGrant::default() })
    }

    fn read_command(c: &mut Cursor<'_>) -> Option<MonGrant> {
        MonGrant::allow_then(c)?;
        let found = c.literal("command") && c.equals_or_spaces();
        let command = if found { c.word()? } else { return None };
        let arguments = c
            .attempt(|c| {
                let with = c.keyword("with") && c.spaces();
                if with { read_arguments(c) } else { None }
            })
            .unwrap_or_default();
        Some(MonGrant { command, arguments, network: c.network(), ..MonGrant::default() })
    }
}

impl MonCap {
    /// Reads a capability; an empty text allows nothing.
    pub fn parse(text: &str) -> Result<MonCap, CapsError> {
        if text.is_empty() {
            return Ok(MonCap::default());
        }
        let grants = parse_all("mon", text, MonGrant::read)?;
        Ok(MonCap { text: text.to_owned(), grants })
    }

    /// Everything.
    pub fn allow_all() -> MonCap {
        let grant = MonGrant { allow: Rwx::ANY, ..MonGrant::default() };
        MonCap { text: "allow *".to_owned(), grants: vec![grant] }
    }

    /// Whether everything is allowed from anywhere.
    pub fn is_allow_all(&self) -> bool {
        self.grants.iter().any(MonGrant::is_allow_all)
    }

    /// Whether the request is allowed. Rights of several grants add up.
    pub fn is_capable(&self, req: &MonRequest<'_>) -> bool {
        let mut sum = Rwx::NONE;
        self.grants
            .iter()
            .filter(|grant| grant.network.as_ref().is_none_or(|net| net.contains(req.addr)))
            .any(|grant| {
                sum = sum.or(grant.allowed(req));
                grant.is_allow_all() || sum.has(req.wanted)
            })
    }
}

impl Denc for MonCap {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 4, |w| self.text.encode(w));
    }
    fn decode(r: &mut Reader<'_>) -> Result<MonCap, Error> {
        let text: String = r.envelope("MonCap", 4, 4, |r, _| r.get())?;
        // A text that does not parse allows nothing, but stays.
        let grants = MonCap::parse(&text).map(|cap| cap.grants).unwrap_or_default();
        Ok(MonCap { text, grants })
    }
}

impl fmt::Display for MonGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("allow")?;
        if !self.service.is_empty() {
            write!(f, " service {}", quoted(&self.service))?;
        }
        if !self.command.is_empty() {
            write!(f, " command {}", quoted(&self.command))?;
            if !self.arguments.is_empty() {
                f.write_str(" with")?;
                write_arguments(f, &self.arguments)?;
            }
        }
        if !self.profile.is_empty() {
            write!(f, " profile {}", quoted(&self.profile))?;
        }
        if self.allow != Rwx::NONE {
            write!(f, " {}", self.allow)?;
        }
        if let Some(network) = &self.network {
            write!(f, " network {}", network.text)?;
        }
        Ok(())
    }
}

impl fmt::Display for MonCap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, grant) in self.grants.iter().enumerate() {
            write!(f, "{}{grant}", if i > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}
