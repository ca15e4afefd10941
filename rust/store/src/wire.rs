//! Numbers and texts in record bodies: little endian, lengths first.
//!
//! A *varint* is LEB128: seven bits a byte, least significant first, at most ten bytes, never
//! padded. A *text* is a `u16` length and UTF-8; *bytes* are a varint length and the bytes.

use thiserror::Error;

/// Why bytes are not the body of a record.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum BodyError {
    /// The body ends inside of a field.
    #[error("the body is too short")]
    Short,
    /// The body has bytes after its last field.
    #[error("the body is too long")]
    Long,
    /// A number is padded or too large for its field.
    #[error("a number is malformed")]
    Number,
    /// A text is not UTF-8.
    #[error("a text is not UTF-8")]
    Text,
    /// A flag or an option that this version does not know.
    #[error("unknown flags")]
    Flags,
    /// A kind of record that this version does not know.
    #[error("unknown record type {0}")]
    Kind(u8),
}

pub(crate) fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(low_byte(value) | 0x80);
        value >>= 7;
    }
    out.push(low_byte(value));
}

pub(crate) fn put_u16(value: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u32(value: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u64(value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Texts come from MQTT strings, which are below 64 KiB; a longer one would be cut at its end.
pub(crate) fn put_text(text: &str, out: &mut Vec<u8>) {
    let mut end = text.len().min(usize::from(u16::MAX));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    put_u16(u16::try_from(end).unwrap_or(u16::MAX), out);
    out.extend_from_slice(&text.as_bytes()[..end]);
}

pub(crate) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the low seven bits are wanted"
)]
fn low_byte(value: u64) -> u8 {
    value as u8 & 0x7F
}

/// Takes fields off the front of a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordReader<'a>(pub(crate) &'a [u8]);

impl<'a> RecordReader<'a> {
    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8], BodyError> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(BodyError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BodyError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(BodyError::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, BodyError> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, BodyError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, BodyError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, BodyError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn varint(&mut self) -> Result<u64, BodyError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            if shift == 63 && bits > 1 || byte == 0 && shift > 0 {
                return Err(BodyError::Number);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(BodyError::Number)
    }

    pub(crate) fn length(&mut self) -> Result<usize, BodyError> {
        let value = self.varint()?;
        // Every counted thing takes a byte at least: no count is larger than what is left.
        let length = usize::try_from(value).map_err(|_| BodyError::Number)?;
        if length > self.0.len() {
            Err(BodyError::Short)
        } else {
            Ok(length)
        }
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, BodyError> {
        let length = self.u16()?;
        let bytes = self.take(usize::from(length))?;
        std::str::from_utf8(bytes).map_err(|_| BodyError::Text)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], BodyError> {
        let length = self.length()?;
        self.take(length)
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub(crate) fn end(self) -> Result<(), BodyError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(BodyError::Long)
        }
    }
}
