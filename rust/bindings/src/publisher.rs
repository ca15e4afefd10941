//! Publishes rows to a broker; Python owns the socket. No thread and no socket, as in `stream`.

use std::num::NonZeroU16;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mqttcore_codec::ProtocolVersion;
use mqttcore_columnar::read_ipc;
use mqttcore_publisher::{ConnectOptions, ID, Publisher};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::CoreError;

/// One connection of a client that publishes rows: bytes in, bytes out.
#[pyclass(name = "Publisher", module = "mqttcore._core", frozen)]
pub(crate) struct PyPublisher(Mutex<Publisher>);

#[pymethods]
impl PyPublisher {
    /// The user property that names a row.
    #[classattr]
    #[pyo3(name = "ID")]
    const ID: &'static str = ID;

    #[new]
    #[pyo3(signature = (name, /, *, protocol, client_id, username=None, password=None, window=None, first_row=0))]
    fn new(
        name: &str,
        protocol: &str,
        client_id: &str,
        username: Option<&str>,
        password: Option<&str>,
        window: Option<u64>,
        first_row: u64,
    ) -> Result<Self, CoreError> {
        let login = ConnectOptions {
            version: version(protocol)?,
            client_id,
            username,
            password,
            in_flight_max: window.map(at_most_all),
            ..ConnectOptions::default()
        };
        let publisher = Publisher::new(&login, name, first_row)?;
        Ok(Self(Mutex::new(publisher)))
    }

    /// Takes rows: an Arrow IPC stream of messages.
    #[pyo3(signature = (ipc, /))]
    fn publish(&self, py: Python<'_>, ipc: &[u8]) -> Result<(), CoreError> {
        py.detach(|| {
            let mut publisher = self.held();
            for batch in read_ipc(ipc)? {
                publisher.publish(&batch)?;
            }
            Ok(())
        })
    }

    /// The next bytes to send.
    fn poll_transmit<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>, CoreError> {
        let out = py.detach(|| {
            let mut out = Vec::new();
            let polled = self.held().poll_transmit(&mut out);
            polled.map(|()| out)
        })?;
        Ok(PyBytes::new(py, &out))
    }

    /// Handles bytes of the server.
    #[pyo3(signature = (data, /))]
    fn handle_bytes(&self, py: Python<'_>, data: &[u8]) -> Result<(), CoreError> {
        Ok(py.detach(|| self.held().handle_bytes(data))?)
    }

    /// Has a PINGREQ sent.
    fn ping(&self) {
        self.held().ping();
    }

    /// Has a DISCONNECT sent.
    fn disconnect(&self) {
        self.held().disconnect();
    }

    #[getter]
    fn is_connected(&self) -> bool {
        self.held().is_connected()
    }

    #[getter]
    fn has_rows(&self) -> bool {
        self.held().has_rows()
    }

    #[getter]
    fn in_flight(&self) -> usize {
        self.held().in_flight()
    }

    #[getter]
    fn next_row(&self) -> u64 {
        self.held().next_row()
    }

    #[getter]
    fn keep_alive_s(&self) -> u16 {
        self.held().keep_alive_s()
    }
}

impl PyPublisher {
    fn held(&self) -> MutexGuard<'_, Publisher> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Limits the messages in flight to the number of packet identifiers.
fn at_most_all(window: u64) -> NonZeroU16 {
    let window = u16::try_from(window).unwrap_or(u16::MAX);
    NonZeroU16::new(window).unwrap_or(NonZeroU16::MIN)
}

fn version(protocol: &str) -> Result<ProtocolVersion, CoreError> {
    match protocol {
        "5" => Ok(ProtocolVersion::V5),
        "3.1.1" => Ok(ProtocolVersion::V3_1_1),
        other => Err(CoreError::Argument(format!(
            "protocol {other:?}: allowed are 5 and 3.1.1"
        ))),
    }
}
