//! How images and sizes are written on the command line: `[POOL/[NAMESPACE/]]IMAGE[@SNAP]`, `10G`.

use std::fmt;
use std::str::FromStr;

/// The pool of images named without one (`rbd_default_pool`).
pub(crate) const DEFAULT_POOL: &str = "rbd";

/// An image or a snapshot of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageSpec {
    pub(crate) pool: String,
    pub(crate) namespace: String,
    pub(crate) image: String,
    pub(crate) snap: Option<String>,
}

impl FromStr for ImageSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<ImageSpec, String> {
        let (path, snap) = match text.split_once('@') {
            Some((path, snap)) => (path, Some(snap.to_owned())),
            None => (text, None),
        };
        let parts: Vec<&str> = path.split('/').collect();
        let (pool, namespace, image) = match parts[..] {
            [image] => (DEFAULT_POOL, "", image),
            [pool, image] => (pool, "", image),
            [pool, namespace, image] => (pool, namespace, image),
            _ => return Err("more than two slashes; write POOL/NAMESPACE/IMAGE@SNAP".into()),
        };
        if pool.is_empty() || image.is_empty() || snap.as_deref() == Some("") {
            return Err("an empty name; write POOL/NAMESPACE/IMAGE@SNAP".into());
        }
        Ok(ImageSpec {
            pool: pool.to_owned(),
            namespace: namespace.to_owned(),
            image: image.to_owned(),
            snap,
        })
    }
}

impl fmt::Display for ImageSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.pool)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.image)?;
        self.snap.iter().try_for_each(|snap| write!(f, "@{snap}"))
    }
}

/// Bytes: `4K`, `10GiB`, `512`.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    config::parse_bytes(text).ok_or_else(|| format!("{text:?} is not a size like 4K or 1G"))
}

/// A size of an image: a number alone counts MiB, as for Ceph's `rbd`.
pub(crate) fn parse_mib(text: &str) -> Result<u64, String> {
    let is_number = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    if is_number { parse_bytes(&format!("{text}M")) } else { parse_bytes(text) }
}

/// Bytes for people: `10 GiB`.
pub(crate) fn bytes_text(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let power = (bytes.max(1).ilog2() / 10) as usize;
    let value = bytes as f64 / (1u64 << (power * 10)) as f64;
    if bytes.is_multiple_of(1 << (power * 10)) {
        format!("{} {}", bytes >> (power * 10), units[power])
    } else {
        format!("{value:.1} {}", units[power])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sizes_as_people_write_them() {
        let spec: ImageSpec = "p/n/i@s".parse().unwrap();
        assert_eq!((spec.to_string().as_str(), spec.snap.as_deref()), ("p/n/i@s", Some("s")));
        assert_eq!("i".parse::<ImageSpec>().unwrap().to_string(), "rbd/i");
        for bad in ["", "a/b/c/d", "p/", "i@", "/i"] {
            assert!(bad.parse::<ImageSpec>().is_err(), "{bad}");
        }
        assert_eq!(parse_bytes("4k"), Ok(4096));
        assert_eq!(parse_bytes("1GiB"), Ok(1 << 30));
        assert_eq!(parse_bytes("512"), Ok(512));
        // `resize --size 2048` cut an image to 2 KiB where 2 GiB were meant.
        assert_eq!((parse_mib("10"), parse_mib("512B")), (Ok(10 << 20), Ok(512)));
        assert!(parse_bytes("1x").is_err() && parse_bytes("k").is_err());
        assert_eq!((bytes_text(10 << 30), bytes_text(1536)), ("10 GiB".into(), "1.5 KiB".into()));
    }
}
