//! Files with blocking I/O: they take no virtual time.

use std::io;

use env::SyncFile;

use crate::disk::Disk;

const EIO: i32 = 5;

/// An open file of one process.
#[derive(Debug)]
pub(crate) struct SimSyncFile {
    disk: Disk,
    /// Number of the process.
    process: u32,
}

impl SimSyncFile {
    pub(crate) fn open(disk: Disk, process: u32) -> io::Result<SimSyncFile> {
        let mut image = disk.image();
        if image.locked_by.is_some() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        image.open(process);
        drop(image);
        Ok(SimSyncFile { disk, process })
    }

    /// The image, unless the process that opened it is dead (its leftovers must do no harm).
    fn image(&self) -> io::Result<std::sync::MutexGuard<'_, crate::image::Image>> {
        let image = self.disk.image();
        if image.locked_by == Some(self.process) {
            return Ok(image);
        }
        Err(io::ErrorKind::NotConnected.into())
    }
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(EIO)
}

impl SyncFile for SimSyncFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.image()?.len())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut image = self.image()?;
        let odds = image.faults.read;
        if image.fails(odds) {
            return Err(eio());
        }
        if offset + buf.len() as u64 > image.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        image.read(offset, buf);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut image = self.image()?;
        let odds = image.faults.write;
        if image.fails(odds) {
            let share = image.share_of_failed();
            image.write_share(share, offset, data);
            return Err(eio());
        }
        image.write(offset, data);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.image()?.set_len(len);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut image = self.image()?;
        let odds = image.faults.sync;
        if image.fails(odds) {
            image.sync_has_failed();
            return Err(eio());
        }
        let last = image.last_write();
        image.sync(last);
        Ok(())
    }
}

impl Drop for SimSyncFile {
    fn drop(&mut self) {
        let mut image = self.disk.image();
        if image.locked_by == Some(self.process) {
            image.locked_by = None;
        }
    }
}
