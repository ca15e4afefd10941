//! The fields of a traced packet as JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mqttcore_broker::TracedPacket;
use mqttcore_codec::{
    Ack, Connect, Limits, Packet, Properties, Property, Publish, ReasonCode, Subscribe, decode,
};
use serde_json::{Map, Value, json};

/// Fields by name.
pub(super) type Fields = Map<String, Value>;

/// The type of a packet and its fields; `None` for an event.
pub(super) fn fields_of(traced: &TracedPacket) -> Option<(&'static str, Fields)> {
    let decoded = decode(&traced.packet, traced.version, &Limits::MAX);
    let (packet, _) = decoded.ok()??;
    let mut fields = Fields::new();
    let mut put = |name: &str, value: Value| {
        fields.insert(name.into(), value);
    };
    let name = match &packet {
        Packet::Connect(connect) => {
            of_connect(connect, traced, &mut put);
            "CONNECT"
        }
        Packet::ConnAck(connack) => {
            put("session_present", connack.session_present.into());
            put_reason(connack.reason, &mut put);
            put_properties("properties", connack.properties, &mut put);
            "CONNACK"
        }
        Packet::Publish(publish) => {
            of_publish(publish, traced, &mut put);
            "PUBLISH"
        }
        Packet::PubAck(ack) => of_ack("PUBACK", ack, &mut put),
        Packet::PubRec(ack) => of_ack("PUBREC", ack, &mut put),
        Packet::PubRel(ack) => of_ack("PUBREL", ack, &mut put),
        Packet::PubComp(ack) => of_ack("PUBCOMP", ack, &mut put),
        Packet::Subscribe(subscribe) => {
            of_subscribe(subscribe, &mut put);
            "SUBSCRIBE"
        }
        Packet::SubAck(suback) => {
            put("packet_id", suback.packet_id.get().into());
            put("reasons", reasons(&suback.reasons));
            put_properties("properties", suback.properties, &mut put);
            "SUBACK"
        }
        Packet::Unsubscribe(unsubscribe) => {
            put("packet_id", unsubscribe.packet_id.get().into());
            let filters = unsubscribe.filters.iter().map(|filter| filter.as_str());
            put("filters", filters.collect());
            put_properties("properties", unsubscribe.properties, &mut put);
            "UNSUBSCRIBE"
        }
        Packet::UnsubAck(unsuback) => {
            put("packet_id", unsuback.packet_id.get().into());
            put("reasons", reasons(&unsuback.reasons));
            put_properties("properties", unsuback.properties, &mut put);
            "UNSUBACK"
        }
        Packet::PingReq => "PINGREQ",
        Packet::PingResp => "PINGRESP",
        Packet::Disconnect(disconnect) => {
            put_reason(disconnect.reason, &mut put);
            put_properties("properties", disconnect.properties, &mut put);
            "DISCONNECT"
        }
        Packet::Auth(auth) => {
            put_reason(auth.reason, &mut put);
            put_properties("properties", auth.properties, &mut put);
            "AUTH"
        }
    };
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
        let mut own = Fields::new();
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

fn of_ack(name: &'static str, ack: &Ack<'_>, put: &mut impl FnMut(&str, Value)) -> &'static str {
    put("packet_id", ack.packet_id.get().into());
    put_reason(ack.reason, put);
    put_properties("properties", ack.properties, put);
    name
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

fn put_reason(reason: ReasonCode, put: &mut impl FnMut(&str, Value)) {
    put("reason", reason_text(reason));
}

fn reasons(reasons: &[ReasonCode]) -> Value {
    reasons.iter().map(|reason| reason_text(*reason)).collect()
}

/// Properties by name; several user properties or subscription identifiers become a list.
fn put_properties(name: &str, properties: Properties<'_>, put: &mut impl FnMut(&str, Value)) {
    if properties.is_empty() {
        return;
    }
    let mut all = Fields::new();
    for property in properties {
        let (name, value) = property_of(property);
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

fn property_of(property: Property<'_>) -> (&'static str, Value) {
    match property {
        Property::PayloadFormatIndicator(flag) => ("payload_format_indicator", flag.into()),
        Property::MessageExpiryInterval(value) => ("message_expiry_interval", value.into()),
        Property::ContentType(text) => ("content_type", text.as_str().into()),
        Property::ResponseTopic(text) => ("response_topic", text.as_str().into()),
        Property::CorrelationData(bytes) => {
            ("correlation_data_base64", STANDARD.encode(bytes).into())
        }
        Property::SubscriptionIdentifier(id) => ("subscription_identifiers", id.get().into()),
        Property::SessionExpiryInterval(value) => ("session_expiry_interval", value.into()),
        Property::AssignedClientIdentifier(text) => {
            ("assigned_client_identifier", text.as_str().into())
        }
        Property::ServerKeepAlive(value) => ("server_keep_alive", value.into()),
        Property::AuthenticationMethod(text) => ("authentication_method", text.as_str().into()),
        Property::AuthenticationData(_) => ("authentication_data", "***".into()),
        Property::RequestProblemInformation(flag) => ("request_problem_information", flag.into()),
        Property::WillDelayInterval(value) => ("will_delay_interval", value.into()),
        Property::RequestResponseInformation(flag) => ("request_response_information", flag.into()),
        Property::ResponseInformation(text) => ("response_information", text.as_str().into()),
        Property::ServerReference(text) => ("server_reference", text.as_str().into()),
        Property::ReasonString(text) => ("reason_string", text.as_str().into()),
        Property::ReceiveMaximum(value) => ("receive_maximum", value.get().into()),
        Property::TopicAliasMaximum(value) => ("topic_alias_maximum", value.into()),
        Property::TopicAlias(value) => ("topic_alias", value.get().into()),
        Property::MaximumQoS(qos) => ("maximum_qos", (qos as u8).into()),
        Property::RetainAvailable(flag) => ("retain_available", flag.into()),
        Property::UserProperty(name, value) => {
            ("user_properties", json!([name.as_str(), value.as_str()]))
        }
        Property::MaximumPacketSize(value) => ("maximum_packet_size", value.get().into()),
        Property::WildcardSubscriptionAvailable(flag) => {
            ("wildcard_subscription_available", flag.into())
        }
        Property::SubscriptionIdentifierAvailable(flag) => {
            ("subscription_identifier_available", flag.into())
        }
        Property::SharedSubscriptionAvailable(flag) => {
            ("shared_subscription_available", flag.into())
        }
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
