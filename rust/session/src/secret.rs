//! Passwords and authentication data: never printed, wiped when dropped.

use std::fmt;
use std::hint::black_box;

/// Bytes that must not appear in logs. The memory is overwritten on drop.
#[derive(Clone, Eq, PartialEq)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// The bytes, for checking a password.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Secret {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(..)")
    }
}

/// Overwrites bytes that contained a secret, such as a CONNECT in a read buffer.
pub fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    // Prevents the compiler from removing the wipe, since the bytes are not read again.
    black_box(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wiped_is_zero() {
        let mut secret = Secret::from(&b"hunter2"[..]);

        wipe(&mut secret.0);

        assert_eq!(secret.as_bytes(), [0; 7]);
    }

    #[test]
    fn a_secret_is_not_printed() {
        let secret = Secret::from(&b"hunter2"[..]);

        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }
}
