//! Expiry of a key: a date, with or without a time, in UTC or with an offset.

use std::time::{SystemTime, UNIX_EPOCH};

use toml::value::{Datetime, Offset};

/// Seconds since 1970.
pub(crate) fn unix_s(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// `at` in seconds since 1970, 0 if it is earlier; `None` if it is a time without a date.
pub(crate) fn end_s(at: Datetime) -> Option<u64> {
    let date = at.date?;
    let time_s = at.time.map_or(0, |time| {
        let seconds = i64::from(time.second.unwrap_or(0));
        i64::from(time.hour) * 3_600 + i64::from(time.minute) * 60 + seconds
    });
    let offset_s = match at.offset {
        Some(Offset::Custom { minutes }) => i64::from(minutes) * 60,
        Some(Offset::Z) | None => 0,
    };
    let days = days(
        i64::from(date.year),
        i64::from(date.month),
        i64::from(date.day),
    );
    Some(u64::try_from(days * 86_400 + time_s - offset_s).unwrap_or(0))
}

/// Days from 0000-03-01 to 1970-01-01.
const TO_1970: i64 = 719_468;

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that a leap day is the last one.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - TO_1970
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_counted_in_seconds_since_1970() {
        for (text, seconds) in [
            ("1970-01-01", 0),
            ("1969-12-31", 0),
            ("1970-03-01T00:00:01", 5_097_601),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2024-02-29", 1_709_164_800),
            ("2027-01-01T02:00:00+02:00", 1_798_761_600),
        ] {
            assert_eq!(end_s(text.parse().unwrap()), Some(seconds), "{text}");
        }
        assert_eq!(end_s("12:00:00".parse().unwrap()), None);
    }
}
