//! Variable Byte Integers: 7 bits a byte, least significant group first.

use crate::DecodeError;

/// Largest value that four bytes can hold: 268 435 455.
pub const VAR_INT_MAX: u32 = (1 << (7 * MAX_LEN)) - 1;

/// Reads the Variable Byte Integer at the front of `src`.
///
/// Returns `(value, len)` with `len` in `1..=4` bytes, or `None` if its last byte is missing. The caller must advance
/// its own buffer by `len`.
///
/// # Errors
///
/// [`DecodeError::VarIntTooLong`] if the fourth byte is not the last one, and [`DecodeError::PaddedVarInt`]; both are
/// final and apply to every version.
///
/// Source: MQTT 5.0 section 1.5.5, [MQTT-1.5.5-1].
#[inline]
pub fn decode_var_int(src: &[u8]) -> Result<Option<(u32, usize)>, DecodeError> {
    match src {
        [] => Ok(None),
        [byte, ..] if byte & MORE == 0 => Ok(Some((u32::from(*byte), 1))),
        _ => decode_long(src),
    }
}

fn decode_long(src: &[u8]) -> Result<Option<(u32, usize)>, DecodeError> {
    let mut value = 0;
    for (index, &byte) in src.iter().take(MAX_LEN).enumerate() {
        value |= u32::from(byte & !MORE) << (7 * index);
        if byte & MORE != 0 {
            continue;
        }
        if index > 0 && byte == 0 {
            return Err(DecodeError::PaddedVarInt);
        }
        return Ok(Some((value, index + 1)));
    }
    if src.len() < MAX_LEN {
        return Ok(None);
    }
    Err(DecodeError::VarIntTooLong)
}

/// The length of `value` in bytes; `None` above [`VAR_INT_MAX`].
#[inline]
pub(crate) const fn var_int_len(value: u32) -> Option<usize> {
    match value {
        0..=0x7F => Some(1),
        0x80..=0x3FFF => Some(2),
        0x4000..=0x1F_FFFF => Some(3),
        0x20_0000..=VAR_INT_MAX => Some(4),
        _ => None,
    }
}

/// The bytes of `value`, least significant group first; `None` above [`VAR_INT_MAX`].
///
/// The first `len` bytes are used; the rest is 0.
#[inline]
pub(crate) fn var_int_bytes(value: u32) -> Option<([u8; MAX_LEN], usize)> {
    let len = var_int_len(value)?;
    let mut bytes = [0; MAX_LEN];
    for (index, byte) in bytes.iter_mut().take(len).enumerate() {
        let [group, ..] = (value >> (7 * index)).to_le_bytes();
        let more = if index + 1 < len { MORE } else { 0 };
        *byte = group & !MORE | more;
    }
    Some((bytes, len))
}

const MAX_LEN: usize = 4;
const MORE: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_borders_of_each_length_read_back() {
        for value in [
            0,
            1,
            0x7F,
            0x80,
            0x3FFF,
            0x4000,
            0x1F_FFFF,
            0x20_0000,
            VAR_INT_MAX,
        ] {
            let (bytes, len) = var_int_bytes(value).unwrap();

            assert_eq!(decode_var_int(&bytes[..len]), Ok(Some((value, len))));
        }
    }

    #[test]
    fn a_value_that_needs_a_fifth_byte_is_refused() {
        assert_eq!(var_int_bytes(VAR_INT_MAX + 1), None);
    }
}
