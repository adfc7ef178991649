//! What the suite shares with the unit tests of backends, which `src/lib.rs` gives it to: a driver, random transactions and
//! the model that judges them.

mod dir;
mod driver;
mod model;
mod workload;

use store::filestore::{self, InlineXattrs};

pub(crate) use dir::Dir;
pub(crate) use driver::block_on;
pub(crate) use model::{Model, all_of, list_all};
pub(crate) use workload::{Sizes, bytes, numbered, object, pg, scattered, transaction};

/// Small folders, so that they split; few attributes in files, so that some spill.
pub(crate) fn file_settings(dir: &std::path::Path, limit: u64) -> filestore::Settings {
    filestore::Settings {
        split_above: 8,
        inline_xattrs: [InlineXattrs { count: 2, len: 200 }; 3],
        ..filestore::Settings::new(dir.join("journal"), limit)
    }
}
