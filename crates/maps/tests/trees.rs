//! Trees and CRUSH dumps against osdmaptool's and crushtool's of the golden maps.

use std::collections::BTreeMap;

use bytes::Bytes;
use command::{Format, Formatter};
use denc::Denc;
use maps::osdmap::{TreeFilter, crush_tree};
use maps::{OsdMap, crush_dump};

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn text(name: &str) -> String {
    String::from_utf8(golden(name)).unwrap()
}

fn map(epoch: u32) -> OsdMap {
    OsdMap::from_bytes(&Bytes::from(golden(&format!("full.{epoch}")))).unwrap()
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn the_tree_is_osdmaptools() {
    for epoch in [20, 63, 119] {
        let map = map(epoch);
        let want = text(&format!("tree.{epoch}.txt"));
        let want = want.split_once('\n').unwrap().1; // osdmaptool names the file first
        assert_eq!(lines(&map.tree(None, TreeFilter::default())), lines(want), "epoch {epoch}");
        let mut f = Formatter::new(Format::Json);
        f.object("", |f| map.dump_tree(f, None, TreeFilter::default()));
        assert_eq!(f.finish(), text(&format!("tree.{epoch}.json")).trim(), "epoch {epoch}");
    }
}

#[test]
fn a_filter_shows_only_buckets_above_what_it_shows() {
    let map = map(119);
    let down = map.tree(None, TreeFilter { down: true, ..TreeFilter::default() });
    assert!(down.contains("osd.4") && down.contains("osd.6") && down.contains("host hC"));
    assert!(!down.contains("osd.0") && !down.contains("host vm"));
}

#[test]
fn the_crush_tree_is_crushtools() {
    let crush = map(119).crush;
    let got = crush_tree(&crush, &BTreeMap::new(), true);
    assert_eq!(lines(&got), lines(&text("crush-tree.119.txt")));
}

#[test]
fn the_crush_dump_is_crushtools() {
    for epoch in [40, 119] {
        let mut f = Formatter::new(Format::Json);
        f.object("", |f| crush_dump::dump_crush(f, &map(epoch).crush));
        assert_eq!(f.finish(), text(&format!("crush-dump.{epoch}.json")).trim(), "epoch {epoch}");
    }
}
