//! Host names in `mon_host`: replaced by addresses before it is parsed, as Ceph does when a
//! daemon or client starts (`MonMap::init_with_hosts`, `resolve_addrs`, at v16.2).

use std::fmt;
use std::net::IpAddr;

/// A host name that has no address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownHost {
    /// The name.
    pub name: String,
    /// What the resolver says.
    pub why: String,
}

impl fmt::Display for UnknownHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mon_host: {:?} is no address and no known host: {}", self.name, self.why)
    }
}

impl std::error::Error for UnknownHost {}

/// `mon_host` with addresses for names. `lookup` gives a name's addresses, in the resolver's order;
/// of these the IPv4 ones are taken if there are any. A name by itself stands for one monitor at
/// each of them, a name in a group (`[v2:host:3300,v1:host:6789]`) for the first.
pub fn resolve_mon_host(
    text: &str,
    lookup: impl Fn(&str) -> Result<Vec<IpAddr>, String>,
) -> Result<String, UnknownHost> {
    let mut out = String::with_capacity(text.len());
    let mut depth = 0_u32;
    let mut rest = text;
    let is_separator = |c: char| matches!(c, ',' | ';' | '[' | ']') || c.is_whitespace();
    while let Some(first) = rest.chars().next() {
        if is_separator(first) {
            match first {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            out.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let end = rest.find(is_separator).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        let Some((before, name, behind)) = split_host(word) else {
            out.push_str(word);
            continue;
        };
        let unknown = |why: String| UnknownHost { name: name.to_owned(), why };
        let all = lookup(name).map_err(unknown)?;
        let mut found: Vec<&IpAddr> = all.iter().filter(|ip| ip.is_ipv4()).collect();
        if found.is_empty() {
            found = all.iter().collect();
        }
        if found.is_empty() {
            return Err(unknown("it has no address".to_owned()));
        }
        found.dedup();
        found.truncate(if depth > 0 { 1 } else { usize::MAX });
        let shown: Vec<String> = found
            .iter()
            .map(|ip| match ip {
                IpAddr::V4(ip) => format!("{before}{ip}{behind}"),
                IpAddr::V6(ip) => format!("{before}[{ip}]{behind}"),
            })
            .collect();
        out.push_str(&shown.join(","));
    }
    Ok(out)
}

/// `v2:`, `host`, `:3300/0` of an address with a name in it; `None` for anything else.
fn split_host(word: &str) -> Option<(&str, &str, &str)> {
    let prefix = ["v1:", "v2:", "any:"].into_iter().find(|prefix| word.starts_with(prefix));
    let (before, address) = word.split_at(prefix.map_or(0, str::len));
    let end = address.find([':', '/']).unwrap_or(address.len());
    let (name, behind) = address.split_at(end);
    let is_name = name.contains(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
    // More colons: an IPv6 address without its brackets, or nothing at all.
    (is_name && behind.matches(':').count() <= 1).then_some((before, name, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Result<Vec<IpAddr>, String> {
        let text = match name {
            "mon-a" => "10.0.0.1",
            "many.example.org" => "fd00::1 10.0.0.2 10.0.0.3",
            "six" => "fd00::6",
            "empty" => "",
            _ => return Err("not known".to_owned()),
        };
        Ok(text.split_whitespace().map(|ip| ip.parse().unwrap()).collect())
    }

    #[test]
    fn names_become_addresses_and_the_rest_stays() {
        for (text, want) in [
            ("mon-a", "10.0.0.1"),
            ("mon-a:3300, 10.9.9.9", "10.0.0.1:3300, 10.9.9.9"),
            ("v2:mon-a:3300/0", "v2:10.0.0.1:3300/0"),
            ("[v2:mon-a:3300,v1:mon-a:6789]", "[v2:10.0.0.1:3300,v1:10.0.0.1:6789]"),
            ("many.example.org;mon-a", "10.0.0.2,10.0.0.3;10.0.0.1"),
            ("[v2:many.example.org:3300]", "[v2:10.0.0.2:3300]"),
            ("six", "[fd00::6]"),
            ("[v2:six:3300/0]", "[v2:[fd00::6]:3300/0]"),
            ("[v2:[fd00::9]:3300/0] [::1]:3300", "[v2:[fd00::9]:3300/0] [::1]:3300"),
            ("fd00::9", "fd00::9"),
            ("", ""),
        ] {
            assert_eq!(resolve_mon_host(text, lookup).as_deref(), Ok(want));
            if !want.contains("fd00::9") && !want.is_empty() {
                assert!(crate::parse_mon_host(want).is_ok_and(|mons| !mons.is_empty()), "{want}");
            }
        }
        for name in ["nowhere", "empty"] {
            assert_eq!(resolve_mon_host(name, lookup).unwrap_err().name, name);
        }
    }
}
