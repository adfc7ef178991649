//! For tests only: checks decoders against golden encodings, one folder a type, one file an
//! object, as in Ceph's public object corpus (release 16.2.0).
//!
//! The folder is `LOLIGO_CORPUS`, or `../shared/corpus/16.2.0` beside the workspace. Where there
//! is none the checks say so and pass, unless `LOLIGO_CORPUS` is set.

use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use denc::Denc;

/// What one type's check found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Objects that came back byte for byte.
    pub exact: usize,
    /// Objects the caller excused.
    pub excused: usize,
    /// Damaged variants tried without a panic.
    pub damaged: usize,
}

/// The corpus, if there is one.
///
/// # Panics
/// If `LOLIGO_CORPUS` names no folder.
pub fn root() -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os("LOLIGO_CORPUS") {
        let dir = PathBuf::from(dir);
        assert!(dir.is_dir(), "LOLIGO_CORPUS is no folder: {}", dir.display());
        return Some(dir);
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    let dir = workspace.join("../shared/corpus/16.2.0");
    if dir.is_dir() {
        return Some(dir);
    }
    eprintln!("no corpus at {}: nothing is checked", dir.display());
    None
}

/// Objects whose file holds the tail of a longer one it was written over: name, true length.
const OVERWRITTEN: [(&str, usize); 1] = [("f97d85482139c3de61f9ec00522b6bd6", 94)];

fn read(path: &Path) -> Bytes {
    let bytes = Bytes::from(fs::read(path).unwrap());
    let cut = OVERWRITTEN.iter().find(|(name, _)| path.ends_with(name));
    cut.map_or(bytes.clone(), |(_, len)| bytes.slice(..*len))
}

/// The encodings of a type; empty without a corpus.
///
/// # Panics
/// If there is a corpus and it has no such type.
pub fn objects(dir: &str) -> Vec<(PathBuf, Bytes)> {
    let Some(root) = root() else { return Vec::new() };
    let dir = root.join(dir);
    let entries = fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{}: no objects", dir.display());
    paths.into_iter().map(|path| (path.clone(), read(&path))).collect()
}

/// Every object of a type decodes whole and encodes to the same bytes; no cut and no flipped bit
/// panics.
///
/// # Panics
/// If not.
pub fn check<T: Denc + Debug>(dir: &str) -> Count {
    check_except::<T>(dir, |_| false)
}

/// [`check`] where an object's encoding may differ if `excused` says so of its bytes (a value that
/// is written in the writer's own order, say); it must still decode to a value that encodes and
/// decodes to itself.
///
/// # Panics
/// If the check fails.
pub fn check_except<T: Denc + Debug>(dir: &str, excused: impl Fn(&Bytes) -> bool) -> Count {
    let mut count = Count::default();
    for (path, bytes) in objects(dir) {
        let path = path.display();
        let value = T::from_bytes_exact(&bytes).unwrap_or_else(|e| panic!("{path}: {e}"));
        let again = value.to_bytes();
        if again == bytes {
            count.exact += 1;
        } else if excused(&bytes) {
            let back = T::from_bytes_exact(&again).unwrap_or_else(|e| panic!("{path}: {e}"));
            assert_eq!(back.to_bytes(), again, "{path}");
            count.excused += 1;
        } else {
            let at = again.iter().zip(&bytes).position(|(a, b)| a != b);
            panic!(
                "{path}: {} bytes encode to {}, first difference at {at:?}\n{value:#?}",
                bytes.len(),
                again.len()
            );
        }
        count.damaged += damage::<T>(&bytes);
    }
    println!("{dir}: {} exact, {} excused", count.exact, count.excused);
    count
}

/// Decodes every cut of `bytes` and variants with a flipped bit; returns how many.
pub fn damage<T: Denc>(bytes: &Bytes) -> usize {
    // Long objects are cut and flipped at a stride: about 2000 variants an object.
    let stride = bytes.len() / 1000 + 1;
    let mut tried = 0;
    for at in (0..bytes.len()).step_by(stride) {
        let _ = T::from_bytes(&bytes.slice(..at));
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 1 << (at % 8);
        if let Ok(value) = T::from_bytes(&Bytes::from(flipped)) {
            let _ = value.to_bytes();
        }
        tried += 2;
    }
    tried
}

/// One test of all the listed types, with a summary: `corpus::check_all!("folder" => Type, ...)`.
#[macro_export]
macro_rules! check_all {
    ($($dir:literal => $kind:ty),* $(,)?) => {{
        let mut failed = ::std::vec::Vec::new();
        let mut counts = ::std::vec::Vec::new();
        $(
            match ::std::panic::catch_unwind(|| $crate::check::<$kind>($dir)) {
                Ok(count) => counts.push(count),
                Err(_) => failed.push($dir),
            }
        )*
        let objects: usize = counts.iter().map(|count| count.exact).sum();
        let damaged: usize = counts.iter().map(|count| count.damaged).sum();
        println!("{} types, {objects} objects, {damaged} damaged variants", counts.len());
        assert!(failed.is_empty(), "{} types fail: {failed:?}", failed.len());
    }};
}
