//! Maps of file systems as a monitor of Ceph 16.2.15 stored them, with what its `fs dump` showed of each: they decode, encode
//! to the same bytes, and are shown as there. `LOLIGO_FSMAPS` names a folder with more of them (`N.bin`, `N.json`, `N.txt`).

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use command::{Format, Formatter};
use denc::Denc;
use maps::FsMap;

fn folders() -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/fsmaps");
    [own].into_iter().chain(std::env::var_os("LOLIGO_FSMAPS").map(PathBuf::from)).collect()
}

fn first_difference<'a>(got: &'a str, want: &'a str) -> String {
    let mut lines = got.lines().zip(want.lines());
    match lines.find(|(got, want)| got != want) {
        Some((got, want)) => format!("\n  got  {got:?}\n  want {want:?}"),
        None => format!("{} lines instead of {}", got.lines().count(), want.lines().count()),
    }
}

fn check(file: &Path) {
    let name = file.display();
    let bytes = Bytes::from(fs::read(file).unwrap());
    let map = FsMap::from_bytes_exact(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(map.to_bytes(), bytes, "{name}");
    assert_eq!(map.insane(), None, "{name}");
    let mut f = Formatter::new(Format::JsonPretty);
    f.object("fsmap", |f| map.dump(f));
    let (json, want) = (f.finish(), fs::read_to_string(file.with_extension("json")).unwrap());
    let (json, want) = (json.trim(), want.trim());
    assert!(json == want, "{name}: {}", first_difference(json, want));
    let (text, want) = (map.print(), fs::read_to_string(file.with_extension("txt")).unwrap());
    assert!(text == want, "{name}: {}", first_difference(&text, &want));
    // No cut and no flipped bit panics.
    for at in 0..bytes.len() {
        drop(FsMap::from_bytes(&bytes.slice(..at)));
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 1 << (at % 8);
        if let Ok(map) = FsMap::from_bytes(&flipped.into()) {
            let (_, _, _) = (map.summary(), map.print(), map.insane());
        }
    }
}

#[test]
fn maps_of_ceph_are_read_written_and_shown_as_there() {
    let mut count = 0;
    for folder in folders() {
        for entry in fs::read_dir(&folder).unwrap() {
            let file = entry.unwrap().path();
            if file.extension().is_some_and(|extension| extension == "bin") {
                check(&file);
                count += 1;
            }
        }
    }
    assert!(count >= 8, "{count} maps");
}
