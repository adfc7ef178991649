//! Linux error numbers as the protocol sends them (negated on the wire).

use core::fmt;

/// A positive errno. On the wire and in `rval` it is negative: [`Errno::result`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident $value:literal $text:literal)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Errno = Errno($value);)*

            /// The name, `ENOENT`; `None` for numbers without one here.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// What strerror says of it; `None` for numbers without a name here.
            pub fn text(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

errnos! {
    EPERM 1 "Operation not permitted"
    ENOENT 2 "No such file or directory"
    ESRCH 3 "No such process"
    EINTR 4 "Interrupted system call"
    EIO 5 "Input/output error"
    ENXIO 6 "No such device or address"
    E2BIG 7 "Argument list too long"
    ENOEXEC 8 "Exec format error"
    EBADF 9 "Bad file descriptor"
    ECHILD 10 "No child processes"
    EAGAIN 11 "Resource temporarily unavailable"
    ENOMEM 12 "Cannot allocate memory"
    EACCES 13 "Permission denied"
    EFAULT 14 "Bad address"
    EBUSY 16 "Device or resource busy"
    EEXIST 17 "File exists"
    EXDEV 18 "Invalid cross-device link"
    ENODEV 19 "No such device"
    ENOTDIR 20 "Not a directory"
    EISDIR 21 "Is a directory"
    EINVAL 22 "Invalid argument"
    EFBIG 27 "File too large"
    ENOSPC 28 "No space left on device"
    EROFS 30 "Read-only file system"
    EMLINK 31 "Too many links"
    EPIPE 32 "Broken pipe"
    EDOM 33 "Numerical argument out of domain"
    ERANGE 34 "Numerical result out of range"
    EDEADLK 35 "Resource deadlock avoided"
    ENAMETOOLONG 36 "File name too long"
    ENOSYS 38 "Function not implemented"
    ENOTEMPTY 39 "Directory not empty"
    ELOOP 40 "Too many levels of symbolic links"
    ENODATA 61 "No data available"
    ETIME 62 "Timer expired"
    EPROTO 71 "Protocol error"
    EBADMSG 74 "Bad message"
    EOVERFLOW 75 "Value too large for defined data type"
    EILSEQ 84 "Invalid or incomplete multibyte or wide character"
    ERESTART 85 "Interrupted system call should be restarted"
    EMSGSIZE 90 "Message too long"
    EPROTOTYPE 91 "Protocol wrong type for socket"
    EOPNOTSUPP 95 "Operation not supported"
    EADDRINUSE 98 "Address already in use"
    EADDRNOTAVAIL 99 "Cannot assign requested address"
    ECONNABORTED 103 "Software caused connection abort"
    ECONNRESET 104 "Connection reset by peer"
    EISCONN 106 "Transport endpoint is already connected"
    ENOTCONN 107 "Transport endpoint is not connected"
    ESHUTDOWN 108 "Cannot send after transport endpoint shutdown"
    ETIMEDOUT 110 "Connection timed out"
    ECONNREFUSED 111 "Connection refused"
    EHOSTDOWN 112 "Host is down"
    EALREADY 114 "Operation already in progress"
    EINPROGRESS 115 "Operation now in progress"
    ESTALE 116 "Stale file handle"
    EDQUOT 122 "Disk quota exceeded"
    ECANCELED 125 "Operation canceled"
    EKEYREJECTED 129 "Key was rejected by service"
}

impl Errno {
    /// A write's snap context is older than the object's (ERESTART).
    pub const EOLDSNAPC: Errno = Errno::ERESTART;
    /// The client is blocklisted (ESHUTDOWN).
    pub const EBLOCKLISTED: Errno = Errno::ESHUTDOWN;

    /// The number as a result field carries it: negative.
    pub const fn result(self) -> i32 {
        -self.0
    }

    /// The error in a result field; `None` when it is not negative.
    pub fn from_result(result: i32) -> Option<Errno> {
        (result < 0).then(|| Errno(result.wrapping_neg()))
    }
}

/// Ceph's cpp_strerror: `(2) No such file or directory`.
impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => write!(f, "({}) {text}", self.0),
            None => write!(f, "({}) Unknown error {}", self.0, self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl std::error::Error for Errno {}
