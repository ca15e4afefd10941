//! Payload formats, and the handling of payloads that do not fit.

use std::str::FromStr;

use crate::ColumnarError;

/// A payload format.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Format {
    /// JSON, RFC 8259.
    Json,
    /// CBOR, RFC 8949.
    Cbor,
    /// MessagePack.
    MessagePack,
    /// One value in each payload, for one column of any name.
    Text,
    /// A message of Protocol Buffers, by [`Decoder::with_descriptor`](super::Decoder::with_descriptor).
    Protobuf,
    /// A record of Avro behind the number of its schema, by [`Decoder::with_schemas`](super::Decoder::with_schemas).
    Avro,
    /// Sparkplug B, for topics that begin with `spBv1.0/`.
    Sparkplug,
    /// Detects the format: Sparkplug B by the topic, CBOR by the first byte, else JSON.
    Auto,
}

impl FromStr for Format {
    type Err = ColumnarError;

    fn from_str(name: &str) -> Result<Self, ColumnarError> {
        match name {
            "json" => Ok(Self::Json),
            "cbor" => Ok(Self::Cbor),
            "msgpack" => Ok(Self::MessagePack),
            "text" => Ok(Self::Text),
            "protobuf" => Ok(Self::Protobuf),
            "avro" => Ok(Self::Avro),
            "sparkplug" => Ok(Self::Sparkplug),
            "auto" => Ok(Self::Auto),
            _ => Err(ColumnarError::Option {
                option: "decode",
                problem: format!(
                    "unknown format {name:?}; allowed: json, cbor, msgpack, text, protobuf, avro, sparkplug, auto"
                ),
            }),
        }
    }
}

/// How a row whose payload does not fit is handled.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OnError {
    /// The row stays: values that do not fit are null, and `_corrupt` holds the payload.
    #[default]
    Null,
    /// The row is dropped. So is a row with an empty payload, or with only white space if the format is JSON. For
    /// Protocol Buffers an empty payload is dropped only if it is retained; otherwise it is a message of defaults.
    Drop,
    /// The reader fails with an error that names the row.
    Fail,
}

impl FromStr for OnError {
    type Err = ColumnarError;

    fn from_str(name: &str) -> Result<Self, ColumnarError> {
        match name {
            "null" => Ok(Self::Null),
            "drop" => Ok(Self::Drop),
            "fail" => Ok(Self::Fail),
            _ => Err(ColumnarError::Option {
                option: "on_error",
                problem: format!("unknown value {name:?}; allowed: null, drop, fail"),
            }),
        }
    }
}
