//! TLS for listeners: loads a rustls configuration from PEM files; a reload replaces it as a whole.
//!
//! [`TlsServer`] reads certificates, keys, CA and CRL and returns the current configuration. [`ClientCertificate`] is
//! the identity in a verified client certificate. The crate opens no socket, starts no thread and knows nothing of
//! MQTT: the ALPN names are an argument.
//!
//! ```
//! use mqttcore_tls::{TlsServer, TlsSettings};
//!
//! let settings = TlsSettings::new("missing.pem", "missing.key");
//! let error = TlsServer::load(settings, &["mqtt"]).expect_err("there is no such file");
//! assert!(error.to_string().contains("missing.pem"));
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod certificate;
mod config;
mod error;
mod load;
#[cfg(feature = "make")]
mod make;
mod server;
mod settings;

pub use certificate::{
    AlternativeName, ClientCertificate, FileWarning, IdentityError, ServerCertificate,
};
pub use config::TlsConfig;
pub use error::TlsError;
#[cfg(feature = "make")]
pub use make::{MadeFiles, make_files};
pub use rustls;
pub use server::{Loaded, Refreshed, TlsServer, WATCH_EVERY};
pub use settings::{CertificateFiles, ClientCertificates, Identity, MinVersion, TlsSettings};
