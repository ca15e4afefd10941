//! Python functions for `mqttcore.store`, over `mqttcore_store::tools`.
#![expect(
    clippy::needless_pass_by_value,
    reason = "Python hands over owned values"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mqttcore_store::files::{Files, Folder};
use mqttcore_store::record::{MessageRecord, Record};
use mqttcore_store::{CopyProgress, Logged, StoreError, StoreOptions, TornTail, tools};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::error::CoreError;
use crate::store_records::fields_of;

/// Whether ``name`` can be the name of a stream.
#[pyfunction]
#[pyo3(signature = (name, /))]
pub(crate) fn is_stream_name(name: &str) -> bool {
    mqttcore_store::is_stream_name(name)
}

/// Reads the whole store in ``directory``; returns a summary.
#[pyfunction]
#[pyo3(signature = (directory, /))]
pub(crate) fn store_verify(
    py: Python<'_>,
    directory: PathBuf,
) -> Result<Bound<'_, PyDict>, CoreError> {
    let files = open(&directory)?;
    let info = py.detach(|| tools::verify(&files))?;
    described(py, &info, true)
}

/// Returns a summary of the store in ``directory``.
#[pyfunction]
#[pyo3(signature = (directory, /))]
pub(crate) fn store_info(
    py: Python<'_>,
    directory: PathBuf,
) -> Result<Bound<'_, PyDict>, CoreError> {
    let files = open(&directory)?;
    let info = py.detach(|| tools::info(&files))?;
    described(py, &info, false)
}

/// How far a backup is. Another thread reads it while one copies.
#[pyclass(name = "CopyProgress", module = "mqttcore._core", frozen)]
#[derive(Default)]
pub(crate) struct PyCopyProgress(pub(crate) CopyProgress);

#[pymethods]
impl PyCopyProgress {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Bytes copied or linked so far.
    #[getter]
    fn done(&self) -> u64 {
        self.0.done()
    }

    /// Bytes of the whole copy; None until all of its files are known.
    #[getter]
    fn total(&self) -> Option<u64> {
        self.0.total()
    }

    /// Seconds until all is copied; None while that is unknown.
    #[getter]
    fn eta_s(&self) -> Option<u64> {
        self.0.eta_s()
    }
}

/// Copies the store in ``directory`` into ``to``, a new or empty folder; returns the bytes copied.
#[pyfunction]
#[pyo3(signature = (directory, to, progress, /))]
pub(crate) fn store_backup(
    py: Python<'_>,
    directory: PathBuf,
    to: PathBuf,
    progress: Py<PyCopyProgress>,
) -> Result<u64, CoreError> {
    let progress = &progress.get().0;
    let copied = py.detach(|| {
        let files = open(&directory)?;
        Ok::<_, CoreError>(Folder::make(&to, |to| tools::backup(&files, to, progress))?)
    })?;
    Ok(copied)
}

/// Repairs the store in ``directory`` by discarding unreadable data; returns a report.
#[pyfunction]
#[pyo3(signature = (directory, /))]
pub(crate) fn store_repair(
    py: Python<'_>,
    directory: PathBuf,
) -> Result<Bound<'_, PyDict>, CoreError> {
    let files = open(&directory)?;
    let repair = py.detach(|| tools::repair(&files, &StoreOptions::default()))?;
    let done = PyDict::new(py);
    let set = |key: &str, value: Bound<'_, PyAny>| done.set_item(key, value);
    let damage = repair.damage.map(|damage| damage.to_string());
    set("damage", damage.into_pyobject(py)?)?;
    set("saved", repair.saved.into_pyobject(py)?.into_any())?;
    set("lost", repair.lost.into_pyobject(py)?)?;
    set("sessions", repair.sessions.into_pyobject(py)?.into_any())?;
    set("topics", repair.topics.into_pyobject(py)?.into_any())?;
    set("unknown", repair.unknown.into_pyobject(py)?.into_any())?;
    set(
        "mended_pages",
        repair.mended_pages.into_pyobject(py)?.into_any(),
    )?;
    set(
        "lost_pages",
        repair.lost_pages.into_pyobject(py)?.into_any(),
    )?;
    set("set_aside", repair.set_aside.into_pyobject(py)?)?;
    Ok(done)
}

/// Writes all rows of the store in ``directory`` into files; returns the state of its streams.
#[pyfunction]
#[pyo3(signature = (directory, /))]
pub(crate) fn store_seal(
    py: Python<'_>,
    directory: PathBuf,
) -> Result<Bound<'_, PyList>, CoreError> {
    let files = open(&directory)?;
    let streams = py.detach(|| seal(&files))?;
    streams_told(py, &streams)
}

#[cfg(feature = "streams")]
fn seal(files: &Arc<dyn Files>) -> Result<Vec<tools::StreamInfo>, StoreError> {
    tools::seal(files, &StoreOptions::default())
}

/// Build without streams: refuses a store with streams; a store without has nothing to seal.
#[cfg(not(feature = "streams"))]
fn seal(files: &Arc<dyn Files>) -> Result<Vec<tools::StreamInfo>, StoreError> {
    tools::info(files).map(|info| info.streams)
}

/// Calls ``visit`` for each record of the log in ``directory``, in order, with a text or, if ``as_fields``, a dictionary.
///
/// Payloads are shown by their length only.
#[pyfunction]
#[pyo3(signature = (directory, visit, /, *, as_fields = false))]
pub(crate) fn store_dump(
    py: Python<'_>,
    directory: PathBuf,
    visit: &Bound<'_, PyAny>,
    as_fields: bool,
) -> Result<u64, PyErr> {
    let files = open(&directory)?;
    let mut refused = None;
    let dumped = tools::dump(&files, &mut |logged| {
        let visited = if as_fields {
            fields_of(py, &logged).and_then(|fields| visit.call1((fields,)))
        } else {
            visit.call1((describe_record(&logged),))
        };
        visited.map(|_| ()).map_err(|error| {
            refused = Some(error);
            StoreError::Stopped("the reader had enough".into())
        })
    });
    if let Some(error) = refused {
        return Err(error);
    }
    Ok(dumped.map_err(CoreError::from)?.records)
}

fn describe_record(logged: &Logged<'_>) -> String {
    let mut text = format!(
        "{} {}:{} {} ",
        logged.lsn, logged.place.segment, logged.place.offset, logged.place.bytes
    );
    // INVARIANT: writing to a string does not fail.
    match &logged.record {
        Record::Message(message) => {
            let payload = message.payload.len();
            let told = MessageRecord {
                payload: b"",
                ..*message
            };
            write!(text, "{told:?} payload of {payload} bytes").expect("a string takes all");
        }
        Record::WillSet(will) => {
            let (session, topic, payload) = (will.session, will.topic, will.payload.len());
            write!(
                text,
                "WillSet {{ session: {session}, topic: {topic:?} }} payload of {payload} bytes"
            )
            .expect("a string takes all");
        }
        record => write!(text, "{record:?}").expect("a string takes all"),
    }
    text
}

fn described<'py>(
    py: Python<'py>,
    info: &tools::Info,
    is_verified: bool,
) -> Result<Bound<'py, PyDict>, CoreError> {
    let told = PyDict::new(py);
    told.set_item("store", &info.store)?;
    let mut numbers = vec![
        ("segments", info.segments),
        ("log_bytes", info.log_bytes),
        ("last_lsn", info.last_lsn),
        ("applied_lsn", info.applied_lsn),
        ("sessions", info.sessions),
        ("subscriptions", info.subscriptions),
        ("queued", info.queued),
        ("in_flight", info.in_flight),
        ("retained", info.retained),
    ];
    if is_verified {
        numbers.push(("messages", info.messages));
    }
    for (key, value) in numbers {
        told.set_item(key, value)?;
    }
    told.set_item("streams", streams_told(py, &info.streams)?)?;
    told.set_item("rebuilt", &info.rebuilt)?;
    let torn = info.torn.as_ref();
    told.set_item(
        "torn",
        torn.map(
            |TornTail {
                 file,
                 offset,
                 bytes,
             }| (file, offset, bytes),
        ),
    )?;
    Ok(told)
}

fn streams_told<'py>(
    py: Python<'py>,
    streams: &[tools::StreamInfo],
) -> Result<Bound<'py, PyList>, CoreError> {
    let told = PyList::empty(py);
    for stream in streams {
        let one = PyDict::new(py);
        one.set_item("name", &stream.name)?;
        one.set_item("epoch", &stream.epoch)?;
        one.set_item("partitions", stream.partitions)?;
        one.set_item("rows", stream.rows)?;
        one.set_item("unsealed_rows", stream.unsealed_rows)?;
        one.set_item("files", stream.files)?;
        one.set_item("bytes", stream.bytes)?;
        one.set_item("remote_files", stream.remote_files)?;
        told.append(one)?;
    }
    Ok(told)
}

/// Opens the folder of an existing store.
fn open(directory: &Path) -> Result<Arc<dyn Files>, CoreError> {
    if !directory.is_dir() {
        return Err(CoreError::Store(StoreError::Missing));
    }
    Ok(Arc::new(folder(directory)?))
}

fn folder(directory: &Path) -> Result<Folder, CoreError> {
    Folder::open(directory).map_err(|error| failed("open", &error))
}

fn failed(doing: &str, error: &std::io::Error) -> CoreError {
    CoreError::StoreFolder(format!("{doing}: {error}"))
}
