//! `network 10.0.0.0/8`: a grant for clients from there only.

use std::net::IpAddr;

use types::addr::EntityAddr;

/// A network as it was written; one that does not parse contains nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// The text.
    pub text: String,
    parsed: Option<(IpAddr, u32)>,
}

impl Network {
    /// A network from its text.
    pub fn new(text: String) -> Network {
        let parsed = text.split_once('/').and_then(|(ip, prefix)| {
            let ip = ip.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
            Some((ip, prefix.parse().ok()?))
        });
        Network { text, parsed }
    }

    /// Whether the text is a network.
    pub fn is_valid(&self) -> bool {
        self.parsed.is_some()
    }

    /// Whether the address is in it.
    pub fn contains(&self, addr: &EntityAddr) -> bool {
        match (self.parsed, addr.ip()) {
            (Some((IpAddr::V4(net), prefix)), Some(IpAddr::V4(ip))) => {
                (u32::from(net) ^ u32::from(ip)).leading_zeros() >= prefix.min(32)
            }
            (Some((IpAddr::V6(net), prefix)), Some(IpAddr::V6(ip))) => {
                (u128::from(net) ^ u128::from(ip)).leading_zeros() >= prefix.min(128)
            }
            _ => false,
        }
    }
}
