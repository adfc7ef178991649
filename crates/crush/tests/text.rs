//! The text form against crushtool's: every golden text and map.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use crush::{CrushMap, Problem};
use denc::Denc;

fn golden(extension: &str) -> Vec<PathBuf> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn map(path: &Path) -> CrushMap {
    let bytes = Bytes::from(std::fs::read(path.with_extension("bin")).unwrap());
    CrushMap::from_bytes_exact(&bytes).unwrap()
}

#[test]
fn texts_compile_to_crushtools_maps() {
    for path in golden("txt") {
        let text = std::fs::read_to_string(&path).unwrap();
        let got = CrushMap::compile(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(got, map(&path), "{}", path.display());
        assert_eq!(got.to_bytes(), map(&path).to_bytes());
    }
}

#[test]
fn maps_decompile_to_crushtools_texts() {
    for path in golden("decompiled") {
        let want = std::fs::read_to_string(&path).unwrap();
        let got = map(&path).decompile();
        for (n, (got, want)) in got.lines().zip(want.lines()).enumerate() {
            assert_eq!(got, want, "{} line {}", path.display(), n + 1);
        }
        assert_eq!(got, want, "{}", path.display());
    }
}

#[test]
fn every_shadow_tree_is_as_crushtool_builds_it() {
    for path in golden("bin") {
        let mut rebuilt = map(&path);
        rebuilt.rebuild_shadow_trees();
        assert_eq!(rebuilt, map(&path), "{}", path.display());
    }
}

#[test]
fn errors_name_their_line() {
    let at = |text: &str| CrushMap::compile(text).map(|_| ()).map_err(|e| (e.line, e.problem));
    let types = "type 0 osd\ntype 1 root\n";
    let cases = [
        ("tunable nothing 1", (1, Problem::Undefined)),
        ("type 0 osd\ndevice x osd.0", (2, Problem::Expected("a number"))),
        ("device 0 osd.0\ndevice 0 osd.1", (2, Problem::Taken)),
        ("root a { }", (1, Problem::Expected("a section or a bucket type"))),
    ];
    for (text, error) in cases {
        assert_eq!(at(text), Err(error), "{text}");
    }
    let bucket = format!("{types}root a {{\n alg straw2\n item b\n}}");
    assert_eq!(at(&bucket), Err((5, Problem::Undefined)));
    let mut cut = String::new();
    for c in std::fs::read_to_string(&golden("txt")[0]).unwrap().chars() {
        cut.push(c);
        let _ = CrushMap::compile(&cut);
    }
}
