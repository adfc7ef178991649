//! Values as people write them, checked against an option and brought to the form Ceph shows.

use std::fmt;

use types::{AddrVec, EntityAddr};

use crate::numbers::{
    NumberError, Units, parse_float, parse_iec, parse_integer, parse_secs, parse_si,
    parse_si_unsigned,
};
use crate::{Kind, OptionDef};

/// Why a value is refused (EINVAL).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueError {
    /// Not such a number as the option has.
    Number(NumberError),
    /// No names or number of image features.
    NotFeatures {
        /// What was given.
        got: String,
    },
    /// No address or UUID, of which Ceph says nothing.
    Malformed,
    /// Neither `N` nor `N/M`.
    NotALogLevel,
    /// Levels of logging that there are not (ERANGE).
    LogLevelRange,
    /// Below the smallest or above the largest value.
    OutOfRange {
        /// The smallest, or empty.
        min: &'static str,
        /// The largest, or empty.
        max: &'static str,
        /// What was given.
        got: String,
    },
    /// Not one of the allowed words.
    NotAChoice {
        /// The words.
        choices: &'static str,
        /// What was given.
        got: String,
    },
}

impl ValueError {
    /// The error's number; positive.
    pub fn errno(&self) -> i32 {
        match self {
            ValueError::LogLevelRange => ERANGE,
            _ => EINVAL,
        }
    }
}

const EINVAL: i32 = 22;
const ERANGE: i32 = 34;

impl From<NumberError> for ValueError {
    fn from(error: NumberError) -> ValueError {
        ValueError::Number(error)
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueError::Number(error) => error.fmt(f),
            ValueError::NotFeatures { got } => {
                write!(f, "Expected option value to be image features, got '{got}'")
            }
            ValueError::Malformed => Ok(()),
            ValueError::NotALogLevel => {
                f.write_str("value must take the form N or N/M, where N and M are integers")
            }
            ValueError::LogLevelRange => f.write_str("value must be in range [0, 99]"),
            ValueError::OutOfRange { min, max: "", got } => {
                write!(f, "Value '{got}' is below minimum {min}")
            }
            ValueError::OutOfRange { min: "", max, got } => {
                write!(f, "Value '{got}' exceeds maximum {max}")
            }
            ValueError::OutOfRange { min, max, got } => {
                write!(f, "Value '{got}' is not in range [{min}, {max}]")
            }
            ValueError::NotAChoice { choices, got } => {
                write!(f, "'{got}' is not one of the permitted values: ")?;
                f.write_str(&choices.replace('|', ", "))
            }
        }
    }
}

/// `true`, `false` (any case) or a number of 32 bits.
pub fn parse_bool(text: &str) -> Result<bool, NumberError> {
    if text.eq_ignore_ascii_case("true") {
        return Ok(true);
    }
    if text.eq_ignore_ascii_case("false") {
        return Ok(false);
    }
    let n = parse_integer(text)?;
    let n = i32::try_from(n).map_err(|_| NumberError::Overflow { got: text.to_owned() })?;
    Ok(n != 0)
}

/// Checks a value (no `$` in it any more) and brings it to the form shown: numbers in plain
/// digits, floats with six decimals, `N/M` for log levels.
pub fn normalize(option: &OptionDef, value: &str) -> Result<String, ValueError> {
    let text = match option.kind {
        Kind::Uint => parse_si_unsigned(value)?.to_string(),
        Kind::Int => parse_si(value)?.to_string(),
        Kind::Size => parse_iec(value)?.to_string(),
        Kind::Float => match parse_float(value)? {
            n if n.is_nan() => "nan".to_owned(),
            n => format!("{n:.6}"),
        },
        Kind::Bool => parse_bool(value)?.to_string(),
        Kind::Secs => parse_secs(value)?.to_string(),
        Kind::Millisecs => match parse_integer(value)? {
            n if n < 0 => return Err(ValueError::Number(NumberError::Negative(Units::Si))),
            n => n.to_string(),
        },
        Kind::Uuid => {
            let value = value.trim();
            let good = value.len() == 36
                && value.bytes().enumerate().all(|(i, b)| match i {
                    8 | 13 | 18 | 23 => b == b'-',
                    _ => b.is_ascii_hexdigit(),
                });
            if !good {
                return Err(ValueError::Malformed);
            }
            value.to_ascii_lowercase()
        }
        Kind::Str if option.name.starts_with("debug_") && option.default.contains('/') => {
            log_level(value)?
        }
        Kind::Str if option.name == "rbd_default_features" => rbd_features(value)
            .ok_or_else(|| ValueError::NotFeatures { got: value.to_owned() })?
            .to_string(),
        Kind::Str => value.to_string(),
        Kind::Addr => {
            let addr: EntityAddr = value.parse().map_err(|_| ValueError::Malformed)?;
            addr.to_string()
        }
        // No addresses at all are the default, written `-`.
        Kind::AddrVec if value.is_empty() => return Err(ValueError::Malformed),
        Kind::AddrVec => {
            let addrs: AddrVec = value.parse().map_err(|_| ValueError::Malformed)?;
            addrs.to_string()
        }
    };
    if !option.choices.is_empty() && !option.choices.split('|').any(|word| word == text) {
        return Err(ValueError::NotAChoice { choices: option.choices, got: value.to_string() });
    }
    let number: Option<f64> = match option.kind {
        Kind::Str | Kind::Addr | Kind::AddrVec | Kind::Uuid | Kind::Bool => None,
        _ => text.parse().ok(),
    };
    if let Some(n) = number {
        let below = option.min.parse::<f64>().is_ok_and(|min| n < min);
        let above = option.max.parse::<f64>().is_ok_and(|max| n > max);
        if below || above {
            return Err(ValueError::OutOfRange { min: option.min, max: option.max, got: text });
        }
    }
    Ok(text)
}

/// Features by bit or by name; nothing is what images have by default. Librbd's own (`operations`,
/// `migrating`, `non-primary`) are left out where they are named, and refused as a number, as in Ceph.
fn rbd_features(value: &str) -> Option<u64> {
    const NAMES: [&str; 11] = [
        "layering",
        "striping",
        "exclusive-lock",
        "object-map",
        "fast-diff",
        "deep-flatten",
        "journaling",
        "data-pool",
        "operations",
        "migrating",
        "non-primary",
    ];
    const DEFAULT: u64 = 0b11_1101;
    const USERS: u64 = 0xff;
    let value = value.trim();
    if value.is_empty() {
        return Some(DEFAULT);
    }
    if let Ok(bits) = value.parse::<u64>() {
        return (bits & !USERS == 0).then_some(bits);
    }
    let mut bits = 0;
    for name in value.split(',') {
        bits |= 1 << NAMES.iter().position(|known| *known == name.trim())?;
    }
    Some(bits & USERS)
}

/// `N` or `N/M`; as in Ceph, what stands behind the numbers is passed over.
fn log_level(value: &str) -> Result<String, ValueError> {
    let Some((log, rest)) = leading_number(value) else { return Err(ValueError::NotALogLevel) };
    let gather = rest.strip_prefix('/').and_then(leading_number).map_or(log, |(n, _)| n);
    if ![log, gather].iter().all(|n| LOG_LEVELS.contains(n)) {
        return Err(ValueError::LogLevelRange);
    }
    Ok(format!("{log}/{gather}"))
}

const LOG_LEVELS: std::ops::RangeInclusive<i64> = 0..=99;

/// The number a text begins with, and what follows. One of too many digits is in no range.
fn leading_number(text: &str) -> Option<(i64, &str)> {
    let text = text.trim_start();
    let sign = usize::from(text.starts_with(['+', '-']));
    let len = text[sign..].bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(sign + len);
    (len > 0).then(|| (number.parse().unwrap_or(i64::MAX), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::option;

    /// They were kept as they were written, and nonsense, too; Ceph keeps the number.
    #[test]
    fn features_of_images_are_a_number() {
        let of = |value: &str| normalize(option("rbd_default_features").unwrap(), value);
        for (value, kept) in [
            ("layering , striping", "3"),
            (option("rbd_default_features").unwrap().default, "61"),
            ("", "61"),
            (" 61 ", "61"),
            ("0", "0"),
            ("operations,layering", "1"),
        ] {
            assert_eq!(of(value), Ok(kept.into()), "{value}");
        }
        for value in ["layering,", "bogus", "256", "0x3", "-1", "18446744073709551616"] {
            assert!(of(value).is_err(), "{value}");
        }
    }

    /// Levels of -1 and 100 were kept, where Ceph answers ERANGE, and `20/` was refused.
    #[test]
    fn log_levels_are_read_as_far_as_they_go() {
        let of = |value: &str| normalize(option("debug_osd").unwrap(), value);
        for (value, kept) in
            [("20", "20/20"), ("1/5", "1/5"), ("20/", "20/20"), ("5/5/5", "5/5"), ("1k", "1/1")]
        {
            assert_eq!(of(value), Ok(kept.into()), "{value}");
        }
        for value in ["-1", "100", "5/-1", "5/100", "99999999999999999999"] {
            let error = of(value).unwrap_err();
            assert_eq!((error.errno(), error), (34, ValueError::LogLevelRange), "{value}");
        }
        for value in ["", "/5", "-", "high"] {
            assert_eq!(of(value), Err(ValueError::NotALogLevel), "{value}");
        }
    }

    #[test]
    fn values_are_checked_and_normalised() {
        let of = |name: &str, value: &str| normalize(option(name).unwrap(), value);
        assert_eq!(of("osd_max_backfills", "3"), Ok("3".into()));
        assert!(of("osd_max_backfills", "abc").is_err());
        assert!(of("osd_max_backfills", "-1").is_err());
        assert_eq!(of("mon_osd_full_ratio", "0.9"), Ok("0.900000".into()));
        assert_eq!(of("debug_ms", "0"), Ok("0/0".into()));
        assert_eq!(of("debug_osd", "1/5"), Ok("1/5".into()));
        assert!(of("osd_op_queue", "fifo").is_err());
        assert_eq!(of("osd_memory_target", "2G"), Ok((2u64 << 30).to_string()));
        assert!(of("osd_memory_target", "1M").is_err());
        assert_eq!(of("mon_allow_pool_delete", "True"), Ok("true".into()));
        assert_eq!(of("cluster_addr", "10.0.0.1"), Ok("v2:10.0.0.1:0/0".into()));
        assert_eq!(of("public_addr", "[::1]:5/7"), Ok("v2:[::1]:5/7".into()));
        assert!(of("public_addr", "host").is_err());
        assert!(of("public_addrv", "").is_err());
    }
}
