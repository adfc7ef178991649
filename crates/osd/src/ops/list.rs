//! Ops on a whole PG: listings with cursors, namespaces and filters (`do_pg_op` in
//! `src/osd/PrimaryLogPG.cc`).

use std::collections::BTreeSet;
use std::rc::Rc;

use bstr::BString;
use bytes::Bytes;
use cls::PglsFilter;
use denc::{Denc, Reader};
use types::bufferlist::BufferList;
use types::osd::ops;
use types::osd::scrub_errors::{ScrubLsArg, ScrubLsResult};
use types::osd::{NlsEntry, OsdOp, PgLsResponse, PgNlsResponse};
use types::{Errno, GhObject, HObject, NOSNAP};

use super::execute::{Reply, Request, Versions};
use super::pg::Pg;
use crate::pg::scrub::results;

/// The namespace that stands for all of them.
const ALL_NAMESPACES: &[u8] = b"\x01";

/// Runs a vector of PG ops. It changes nothing and needs no lock.
pub async fn execute_pg_op(pg: &Rc<dyn Pg>, request: &Request) -> Reply {
    let (mut result, mut held) = (0, 0);
    let mut done = Vec::with_capacity(request.ops.len());
    for op in &request.ops {
        let mut op = op.clone();
        if result >= 0 {
            result = match run(pg, request, &mut op).await {
                Ok(value) => value,
                Err(errno) => errno.result(),
            };
            held += op.outdata.len() as u64;
            if held > pg.limits().held {
                op.outdata = BufferList::new();
                result = Errno::EFBIG.result();
            }
        }
        op.indata = Bytes::new();
        done.push(op);
    }
    let versions = Versions::Write { replay: pg.last_update(), user: pg.last_user_version() };
    Reply { result, ops: done, versions, executed: true }
}

async fn run(pg: &Rc<dyn Pg>, request: &Request, op: &mut OsdOp) -> Result<i32, Errno> {
    let input = op.indata.clone();
    let mut r = Reader::new(&input);
    match op.code {
        ops::PGNLS | ops::PGNLS_FILTER | ops::PGLS | ops::PGLS_FILTER => {
            let filter = match op.code {
                ops::PGNLS_FILTER | ops::PGLS_FILTER => Some(filter(&mut r)?),
                _ => None,
            };
            if request.oid.snap != NOSNAP {
                return Err(Errno::EINVAL);
            }
            let cursor: HObject = r.get().map_err(|_| Errno::EINVAL)?;
            let max = op.args.pgls().count.min(pg.limits().pgls);
            let named = matches!(op.code, ops::PGNLS | ops::PGNLS_FILTER);
            let page = list(pg, request, cursor, max as usize, named, filter).await?;
            let is_last = page.is_last;
            op.outdata.push(page.encode(named));
            Ok(i32::from(is_last))
        }
        // Pools of ours have no hit sets.
        ops::PG_HITSET_LS => {
            op.outdata.push(Bytes::from_static(&[0; 4]));
            Ok(0)
        }
        ops::PG_HITSET_GET => Err(Errno::ENOENT),
        ops::SCRUBLS => scrub_list(pg, &mut r, op).await,
        _ => Err(Errno::EINVAL),
    }
}

/// A page of a listing.
struct Page {
    handle: HObject,
    entries: Vec<HObject>,
    is_last: bool,
}

impl Page {
    /// The output: with namespaces (pgnls), or without (pgls).
    fn encode(self, named: bool) -> Bytes {
        let Page { handle, entries, .. } = self;
        let entries = entries.into_iter();
        if named {
            let entry = |oid: HObject| NlsEntry {
                namespace: oid.namespace,
                name: oid.name,
                locator: oid.key,
            };
            PgNlsResponse { handle, entries: entries.map(entry).collect() }.to_bytes()
        } else {
            let entries = entries.map(|oid| (oid.name, oid.key)).collect();
            PgLsResponse { handle, entries }.to_bytes()
        }
    }
}

async fn list(
    pg: &Rc<dyn Pg>,
    request: &Request,
    cursor: HObject,
    max: usize,
    named: bool,
    filter: Option<Box<dyn PglsFilter>>,
) -> Result<Page, Errno> {
    let pgid = pg.pgid().pgid;
    let pg_end = pgid.end_object(pg.pool().pg_num);
    if named {
        let is_past_end = !cursor.is_max() && cursor >= pg_end;
        let is_before_start = !cursor.is_min() && cursor < pgid.first_object();
        if is_past_end || is_before_start {
            return Err(Errno::EINVAL);
        }
    }
    let (stored, mut next) = list_stored(pg, &cursor, max).await?;
    // What is missing here belongs into the listing all the same.
    let missing = pg.missing_from(&cursor, usize::MAX);
    let deleted: BTreeSet<HObject> =
        missing.iter().filter(|m| m.is_delete).map(|m| m.oid.clone()).collect();
    let mut missing = missing.into_iter().map(|m| m.oid).peekable();
    let mut stored = stored.into_iter().peekable();
    let mut entries = Vec::new();
    let wanted = &request.oid.namespace;
    let hit_sets = pg.limits().hit_set_namespace.clone();
    loop {
        let candidate = match (missing.peek(), stored.peek()) {
            (None, None) => HObject::max(),
            (Some(m), None) => m.clone(),
            (None, Some(s)) => s.clone(),
            (Some(m), Some(s)) => m.min(s).clone(),
        };
        missing.next_if(|oid| *oid == candidate);
        stored.next_if(|oid| *oid == candidate);
        if candidate >= next {
            break;
        }
        if entries.len() == max {
            next = candidate;
            break;
        }
        let is_named = candidate.namespace == *wanted || (named && *wanted == ALL_NAMESPACES);
        if candidate.snap != NOSNAP
            || (named && candidate.namespace == hit_sets)
            || deleted.contains(&candidate)
            || !is_named
        {
            continue;
        }
        if let Some(filter) = &filter
            && !passes(pg, filter.as_ref(), &candidate).await
        {
            continue;
        }
        entries.push(candidate);
    }
    let is_last = next.is_max() && missing.peek().is_none() && stored.peek().is_none();
    let handle = if is_last && named { pg_end } else { next };
    Ok(Page { handle, entries, is_last })
}

/// At least `max` objects in the store from the cursor on, if there are as many, and where to go
/// on (`PGBackend::objects_list_partial`).
async fn list_stored(
    pg: &Rc<dyn Pg>,
    cursor: &HObject,
    max: usize,
) -> Result<(Vec<HObject>, HObject), Errno> {
    let mut next = match cursor.is_min() {
        true => GhObject::min(),
        false => GhObject { generation: 0, ..pg.goid(cursor) },
    };
    if cursor.is_max() {
        next = GhObject::max();
    }
    let mut found = Vec::new();
    while !next.is_max() && found.len() < max {
        let wanted = max - found.len();
        let page = pg
            .store()
            .list(&pg.coll(), &next, &GhObject::max(), wanted)
            .await
            .map_err(|_| Errno::EINVAL)?;
        let plain = page.objects.into_iter().filter(|oid| {
            !oid.is_pgmeta() && !oid.hobj.is_temp() && oid.generation == types::hobject::NO_GEN
        });
        found.extend(plain.map(|oid| oid.hobj));
        next = page.next;
    }
    let next = if next.is_max() { HObject::max() } else { next.hobj };
    Ok((found, next))
}

async fn passes(pg: &Rc<dyn Pg>, filter: &dyn PglsFilter, oid: &HObject) -> bool {
    let Some(attr) = filter.xattr() else { return filter.matches(&oid.name, b"") };
    match pg.store().getattr(&pg.coll(), &pg.goid(oid), attr).await {
        Ok(value) => filter.matches(&oid.name, &value),
        Err(store::StoreError::NoAttr) if !filter.reject_without_xattr() => {
            filter.matches(&oid.name, b"")
        }
        Err(_) => false,
    }
}

/// Lists objects whose xattr has exactly a value.
struct PlainFilter {
    xattr: BString,
    value: BString,
}

impl PglsFilter for PlainFilter {
    fn xattr(&self) -> Option<&[u8]> {
        Some(&self.xattr)
    }
    fn matches(&self, _object: &[u8], value: &[u8]) -> bool {
        self.value == value
    }
}

/// The filter in front of a listing's cursor: two words, its type, its arguments.
fn filter(r: &mut Reader<'_>) -> Result<Box<dyn PglsFilter>, Errno> {
    let mut text = || r.get::<BString>().map_err(|_| Errno::EINVAL);
    text()?;
    text()?;
    let kind = text()?;
    if kind == "plain" {
        return Ok(Box::new(PlainFilter { xattr: text()?, value: text()? }));
    }
    let dot = kind.iter().position(|&b| b == b'.').ok_or(Errno::EINVAL)?;
    let (class, name) = (&kind[..dot], &kind[dot + 1..]);
    if class.is_empty() || name.is_empty() {
        return Err(Errno::EINVAL);
    }
    let class = cls::class(class).ok_or(Errno::EINVAL)?;
    let found = class.filters.iter().find(|(known, _)| known.as_bytes() == name);
    let (_, make) = found.ok_or(Errno::EINVAL)?;
    make(r)
}

/// Entries of one answer to `scrubls`.
const SCRUB_LIST_MAX: u64 = 1024;
/// Bytes of them.
const SCRUB_LIST_BYTES: usize = 16 << 20;

/// `scrubls`: what the last scrub of this interval found; ENOENT if there was none.
async fn scrub_list(pg: &Rc<dyn Pg>, r: &mut Reader<'_>, op: &mut OsdOp) -> Result<i32, Errno> {
    let asked: ScrubLsArg = r.get().map_err(|_| Errno::EINVAL)?;
    let interval = pg.interval_since();
    let mut result = ScrubLsResult { interval, entries: Vec::new() };
    let found = if asked.interval != 0 && asked.interval != interval {
        Err(Errno::EAGAIN)
    } else {
        match pg.scrub_results() {
            Some(oid) => scrub_rows(pg, &asked, &oid).await,
            None => Err(Errno::ENOENT),
        }
    };
    let result_code = found.map(|entries| {
        result.entries = entries;
        0
    });
    op.outdata.push(result.to_bytes());
    result_code
}

async fn scrub_rows(
    pg: &Rc<dyn Pg>,
    asked: &ScrubLsArg,
    oid: &GhObject,
) -> Result<Vec<Bytes>, Errno> {
    let snapsets = asked.get_snapsets != 0;
    let prefix = results::prefix(snapsets);
    let after = HObject {
        pool: pg.pgid().pgid.pool_id(),
        name: asked.after_name.clone(),
        namespace: asked.after_namespace.clone(),
        snap: asked.after_snap,
        ..HObject::default()
    };
    let from = match after.name.is_empty() {
        true => BString::from(prefix),
        false => results::key(snapsets, &after),
    };
    let max = asked.max_return.min(SCRUB_LIST_MAX) as usize;
    if max == 0 {
        return Ok(Vec::new());
    }
    let page = pg
        .store()
        .omap_range(&pg.coll(), oid, &from, !after.name.is_empty(), max, SCRUB_LIST_BYTES)
        .await
        .map_err(|e| Errno(e.errno()))?;
    let of_kind =
        page.entries.into_iter().take_while(|(key, _)| key.starts_with(prefix.as_bytes()));
    Ok(of_kind.map(|(_, value)| value).collect())
}
