//! No bytes make a decoder panic or allocate without bound, and what decodes encodes to bytes that
//! decode to the same value. As a normal test: a fixed number of inputs; `cargo bolero test` runs
//! on.

use std::fmt::Debug;

use bytes::Bytes;
use denc::Denc;
use types::osd::*;
use types::*;

const ITERATIONS: usize = 20_000;

fn decode<T: Denc + Debug>(bytes: &Bytes) {
    let Ok(value) = T::from_bytes(bytes) else { return };
    let once = value.to_bytes();
    let again = T::from_bytes(&once).unwrap_or_else(|e| panic!("{e}: {value:?}"));
    // Compared as bytes: a float may be NaN.
    assert_eq!(again.to_bytes(), once, "{value:?}");
}

macro_rules! decoders {
    ($($kind:ty)*) => { [$(decode::<$kind> as fn(&Bytes)),*] };
}

/// The first byte chooses the type; an envelope that claims the right version comes before the
/// rest in half of the inputs, so that fields are reached.
#[test]
fn any_bytes() {
    let decoders = decoders![
        AddrVec EntityAddr AuthEntityName HObject GhObject ObjectLocator SnapContext SpgId UTime
        ObjectInfo ObjectManifest SnapSet ObjectCleanRegions ObjectModDesc PgLogEntry PgLogDup PgLog
        PgMissingItem PgMissing PastIntervals PgHistory PgInfo PgFastInfo PgStat PoolStat PgNotify
        PgQuery PgLease ObjectRecoveryInfo PushOp PullOp ObjectCopyData ScrubMap ScrubObject OsdStat
        OsdSuperblock CompatSet HitSet HitSetParams PgNlsResponse PgLsResponse ObjListSnapResponse
        ObjListWatchResponse RequestRedirect WireOp IntervalSet EcSubWrite EcSubWriteReply EcSubRead
        EcSubReadReply EcHashInfo
    ];
    let versions = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 14, 17, 20, 26, 32];
    bolero::check!().with_iterations(ITERATIONS).for_each(|input: &[u8]| {
        let [which, shape, rest @ ..] = input else { return };
        let decoder = decoders[usize::from(*which) % decoders.len()];
        if shape % 2 == 0 {
            decoder(&Bytes::copy_from_slice(rest));
            return;
        }
        let version = versions[usize::from(shape / 2) % versions.len()];
        let mut bytes = vec![version, 1];
        bytes.extend_from_slice(&(rest.len() as u32).to_le_bytes());
        bytes.extend_from_slice(rest);
        decoder(&Bytes::from(bytes));
    });
}

/// Golden encodings with one run of bytes overwritten: reaches deep into structures that random
/// bytes never spell.
#[test]
fn damaged_golden_bytes() {
    fn damaged<T: Denc + Debug>(dir: &str) {
        let objects = corpus::objects(dir);
        if objects.is_empty() {
            return;
        }
        bolero::check!().with_iterations(1000).for_each(|input: &[u8]| {
            let [which, at_high, at_low, rest @ ..] = input else { return };
            let (_, golden) = &objects[usize::from(*which) % objects.len()];
            let mut bytes = golden.to_vec();
            let at = usize::from(u16::from_be_bytes([*at_high, *at_low])) % bytes.len();
            let len = rest.len().min(bytes.len() - at).min(8);
            bytes[at..at + len].copy_from_slice(&rest[..len]);
            decode::<T>(&Bytes::from(bytes));
        });
    }
    damaged::<ObjectInfo>("object_info_t");
    damaged::<PgInfo>("pg_info_t");
    damaged::<PgLog>("pg_log_t");
    damaged::<PgLogEntry>("pg_log_entry_t");
    damaged::<PushOp>("PushOp");
    damaged::<ScrubMap>("ScrubMap");
    damaged::<OsdStat>("osd_stat_t");
    damaged::<SnapSet>("SnapSet");
    damaged::<PastIntervals>("PastIntervals");
}
