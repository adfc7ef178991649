//! A PG's log in InkStore, whose older entries stand packed in memory: written, trimmed, divergent
//! entries replaced, read, over checkpoints and kills.

use std::collections::BTreeMap;
use std::rc::Rc;

use bstr::BString;
use bytes::Bytes;
use device::memory::{Choices, MemoryFile};
use store::inkstore::InkStore;
use store::{ObjectStore, Transaction};

use super::common::{block_on, object, pg};
use super::contract::{made, mounted};

type Keys = BTreeMap<BString, Bytes>;

fn key(prefix: &str, version: u64) -> BString {
    format!("{prefix}0000000007.{version:020}").into()
}

fn value(len: usize, version: u64) -> Bytes {
    let mut bytes = vec![7; len];
    for at in [10, 30, len - 8] {
        bytes[at..at + 8].copy_from_slice(&(version * 11).to_le_bytes());
    }
    bytes.into()
}

/// All keys, in pages, compared with what they should be.
async fn check(store: &InkStore, keys: &Keys) {
    let meta = object("", 0);
    let (mut found, mut from) = (Keys::new(), BString::default());
    loop {
        let page =
            store.omap_range(&pg(0), &meta, &from, !from.is_empty(), 37, 1 << 20).await.unwrap();
        found.extend(page.entries.iter().cloned());
        if !page.more {
            break;
        }
        from = page.entries.last().expect("more follows something").0.clone();
    }
    assert!(found == *keys, "{} keys, not {}", found.len(), keys.len());
    let some: Vec<BString> = keys.keys().step_by(5).cloned().collect();
    let values = store.omap_values(&pg(0), &meta, &some).await.unwrap();
    assert!(
        values.iter().map(|(key, value)| (key, value)).eq(some.iter().map(|key| (key, &keys[key])))
    );
    assert!(store.fsck(false).await.unwrap().errors.is_empty());
}

#[test]
fn is_what_was_written_over_checkpoints_and_kills() {
    block_on(|env| async move {
        let file = MemoryFile::new(64 << 20, 4096);
        let mut store: Rc<InkStore> = made(&env, &file, 4 << 20).await;
        let (cid, meta) = (pg(0), object("", 0));
        let mut t = Transaction::new();
        t.mkcoll(&cid, 0).touch(&cid, &meta);
        store.submit(t).await.unwrap();
        let (mut choices, mut keys) = (Choices::new(3), Keys::new());
        let (mut version, mut tail) = (0, 0);
        for round in 0..2_000 {
            let mut t = Transaction::new();
            let mut set = Keys::new();
            if round % 100 == 99 {
                // Entries that did not happen.
                let to = version - choices.below(150).min(version - tail);
                let gone: Vec<BString> = (to + 1..=version).map(|v| key("", v)).collect();
                gone.iter().for_each(|key| drop(keys.remove(key)));
                t.omap_rmkeys(&cid, &meta, gone);
                version = to;
            }
            for _ in 0..=choices.below(4) {
                version += 1;
                set.insert(key("", version), value(200, version + round));
            }
            set.insert("_fastinfo".into(), value(150, round));
            if version - tail > 400 {
                // The oldest go, and become dups, of which the oldest go, too.
                let to = version - 250;
                t.omap_rmkeyrange(&cid, &meta, key("", tail), key("", to + 1));
                let begin = to.saturating_sub(700);
                t.omap_rmkeyrange(&cid, &meta, "dup_", key("dup_", begin));
                keys.retain(|k, _| !(key("", tail)..key("", to + 1)).contains(k));
                keys.retain(|k, _| !(BString::from("dup_")..key("dup_", begin)).contains(k));
                set.extend((tail + 1..=to).map(|v| (key("dup_", v), value(60, v))));
                tail = to;
            }
            keys.extend(set.clone());
            t.omap_setkeys(&cid, &meta, set);
            store.submit(t).await.unwrap();
            match choices.below(60) {
                0 => store.checkpoint().await.unwrap(),
                1 => {
                    // Killed: the log says what the checkpoint does not.
                    drop(store);
                    env.sleep(std::time::Duration::from_millis(10)).await;
                    store = mounted(&env, file.clone()).await.unwrap();
                    check(&store, &keys).await;
                }
                2 => check(&store, &keys).await,
                _ => {}
            }
        }
        check(&store, &keys).await;
    });
}
