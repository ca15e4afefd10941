//! Parses decimal numbers.

/// Parses a JSON number as a multiple of `10^-scale`, rounded half up; `None` if the result has more than `precision`
/// digits.
pub(crate) fn parse_decimal(text: &str, precision: u8, scale: i8) -> Option<i128> {
    let (text, exponent) = match text.split_once(['e', 'E']) {
        Some((text, exponent)) => (text, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.len() + fraction.len() == 0 {
        return None;
    }
    // Number of digits before the decimal point after the number is scaled.
    let kept = i64::try_from(whole.len()).ok()? + i64::from(exponent) + i64::from(scale);
    let digits = whole.bytes().chain(fraction.bytes());
    let mut count: i128 = 0;
    let mut rounds_up = false;
    let mut seen = 0_i64;
    for byte in digits {
        if !byte.is_ascii_digit() {
            return None;
        }
        if seen < kept {
            count = count
                .checked_mul(10)?
                .checked_add(i128::from(byte - b'0'))?;
        } else if seen == kept {
            rounds_up = byte >= b'5';
        }
        seen += 1;
    }
    while seen < kept && count != 0 {
        count = count.checked_mul(10)?;
        seen += 1;
    }
    count += i128::from(rounds_up);
    let limit = 10_i128.checked_pow(u32::from(precision))?;
    let count = if is_negative { -count } else { count };
    (count.abs() < limit).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_half_up_to_their_scale() {
        for (text, expected) in [
            ("0", 0),
            ("1", 100),
            ("-1.5", -150),
            ("1.005", 101),
            ("-1.005", -101),
            ("1.004999", 100),
            ("12.3e1", 12_300),
            ("123e-2", 123),
            ("5e-3", 1),
            ("4e-3", 0),
            ("5e-4", 0),
            ("0e999999999", 0),
            ("99999999.99", 9_999_999_999),
        ] {
            assert_eq!(parse_decimal(text, 10, 2), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_has_too_many_digits_is_none() {
        for text in [
            "100000000",
            "99999999.995",
            "1e9",
            "1e999999999",
            "",
            "-",
            ".",
            "1x",
            "NaN",
        ] {
            assert_eq!(parse_decimal(text, 10, 2), None, "{text}");
        }
        assert_eq!(
            parse_decimal(&"9".repeat(38), 38, 0),
            Some(10_i128.pow(38) - 1)
        );
        assert_eq!(parse_decimal(&"9".repeat(39), 38, 0), None);
    }
}
