//! What writes cost in bytes, from the ledger. A ratchet: figures may only go down.

use std::collections::{BTreeMap, BTreeSet};

use bstr::BString;
use bytes::Bytes;
use device::memory::{Choices, MemoryFile};
use env::Env;
use store::{ObjectStore, Transaction};
use types::hobject::GhObject;

use super::common::{block_on, object, pg};
use super::contract::made;

const OBJECTS: u64 = 16;
const OBJECT_LEN: u64 = 1 << 20;

/// The transaction of an OSD for a 4 KiB overwrite: data, object info, pg log entry, PG info and
/// the trimmed log entry.
fn overwrite(choices: &mut Choices, version: u64, meta: &GhObject) -> Transaction {
    let cid = pg(0);
    let oid = object(&format!("image.{:016x}", choices.below(OBJECTS)), 0);
    let value = |len: usize, salt: u64| {
        let mut bytes = vec![7; len];
        bytes[20..20 + oid.hobj.name.len()].copy_from_slice(&oid.hobj.name);
        for at in [70, 90, 110] {
            bytes[at..at + 8].copy_from_slice(&(version * salt).to_le_bytes());
        }
        bytes[len - 4..].copy_from_slice(&Choices::new(version).below(1 << 32).to_le_bytes()[..4]);
        Bytes::from(bytes)
    };
    let key = |version: u64| BString::from(format!("0000000007.{version:020}"));
    let mut t = Transaction::new();
    let at = choices.below(OBJECT_LEN / 4096) * 4096;
    t.write(&cid, &oid, at, vec![version as u8; 4096]);
    t.setattr(&cid, &oid, "_", value(250, 3));
    let entries = [(key(version), value(190, 1)), ("_fastinfo".into(), value(186, 1))];
    t.omap_setkeys(&cid, meta, BTreeMap::from(entries));
    if version > 1000 {
        t.omap_rmkeys(&cid, meta, BTreeSet::from([key(version - 1000)]));
    }
    t
}

/// Device bytes for each byte written by 4 KiB overwrites with `depth` of them waiting.
async fn amplification(env: Env, depth: u64, block_len: u32, ops: u64) -> f64 {
    let file = MemoryFile::new(64 << 20, block_len);
    let store = made(&env, &file, 4 << 20).await;
    let meta = object("", 0);
    let mut t = Transaction::new();
    t.mkcoll(&pg(0), 0).touch(&pg(0), &meta);
    for n in 0..OBJECTS {
        let oid = object(&format!("image.{n:016x}"), 0);
        t.write(&pg(0), &oid, 0, vec![1; OBJECT_LEN as usize]);
    }
    store.submit(t).await.unwrap();
    store.checkpoint().await.unwrap();
    let before = store.device().ledger().written_total();
    let (mut choices, mut version) = (Choices::new(depth), 0);
    while version < ops {
        let mut waiting = Vec::new();
        for _ in 0..depth {
            version += 1;
            waiting.push(store.submit(overwrite(&mut choices, version, &meta)));
        }
        for done in waiting {
            done.await.unwrap();
        }
    }
    let written = store.device().ledger().written_total() - before;
    written as f64 / (version * 4096) as f64
}

#[test]
fn a_small_overwrite_costs_little_more_than_itself() {
    // Depth, sector, device bytes for each client byte.
    for (depth, block_len, most) in
        [(32, 4096, 1.08), (128, 4096, 1.06), (1, 512, 1.16), (1, 4096, 2.03)]
    {
        let ops = if depth == 1 { 2_000 } else { 32_000 };
        let waf = block_on(move |env| amplification(env, depth, block_len, ops));
        assert!(waf <= most, "depth {depth}, sectors of {block_len}: {waf:.3}, not {most}");
        println!("depth {depth}, sectors of {block_len}: {waf:.3}");
    }
}
