//! Floating-point numbers as C++ prints them.

/// `%.{precision}g`: `precision` significant digits, trailing zeros dropped, an exponent of at
/// least two digits when it is below -4 or not below `precision`.
pub fn format_g(value: f64, precision: usize) -> String {
    let precision = precision.max(1);
    if value.is_nan() {
        return if value.is_sign_negative() { "-nan".into() } else { "nan".into() };
    }
    if value.is_infinite() {
        return if value < 0.0 { "-inf".into() } else { "inf".into() };
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0".into() } else { "0".into() };
    }
    let scientific = format!("{:.*e}", precision - 1, value);
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= precision as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", strip_zeros(mantissa), exponent.abs());
    }
    let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
    strip_zeros(&format!("{value:.decimals$}")).to_string()
}

/// What `std::ostream` prints by default: `%.6g`.
pub fn format_stream_float(value: f64) -> String {
    format_g(value, 6)
}

fn strip_zeros(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_as_in_c() {
        assert_eq!(format_g(0.0009918212890625, 17), "0.0009918212890625");
        assert_eq!(format_g(f64::from(0.95f32), 17), "0.94999998807907104");
        assert_eq!(format_g(1.0, 17), "1");
        assert_eq!(format_g(1e-7, 6), "1e-07");
        assert_eq!(format_g(1234567.0, 6), "1.23457e+06");
        assert_eq!(format_g(0.85, 6), "0.85");
        assert_eq!(format_g(100.0, 6), "100");
    }
}
