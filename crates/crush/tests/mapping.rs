//! The mapper against `crushtool --test --show-mappings`, and the encoding against crushtool's
//! maps: every map of the golden folder (tests/golden/README.md).

use std::path::{Path, PathBuf};

use bytes::Bytes;
use crush::CrushMap;
use denc::Denc;

fn golden(extension: &str) -> Vec<PathBuf> {
    let dir = std::env::var("LOLIGO_CRUSH_GOLDEN")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden").to_owned());
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .filter(|path| path.with_extension("bin").exists())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no golden .{extension}");
    files
}

fn map(path: &Path) -> (Bytes, CrushMap) {
    let bytes = Bytes::from(std::fs::read(path.with_extension("bin")).unwrap());
    let map =
        CrushMap::from_bytes_exact(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    (bytes, map)
}

/// The device weights of a test: all in, but for the pairs after `--weight`.
fn device_weights(map: &CrushMap, args: &[&str]) -> Vec<u32> {
    let mut weights: Vec<u32> = (0..map.max_devices)
        .map(|d| {
            let there = map.each_bucket().any(|b| b.items.contains(&d));
            if there { 0x10000 } else { 0 }
        })
        .collect();
    for set in args.windows(3).filter(|w| w[0] == "--weight") {
        let device: usize = set[1].parse().unwrap();
        weights[device] = (set[2].parse::<f64>().unwrap() * 65536.0) as u32;
    }
    weights
}

#[test]
fn every_mapping_is_crushtools() {
    let mut checked = 0;
    for path in golden("mappings") {
        let (_, map) = map(&path);
        let text = std::fs::read_to_string(&path).unwrap();
        let (mut size, mut weights) = (0, Vec::new());
        for line in text.lines() {
            if let Some(head) = line.strip_prefix("# rule ") {
                let args: Vec<&str> = head.split_whitespace().collect();
                size = args[2].parse().unwrap();
                weights = device_weights(&map, &args);
                continue;
            }
            let Some(mapping) = line.strip_prefix("CRUSH rule ") else { continue };
            let mut parts = mapping.split(' ');
            let rule: i32 = parts.next().unwrap().parse().unwrap();
            assert_eq!(parts.next(), Some("x"));
            let x: u32 = parts.next().unwrap().parse().unwrap();
            let want = parts.next().unwrap();
            let got = map.do_rule(rule, x, size, &weights, map.choose_args_for(0));
            let got = format!("{got:?}").replace(' ', "");
            assert_eq!(got, want, "{} rule {rule} size {size} x {x}", path.display());
            checked += 1;
        }
    }
    println!("{checked} mappings");
}

#[test]
fn maps_survive_a_round_trip() {
    for path in golden("bin") {
        let (bytes, map) = map(&path);
        assert_eq!(map.to_bytes(), bytes, "{}", path.display());
    }
}

/// Whether no count of the map asks for so much work that a run would not end here.
fn affordable(map: &CrushMap) -> bool {
    let t = &map.tunables;
    let tries = [t.choose_total_tries, t.choose_local_tries, t.choose_local_fallback_tries];
    let mut steps = map.rules.iter().flatten().flat_map(|rule| &rule.steps);
    tries.iter().all(|n| *n < 1000) && steps.all(|step| step.arg1 < 1000)
}

#[test]
fn damaged_maps_are_errors_or_maps_but_never_a_panic() {
    for path in golden("bin") {
        let (bytes, _) = map(&path);
        let weights = vec![0x10000; 64];
        for len in 0..bytes.len().min(2000) {
            // Tails are optional, so some cuts are whole maps.
            let _ = CrushMap::from_bytes(&bytes.slice(..len));
        }
        for at in (0..bytes.len().min(3000)).step_by(3) {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1 << (at % 8);
            if let Ok(map) = CrushMap::from_bytes(&Bytes::from(damaged)) {
                let _ = map.to_bytes();
                if at % 5 == 0 && affordable(&map) {
                    let args = map.choose_args_for(0);
                    (0..4).for_each(|rule| drop(map.do_rule(rule, 7, 3, &weights, args)));
                }
            }
        }
    }
}
