//! Socket addresses in the kernel's form, and the calls on sockets that never wait.

use std::ffi::OsStr;
use std::io;
use std::mem::size_of;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::checked;

/// Connections the kernel holds for us before they are accepted.
const BACKLOG: libc::c_int = 512;

/// A `sockaddr` of any family with its length.
#[derive(Clone, Copy)]
pub(super) struct RawAddr {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl RawAddr {
    fn empty() -> RawAddr {
        // SAFETY: all zeros is a valid sockaddr_storage (family AF_UNSPEC).
        let storage = unsafe { std::mem::zeroed() };
        RawAddr { storage, len: 0 }
    }

    fn of<T>(addr: T) -> RawAddr {
        const { assert!(size_of::<T>() <= size_of::<libc::sockaddr_storage>()) };
        let mut raw = RawAddr::empty();
        raw.len = size_of::<T>() as libc::socklen_t;
        // SAFETY: `T` is one of the sockaddr types, which sockaddr_storage is made to hold (size
        // checked above, alignment by POSIX).
        unsafe { std::ptr::from_mut(&mut raw.storage).cast::<T>().write(addr) };
        raw
    }

    pub(super) fn from_ip(addr: SocketAddr) -> RawAddr {
        match addr {
            SocketAddr::V4(v4) => RawAddr::of(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(v6) => RawAddr::of(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            }),
        }
    }

    pub(super) fn from_path(path: &Path) -> io::Result<RawAddr> {
        let bytes = OsStr::as_bytes(path.as_os_str());
        let mut addr = libc::sockaddr_un {
            sun_family: libc::AF_UNIX as libc::sa_family_t,
            sun_path: [0; 108],
        };
        if bytes.is_empty() || bytes.len() >= addr.sun_path.len() || bytes.contains(&0) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{}: unix socket path empty or over 107 bytes", path.display()),
            ));
        }
        for (to, from) in addr.sun_path.iter_mut().zip(bytes) {
            *to = from.cast_signed();
        }
        Ok(RawAddr::of(addr))
    }

    /// A unix socket's name that stands in no folder (`unix(7)`): a zero byte, then the name, which is
    /// cut if it is too long.
    pub(super) fn from_abstract(name: &str) -> RawAddr {
        let mut addr = libc::sockaddr_un {
            sun_family: libc::AF_UNIX as libc::sa_family_t,
            sun_path: [0; 108],
        };
        let mut len = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1;
        for (to, from) in addr.sun_path[1..].iter_mut().zip(name.bytes()) {
            *to = from.cast_signed();
            len += 1;
        }
        let mut raw = RawAddr::of(addr);
        raw.len = len as libc::socklen_t;
        raw
    }

    fn to_ip(self) -> Option<SocketAddr> {
        let storage = std::ptr::from_ref(&self.storage);
        match libc::c_int::from(self.storage.ss_family) {
            libc::AF_INET => {
                // SAFETY: the family says which type the storage holds.
                let addr = unsafe { storage.cast::<libc::sockaddr_in>().read() };
                let ip = Ipv4Addr::from(addr.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddrV4::new(ip, u16::from_be(addr.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: the family says which type the storage holds.
                let addr = unsafe { storage.cast::<libc::sockaddr_in6>().read() };
                let ip = Ipv6Addr::from(addr.sin6_addr.s6_addr);
                let port = u16::from_be(addr.sin6_port);
                Some(SocketAddrV6::new(ip, port, addr.sin6_flowinfo, addr.sin6_scope_id).into())
            }
            _ => None,
        }
    }

    pub(super) fn family(&self) -> libc::c_int {
        libc::c_int::from(self.storage.ss_family)
    }

    pub(super) fn as_ptr(&self) -> *const libc::sockaddr {
        std::ptr::from_ref(&self.storage).cast()
    }

    pub(super) fn len(&self) -> libc::socklen_t {
        self.len
    }
}

/// A new stream socket; TCP ones send at once what they are given.
pub(super) fn stream(family: libc::c_int, flags: libc::c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | flags;
    // SAFETY: no memory is passed.
    let fd = checked(unsafe { libc::socket(family, kind, 0) })?;
    // SAFETY: the descriptor is new and ours.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    if family != libc::AF_UNIX {
        set_no_delay(&fd);
    }
    Ok(fd)
}

/// Turns Nagle's delay off. Failure (a unix socket, a peer that reset at once) does no harm.
pub(super) fn set_no_delay(fd: &OwnedFd) {
    let _ = set_flag(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY);
}

/// Has the kernel ask a silent peer whether it is there: first after `idle`, then a few times more.
pub(super) fn keep_alive(fd: &OwnedFd, idle: Duration) -> io::Result<()> {
    const INTERVAL_SECONDS: libc::c_int = 10;
    const PROBES: libc::c_int = 6;
    let idle = libc::c_int::try_from(idle.as_secs().max(1)).unwrap_or(libc::c_int::MAX);
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, idle)?;
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, INTERVAL_SECONDS)?;
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, PROBES)?;
    set_flag(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE)
}

fn set_flag(fd: &OwnedFd, level: libc::c_int, name: libc::c_int) -> io::Result<()> {
    set_int(fd, level, name, 1)
}

fn set_int(
    fd: &OwnedFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option's value is a valid int of the length given.
    let result = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, std::ptr::from_ref(&value).cast(), len)
    };
    checked(result).map(drop)
}

/// A listening socket.
pub(super) fn listen(addr: &RawAddr, flags: libc::c_int) -> io::Result<OwnedFd> {
    let fd = stream(addr.family(), flags)?;
    if addr.family() != libc::AF_UNIX {
        set_flag(&fd, libc::SOL_SOCKET, libc::SO_REUSEADDR)?;
    }
    // SAFETY: `addr` holds a valid address of the length it says.
    checked(unsafe { libc::bind(fd.as_raw_fd(), addr.as_ptr(), addr.len()) })?;
    // SAFETY: no memory is passed.
    checked(unsafe { libc::listen(fd.as_raw_fd(), BACKLOG) })?;
    Ok(fd)
}

/// A listening unix socket in the place of one that nobody serves any more.
pub(super) fn listen_unix(path: &Path, flags: libc::c_int) -> io::Result<OwnedFd> {
    let addr = RawAddr::from_path(path)?;
    match listen(&addr, flags) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            match UnixStream::connect(path) {
                Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused => {}
                _ => return Err(error),
            }
            // A file of another kind refuses connections, too.
            if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
                return Err(io::Error::new(error.kind(), "there is a file that is no socket"));
            }
            std::fs::remove_file(path)?;
            listen(&addr, flags)
        }
        other => other,
    }
}

/// A stream connected to who listens on a unix socket, without waiting for room in its queue.
pub(super) fn connect_at_once(addr: &RawAddr, flags: libc::c_int) -> io::Result<OwnedFd> {
    let fd = stream(addr.family(), flags | libc::SOCK_NONBLOCK)?;
    // SAFETY: `addr` holds a valid address of the length it says.
    checked(unsafe { libc::connect(fd.as_raw_fd(), addr.as_ptr(), addr.len()) })?;
    if flags & libc::SOCK_NONBLOCK == 0 {
        // SAFETY: no memory is passed; a stream socket has no other flags of this kind set.
        checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, 0) })?;
    }
    Ok(fd)
}

/// Whether the other end of a unix stream is a process of the user that this one runs as.
pub(super) fn peer_is_ours(fd: &OwnedFd) -> bool {
    let nobody = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    // SAFETY: SO_PEERCRED's value is a ucred.
    let peer = unsafe { option(fd, libc::SO_PEERCRED, nobody) };
    // SAFETY: takes nothing and always succeeds.
    peer.is_ok_and(|peer| peer.uid == unsafe { libc::geteuid() })
}

/// The error left on a socket (of a connect that ended later).
pub(super) fn take_error(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: SO_ERROR's value is an int.
    match unsafe { option(fd, libc::SO_ERROR, 0_i32) }? {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// What an option of a socket is; `value` is overwritten.
///
/// # Safety
/// `T` is the type of the option's value, of which any bytes are one.
unsafe fn option<T: Copy>(fd: &OwnedFd, name: libc::c_int, mut value: T) -> io::Result<T> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let place = std::ptr::from_mut(&mut value).cast();
    // SAFETY: there is room for a value, and `len` says how much.
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, name, place, &mut len) };
    checked(result).map(|_| value)
}

/// Ends both directions.
pub(super) fn shutdown(fd: &OwnedFd) {
    // SAFETY: no memory is passed. An error means that there is no connection to end.
    unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_RDWR) };
}

pub(super) fn local_addr(fd: &OwnedFd) -> Option<SocketAddr> {
    name_of(fd, libc::getsockname)
}

pub(super) fn peer_addr(fd: &OwnedFd) -> Option<SocketAddr> {
    name_of(fd, libc::getpeername)
}

type NameCall =
    unsafe extern "C" fn(libc::c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> libc::c_int;

fn name_of(fd: &OwnedFd, call: NameCall) -> Option<SocketAddr> {
    let mut addr = RawAddr::empty();
    addr.len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    let storage = std::ptr::from_mut(&mut addr.storage).cast();
    // SAFETY: there is room for any address, and `len` says how much.
    checked(unsafe { call(fd.as_raw_fd(), storage, &mut addr.len) }).ok()?;
    addr.to_ip()
}
