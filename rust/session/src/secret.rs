//! Passwords and authentication data: never printed, wiped when dropped.

use std::fmt;
use std::hint::black_box;
use std::ops::Deref;

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

/// Bytes of a client that may contain secrets, such as a CONNECT. They are overwritten when they are removed, and on drop.
#[derive(Default)]
pub struct SecretBuffer(Vec<u8>);

impl SecretBuffer {
    /// Appends bytes. Where they need more memory, the old bytes are overwritten: a `Vec` would leave them as they are.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        let needed = self.0.len() + bytes.len();
        if needed > self.0.capacity() {
            let mut larger = Vec::with_capacity(needed.max(2 * self.0.capacity()));
            larger.extend_from_slice(&self.0);
            wipe(&mut self.0);
            self.0 = larger;
        }
        self.0.extend_from_slice(bytes);
    }

    /// Removes the first `len` bytes, or all if there are fewer.
    pub fn remove_first(&mut self, len: usize) {
        let len = len.min(self.0.len());
        wipe(self.0.get_mut(..len).unwrap_or_default());
        self.0.drain(..len);
    }

    /// Bytes of memory.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

impl From<Vec<u8>> for SecretBuffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl Deref for SecretBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for SecretBuffer {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

/// Overwrites bytes that contained a secret, such as what was read of a socket.
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
    fn a_buffer_keeps_what_is_appended_until_it_is_removed() {
        let mut buffer = SecretBuffer::from(b"ab".to_vec());

        for _ in 0..100 {
            buffer.extend_from_slice(b"cd");
        }
        buffer.remove_first(199);

        assert_eq!(*buffer, *b"dcd");
        buffer.remove_first(100);
        assert!(buffer.is_empty());
    }

    #[test]
    fn a_secret_is_not_printed() {
        let secret = Secret::from(&b"hunter2"[..]);

        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }
}
