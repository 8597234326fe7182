//! Moments.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A moment, as `metav1.Time`: RFC 3339 in JSON, seconds since 1970 in protobuf.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Message)]
pub struct Time {
    /// Seconds since 1970.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Nanoseconds of the second; the API server keeps none.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl Time {
    /// The second that a moment falls in.
    #[must_use]
    pub const fn from_unix_ms(ms: i64) -> Self {
        Self { seconds: ms.div_euclid(1000), nanos: 0 }
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub const fn unix_ms(self) -> i64 {
        self.seconds * 1000 + (self.nanos / 1_000_000) as i64
    }

    /// Reads `2026-01-31T08:00:00Z`, with a fraction or an offset if need be.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if !text.is_ascii() || text.len() < 20 {
            return None;
        }
        let number = |from: usize, to: usize| {
            let digits = &text[from..to];
            if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse::<i64>().ok() } else { None }
        };
        let at = |i: usize| text.as_bytes()[i];
        if (at(4), at(7), at(13), at(16)) != (b'-', b'-', b':', b':') || !matches!(at(10), b'T' | b't') {
            return None;
        }
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let mut rest = &text[19..];
        if let Some(fraction) = rest.strip_prefix('.') {
            let end = fraction.find(|c: char| !c.is_ascii_digit())?;
            rest = &fraction[end..];
        }
        let offset = match rest.as_bytes() {
            [b'Z' | b'z'] => 0,
            [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
                let base = text.len() - 5;
                let minutes = number(base, base + 2)? * 60 + number(base + 3, base + 5)?;
                if *sign == b'+' { minutes } else { -minutes }
            }
            _ => return None,
        };
        let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset * 60;
        Some(Self { seconds, nanos: 0 })
    }
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. Years are counted from March, so that a leap day is the
/// last of its year.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let of_year = (153 * month + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year - 719_468
}

/// The date that is so many days after 1970-01-01.
fn date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date(self.seconds.div_euclid(86_400));
        let second = self.seconds.rem_euclid(86_400);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom(format!("`{text}` is not a time as 2026-01-31T08:00:00Z")))
    }
}
