//! Commands that damage one OSD's copy of an object behind the PG's back, to test scrub and repair
//! (`TestOpsSocketHook` in `src/osd/OSD.cc`).

use bstr::{BString, ByteSlice};
use bytes::Bytes;
use command::{BadArgument, CommandMap, CommandReply};
use store::{CollId, Transaction};
use types::{Errno, GhObject, HObject, NOSNAP, ObjectLocator, SpgId};

use super::{Target, refused};

/// Pairs of an omap shown at most.
const PAIRS_MAX: usize = 100_000;

/// The commands.
pub(super) const PREFIXES: &[&str] = &[
    "getomap",
    "injectdataerr",
    "injectmdataerr",
    "rmomapkey",
    "setomapheader",
    "setomapval",
    "truncobj",
];

/// The object a command means, where this OSD keeps it.
fn object_of(
    target: &dyn Target,
    map: &CommandMap,
) -> Result<Result<(CollId, GhObject), CommandReply>, BadArgument> {
    let (pool, name) = (map.string("pool")?, map.string("objname")?);
    let osdmap = target.osdmap();
    let by_number = || pool.parse().ok().filter(|id| osdmap.pool(*id).is_some());
    let Some(id) = osdmap.lookup_pool(&pool).or_else(by_number) else {
        return Ok(Err(CommandReply::data(format!("Invalid pool '{pool}''"))));
    };
    let (namespace, name) = name.split_once('/').unwrap_or(("", &name));
    let locator = ObjectLocator { pool: id, namespace: namespace.into(), ..Default::default() };
    let oid = HObject::new(name, &locator, NOSNAP);
    let Some(pg) = osdmap.object_to_pg(name.as_bytes(), &locator) else {
        return Ok(Err(refused(Errno::ENOENT, "the pool has no such placement group")));
    };
    if !osdmap.pool(id).is_some_and(|p| p.is_erasure()) {
        return Ok(Ok((CollId::Pg(pg.spg()), GhObject::from(oid))));
    }
    if !matches!(map.prefix(), "injectdataerr" | "injectmdataerr") {
        return Ok(Err(CommandReply::data("Must not call on ec pool")));
    }
    let shard = i8::try_from(map.opt_int("shardid")?.unwrap_or(0)).unwrap_or(i8::MAX);
    let oid = GhObject { shard, ..GhObject::from(oid) };
    Ok(Ok((CollId::Pg(SpgId { pgid: pg, shard }), oid)))
}

/// Runs one of [`PREFIXES`]. Errors are told in the text, as Ceph's are.
pub(super) async fn run(
    target: &dyn Target,
    map: &CommandMap,
) -> Result<CommandReply, BadArgument> {
    let (cid, oid) = match object_of(target, map)? {
        Ok(found) => found,
        Err(reply) => return Ok(reply),
    };
    let mut t = Transaction::new();
    match map.prefix() {
        "getomap" => return Ok(getomap(target, &cid, &oid).await),
        "injectdataerr" => {
            target.injected().inject_data_error(oid);
            return Ok(CommandReply::data("ok"));
        }
        "injectmdataerr" => {
            target.injected().inject_metadata_error(oid);
            return Ok(CommandReply::data("ok"));
        }
        "setomapval" => {
            let (key, value) = (map.string("key")?, map.string("val")?);
            t.omap_setkeys(&cid, &oid, [(BString::from(key), Bytes::from(value))]);
        }
        "rmomapkey" => {
            t.omap_rmkeys(&cid, &oid, [BString::from(map.string("key")?)]);
        }
        "setomapheader" => {
            t.omap_setheader(&cid, &oid, Bytes::from(map.string("header")?));
        }
        _ => {
            let len = u64::try_from(map.int("len")?).unwrap_or(0);
            t.truncate(&cid, &oid, len);
        }
    }
    Ok(CommandReply::data(match target.store().submit(t).await {
        Ok(()) => "ok".to_owned(),
        Err(e) => format!("error=-{}", e.errno()),
    }))
}

async fn getomap(target: &dyn Target, cid: &CollId, oid: &GhObject) -> CommandReply {
    let store = target.store();
    let header = store.omap_header(cid, oid).await;
    let page = store.omap_range(cid, oid, b"", false, PAIRS_MAX, usize::MAX).await;
    let (header, page) = match (header, page) {
        (Ok(header), Ok(page)) => (header, page),
        (Err(e), _) | (_, Err(e)) => return CommandReply::data(format!("error=-{}", e.errno())),
    };
    let mut text = format!("header={}", header.as_bstr());
    for (key, value) in page.entries {
        text += &format!(" key={key} val={}", value.as_bstr());
    }
    CommandReply::data(text)
}
