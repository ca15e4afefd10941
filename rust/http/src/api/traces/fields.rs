//! The fields of a traced packet as JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mqttcore_broker::TracedPacket;
use mqttcore_codec::{
    Connect, Limits, Packet, PacketId, Properties, Property, Publish, ReasonCode, Subscribe,
    Unsubscribe, decode,
};
use serde_json::{Map, Value, json};

/// Fields of a packet by name.
pub(super) type PacketFields = Map<String, Value>;

/// The type of a packet and its fields; `None` for an event.
pub(super) fn fields_of(traced: &TracedPacket) -> Option<(String, PacketFields)> {
    let decoded = decode(&traced.packet, traced.version, &Limits::MAX);
    let (packet, _) = decoded.ok()??;
    let mut fields = PacketFields::new();
    let mut put = |name: &str, value: Value| {
        fields.insert(name.into(), value);
    };
    match &packet {
        Packet::Connect(connect) => of_connect(connect, traced, &mut put),
        Packet::ConnAck(connack) => {
            put("session_present", connack.session_present.into());
            of_reason(connack.reason, connack.properties, &mut put);
        }
        Packet::Publish(publish) => of_publish(publish, traced, &mut put),
        Packet::PubAck(ack) | Packet::PubRec(ack) | Packet::PubRel(ack) | Packet::PubComp(ack) => {
            put("packet_id", ack.packet_id.get().into());
            of_reason(ack.reason, ack.properties, &mut put);
        }
        Packet::Subscribe(subscribe) => of_subscribe(subscribe, &mut put),
        Packet::SubAck(ack) => of_reasons(ack.packet_id, &ack.reasons, ack.properties, &mut put),
        Packet::Unsubscribe(unsubscribe) => of_unsubscribe(unsubscribe, &mut put),
        Packet::UnsubAck(ack) => of_reasons(ack.packet_id, &ack.reasons, ack.properties, &mut put),
        Packet::PingReq | Packet::PingResp => {}
        Packet::Disconnect(disconnect) => {
            of_reason(disconnect.reason, disconnect.properties, &mut put);
        }
        Packet::Auth(auth) => of_reason(auth.reason, auth.properties, &mut put),
    }
    let name = format!("{:?}", packet.packet_type()).to_uppercase();
    Some((name, fields))
}

fn of_connect(connect: &Connect<'_>, traced: &TracedPacket, put: &mut impl FnMut(&str, Value)) {
    put("client_id", connect.client_id.as_str().into());
    put("clean_start", connect.clean_start.into());
    put("keep_alive_s", connect.keep_alive_s.into());
    if let Some(username) = connect.username {
        put("username", username.as_str().into());
    }
    if connect.password.is_some() {
        put("password", "***".into());
    }
    if let Some(will) = connect.will {
        let mut own = PacketFields::new();
        let mut put_will = |name: &str, value: Value| {
            own.insert(name.into(), value);
        };
        put_will("topic", will.topic.as_str().into());
        put_will("qos", (will.qos as u8).into());
        put_will("retain", will.retain.into());
        put_payload(will.payload, traced.payload_bytes, &mut put_will);
        put_properties("properties", will.properties, &mut put_will);
        put("will", own.into());
    }
    put_properties("properties", connect.properties, put);
}

fn of_publish(publish: &Publish<'_>, traced: &TracedPacket, put: &mut impl FnMut(&str, Value)) {
    put("topic", publish.topic.as_str().into());
    put("qos", (publish.delivery.qos() as u8).into());
    put("retain", publish.retain.into());
    put("dup", publish.delivery.dup().into());
    if let Some(packet_id) = publish.delivery.packet_id() {
        put("packet_id", packet_id.get().into());
    }
    put_payload(publish.payload, traced.payload_bytes, put);
    put_properties("properties", publish.properties, put);
}

fn of_subscribe(subscribe: &Subscribe<'_>, put: &mut impl FnMut(&str, Value)) {
    put("packet_id", subscribe.packet_id.get().into());
    let filters = subscribe.filters.iter().map(|(filter, options)| {
        json!({
            "filter": filter.as_str(),
            "qos": options.maximum_qos as u8,
            "no_local": options.no_local,
            "retain_as_published": options.retain_as_published,
            "retain_handling": options.retain_handling as u8,
        })
    });
    put("filters", filters.collect());
    put_properties("properties", subscribe.properties, put);
}

fn of_unsubscribe(unsubscribe: &Unsubscribe<'_>, put: &mut impl FnMut(&str, Value)) {
    put("packet_id", unsubscribe.packet_id.get().into());
    let filters = unsubscribe.filters.iter().map(|filter| filter.as_str());
    put("filters", filters.collect());
    put_properties("properties", unsubscribe.properties, put);
}

/// The part of a payload that the trace has: as text if it is UTF-8, else in base64.
fn put_payload(payload: &[u8], whole: usize, put: &mut impl FnMut(&str, Value)) {
    put("payload_bytes", whole.into());
    if payload.is_empty() {
        return;
    }
    match text_of(payload, payload.len() < whole) {
        Some(text) => put("payload", text.into()),
        None => put("payload_base64", STANDARD.encode(payload).into()),
    }
}

/// The bytes as text; a character that is cut off at their end is left out.
fn text_of(bytes: &[u8], is_cut: bool) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if is_cut && error.error_len().is_none() => {
            std::str::from_utf8(bytes.get(..error.valid_up_to())?).ok()
        }
        Err(_) => None,
    }
}

fn reason_text(reason: ReasonCode) -> Value {
    format!("0x{:02X} {}", reason.value(), reason.name()).into()
}

fn of_reasons(
    packet_id: PacketId,
    reasons: &[ReasonCode],
    properties: Properties<'_>,
    put: &mut impl FnMut(&str, Value),
) {
    put("packet_id", packet_id.get().into());
    let reasons = reasons.iter().map(|reason| reason_text(*reason));
    put("reasons", reasons.collect());
    put_properties("properties", properties, put);
}

fn of_reason(reason: ReasonCode, properties: Properties<'_>, put: &mut impl FnMut(&str, Value)) {
    put("reason", reason_text(reason));
    put_properties("properties", properties, put);
}

/// Properties by name; several user properties or subscription identifiers become a list.
fn put_properties(name: &str, properties: Properties<'_>, put: &mut impl FnMut(&str, Value)) {
    if properties.is_empty() {
        return;
    }
    let mut all = PacketFields::new();
    for property in properties {
        let (name, value) = (name_of(property), value_of(property));
        let is_list = matches!(
            property,
            Property::UserProperty(..) | Property::SubscriptionIdentifier(_)
        );
        match all.get_mut(name) {
            Some(Value::Array(values)) if is_list => values.push(value),
            _ if is_list => drop(all.insert(name.into(), vec![value].into())),
            _ => drop(all.insert(name.into(), value)),
        }
    }
    put(name, all.into());
}

fn name_of(property: Property<'_>) -> &'static str {
    match property {
        Property::CorrelationData(_) => "correlation_data_base64",
        Property::SubscriptionIdentifier(_) => "subscription_identifiers",
        Property::UserProperty(..) => "user_properties",
        property => property.id().name(),
    }
}

fn value_of(property: Property<'_>) -> Value {
    match property {
        Property::PayloadFormatIndicator(flag)
        | Property::RequestProblemInformation(flag)
        | Property::RequestResponseInformation(flag)
        | Property::RetainAvailable(flag)
        | Property::WildcardSubscriptionAvailable(flag)
        | Property::SubscriptionIdentifierAvailable(flag)
        | Property::SharedSubscriptionAvailable(flag) => flag.into(),
        Property::MessageExpiryInterval(value)
        | Property::SessionExpiryInterval(value)
        | Property::WillDelayInterval(value) => value.into(),
        Property::ServerKeepAlive(value) | Property::TopicAliasMaximum(value) => value.into(),
        Property::ReceiveMaximum(value) | Property::TopicAlias(value) => value.get().into(),
        Property::SubscriptionIdentifier(value) | Property::MaximumPacketSize(value) => {
            value.get().into()
        }
        Property::MaximumQoS(qos) => (qos as u8).into(),
        Property::ContentType(text)
        | Property::ResponseTopic(text)
        | Property::AssignedClientIdentifier(text)
        | Property::AuthenticationMethod(text)
        | Property::ResponseInformation(text)
        | Property::ServerReference(text)
        | Property::ReasonString(text) => text.as_str().into(),
        Property::CorrelationData(bytes) => STANDARD.encode(bytes).into(),
        Property::AuthenticationData(_) => "***".into(),
        Property::UserProperty(name, value) => json!([name.as_str(), value.as_str()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_payload_is_text_without_its_half_character() {
        let text = "grün".as_bytes();

        assert_eq!(text_of(text, false), Some("grün"));
        assert_eq!(text_of(&text[..3], true), Some("gr"));
        assert_eq!(text_of(&text[..3], false), None);
        assert_eq!(text_of(&[b'a', 0xFF, b'b'], true), None);
    }
}
