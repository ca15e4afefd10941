//! The codec for Python: converts between bytes and the classes of `mqttcore.packets`.

mod decode;
mod encode;
mod properties;

use mqttcore_codec::{ProtocolVersion, ReasonCode};
use pyo3::prelude::*;

pub(crate) use self::decode::decode_packet;
pub(crate) use self::encode::encode_packet;
use crate::error::CoreError;

fn version_of(level: u8) -> PyResult<ProtocolVersion> {
    let version = ProtocolVersion::from_level(level);
    Ok(version.ok_or_else(|| CoreError::Argument(format!("version is 3, 4 or 5, not {level}")))?)
}

/// The value and the name of a reason code, as in log lines: `0x87 Not authorized`.
#[pyfunction]
#[pyo3(signature = (value, /))]
pub(crate) fn reason_text(value: u8) -> String {
    ReasonCode::new(value).map_or_else(|| format!("0x{value:02X}"), |reason| reason.to_string())
}
