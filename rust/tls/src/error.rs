//! Errors of loading a TLS configuration.

use std::io;
use std::path::PathBuf;

/// A TLS configuration cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{what} {path}: cannot be read: {error}")]
    Unreadable {
        /// The key of the configuration.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// A file is longer than the limit for its kind.
    #[error("{what} {path}: longer than {limit} bytes")]
    TooLong {
        /// The key of the configuration.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// A file does not have the expected content.
    #[error("{what} {path}: {why}")]
    Content {
        /// The key of the configuration.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The fault, and the expected content.
        why: String,
    },
    /// A key belongs to another certificate.
    #[error(
        "key {key}: does not belong to certificate {certificate}: name the key that the certificate was made for"
    )]
    Mismatch {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// Settings contradict each other, such as client certificates without `client_ca`.
    #[error("{0}")]
    Settings(&'static str),
    /// The cryptography library reports an error.
    #[error("TLS cannot be set up: {0}")]
    Library(String),
}
