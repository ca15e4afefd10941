//! Encodes the packet classes of `mqttcore.packets` to bytes.

use mqttcore_codec::{
    Ack, Auth, ConnAck, Connect, Disconnect, Packet, PacketId, PacketType, PropertiesBuf,
    ProtocolVersion, Publish, PublishQoS, QoS, ReasonCode, RetainHandling, SubAck, Subscribe,
    SubscriptionOptions, UnsubAck, Unsubscribe, Will, encode,
};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::PyBytes;

use super::properties::{qos, text, write};
use super::version_of;
use crate::error::CoreError;

/// The bytes of a packet of `mqttcore.packets`.
#[pyfunction]
#[pyo3(signature = (packet, version, /))]
pub(crate) fn encode_packet<'py>(
    packet: &Bound<'py, PyAny>,
    version: u8,
) -> PyResult<Bound<'py, PyBytes>> {
    let out = write_packet(packet, version_of(version)?)?;
    Ok(PyBytes::new(packet.py(), &out))
}

fn write_packet(object: &Bound<'_, PyAny>, version: ProtocolVersion) -> PyResult<Vec<u8>> {
    let class = object.get_type().name()?;
    match &*class.to_cow()? {
        "Connect" => connect(object),
        "ConnAck" => connack(object, version),
        "Publish" => publish(object, version),
        "PubAck" => ack(object, version, PacketType::PubAck),
        "PubRec" => ack(object, version, PacketType::PubRec),
        "PubRel" => ack(object, version, PacketType::PubRel),
        "PubComp" => ack(object, version, PacketType::PubComp),
        "Subscribe" => subscribe(object, version),
        "SubAck" => suback(object, version),
        "Unsubscribe" => unsubscribe(object, version),
        "UnsubAck" => unsuback(object, version),
        "PingReq" => bytes(&Packet::PingReq, version),
        "PingResp" => bytes(&Packet::PingResp, version),
        "Disconnect" => disconnect(object, version),
        "Auth" => auth(object, version),
        other => Err(CoreError::Argument(format!("{other} is not a packet")).into()),
    }
}

fn bytes(packet: &Packet<'_>, version: ProtocolVersion) -> PyResult<Vec<u8>> {
    let mut out = Vec::new();
    encode(packet, version, &mut out).map_err(CoreError::from)?;
    Ok(out)
}

fn field<'py, T>(object: &Bound<'py, PyAny>, name: &str) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py, Error: Into<PyErr>>,
{
    object.getattr(name)?.extract().map_err(Into::into)
}

fn properties(object: &Bound<'_, PyAny>) -> PyResult<PropertiesBuf> {
    write(&field::<Vec<(PyBackedStr, Bound<'_, PyAny>)>>(
        object,
        "properties",
    )?)
}

fn packet_id(object: &Bound<'_, PyAny>) -> PyResult<PacketId> {
    let id = PacketId::new(field(object, "packet_id")?);
    Ok(id.ok_or_else(|| CoreError::Argument("packet_id is 1 to 65535".into()))?)
}

fn reason_of(value: u8) -> PyResult<ReasonCode> {
    let reason = ReasonCode::new(value);
    Ok(reason.ok_or_else(|| CoreError::Argument(format!("unknown reason code {value}")))?)
}

fn reason(object: &Bound<'_, PyAny>) -> PyResult<ReasonCode> {
    reason_of(field(object, "reason")?)
}

fn reasons(object: &Bound<'_, PyAny>) -> PyResult<Vec<ReasonCode>> {
    let values: Vec<u8> = field::<Vec<u8>>(object, "reasons")?;
    values.into_iter().map(reason_of).collect()
}

fn connect(object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let version = version_of(field(object, "version")?)?;
    let client_id: PyBackedStr = field(object, "client_id")?;
    let username: Option<PyBackedStr> = field(object, "username")?;
    let password: Option<PyBackedBytes> = field(object, "password")?;
    let list = properties(object)?;
    let will: Option<Bound<'_, PyAny>> = field(object, "will")?;
    let will = will.as_ref().map(WillFields::read).transpose()?;
    let packet = Packet::Connect(Connect {
        version,
        is_bridge: field(object, "is_bridge")?,
        clean_start: field(object, "clean_start")?,
        keep_alive_s: field(object, "keep_alive_s")?,
        properties: list.as_properties(),
        client_id: text(&client_id)?,
        will: will.as_ref().map(WillFields::will).transpose()?,
        username: username.as_deref().map(text).transpose()?,
        password: password.as_deref(),
    });
    bytes(&packet, version)
}

struct WillFields {
    topic: PyBackedStr,
    payload: PyBackedBytes,
    qos: QoS,
    retain: bool,
    properties: PropertiesBuf,
}

impl WillFields {
    fn read(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            topic: field(object, "topic")?,
            payload: field(object, "payload")?,
            qos: qos(field(object, "qos")?)?,
            retain: field(object, "retain")?,
            properties: properties(object)?,
        })
    }

    fn will(&self) -> PyResult<Will<'_>> {
        Ok(Will {
            qos: self.qos,
            retain: self.retain,
            properties: self.properties.as_properties(),
            topic: text(&self.topic)?,
            payload: &self.payload,
        })
    }
}

fn connack(object: &Bound<'_, PyAny>, version: ProtocolVersion) -> PyResult<Vec<u8>> {
    let list = properties(object)?;
    let packet = Packet::ConnAck(ConnAck {
        session_present: field(object, "session_present")?,
        reason: reason(object)?,
        properties: list.as_properties(),
    });
    bytes(&packet, version)
}

fn publish(object: &Bound<'_, PyAny>, version: ProtocolVersion) -> PyResult<Vec<u8>> {
    let topic: PyBackedStr = field(object, "topic")?;
    let payload: PyBackedBytes = field(object, "payload")?;
    let list = properties(object)?;
    let packet = Packet::Publish(Publish {
        delivery: delivery(object)?,
        retain: field(object, "retain")?,
        topic: text(&topic)?,
        properties: list.as_properties(),
        payload: &payload,
    });
    bytes(&packet, version)
}

fn delivery(object: &Bound<'_, PyAny>) -> PyResult<PublishQoS> {
    let dup = field(object, "dup")?;
    Ok(match qos(field(object, "qos")?)? {
        QoS::AtMostOnce => PublishQoS::AtMostOnce,
        QoS::AtLeastOnce => PublishQoS::AtLeastOnce {
            packet_id: packet_id(object)?,
            dup,
        },
        QoS::ExactlyOnce => PublishQoS::ExactlyOnce {
            packet_id: packet_id(object)?,
            dup,
        },
    })
}

fn ack(object: &Bound<'_, PyAny>, version: ProtocolVersion, kind: PacketType) -> PyResult<Vec<u8>> {
    let list = properties(object)?;
    let ack = Ack {
        packet_id: packet_id(object)?,
        reason: reason(object)?,
        properties: list.as_properties(),
    };
    let packet = match kind {
        PacketType::PubAck => Packet::PubAck(ack),
        PacketType::PubRec => Packet::PubRec(ack),
        PacketType::PubRel => Packet::PubRel(ack),
        _ => Packet::PubComp(ack),
    };
    bytes(&packet, version)
}

/// `mqttcore.packets.Subscription`.
#[derive(FromPyObject)]
struct SubscriptionFields {
    filter: PyBackedStr,
    qos: u8,
    no_local: bool,
    retain_as_published: bool,
    retain_handling: u8,
}

impl SubscriptionFields {
    fn options(&self) -> PyResult<SubscriptionOptions> {
        let handling = match self.retain_handling {
            0 => RetainHandling::SendAtSubscribe,
            1 => RetainHandling::SendIfNew,
            2 => RetainHandling::DoNotSend,
            other => {
                let what = format!("retain_handling is 0, 1 or 2, not {other}");
                return Err(CoreError::Argument(what).into());
            }
        };
        Ok(SubscriptionOptions {
            maximum_qos: qos(self.qos)?,
            no_local: self.no_local,
            retain_as_published: self.retain_as_published,
            retain_handling: handling,
        })
    }
}

fn subscribe(object: &Bound<'_, PyAny>, version: ProtocolVersion) -> PyResult<Vec<u8>> {
    let list = properties(object)?;
    let filters: Vec<SubscriptionFields> = field::<Vec<SubscriptionFields>>(object, "filters")?;
    let filters = filters
        .iter()
        .map(|one| Ok((text(&one.filter)?, one.options()?)));
    let packet = Packet::Subscribe(Subscribe {
        packet_id: packet_id(object)?,
        properties: list.as_properties(),
        filters: filters.collect::<PyResult<_>>()?,
    });
    bytes(&packet, version)
}

fn suback(object: &Bound<'_, PyAny>, version: ProtocolVersion) -> PyResult<Vec<u8>> {
    let list = properties(object)?;
    let packet = Packet::SubAck(SubAck {
        packet_id: packet_id(object)?,
        properties: list.as_properties(),
        reasons: reasons(object)?,
    });
    bytes(&packet, version)
}

fn unsubscribe(object: &Bound<'_, PyAny>, version: ProtocolVersion) -> PyResult<Vec<u8>> {
    let list = properties(object)?;
    let filters: Vec<PyBackedStr> = field::<Vec<PyBackedStr>>(object, "filters")?;
    let packet = Packet::Unsubscribe(Unsubscribe {
        packet_id: packet_id(object)?,
        properties: list.as_properties(),
        filters: filters
            .iter()
            .map(|filter| text(filter))
            .collect::<PyResult<_>>()?,
    });
    bytes(&packet, version)
}

fn unsuback(object: &Bound<'_, PyAny>, version: ProtocolVersion) -> PyResult<Vec<u8>> {
    let list = properties(object)?;
    let packet = Packet::UnsubAck(UnsubAck {
        packet_id: packet_id(object)?,
        properties: list.as_properties(),
        reasons: reasons(object)?,
    });
    bytes(&packet, version)
}

fn disconnect(object: &Bound<'_, PyAny>, version: ProtocolVersion) -> PyResult<Vec<u8>> {
    let list = properties(object)?;
    let packet = Packet::Disconnect(Disconnect {
        reason: reason(object)?,
        properties: list.as_properties(),
    });
    bytes(&packet, version)
}

fn auth(object: &Bound<'_, PyAny>, version: ProtocolVersion) -> PyResult<Vec<u8>> {
    let list = properties(object)?;
    let packet = Packet::Auth(Auth {
        reason: reason(object)?,
        properties: list.as_properties(),
    });
    bytes(&packet, version)
}
