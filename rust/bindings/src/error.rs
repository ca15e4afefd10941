//! Converts Rust errors to Python exceptions; no other module does.

use mqttcore_broker::{PublishError, StartError as StartFailure};
use mqttcore_codec::{DecodeError, EncodeError, TextError};
#[cfg(feature = "streams")]
use mqttcore_columnar::ColumnarError;
#[cfg(feature = "streams")]
use mqttcore_publisher::PublisherFailure;
use mqttcore_session::MessageError;
use mqttcore_topics::TopicError;
use pyo3::call::PyCallArgs;
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

create_exception!(
    mqttcore,
    TopicFilterError,
    MqttError,
    "A string is not a topic filter."
);
create_exception!(
    mqttcore,
    TopicNameError,
    MqttError,
    "A string is not a topic name."
);

create_exception!(
    mqttcore,
    StartError,
    MqttError,
    "The broker did not start: an address is not available, or a thread cannot be started."
);
create_exception!(
    mqttcore,
    StoreError,
    MqttError,
    "A durable store cannot be opened or read, or is damaged."
);
create_exception!(
    mqttcore,
    StoppedError,
    MqttError,
    "The broker is not running, or another process started it."
);
/// Any error of a binding: converts from the errors of all crates, so that `?` works.
pub(crate) enum CoreError {
    Filter(TopicError),
    Name(TopicError),
    /// A filter in a list is not valid, with its index.
    FilterRow {
        index: usize,
        error: TopicError,
    },
    /// A topic name in a list is not valid, with its index.
    NameRow {
        index: usize,
        error: TopicError,
    },
    Start(StartFailure),
    Publish(PublishError),
    Encode(EncodeError),
    Decode(DecodeError),
    /// Rows cannot be published or are not acknowledged.
    #[cfg(feature = "streams")]
    Undelivered(PublisherFailure),
    /// A forked child uses the broker of its parent.
    Forked,
    Hash(HashError),
    Store(mqttcore_store::StoreError),
    /// Rows of a stream cannot be read or written.
    #[cfg(feature = "streams")]
    Columnar(ColumnarError),
    /// The folder of a store is not usable.
    StoreFolder(String),
    /// A Python exception.
    Python(PyErr),
    /// The value of an argument is not valid.
    Argument(String),
}

impl From<HashError> for CoreError {
    fn from(error: HashError) -> Self {
        Self::Hash(error)
    }
}

impl From<mqttcore_store::StoreError> for CoreError {
    fn from(error: mqttcore_store::StoreError) -> Self {
        Self::Store(error)
    }
}

#[cfg(feature = "streams")]
impl From<ColumnarError> for CoreError {
    fn from(error: ColumnarError) -> Self {
        Self::Columnar(error)
    }
}

impl From<PyErr> for CoreError {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<std::convert::Infallible> for CoreError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

impl From<TopicError> for CoreError {
    fn from(error: TopicError) -> Self {
        Self::Filter(error)
    }
}

impl From<PublishError> for CoreError {
    fn from(error: PublishError) -> Self {
        Self::Publish(error)
    }
}

impl From<EncodeError> for CoreError {
    fn from(error: EncodeError) -> Self {
        Self::Encode(error)
    }
}

impl From<DecodeError> for CoreError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

#[cfg(feature = "streams")]
impl From<PublisherFailure> for CoreError {
    fn from(error: PublisherFailure) -> Self {
        Self::Undelivered(error)
    }
}

impl From<TextError> for CoreError {
    fn from(error: TextError) -> Self {
        Self::Argument(error.to_string())
    }
}

impl From<CoreError> for PyErr {
    /// Longer than other functions: it is the table of errors and their Python classes.
    fn from(error: CoreError) -> Self {
        match error {
            CoreError::Filter(error) => TopicFilterError::new_err(error.to_string()),
            CoreError::Name(error) => TopicNameError::new_err(error.to_string()),
            CoreError::FilterRow { index, error } => {
                TopicFilterError::new_err(format!("filters[{index}]: {error}"))
            }
            CoreError::NameRow { index, error } => {
                TopicNameError::new_err(format!("topics[{index}]: {error}"))
            }
            CoreError::Start(error) => StartError::new_err(error.to_string()),
            CoreError::Publish(
                error @ (PublishError::Topic(_)
                | PublishError::Message(MessageError::ResponseTopic(_))),
            ) => TopicNameError::new_err(error.to_string()),
            CoreError::Publish(PublishError::Message(error)) => {
                PyValueError::new_err(error.to_string())
            }
            CoreError::Publish(
                error @ (PublishError::NoRoom
                | PublishError::NoMemory
                | PublishError::QueueFull
                | PublishError::TooManyFilters
                | PublishError::NotLogged),
            ) => python_error("OverloadedError", (error.to_string(),)),
            CoreError::Publish(error) => StoppedError::new_err(error.to_string()),
            CoreError::Encode(error) => python_error("PacketError", (error.to_string(),)),
            CoreError::Decode(error) => {
                let reason = error.reason_code().value();
                python_error(
                    "PacketError",
                    (error.to_string(), reason, error.statement()),
                )
            }
            #[cfg(feature = "streams")]
            CoreError::Undelivered(error) => python_error("UndeliveredError", (error.to_string(),)),
            #[cfg(feature = "streams")]
            CoreError::Columnar(error) => {
                let class = match error {
                    ColumnarError::Missing { .. } => "StreamRangeError",
                    ColumnarError::Option { .. } => "StreamOptionError",
                    ColumnarError::Undecodable { .. } => "StreamDecodeError",
                    _ => "StreamFileError",
                };
                python_error(class, (error.to_string(),))
            }
            CoreError::Forked => StoppedError::new_err(
                "the broker was started by another process, and this process is a fork of it",
            ),
            CoreError::Hash(error) => PasswordHashError::new_err(error.to_string()),
            CoreError::Store(error) => StoreError::new_err(error.to_string()),
            CoreError::StoreFolder(error) => StoreError::new_err(error),
            CoreError::Python(error) => error,
            CoreError::Argument(what) => PyValueError::new_err(what),
        }
    }
}

/// Creates an error of a class in `mqttcore.errors`, which has more fields than a text, or two base classes.
fn python_error<A>(class: &str, arguments: A) -> PyErr
where
    A: for<'py> PyCallArgs<'py>,
{
    Python::attach(|py| {
        let class = py
            .import("mqttcore.errors")
            .and_then(|module| module.getattr(class));
        match class.and_then(|class| class.call1(arguments)) {
            Ok(error) => PyErr::from_value(error),
            Err(error) => error,
        }
    })
}
