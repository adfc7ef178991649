//! The envelope's rule, both ways, and bounded decoding.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{Denc, Error};

#[derive(Denc, Debug, PartialEq, Clone, Default)]
#[denc(v = 2, compat = 1)]
struct Two {
    a: u32,
    #[denc(since = 2)]
    b: String,
}

#[derive(Denc, Debug, PartialEq)]
#[denc(v = 1, compat = 1)]
struct One {
    a: u32,
}

#[derive(Denc, Debug, PartialEq)]
#[denc(v = 3, compat = 3)]
struct Three {
    a: u32,
}

#[test]
fn a_newer_struct_is_read_up_to_what_is_known() {
    let two = vec![Two { a: 7, b: "seven".into() }, Two { a: 8, b: "eight".into() }];
    let ones = Vec::<One>::from_bytes_exact(&two.to_bytes()).unwrap();
    assert_eq!(ones, [One { a: 7 }, One { a: 8 }]);
}

#[test]
fn an_older_struct_gets_defaults() {
    let two = Two::from_bytes_exact(&One { a: 7 }.to_bytes()).unwrap();
    assert_eq!(two, Two { a: 7, b: String::new() });
}

#[test]
fn a_compat_above_ours_is_refused() {
    assert_eq!(
        Two::from_bytes(&Three { a: 1 }.to_bytes()),
        Err(Error::Incompatible { what: "Two", compat: 3, known: 2 })
    );
}

#[test]
fn every_truncation_is_an_error_and_never_a_panic() {
    let mut map = BTreeMap::new();
    map.insert(1u64, vec![Two { a: 7, b: "seven".into() }]);
    let whole = map.to_bytes();
    for len in 0..whole.len() {
        let r = BTreeMap::<u64, Vec<Two>>::from_bytes(&whole.slice(..len));
        assert!(matches!(r, Err(Error::Truncated { .. })), "{len} bytes gave {r:?}");
    }
}

#[test]
fn a_count_larger_than_the_buffer_is_refused_before_allocating() {
    let huge = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0]);
    assert!(matches!(Vec::<u64>::from_bytes(&huge), Err(Error::Truncated { .. })));
}
