//! Feature bits of connections and maps (`src/include/ceph_features.h` at v16.2).
//!
//! A bit that was reused counts only together with its incarnation marker: see the masks.

/// What every 16.2.15 daemon and client advertises.
pub const ALL: u64 = 0x3f01_cfbd_fffd_ffff;

/// What a mon or an OSD demands of a client.
pub const REQUIRED_OF_CLIENT: u64 = 0x0c01_0200_4204_0000;

/// Features of the maps this release writes.
pub const OSDMAP: u64 = 0x0f00_0880_1021_2a04;

/// Marks the second meaning of reused bits (bit 57).
pub const INCARNATION_2: u64 = 1 << 57;
/// Marks the third meaning of reused bits (bits 57 and 28).
pub const INCARNATION_3: u64 = 1 << 57 | 1 << 28;

/// Luminous server: backoff, resend on split.
pub const SERVER_LUMINOUS: u64 = 1 << 21 | INCARNATION_2;
/// Weight sets in CRUSH maps (the bit of SERVER_LUMINOUS).
pub const CRUSH_CHOOSE_ARGS: u64 = SERVER_LUMINOUS;
/// straw2 and hashed pools: tunables 1.
pub const CRUSH_TUNABLES: u64 = 1 << 18;
/// chooseleaf_descend_once.
pub const CRUSH_TUNABLES2: u64 = 1 << 25;
/// chooseleaf_vary_r.
pub const CRUSH_TUNABLES3: u64 = 1 << 41;
/// straw2 buckets.
pub const CRUSH_V4: u64 = 1 << 48;
/// chooseleaf_stable.
pub const CRUSH_TUNABLES5: u64 = 1 << 58;
/// Typed addresses and address vectors.
pub const MSG_ADDR2: u64 = 1 << 59;
/// The mon keeps subscriptions without acks.
pub const MON_STATEFUL_SUB: u64 = 1 << 57;
/// cephx with a server challenge for authorizers.
pub const CEPHX_V2: u64 = 1 << 61;

/// Pools whose PGs are spread by a hash of the pool as well.
pub const OSDHASHPSPOOL: u64 = 1 << 30;
/// Cache tiers.
pub const OSD_CACHEPOOL: u64 = 1 << 35;

/// What clients of a release have at least, as far as releases differ by it (`ceph_release_features`,
/// `src/common/ceph_strings.cc` at v16.2).
pub const fn of_release(release: u8) -> u64 {
    const CUTTLEFISH: u64 = CRUSH_TUNABLES;
    const EMPEROR: u64 = CUTTLEFISH | CRUSH_TUNABLES2 | OSDHASHPSPOOL;
    const GIANT: u64 = EMPEROR | CRUSH_TUNABLES3 | OSD_CACHEPOOL;
    const INFERNALIS: u64 = GIANT | CRUSH_V4;
    const JEWEL: u64 = INFERNALIS | CRUSH_TUNABLES5;
    const KRAKEN: u64 = JEWEL | MSG_ADDR2;
    match release {
        ..=3 => CUTTLEFISH,
        4..=5 => EMPEROR,
        6..=7 => GIANT,
        8..=9 => INFERNALIS,
        10 => JEWEL,
        11 => KRAKEN,
        _ => KRAKEN | CRUSH_CHOOSE_ARGS,
    }
}

/// Whether `features` has every bit of `mask`.
pub const fn has(features: u64, mask: u64) -> bool {
    features & mask == mask
}
