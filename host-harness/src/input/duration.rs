//! Durations as Go and Kubernetes write them.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer};

/// A span of virtual time in milliseconds, never negative; written `1m30s`, `200ms`, `1.5h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub i64);

impl Millis {
    /// Reads Go's notation. Milliseconds are the smallest unit, ten years the longest span.
    ///
    /// # Errors
    /// The text is not a duration, is negative, too long, or not a whole number of milliseconds.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = |why: &str| Err(format!("`{text}` {why}; write a duration such as 90s, 1m30s or 200ms"));
        if text.starts_with('-') {
            return bad("is a negative duration");
        }
        if text == "0" {
            return Ok(Self(0));
        }
        if text.is_empty() {
            return bad("is not a duration");
        }
        let mut total = 0.0_f64;
        let mut rest = text;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            let Ok(number) = rest[..digits].parse::<f64>() else { return bad("is not a duration") };
            rest = &rest[digits..];
            let letters = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
            let unit = match &rest[..letters] {
                "ms" => 1.0,
                "s" => 1e3,
                "m" => 60e3,
                "h" => 3600e3,
                "" => return bad("has no unit"),
                _ => return bad("has an unknown unit"),
            };
            total += number * unit;
            rest = &rest[letters..];
        }
        if total > 10.0 * 365.0 * 86_400e3 {
            return bad("is longer than ten years");
        }
        if (total - total.round()).abs() > 1e-6 {
            return bad("is not a whole number of milliseconds");
        }
        #[expect(clippy::cast_possible_truncation, reason = "checked above: at most ten years, and whole")]
        Ok(Self(total.round() as i64))
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0;
        if ms == 0 {
            return f.write_str("0s");
        }
        let (hours, minutes, seconds, rest) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        match (seconds, rest) {
            (0, 0) => Ok(()),
            (0, rest) if hours == 0 && minutes == 0 => write!(f, "{rest}ms"),
            (seconds, 0) => write!(f, "{seconds}s"),
            (seconds, rest) => write!(f, "{}s", format!("{seconds}.{rest:03}").trim_end_matches('0')),
        }
    }
}

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl de::Visitor<'_> for Text {
            type Value = Millis;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as 90s or 200ms")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Millis, E> {
                Millis::parse(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

impl std::str::FromStr for Millis {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::Millis;

    #[test]
    fn reads_and_writes_go_durations() {
        for (text, ms, shown) in [
            ("0", 0, "0s"),
            ("200ms", 200, "200ms"),
            ("90s", 90_000, "1m30s"),
            ("1m30.5s", 90_500, "1m30.5s"),
            ("1.5h", 5_400_000, "1h30m"),
            ("2h0m0.25s", 7_200_250, "2h0.25s"),
        ] {
            let parsed = Millis::parse(text).unwrap();
            assert_eq!((parsed.0, parsed.to_string().as_str()), (ms, shown), "{text}");
            assert_eq!(Millis::parse(shown), Ok(parsed));
        }
        for bad in ["", "5", "-5s", "s", "1x", "1.2.3s", "0.3ms", "999999h", "1e3s", "5 s"] {
            assert!(Millis::parse(bad).is_err(), "{bad}");
        }
    }
}
