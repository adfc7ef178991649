//! Class `numops`: arithmetic on numbers kept as text in omap values
//! (`src/cls/numops/cls_numops.cc` at v16.2).

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::Reader;
use types::Errno;

use crate::registry::class_method as method;
use crate::{Class, Flags, ObjectContext};

/// Significant digits of a stored result.
const PRECISION: usize = 10;

/// The class.
pub const CLASS: Class = Class {
    name: "numops",
    methods: &[method!("add", Flags::RD_WR, add), method!("mul", Flags::RD_WR, mul)],
    filters: &[],
};

async fn add(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    apply(ctx, input, |value, operand| value + operand).await
}

async fn mul(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    apply(ctx, input, |value, operand| value * operand).await
}

async fn apply(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
    op: fn(f64, f64) -> f64,
) -> Result<(), Errno> {
    let mut r = Reader::new(input);
    let mut field = || r.get::<BString>().map_err(|_| Errno::EINVAL);
    let (key, operand) = (field()?, field()?);
    let operand = parse(&operand).ok_or(Errno::EINVAL)?;
    let value = match ctx.omap_val(&key).await {
        Ok(text) => parse(&text).ok_or(Errno::EBADMSG)?,
        // What is not there counts as 0, whatever the reason.
        Err(_) => 0.0,
    };
    let result = Bytes::from(print(op(value, operand)));
    ctx.omap_set(BTreeMap::from([(key, result)])).await
}

/// What C's strtod makes of the whole text; `None` if anything is left over. No text is 0.
fn parse(text: &[u8]) -> Option<f64> {
    // C stops at the first zero byte.
    let text = text.split(|&b| b == 0).next().unwrap_or_default();
    let text = core::str::from_utf8(text).ok()?;
    if text.is_empty() {
        return Some(0.0);
    }
    let number = text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let (negative, digits) = match number.as_bytes().first()? {
        b'-' => (true, &number[1..]),
        b'+' => (false, &number[1..]),
        _ => (false, number),
    };
    let magnitude = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => parse_hex(hex)?,
        None if digits.starts_with(['+', '-']) => return None,
        None => digits.parse().ok()?,
    };
    Some(if negative { -magnitude } else { magnitude })
}

/// `1f.8p3`: hexadecimal digits and a binary exponent.
fn parse_hex(text: &str) -> Option<f64> {
    let (digits, exponent) = match text.split_once(['p', 'P']) {
        Some((digits, exponent)) => (digits, exponent.parse().ok()?),
        None => (text, 0_i32),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value = 0.0;
    for digit in whole.chars().chain(fraction.chars()) {
        value = value * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let shift = exponent - 4 * i32::try_from(fraction.len()).ok()?;
    Some(value * 2_f64.powi(shift))
}

/// `%.10g` of C.
fn print(value: f64) -> String {
    if value.is_nan() {
        return if value.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if value.is_infinite() {
        return if value < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let scientific = format!("{:.*e}", PRECISION - 1, value);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |digits: &str| match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => digits.to_owned(),
    };
    let precision = PRECISION as i32;
    if exponent < -4 || exponent >= precision {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trim(mantissa), exponent.abs())
    } else {
        let decimals = usize::try_from(precision - 1 - exponent).unwrap_or(0);
        trim(&format!("{value:.decimals$}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_c_reads_and_prints_them() {
        for (value, text) in [
            (0.0, "0"),
            (12.0, "12"),
            (0.1 + 0.2, "0.3"),
            (-1.5, "-1.5"),
            (1e10, "1e+10"),
            (9_999_999_999.0, "9999999999"),
            (1.0 / 3.0, "0.3333333333"),
            (1e-5, "1e-05"),
            (1.25e-7, "1.25e-07"),
            (123_456_789_012.0, "1.23456789e+11"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(print(value), text);
        }
        assert_eq!(parse(b""), Some(0.0));
        assert_eq!(parse(b" 12"), Some(12.0));
        assert_eq!(parse(b"12 "), None);
        assert_eq!(parse(b"-0x1f.8p1"), Some(-63.0));
        assert_eq!(parse(b"+-1"), None);
        assert_eq!(parse(b"1e3"), Some(1000.0));
        assert_eq!(parse(b"five"), None);
    }
}
