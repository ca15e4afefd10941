//! Decodes JSON (RFC 8259) without building a tree.

use std::borrow::Cow;

use super::value::{DocumentNode, Malformed, SchemaKeys, Value};

/// Maximum nesting depth of objects and arrays.
const MAX_DEPTH: usize = 128;

/// The text of an object or array. That of the document is validated while it is walked through; this validates nested
/// ones before they are used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct JsonNode<'a>(&'a str);

type JsonValue<'a> = Value<'a, JsonNode<'a>>;

/// Opens a document; returns [`Value::Missing`] for a payload of white space only.
pub(crate) fn document(payload: &[u8]) -> Result<JsonValue<'_>, Malformed> {
    let text = str::from_utf8(payload).map_err(|_| Malformed)?;
    let mut cursor = TextCursor { text, at: 0 };
    match cursor.peek() {
        None => Ok(Value::Missing),
        Some(b'{') => Ok(Value::Object(JsonNode(text))),
        Some(b'[') => Ok(Value::Array(JsonNode(text))),
        Some(_) => {
            let value = cursor.value()?;
            cursor.end_of_input()?;
            Ok(value)
        }
    }
}

impl<'a> DocumentNode<'a> for JsonNode<'a> {
    fn fields(self, keys: &mut SchemaKeys, slots: &mut [JsonValue<'a>]) -> Result<(), Malformed> {
        let mut cursor = TextCursor {
            text: self.0,
            at: 0,
        };
        cursor.expect(b'{')?;
        if cursor.peek() == Some(b'}') {
            cursor.at += 1;
            return cursor.end_of_input();
        }
        let mut number = 0;
        loop {
            match cursor.key(keys, number)? {
                Some(place) => slots[place] = cursor.value()?,
                None => cursor.skip(1)?,
            }
            number += 1;
            if !cursor.goes_on(b'}')? {
                return cursor.end_of_input();
            }
        }
    }

    fn items(self, take: &mut dyn FnMut(JsonValue<'a>)) -> Result<(), Malformed> {
        let mut cursor = TextCursor {
            text: self.0,
            at: 0,
        };
        cursor.expect(b'[')?;
        if cursor.peek() == Some(b']') {
            cursor.at += 1;
            return cursor.end_of_input();
        }
        loop {
            take(cursor.value()?);
            if !cursor.goes_on(b']')? {
                return cursor.end_of_input();
            }
        }
    }

    fn as_text(self) -> Option<Cow<'a, str>> {
        Some(Cow::Borrowed(self.0))
    }
}

/// A position in a text.
struct TextCursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> TextCursor<'a> {
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    /// Returns the next byte that is not white space, without consuming it.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.byte()? {
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Malformed> {
        if self.peek() != Some(byte) {
            return Err(Malformed);
        }
        self.at += 1;
        Ok(())
    }

    /// Checks that only white space is left.
    fn end_of_input(&mut self) -> Result<(), Malformed> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(Malformed),
        }
    }

    /// After an item, returns whether another one follows; `close` ends the object or array.
    fn goes_on(&mut self, close: u8) -> Result<bool, Malformed> {
        let next = self.peek().ok_or(Malformed)?;
        self.at += 1;
        match next {
            b',' => Ok(true),
            next if next == close => Ok(false),
            _ => Err(Malformed),
        }
    }

    fn since(&self, start: usize) -> Result<&'a str, Malformed> {
        self.text.get(start..self.at).ok_or(Malformed)
    }

    /// Reads a key and its colon; returns the key's index in the schema.
    fn key(&mut self, keys: &mut SchemaKeys, number: usize) -> Result<Option<usize>, Malformed> {
        self.peek();
        let start = self.at;
        if let Some((len, place)) = keys.known(number, self.rest()) {
            self.at += len;
            return Ok(place);
        }
        self.expect(b'"')?;
        let key = self.string()?;
        self.expect(b':')?;
        let place = keys.find(&key, number);
        keys.learn(number, self.since(start)?.as_bytes(), place);
        Ok(place)
    }

    fn value(&mut self) -> Result<JsonValue<'a>, Malformed> {
        let first = self.peek().ok_or(Malformed)?;
        let start = self.at;
        match first {
            b'"' => {
                self.at += 1;
                Ok(Value::Text(self.string()?))
            }
            b'{' | b'[' => {
                self.skip(1)?;
                let node = JsonNode(self.since(start)?);
                Ok(if first == b'{' {
                    Value::Object(node)
                } else {
                    Value::Array(node)
                })
            }
            b't' => self.word("true").map(|()| Value::Boolean(true)),
            b'f' => self.word("false").map(|()| Value::Boolean(false)),
            b'n' => self.word("null").map(|()| Value::Null),
            _ => {
                let is_integer = self.number()?;
                Ok(Value::Number(self.since(start)?, is_integer))
            }
        }
    }

    /// Skips a value and validates it.
    fn skip(&mut self, depth: usize) -> Result<(), Malformed> {
        match self.peek().ok_or(Malformed)? {
            b'"' => {
                self.at += 1;
                self.string_end().map(|_| ())
            }
            b'{' if depth < MAX_DEPTH => self.skip_object(depth),
            b'[' if depth < MAX_DEPTH => self.skip_array(depth),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'n' => self.word("null"),
            _ => self.number().map(|_| ()),
        }
    }

    fn skip_object(&mut self, depth: usize) -> Result<(), Malformed> {
        self.at += 1;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.expect(b'"')?;
            self.string_end()?;
            self.expect(b':')?;
            self.skip(depth + 1)?;
            if !self.goes_on(b'}')? {
                return Ok(());
            }
        }
    }

    fn skip_array(&mut self, depth: usize) -> Result<(), Malformed> {
        self.at += 1;
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.skip(depth + 1)?;
            if !self.goes_on(b']')? {
                return Ok(());
            }
        }
    }

    fn word(&mut self, word: &str) -> Result<(), Malformed> {
        if !self.rest().starts_with(word.as_bytes()) {
            return Err(Malformed);
        }
        self.at += word.len();
        Ok(())
    }

    /// Skips a number; returns whether it is written as an integer.
    fn number(&mut self) -> Result<bool, Malformed> {
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        match self.byte() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        let mut is_integer = true;
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.digits()?;
            is_integer = false;
        }
        if let Some(b'e' | b'E') = self.byte() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.byte() {
                self.at += 1;
            }
            self.digits()?;
            is_integer = false;
        }
        Ok(is_integer)
    }

    fn digits(&mut self) -> Result<(), Malformed> {
        let rest = self.rest();
        let is_other = |byte: &u8| !byte.is_ascii_digit();
        let len = rest.iter().position(is_other).unwrap_or(rest.len());
        self.at += len;
        if len == 0 { Err(Malformed) } else { Ok(()) }
    }

    /// Reads a string after its opening quote, and consumes the closing quote.
    fn string(&mut self) -> Result<Cow<'a, str>, Malformed> {
        let start = self.at;
        let has_escapes = self.string_end()?;
        let text = self.text.get(start..self.at - 1).ok_or(Malformed)?;
        if has_escapes {
            return unescape(text).map(Cow::Owned);
        }
        Ok(Cow::Borrowed(text))
    }

    /// Skips to the end of a string and validates its escapes; returns whether it has any.
    fn string_end(&mut self) -> Result<bool, Malformed> {
        let start = self.at;
        let mut has_escapes = false;
        loop {
            self.at += plain_len(self.rest());
            match self.byte() {
                Some(b'"') => break,
                Some(b'\\') => {
                    has_escapes = true;
                    self.at += 2;
                }
                // a control character, or the end
                _ => return Err(Malformed),
            }
        }
        if has_escapes {
            let text = self.text.get(start..self.at).ok_or(Malformed)?;
            check_escapes(text)?;
        }
        self.at += 1;
        Ok(has_escapes)
    }
}

/// Bytes that are compared at once.
const STRIDE: usize = 8;
const ONES: u64 = u64::from_le_bytes([1; STRIDE]);
const TOPS: u64 = u64::from_le_bytes([0x80; STRIDE]);

/// Returns how many bytes come before a quote, a backslash or a control character.
fn plain_len(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let Some((stride, behind)) = rest.split_first_chunk::<STRIDE>() {
        let word = u64::from_le_bytes(*stride);
        let zero = |word: u64| word.wrapping_sub(ONES) & !word & TOPS;
        let quote = zero(word ^ (ONES * u64::from(b'"')));
        let backslash = zero(word ^ (ONES * u64::from(b'\\')));
        let control = word.wrapping_sub(ONES * 0x20) & !word & TOPS;
        let found = quote | backslash | control;
        if found != 0 {
            // The lowest match is exact: a borrow only affects higher bytes.
            return bytes.len() - rest.len() + (found.trailing_zeros() / 8) as usize;
        }
        rest = behind;
    }
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1F);
    let len = rest.iter().position(is_special).unwrap_or(rest.len());
    bytes.len() - rest.len() + len
}

fn check_escapes(text: &str) -> Result<(), Malformed> {
    let mut rest = text;
    while let Some((_, escape)) = rest.split_once('\\') {
        rest = escaped(escape)?.1;
    }
    Ok(())
}

fn unescape(text: &str) -> Result<String, Malformed> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, escape)) = rest.split_once('\\') {
        let (character, behind) = escaped(escape)?;
        plain.push_str(before);
        plain.push(character);
        rest = behind;
    }
    plain.push_str(rest);
    Ok(plain)
}

/// Decodes the escape after a backslash; returns the character and the rest of `text`.
fn escaped(text: &str) -> Result<(char, &str), Malformed> {
    let mut behind = text.chars();
    let character = match behind.next().ok_or(Malformed)? {
        plain @ ('"' | '\\' | '/') => plain,
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'u' => return unicode(behind.as_str()),
        _ => return Err(Malformed),
    };
    Ok((character, behind.as_str()))
}

/// Decodes `\u` escapes: four hexadecimal digits, or two escapes for a surrogate pair.
fn unicode(text: &str) -> Result<(char, &str), Malformed> {
    let (high, rest) = four_digits(text)?;
    if let Some(character) = char::from_u32(high) {
        return Ok((character, rest));
    }
    let (low, rest) = four_digits(rest.strip_prefix("\\u").ok_or(Malformed)?)?;
    let is_pair = (0xD800..0xDC00).contains(&high) && (0xDC00..0xE000).contains(&low);
    let pair = is_pair.then(|| 0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00));
    let character = pair.and_then(char::from_u32).ok_or(Malformed)?;
    Ok((character, rest))
}

fn four_digits(text: &str) -> Result<(u32, &str), Malformed> {
    let digits = text.get(..4).ok_or(Malformed)?;
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Malformed);
    }
    let number = u32::from_str_radix(digits, 16).map_err(|_| Malformed)?;
    Ok((number, &text[4..]))
}
