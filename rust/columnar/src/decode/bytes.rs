//! A cursor over the bytes of a binary format.

use super::value::Malformed;

/// Takes `len` bytes from the front of `rest`.
pub(super) fn take<'a>(rest: &mut &'a [u8], len: u64) -> Result<&'a [u8], Malformed> {
    let len = usize::try_from(len).map_err(|_| Malformed)?;
    let (taken, left) = rest.split_at_checked(len).ok_or(Malformed)?;
    *rest = left;
    Ok(taken)
}

/// Takes a big-endian number of `len` bytes.
pub(super) fn take_unsigned(rest: &mut &[u8], len: u64) -> Result<u64, Malformed> {
    let bytes = take(rest, len)?.iter();
    Ok(bytes.fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Checks that no bytes are left.
pub(super) fn end(rest: &[u8]) -> Result<(), Malformed> {
    rest.is_empty().then_some(()).ok_or(Malformed)
}
