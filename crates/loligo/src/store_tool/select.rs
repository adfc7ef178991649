//! Which object is meant, and how objects are written.

use std::rc::Rc;

use serde_json::{Value, json};
use store::transfer::Objects;
use store::{CollId, ObjectStore, StoreError};
use types::hobject::{GhObject, HObject, NO_GEN};
use types::pg::{NO_SHARD, SpgId};

use crate::failure::Failure;

/// Objects of one name that an error tells.
const CANDIDATES_MAX: usize = 10;

/// A collection and an object in it.
pub(super) type Place = (CollId, GhObject);

/// What stands for a collection in a listing: `2.7`, `meta`.
pub(super) fn collection_name(cid: &CollId) -> String {
    match cid {
        CollId::Pg(pgid) => pgid.to_string(),
        other => other.to_string(),
    }
}

/// The collection of a placement group's name.
pub(super) fn pg_collection(text: &str) -> Result<CollId, Failure> {
    let pgid: SpgId = text
        .parse()
        .map_err(|_| Failure::new(format!("{text}: not a placement group, as 2.7 or 2.7s1")))?;
    Ok(CollId::Pg(pgid))
}

/// A line of a listing, as ceph-objectstore-tool prints it (and its two fields `max`).
pub(super) fn line(cid: &CollId, oid: &GhObject) -> String {
    let hobj = &oid.hobj;
    let text = |bytes: &[u8]| Value::from(String::from_utf8_lossy(bytes));
    let mut out = format!(
        r#"[{},{{"oid":{},"key":{},"snapid":{},"hash":{},"max":{},"pool":{},"namespace":{}"#,
        Value::from(collection_name(cid)),
        text(&hobj.name),
        text(&hobj.key),
        hobj.snap.cast_signed(),
        hobj.hash,
        u8::from(hobj.max),
        hobj.pool,
        text(&hobj.namespace),
    );
    if oid.generation != NO_GEN {
        out += &format!(r#","generation":{}"#, oid.generation.cast_signed());
    }
    if oid.shard != NO_SHARD {
        out += &format!(r#","shard_id":{}"#, oid.shard);
    }
    out + &format!(r#","max":{}}}]"#, u8::from(oid.max))
}

/// What [`line`] wrote.
fn parse_line(text: &str) -> Option<Place> {
    let value: Value = serde_json::from_str(text).ok()?;
    let [name, object] = value.as_array()?.as_slice() else { return None };
    let name = name.as_str()?;
    let cid = match name.parse() {
        Ok(cid) => cid,
        Err(_) => CollId::Pg(name.parse().ok()?),
    };
    let text = |field: &str| object[field].as_str().map(bstr::BString::from);
    let number = |field: &str| object[field].as_i64();
    let hobj = HObject {
        name: text("oid")?,
        key: text("key")?,
        snap: number("snapid")?.cast_unsigned(),
        hash: u32::try_from(number("hash")?).ok()?,
        max: false,
        pool: number("pool")?,
        namespace: text("namespace")?,
    };
    Some((
        cid,
        GhObject {
            hobj,
            generation: number("generation").map_or(NO_GEN, i64::cast_unsigned),
            shard: i8::try_from(number("shard_id").unwrap_or(NO_SHARD.into())).ok()?,
            max: false,
        },
    ))
}

/// Finds the object that is meant.
pub(super) async fn find(store: &Rc<dyn ObjectStore>, text: &str) -> Result<Place, Failure> {
    let missing = || Failure::new(format!("no object {text}; 'list' shows what there is"));
    if let Some((cid, oid)) = parse_line(text) {
        return match store.stat(&cid, &oid).await {
            Ok(_) => Ok((cid, oid)),
            Err(StoreError::NoObject | StoreError::NoCollection(_)) => Err(missing()),
            Err(e) => Err(super::failed(&e)),
        };
    }
    let by_id = text.parse::<GhObject>().ok();
    let mut found = Vec::new();
    for cid in store.collections().await.map_err(|e| super::failed(&e))? {
        let mut objects = Objects::of(&cid);
        loop {
            let page = objects.page(&**store).await.map_err(|e| super::failed(&e))?;
            if page.is_empty() {
                break;
            }
            let meant = |oid: &GhObject| match &by_id {
                Some(id) => id == oid,
                None => oid.hobj.name == text && !oid.is_pgmeta(),
            };
            found.extend(page.into_iter().filter(meant).map(|oid| (cid, oid)));
        }
    }
    match found.len() {
        0 => Err(missing()),
        1 => Ok(found.remove(0)),
        count => {
            // The head, where all else is its clones.
            let heads: Vec<_> = found.iter().filter(|(_, oid)| oid.hobj.is_head()).collect();
            if let [head] = heads[..] {
                return Ok(head.clone());
            }
            let some = found.iter().take(CANDIDATES_MAX).map(|(cid, oid)| line(cid, oid));
            let some: Vec<_> = some.collect();
            Err(Failure::new(format!(
                "{count} objects are named {text}; give one of these lines instead:\n{}",
                some.join("\n")
            )))
        }
    }
}

/// An object's names as JSON.
pub(super) fn describe(cid: &CollId, oid: &GhObject) -> Value {
    json!({
        "collection": cid.to_string(),
        "id": oid.to_string(),
        "name": String::from_utf8_lossy(&oid.hobj.name),
        "snap": types::snap::snap_text(oid.hobj.snap).to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_ceph_and_give_their_objects_back() {
        let mut oid = GhObject::new(HObject {
            name: "a \"b\"".into(),
            key: "k".into(),
            snap: types::snap::NOSNAP,
            hash: 0xdead_beef,
            pool: 2,
            namespace: "n".into(),
            ..HObject::default()
        });
        let cid = pg_collection("2.7").unwrap();
        let text = line(&cid, &oid);
        let expected = r#"["2.7",{"oid":"a \"b\"","key":"k","snapid":-2,"hash":3735928559,"max":0,"pool":2,"namespace":"n","max":0}]"#;
        assert_eq!(text, expected);
        assert_eq!(parse_line(&text), Some((cid, oid.clone())));
        (oid.generation, oid.shard, oid.hobj.snap) = (7, 1, 4);
        let cid = pg_collection("2.7s1").unwrap();
        assert_eq!(parse_line(&line(&cid, &oid)), Some((cid, oid)));
        assert_eq!(parse_line("[1]"), None);
        assert_eq!(parse_line("name"), None);
        assert!(pg_collection("7").is_err());
    }
}
