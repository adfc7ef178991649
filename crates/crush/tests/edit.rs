//! Edits against crushtool's of the same maps (tests/golden/README.md).

use bytes::Bytes;
use crush::{CrushMap, EditError, Location, fixed_weight};
use denc::Denc;

fn map(name: &str) -> CrushMap {
    let path = format!("{}/tests/golden/{name}.bin", env!("CARGO_MANIFEST_DIR"));
    CrushMap::from_bytes_exact(&Bytes::from(std::fs::read(path).unwrap())).unwrap()
}

fn loc(pairs: &[(&str, &str)]) -> Location {
    pairs.iter().map(|(t, n)| ((*t).to_owned(), (*n).to_owned())).collect()
}

#[test]
fn edits_are_crushtools() {
    let mut edited = map("alg-straw2");
    edited.adjust_item_weight(3, fixed_weight(0.2).unwrap()).unwrap();
    assert_eq!(edited, map("reweight-item"));

    let mut edited = map("alg-straw2");
    let place = loc(&[("host", "host0"), ("root", "default")]);
    edited.insert_item(24, fixed_weight(2.5).unwrap(), "osd.24", &place).unwrap();
    assert_eq!(edited, map("add-item"));

    let mut edited = map("alg-straw2");
    edited.remove_item(4, None, false).unwrap();
    // crushtool recomputes the highest device, which is still there.
    assert_eq!(edited, map("remove-item"));

    let mut edited = map("alg-straw");
    edited.reweight();
    assert_eq!(edited, map("reweight-straw"));
}

#[test]
fn refusals_say_why() {
    let mut edited = map("classes");
    let root = edited.id_of("default").unwrap();
    assert!(matches!(edited.remove_item(root, None, false), Err(EditError::NotEmpty(_))));
    assert!(matches!(edited.set_device_class(0, "ssd"), Err(EditError::Busy(_))));
    assert!(matches!(edited.rename_bucket("default", "host0"), Err(EditError::Exists(_))));
    let inside = loc(&[("host", "host0")]);
    assert!(matches!(edited.move_bucket(root, &inside), Err(EditError::BadLocation)));
    assert!(matches!(
        edited.add_simple_rule("r", "nowhere", "host", "", true, 1),
        Err(EditError::NotFound(_))
    ));
}

#[test]
fn a_bucket_goes_with_its_shadows() {
    let mut edited = map("classes");
    let before = edited.clone();
    let id = edited.add_named_bucket("spare", "host").unwrap();
    edited.move_bucket(id, &loc(&[("root", "default")])).unwrap();
    assert!(edited.id_of("spare~hdd").is_some());
    edited.remove_item(id, None, false).unwrap();
    assert_eq!(edited.names, before.names);
    assert_eq!(edited.class_buckets, before.class_buckets);
}

/// Story: a bucket that had been swapped with a shadow held what the next change took away: items that were in no map.
#[test]
fn shadows_are_neither_swapped_nor_renamed() {
    let mut edited = map("classes");
    let (shadow, host) = (edited.id_of("default~hdd").unwrap(), edited.id_of("host0").unwrap());
    for (a, b) in [(shadow, host), (host, shadow)] {
        assert!(matches!(edited.swap_buckets(a, b), Err(EditError::WrongKind(_))));
    }
    assert!(matches!(edited.rename_bucket("default~hdd", "other"), Err(EditError::WrongKind(_))));
    assert_eq!(edited, map("classes"));
}
