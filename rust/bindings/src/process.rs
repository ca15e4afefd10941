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

/// Keeps freed memory of messages for the next ones, up to 2 MiB a thread, instead of returning it to the system at once.
///
/// Only for a process that is a broker: the thresholds of ``malloc`` are those of the whole process.
#[pyfunction]
pub(crate) fn keep_freed_memory() {
    // Another allocator has thresholds of its own.
    let _ = mqttcore_broker::keep_freed();
}
