//! Values as people write them, checked against an option and brought to the form Ceph shows.

use std::fmt;

use crate::{Kind, OptionDef};

/// Why a value is refused (EINVAL).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueError {
    /// Not of the option's kind.
    Malformed {
        /// What was expected.
        kind: &'static str,
        /// What was given.
        got: String,
    },
    /// Neither true nor false nor a number.
    NotABool {
        /// What was given.
        got: String,
    },
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

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueError::Malformed { kind: "integer", got } if got.trim().starts_with('-') => {
                f.write_str("strict_si_cast: value should not be negative")
            }
            ValueError::Malformed { kind: "integer", .. } => {
                f.write_str("strict_si_cast: unit prefix not recognized")
            }
            ValueError::Malformed { kind: "byte count", .. } => {
                f.write_str("strict_iec_cast: unit prefix not recognized")
            }
            ValueError::Malformed { kind: "uuid", .. } => Ok(()),
            ValueError::Malformed { kind, got } => {
                write!(f, "Expected option value to be {kind}, got '{got}'")
            }
            // Of what is neither true nor false Ceph says that it should be a number.
            ValueError::NotABool { got } => {
                write!(f, "Expected option value to be integer, got '{got}'")
            }
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

/// A number with a decimal unit: `10`, `4K`, `2M`.
pub fn parse_si(text: &str) -> Option<i64> {
    scaled(text, 1000)
}

/// A number with a binary unit: `512`, `4K`, `10Mi`, `1GiB`, `64B`.
pub fn parse_iec(text: &str) -> Option<i64> {
    let text = text.trim();
    let text = text.strip_suffix('B').unwrap_or(text);
    let text = text.strip_suffix('i').unwrap_or(text);
    scaled(text, 1024)
}

/// Seconds, with an optional unit: `30`, `30s`, `5m`, `2 hours`, `1d`.
pub fn parse_secs(text: &str) -> Option<u64> {
    let text = text.trim();
    if let Ok(n) = text.parse() {
        return Some(n);
    }
    let mut total = 0u64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let n: u64 = rest[..digits].parse().ok()?;
        let after = rest[digits..].trim_start();
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let unit = match &after[..end] {
            "s" | "sec" | "secs" | "second" | "seconds" => 1,
            "m" | "min" | "mins" | "minute" | "minutes" => 60,
            "h" | "hr" | "hour" | "hours" => 3600,
            "d" | "day" | "days" => 86400,
            "w" | "wk" | "week" | "weeks" => 604_800,
            "mo" | "month" | "months" => 2_592_000,
            "y" | "yr" | "year" | "years" => 31_536_000,
            _ => return None,
        };
        total = total.checked_add(n.checked_mul(unit)?)?;
        rest = after[end..].trim_start();
    }
    (!text.is_empty()).then_some(total)
}

/// `true`, `false` (any case) or a number.
pub fn parse_bool(text: &str) -> Option<bool> {
    if text.eq_ignore_ascii_case("true") {
        Some(true)
    } else if text.eq_ignore_ascii_case("false") {
        Some(false)
    } else {
        text.parse::<i64>().ok().map(|n| n != 0)
    }
}

/// Checks a value (no `$` in it any more) and brings it to the form shown: numbers in plain
/// digits, floats with six decimals, `N/M` for log levels.
pub fn normalize(option: &OptionDef, value: &str) -> Result<String, ValueError> {
    let malformed = |kind| ValueError::Malformed { kind, got: value.to_string() };
    let text = match option.kind {
        Kind::Uint => {
            parse_si(value).filter(|n| *n >= 0).ok_or_else(|| malformed("integer"))?.to_string()
        }
        Kind::Int => parse_si(value).ok_or_else(|| malformed("integer"))?.to_string(),
        Kind::Size => {
            parse_iec(value).filter(|n| *n >= 0).ok_or_else(|| malformed("byte count"))?.to_string()
        }
        Kind::Float => {
            let n: f64 = value.trim().parse().map_err(|_| malformed("float"))?;
            format!("{n:.6}")
        }
        Kind::Bool => parse_bool(value)
            .ok_or_else(|| ValueError::NotABool { got: value.to_string() })?
            .to_string(),
        Kind::Secs => parse_secs(value).ok_or_else(|| malformed("timespan"))?.to_string(),
        Kind::Millisecs => {
            value.trim().parse::<u64>().map_err(|_| malformed("milliseconds"))?.to_string()
        }
        Kind::Uuid => {
            let value = value.trim();
            let good = value.len() == 36
                && value.bytes().enumerate().all(|(i, b)| match i {
                    8 | 13 | 18 | 23 => b == b'-',
                    _ => b.is_ascii_hexdigit(),
                });
            if !good {
                return Err(malformed("uuid"));
            }
            value.to_ascii_lowercase()
        }
        Kind::Str if option.name.starts_with("debug_") && option.default.contains('/') => {
            log_level(value).ok_or_else(|| malformed("log level N or N/M"))?
        }
        Kind::Str if option.name == "rbd_default_features" => {
            rbd_features(value).ok_or_else(|| malformed("image features"))?.to_string()
        }
        Kind::Str | Kind::Addr | Kind::AddrVec => value.to_string(),
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
            return Err(ValueError::OutOfRange {
                min: option.min,
                max: option.max,
                got: value.to_string(),
            });
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

fn log_level(value: &str) -> Option<String> {
    let number = |text: &str| text.trim().parse::<i8>().ok();
    match value.split_once('/') {
        Some((log, gather)) => Some(format!("{}/{}", number(log)?, number(gather)?)),
        None => number(value).map(|n| format!("{n}/{n}")),
    }
}

fn scaled(text: &str, base: i64) -> Option<i64> {
    let text = text.trim();
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let power = match unit {
        "" => 0,
        "K" | "k" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        "P" => 5,
        "E" => 6,
        _ => return None,
    };
    let n: i64 = digits.trim().parse().ok()?;
    n.checked_mul(base.checked_pow(power)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::option;

    #[test]
    fn units_scale() {
        assert_eq!(parse_iec("4K"), Some(4096));
        assert_eq!(parse_iec("10Mi"), Some(10 << 20));
        assert_eq!(parse_iec("1GiB"), Some(1 << 30));
        assert_eq!(parse_si("4K"), Some(4000));
        assert_eq!(parse_si("4x"), None);
        assert_eq!(parse_secs("2 hours"), Some(7200));
        assert_eq!(parse_secs("1h30m"), Some(5400));
        assert_eq!(parse_secs("soon"), None);
    }

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
    }
}
