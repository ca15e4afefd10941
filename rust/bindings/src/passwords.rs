//! Password hashes: Argon2id, which we write, and `$7$` and `$6$`, which `mosquitto_passwd` writes.

use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use pyo3::prelude::*;
use sha2::{Digest as _, Sha512};
use subtle::ConstantTimeEq as _;

use crate::error::CoreError;
use crate::hash_memory::HASH_MEMORY;
use crate::plugin::PyLogin;

/// Cost of new hashes (docs/decisions.md, 29): 19 MiB, two passes, one lane.
const ARGON2_MEMORY_KIB: u32 = 19 * 1024;
const ARGON2_PASSES: u32 = 2;
const ARGON2_LANES: u32 = 1;
const ARGON2_OUTPUT: usize = 32;

const SHA512_OUTPUT: usize = 64;

/// Maximum cost: a hash with a higher one is treated as damaged.
const MEMORY_KIB_MAX: u32 = 1024 * 1024;
const PASSES_MAX: u32 = 64;
const LANES_MAX: u32 = 16;
const ITERATIONS_MAX: u32 = 10_000_000;
const PASSWORD_BYTES_MAX: usize = 1_024;

/// Why a string is not a password hash.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum HashError {
    #[error("unknown format: expected $argon2id$, $7$ or $6$")]
    UnknownFormat,
    #[error("wrong number of fields")]
    Fields,
    #[error("salt or hash is not base64")]
    Base64,
    #[error("the hash has the wrong length")]
    Length,
    #[error("a cost is not a number, or out of range")]
    Cost,
    #[error("only version 19 of Argon2 is supported")]
    Version,
}

/// A parsed hash of one password.
pub(crate) enum PasswordHash {
    Argon2id {
        params: Params,
        salt: Vec<u8>,
        hash: Vec<u8>,
    },
    /// PBKDF2-HMAC-SHA512.
    Pbkdf2 {
        iterations: u32,
        salt: Vec<u8>,
        hash: Vec<u8>,
    },
    /// SHA-512 of password and salt; not crypt(3).
    Sha512 { salt: Vec<u8>, hash: Vec<u8> },
}

impl PasswordHash {
    pub(crate) fn parse(text: &str) -> Result<Self, HashError> {
        let mut fields = text.split('$');
        if fields.next() != Some("") {
            return Err(HashError::UnknownFormat);
        }
        let format = fields.next().unwrap_or("");
        let fields: Vec<&str> = fields.collect();
        match (format, fields.as_slice()) {
            ("argon2id", &[version, costs, salt, hash]) => argon2id(version, costs, salt, hash),
            ("7", &[iterations, salt, hash]) => Ok(Self::Pbkdf2 {
                iterations: number(iterations, 1, ITERATIONS_MAX)?,
                salt: STANDARD.decode(salt).map_err(|_| HashError::Base64)?,
                hash: sha512_output(hash)?,
            }),
            ("6", &[salt, hash]) => Ok(Self::Sha512 {
                salt: STANDARD.decode(salt).map_err(|_| HashError::Base64)?,
                hash: sha512_output(hash)?,
            }),
            ("argon2id" | "7" | "6", _) => Err(HashError::Fields),
            _ => Err(HashError::UnknownFormat),
        }
    }

    /// As `verify`, detached from the interpreter. A password over 1,024 bytes is never the one.
    fn belongs_to(&self, py: Python<'_>, password: &[u8]) -> bool {
        password.len() <= PASSWORD_BYTES_MAX && py.detach(|| self.verify(password))
    }

    /// Whether `password` belongs to the hash. The time is the same for any answer.
    pub(crate) fn verify(&self, password: &[u8]) -> bool {
        let (expected, computed) = match self {
            Self::Argon2id { params, salt, hash } => (
                hash,
                argon2_hash(params.clone(), password, salt, hash.len()),
            ),
            Self::Pbkdf2 {
                iterations,
                salt,
                hash,
            } => {
                let mut output = [0; SHA512_OUTPUT];
                pbkdf2::pbkdf2_hmac::<Sha512>(password, salt, *iterations, &mut output);
                (hash, Some(output.to_vec()))
            }
            Self::Sha512 { salt, hash } => {
                let digest = Sha512::new()
                    .chain_update(password)
                    .chain_update(salt)
                    .finalize();
                (hash, Some(digest.to_vec()))
            }
        };
        computed.is_some_and(|computed| computed.as_slice().ct_eq(expected).into())
    }
}

fn argon2id(version: &str, costs: &str, salt: &str, hash: &str) -> Result<PasswordHash, HashError> {
    if version != "v=19" {
        return Err(HashError::Version);
    }
    let mut parts = costs.split(',');
    let mut cost = |name: &str, min, max| {
        let part = parts.next().and_then(|part| part.strip_prefix(name));
        number(part.ok_or(HashError::Cost)?, min, max)
    };
    let memory = cost("m=", 8, MEMORY_KIB_MAX)?;
    let passes = cost("t=", 1, PASSES_MAX)?;
    let lanes = cost("p=", 1, LANES_MAX)?;
    if parts.next().is_some() {
        return Err(HashError::Fields);
    }
    let salt = STANDARD_NO_PAD
        .decode(salt)
        .map_err(|_| HashError::Base64)?;
    let hash = STANDARD_NO_PAD
        .decode(hash)
        .map_err(|_| HashError::Base64)?;
    if !(8..=64).contains(&salt.len()) || !(16..=128).contains(&hash.len()) {
        return Err(HashError::Length);
    }
    let params = Params::new(memory, passes, lanes, Some(hash.len()));
    Ok(PasswordHash::Argon2id {
        params: params.map_err(|_| HashError::Cost)?,
        salt,
        hash,
    })
}

fn argon2_hash(params: Params, password: &[u8], salt: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut output = vec![0; length];
    let mut blocks = HASH_MEMORY.take(params.block_count());
    let hashed = Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into_with_memory(password, salt, &mut output, blocks.as_mut());
    hashed.ok()?;
    Some(output)
}

fn sha512_output(text: &str) -> Result<Vec<u8>, HashError> {
    let hash = STANDARD.decode(text).map_err(|_| HashError::Base64)?;
    if hash.len() == SHA512_OUTPUT {
        Ok(hash)
    } else {
        Err(HashError::Length)
    }
}

fn number(text: &str, min: u32, max: u32) -> Result<u32, HashError> {
    let number = text.parse().map_err(|_| HashError::Cost)?;
    if (min..=max).contains(&number) {
        Ok(number)
    } else {
        Err(HashError::Cost)
    }
}

/// Raises `PasswordHashError` unless `hash` is of a format that `verify_password` knows.
#[pyfunction]
#[pyo3(signature = (hash, /))]
pub(crate) fn check_password_hash(hash: &str) -> Result<(), CoreError> {
    PasswordHash::parse(hash)?;
    Ok(())
}

/// Whether `password` belongs to `hash`: bytes, or a `Login`, whose password is not copied to memory of Python; one
/// without a password has a wrong one.
///
/// Blocks for as long as the hash costs (Argon2id as we write it: about 0.1 s), detached, so that
/// other Python threads go on. A password over 1,024 bytes is never the one.
#[pyfunction]
#[pyo3(signature = (hash, password, /))]
pub(crate) fn verify_password(
    py: Python<'_>,
    hash: &str,
    password: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    let parsed = PasswordHash::parse(hash).map_err(CoreError::from)?;
    if let Ok(login) = password.cast::<PyLogin>() {
        let secret = login.get().secret();
        let bytes = secret.as_ref().map_or(&[][..], |secret| secret.as_bytes());
        return Ok(parsed.belongs_to(py, bytes) && !bytes.is_empty());
    }
    Ok(parsed.belongs_to(py, password.extract()?))
}

/// A new Argon2id hash of `password` (m = 19 MiB, t = 2, p = 1).
///
/// `salt` must be 16 random bytes that were never used before. Blocks as `verify_password` does.
#[pyfunction]
#[pyo3(signature = (password, /, *, salt))]
pub(crate) fn hash_password(
    py: Python<'_>,
    password: &[u8],
    salt: &[u8],
) -> Result<String, CoreError> {
    if salt.len() != 16 || password.len() > PASSWORD_BYTES_MAX {
        return Err(CoreError::Argument(format!(
            "salt must have 16 bytes, the password at most {PASSWORD_BYTES_MAX}"
        )));
    }
    let params = Params::new(
        ARGON2_MEMORY_KIB,
        ARGON2_PASSES,
        ARGON2_LANES,
        Some(ARGON2_OUTPUT),
    )
    .map_err(|_| HashError::Cost)?;
    let hash = py.detach(|| argon2_hash(params, password, salt, ARGON2_OUTPUT));
    Ok(format!(
        "$argon2id$v=19$m={ARGON2_MEMORY_KIB},t={ARGON2_PASSES},p={ARGON2_LANES}${}${}",
        STANDARD_NO_PAD.encode(salt),
        STANDARD_NO_PAD.encode(hash.ok_or(HashError::Cost)?)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made for the password "secret" with `mosquitto_passwd` 2.0.11 and its `-H sha512`.
    const PBKDF2: &str = "$7$101$4Te8pFJl6QXpv8zD$lkyRQVLcUW8HKM+7B6gI5SMhabV3800EXLq06IFcvBnRckalaYYDkNw0EWG+WIcIu8d8D1LHHh0HEHf7Sv6/hw==";
    const SHA512: &str = "$6$jqT4WAYM0FcFh0ri$3XS26u3qTjSRADobo31DQTvO2hJpuMlvfPaMuXAqGNeflznyoPMslT5Tm6Qdex5c0BIBDA/QYPZFszAFcxUSZg==";
    /// Made for the same password with the reference implementation in C.
    const ARGON2ID: &str = "$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$8qPpaWig0H31wvibKAgpght2Ry2M8rtRQYtZ93ooMus";

    #[test]
    fn hashes_of_other_programs_are_understood() {
        for text in [PBKDF2, SHA512, ARGON2ID] {
            let hash = PasswordHash::parse(text).unwrap();

            assert!(hash.verify(b"secret"), "{text}");
            assert!(!hash.verify(b"Secret"), "{text}");
            assert!(!hash.verify(b""), "{text}");
        }
    }

    fn error(text: &str) -> Option<HashError> {
        PasswordHash::parse(text).err()
    }

    #[test]
    fn broken_hashes_are_refused_with_their_reason() {
        assert_eq!(error(""), Some(HashError::UnknownFormat));
        assert_eq!(error("plain"), Some(HashError::UnknownFormat));
        assert_eq!(error("$5$salt$hash"), Some(HashError::UnknownFormat));
        assert_eq!(error("$6$c2FsdA=="), Some(HashError::Fields));
        assert_eq!(error("$6$c2FsdA==$!!"), Some(HashError::Base64));
        assert_eq!(error("$6$c2FsdA==$c2FsdA=="), Some(HashError::Length));
        assert_eq!(error("$7$0$c2FsdA==$c2FsdA=="), Some(HashError::Cost));
        assert_eq!(
            error("$argon2id$v=16$m=19456,t=2,p=1$c2FsdHNhbHQ$c2FsdHNhbHQ"),
            Some(HashError::Version)
        );
        assert_eq!(
            error("$argon2id$v=19$m=19456,t=2$c2FsdHNhbHQ$c2FsdHNhbHQ"),
            Some(HashError::Cost)
        );
        assert_eq!(
            error("$argon2id$v=19$m=99999999,t=2,p=1$c2FsdHNhbHQ$c2FsdHNhbHQ"),
            Some(HashError::Cost)
        );
    }
}
