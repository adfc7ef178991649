//! What one may do at the OSDs.
//!
//! ```text
//! grant:  allow SPEC MATCH | allow MATCH SPEC | profile P [pool=X [namespace=Y]]
//!                                             each with an optional `network N`
//! SPEC:   * | all | [r][w][x] [class-read] [class-write] | class NAME [METHOD]
//! MATCH:  [namespace=N] tag APP KEY=VALUE | [pool=X] [namespace=N[*]] [object_prefix P]
//! ```

use std::collections::BTreeMap;

use types::addr::EntityAddr;

use super::cursor::Cursor;
use super::{CapsError, Network, parse_all};

/// A pool's applications with their settings (`application_metadata` of pg_pool_t).
pub type AppMetadata = BTreeMap<String, BTreeMap<String, String>>;

/// A class method that an operation calls.
#[derive(Debug, Clone, Copy)]
pub struct ClassCall<'a> {
    /// Name of the class.
    pub class: &'a str,
    /// Name of the method.
    pub method: &'a str,
    /// Whether the method reads.
    pub read: bool,
    /// Whether the method writes.
    pub write: bool,
    /// Whether `x` suffices (`osd_class_default_list`).
    pub allow_listed: bool,
}

/// An operation to check.
#[derive(Debug, Clone, Copy)]
pub struct OsdRequest<'a> {
    /// Name of the pool.
    pub pool: &'a str,
    /// Namespace of the object.
    pub namespace: &'a [u8],
    /// The pool's applications.
    pub app_metadata: &'a AppMetadata,
    /// The object's locator key, or its name if it has none.
    pub object: &'a [u8],
    /// Whether it reads.
    pub read: bool,
    /// Whether it writes.
    pub write: bool,
    /// Class methods it calls.
    pub classes: &'a [ClassCall<'a>],
    /// Where the client is.
    pub addr: &'a EntityAddr,
}

const R: u8 = 1 << 1;
const W: u8 = 1 << 2;
const CLASS_R: u8 = 1 << 3;
const CLASS_W: u8 = 1 << 4;
const ANY: u8 = 0xff;

/// Rights.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OsdSpec {
    bits: u8,
    /// Methods of this class, whether or not `x` would do.
    class: Option<(String, Option<String>)>,
}

/// Objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OsdMatch {
    pool: Option<String>,
    namespace: Option<String>,
    /// Application, key, value; `*` for any key or value.
    tag: Option<(String, String, String)>,
    prefix: String,
}

/// One thing that is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OsdGrant {
    /// Rights and objects; several if a profile stands for them.
    rights: Vec<(OsdSpec, OsdMatch)>,
    network: Option<Network>,
}

/// All that is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OsdCap {
    /// The grants.
    pub grants: Vec<OsdGrant>,
}

impl OsdSpec {
    const fn of(bits: u8) -> OsdSpec {
        OsdSpec { bits, class: None }
    }

    fn method(class: &str, method: &str) -> OsdSpec {
        OsdSpec { bits: 0, class: Some((class.to_owned(), Some(method.to_owned()))) }
    }

    fn read(c: &mut Cursor<'_>) -> Option<OsdSpec> {
        if c.attempt(|c| (c.spaces() && c.wildcard()).then_some(())).is_some() {
            return Some(OsdSpec::of(ANY));
        }
        let rwx = c.attempt(|c| if c.spaces() { c.rwx() } else { None });
        let class_read = c.keyword("class-read");
        let class_write = c.keyword("class-write");
        let [r, w, x] = rwx.unwrap_or_default();
        let pick = |on: bool, bits: u8| if on { bits } else { 0 };
        let bits = pick(r, R)
            | pick(w, W)
            | pick(x, CLASS_R | CLASS_W)
            | pick(class_read, CLASS_R)
            | pick(class_write, CLASS_W);
        if bits != 0 {
            return Some(OsdSpec::of(bits));
        }
        c.attempt(|c| {
            let found = c.keyword("class") && c.spaces();
            let class = if found { c.word()? } else { return None };
            let method = c.attempt(|c| if c.spaces() { c.word() } else { None });
            Some(OsdSpec { bits: 0, class: Some((class, method)) })
        })
    }

    /// Marks the class calls this allows.
    fn mark_classes(&self, calls: &[ClassCall<'_>], allowed: &mut [bool]) {
        for (call, allowed) in calls.iter().zip(allowed) {
            let named = self.class.as_ref().is_some_and(|(class, method)| {
                class == call.class && method.as_ref().is_none_or(|m| m == call.method)
            });
            let by_rights = call.allow_listed
                && (!call.read || self.bits & CLASS_R != 0)
                && (!call.write || self.bits & CLASS_W != 0);
            *allowed |= named || by_rights;
        }
    }
}

impl OsdMatch {
    fn read(c: &mut Cursor<'_>) -> OsdMatch {
        c.attempt(|c| {
            let namespace = c.attempt(OsdMatch::read_namespace);
            let tag = OsdMatch::read_tag(c)?;
            Some(OsdMatch { namespace, tag: Some(tag), ..OsdMatch::default() })
        })
        .unwrap_or_else(|| {
            let pool = c.attempt(OsdMatch::read_pool);
            let namespace = c.attempt(OsdMatch::read_namespace);
            let prefix = c.attempt(|c| {
                let found = c.keyword("object_prefix") && c.spaces();
                if found { c.word() } else { None }
            });
            OsdMatch { pool, namespace, tag: None, prefix: prefix.unwrap_or_default() }
        })
    }

    fn read_pool(c: &mut Cursor<'_>) -> Option<String> {
        let found = c.keyword("pool") && c.equals_or_spaces();
        if found { c.word() } else { None }
    }

    fn read_namespace(c: &mut Cursor<'_>) -> Option<String> {
        let found = c.keyword("namespace") && c.equals_or_spaces();
        let mut namespace = if found {
            c.word_or_empty()?
        } else {
            return None;
        };
        if c.literal("*") {
            namespace.push('*');
        }
        Some(namespace)
    }

    fn read_tag(c: &mut Cursor<'_>) -> Option<(String, String, String)> {
        let star_or_word = |c: &mut Cursor<'_>| {
            if c.wildcard() { Some("*".to_owned()) } else { c.word() }
        };
        if !(c.keyword("tag") && c.spaces()) {
            return None;
        }
        let app = c.word()?;
        let key = if c.spaces() {
            star_or_word(c)?
        } else {
            return None;
        };
        c.spaces();
        if !c.literal("=") {
            return None;
        }
        c.spaces();
        Some((app, key, star_or_word(c)?))
    }

    fn matches(&self, req: &OsdRequest<'_>) -> bool {
        self.pool.as_ref().is_none_or(|pool| pool == req.pool)
            && self.namespace.as_ref().is_none_or(|namespace| {
                let starts = |prefix: &str| req.namespace.starts_with(prefix.as_bytes());
                namespace.as_bytes() == req.namespace
                    || namespace.strip_suffix('*').is_some_and(starts)
            })
            && (self.tag.is_none() || self.names_app_of(req.app_metadata))
            && req.object.starts_with(self.prefix.as_bytes())
    }

    /// Whether it has a tag, and a pool with these applications that tag.
    fn names_app_of(&self, apps: &AppMetadata) -> bool {
        let Some((app, key, value)) = &self.tag else { return false };
        let Some(settings) = apps.get(app) else { return false };
        match (key.as_str(), value.as_str()) {
            ("*", "*") => true,
            ("*", value) => settings.values().any(|v| v == value),
            (key, "*") => settings.contains_key(key),
            (key, value) => settings.get(key).is_some_and(|v| v == value),
        }
    }

    fn is_all(&self) -> bool {
        *self == OsdMatch::default()
    }
}

impl OsdGrant {
    fn read(c: &mut Cursor<'_>) -> Option<OsdGrant> {
        let rights = c
            .attempt(|c| {
                let spec = if c.literal("allow") {
                    OsdSpec::read(c)?
                } else {
                    return None;
                };
                Some(vec![(spec, OsdMatch::read(c))])
            })
            .or_else(|| {
                c.attempt(|c| {
                    let found = c.literal("allow").then(|| OsdMatch::read(c))?;
                    Some(vec![(OsdSpec::read(c)?, found)])
                })
            })
            .or_else(|| c.attempt(OsdGrant::read_profile))?;
        Some(OsdGrant { rights, network: c.network() })
    }

    fn read_profile(c: &mut Cursor<'_>) -> Option<Vec<(OsdSpec, OsdMatch)>> {
        let found = c.literal("profile") && c.equals_or_spaces();
        let name = if found { c.word()? } else { return None };
        let pool = c.attempt(OsdMatch::read_pool);
        let namespace = c.attempt(OsdMatch::read_namespace);
        let here = OsdMatch { pool, namespace, ..OsdMatch::default() };
        let with_prefix =
            |m: &OsdMatch, prefix: &str| OsdMatch { prefix: prefix.to_owned(), ..m.clone() };
        // Clients confined to a namespace read the pool's configuration in the default one.
        let pool_info = OsdMatch {
            pool: here.pool.clone(),
            namespace: Some(String::new()),
            prefix: "rbd_info".to_owned(),
            ..OsdMatch::default()
        };
        let metadata_list = (OsdSpec::method("rbd", "metadata_list"), pool_info);
        Some(match name.as_str() {
            "read-only" => vec![(OsdSpec::of(R), here)],
            "read-write" => vec![(OsdSpec::of(R | W), here)],
            "rbd" => vec![
                (OsdSpec::of(R), with_prefix(&OsdMatch::default(), "rbd_info")),
                (OsdSpec::of(CLASS_R), with_prefix(&OsdMatch::default(), "rbd_children")),
                (OsdSpec::of(CLASS_R), with_prefix(&OsdMatch::default(), "rbd_mirroring")),
                metadata_list,
                (OsdSpec::of(R | W | CLASS_R | CLASS_W), here),
            ],
            "rbd-read-only" => vec![
                metadata_list,
                (OsdSpec::of(R | CLASS_R), here.clone()),
                (OsdSpec::method("rbd", "child_attach"), with_prefix(&here, "rbd_header.")),
                (OsdSpec::method("rbd", "child_detach"), with_prefix(&here, "rbd_header.")),
            ],
            // Ceph takes any name; one it does not know grants nothing.
            _ => Vec::new(),
        })
    }

    /// Whether one of the grant's rights carries the whole request. Class calls may be allowed one
    /// by one by several rights: `classes` remembers.
    fn allows(&self, req: &OsdRequest<'_>, classes: &mut [bool]) -> bool {
        if self.network.as_ref().is_some_and(|net| !net.contains(req.addr)) {
            return false;
        }
        self.rights.iter().any(|(spec, objects)| {
            if !objects.matches(req)
                || (req.read && spec.bits & R == 0)
                || (req.write && spec.bits & W == 0)
            {
                return false;
            }
            if req.classes.is_empty() || spec.bits == ANY {
                return true;
            }
            spec.mark_classes(req.classes, classes);
            classes.iter().all(|allowed| *allowed)
        })
    }
}

impl OsdCap {
    /// Reads a capability; an empty text allows nothing.
    pub fn parse(text: &str) -> Result<OsdCap, CapsError> {
        if text.is_empty() {
            return Ok(OsdCap::default());
        }
        Ok(OsdCap { grants: parse_all("osd", text, OsdGrant::read)? })
    }

    /// Everything (method none; other daemons).
    pub fn allow_all() -> OsdCap {
        let rights = vec![(OsdSpec::of(ANY), OsdMatch::default())];
        OsdCap { grants: vec![OsdGrant { rights, network: None }] }
    }

    /// Whether everything is allowed.
    pub fn is_allow_all(&self) -> bool {
        self.grants
            .iter()
            .flat_map(|grant| &grant.rights)
            .any(|(spec, objects)| spec.bits == ANY && objects.is_all())
    }

    /// Whether it has to do with writing to a pool, be it to some of its objects only: such a client
    /// takes snapshots, which are of no namespace (`is_osd_writable` in `src/mon/OSDMonitor.cc`; the
    /// tag is ours).
    pub fn writes_to_pool(&self, pool: &str, apps: &AppMetadata, addr: &EntityAddr) -> bool {
        let reaches = |grant: &&OsdGrant| grant.network.as_ref().is_none_or(|n| n.contains(addr));
        self.grants.iter().filter(reaches).flat_map(|grant| &grant.rights).any(|(spec, objects)| {
            let is_it = || objects.pool.as_deref() == Some(pool) || objects.names_app_of(apps);
            spec.bits & W != 0 && (objects.is_all() || is_it())
        })
    }

    /// Whether the operation is allowed.
    pub fn is_capable(&self, req: &OsdRequest<'_>) -> bool {
        let mut classes = vec![false; req.classes.len()];
        self.grants.iter().any(|grant| grant.allows(req, &mut classes))
    }
}
