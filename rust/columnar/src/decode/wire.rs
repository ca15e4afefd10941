//! The wire format of Protocol Buffers: numbered fields of four kinds.

use super::value::Malformed;

/// The encoded value of a field of unknown type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

/// The fields of a message, in their order.
#[derive(Clone, Debug)]
pub(crate) struct MessageFields<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for MessageFields<'a> {
    type Item = Result<(u32, Wire<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> MessageFields<'a> {
    fn field(&mut self) -> Result<(u32, Wire<'a>), Malformed> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).map_err(|_| Malformed)?;
        if number == 0 {
            return Err(Malformed);
        }
        let value = match key & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(u64::from_le_bytes(self.chunk()?)),
            2 => {
                let len = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
                self.0 = rest;
                Wire::Bytes(bytes)
            }
            5 => Wire::Fixed32(u32::from_le_bytes(self.chunk()?)),
            _ => return Err(Malformed),
        };
        Ok((number, value))
    }

    pub(crate) fn chunk<const LEN: usize>(&mut self) -> Result<[u8; LEN], Malformed> {
        let (chunk, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*chunk)
    }

    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..70).step_by(7) {
            let [byte] = self.chunk()?;
            let bits = u64::from(byte & 0x7F);
            if shift == 63 && bits > 1 {
                return Err(Malformed);
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed)
    }
}

/// The low 32 bits of a varint, for 32-bit types.
#[expect(
    clippy::cast_possible_truncation,
    reason = "writers extend the sign to 64 bits, or not"
)]
pub(crate) fn low_half(bits: u64) -> u32 {
    bits as u32
}

/// The text of a field of bytes.
pub(crate) fn utf8(bytes: &[u8]) -> Result<&str, Malformed> {
    str::from_utf8(bytes).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(bytes: &[u8]) -> Result<Vec<(u32, Wire<'_>)>, Malformed> {
        MessageFields(bytes).collect()
    }

    #[test]
    fn fields_of_every_kind_are_read() {
        let bytes = [
            0x08, 0x96, 0x01, 0x12, 0x02, b'a', b'b', 0x1D, 1, 0, 0, 0, 0x21, 2, 0, 0, 0, 0, 0, 0,
            0,
        ];

        let expected = [
            (1, Wire::Varint(150)),
            (2, Wire::Bytes(b"ab")),
            (3, Wire::Fixed32(1)),
            (4, Wire::Fixed64(2)),
        ];
        assert_eq!(fields(&bytes), Ok(expected.to_vec()));
        let largest = [0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
        assert_eq!(fields(&largest), Ok(vec![(1, Wire::Varint(u64::MAX))]));
    }

    #[test]
    fn what_is_cut_off_or_unknown_is_refused() {
        for bytes in [
            &[0x08][..],
            &[0x80],
            &[0x00, 0x00],
            &[0x0B],
            &[0x12, 0x02, b'a'],
            &[0x1D, 1, 0, 0],
            &[0x21, 1, 0, 0, 0, 0, 0, 0],
            &[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2],
            &[0x08, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 0],
        ] {
            assert_eq!(fields(bytes), Err(Malformed), "{bytes:x?}");
        }
    }
}
