//! Chunks beside those of a real Ceph 16.2: `golden.txt` was written with `ceph-erasure-code-tool
//! encode` (stripe unit 1024, two stripes) and `calc-chunk-size` (an object of 10,000 bytes); `golden-jerasure.txt`
//! likewise of the techniques and numbers of bits that a profile has to name (the smallest stripe unit there is, and an
//! object of 10,000,000 bytes).

use std::collections::BTreeMap;

use crc_fast::{CrcAlgorithm, Digest};
use erasure::{Code, Profile, Stripes};

fn crc(data: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u32::MAX.into());
    digest.update(data);
    !(digest.finalize() as u32)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

fn profile(plugin: &str, technique: &str, k: &str, m: &str) -> Profile {
    let pairs = [("plugin", plugin), ("technique", technique), ("k", k), ("m", m)];
    Profile::of(&pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into()).unwrap()
}

/// Two stripes: the checksums of their parity chunks, and their data without the first m chunks.
fn check_stripes(profile: &Profile, unit: usize, crcs: &[&str], line: &str) {
    let stripes = Stripes::new(Code::new(profile), unit);
    let data = pattern(2 * unit * profile.k);
    let chunks = stripes.encode(&data);
    let parity = chunks[profile.k..].iter();
    let found: Vec<String> = parity.map(|c| format!("{:08x}", crc(c))).collect();
    assert_eq!(found, crcs, "{line}");
    let there: BTreeMap<usize, &[u8]> =
        chunks.iter().map(Vec::as_slice).enumerate().skip(profile.m).collect();
    assert!(stripes.decode(&there).unwrap() == data, "{line}");
}

#[test]
fn parity_is_cephs() {
    let mut lines = 0;
    for line in include_str!("golden.txt").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [plugin, technique, k, m, chunk_len, ref crcs @ ..] = words[..] else {
            panic!("{line}");
        };
        let profile = profile(plugin, technique, k, m);
        assert_eq!(profile.chunk_len(10_000).to_string(), chunk_len, "{line}");
        check_stripes(&profile, 1024, crcs, line);
        lines += 1;
    }
    assert_eq!(lines, 45);
}

#[test]
fn techniques_of_jerasure_are_cephs() {
    let mut lines = 0;
    for line in include_str!("golden-jerasure.txt").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [told, unit, chunk_len, ref crcs @ ..] = words[..] else { panic!("{line}") };
        let pairs = told.split(',').filter_map(|pair| pair.split_once('='));
        let map = pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        let profile = Profile::of(&map).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!(profile.chunk_len(10_000_000).to_string(), chunk_len, "{line}");
        check_stripes(&profile, unit.parse().unwrap(), crcs, line);
        lines += 1;
    }
    assert_eq!(lines, 193);
}

/// An object of 20,000 bytes in a pool of k = 2, m = 1 and 4096 bytes a piece: the checksums in the
/// `hinfo_key` attribute that real OSDs gave its chunks.
#[test]
fn chunks_of_an_object_are_cephs() {
    let stripes = Stripes::new(Code::new(&profile("jerasure", "reed_sol_van", "2", "1")), 4096);
    assert_eq!(stripes.width(), 8192);
    assert_eq!(stripes.chunk_len(20_000), 12_288);
    let data = pattern(20_000);
    let chunks = stripes.encode(&data);
    let found: Vec<u32> = chunks.iter().map(|c| crc(c)).collect();
    assert_eq!(found, [0x978a_07e8, 0x39f3_7cf0, 0x70ca_9e82]);
    let there: BTreeMap<usize, &[u8]> = [(0, &chunks[0][..]), (2, &chunks[2][..])].into();
    let mut back = stripes.decode(&there).unwrap();
    assert!(back.split_off(20_000).iter().all(|&b| b == 0));
    assert_eq!(back, data);
    assert_eq!(stripes.stripe_range(10_000, 7_000), (8_192, 16_384));
    assert_eq!(stripes.chunk_offset(8_192), 4_096);
}
