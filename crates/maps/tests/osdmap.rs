//! A cluster's life, epoch by epoch, as a monitor of Ceph 16.2.15 wrote it: decoding, applying,
//! encoding, placement (tests/golden/README.md).

use std::path::PathBuf;

use bytes::Bytes;
use denc::Denc;
use maps::{Incremental, OsdMap};
use types::PgId;

fn folder() -> PathBuf {
    let ours = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    std::env::var("LOLIGO_OSDMAP_GOLDEN").unwrap_or_else(|_| ours.to_owned()).into()
}

fn read(name: &str) -> Option<Bytes> {
    std::fs::read(folder().join(name)).ok().map(Bytes::from)
}

/// The numbers N of the files `prefix.N`, ascending.
fn epochs(prefix: &str) -> Vec<u32> {
    let mut epochs: Vec<u32> = std::fs::read_dir(folder())
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_prefix(prefix)?.parse().ok())
        .collect();
    epochs.sort_unstable();
    assert!(!epochs.is_empty(), "no golden {prefix}N");
    epochs
}

fn full(epoch: u32) -> Option<(Bytes, OsdMap)> {
    let bytes = read(&format!("full.{epoch}"))?;
    let map = OsdMap::from_bytes_exact(&bytes).unwrap_or_else(|e| panic!("full.{epoch}: {e}"));
    Some((bytes, map))
}

#[test]
fn maps_and_steps_survive_a_round_trip() {
    for epoch in epochs("full.") {
        let (bytes, map) = full(epoch).unwrap();
        assert_eq!(map.epoch, epoch);
        let (again, crc) = map.encode_with_crc();
        assert_eq!(again, bytes, "full.{epoch}");
        assert_eq!(crc, map.crc, "full.{epoch}");
    }
    for epoch in epochs("inc.") {
        let bytes = read(&format!("inc.{epoch}")).unwrap();
        let inc =
            Incremental::from_bytes_exact(&bytes).unwrap_or_else(|e| panic!("inc.{epoch}: {e}"));
        assert_eq!(inc.to_bytes(), bytes, "inc.{epoch}");
        assert_eq!(inc.encode_with_crc(inc.full_crc).1, inc.inc_crc, "inc.{epoch}");
    }
}

#[test]
fn every_step_leads_to_the_monitors_map() {
    let mut map = OsdMap::default();
    let mut applied = 0;
    for epoch in epochs("inc.") {
        let inc = Incremental::from_bytes_exact(&read(&format!("inc.{epoch}")).unwrap()).unwrap();
        if map.epoch + 1 != epoch {
            match full(epoch - 1) {
                Some((_, before)) => map = before,
                None => continue,
            }
        }
        map.apply(&inc).unwrap_or_else(|e| panic!("inc.{epoch}: {e}"));
        let (bytes, crc) = map.encode_with_crc();
        if let Some((want, full)) = full(epoch) {
            map.crc = crc;
            assert!(bytes == want, "epoch {epoch}\nour {map:?}\nhis {full:?}");
        }
        assert_eq!(crc, inc.full_crc, "epoch {epoch}");
        applied += 1;
    }
    println!("{applied} steps");
}

/// The OSDs of `([1,2],`.
fn osds(text: &str) -> Vec<i32> {
    let text = text.trim_matches(['(', '[', ']', ',']);
    let osd = |s: &str| {
        if s == "NONE" { i32::MAX } else { s.parse().unwrap() }
    };
    text.split(',').filter(|s| !s.is_empty()).map(osd).collect()
}

#[test]
fn every_pg_is_where_osdmaptool_puts_it() {
    let mut checked = 0;
    for epoch in epochs("full.") {
        let (_, map) = full(epoch).unwrap();
        let Some(text) = read(&format!("full.{epoch}.pgs-all")) else { continue };
        for line in std::str::from_utf8(&text).unwrap().lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let Some(Ok(pg)) = fields.first().map(|f| f.parse::<PgId>()) else { continue };
            if fields.len() < 9 || fields[1] != "raw" {
                continue;
            }
            checked += 1;
            let got = map.pg_to_up_acting(pg);
            let raw = map.pg_to_raw_osds(pg);
            let what = format!("epoch {epoch} pg {pg}: {line}");
            assert_eq!(raw, osds(fields[2]), "raw, {what}");
            assert_eq!(got.up, osds(fields[5]), "up, {what}");
            let up_primary = fields[6].trim_matches([',', ')', 'p']);
            assert_eq!(got.up_primary.to_string(), up_primary, "{what}");
            assert_eq!(got.acting, osds(fields[8]), "acting, {what}");
            let acting_primary = fields[9].trim_matches([',', ')', 'p']);
            assert_eq!(got.acting_primary.to_string(), acting_primary, "{what}");
        }
    }
    assert_ne!(checked, 0);
    println!("{checked} PGs");
}

/// Ceph lists the blocklist in the order of its hash table, we by address.
fn sorted_blocklist(document: &str) -> String {
    let Some((head, rest)) = document.split_once("\"blocklist\":{") else {
        return document.to_owned();
    };
    let (entries, tail) = rest.split_once('}').unwrap();
    let mut entries: Vec<&str> = entries.split(",\"").map(|e| e.trim_start_matches('"')).collect();
    entries.sort_unstable();
    format!("{head}{entries:?}{tail}")
}

#[test]
fn json_is_osdmaptools() {
    let mut checked = 0;
    for epoch in epochs("full.") {
        let (_, map) = full(epoch).unwrap();
        let Some(want) = read(&format!("full.{epoch}.json")) else { continue };
        let want = std::str::from_utf8(&want).unwrap().trim().to_owned();
        let mut f = command::Formatter::new(command::Format::Json);
        f.object("", |f| map.dump(f));
        assert_eq!(sorted_blocklist(&f.finish()), sorted_blocklist(&want), "full.{epoch}");
        checked += 1;
    }
    assert_ne!(checked, 0);
}

#[test]
fn plain_text_is_osdmaptools() {
    let mut checked = 0;
    for epoch in epochs("full.") {
        let (_, map) = full(epoch).unwrap();
        let Some(want) = read(&format!("full.{epoch}.print")) else { continue };
        let lines = |text: &str| {
            let mut lines: Vec<String> = text.trim_end().lines().map(str::to_owned).collect();
            let blocklist = |line: &String| line.starts_with("blocklist");
            if let Some(at) = lines.iter().position(blocklist) {
                let end = lines.iter().rposition(blocklist).unwrap();
                lines[at..=end].sort();
            }
            lines
        };
        let want = std::str::from_utf8(&want).unwrap();
        let want = want.split_once('\n').unwrap().1; // osdmaptool names the file first
        assert_eq!(lines(&map.print()), lines(want), "full.{epoch}");
        checked += 1;
    }
    assert_ne!(checked, 0);
}

/// Ceph drops the flags of device classes that a new CRUSH map no longer has; ours stayed, and
/// with them the map's checksum would have differed.
#[test]
fn flags_of_device_classes_end_with_them() {
    let mut map = OsdMap::default();
    let mut crush = crush::CrushMap::fresh();
    crush.class_names.insert(0, "ssd".to_owned());
    map.device_class_flags = [(0, 1), (7, 1)].into();
    let inc = Incremental { crush: crush.to_bytes(), ..Incremental::new(map.fsid, map.epoch + 1) };
    map.apply(&inc).unwrap();
    assert_eq!(map.device_class_flags, [(0, 1)].into());
}
