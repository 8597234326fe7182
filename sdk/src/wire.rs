//! The protobuf wire format, read in place.
//!
//! A message is its bytes; a field is looked for when it is asked for. Nothing is allocated, and what isn't asked for
//! is skipped by its length.

use core::fmt;
use core::marker::PhantomData;

/// Why bytes of the host could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// A message ends within a field.
    Truncated,
    /// A number takes more than 64 bits.
    Varint,
    /// A field has number 0, or a number above 2^29 - 1.
    FieldNumber,
    /// A field has another wire type than its definition.
    WireType {
        /// The field's number.
        field: u32,
    },
    /// A string is not UTF-8.
    Utf8 {
        /// The field's number.
        field: u32,
    },
    /// A single message stands twice; Kubernetes never writes that.
    Repeated {
        /// The field's number.
        field: u32,
    },
    /// A field that must be there isn't.
    Missing {
        /// The field's number.
        field: u32,
    },
    /// A resource quantity can't be read.
    Quantity(crate::ParseQuantityError),
    /// JSON of the host can't be read.
    Json {
        /// What was expected.
        expected: &'static str,
        /// Offset in bytes.
        at: usize,
    },
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("malformed protobuf: the message ends within a field"),
            Self::Varint => f.write_str("malformed protobuf: a varint is longer than 64 bits"),
            Self::FieldNumber => f.write_str("malformed protobuf: bad field number"),
            Self::WireType { field } => write!(f, "malformed protobuf: field {field} has the wrong wire type"),
            Self::Utf8 { field } => write!(f, "malformed protobuf: field {field} is not UTF-8"),
            Self::Repeated { field } => write!(f, "malformed protobuf: single field {field} stands twice"),
            Self::Missing { field } => write!(f, "malformed protobuf: field {field} is missing"),
            Self::Quantity(e) => e.fmt(f),
            Self::Json { expected, at } => write!(f, "malformed JSON from the host: expected {expected} at byte {at}"),
        }
    }
}

impl core::error::Error for Malformed {}

impl From<crate::ParseQuantityError> for Malformed {
    fn from(e: crate::ParseQuantityError) -> Self {
        Self::Quantity(e)
    }
}

/// A read value, or why it can't be read.
pub(crate) type Result<T, E = Malformed> = core::result::Result<T, E>;

/// A field's value by wire type.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Fixed64(u64),
    /// 32 bits and groups: no message read here has them.
    Other,
}

/// The fields of a message, in the order of the bytes.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn varint(&mut self) -> Result<u64> {
        // The most frequent case by far: one byte.
        if let [first @ 0..=0x7f, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(u64::from(*first));
        }
        let mut value = 0u64;
        for (i, &byte) in self.rest.iter().take(10).enumerate() {
            if i == 9 && byte > 1 {
                return Err(Malformed::Varint);
            }
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.rest = &self.rest[i + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() >= 10 { Malformed::Varint } else { Malformed::Truncated })
    }

    /// The next field if it is a text or a message, with a number below 16 and shorter than 128 bytes. Most are, and this
    /// is several times faster than [`Fields::next`].
    #[inline(always)]
    fn next_short(&mut self) -> Option<(u32, &'a [u8])> {
        let &[key @ 0x0a..=0x7f, len @ 0..=0x7f, ref rest @ ..] = self.rest else { return None };
        if key & 7 != 2 {
            return None;
        }
        let (bytes, rest) = rest.split_at_checked(len.into())?;
        self.rest = rest;
        Some((u32::from(key >> 3), bytes))
    }

    /// The next of packed varints.
    #[cfg(feature = "bridge")]
    pub(crate) fn next_packed(&mut self) -> Option<Result<u64>> {
        (!self.rest.is_empty()).then(|| self.varint())
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8]> {
        let len = usize::try_from(len).map_err(|_| Malformed::Truncated)?;
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Malformed::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn key(&mut self) -> Result<(u32, u8)> {
        let key = self.varint()?;
        match u32::try_from(key >> 3) {
            Ok(number @ 1..=0x1fff_ffff) => Ok((number, (key & 7) as u8)),
            _ => Err(Malformed::FieldNumber),
        }
    }

    /// Groups are long deprecated, but a reader has to skip them; the depth is bounded as in prost.
    fn skip_group(&mut self, number: u32, depth: u32) -> Result<()> {
        if depth == 0 {
            return Err(Malformed::WireType { field: number });
        }
        loop {
            let (inner, wire_type) = self.key()?;
            if wire_type == 4 {
                return if inner == number { Ok(()) } else { Err(Malformed::WireType { field: inner }) };
            }
            self.value(inner, wire_type, depth - 1)?;
        }
    }

    fn value(&mut self, number: u32, wire_type: u8, depth: u32) -> Result<Value<'a>> {
        Ok(match wire_type {
            0 => Value::Varint(self.varint()?),
            1 => {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(self.take(8)?);
                Value::Fixed64(u64::from_le_bytes(bytes))
            }
            2 => {
                let len = self.varint()?;
                Value::Bytes(self.take(len)?)
            }
            3 => self.skip_group(number, depth).map(|()| Value::Other)?,
            5 => self.take(4).map(|_| Value::Other)?,
            _ => return Err(Malformed::WireType { field: number }),
        })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some((number, bytes)) = self.next_short() {
            return Some(Ok((number, Value::Bytes(bytes))));
        }
        if self.rest.is_empty() {
            return None;
        }
        let field = self.key().and_then(|(number, wire_type)| Ok((number, self.value(number, wire_type, 100)?)));
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// A message: its bytes, typed.
pub trait Message<'a>: Copy {
    /// The message with these bytes. They are read when a field is asked for.
    fn from_bytes(bytes: &'a [u8]) -> Self;

    /// The encoded message.
    fn as_bytes(&self) -> &'a [u8];
}

/// One value of a field.
pub trait FieldValue<'a>: Sized {
    /// A message, which may stand but once.
    const SINGLE: bool = false;

    fn read(field: u32, value: Value<'a>) -> Result<Self>;
}

impl<'a> FieldValue<'a> for &'a str {
    fn read(field: u32, value: Value<'a>) -> Result<Self> {
        match value {
            Value::Bytes(bytes) => core::str::from_utf8(bytes).map_err(|_| Malformed::Utf8 { field }),
            _ => Err(Malformed::WireType { field }),
        }
    }
}

impl<'a> FieldValue<'a> for &'a [u8] {
    fn read(field: u32, value: Value<'a>) -> Result<Self> {
        match value {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(Malformed::WireType { field }),
        }
    }
}

macro_rules! varints {
    ($($type:ty: $convert:expr;)*) => {$(
        impl<'a> FieldValue<'a> for $type {
                    fn read(field: u32, value: Value<'a>) -> Result<Self> {
                match value {
                    Value::Varint(v) => Ok($convert(v)),
                    _ => Err(Malformed::WireType { field }),
                }
            }
        }
    )*};
}

// They truncate as protobuf does: an int32 is written as 64 bits.
const fn to_i64(v: u64) -> i64 {
    v as i64
}
const fn to_i32(v: u64) -> i32 {
    v as i32
}
#[cfg(feature = "bridge")]
const fn to_u32(v: u64) -> u32 {
    v as u32
}
const fn to_bool(v: u64) -> bool {
    v != 0
}
varints! {
    i64: to_i64;
    i32: to_i32;
    bool: to_bool;
}
#[cfg(feature = "bridge")]
varints! {
    u32: to_u32;
}

/// How an accessor reads its field.
pub(crate) trait Field<'a>: Sized {
    fn get(message: &'a [u8], field: u32) -> Result<Self>;
}

/// The last value of a field. Not generic: a copy per type would be a tenth of a small plugin.
#[inline(never)]
fn last(message: &[u8], field: u32, single: bool) -> Result<Option<Value<'_>>> {
    let mut fields = Fields::new(message);
    let mut found = None;
    loop {
        let (number, value) = match fields.next_short() {
            Some((number, bytes)) => (number, Value::Bytes(bytes)),
            None => match fields.next() {
                Some(entry) => entry?,
                None => return Ok(found),
            },
        };
        if number == field {
            if single && found.is_some() {
                return Err(Malformed::Repeated { field });
            }
            found = Some(value);
        }
    }
}

impl<'a, T: FieldValue<'a>> Field<'a> for Option<T> {
    fn get(message: &'a [u8], field: u32) -> Result<Self> {
        last(message, field, T::SINGLE)?.map(|value| T::read(field, value)).transpose()
    }
}

/// The bytes of a text or message, nothing where it is absent: `last` for what is read most.
#[inline(never)]
pub(crate) fn bytes_of(message: &[u8], field: u32, single: bool) -> Result<&[u8]> {
    let mut fields = Fields::new(message);
    let mut found: Option<&[u8]> = None;
    loop {
        let mut short = fields.next_short();
        while short.is_some_and(|(number, _)| number != field) {
            short = fields.next_short();
        }
        let bytes = match short {
            Some((_, bytes)) => bytes,
            None => match fields.next() {
                Some(Ok((number, _))) if number != field => continue,
                Some(Ok((_, Value::Bytes(bytes)))) => bytes,
                Some(Ok(_)) => return Err(Malformed::WireType { field }),
                Some(Err(e)) => return Err(e),
                None => return Ok(found.unwrap_or_default()),
            },
        };
        if single && found.is_some() {
            return Err(Malformed::Repeated { field });
        }
        found = Some(bytes);
    }
}

#[inline(never)]
fn text_of(message: &[u8], field: u32) -> Result<&str> {
    core::str::from_utf8(bytes_of(message, field, false)?).map_err(|_| Malformed::Utf8 { field })
}

impl<'a> Field<'a> for &'a str {
    fn get(message: &'a [u8], field: u32) -> Result<Self> {
        text_of(message, field)
    }
}

macro_rules! required_fields {
    ($($type:ty),*) => {$(
        impl<'a> Field<'a> for $type {
            fn get(message: &'a [u8], field: u32) -> Result<Self> {
                Ok(<Option<Self> as Field>::get(message, field)?.unwrap_or_default())
            }
        }
    )*};
}
required_fields!(i64, i32, bool);
#[cfg(feature = "bridge")]
required_fields!(u32);
#[cfg(feature = "bridge")]
impl<'a> Field<'a> for &'a [u8] {
    fn get(message: &'a [u8], field: u32) -> Result<Self> {
        bytes_of(message, field, false)
    }
}

/// The values of a repeated field, read one by one.
#[derive(Clone, Copy)]
pub struct Repeated<'a, T> {
    fields: Fields<'a>,
    field: u32,
    of: PhantomData<T>,
}

impl<'a, T> Field<'a> for Repeated<'a, T> {
    fn get(message: &'a [u8], field: u32) -> Result<Self> {
        Ok(Self { fields: Fields::new(message), field, of: PhantomData })
    }
}

impl<'a, T: FieldValue<'a>> Iterator for Repeated<'a, T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.fields.next()? {
                Ok((number, value)) if number == self.field => return Some(T::read(number, value)),
                Ok(_) => {}
                Err(e) => return Some(Err(e)),
            }
        }
    }
}

impl<'a, T: FieldValue<'a> + Copy + fmt::Debug> fmt::Debug for Repeated<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}

/// Reads key (field 1) and value (field 2) of a map entry. The value is a text or a message, as in every map read here.
#[inline(never)]
fn entry(bytes: &[u8]) -> Result<(&str, &[u8])> {
    let mut key = "";
    let mut value: &[u8] = &[];
    for field in Fields::new(bytes) {
        match field? {
            (1, v) => key = <&str>::read(1, v)?,
            (2, v) => value = <&[u8]>::read(2, v)?,
            _ => {}
        }
    }
    Ok((key, value))
}

/// A map with string keys: labels, annotations, resources.
#[derive(Clone, Copy)]
pub struct Map<'a, V> {
    entries: Repeated<'a, &'a [u8]>,
    of: PhantomData<V>,
}

impl<'a, V> Field<'a> for Map<'a, V> {
    fn get(message: &'a [u8], field: u32) -> Result<Self> {
        Ok(Self { entries: Repeated::get(message, field)?, of: PhantomData })
    }
}

impl<'a, V: FieldValue<'a>> Map<'a, V> {
    /// The value under a key.
    ///
    /// # Errors
    /// The bytes before the end of the map are malformed.
    pub fn get(self, key: &str) -> Result<Option<V>> {
        under(self.entries, key)?.map(|value| V::read(2, Value::Bytes(value))).transpose()
    }
}

/// The last value under a key: as with every protobuf map, it wins.
#[inline(never)]
fn under<'a>(entries: Repeated<'a, &'a [u8]>, key: &str) -> Result<Option<&'a [u8]>> {
    let mut found = None;
    for bytes in entries {
        let (k, value) = entry(bytes?)?;
        if k == key {
            found = Some(value);
        }
    }
    Ok(found)
}

impl<'a, V: FieldValue<'a>> Iterator for Map<'a, V> {
    type Item = Result<(&'a str, V)>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.entries.next()?;
        Some(bytes.and_then(entry).and_then(|(key, value)| Ok((key, V::read(2, Value::Bytes(value))?))))
    }
}

impl<'a, V: FieldValue<'a> + Copy + fmt::Debug> fmt::Debug for Map<'a, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}

impl<'a> FieldValue<'a> for crate::Quantity {
    const SINGLE: bool = true;

    /// resource.Quantity is a message whose only field is its text.
    fn read(field: u32, value: Value<'a>) -> Result<Self> {
        let message = <&[u8]>::read(field, value)?;
        let text = <&str as Field>::get(message, 1)?;
        // A Quantity that was never set has no text; Go reads it as 0.
        if text.is_empty() { Ok(Self::ZERO) } else { Ok(text.parse()?) }
    }
}

/// Declares readers: a struct over the message's bytes with one accessor per field.
macro_rules! messages {
    ($(
        $(#[$meta:meta])*
        $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty = $number:literal;)* }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Default, PartialEq, Eq)]
        pub struct $name<'a>(&'a [u8]);

        impl<'a> $name<'a> {
            $(
                $(#[$field_meta])*
                ///
                /// # Errors
                /// The bytes are malformed.
                pub fn $field(self) -> $crate::wire::Result<$type> {
                    <$type as $crate::wire::Field>::get(self.0, $number)
                }
            )*
        }

        impl<'a> $crate::wire::Message<'a> for $name<'a> {
            fn from_bytes(bytes: &'a [u8]) -> Self {
                Self(bytes)
            }

            fn as_bytes(&self) -> &'a [u8] {
                self.0
            }
        }

        impl<'a> $crate::wire::FieldValue<'a> for $name<'a> {
                    const SINGLE: bool = true;

            fn read(field: u32, value: $crate::wire::Value<'a>) -> $crate::wire::Result<Self> {
                <&[u8]>::read(field, value).map(Self)
            }
        }

        impl<'a> $crate::wire::Field<'a> for $name<'a> {
            fn get(message: &'a [u8], field: u32) -> $crate::wire::Result<Self> {
                $crate::wire::bytes_of(message, field, true).map(Self)
            }
        }

        impl core::fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let mut s = f.debug_struct(stringify!($name));
                $(s.field(stringify!($field), &self.$field());)*
                s.finish()
            }
        }
    )*};
}
pub(crate) use messages;

/// How long the message at the start of `padded` is, when zeros follow it: no field has number 0.
pub(crate) fn zero_padded_len(padded: &[u8]) -> Result<usize> {
    let mut fields = Fields::new(padded);
    while fields.rest.first().is_some_and(|&b| b != 0) {
        if let Some(Err(e)) = fields.next() {
            return Err(e);
        }
    }
    Ok(padded.len() - fields.rest.len())
}

/// Appends a varint under its key; `key` is the field's number and wire type.
#[cfg(any(feature = "bridge", not(target_family = "wasm")))]
#[inline(never)]
pub(crate) fn push_varint(out: &mut Vec<u8>, key: u64, value: u64) {
    push_number(out, key);
    push_number(out, value);
}

/// Appends a varint alone.
#[cfg(any(feature = "bridge", not(target_family = "wasm")))]
#[inline(never)]
pub(crate) fn push_number(out: &mut Vec<u8>, mut rest: u64) {
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Appends a field of bytes: a string, or an encoded message.
#[cfg(any(feature = "bridge", not(target_family = "wasm")))]
#[inline(never)]
pub(crate) fn push_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    push_varint(out, u64::from(field) << 3 | 2, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
