//! Reads rows of streams for Python, as Spark executors need it: no thread, no socket, safe after a fork.
#![expect(
    clippy::needless_pass_by_value,
    reason = "Python hands over owned values"
)]

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::ffi::{FFI_ArrowArray, to_ffi};
use arrow_array::{Array, RecordBatch, StructArray};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{Schema, SchemaRef};
use mqttcore_columnar::{
    ColumnarError, Decoder, FileMeta, FilePart, Format, MetricAliases, OnError, Origin,
    PartitionReader, ReadOptions, TailReader, parse_payload_schema, read_ipc, write_parquet,
};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::error::CoreError;

/// Options of a `StreamReader`: rows, columns, decoding and batch size.
#[pyclass(name = "StreamOptions", module = "mqttcore._core", frozen)]
pub(crate) struct PyStreamOptions(ReadOptions);

#[pymethods]
impl PyStreamOptions {
    /// Longer than other functions: one line for each option.
    #[new]
    #[pyo3(signature = (*, filter=None, start_us=None, end_us=None, columns=None, batch_rows=None, decode=None,
        payload_schema=None, on_error="null", typed=None, typed_decode=None, aliases=None, descriptor=None, message=None))]
    #[expect(clippy::too_many_arguments, reason = "each has a name in Python")]
    fn new(
        filter: Option<&str>,
        start_us: Option<i64>,
        end_us: Option<i64>,
        columns: Option<Vec<String>>,
        batch_rows: Option<usize>,
        decode: Option<&str>,
        payload_schema: Option<&str>,
        on_error: &str,
        typed: Option<&str>,
        typed_decode: Option<&str>,
        aliases: Option<&str>,
        descriptor: Option<&[u8]>,
        message: Option<&str>,
    ) -> Result<Self, CoreError> {
        let _: OnError = on_error.parse()?;
        let defaults = ReadOptions::default();
        let late = typed_decode.map(|format| {
            let typed = typed.unwrap_or_default();
            decoder(format, typed, "null", (aliases, descriptor, message))
        });
        let options = ReadOptions {
            late: late.transpose()?,
            filter: filter.map(ReadOptions::parse_filter).transpose()?,
            start_us,
            end_us,
            typed: typed
                .map(parse_payload_schema)
                .transpose()?
                .unwrap_or_default(),
            decoder: decode
                .map(|format| {
                    decoder(
                        format,
                        payload_schema.unwrap_or_default(),
                        on_error,
                        (aliases, descriptor, message),
                    )
                })
                .transpose()?,
            columns,
            batch_rows: batch_rows.unwrap_or(defaults.batch_rows),
            ..defaults
        };
        options.schema()?;
        Ok(Self(options))
    }

    /// The columns of every batch.
    #[getter]
    fn schema(&self) -> Result<PyStreamSchema, CoreError> {
        Ok(PyStreamSchema(self.0.schema()?))
    }
}

/// Columns and their types; ``pyarrow.schema(it)`` makes an Arrow schema of it.
#[pyclass(name = "StreamSchema", module = "mqttcore._core", frozen)]
pub(crate) struct PyStreamSchema(SchemaRef);

#[pymethods]
impl PyStreamSchema {
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyCapsule>, CoreError> {
        let schema = FFI_ArrowSchema::try_from(self.0.as_ref()).map_err(ColumnarError::from)?;
        Ok(PyCapsule::new_with_value(py, schema, c"arrow_schema")?)
    }
}

/// Rows of one schema; ``pyarrow.record_batch(it)`` takes them over without a copy.
#[pyclass(name = "StreamBatch", module = "mqttcore._core", frozen)]
pub(crate) struct PyStreamBatch(RecordBatch);

#[pymethods]
impl PyStreamBatch {
    /// The rows as the two capsules of the Arrow PyCapsule interface; ``requested_schema`` is not looked at.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> Result<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>), CoreError> {
        let _ = requested_schema;
        let rows = StructArray::from(self.0.clone()).into_data();
        let (array, schema): (FFI_ArrowArray, FFI_ArrowSchema) =
            to_ffi(&rows).map_err(ColumnarError::from)?;
        Ok((
            PyCapsule::new_with_value(py, schema, c"arrow_schema")?,
            PyCapsule::new_with_value(py, array, c"arrow_array")?,
        ))
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }
}

/// Exactly the rows of a range of one partition, batch after batch.
///
/// Files are opened while it is iterated. Threads may share it: each batch goes to one of them.
#[pyclass(name = "StreamReader", module = "mqttcore._core", frozen)]
pub(crate) struct PyStreamReader {
    schema: SchemaRef,
    rows: Mutex<Rows>,
}

/// The source of rows.
enum Rows {
    Files(Box<PartitionReader>),
    Tail(Box<TailReader>),
}

impl Rows {
    fn next(&mut self) -> Result<Option<RecordBatch>, ColumnarError> {
        match self {
            Self::Files(reader) => reader.next(),
            Self::Tail(reader) => reader.next(),
        }
        .transpose()
    }

    fn aliases(&self) -> Option<String> {
        match self {
            Self::Files(reader) => reader.aliases(),
            Self::Tail(reader) => reader.aliases(),
        }
    }
}

#[pymethods]
impl PyStreamReader {
    #[new]
    #[pyo3(signature = (files, /, *, partition, start, end, options=None))]
    fn new(
        files: Vec<(PathBuf, i64, i64)>,
        partition: i32,
        start: i64,
        end: i64,
        options: Option<&Bound<'_, PyStreamOptions>>,
    ) -> Result<Self, CoreError> {
        let part = |(path, base, last)| FilePart { path, base, last };
        let parts: Vec<FilePart> = files.into_iter().map(part).collect();
        let reader = PartitionReader::new(&parts, partition, start..end, taken(options))?;
        Ok(Self {
            schema: reader.schema().clone(),
            rows: Mutex::new(Rows::Files(Box::new(reader))),
        })
    }

    /// The same out of the tail: an Arrow IPC stream that holds exactly these rows.
    #[staticmethod]
    #[pyo3(signature = (ipc, /, *, partition, start, end, options=None))]
    fn tail(
        py: Python<'_>,
        ipc: &[u8],
        partition: i32,
        start: i64,
        end: i64,
        options: Option<&Bound<'_, PyStreamOptions>>,
    ) -> Result<Self, CoreError> {
        let batches = py.detach(|| read_ipc(ipc))?;
        let reader = TailReader::new(batches, partition, start..end, &taken(options))?;
        Ok(Self {
            schema: reader.schema().clone(),
            rows: Mutex::new(Rows::Tail(Box::new(reader))),
        })
    }

    /// The columns of every batch.
    #[getter]
    fn schema(&self) -> PyStreamSchema {
        PyStreamSchema(self.schema.clone())
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> Result<Option<PyStreamBatch>, CoreError> {
        let next = py.detach(|| {
            let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
            rows.next()
        });
        Ok(next?.map(PyStreamBatch))
    }

    /// The known aliases of Sparkplug B, for the options of the reader that continues from here.
    #[getter]
    fn aliases(&self, py: Python<'_>) -> Option<String> {
        py.detach(|| {
            let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
            rows.aliases()
        })
    }
}

/// Decodes payloads of rows that come from elsewhere; batches come in order, which Sparkplug's aliases need.
#[pyclass(name = "StreamDecoder", module = "mqttcore._core", frozen)]
pub(crate) struct PyStreamDecoder(Mutex<Decoder>);

#[pymethods]
impl PyStreamDecoder {
    #[new]
    #[pyo3(signature = (decode, payload_schema, /, *, on_error="null", aliases=None, descriptor=None, message=None))]
    fn new(
        decode: &str,
        payload_schema: &str,
        on_error: &str,
        aliases: Option<&str>,
        descriptor: Option<&[u8]>,
        message: Option<&str>,
    ) -> Result<Self, CoreError> {
        let known = (aliases, descriptor, message);
        let decoder = decoder(decode, payload_schema, on_error, known)?;
        Ok(Self(Mutex::new(decoder)))
    }

    /// The columns that rows get, behind those that they have.
    #[getter]
    fn schema(&self) -> PyStreamSchema {
        let columns = self.held().columns();
        PyStreamSchema(Arc::new(Schema::new(columns)))
    }

    /// The rows of an Arrow IPC stream, decoded.
    fn decode(&self, py: Python<'_>, ipc: &[u8]) -> Result<Vec<PyStreamBatch>, CoreError> {
        py.detach(|| {
            let mut decoder = self.held();
            let batches = read_ipc(ipc)?.into_iter();
            let rows = batches.map(|batch| Ok(PyStreamBatch(decoder.decode(&batch)?)));
            rows.collect()
        })
    }
}

impl PyStreamDecoder {
    fn held(&self) -> MutexGuard<'_, Decoder> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn decoder(
    format: &str,
    schema: &str,
    on_error: &str,
    (aliases, descriptor, message): (Option<&str>, Option<&[u8]>, Option<&str>),
) -> Result<Decoder, ColumnarError> {
    let (format, fields) = (format.parse()?, parse_payload_schema(schema)?);
    let mut decoder = Decoder::new(format, fields, on_error.parse()?)?;
    if let Some(aliases) = aliases {
        decoder = decoder.with_aliases(aliases)?;
    }
    let missing = |option, problem: &str| ColumnarError::Option {
        option,
        problem: problem.to_owned(),
    };
    match (format, descriptor, message) {
        (Format::Protobuf, Some(descriptor), Some(message)) => {
            decoder.with_descriptor(descriptor, message)
        }
        (Format::Protobuf, ..) => Err(missing(
            "descriptor",
            "decode = protobuf needs a descriptor and the name of a message",
        )),
        (Format::Avro, Some(schemas), _) => decoder.with_schemas(schemas),
        (Format::Avro, None, _) => Err(missing("schemas", "decode = avro needs schemas")),
        _ => Ok(decoder),
    }
}

fn taken(options: Option<&Bound<'_, PyStreamOptions>>) -> ReadOptions {
    options.map_or_else(ReadOptions::default, |options| options.get().0.clone())
}

/// Writes one file from an Arrow IPC stream of rows, consecutive and of one partition; returns the data of its
/// footer.
#[pyfunction]
#[pyo3(signature = (path, ipc, /, *, stream, epoch="", schema=0, aliases=None))]
pub(crate) fn write_stream_file<'py>(
    py: Python<'py>,
    path: PathBuf,
    ipc: &[u8],
    stream: &str,
    epoch: &str,
    schema: u32,
    aliases: Option<&str>,
) -> Result<Bound<'py, PyDict>, CoreError> {
    let known = aliases.map(str::parse::<MetricAliases>).transpose()?;
    let origin = Origin {
        stream: stream.to_owned(),
        epoch: epoch.to_owned(),
        schema,
    };
    let meta = py.detach(|| {
        let batches = read_ipc(ipc)?;
        let file = File::create(&path).map_err(|error| ColumnarError::io(&path, error))?;
        let mut known = known.unwrap_or_default();
        write_parquet(file, &batches, &origin, &mut known)
    })?;
    described(py, &meta)
}

/// Returns the data in the footer of a stream's file.
#[pyfunction]
#[pyo3(signature = (path, /))]
pub(crate) fn read_stream_file_meta(
    py: Python<'_>,
    path: PathBuf,
) -> Result<Bound<'_, PyDict>, CoreError> {
    let meta = py.detach(|| FileMeta::read(&path))?;
    described(py, &meta)
}

fn described<'py>(py: Python<'py>, meta: &FileMeta) -> Result<Bound<'py, PyDict>, CoreError> {
    let described = PyDict::new(py);
    described.set_item("stream", &meta.origin.stream)?;
    described.set_item("epoch", &meta.origin.epoch)?;
    described.set_item("schema", meta.origin.schema)?;
    described.set_item("partition", meta.partition)?;
    described.set_item("base", meta.base)?;
    described.set_item("last", meta.last)?;
    described.set_item("min_us", meta.min_us)?;
    described.set_item("max_us", meta.max_us)?;
    described.set_item("typed", meta.typed)?;
    described.set_item("aliases", meta.aliases.as_deref())?;
    Ok(described)
}
