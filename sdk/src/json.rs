//! The JSON that the host hands out, read without a JSON library: node names, codes, image sizes.

use std::borrow::Cow;

use crate::wire::{Malformed, Result};

/// Reads one value after the other.
pub(crate) struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

/// Deeper than anything the host writes.
const DEPTH: u32 = 16;

impl<'a> Reader<'a> {
    pub(crate) const fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    const fn error<T>(&self, expected: &'static str) -> Result<T> {
        Err(Malformed::Json { expected, at: self.at })
    }

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

    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<()> {
        if self.eat(byte) { Ok(()) } else { self.error(expected) }
    }

    /// Whether `null` stands here, which is then read.
    pub(crate) fn null(&mut self) -> bool {
        self.word("null")
    }

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

    pub(crate) fn string(&mut self) -> Result<Cow<'a, str>> {
        self.expect(b'"', "a string")?;
        let start = self.at;
        let mut unescaped = String::new();
        let mut copied = start;
        loop {
            match self.text.get(self.at) {
                Some(b'"') => {
                    let rest = self.utf8(copied)?;
                    self.at += 1;
                    return Ok(if copied == start {
                        Cow::Borrowed(rest)
                    } else {
                        unescaped.push_str(rest);
                        Cow::Owned(unescaped)
                    });
                }
                Some(b'\\') => {
                    unescaped.push_str(self.utf8(copied)?);
                    self.at += 1;
                    unescaped.push(self.escape()?);
                    copied = self.at;
                }
                Some(0x20..) => self.at += 1,
                _ => return self.error("the end of a string"),
            }
        }
    }

    fn utf8(&self, from: usize) -> Result<&'a str> {
        core::str::from_utf8(&self.text[from..self.at]).or_else(|_| self.error("UTF-8"))
    }

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
        let digits = self.text.get(self.at..self.at + 4).and_then(|d| core::str::from_utf8(d).ok());
        match digits.filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit())).and_then(|d| u32::from_str_radix(d, 16).ok())
        {
            Some(value) => {
                self.at += 4;
                Ok(value)
            }
            None => self.error("four hex digits"),
        }
    }

    /// A whole number.
    pub(crate) fn integer(&mut self) -> Result<i64> {
        self.peek();
        let start = self.at;
        while let Some(b'-' | b'0'..=b'9') = self.text.get(self.at) {
            self.at += 1;
        }
        let number = self.utf8(start)?.parse();
        number.or_else(|_| Err(Malformed::Json { expected: "a whole number", at: start }))
    }

    /// Calls `item` for each item of an array.
    pub(crate) fn array(&mut self, mut item: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.expect(b'[', "an array")?;
        if self.eat(b']') {
            return Ok(());
        }
        loop {
            item(self)?;
            if self.eat(b']') {
                return Ok(());
            }
            self.expect(b',', "a comma or the end of an array")?;
        }
    }

    /// Calls `value` for each key of an object; it reads the value.
    pub(crate) fn object(&mut self, mut value: impl FnMut(Cow<'a, str>, &mut Self) -> Result<()>) -> Result<()> {
        self.expect(b'{', "an object")?;
        if self.eat(b'}') {
            return Ok(());
        }
        loop {
            let key = self.string()?;
            self.expect(b':', "a colon")?;
            value(key, self)?;
            if self.eat(b'}') {
                return Ok(());
            }
            self.expect(b',', "a comma or the end of an object")?;
        }
    }

    /// Reads a value of whatever kind and forgets it.
    pub(crate) fn skip(&mut self) -> Result<()> {
        self.skip_within(DEPTH)
    }

    fn skip_within(&mut self, depth: u32) -> Result<()> {
        let Some(depth) = depth.checked_sub(1) else { return self.error("less nesting") };
        match self.peek() {
            Some(b'{') => self.object(|_, r| r.skip_within(depth)),
            Some(b'[') => self.array(|r| r.skip_within(depth)),
            Some(b'"') => self.string().map(|_| ()),
            Some(b'-' | b'0'..=b'9') => {
                while let Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9') = self.text.get(self.at) {
                    self.at += 1;
                }
                Ok(())
            }
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
