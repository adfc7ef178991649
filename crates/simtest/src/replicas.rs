//! What the stores of a cluster at rest hold: every OSD that serves a PG must hold the same.

use std::collections::{BTreeMap, BTreeSet};

use store::{CollId, ObjectStore};
use types::{GhObject, PgId};

/// An object's content, attributes and omap, as text that differs when they do.
type Contents = BTreeMap<GhObject, String>;

/// The objects of each PG in a store.
pub(crate) async fn contents(store: &dyn ObjectStore) -> BTreeMap<PgId, Contents> {
    let mut all = BTreeMap::new();
    for cid in store.collections().await.expect("collections") {
        let CollId::Pg(spg) = cid else { continue };
        let (mut objects, mut from) = (Contents::new(), GhObject::min());
        loop {
            let page = store.list(&cid, &from, &GhObject::max(), 1000).await.expect("a listing");
            let next = page.next;
            for oid in page.objects {
                // The primary's list of what scrub found is its own.
                let of_scrub = oid.hobj.is_temp() && oid.hobj.name.starts_with(b"scrub_");
                if !oid.is_pgmeta() && !of_scrub {
                    let text = describe(store, &cid, &oid).await;
                    objects.insert(oid, text);
                }
            }
            if next.is_max() {
                break;
            }
            from = next;
        }
        all.insert(spg.pgid, objects);
    }
    all
}

async fn describe(store: &dyn ObjectStore, cid: &CollId, oid: &GhObject) -> String {
    let stat = store.stat(cid, oid).await.expect("a stat");
    let data = store.read(cid, oid, 0, stat.size).await.expect("a read").to_contiguous();
    let attrs = store.getattrs(cid, oid).await.expect("attributes");
    let header = store.omap_header(cid, oid).await.expect("an omap header");
    let omap = store.omap_range(cid, oid, b"", false, 1000, 1 << 20).await.expect("an omap");
    let mut omap_crc = types::crc::crc32c(0, &header);
    for (key, value) in &omap.entries {
        omap_crc = types::crc::crc32c(types::crc::crc32c(omap_crc, key), value);
    }
    let crc = types::crc::crc32c(0, &data);
    let names: Vec<_> = attrs.iter().map(|(name, _)| name.to_string()).collect();
    // The object's info holds its version; all else in it follows.
    let info = attrs.iter().find(|(name, _)| name.as_slice() == b"_").map(|(_, v)| v.clone());
    let info_crc = types::crc::crc32c(0, &info.unwrap_or_default());
    format!(
        "{} bytes crc {crc:#010x}, info {info_crc:#010x}, attributes {}, {} keys crc {omap_crc:#010x}",
        stat.size,
        names.join(","),
        omap.entries.len()
    )
}

/// What two OSDs hold of a PG and do not both hold alike, in words.
pub(crate) fn differences(one: Option<&Contents>, other: Option<&Contents>) -> String {
    let none = Contents::new();
    let (one, other) = (one.unwrap_or(&none), other.unwrap_or(&none));
    let all: BTreeSet<&GhObject> = one.keys().chain(other.keys()).collect();
    let lines = all.into_iter().filter(|oid| one.get(oid) != other.get(oid)).map(|oid| {
        let text = |found: Option<&String>| found.map_or("nothing", String::as_str).to_owned();
        let (one, other) = (text(one.get(oid)), text(other.get(oid)));
        format!("{} at {:x}: {one}; {other}\n", oid.hobj.name, oid.hobj.snap)
    });
    lines.collect()
}
