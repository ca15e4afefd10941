//! The one place where a Rust error becomes a Python exception.

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;

use crate::passwords::HashError;

create_exception!(
    mqttcore,
    MqttError,
    PyException,
    "Base of every error that mqttcore raises."
);
create_exception!(
    mqttcore,
    PasswordHashError,
    MqttError,
    "A string is not a password hash of a known format."
);

/// Any core error on its way to Python, so that `?` works in every binding.
pub(crate) enum CoreError {
    Hash(HashError),
    /// An argument that no type can rule out.
    Argument(String),
}

impl From<HashError> for CoreError {
    fn from(error: HashError) -> Self {
        Self::Hash(error)
    }
}

impl From<CoreError> for PyErr {
    fn from(error: CoreError) -> Self {
        match error {
            CoreError::Hash(error) => PasswordHashError::new_err(error.to_string()),
            CoreError::Argument(what) => PyValueError::new_err(what),
        }
    }
}
