//! What the stores of a cluster at rest hold: every OSD that serves a PG must hold the same.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bstr::BString;
use bytes::Bytes;
use erasure::{Code, Profile};
use store::{CollId, FsckOptions, ObjectStore};
use types::hobject::NO_GEN;
use types::pg::NO_SHARD;
use types::{GhObject, SpgId};

/// What an OSD holds of an object.
#[derive(PartialEq, Eq)]
pub(crate) struct Held {
    data: Bytes,
    /// Attributes and omap, as text that differs when they do.
    rest: String,
}

impl Held {
    fn describe(&self) -> String {
        let crc = types::crc::crc32c(0, &self.data);
        format!("{} bytes crc {crc:#010x}, {}", self.data.len(), self.rest)
    }
}

/// An OSD's objects of one PG.
pub(crate) type Contents = BTreeMap<GhObject, Held>;

/// The objects of each PG in a store.
pub(crate) async fn contents(store: &dyn ObjectStore) -> BTreeMap<SpgId, Contents> {
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
                    let held = hold(store, &cid, &oid).await;
                    objects.insert(oid, held);
                }
            }
            if next.is_max() {
                break;
            }
            from = next;
        }
        all.insert(spg, objects);
    }
    all
}

async fn hold(store: &dyn ObjectStore, cid: &CollId, oid: &GhObject) -> Held {
    let stat = store.stat(cid, oid).await.expect("a stat");
    let data = store.read(cid, oid, 0, stat.size).await.expect("a read").to_contiguous();
    let attrs = store.getattrs(cid, oid).await.expect("attributes");
    let header = store.omap_header(cid, oid).await.expect("an omap header");
    let omap = store.omap_range(cid, oid, b"", false, 1000, 1 << 20).await.expect("an omap");
    let omap_crc = crc_of(&omap.entries, crc_of_part(u32::MAX, &header));
    let attrs_crc = crc_of(&attrs, u32::MAX);
    let names: Vec<_> = attrs.iter().map(|(name, _)| name.to_string()).collect();
    // The object's info holds its version; all else in it follows.
    let info = attrs.iter().find(|(name, _)| name.as_slice() == b"_").map(|(_, v)| v.clone());
    let info_crc = types::crc::crc32c(0, &info.unwrap_or_default());
    let rest = format!(
        "info {info_crc:#010x}, attributes {} crc {attrs_crc:#010x}, {} keys crc {omap_crc:#010x}",
        names.join(","),
        omap.entries.len()
    );
    Held { data, rest }
}

/// Sums up names and values; what one of them lacks at its end the next one does not make up for.
fn crc_of(pairs: &[(BString, Bytes)], seed: u32) -> u32 {
    pairs.iter().fold(seed, |crc, (name, value)| crc_of_part(crc_of_part(crc, name), value))
}

fn crc_of_part(crc: u32, part: &[u8]) -> u32 {
    types::crc::crc32c(types::crc::crc32c(crc, &part.len().to_le_bytes()), part)
}

/// What an OSD's store holds that does not belong together, as `loligo store fsck` says it. Rows of the snap mapper
/// may survive their clone: they go when somebody comes by.
pub(crate) async fn wrong_in_store(store: &Rc<dyn ObjectStore>) -> Vec<String> {
    let looked = osd::offline::fsck(store, FsckOptions::default(), &mut |_| {}).await;
    let (_, mut found) = looked.expect("a store that can be read");
    found.errors.retain(|line| !line.ends_with("the mapper knows a clone that is not there"));
    found.errors
}

/// What two OSDs hold of a PG and do not both hold alike, in words.
pub(crate) fn differences(one: Option<&Contents>, other: Option<&Contents>) -> String {
    let none = Contents::new();
    let (one, other) = (one.unwrap_or(&none), other.unwrap_or(&none));
    let all: BTreeSet<&GhObject> = one.keys().chain(other.keys()).collect();
    let lines = all.into_iter().filter(|oid| one.get(oid) != other.get(oid)).map(|oid| {
        let text = |found: Option<&Held>| found.map_or("nothing".to_owned(), Held::describe);
        let (one, other) = (text(one.get(oid)), text(other.get(oid)));
        format!("{} at {:x}: {one}; {other}\n", oid.hobj.name, oid.hobj.snap)
    });
    lines.collect()
}

/// What is wrong in the shards of a PG, in words: an object that is not on all, attributes that
/// differ, parity that is not that of the data, something kept to undo a write.
pub(crate) fn wrong_in_shards(shards: &[&Contents], profile: &BTreeMap<String, String>) -> String {
    let code = Code::new(&Profile::of(profile).expect("a profile"));
    let mut objects: BTreeMap<GhObject, Vec<Option<&Held>>> = BTreeMap::new();
    for (at, contents) in shards.iter().enumerate() {
        for (oid, held) in contents.iter() {
            let name = GhObject { shard: NO_SHARD, ..oid.clone() };
            objects.entry(name).or_insert_with(|| vec![None; shards.len()])[at] = Some(held);
        }
    }
    let mut wrong = String::new();
    for (oid, held) in &objects {
        let name = format!("{} at {:x}", oid.hobj.name, oid.hobj.snap);
        if oid.generation != NO_GEN {
            let on: Vec<usize> = (0..held.len()).filter(|shard| held[*shard].is_some()).collect();
            wrong +=
                &format!("{name}: generation {} is still kept on shards {on:?}\n", oid.generation);
            continue;
        }
        let all: Vec<&Held> = held.iter().flatten().copied().collect();
        let alike = |one: &Held| one.rest == all[0].rest && one.data.len() == all[0].data.len();
        let sound = all.len() == shards.len() && all.iter().all(|one| alike(one)) && {
            let chunks: Vec<&[u8]> = all.iter().map(|held| &held.data[..]).collect();
            let (data, parity) = chunks.split_at(code.k());
            code.encode(data).iter().map(Vec::as_slice).eq(parity.iter().copied())
        };
        if !sound {
            let texts = held.iter().map(|held| held.map_or("nothing".to_owned(), Held::describe));
            wrong += &format!("{name}: {}\n", texts.collect::<Vec<_>>().join("; "));
        }
    }
    wrong
}
