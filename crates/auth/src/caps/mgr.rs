//! What one may do at the managers.
//!
//! ```text
//! grant:  allow RWX | allow service S RWX | allow module M [with k=v ...] RWX
//!       | allow command "C" [with k=v ...] | [allow] profile P [k=v ...]
//!                                            each with an optional `network N`
//! ```

use core::fmt;
use std::collections::BTreeMap;

use types::addr::EntityAddr;

use super::constraint::{Arguments, all_match, quoted, read_arguments, write_arguments};
use super::cursor::Cursor;
use super::{CapsError, Network, Rwx, parse_all};

/// A request to check.
#[derive(Debug, Clone, Copy)]
pub struct MgrRequest<'a> {
    /// Service a message belongs to.
    pub service: &'a str,
    /// Module of the command.
    pub module: &'a str,
    /// Command prefix; empty when a module checks its own arguments.
    pub command: &'a str,
    /// Arguments.
    pub arguments: &'a BTreeMap<String, String>,
    /// What is needed.
    pub wanted: Rwx,
    /// Where the peer is.
    pub addr: &'a EntityAddr,
}

/// One thing that is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MgrGrant {
    service: String,
    module: String,
    profile: String,
    command: String,
    arguments: Arguments,
    allow: Rwx,
    network: Option<Network>,
}

/// All that is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MgrCap {
    /// As it was written.
    pub text: String,
    /// The grants.
    pub grants: Vec<MgrGrant>,
}

impl MgrGrant {
    fn read(c: &mut Cursor<'_>) -> Option<MgrGrant> {
        let mut grant = c
            .attempt(|c| {
                MgrGrant::allow_then(c)?;
                Some(MgrGrant { allow: Rwx::read(c)?, ..MgrGrant::default() })
            })
            .or_else(|| c.attempt(MgrGrant::read_profile))
            .or_else(|| c.attempt(MgrGrant::read_scoped))?;
        grant.network = c.network();
        Some(grant)
    }

    fn allow_then(c: &mut Cursor<'_>) -> Option<()> {
        (c.literal("allow") && c.spaces()).then_some(())
    }

    fn read_profile(c: &mut Cursor<'_>) -> Option<MgrGrant> {
        c.attempt(MgrGrant::allow_then);
        let found = c.literal("profile") && c.equals_or_spaces();
        let profile = if found { c.word()? } else { return None };
        let arguments = c.attempt(|c| if c.spaces() { read_arguments(c) } else { None });
        // Only the profiles that exist parse, and only rbd's take arguments.
        let arguments = arguments.unwrap_or_default();
        let known = match profile.as_str() {
            "rbd" | "rbd-read-only" => arguments.keys().all(|k| k == "pool" || k == "namespace"),
            "read-only" | "read-write" | "crash" | "osd" | "mds" | "rgw" => true,
            _ => false,
        };
        known.then(|| MgrGrant { profile, arguments, ..MgrGrant::default() })
    }

    fn read_scoped(c: &mut Cursor<'_>) -> Option<MgrGrant> {
        MgrGrant::allow_then(c)?;
        let scope = ["service", "module", "command"].into_iter().find(|word| c.literal(word))?;
        let name = if c.equals_or_spaces() {
            c.word()?
        } else {
            return None;
        };
        let mut grant = MgrGrant::default();
        if scope != "service" {
            let arguments = c.attempt(|c| {
                let with = c.keyword("with") && c.spaces();
                if with { read_arguments(c) } else { None }
            });
            grant.arguments = arguments.unwrap_or_default();
        }
        if scope != "command" {
            grant.allow = if c.spaces() {
                Rwx::read(c)?
            } else {
                return None;
            };
        }
        match scope {
            "service" => grant.service = name,
            "module" => grant.module = name,
            _ => grant.command = name,
        }
        Some(grant)
    }

    fn is_allow_all(&self) -> bool {
        self.allow == Rwx::ANY
            && self.service.is_empty()
            && self.module.is_empty()
            && self.command.is_empty()
    }

    fn allowed(&self, req: &MgrRequest<'_>) -> Rwx {
        let module = |grant: &MgrGrant, name: &str, allow: Rwx| {
            // Arguments are the module's own affair once a command is known.
            let fits = name == req.module
                && (!req.command.is_empty() || all_match(&grant.arguments, req.arguments));
            if fits { allow } else { Rwx::NONE }
        };
        if !self.profile.is_empty() {
            return match self.profile.as_str() {
                "read-only" => Rwx::R,
                "read-write" => Rwx::R.or(Rwx::W),
                "crash" if req.command == "crash post" => Rwx::ANY,
                "rbd" => module(self, "rbd_support", Rwx::R.or(Rwx::W)),
                "rbd-read-only" => module(self, "rbd_support", Rwx::R),
                _ => Rwx::NONE,
            };
        }
        if !self.service.is_empty() {
            return if self.service == req.service { self.allow } else { Rwx::NONE };
        }
        if !self.module.is_empty() {
            return module(self, &self.module, self.allow);
        }
        if !self.command.is_empty() {
            let fits = self.command == req.command && all_match(&self.arguments, req.arguments);
            return if fits { Rwx::ANY } else { Rwx::NONE };
        }
        self.allow
    }
}

impl MgrCap {
    /// Reads a capability; an empty text allows nothing.
    pub fn parse(text: &str) -> Result<MgrCap, CapsError> {
        if text.is_empty() {
            return Ok(MgrCap::default());
        }
        let grants = parse_all("mgr", text, MgrGrant::read)?;
        Ok(MgrCap { text: text.to_owned(), grants })
    }

    /// Everything.
    pub fn allow_all() -> MgrCap {
        let grant = MgrGrant { allow: Rwx::ANY, ..MgrGrant::default() };
        MgrCap { text: "allow *".to_owned(), grants: vec![grant] }
    }

    /// Whether everything is allowed from anywhere.
    pub fn is_allow_all(&self) -> bool {
        self.grants.iter().any(MgrGrant::is_allow_all)
    }

    /// Whether the request is allowed. Rights of several grants add up.
    pub fn is_capable(&self, req: &MgrRequest<'_>) -> bool {
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

impl fmt::Display for MgrGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.profile.is_empty() {
            f.write_str("allow")?;
        } else {
            write!(f, "profile {}", quoted(&self.profile))?;
        }
        let scopes =
            [("service", &self.service), ("module", &self.module), ("command", &self.command)];
        for (scope, name) in scopes.into_iter().filter(|(_, name)| !name.is_empty()) {
            write!(f, " {scope} {}", quoted(name))?;
        }
        if !self.arguments.is_empty() {
            f.write_str(if self.profile.is_empty() { " with" } else { "" })?;
            write_arguments(f, &self.arguments)?;
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
