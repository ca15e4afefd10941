//! Readers and writers of packet fields; they check every length.

use crate::text::Text;
use crate::types::PacketId;
use crate::var_int::{decode_var_int, var_int_bytes};
use crate::{DecodeError, EncodeError};

/// The unread bytes of a packet's body, or of a property list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketReader<'a> {
    rest: &'a [u8],
}

impl<'a> PacketReader<'a> {
    #[inline]
    pub(crate) const fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.rest.len()
    }

    /// Takes all unread bytes.
    #[inline]
    pub(crate) fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array().map(|[byte]| byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn var_int(&mut self) -> Result<u32, DecodeError> {
        let (value, len) = decode_var_int(self.rest)?.ok_or(DecodeError::Truncated)?;
        self.take(len)?;
        Ok(value)
    }

    /// Reads two bytes of length, then as many bytes.
    #[inline]
    pub(crate) fn binary(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.u16()?;
        self.take(usize::from(len))
    }

    #[inline]
    pub(crate) fn text(&mut self) -> Result<Text<'a>, DecodeError> {
        Ok(Text::from_utf8(self.binary()?)?)
    }

    #[inline]
    pub(crate) fn packet_id(&mut self) -> Result<PacketId, DecodeError> {
        PacketId::new(self.u16()?).ok_or(DecodeError::ZeroPacketId)
    }

    /// Fails if unread bytes are left.
    #[inline]
    pub(crate) const fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::TrailingBytes)
        }
    }
}

/// Appends to an output buffer.
#[derive(Debug)]
pub(crate) struct PacketWriter<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> PacketWriter<'o> {
    #[inline]
    pub(crate) const fn new(out: &'o mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Writes `first_byte`, the remaining length and what `body` writes.
    ///
    /// A body rarely exceeds 127 bytes, so one byte is reserved for the length; longer lengths move the body.
    pub(crate) fn packet(
        &mut self,
        first_byte: u8,
        body: impl FnOnce(&mut Self) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        self.u8(first_byte);
        let length_at = self.out.len();
        self.u8(0);
        body(self)?;
        let body_len = self.out.len() - length_at - 1;
        if let Ok(length @ ..=0x7F) = u8::try_from(body_len)
            && let Some(place) = self.out.get_mut(length_at)
        {
            // As long as its place: nothing moves.
            *place = length;
            return Ok(());
        }
        let (bytes, len) = u32::try_from(body_len)
            .ok()
            .and_then(var_int_bytes)
            .ok_or(EncodeError::PacketTooLong)?;
        let length = bytes.into_iter().take(len);
        self.out.splice(length_at..=length_at, length);
        Ok(())
    }

    #[inline]
    pub(crate) fn u8(&mut self, value: u8) {
        self.out.push(value);
    }

    #[inline]
    pub(crate) fn u16(&mut self, value: u16) {
        self.raw(&value.to_be_bytes());
    }

    #[inline]
    pub(crate) fn u32(&mut self, value: u32) {
        self.raw(&value.to_be_bytes());
    }

    #[inline]
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    #[inline]
    pub(crate) fn var_int(&mut self, value: u32) -> Result<(), EncodeError> {
        let (bytes, len) = var_int_bytes(value).ok_or(EncodeError::VarIntTooLarge)?;
        self.out.extend(bytes.into_iter().take(len));
        Ok(())
    }

    /// Writes a length as a Variable Byte Integer, if it is not too large.
    #[inline]
    pub(crate) fn length(&mut self, len: usize) -> Result<(), EncodeError> {
        self.var_int(u32::try_from(len).map_err(|_| EncodeError::PacketTooLong)?)
            .map_err(|_| EncodeError::PacketTooLong)
    }

    #[inline]
    pub(crate) fn binary(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        let len = u16::try_from(bytes.len()).map_err(|_| EncodeError::FieldTooLong)?;
        self.u16(len);
        self.raw(bytes);
        Ok(())
    }

    #[inline]
    pub(crate) fn text(&mut self, text: Text<'_>) -> Result<(), EncodeError> {
        self.binary(text.as_bytes())
    }

    #[inline]
    pub(crate) fn packet_id(&mut self, packet_id: PacketId) {
        self.u16(packet_id.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_body_has_as_many_bytes_as_it_needs() {
        for (body_len, length) in [
            (0, &[0][..]),
            (127, &[127]),
            (128, &[0x80, 1]),
            (16_383, &[0xFF, 0x7F]),
            (16_384, &[0x80, 0x80, 1]),
        ] {
            let (mut out, body) = (vec![9], vec![7; body_len]);
            let written = PacketWriter::new(&mut out).packet(0x40, |writer| {
                for byte in &body {
                    writer.u8(*byte);
                }
                Ok(())
            });

            assert_eq!(written, Ok(()));
            assert!(out == [&[9, 0x40], length, &body].concat(), "{body_len}");
        }
    }
}
