//! Parses and writes dates and timestamps.

/// Parses a date such as `1970-01-31`, optionally with a time after a space or `T` and an offset, as Unix microseconds.
///
/// The time is `10:20`, `10:20:30` or `10:20:30.123456789` (truncated to microseconds); the offset is `Z`, `+01`,
/// `+0130` or `+01:30`, UTC by default.
pub(crate) fn parse_instant(text: &str) -> Option<i64> {
    let text = text.trim_ascii().as_bytes();
    let (date, rest) = text.split_at_checked(DATE_LEN)?;
    let midnight = i64::from(days_of(date)?) * DAY_US;
    let Some((b' ' | b'T', time)) = rest.split_first() else {
        return rest.is_empty().then_some(midnight);
    };
    let is_offset = |byte: &u8| matches!(byte, b'Z' | b'+' | b'-');
    let end = time.iter().position(is_offset).unwrap_or(time.len());
    let (time, offset) = time.split_at(end);
    midnight
        .checked_add(time_of_day_us(time.trim_ascii())?)?
        .checked_sub(offset_us(offset)?)
}

/// Parses `1970-01-31` as days since 1970.
pub(crate) fn parse_date(text: &str) -> Option<i32> {
    days_of(text.trim_ascii().as_bytes())
}

/// Writes days since 1970 as `1970-01-31`, in a form that [`parse_date`] reads if the year has four digits.
pub(crate) fn format_date(days: i32) -> String {
    // As in `days_of`, years begin in March, and eras have 400 years.
    let days = i64::from(days) + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = (month + 2) % 12 + 1;
    let year = era * 400 + year + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Writes Unix microseconds as `1970-01-31T10:20:30.123456Z`, which [`parse_instant`] reads.
pub(crate) fn format_instant(micros: i64) -> String {
    let (days, of_day) = (micros.div_euclid(DAY_US), micros.rem_euclid(DAY_US));
    // INVARIANT: microseconds of 64 bits are less than 2^31 days.
    let date = format_date(i32::try_from(days).expect("days of 32 bits"));
    let (hour, minute) = (of_day / HOUR_US, of_day / MINUTE_US % 60);
    let (second, micros) = (of_day / SECOND_US % 60, of_day % SECOND_US);
    format!("{date}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

const DATE_LEN: usize = 10;
const SECOND_US: i64 = 1_000_000;
const MINUTE_US: i64 = 60 * SECOND_US;
const HOUR_US: i64 = 60 * MINUTE_US;
const DAY_US: i64 = 24 * HOUR_US;

fn days_of(date: &[u8]) -> Option<i32> {
    let [year @ .., b'-', m1, m2, b'-', d1, d2] = date else {
        return None;
    };
    let (year, month, day) = (
        number(year, 4)?,
        number(&[*m1, *m2], 2)?,
        number(&[*d1, *d2], 2)?,
    );
    if !(1..=12).contains(&month) || day < 1 || day > days_in(year, month) {
        return None;
    }
    // Years begin in March, so that a leap day is the last of its year; eras have 400 years.
    let shifted = year - i64::from(month <= 2);
    let (era, of_era) = (shifted.div_euclid(400), shifted.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    i32::try_from(days).ok()
}

fn days_in(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn time_of_day_us(time: &[u8]) -> Option<i64> {
    let (minutes, rest) = time.split_at_checked(5)?;
    let [h1, h2, b':', m1, m2] = minutes else {
        return None;
    };
    let (hour, minute) = (number(&[*h1, *h2], 2)?, number(&[*m1, *m2], 2)?);
    let (second, fraction) = match rest {
        [] => (0, 0),
        [b':', s1, s2] => (number(&[*s1, *s2], 2)?, 0),
        [b':', s1, s2, b'.', digits @ ..] => (number(&[*s1, *s2], 2)?, fraction_us(digits)?),
        _ => return None,
    };
    let is_time = hour < 24 && minute < 60 && second < 60;
    is_time.then_some(hour * HOUR_US + minute * MINUTE_US + second * SECOND_US + fraction)
}

/// Parses up to nine digits of a fraction, truncated to six.
fn fraction_us(digits: &[u8]) -> Option<i64> {
    if digits.is_empty() || digits.len() > 9 {
        return None;
    }
    let kept = digits.len().min(6);
    number(digits, digits.len())?;
    let scale = 10_i64.pow(u32::try_from(6 - kept).ok()?);
    Some(number(&digits[..kept], kept)? * scale)
}

fn offset_us(offset: &[u8]) -> Option<i64> {
    let (sign, digits) = match offset {
        [] | [b'Z'] => return Some(0),
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match digits {
        [h1, h2] => (number(&[*h1, *h2], 2)?, 0),
        [h1, h2, m1, m2] | [h1, h2, b':', m1, m2] => {
            (number(&[*h1, *h2], 2)?, number(&[*m1, *m2], 2)?)
        }
        _ => return None,
    };
    let is_offset = hours <= 18 && minutes < 60;
    is_offset.then_some(sign * (hours * HOUR_US + minutes * MINUTE_US))
}

/// Parses exactly `len` digits.
fn number(digits: &[u8], len: usize) -> Option<i64> {
    if digits.len() != len || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = digits.iter().map(|digit| i64::from(digit - b'0'));
    Some(digits.fold(0, |number, digit| number * 10 + digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_read_in_every_form() {
        let noon = 1_709_208_000_000_000;
        for text in [
            "2024-02-29T12:00",
            "2024-02-29 12:00:00",
            "2024-02-29T12:00:00Z",
            "2024-02-29T12:00:00.000Z",
            " 2024-02-29T13:30:00+01:30 ",
            "2024-02-29T13:00:00+01",
            "2024-02-29T07:00:00-0500",
        ] {
            assert_eq!(parse_instant(text), Some(noon), "{text}");
        }
        assert_eq!(parse_instant("2024-02-29"), Some(noon - 12 * HOUR_US));
        assert_eq!(parse_instant("2024-02-29 12:00:00.5"), Some(noon + 500_000));
        assert_eq!(
            parse_instant("2024-02-29 12:00:00.123456789"),
            Some(noon + 123_456)
        );
        assert_eq!(parse_instant("1969-12-31T23:59:59.999999Z"), Some(-1));
        assert_eq!(
            parse_instant("0001-01-01T00:00Z"),
            Some(-62_135_596_800 * SECOND_US)
        );
        assert_eq!(
            parse_instant("9999-12-31T23:59:59Z"),
            Some(253_402_300_799 * SECOND_US)
        );
    }

    #[test]
    fn what_is_no_instant_is_none() {
        for text in [
            "",
            "12:00",
            "2024-02-30",
            "2023-02-29",
            "2024-13-01",
            "2024-00-01",
            "2024-01-00",
            "2024-01-01T",
            "2024-01-01T24:00",
            "2024-01-01T12:60",
            "2024-01-01T12:00:60",
            "2024-01-01T12:00:00.",
            "2024-01-01T12:00:00.1234567890",
            "2024-01-01T12:00+19",
            "2024-01-01T12:00+1",
            "2024-01-01T12:00Z1",
            "2024-1-1",
            "24-01-01",
            "+024-01-01",
            "2024-01-01X12:00",
            "2024-01-01T12.00",
            "ä024-01-01",
        ] {
            assert_eq!(parse_instant(text), None, "{text}");
        }
    }

    #[test]
    fn written_instants_are_read_again() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
            (1_709_208_000_000_001, "2024-02-29T12:00:00.000001Z"),
            (-62_135_596_800_000_000, "0001-01-01T00:00:00.000000Z"),
        ] {
            assert_eq!(format_instant(micros), text);
            assert_eq!(parse_instant(text), Some(micros));
        }
        assert_eq!(format_instant(i64::MAX), "294247-01-10T04:00:54.775807Z");
        assert_eq!(format_date(i32::MIN), "-5877641-06-23");
    }

    #[test]
    fn days_are_counted_without_a_gap() {
        let mut expected = parse_date("1896-01-01").expect("a date");
        for year in 1896..2105 {
            for month in 1..=12 {
                for day in 1..=days_in(year, month) {
                    let text = format!("{year:04}-{month:02}-{day:02}");
                    assert_eq!(parse_date(&text), Some(expected), "{text}");
                    assert_eq!(format_date(expected), text);
                    expected += 1;
                }
            }
        }
        assert_eq!(parse_date("1970-01-01"), Some(0));
        assert_eq!(parse_date("1970-01-01T00:00"), None);
    }
}
