//! Limits of the process.

use std::io;

use pyo3::prelude::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Keeps this process from writing core files, which would contain the secrets of its configuration.
///
/// Only the soft limit is changed: ``prlimit --core=unlimited --pid PID`` allows them again.
#[pyfunction]
pub(crate) fn disable_core_files() -> PyResult<()> {
    let disabled = Rlimit {
        current: Some(0),
        maximum: getrlimit(Resource::Core).maximum,
    };
    Ok(setrlimit(Resource::Core, disabled).map_err(io::Error::from)?)
}
