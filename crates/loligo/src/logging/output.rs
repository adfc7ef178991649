//! Where a daemon's lines go: `log_file` and the options beside it.
//!
//! ```text
//! log_file, where somebody has set it and log_to_file is on     every line
//! standard error  without a file, or with log_to_stderr         every line
//!                 else with err_to_stderr (on in daemons)       errors
//! ```
//! Where standard error is that file already, as `loligo up` has it, nothing is written twice.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;

use config::{Config, Source};
use tracing::Level;

/// The options that count.
pub(super) const OPTIONS: [&str; 5] =
    ["log_file", "log_to_file", "log_to_stderr", "err_to_stderr", "log_stderr_prefix"];

/// Where one daemon's lines go.
#[derive(Debug, Default)]
pub(super) struct Output {
    file: Option<LogFile>,
    all_to_stderr: bool,
    errors_to_stderr: bool,
    stderr_prefix: String,
}

/// A file of lines.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    file: File,
    is_stderr: bool,
}

/// A file that cannot be opened: lines go on to where they went.
#[derive(Debug)]
pub(super) struct CannotOpen {
    pub(super) path: PathBuf,
    pub(super) error: io::Error,
}

impl Output {
    /// Follows the options.
    pub(super) fn take(&mut self, config: &Config) -> Result<(), CannotOpen> {
        self.all_to_stderr = config.bool("log_to_stderr");
        self.errors_to_stderr = config.bool("err_to_stderr");
        self.stderr_prefix = config.str("log_stderr_prefix");
        // Ceph's default is a path below /var/log/ceph, which who starts a daemon by hand does not expect.
        let is_told = config.source("log_file").is_some_and(|s| s != Source::Default);
        let path = config.str("log_file");
        if !is_told || path.is_empty() || !config.bool("log_to_file") {
            self.file = None;
        } else if self.file.as_ref().is_none_or(|log| log.path.as_os_str() != path.as_str()) {
            self.file = Some(LogFile::open(PathBuf::from(path))?);
        }
        Ok(())
    }

    /// Opens the file anew: what had its name was moved away.
    pub(super) fn reopen(&mut self) -> Result<(), CannotOpen> {
        let Some(old) = &mut self.file else { return Ok(()) };
        let mut new = LogFile::open(old.path.clone())?;
        if old.is_stderr {
            // Panics and the last words of the process, too, go where its lines go.
            for fd in [libc::STDERR_FILENO, libc::STDOUT_FILENO] {
                if is_same(&old.file, fd) {
                    // SAFETY: both are open; the call takes numbers only.
                    unsafe { libc::dup2(new.file.as_raw_fd(), fd) };
                }
            }
            new.is_stderr = is_same(&new.file, libc::STDERR_FILENO);
        }
        *old = new;
        Ok(())
    }

    /// Whether lines go to a file that standard error is not.
    pub(super) fn is_apart(&self) -> bool {
        self.file.as_ref().is_some_and(|log| !log.is_stderr)
    }

    /// Writes a line, which ends with its line feed.
    pub(super) fn write(&self, level: Level, line: &[u8]) {
        let written = self.file.as_ref().is_some_and(|log| (&log.file).write_all(line).is_ok());
        let is_stderr = self.file.as_ref().is_some_and(|log| log.is_stderr);
        let wanted = self.all_to_stderr || self.errors_to_stderr && level == Level::ERROR;
        if !written || wanted && !is_stderr {
            // In one piece: others write there, too.
            let text = [self.stderr_prefix.as_bytes(), line].concat();
            let _ = io::stderr().write_all(&text);
        }
    }
}

impl LogFile {
    fn open(path: PathBuf) -> Result<LogFile, CannotOpen> {
        match File::options().create(true).append(true).open(&path) {
            Ok(file) => Ok(LogFile { is_stderr: is_same(&file, libc::STDERR_FILENO), path, file }),
            Err(error) => Err(CannotOpen { path, error }),
        }
    }
}

/// Whether a descriptor is of the same file.
fn is_same(file: &File, fd: RawFd) -> bool {
    let identity = |fd: RawFd| {
        let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the answer has room, and is read only if the call has filled it.
        let stat = unsafe { (libc::fstat(fd, stat.as_mut_ptr()) == 0).then(|| stat.assume_init()) };
        stat.map(|stat| (stat.st_dev, stat.st_ino))
    };
    identity(file.as_raw_fd()).is_some_and(|own| identity(fd) == Some(own))
}
