//! Replaces `streams.rs` in a build without streams.

use std::net::SocketAddr;

use mqttcore_broker::{Extensions, StartError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Empty: a build without streams has no rows.
pub(crate) struct Rows;

/// The fields of `mqttcore.config.Settings` that must be empty in this build.
#[derive(FromPyObject)]
struct RowsFields<'py> {
    streams: Vec<Bound<'py, PyAny>>,
    http: Option<Bound<'py, PyAny>>,
}

impl Rows {
    /// Reads nothing: `mqttcore.config` has checked that the settings have no streams.
    pub(crate) fn read(settings: &Bound<'_, PyAny>) -> PyResult<Self> {
        let fields: RowsFields<'_> = settings.extract()?;
        if fields.streams.is_empty() && fields.http.is_none() {
            return Ok(Self);
        }
        let what =
            "this build of mqttcore serves MQTT only: it has no streams and no HTTP endpoint";
        Err(PyValueError::new_err(what))
    }

    pub(crate) fn extensions(&self) -> Extensions {
        let Self = self;
        Extensions::default()
    }

    /// There is no endpoint to check.
    #[expect(clippy::unnecessary_wraps, reason = "as in a build with streams")]
    pub(crate) fn check(&self) -> Result<Vec<String>, StartError> {
        let Self = self;
        Ok(Vec::new())
    }

    /// Does nothing: only the HTTP endpoint asks the program.
    pub(crate) fn set_program(&self, operate: Py<PyAny>) {
        let Self = self;
        drop(operate);
    }

    pub(crate) fn described(&self) -> Vec<String> {
        let Self = self;
        Vec::new()
    }

    pub(crate) fn address(&self) -> Option<SocketAddr> {
        let Self = self;
        None
    }
}
