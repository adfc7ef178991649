//! CRUSH edits against the maps that a monitor of Ceph 16.2.15 made of the same commands.

use std::collections::BTreeMap;

use bytes::Bytes;
use crush::{CrushMap, Location, Tunables};
use denc::Denc;
use maps::{Incremental, OsdMap};

/// The CRUSH map of every epoch that changed it, from the golden steps.
fn crush_maps() -> BTreeMap<u32, Bytes> {
    let mut maps = BTreeMap::new();
    for epoch in 1..=119 {
        let path = format!("{}/tests/golden/inc.{epoch}", env!("CARGO_MANIFEST_DIR"));
        let inc = Incremental::from_bytes(&Bytes::from(std::fs::read(path).unwrap())).unwrap();
        if !inc.crush.is_empty() {
            maps.insert(epoch, inc.crush);
        } else if !inc.fullmap.is_empty() {
            maps.insert(epoch, OsdMap::from_bytes(&inc.fullmap).unwrap().crush.to_bytes());
        }
    }
    maps
}

fn loc(pairs: &[(&str, &str)]) -> Location {
    pairs.iter().map(|(t, n)| ((*t).to_owned(), (*n).to_owned())).collect()
}

#[test]
fn a_fresh_map_is_the_monitors() {
    let mut map = CrushMap::fresh();
    map.add_simple_rule("replicated_rule", "default", "osd", "", true, 1).unwrap();
    let theirs = CrushMap::from_bytes(&crush_maps()[&1]).unwrap();
    assert_eq!(map, theirs);
}

#[test]
fn rebuilding_the_shadow_trees_changes_nothing() {
    for (epoch, bytes) in crush_maps() {
        let mut map = CrushMap::from_bytes(&bytes).unwrap();
        // Ceph zeroes all but the last position of a shadow bucket's weight sets (epoch 102 on).
        map.choose_args.retain(|id, _| *id == -1);
        let before = map.clone();
        map.rebuild_shadow_trees();
        assert_eq!(map, before, "epoch {epoch}");
    }
}

/// Applies `edit` to the map before `epoch`, which must give the monitor's map of `epoch`.
fn step(maps: &BTreeMap<u32, Bytes>, epoch: u32, edit: impl FnOnce(&mut CrushMap)) {
    let before = maps.range(..epoch).next_back().unwrap().1;
    let mut map = CrushMap::from_bytes(before).unwrap();
    edit(&mut map);
    assert_eq!(
        map.tunables,
        CrushMap::from_bytes(&maps[&epoch]).unwrap().tunables,
        "epoch {epoch}"
    );
    assert_eq!(map, CrushMap::from_bytes(&maps[&epoch]).unwrap(), "epoch {epoch}");
}

#[test]
fn edits_are_the_monitors() {
    let maps = crush_maps();
    let add = |name: &'static str, kind: &'static str| {
        move |map: &mut CrushMap| {
            let id = map.add_named_bucket(name, kind).unwrap();
            map.move_bucket(id, &loc(&[("root", "default")])).unwrap();
        }
    };
    step(&maps, 28, add("hA", "host"));
    step(&maps, 29, add("hB", "host"));
    step(&maps, 30, add("hC", "host"));
    step(&maps, 31, add("rk0", "rack"));
    step(&maps, 32, add("rk1", "rack"));
    let shift = |name: &'static str, rack: &'static str| {
        move |map: &mut CrushMap| {
            let id = map.id_of(name).unwrap();
            map.move_bucket(id, &loc(&[("rack", rack)])).unwrap();
        }
    };
    step(&maps, 33, shift("hA", "rk0"));
    step(&maps, 34, shift("hB", "rk1"));
    step(&maps, 35, shift("hC", "rk1"));
    let set = |osd: i32, weight: u32, host: &'static str| {
        move |map: &mut CrushMap| {
            let name = format!("osd.{osd}");
            assert!(map.update_item(osd, weight, &name, &loc(&[("host", host)])).unwrap());
        }
    };
    step(&maps, 36, set(2, 0x8000, "hA"));
    step(&maps, 37, set(3, 0x10000, "hA"));
    step(&maps, 38, set(4, 0x10000, "hB"));
    step(&maps, 39, set(5, 0x20000, "hC"));
    step(&maps, 40, |map| assert!(map.remove_device_class(5)));
    step(&maps, 41, |map| assert!(map.set_device_class(5, "ssd").unwrap()));
    step(&maps, 42, |map| {
        map.add_simple_rule("rrack", "default", "rack", "", true, 1).unwrap();
    });
    step(&maps, 43, |map| {
        map.add_simple_rule("rssd", "default", "osd", "ssd", true, 1).unwrap();
    });
    step(&maps, 89, |map| assert!(map.create_choose_args(-1, 1)));
    step(&maps, 90, |map| {
        assert_ne!(map.choose_args_adjust(-1, 0, &[45875]), 0);
    });
    step(&maps, 91, |map| assert!(map.create_choose_args(5, 2)));
    step(&maps, 92, |map| {
        assert_ne!(map.choose_args_adjust(5, 5, &[19660, 111_411]), 0);
    });
    step(&maps, 111, |map| {
        map.tunables = Tunables { straw_calc_version: 1, ..Tunables::bobtail() }
    });
    step(&maps, 112, |map| map.tunables = Tunables::argonaut());
    step(&maps, 113, |map| map.tunables = Tunables::fresh());
}
