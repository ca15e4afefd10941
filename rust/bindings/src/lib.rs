//! `mqttcore._core`: the broker as Python sees it. Conversions only; no broker logic.
#![warn(missing_docs)]

mod config;
mod error;
mod passwords;

/// Native half of mqttcore. Import from `mqttcore`, not from here.
#[pyo3::pymodule]
mod _core {
    #[pymodule_export]
    use super::config::{PyTomlValue, parse_toml};
    #[pymodule_export]
    use super::error::{MqttError, PasswordHashError};
    #[pymodule_export]
    use super::passwords::{check_password_hash, hash_password, verify_password};
}
