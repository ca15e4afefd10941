//! The codec for Python: converts between bytes and the classes of `mqttcore.packets`.

mod decode;
mod encode;
mod properties;

use mqttcore_codec::ProtocolVersion;
use pyo3::PyResult;

pub(crate) use self::decode::decode_packet;
pub(crate) use self::encode::encode_packet;
use crate::error::CoreError;

fn version_of(level: u8) -> PyResult<ProtocolVersion> {
    let version = ProtocolVersion::from_level(level);
    Ok(version.ok_or_else(|| CoreError::Argument(format!("version is 3, 4 or 5, not {level}")))?)
}
