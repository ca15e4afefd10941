//! Creates certificates for trials of TLS.

use std::path::PathBuf;

use pyo3::prelude::*;

/// Writes a CA, a certificate of a server and one of a client into ``folder``.
#[pyfunction]
#[pyo3(signature = (folder, /, *, hosts, client))]
#[expect(
    clippy::needless_pass_by_value,
    reason = "Python hands over owned values"
)]
pub(crate) fn make_certificates(
    py: Python<'_>,
    folder: PathBuf,
    hosts: Vec<String>,
    client: &str,
) -> PyResult<()> {
    py.detach(|| mqttcore_tls::make_files(&folder, &hosts, client))?;
    Ok(())
}
