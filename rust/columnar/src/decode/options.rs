//! The formats of payloads, and what becomes of those that do not fit.

use std::str::FromStr;

use crate::ColumnarError;

/// What a payload is written in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Format {
    /// JSON, RFC 8259.
    Json,
    /// CBOR, RFC 8949.
    Cbor,
    /// MessagePack.
    MessagePack,
    /// One value a payload, for one column of any name.
    Text,
    /// A message of Protocol Buffers, by [`Decoder::with_descriptor`].
    Protobuf,
    /// Sparkplug B, for topics that begin with `spBv1.0/`.
    Sparkplug,
    /// Sparkplug B by its topics, CBOR by its first byte, else JSON.
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
            "sparkplug" => Ok(Self::Sparkplug),
            "auto" => Ok(Self::Auto),
            _ => Err(ColumnarError::Option {
                option: "decode",
                problem: format!(
                    "unknown format {name:?}; allowed: json, cbor, msgpack, text, protobuf, sparkplug, auto"
                ),
            }),
        }
    }
}

/// What becomes of a row whose payload does not fit.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OnError {
    /// It stays: what does not fit is null, and `_corrupt` holds the payload.
    #[default]
    Null,
    /// It is left out. So is a row whose payload is empty, or only white space where the format is JSON; for Protocol
    /// Buffers an empty payload is left out only if it is retained: else it is a message of defaults.
    Drop,
    /// The reader ends with an error that names it.
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
