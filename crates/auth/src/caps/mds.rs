//! What one may do at the metadata servers: the grammar, so that monitors can refuse what a
//! metadata server would not understand.
//!
//! ```text
//! grant:  allow [* | all | r[w][p][s]] [path=P] [fsname=F] [root_squash] [uid=N gids=N,N...]
//!                                                             [network N]
//! ```

use super::cursor::Cursor;
use super::{CapsError, Network, parse_all};

/// One thing that is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MdsGrant {
    /// `*`, or letters of `rwps` (a bare `allow` is `rw`).
    pub spec: String,
    /// Below this directory only.
    pub path: Option<String>,
    /// In this file system only.
    pub fs_name: Option<String>,
    /// Root may not write.
    pub root_squash: bool,
    /// As this user only.
    pub uid: Option<u64>,
    /// With these groups.
    pub gids: Vec<u64>,
    /// From there only.
    pub network: Option<Network>,
}

/// All that is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MdsCap {
    /// The grants.
    pub grants: Vec<MdsGrant>,
}

impl MdsGrant {
    fn read(c: &mut Cursor<'_>) -> Option<MdsGrant> {
        if !c.literal("allow") {
            return None;
        }
        let spec = c.attempt(|c| {
            let found = c.spaces();
            if found && c.wildcard() {
                return Some("*".to_owned());
            }
            let letters: String =
                ["r", "w", "p", "s"].into_iter().filter(|l| found && c.literal(l)).collect();
            let ends = c.rest().chars().next().is_none_or(|next| !next.is_ascii_alphanumeric());
            (letters.starts_with('r') && ends).then_some(letters)
        });
        let value = |c: &mut Cursor<'_>, key: &str| {
            c.attempt(|c| {
                let found = c.keyword(key) && c.literal("=");
                if found { c.word() } else { None }
            })
        };
        let mut grant =
            MdsGrant { spec: spec.unwrap_or_else(|| "rw".to_owned()), ..MdsGrant::default() };
        grant.fs_name = value(c, "fsname");
        grant.path = value(c, "path");
        grant.fs_name = grant.fs_name.or_else(|| value(c, "fsname"));
        grant.root_squash = c.keyword("root_squash");
        let number = |c: &mut Cursor<'_>, key: &str| {
            c.attempt(|c| value(c, key).and_then(|text| text.parse().ok()))
        };
        grant.uid = number(c, "uid");
        grant.gids.extend(number(c, "gids"));
        while let Some(gid) = c.attempt(|c| {
            let more = !grant.gids.is_empty() && c.literal(",");
            if more { c.word().and_then(|text| text.parse().ok()) } else { None }
        }) {
            grant.gids.push(gid);
        }
        grant.network = c.network();
        Some(grant)
    }
}

impl MdsCap {
    /// Reads a capability; an empty text allows nothing.
    pub fn parse(text: &str) -> Result<MdsCap, CapsError> {
        if text.is_empty() {
            return Ok(MdsCap::default());
        }
        Ok(MdsCap { grants: parse_all("mds", text, MdsGrant::read)? })
    }
}
