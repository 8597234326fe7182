//! JSON, small: what the host hands out (node names, codes, image sizes), and with feature `serde` the configuration.
//! A JSON library would be larger than most plugins.

#[cfg(feature = "serde")]
use crate::Status;

#[cfg(feature = "serde")]
pub(crate) mod de;

use crate::wire::{Malformed, Result};

/// Reads a value from JSON, such as an object that the bridge hands out, at a tenth of the size of a JSON library. Values
/// nested deeper than 32 are refused.
///
/// # Errors
/// What is wrong, by field, line and column.
#[cfg(feature = "serde")]
pub fn from_slice<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, Status> {
    de::from_slice(bytes).map_err(Status::error)
}

/// Reads one value after the other.
pub(crate) struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    depth: u32,
}

/// Deeper than anything the host or a person writes, and shallow enough for a stack of 64 KiB.
const DEPTH: u32 = 32;

impl<'a> Reader<'a> {
    pub(crate) const fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    const fn error<T>(&self, expected: &'static str) -> Result<T> {
        Err(Malformed::Json { expected, at: self.at })
    }

    #[inline(never)]
    fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.text.get(self.at) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    #[inline(never)]
    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<()> {
        if self.eat(byte) { Ok(()) } else { self.error(expected) }
    }

    /// Whether `null` stands here, which is then read.
    pub(crate) fn null(&mut self) -> bool {
        self.word("null")
    }

    #[inline(never)]
    fn word(&mut self, word: &str) -> bool {
        self.peek();
        let found = self.text[self.at..].starts_with(word.as_bytes());
        self.at += if found { word.len() } else { 0 };
        found
    }

    /// Nothing may follow.
    pub(crate) fn end(&mut self) -> Result<()> {
        if self.peek().is_none() { Ok(()) } else { self.error("the end") }
    }

    pub(crate) fn string(&mut self) -> Result<String> {
        self.expect(b'"', "a string")?;
        let mut text = Vec::new();
        loop {
            let Some(&byte) = self.text.get(self.at) else { return self.error("the end of a string") };
            match byte {
                b'"' => {
                    let text = String::from_utf8(text).or_else(|_| self.error("UTF-8"));
                    self.at += 1;
                    return text;
                }
                b'\\' => {
                    self.at += 1;
                    text.extend_from_slice(self.escape()?.encode_utf8(&mut [0; 4]).as_bytes());
                }
                0x20.. => {
                    text.push(byte);
                    self.at += 1;
                }
                _ => return self.error("no control character in a string"),
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn escape(&mut self) -> Result<char> {
        let Some(&byte) = self.text.get(self.at) else { return self.error("an escape") };
        self.at += 1;
        Ok(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.hex4()?;
                let code = if (0xd800..0xdc00).contains(&first) {
                    if !self.text[self.at..].starts_with(b"\\u") {
                        return self.error("the second half of a surrogate pair");
                    }
                    self.at += 2;
                    let second = self.hex4()?;
                    if !(0xdc00..0xe000).contains(&second) {
                        return self.error("the second half of a surrogate pair");
                    }
                    0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
                } else {
                    first
                };
                match char::from_u32(code) {
                    Some(c) => c,
                    None => return self.error("a character"),
                }
            }
            _ => return self.error("an escape"),
        })
    }

    fn hex4(&mut self) -> Result<u32> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.text.get(self.at).and_then(|&b| char::from(b).to_digit(16));
            let Some(digit) = digit else { return self.error("four hex digits") };
            code = code << 4 | digit;
            self.at += 1;
        }
        Ok(code)
    }

    /// A number as it stands.
    pub(crate) fn number(&mut self) -> Result<&'a str> {
        self.peek();
        let start = self.at;
        while let Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9') = self.text.get(self.at) {
            self.at += 1;
        }
        match core::str::from_utf8(&self.text[start..self.at]) {
            Ok(number) if !number.is_empty() => Ok(number),
            _ => self.error("a number"),
        }
    }

    /// A whole number.
    pub(crate) fn integer(&mut self) -> Result<i64> {
        self.peek();
        let at = self.at;
        self.number()?.parse().or(Err(Malformed::Json { expected: "a whole number", at }))
    }

    fn deeper(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > DEPTH { self.error("less nesting") } else { Ok(()) }
    }

    /// Enters an array or object; whether it holds anything.
    fn open(&mut self, open: u8, close: u8, expected: &'static str) -> Result<bool> {
        self.expect(open, expected)?;
        self.deeper()?;
        Ok(!self.close(close))
    }

    #[inline(never)]
    fn close(&mut self, close: u8) -> bool {
        let closed = self.eat(close);
        self.depth -= u32::from(closed);
        closed
    }

    /// After an item: whether another one follows.
    fn more(&mut self, close: u8) -> Result<bool> {
        if self.close(close) {
            return Ok(false);
        }
        self.expect(b',', "a comma or the end of the array or object")?;
        Ok(true)
    }

    fn key(&mut self) -> Result<String> {
        let key = self.string()?;
        self.expect(b':', "a colon")?;
        Ok(key)
    }

    /// Calls `item` for each item of an array. Not generic: a copy per call would be half the size of a small plugin.
    pub(crate) fn array(&mut self, item: &mut dyn FnMut(&mut Self) -> Result<()>) -> Result<()> {
        let mut more = self.open(b'[', b']', "an array")?;
        while more {
            item(self)?;
            more = self.more(b']')?;
        }
        Ok(())
    }

    /// Calls `value` for each key of an object; it reads the value.
    pub(crate) fn object(&mut self, value: &mut dyn FnMut(String, &mut Self) -> Result<()>) -> Result<()> {
        let mut more = self.open(b'{', b'}', "an object")?;
        while more {
            let key = self.key()?;
            value(key, self)?;
            more = self.more(b'}')?;
        }
        Ok(())
    }

    /// Reads a value of whatever kind and forgets it.
    pub(crate) fn skip(&mut self) -> Result<()> {
        match self.peek() {
            Some(b'{') => self.object(&mut |_, r| r.skip()),
            Some(b'[') => self.array(&mut Self::skip),
            Some(b'"') => self.string().map(|_| ()),
            Some(b'-' | b'0'..=b'9') => self.number().map(|_| ()),
            _ if self.word("true") || self.word("false") || self.word("null") => Ok(()),
            _ => self.error("a value"),
        }
    }
}

/// Appends a string with its quotes.
pub(crate) fn push_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', byte]),
            0..0x20 => out.extend(format!("\\u{byte:04x}").into_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}
