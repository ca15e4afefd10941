//! A cursor over the bytes of a binary format.

use super::value::Malformed;

/// Takes so many bytes from the front of what is left.
pub(super) fn take<'a>(rest: &mut &'a [u8], len: u64) -> Result<&'a [u8], Malformed> {
    let len = usize::try_from(len).map_err(|_| Malformed)?;
    let (taken, left) = rest.split_at_checked(len).ok_or(Malformed)?;
    *rest = left;
    Ok(taken)
}

/// Takes a number of so many bytes, the highest first.
pub(super) fn take_unsigned(rest: &mut &[u8], len: u64) -> Result<u64, Malformed> {
    let bytes = take(rest, len)?.iter();
    Ok(bytes.fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Refuses bytes behind the end.
pub(super) fn end(rest: &[u8]) -> Result<(), Malformed> {
    rest.is_empty().then_some(()).ok_or(Malformed)
}
