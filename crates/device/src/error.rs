//! What a device said when it failed.

use core::fmt;
use std::io;

/// An I/O error that can be kept and told again: its kind, and the system's number, which says more (EIO has no kind).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceError {
    /// Its kind.
    pub kind: io::ErrorKind,
    /// The number the system gave it, if it comes from there.
    pub errno: Option<i32>,
}

impl From<&io::Error> for DeviceError {
    fn from(e: &io::Error) -> DeviceError {
        DeviceError { kind: e.kind(), errno: e.raw_os_error() }
    }
}

impl From<io::Error> for DeviceError {
    fn from(e: io::Error) -> DeviceError {
        (&e).into()
    }
}

impl From<io::ErrorKind> for DeviceError {
    fn from(kind: io::ErrorKind) -> DeviceError {
        DeviceError { kind, errno: None }
    }
}

impl From<DeviceError> for io::Error {
    fn from(e: DeviceError) -> io::Error {
        e.errno.map_or_else(|| e.kind.into(), io::Error::from_raw_os_error)
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from(*self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::rc::Rc;

    use futures_util::FutureExt;

    use super::*;
    use crate::faults::{Faults, FaultyFile};
    use crate::memory::MemoryFile;
    use crate::{BlockDevice, Piece, WriteCause};

    /// A failed disk was an "uncategorized error", and nothing said of which device.
    #[test]
    fn an_error_is_told_as_the_system_told_it() {
        let told = DeviceError::from(io::Error::from_raw_os_error(5));
        assert_eq!(told.to_string(), "Input/output error (os error 5)");
        assert_eq!(io::Error::from(told).raw_os_error(), Some(5));
        let faults = Rc::new(Faults::default());
        faults.writes_left.set(Some(0));
        let file = Rc::new(FaultyFile::new(MemoryFile::new(1 << 20, 4096), faults.clone()));
        let device = BlockDevice::named(file, Path::new("/dev/some"));
        assert_eq!(format!("{device:?}"), "BlockDevice(/dev/some, 1048576 bytes)");
        let write = || {
            let piece = Piece::new(vec![0; 4096].into(), WriteCause::Data);
            device.write(0, vec![piece]).now_or_never().unwrap().unwrap_err().to_string()
        };
        assert_eq!(write(), "Input/output error (os error 5)");
        faults.writes_left.set(None);
        assert_eq!(write(), "Input/output error (os error 5)", "what latched it");
    }
}
