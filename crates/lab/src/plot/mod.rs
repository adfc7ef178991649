//! Plots: figures drawn once and written as SVG and as PNG.

pub(crate) mod bars;
pub(crate) mod canvas;
pub(crate) mod frame;
pub(crate) mod lines;
mod png;
pub(crate) mod points;
pub(crate) mod series;

use std::path::Path;

use crate::causes::Cause;
use crate::{LabError, results};

pub(crate) use canvas::Drawing;

/// The colour of a cause, the same in all figures; compaction is yellow as in the paper.
pub(crate) fn colour(cause: Cause) -> &'static str {
    match cause {
        Cause::Data => "#3f6fb5",
        Cause::Files => "#e58a3c",
        Cause::RocksDb => "#7d5ba6",
        Cause::RocksDbWal => "#b79fd6",
        Cause::Journal => "#57a35a",
        Cause::Compaction => "#f2c531",
        Cause::ZeroFilled => "#9aa3ad",
        Cause::Padding => "#cfd5db",
        Cause::Cleaning => "#5fb3b3",
        Cause::FsMetadata => "#d9546a",
        Cause::FsJournal => "#8c2f45",
    }
}

/// Writes `DIR/NAME.svg` and `DIR/NAME.png`.
pub(crate) fn write(drawing: &Drawing, dir: &Path, name: &str) -> Result<(), LabError> {
    results::write(&dir.join(format!("{name}.svg")), drawing.svg().as_bytes())?;
    results::write(&dir.join(format!("{name}.png")), &png::render(drawing, 2.0)?)
}
