//! What a store of ours asks of those who read it (`OSD::get_osd_compat_set` at v16.2), and what is read.

use types::osd::{CompatSet, FeatureSet};

/// CEPH_OSD_FEATURE_INCOMPAT_* of 16.2.
pub(crate) fn compat_features() -> CompatSet {
    CompatSet {
        incompat: FeatureSet::of(&[
            (1, "initial feature set(~v.18)"),
            (2, "pginfo object"),
            (3, "object locator"),
            (4, "last_epoch_clean"),
            (5, "categories"),
            (6, "hobjectpool"),
            (7, "biginfo"),
            (8, "leveldbinfo"),
            (9, "leveldblog"),
            (10, "snapmapper"),
            (11, "sharded objects"),
            (12, "transaction hints"),
            (13, "pg meta object"),
            (14, "explicit missing set"),
            (15, "fastinfo pg attr"),
            (16, "deletes in missing set"),
            (17, "new snapmapper key structure"),
        ]),
        ..CompatSet::default()
    }
}

/// What of a store's features is not known here, for a text; nothing if it can be written to.
pub(crate) fn unknown(of_store: &CompatSet) -> Option<String> {
    let own = compat_features();
    let names = own.lacks(of_store);
    (!names.is_empty()).then(|| names.join(", "))
}
