//! The configuration as a serde type, with errors that name the field, the line and the column.

use core::fmt::{self, Display};
use std::borrow::Cow;

use serde::de::value::StringDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, Expected, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};

use super::Reader;
use crate::wire::Malformed;

/// Reads a value from a JSON text.
pub(crate) fn from_slice<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    let mut reader = Reader::new(text);
    let value = T::deserialize(&mut reader).and_then(|value| reader.end().map(|()| value).map_err(Error::from));
    value.map_err(|e| {
        let before = &text[..e.at.unwrap_or(reader.at).min(text.len())];
        let line = 1 + before.iter().filter(|&&b| b == b'\n').count();
        let column = 1 + before.iter().rev().take_while(|&&b| b != b'\n').count();
        let separator = if e.path.is_empty() { "" } else { ": " };
        format!("{}{separator}{} at line {line} column {column}", e.path, e.message)
    })
}

#[derive(Debug)]
pub(crate) struct Error {
    /// Where in the value, as in `weights.cpu`.
    path: String,
    message: Cow<'static, str>,
    at: Option<usize>,
}

impl Error {
    fn within(mut self, key: &str) -> Self {
        let separator = if self.path.is_empty() { "" } else { "." };
        self.path = format!("{key}{separator}{}", self.path);
        self
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl core::error::Error for Error {}

impl From<Malformed> for Error {
    fn from(e: Malformed) -> Self {
        match e {
            Malformed::Json { expected, at } => {
                Self { path: String::new(), message: format!("expected {expected}").into(), at: Some(at) }
            }
            other => Self::custom(other),
        }
    }
}

impl serde::de::Error for Error {
    fn custom<T: Display>(message: T) -> Self {
        Self { path: String::new(), message: message.to_string().into(), at: None }
    }

    // The default prints floating-point numbers, at a cost of 20 KiB.
    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("expected {expected}"))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("expected {expected}"))
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty, $expected:literal $(, $fits:expr)?;)*) => {$(
        numbers!(@one $method $visit $type, $expected, $($fits,)? |_| true);
    )*};
    (@one $method:ident $visit:ident $type:ty, $expected:literal, $fits:expr $(, $default:expr)?) => {
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.peek();
            let at = self.at;
            let number = strict(self).and_then(|n| n.parse::<$type>().ok()).filter($fits);
            match number {
                Some(number) => visitor.$visit(number),
                None => Err(Malformed::Json { expected: $expected, at }.into()),
            }
        }
    };
}

/// A number as JSON writes it, without the plus, the leading zeros and the bare point that Rust takes too.
fn strict<'de>(reader: &mut Reader<'de>) -> Option<&'de str> {
    let number = reader.number().ok()?;
    let digits = number.strip_prefix('-').unwrap_or(number).as_bytes();
    let whole = match digits {
        [b'0', b'0'..=b'9', ..] => false,
        [first, ..] => first.is_ascii_digit(),
        [] => false,
    };
    let bare_point = |pair: &[u8]| pair[0] == b'.' && !pair[1].is_ascii_digit();
    (whole && digits.last() != Some(&b'.') && !digits.windows(2).any(bare_point)).then_some(number)
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.peek() {
            Some(b'{') => self.deserialize_map(visitor),
            Some(b'[') => self.deserialize_seq(visitor),
            Some(b'"') => self.deserialize_str(visitor),
            Some(b'-' | b'0'..=b'9') => {
                let at = self.at;
                let number = strict(self).unwrap_or_default();
                if let Ok(n) = number.parse::<u64>() {
                    visitor.visit_u64(n)
                } else if let Ok(n) = number.parse::<i64>() {
                    visitor.visit_i64(n)
                } else if let Some(n) = number.parse().ok().filter(|n: &f64| n.is_finite()) {
                    visitor.visit_f64(n)
                } else {
                    Err(Malformed::Json { expected: "a number", at }.into())
                }
            }
            Some(b'n') => self.deserialize_unit(visitor),
            _ => self.deserialize_bool(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.word("true") {
            visitor.visit_bool(true)
        } else if self.word("false") {
            visitor.visit_bool(false)
        } else {
            Ok(self.error("true or false")?)
        }
    }

    numbers! {
        deserialize_i8 visit_i8 i8, "a whole number from -128 to 127";
        deserialize_i16 visit_i16 i16, "a whole number of 16 bits";
        deserialize_i32 visit_i32 i32, "a whole number of 32 bits";
        deserialize_i64 visit_i64 i64, "a whole number of 64 bits";
        deserialize_u8 visit_u8 u8, "a whole number from 0 to 255";
        deserialize_u16 visit_u16 u16, "a whole number from 0 to 65535";
        deserialize_u32 visit_u32 u32, "a whole number of 32 bits, not negative";
        deserialize_u64 visit_u64 u64, "a whole number of 64 bits, not negative";
        deserialize_f32 visit_f32 f32, "a number that is not too large", |n| n.is_finite();
        deserialize_f64 visit_f64 f64, "a number that is not too large", |n| n.is_finite();
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.string()?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.null() { visitor.visit_unit() } else { Ok(self.error("null")?) }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let more = self.open(b'[', b']', "an array")?;
        let mut items = Items { reader: self, more, index: 0 };
        let value = visitor.visit_seq(&mut items)?;
        if items.more { Ok(items.reader.error("the end of the array")?) } else { Ok(value) }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let more = self.open(b'{', b'}', "an object")?;
        visitor.visit_map(Entries { reader: self, more, key: String::new() })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if self.peek() != Some(b'{') {
            return visitor.visit_enum(self.string()?.into_deserializer());
        }
        if !self.open(b'{', b'}', "an object")? {
            return Ok(self.error("one key")?);
        }
        let value = visitor.visit_enum(Variant(&mut *self))?;
        if self.more(b'}')? { Ok(self.error("but one key")?) } else { Ok(value) }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.skip()?;
        visitor.visit_unit()
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }
}

struct Items<'r, 'de> {
    reader: &'r mut Reader<'de>,
    more: bool,
    index: usize,
}

impl<'de> SeqAccess<'de> for &mut Items<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        if !self.more {
            return Ok(None);
        }
        let value = seed.deserialize(&mut *self.reader).map_err(|e| e.within(&format!("[{}]", self.index)))?;
        self.index += 1;
        self.more = self.reader.more(b']')?;
        Ok(Some(value))
    }
}

struct Entries<'r, 'de> {
    reader: &'r mut Reader<'de>,
    more: bool,
    key: String,
}

impl<'de> MapAccess<'de> for Entries<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        if !self.more {
            return Ok(None);
        }
        self.reader.peek();
        let at = self.reader.at;
        self.key = self.reader.key()?;
        seed.deserialize(self.key.as_str().into_deserializer())
            .map(Some)
            .map_err(|e: Error| Error { at: Some(at), ..e })
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let value = seed.deserialize(&mut *self.reader).map_err(|e| e.within(&self.key))?;
        self.more = self.reader.more(b'}')?;
        Ok(value)
    }
}

/// `{"Variant": value}`, after the brace.
struct Variant<'r, 'de>(&'r mut Reader<'de>);

impl<'r, 'de> EnumAccess<'de> for Variant<'r, 'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        let name: StringDeserializer<Error> = self.0.key()?.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        self.0.deserialize_unit(serde::de::IgnoredAny).map(|_| ())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.0)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.0.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, Error> {
        self.0.deserialize_map(visitor)
    }
}
