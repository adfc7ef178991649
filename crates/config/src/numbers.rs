//! Numbers as people write them in options and commands, taken and refused as Ceph does
//! (`src/common/strtol.cc`, `parse_timespan` in `src/common/ceph_time.cc` at v16.2): what one system
//! takes from a script the other must not read as something else.
//!
//! ```text
//! count  digits, then one of K M G T P E: powers of 1000
//! size   digits, then one of B K M G T P E and at most one letter more (Ki, KB): powers of 1024
//! float  what strtod(3) takes
//! secs   digits and units one behind the other: 90, 1h30m, 2 days
//! ```

use std::ffi::CString;
use std::fmt;

/// Why a text is no such number. The words are Ceph's: scripts look for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NumberError {
    /// Nothing is there.
    Empty(Units),
    /// A unit that is none.
    UnknownUnit(Units),
    /// `Bi`.
    BiUnit,
    /// A size's unit of more than two letters.
    LongUnit,
    /// Negative where it must not be.
    Negative(Units),
    /// Too large or too small with its unit.
    OutOfRange(Units),
    /// The digits are none.
    NotAnInteger {
        /// What stands there.
        got: String,
    },
    /// More than 64 bits hold.
    Overflow {
        /// What stands there.
        got: String,
    },
    /// No number at the beginning.
    NotADouble {
        /// What was given.
        got: String,
    },
    /// Something behind the number.
    Garbage {
        /// What was given.
        got: String,
    },
    /// A float larger or smaller than there are.
    DoubleRange {
        /// What was given.
        got: String,
    },
    /// A time span must begin with a digit.
    NoDigit,
    /// A unit of time that is none.
    UnknownTime {
        /// The unit.
        unit: String,
    },
    /// Neither a unit nor a digit.
    Trailing {
        /// From there on.
        rest: String,
    },
}

/// Which powers a unit means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Units {
    /// Of 1000.
    Si,
    /// Of 1024.
    Iec,
}

impl Units {
    fn parser(self) -> &'static str {
        match self {
            Units::Si => "strict_sistrtoll",
            Units::Iec => "strict_iecstrtoll",
        }
    }
}

impl fmt::Display for NumberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use NumberError as E;
        match self {
            E::Empty(units) => write!(f, "{}: value not specified", units.parser()),
            E::UnknownUnit(Units::Si) => f.write_str("strict_si_cast: unit prefix not recognized"),
            E::UnknownUnit(units) => write!(f, "{}: unit prefix not recognized", units.parser()),
            E::BiUnit => f.write_str("strict_iecstrtoll: illegal prefix \"Bi\""),
            E::LongUnit => f.write_str("strict_iecstrtoll: illegal prefix (length > 2)"),
            E::Negative(units) => write!(f, "{}: value should not be negative", units.parser()),
            E::OutOfRange(Units::Si) => f.write_str("strict_sistrtoll: value out of range"),
            E::OutOfRange(units) => write!(f, "{}: value seems to be too large", units.parser()),
            E::NotAnInteger { got } => {
                write!(f, "Expected option value to be integer, got '{got}'")
            }
            E::Overflow { got } => write!(f, "The option value '{got}' seems to be invalid"),
            E::NotADouble { got } => write!(f, "strict_strtod: expected double, got: '{got}'"),
            E::Garbage { got } => {
                write!(f, "strict_strtod: garbage at end of string. got: '{got}'")
            }
            E::DoubleRange { got } => {
                write!(f, "strict_strtod: floating point overflow or underflow parsing '{got}'")
            }
            E::NoDigit => f.write_str("expected digit"),
            // Ceph misspells the word.
            E::UnknownTime { unit } => write!(f, "unrecogized unit '{unit}'"),
            E::Trailing { rest } => write!(f, "unexpected trailing '{rest}'"),
        }
    }
}

/// Whether space before a number is passed over, as strtoll(3) does.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r')
}

/// An integer of 64 bits and nothing else.
pub fn parse_integer(text: &str) -> Result<i64, NumberError> {
    let digits = text.trim_start_matches(is_space);
    let bare = digits.strip_prefix(['+', '-']).unwrap_or(digits);
    if bare.is_empty() || !bare.bytes().all(|b| b.is_ascii_digit()) {
        return Err(NumberError::NotAnInteger { got: text.to_owned() });
    }
    digits.parse().map_err(|_| NumberError::Overflow { got: text.to_owned() })
}

fn power_of(unit: char) -> Option<u32> {
    "KMGTPE".chars().position(|c| c == unit).map(|at| at as u32 + 1)
}

/// Whether `c` belongs to a number without a unit.
fn is_plain(c: char) -> bool {
    matches!(c, '0'..='9' | '+' | '-')
}

/// A count, signed.
pub fn parse_si(text: &str) -> Result<i64, NumberError> {
    let n = count(text)?;
    i64::try_from(n).map_err(|_| NumberError::OutOfRange(Units::Si))
}

/// A count that is not negative.
pub fn parse_si_unsigned(text: &str) -> Result<u64, NumberError> {
    match count(text)? {
        n if n < 0 => Err(NumberError::Negative(Units::Si)),
        n => u64::try_from(n).map_err(|_| NumberError::OutOfRange(Units::Si)),
    }
}

fn count(text: &str) -> Result<i128, NumberError> {
    let Some(last) = text.chars().next_back() else {
        return Err(NumberError::Empty(Units::Si));
    };
    let (mut digits, mut power) = (text, 0);
    if !text.chars().all(is_plain) {
        match power_of(last) {
            Some(of_unit) => (digits, power) = (&text[..text.len() - 1], of_unit),
            None if last == 'B' => {}
            None => return Err(NumberError::UnknownUnit(Units::Si)),
        }
    }
    // 2^63 times 10^18 is far below what 128 bits hold.
    Ok(i128::from(parse_integer(digits)?) * 1000_i128.pow(power))
}

/// A number of bytes, which is not negative.
pub fn parse_iec(text: &str) -> Result<u64, NumberError> {
    if text.is_empty() {
        return Err(NumberError::Empty(Units::Iec));
    }
    let at = text.find(|c| !is_plain(c)).unwrap_or(text.len());
    let (digits, unit) = text.split_at(at);
    let power = match unit.chars().next() {
        None => 0,
        Some('B') if unit.ends_with('i') => return Err(NumberError::BiUnit),
        Some(_) if unit.len() > 2 => return Err(NumberError::LongUnit),
        Some('B') => 0,
        Some(first) => power_of(first).ok_or(NumberError::UnknownUnit(Units::Iec))?,
    };
    let n = u64::try_from(parse_integer(digits)?).map_err(|_| NumberError::Negative(Units::Iec))?;
    n.checked_mul(1 << (10 * power)).ok_or(NumberError::OutOfRange(Units::Iec))
}

/// A size in an argument of our own tools, which take `10GiB` and `10g`, too.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.to_ascii_uppercase();
    parse_iec(text.strip_suffix("IB").unwrap_or(&text)).ok()
}

/// A number with a fraction.
pub fn parse_float(text: &str) -> Result<f64, NumberError> {
    let got = || text.to_owned();
    let Ok(c_text) = CString::new(text) else {
        return Err(NumberError::Garbage { got: got() });
    };
    let mut end = std::ptr::null_mut();
    // SAFETY: `c_text` ends with a zero byte and outlives the call, which writes only to `end`.
    let n = unsafe { libc::strtod(c_text.as_ptr(), &raw mut end) };
    // SAFETY: `end` points into `c_text`, to its zero byte at most.
    let rest = unsafe { end.offset_from(c_text.as_ptr()) };
    match usize::try_from(rest).unwrap_or(0) {
        0 => Err(NumberError::NotADouble { got: got() }),
        len if len < text.len() => Err(NumberError::Garbage { got: got() }),
        _ if is_out_of_range(n, text) => Err(NumberError::DoubleRange { got: got() }),
        _ => Ok(n),
    }
}

/// Whether strtod(3), which read all of `text`, could not hold it: it says infinity or nothing then of
/// what is written with digits, some of them not zero.
fn is_out_of_range(n: f64, text: &str) -> bool {
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    (n.is_infinite() || n == 0.0 || n.is_subnormal())
        && mantissa.bytes().any(|b| matches!(b, b'1'..=b'9'))
}

/// Seconds.
pub fn parse_secs(text: &str) -> Result<u64, NumberError> {
    let mut total = 0u64;
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if end == 0 {
            return Err(NumberError::NoDigit);
        }
        let overflow = |_| NumberError::Overflow { got: rest[..end].to_owned() };
        let n: u64 = rest[..end].parse::<i64>().map_err(overflow)?.unsigned_abs();
        let after = rest[end..].trim_start_matches(is_space);
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let seconds = match &after[..end] {
            "" if after.is_empty() => 1,
            "" => return Err(NumberError::Trailing { rest: after.to_owned() }),
            "s" | "sec" | "second" | "seconds" => 1,
            "m" | "min" | "minute" | "minutes" => 60,
            "h" | "hr" | "hour" | "hours" => 3600,
            "d" | "day" | "days" => 86400,
            "w" | "wk" | "week" | "weeks" => 604_800,
            "mo" | "month" | "months" => 2_592_000,
            "y" | "yr" | "year" | "years" => 31_536_000,
            unit => return Err(NumberError::UnknownTime { unit: unit.to_owned() }),
        };
        let sum = n.checked_mul(seconds).and_then(|n| total.checked_add(n));
        // Ceph's runs over there and comes out negative.
        total = sum.ok_or_else(|| NumberError::Overflow { got: text.to_owned() })?;
        rest = after[end..].trim_start_matches(is_space);
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said<T: fmt::Display>(result: Result<T, NumberError>) -> String {
        match result {
            Ok(n) => n.to_string(),
            Err(error) => format!("! {error}"),
        }
    }

    /// `ceph config set osd osd_memory_target 4GiB` was taken here and is refused by Ceph, as are `1k`
    /// and a space: a script that worked with one failed with the other.
    #[test]
    fn numbers_are_taken_and_refused_as_ceph_does() {
        for (text, expected) in [
            ("4K", "4096"),
            ("10Mi", "10485760"),
            ("4GB", "4294967296"),
            ("1B", "1"),
            ("010", "10"),
            ("8E", "9223372036854775808"),
            ("1k", "! strict_iecstrtoll: unit prefix not recognized"),
            (" 1", "! strict_iecstrtoll: unit prefix not recognized"),
            ("1.5", "! strict_iecstrtoll: unit prefix not recognized"),
            ("4GiB", "! strict_iecstrtoll: illegal prefix (length > 2)"),
            ("1Bi", "! strict_iecstrtoll: illegal prefix \"Bi\""),
            ("", "! strict_iecstrtoll: value not specified"),
            ("-1K", "! strict_iecstrtoll: value should not be negative"),
            ("16E", "! strict_iecstrtoll: value seems to be too large"),
            ("K", "! Expected option value to be integer, got ''"),
            ("1é", "! strict_iecstrtoll: unit prefix not recognized"),
            ("9223372036854775808", "! The option value '9223372036854775808' seems to be invalid"),
        ] {
            assert_eq!(said(parse_iec(text)), expected, "{text:?}");
        }
        for (text, expected) in [
            ("4K", "4000"),
            ("16E", "16000000000000000000"),
            ("1k", "! strict_si_cast: unit prefix not recognized"),
            (" 1", "! strict_si_cast: unit prefix not recognized"),
            ("1KB", "! Expected option value to be integer, got '1KB'"),
            ("1 K", "! Expected option value to be integer, got '1 '"),
            ("", "! strict_sistrtoll: value not specified"),
            ("-1", "! strict_sistrtoll: value should not be negative"),
            ("19E", "! strict_sistrtoll: value out of range"),
        ] {
            assert_eq!(said(parse_si_unsigned(text)), expected, "{text:?}");
        }
        assert_eq!(said(parse_si("-9E")), "-9000000000000000000");
        assert_eq!(said(parse_si("10E")), "! strict_sistrtoll: value out of range");
        assert_eq!(said(parse_si("\u{ff12}")), "! strict_si_cast: unit prefix not recognized");
        for text in ["10GiB", "10g", "10gb", "10G"] {
            assert_eq!(parse_bytes(text), Some(10 << 30), "{text}");
        }
        assert_eq!(
            (parse_bytes("10gib "), parse_bytes("g"), parse_bytes("-1")),
            (None, None, None)
        );
    }

    #[test]
    fn floats_are_what_the_c_library_takes() {
        assert_eq!(parse_float(" 1.5e1"), Ok(15.0));
        assert_eq!(parse_float("0x10"), Ok(16.0));
        assert_eq!(parse_float("-inf"), Ok(f64::NEG_INFINITY));
        assert_eq!(parse_float("0e5"), Ok(0.0));
        for (text, expected) in [
            ("", "! strict_strtod: expected double, got: ''"),
            ("abc", "! strict_strtod: expected double, got: 'abc'"),
            ("5 ", "! strict_strtod: garbage at end of string. got: '5 '"),
            ("5\0", "! strict_strtod: garbage at end of string. got: '5\0'"),
            ("1e999", "! strict_strtod: floating point overflow or underflow parsing '1e999'"),
            ("1e-310", "! strict_strtod: floating point overflow or underflow parsing '1e-310'"),
        ] {
            assert_eq!(said(parse_float(text)), expected, "{text:?}");
        }
    }

    /// `10secs` was taken and `1h 30` refused; an alert muted for `10secs` is refused by Ceph.
    #[test]
    fn time_spans_have_cephs_units() {
        for (text, expected) in [
            ("2 hours", "7200"),
            ("1h30m", "5400"),
            ("1h 30", "3630"),
            ("", "0"),
            (" 5s ", "5"),
            ("10secs", "! unrecogized unit 'secs'"),
            ("1ms", "! unrecogized unit 'ms'"),
            ("soon", "! expected digit"),
            ("-1", "! expected digit"),
            ("1.5h", "! unexpected trailing '.5h'"),
            ("5 5", "! unexpected trailing '5'"),
            ("9223372036854775808", "! The option value '9223372036854775808' seems to be invalid"),
        ] {
            assert_eq!(said(parse_secs(text)), expected, "{text:?}");
        }
        assert!(parse_secs("1000000000000y").is_err());
    }
}
