//! Which of this machine's addresses a daemon listens at (`src/common/pick_address.cc` at v16.2).

use std::ffi::CStr;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ptr;

use config::{Config, Source};

use crate::failure::Failure;

/// Sets `public_addr` and `cluster_addr` where they are not given: to an address in `public_network` or
/// `cluster_network`, and without a network to the address that this machine has towards the monitors. What
/// stays empty is loopback's, and clients' for `cluster_addr`.
pub(crate) fn choose(config: &Config) -> Result<(), Failure> {
    for (of, towards_monitors) in [("public", true), ("cluster", false)] {
        let (addr, network) = (format!("{of}_addr"), format!("{of}_network"));
        if config.ip(&addr).is_some() {
            continue;
        }
        let only = config.str(&format!("{network}_interface"));
        let networks = config.str(&network);
        let chosen = match networks.trim().is_empty() {
            true if towards_monitors => route_to_monitors(config),
            true => None,
            false => Some(
                in_networks(&networks, &only, &interfaces())
                    .map_err(|why| Failure::new(format!("{network} = {networks}: {why}")))?,
            ),
        };
        if let Some(ip) = chosen {
            let taken = config.set(&addr, &ip.to_string(), Source::Override);
            taken.map_err(|e| Failure::new(format!("{addr} = {ip}: {e}")))?;
        }
    }
    Ok(())
}

/// The address that packets to the first monitor leave from; none where that is this machine's loopback.
fn route_to_monitors(config: &Config) -> Option<IpAddr> {
    let monitors = monclient::parse_mon_host(&config.str("mon_host")).ok()?;
    let monitor = monitors.iter().find_map(|addrs| addrs.msgr2()?.sock)?;
    let any: SocketAddr = match monitor.is_ipv4() {
        true => ([0, 0, 0, 0], 0).into(),
        false => ([0; 16], 0).into(),
    };
    // Nothing is sent: to connect a UDP socket is to look up the route.
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(monitor).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback()).then_some(ip)
}

/// The first address in the first of the networks (`10.0.0.0/24, fd00::/64`) that has one, of the interfaces
/// named if some are.
fn in_networks(
    networks: &str,
    only: &str,
    interfaces: &[(String, IpAddr)],
) -> Result<IpAddr, String> {
    let words = |text: &str| -> Vec<String> {
        let words = text.split([',', ';', ' ', '\t']).filter(|word| !word.is_empty());
        words.map(str::to_owned).collect()
    };
    let only = words(only);
    let usable = |name: &String| only.is_empty() || only.contains(name);
    for network in words(networks) {
        let parsed = network
            .split_once('/')
            .and_then(|(ip, len)| Some((ip.parse::<IpAddr>().ok()?, len.parse::<u32>().ok()?)));
        let Some((net, len)) = parsed.filter(|(net, len)| *len <= bits(*net).1) else {
            return Err(format!("{network:?} is no network like 10.0.0.0/24"));
        };
        let is_in = |ip: IpAddr| {
            let ((net, width), (ip, of)) = (bits(net), bits(ip));
            width == of && (net ^ ip).checked_shr(width - len).unwrap_or(0) == 0
        };
        if let Some((_, ip)) = interfaces.iter().find(|(name, ip)| usable(name) && is_in(*ip)) {
            return Ok(*ip);
        }
    }
    let have: Vec<String> = interfaces.iter().map(|(name, ip)| format!("{ip} ({name})")).collect();
    Err(format!("no interface has an address in it; there are {}", have.join(", ")))
}

/// An address as a number, and its bits.
fn bits(ip: IpAddr) -> (u128, u32) {
    match ip {
        IpAddr::V4(v4) => (v4.to_bits().into(), 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    }
}

/// This machine's addresses with the names of their interfaces: of those that are up, loopback's behind the
/// others (a service's address may stand there on each host), else in the kernel's order.
fn interfaces() -> Vec<(String, IpAddr)> {
    let mut found = Vec::new();
    let mut list: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: the call writes one pointer, to a list that is freed below.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Vec::new();
    }
    let mut at = list;
    // SAFETY: the list's entries live until it is freed; an entry's name ends in a zero, and its address is
    // of the length that its family says.
    while let Some(entry) = unsafe { at.as_ref() } {
        at = entry.ifa_next;
        let has = |flag: libc::c_int| entry.ifa_flags & flag as u32 != 0;
        if entry.ifa_addr.is_null() || !has(libc::IFF_UP) {
            continue;
        }
        // SAFETY: the address is not null, and every one begins with its family.
        let family = unsafe { (*entry.ifa_addr).sa_family };
        let ip: Option<IpAddr> = match i32::from(family) {
            libc::AF_INET => {
                // SAFETY: so it is for this family.
                let addr = unsafe { &*entry.ifa_addr.cast::<libc::sockaddr_in>() };
                Some(IpAddr::V4(u32::from_be(addr.sin_addr.s_addr).into()))
            }
            libc::AF_INET6 => {
                // SAFETY: so it is for this family.
                let addr = unsafe { &*entry.ifa_addr.cast::<libc::sockaddr_in6>() };
                Some(IpAddr::V6(addr.sin6_addr.s6_addr.into()))
            }
            _ => None,
        };
        if let Some(ip) = ip {
            // SAFETY: as above.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            found.push((has(libc::IFF_LOOPBACK), name.to_string_lossy().into_owned(), ip));
        }
    }
    // SAFETY: it came from `getifaddrs`, and nothing points into it any more.
    unsafe { libc::freeifaddrs(list) };
    found.sort_by_key(|(is_loopback, ..)| *is_loopback);
    found.into_iter().map(|(_, name, ip)| (name, ip)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Vec<(String, IpAddr)> {
        let interface = |name: &str, ip: &str| (name.to_owned(), ip.parse().unwrap());
        vec![
            interface("eth0", "192.0.2.9"),
            interface("eth1", "10.1.2.3"),
            interface("eth1", "fd00::3"),
            interface("lo", "127.0.0.1"),
        ]
    }

    /// Networks were taken and had no effect: each OSD without `public_addr` was at 127.0.0.1, on every host.
    #[test]
    fn an_address_in_the_network_is_taken() {
        for (networks, only, ip) in [
            ("192.0.2.0/24", "", "192.0.2.9"),
            ("10.0.0.0/24, 10.1.0.0/16", "", "10.1.2.3"),
            ("10.1.2.3/32", "", "10.1.2.3"),
            ("fd00::/64", "", "fd00::3"),
            ("0.0.0.0/0", "", "192.0.2.9"),
            ("0.0.0.0/0", "eth1", "10.1.2.3"),
        ] {
            assert_eq!(
                in_networks(networks, only, &machine()),
                Ok(ip.parse().unwrap()),
                "{networks}"
            );
        }
        for networks in ["10.2.0.0/16", "10.1.2.4/32", "10.1.0.0", "10.1.0.0/33", "net/8"] {
            let refusal = in_networks(networks, "", &machine()).unwrap_err();
            assert!(refusal.contains("network") || refusal.contains("eth0"), "{refusal}");
        }
    }

    #[test]
    fn loopback_comes_last() {
        let found = interfaces();
        assert!(found.last().is_none_or(|(_, ip)| ip.is_loopback()), "{found:?}");
    }
}
