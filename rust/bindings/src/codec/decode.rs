//! Decodes bytes to the packet classes of `mqttcore.packets`.

use mqttcore_codec::{
    Ack, Connect, Limits, Packet, Publish, PublishQoS, ReasonCode, Subscribe, Text, Will, decode,
    decode_connect,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use super::properties::read;
use super::version_of;
use crate::error::CoreError;

/// The packet at the front of `data` and its length; `None` while bytes are missing.
///
/// `limits` are the largest packet, the most user properties, and the most bytes of these.
#[pyfunction]
#[pyo3(signature = (data, version, first, limits, /))]
pub(crate) fn decode_packet<'py>(
    py: Python<'py>,
    data: &[u8],
    version: u8,
    first: bool,
    limits: (u32, u16, u32),
) -> PyResult<Option<(Bound<'py, PyAny>, usize)>> {
    let limits = Limits {
        packet_bytes: limits.0,
        user_properties: limits.1,
        user_property_bytes: limits.2,
    };
    let decoded = if first {
        decode_connect(data, &limits)
            .map(|found| found.map(|(connect, length)| (Packet::Connect(connect), length)))
    } else {
        decode(data, version_of(version)?, &limits)
    };
    let Some((packet, length)) = decoded.map_err(CoreError::from)? else {
        return Ok(None);
    };
    Ok(Some((Maker::new(py)?.packet(&packet)?, length)))
}

/// Creates objects of the classes in `mqttcore.packets`.
struct Maker<'py> {
    py: Python<'py>,
    module: Bound<'py, PyModule>,
}

impl<'py> Maker<'py> {
    fn new(py: Python<'py>) -> PyResult<Self> {
        let module = py.import("mqttcore.packets")?;
        Ok(Self { py, module })
    }

    fn packet(&self, packet: &Packet<'_>) -> PyResult<Bound<'py, PyAny>> {
        let fields = PyDict::new(self.py);
        let name = self.fill(packet, &fields)?;
        self.make(name, &fields)
    }

    fn make(&self, class: &str, fields: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        self.module.getattr(class)?.call((), Some(fields))
    }

    /// Sets the fields of a packet; returns the name of its class. Longer than other functions: it has one arm for each
    /// packet.
    fn fill(&self, packet: &Packet<'_>, fields: &Bound<'py, PyDict>) -> PyResult<&'static str> {
        let properties = match packet {
            Packet::Connect(connect) => return self.connect(connect, fields),
            Packet::Publish(publish) => return self.publish(publish, fields),
            Packet::PubAck(ack) => return self.ack("PubAck", ack, fields),
            Packet::PubRec(ack) => return self.ack("PubRec", ack, fields),
            Packet::PubRel(ack) => return self.ack("PubRel", ack, fields),
            Packet::PubComp(ack) => return self.ack("PubComp", ack, fields),
            Packet::Subscribe(subscribe) => return self.subscribe(subscribe, fields),
            Packet::PingReq => return Ok("PingReq"),
            Packet::PingResp => return Ok("PingResp"),
            Packet::ConnAck(connack) => {
                fields.set_item("session_present", connack.session_present)?;
                fields.set_item("reason", connack.reason.value())?;
                connack.properties
            }
            Packet::SubAck(suback) => {
                fields.set_item("packet_id", suback.packet_id.get())?;
                fields.set_item("reasons", self.reasons(&suback.reasons)?)?;
                suback.properties
            }
            Packet::Unsubscribe(unsubscribe) => {
                let filters = unsubscribe.filters.iter().map(|filter| filter.as_str());
                fields.set_item("packet_id", unsubscribe.packet_id.get())?;
                fields.set_item(
                    "filters",
                    PyTuple::new(self.py, filters.collect::<Vec<_>>())?,
                )?;
                unsubscribe.properties
            }
            Packet::UnsubAck(unsuback) => {
                fields.set_item("packet_id", unsuback.packet_id.get())?;
                fields.set_item("reasons", self.reasons(&unsuback.reasons)?)?;
                unsuback.properties
            }
            Packet::Disconnect(disconnect) => {
                fields.set_item("reason", disconnect.reason.value())?;
                disconnect.properties
            }
            Packet::Auth(auth) => {
                fields.set_item("reason", auth.reason.value())?;
                auth.properties
            }
        };
        fields.set_item("properties", read(self.py, properties)?)?;
        Ok(class_name(packet))
    }

    fn connect(
        &self,
        connect: &Connect<'_>,
        fields: &Bound<'py, PyDict>,
    ) -> PyResult<&'static str> {
        fields.set_item("version", connect.version.level())?;
        fields.set_item("is_bridge", connect.is_bridge)?;
        fields.set_item("client_id", connect.client_id.as_str())?;
        fields.set_item("clean_start", connect.clean_start)?;
        fields.set_item("keep_alive_s", connect.keep_alive_s)?;
        fields.set_item("username", connect.username.map(Text::as_str))?;
        let password = connect.password.map(|bytes| PyBytes::new(self.py, bytes));
        fields.set_item("password", password)?;
        let will = connect.will.as_ref().map(|will| self.will(will));
        fields.set_item("will", will.transpose()?)?;
        fields.set_item("properties", read(self.py, connect.properties)?)?;
        Ok("Connect")
    }

    fn will(&self, will: &Will<'_>) -> PyResult<Bound<'py, PyAny>> {
        let fields = PyDict::new(self.py);
        fields.set_item("topic", will.topic.as_str())?;
        fields.set_item("payload", PyBytes::new(self.py, will.payload))?;
        fields.set_item("qos", will.qos as u8)?;
        fields.set_item("retain", will.retain)?;
        fields.set_item("properties", read(self.py, will.properties)?)?;
        self.make("Will", &fields)
    }

    fn publish(
        &self,
        publish: &Publish<'_>,
        fields: &Bound<'py, PyDict>,
    ) -> PyResult<&'static str> {
        let (packet_id, dup) = match publish.delivery {
            PublishQoS::AtMostOnce => (None, false),
            PublishQoS::AtLeastOnce { packet_id, dup }
            | PublishQoS::ExactlyOnce { packet_id, dup } => (Some(packet_id.get()), dup),
        };
        fields.set_item("topic", publish.topic.as_str())?;
        fields.set_item("payload", PyBytes::new(self.py, publish.payload))?;
        fields.set_item("qos", publish.delivery.qos() as u8)?;
        fields.set_item("packet_id", packet_id)?;
        fields.set_item("dup", dup)?;
        fields.set_item("retain", publish.retain)?;
        fields.set_item("properties", read(self.py, publish.properties)?)?;
        Ok("Publish")
    }

    fn ack(
        &self,
        class: &'static str,
        ack: &Ack<'_>,
        fields: &Bound<'py, PyDict>,
    ) -> PyResult<&'static str> {
        fields.set_item("packet_id", ack.packet_id.get())?;
        fields.set_item("reason", ack.reason.value())?;
        fields.set_item("properties", read(self.py, ack.properties)?)?;
        Ok(class)
    }

    fn subscribe(
        &self,
        subscribe: &Subscribe<'_>,
        fields: &Bound<'py, PyDict>,
    ) -> PyResult<&'static str> {
        let mut filters = Vec::new();
        for (filter, options) in &subscribe.filters {
            let one = PyDict::new(self.py);
            one.set_item("filter", filter.as_str())?;
            one.set_item("qos", options.maximum_qos as u8)?;
            one.set_item("no_local", options.no_local)?;
            one.set_item("retain_as_published", options.retain_as_published)?;
            one.set_item("retain_handling", options.retain_handling as u8)?;
            filters.push(self.make("Subscription", &one)?);
        }
        fields.set_item("packet_id", subscribe.packet_id.get())?;
        fields.set_item("filters", PyTuple::new(self.py, filters)?)?;
        fields.set_item("properties", read(self.py, subscribe.properties)?)?;
        Ok("Subscribe")
    }

    fn reasons(&self, reasons: &[ReasonCode]) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(self.py, reasons.iter().map(|reason| reason.value()))
    }
}

fn class_name(packet: &Packet<'_>) -> &'static str {
    match packet {
        Packet::ConnAck(_) => "ConnAck",
        Packet::SubAck(_) => "SubAck",
        Packet::Unsubscribe(_) => "Unsubscribe",
        Packet::UnsubAck(_) => "UnsubAck",
        Packet::Disconnect(_) => "Disconnect",
        _ => "Auth",
    }
}
