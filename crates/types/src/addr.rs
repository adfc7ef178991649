//! Network addresses: one endpoint of a daemon, and the vector of all its endpoints.
//!
//! ```text
//! entity_addr_t:    u8 1 | v1/c1 { u32 type | u32 nonce | u32 sockaddr length | sockaddr }
//! sockaddr:         u16 family (LE) | u16 port (BE) | address ...
//! entity_addrvec_t: u8 2 | u32 count | entity_addr_t ...
//! ```
//!
//! (`src/msg/msg_types.cc` at v16.2.) Readers also take the form before typed addresses and a
//! single address where a vector is due.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use core::str::FromStr;

use denc::{Denc, Error, Reader, Writer};
use smallvec::SmallVec;

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// Which messenger listens there. Wire: u32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum AddrType {
    /// No address.
    #[default]
    None,
    /// Messenger v1.
    Legacy,
    /// Messenger v2.
    Msgr2,
    /// Not said: clients, and entries of the blocklist.
    Any,
    /// A range of addresses: the nonce is the length of the prefix. Only in blocklists.
    Cidr,
}

impl AddrType {
    /// The word Ceph prints.
    pub fn name(self) -> &'static str {
        match self {
            AddrType::None => "none",
            AddrType::Legacy => "v1",
            AddrType::Msgr2 => "v2",
            AddrType::Any => "any",
            AddrType::Cidr => "cidr",
        }
    }
}

/// One endpoint of one process. Wire: entity_addr_t.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct EntityAddr {
    /// Which messenger.
    pub kind: AddrType,
    /// Tells apart processes that had the same port one after the other.
    pub nonce: u32,
    /// Address and port; `None` when nothing is known.
    pub sock: Option<SocketAddr>,
}

impl EntityAddr {
    /// A v2 endpoint.
    pub fn msgr2(sock: SocketAddr, nonce: u32) -> EntityAddr {
        EntityAddr { kind: AddrType::Msgr2, nonce, sock: Some(sock) }
    }

    /// A v1 endpoint.
    pub fn legacy(sock: SocketAddr, nonce: u32) -> EntityAddr {
        EntityAddr { kind: AddrType::Legacy, nonce, sock: Some(sock) }
    }

    /// An endpoint of no particular messenger.
    pub fn any(sock: SocketAddr, nonce: u32) -> EntityAddr {
        EntityAddr { kind: AddrType::Any, nonce, sock: Some(sock) }
    }

    /// Whether the IP is unset or 0.0.0.0 or `::`.
    pub fn is_blank_ip(&self) -> bool {
        self.sock.is_none_or(|s| s.ip().is_unspecified())
    }

    /// The port, 0 when unset.
    pub fn port(&self) -> u16 {
        self.sock.map_or(0, |s| s.port())
    }

    /// The IP, if there is one.
    pub fn ip(&self) -> Option<IpAddr> {
        self.sock.map(|s| s.ip())
    }

    /// `127.0.0.1:6800`, without type and nonce: the `addr` of JSON dumps.
    pub fn sockaddr_text(&self) -> impl fmt::Display {
        SockText(self.sock)
    }

    /// `127.0.0.1:6800/1234`, without the type (get_legacy_str).
    pub fn legacy_text(&self) -> impl fmt::Display {
        let addr = *self;
        fmt::from_fn(move |f| write!(f, "{}/{}", addr.sockaddr_text(), addr.nonce))
    }

    /// The same endpoint with type any, as the blocklist keys its entries.
    pub fn as_any(&self) -> EntityAddr {
        EntityAddr { kind: AddrType::Any, ..*self }
    }

    /// What addresses are ordered by, as by Ceph's memcmp of the struct: type and nonce as they lie
    /// in memory. [`EntityAddr::sockaddr`] follows.
    fn order_head(&self) -> [u8; 8] {
        let mut head = [0; 8];
        head[..4].copy_from_slice(&(self.kind as u32).to_le_bytes());
        head[4..].copy_from_slice(&self.nonce.to_le_bytes());
        head
    }

    /// The sockaddr as it lies in memory.
    fn sockaddr(&self) -> [u8; 28] {
        let mut bytes = [0; 28];
        let mut w = Writer::with_capacity(28);
        encode_sockaddr(self.sock, &mut w);
        bytes[..w.len()].copy_from_slice(w.as_slice());
        bytes
    }
}

impl Ord for EntityAddr {
    fn cmp(&self, other: &EntityAddr) -> core::cmp::Ordering {
        // Asked for every message sent: usually for the very address that is there.
        self.order_head().cmp(&other.order_head()).then_with(|| match self.sock == other.sock {
            true => core::cmp::Ordering::Equal,
            false => self.sockaddr().cmp(&other.sockaddr()),
        })
    }
}

impl PartialOrd for EntityAddr {
    fn partial_cmp(&self, other: &EntityAddr) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

struct SockText(Option<SocketAddr>);

impl fmt::Display for SockText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("(unrecognized address family 0)"),
            Some(SocketAddr::V4(s)) => s.fmt(f),
            Some(SocketAddr::V6(s)) => write!(f, "[{}]:{}", s.ip(), s.port()),
        }
    }
}

impl fmt::Display for EntityAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            AddrType::None => return f.write_str("-"),
            AddrType::Any => {}
            kind => write!(f, "{}:", kind.name())?,
        }
        write!(f, "{}/{}", self.sockaddr_text(), self.nonce)
    }
}

/// The text is no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseAddrError;

impl fmt::Display for ParseAddrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an address of the form [v1:|v2:|any:]ip[:port][/nonce]")
    }
}

impl std::error::Error for ParseAddrError {}

impl EntityAddr {
    /// Parses `[v1:|v2:|any:]ip[:port][/nonce]`, IPv6 in brackets; `default` is the type of a
    /// text that names none. `-` is no address.
    pub fn parse(text: &str, default: AddrType) -> Result<EntityAddr, ParseAddrError> {
        if text == "-" {
            return Ok(EntityAddr::default());
        }
        let (kind, rest) = match text {
            _ if text.starts_with("v1:") => (AddrType::Legacy, &text[3..]),
            _ if text.starts_with("v2:") => (AddrType::Msgr2, &text[3..]),
            _ if text.starts_with("any:") => (AddrType::Any, &text[4..]),
            _ => (default, text),
        };
        let (host, nonce) = match rest.rsplit_once('/') {
            Some((host, nonce)) => (host, nonce.parse().map_err(|_| ParseAddrError)?),
            None => (rest, 0),
        };
        let sock = if let Ok(sock) = host.parse::<SocketAddr>() {
            sock
        } else {
            let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
            SocketAddr::new(bare.parse().map_err(|_| ParseAddrError)?, 0)
        };
        Ok(EntityAddr { kind, nonce, sock: Some(sock) })
    }
}

impl FromStr for EntityAddr {
    type Err = ParseAddrError;
    fn from_str(s: &str) -> Result<EntityAddr, ParseAddrError> {
        EntityAddr::parse(s, AddrType::Msgr2)
    }
}

fn encode_sockaddr(sock: Option<SocketAddr>, w: &mut Writer) {
    match sock {
        None => w.zeros(SOCKADDR_UNSET_LEN),
        Some(SocketAddr::V4(s)) => {
            w.u16(AF_INET);
            w.raw(&s.port().to_be_bytes());
            w.raw(&s.ip().octets());
            w.zeros(8);
        }
        Some(SocketAddr::V6(s)) => {
            w.u16(AF_INET6);
            w.raw(&s.port().to_be_bytes());
            w.u32(s.flowinfo());
            w.raw(&s.ip().octets());
            w.u32(s.scope_id());
        }
    }
}

/// An address without a family is written as a whole, zeroed sockaddr union.
const SOCKADDR_UNSET_LEN: usize = 28;

fn be_port(r: &mut Reader<'_>) -> Result<u16, Error> {
    r.u16().map(u16::swap_bytes)
}

/// Reads the sockaddr that fills what is left of `r`.
fn decode_sockaddr(r: &mut Reader<'_>) -> Result<Option<SocketAddr>, Error> {
    if r.remaining() == 0 {
        return Ok(None);
    }
    Ok(match r.u16()? {
        AF_INET => {
            let port = be_port(r)?;
            let ip: [u8; 4] = r.get()?;
            Some(SocketAddr::new(Ipv4Addr::from(ip).into(), port))
        }
        AF_INET6 => {
            let port = be_port(r)?;
            let flow = r.u32()?;
            let ip: [u8; 16] = r.get()?;
            let scope = r.u32()?;
            Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, flow, scope).into())
        }
        0 => None,
        family => {
            return Err(Error::Invalid { what: "sockaddr family", value: family.into() });
        }
    })
}

impl EntityAddr {
    /// What follows marker 0: the form before typed addresses, with a sockaddr_storage whose
    /// family is big-endian.
    fn decode_before_types(r: &mut Reader<'_>) -> Result<EntityAddr, Error> {
        r.slice(3)?;
        let nonce = r.u32()?;
        let mut storage = [0; 128];
        storage.copy_from_slice(r.slice(128)?);
        storage[..2].reverse();
        let storage = bytes::Bytes::copy_from_slice(&storage);
        let sock = decode_sockaddr(&mut Reader::new(&storage))?;
        Ok(EntityAddr { kind: AddrType::Legacy, nonce, sock })
    }

    fn decode_typed(r: &mut Reader<'_>) -> Result<EntityAddr, Error> {
        r.envelope("EntityAddr", 1, 1, |r, _| {
            let kind = match r.u32()? {
                0 => AddrType::None,
                1 => AddrType::Legacy,
                2 => AddrType::Msgr2,
                3 => AddrType::Any,
                4 => AddrType::Cidr,
                value => {
                    return Err(Error::Invalid { what: "address type", value: value.into() });
                }
            };
            let nonce = r.u32()?;
            let sock = r.counted(decode_sockaddr)?;
            Ok(EntityAddr { kind, nonce, sock })
        })
    }

    fn decode_marked(marker: u8, r: &mut Reader<'_>) -> Result<EntityAddr, Error> {
        match marker {
            0 => EntityAddr::decode_before_types(r),
            1 => EntityAddr::decode_typed(r),
            _ => Err(Error::Invalid { what: "address marker", value: marker.into() }),
        }
    }
}

impl Denc for EntityAddr {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.envelope(1, 1, |w| {
            w.u32(self.kind as u32);
            w.u32(self.nonce);
            w.counted(|w| encode_sockaddr(self.sock, w));
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<EntityAddr, Error> {
        let marker = r.u8()?;
        EntityAddr::decode_marked(marker, r)
    }
}

/// All endpoints of one process, preferred first. Wire: entity_addrvec_t.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct AddrVec(pub SmallVec<[EntityAddr; 2]>);

impl AddrVec {
    /// The vector with one endpoint.
    pub fn of(addr: EntityAddr) -> AddrVec {
        AddrVec(SmallVec::from_iter([addr]))
    }

    /// Whether there is no endpoint.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The endpoints.
    pub fn iter(&self) -> impl Iterator<Item = &EntityAddr> {
        self.0.iter()
    }

    /// The first v2 endpoint.
    pub fn msgr2(&self) -> Option<&EntityAddr> {
        self.0.iter().find(|a| a.kind == AddrType::Msgr2)
    }

    /// The first endpoint, the blank address when there is none.
    pub fn front(&self) -> EntityAddr {
        self.0.first().copied().unwrap_or_default()
    }

    /// Whether `addr` is one of the endpoints.
    pub fn contains(&self, addr: &EntityAddr) -> bool {
        self.0.contains(addr)
    }

    /// Whether both list a common endpoint.
    pub fn shares_any(&self, other: &AddrVec) -> bool {
        self.0.iter().any(|a| other.contains(a))
    }

    /// The v1 endpoint, the first one when there is none, as JSON dumps show it, without type:
    /// `127.0.0.1:6801/77`.
    pub fn legacy_text(&self) -> impl fmt::Display {
        let legacy = self.0.iter().find(|a| a.kind == AddrType::Legacy).copied();
        legacy.unwrap_or_else(|| self.front()).legacy_text().to_string()
    }
}

impl FromIterator<EntityAddr> for AddrVec {
    fn from_iter<I: IntoIterator<Item = EntityAddr>>(addrs: I) -> AddrVec {
        AddrVec(addrs.into_iter().collect())
    }
}

impl fmt::Display for AddrVec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("-"),
            [one] => one.fmt(f),
            [first, rest @ ..] => {
                write!(f, "[{first}")?;
                rest.iter().try_for_each(|addr| write!(f, ",{addr}"))?;
                f.write_str("]")
            }
        }
    }
}

impl FromStr for AddrVec {
    type Err = ParseAddrError;
    /// `-`, one address, or `[a,b]`.
    fn from_str(s: &str) -> Result<AddrVec, ParseAddrError> {
        if s == "-" || s.is_empty() {
            return Ok(AddrVec::default());
        }
        // `[v2:...]` is a vector, `[::1]:6800` one IPv6 address.
        match s.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
            Some(list) if list.starts_with(['v', 'a']) => list.split(',').map(str::parse).collect(),
            _ => s.parse().map(AddrVec::of),
        }
    }
}

impl Denc for AddrVec {
    fn encode(&self, w: &mut Writer) {
        w.u8(2);
        w.count(self.0.len());
        self.0.iter().for_each(|addr| addr.encode(w));
    }
    fn decode(r: &mut Reader<'_>) -> Result<AddrVec, Error> {
        match r.u8()? {
            2 => {
                let n = r.count(EntityAddr::MIN_LEN)?;
                (0..n).map(|_| EntityAddr::decode(r)).collect()
            }
            marker => EntityAddr::decode_marked(marker, r).map(AddrVec::of),
        }
    }
}

impl EntityAddr {
    /// Marker, envelope, type, nonce, sockaddr length.
    const MIN_LEN: usize = 1 + 6 + 12;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms() {
        for text in ["v2:127.0.0.1:3300/0", "v1:10.0.0.1:6789/77", "v2:[::1]:3300/0", "-"] {
            assert_eq!(text.parse::<EntityAddr>().unwrap().to_string(), text);
        }
        let client = EntityAddr::parse("127.0.0.1:0/12345", AddrType::Any).unwrap();
        assert_eq!(client.to_string(), "127.0.0.1:0/12345");
        let both = "[v2:127.0.0.1:3300/0,v1:127.0.0.1:6789/0]";
        assert_eq!(both.parse::<AddrVec>().unwrap().to_string(), both);
        assert_eq!("10.1.2.3".parse::<EntityAddr>().unwrap().to_string(), "v2:10.1.2.3:0/0");
        assert!("v2:host:1/0".parse::<EntityAddr>().is_err());
        assert_eq!("[v2:127.0.0.1:3300/0]".parse::<AddrVec>().unwrap().0.len(), 1);
    }

    #[test]
    fn encodings_return() {
        for text in ["v2:127.0.0.1:3300/9", "v2:[fe80::1]:6800/1", "-"] {
            let addr: EntityAddr = text.parse().unwrap();
            assert_eq!(EntityAddr::from_bytes_exact(&addr.to_bytes()), Ok(addr));
        }
    }
}
