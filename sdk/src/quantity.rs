//! Resource quantities, exact.

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Neg, Sub, SubAssign};
use core::str::FromStr;

/// An amount of a resource, such as `250m`, `1.5Gi` or `12e6`: a fixed-point number of nano units.
///
/// Reads every form of Kubernetes' own `resource.Quantity` (decimal, binary and exponent suffixes). As there, what is
/// finer than a nano is rounded away from zero, and binary forms are capped at 2^63 - 1 units. Sums saturate.
///
/// ```
/// use kube_scheduler_sdk::Quantity;
///
/// let memory: Quantity = "1.5Gi".parse()?;
/// assert_eq!(memory.value(), 1_610_612_736);
/// assert_eq!("250m".parse::<Quantity>()?.milli_value(), 250);
/// assert_eq!(format!("{memory:#}"), "1536Mi");
/// # Ok::<(), kube_scheduler_sdk::ParseQuantityError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity {
    nano: i128,
}

const NANO: i128 = 1_000_000_000;
const MILLI: i128 = 1_000_000;

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { nano: 0 };

    /// Whole units: cores, bytes, pieces.
    #[must_use]
    pub const fn from_units(units: i64) -> Self {
        Self { nano: units as i128 * NANO }
    }

    /// Thousandths of a unit.
    #[must_use]
    pub const fn from_milli(milli: i64) -> Self {
        Self { nano: milli as i128 * MILLI }
    }

    /// Billionths of a unit.
    #[must_use]
    pub const fn from_nano(nano: i128) -> Self {
        Self { nano }
    }

    /// Whole units, rounded away from zero as in Kubernetes, capped to an i64.
    #[must_use]
    pub const fn value(self) -> i64 {
        round(self.nano, NANO)
    }

    /// Thousandths, rounded away from zero, capped to an i64.
    #[must_use]
    pub const fn milli_value(self) -> i64 {
        round(self.nano, MILLI)
    }

    /// Billionths, exact.
    #[must_use]
    pub const fn nano_value(self) -> i128 {
        self.nano
    }

    /// Whether it is nothing.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.nano == 0
    }
}

const fn round(nano: i128, unit: i128) -> i64 {
    let mut whole = nano / unit;
    if nano % unit != 0 {
        whole += nano.signum();
    }
    if whole > i64::MAX as i128 {
        i64::MAX
    } else if whole < i64::MIN as i128 {
        i64::MIN
    } else {
        whole as i64
    }
}

/// Why a text is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseQuantityError(Why);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    NoDigits,
    Suffix,
    Exponent,
}

impl fmt::Display for ParseQuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Why::NoDigits => "not a quantity: there are no digits before the suffix",
            Why::Suffix => {
                "not a quantity: the number is followed by none of n u m k M G T P E Ki Mi Gi Ti Pi Ei, by no exponent such as e3, and not by the end"
            }
            Why::Exponent => "not a quantity: the exponent after e or E is no whole number",
        })
    }
}

impl core::error::Error for ParseQuantityError {}

/// What stands after the number.
enum Scale {
    Ten(i64),
    Two(u32),
}

fn scale(suffix: &str) -> Result<Scale, Why> {
    Ok(match suffix {
        "n" => Scale::Ten(-9),
        "u" => Scale::Ten(-6),
        "m" => Scale::Ten(-3),
        "" => Scale::Ten(0),
        "k" => Scale::Ten(3),
        "M" => Scale::Ten(6),
        "G" => Scale::Ten(9),
        "T" => Scale::Ten(12),
        "P" => Scale::Ten(15),
        "E" => Scale::Ten(18),
        "Ki" => Scale::Two(10),
        "Mi" => Scale::Two(20),
        "Gi" => Scale::Two(30),
        "Ti" => Scale::Two(40),
        "Pi" => Scale::Two(50),
        "Ei" => Scale::Two(60),
        _ => {
            let Some(exponent) = suffix.strip_prefix(['e', 'E']) else { return Err(Why::Suffix) };
            if exponent == "i" || exponent.is_empty() {
                return Err(Why::Suffix);
            }
            let (sign, digits) = match exponent.as_bytes() {
                [b'-', digits @ ..] => (-1, digits),
                [b'+', digits @ ..] => (1, digits),
                digits => (1, digits),
            };
            if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
                return Err(Why::Exponent);
            }
            // Beyond this the number is nothing or the cap anyway.
            let magnitude = digits.iter().fold(0i64, |n, d| (n * 10 + i64::from(d - b'0')).min(1_000_000));
            Scale::Ten(sign * magnitude)
        }
    })
}

/// `whole.fraction` times 10^exponent in nano, rounded up.
fn decimal(whole: &[u8], fraction: &[u8], exponent: i64) -> i128 {
    let digits = whole.iter().chain(fraction).map(|d| i128::from(d - b'0'));
    // How many of the digits stand before the point of the nano figure.
    let keep = whole.len() as i64 + exponent + 9;
    let mut nano = 0i128;
    for (i, digit) in digits.enumerate() {
        if (i as i64) < keep {
            nano = nano.saturating_mul(10).saturating_add(digit);
        } else if digit != 0 {
            return nano.saturating_add(1);
        }
    }
    let zeros = keep - (whole.len() + fraction.len()) as i64;
    if nano != 0 {
        for _ in 0..zeros.clamp(0, 40) {
            nano = nano.saturating_mul(10);
        }
    }
    nano
}

/// `whole.fraction` times 2^bits in nano, rounded up and capped.
fn binary(whole: &[u8], fraction: &[u8], bits: u32) -> i128 {
    let unit = NANO << bits;
    // From the last digit to the first: the rounding of each step is the rounding of the whole.
    let (mut nano, mut rest) = (0i128, false);
    for digit in fraction.iter().rev() {
        let tenfold = i128::from(digit - b'0') * unit + nano;
        nano = tenfold / 10;
        rest |= tenfold % 10 != 0;
    }
    nano += i128::from(rest);
    let units = whole.iter().fold(0i128, |n, d| n.saturating_mul(10).saturating_add(i128::from(d - b'0')));
    units.saturating_mul(unit).saturating_add(nano).min(i128::from(i64::MAX) * NANO)
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, ParseQuantityError> {
        let (negative, unsigned) = match text.as_bytes() {
            [b'-', ..] => (true, &text[1..]),
            [b'+', ..] => (false, &text[1..]),
            _ => (false, text),
        };
        let end = |s: &str| s.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(s.len());
        let (whole, rest) = unsigned.split_at(end(unsigned));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(end(rest)),
            None => ("", rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(ParseQuantityError(Why::NoDigits));
        }
        let nano = match scale(suffix).map_err(ParseQuantityError)? {
            Scale::Ten(exponent) => decimal(whole.as_bytes(), fraction.as_bytes(), exponent),
            Scale::Two(bits) => binary(whole.as_bytes(), fraction.as_bytes(), bits),
        };
        Ok(Self { nano: if negative { -nano } else { nano } })
    }
}

/// Kubernetes' canonical decimal form (`1500m`, `2k`); with `{:#}` the binary form (`1536Mi`) where it is exact.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        let binary = f.alternate() && self.nano % NANO == 0;
        let (mut figure, step, suffixes) =
            if binary { (self.nano / NANO, 1024, &BINARY[..]) } else { (self.nano, 1000, &DECIMAL[..]) };
        if figure == 0 {
            return f.write_str("0");
        }
        let mut i = 0;
        while figure % step == 0 && i + 1 < suffixes.len() {
            figure /= step;
            i += 1;
        }
        write!(f, "{figure}{}", suffixes[i])
    }
}

impl Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { nano: self.nano.saturating_add(other.nano) }
    }
}

impl Sub for Quantity {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { nano: self.nano.saturating_sub(other.nano) }
    }
}

impl Neg for Quantity {
    type Output = Self;

    fn neg(self) -> Self {
        Self { nano: self.nano.saturating_neg() }
    }
}

impl AddAssign for Quantity {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Quantity {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(quantities: I) -> Self {
        quantities.fold(Self::ZERO, Add::add)
    }
}
