//! Packets in the words of the vectors.

use mqttcore_codec::{Connect, Packet, Properties, Property, QoS, ReasonCode, Text, Will};
use toml::{Table, Value};

/// The fields of a packet as the vectors name them.
pub(crate) fn fields(packet: &Packet<'_>) -> Table {
    match packet {
        Packet::Connect(connect) => connect_fields(connect),
        Packet::ConnAck(connack) => table([
            ("session_present", connack.session_present.into()),
            ("reason", reason(connack.reason)),
            ("properties", properties(connack.properties)),
        ]),
        Packet::Publish(publish) => {
            let mut fields = table([
                ("topic", text(publish.topic)),
                ("payload", hex(publish.payload)),
                ("retain", publish.retain.into()),
                ("properties", properties(publish.properties)),
                ("qos", qos(publish.delivery.qos())),
                ("dup", publish.delivery.dup().into()),
            ]);
            if let Some(packet_id) = publish.delivery.packet_id() {
                fields.insert("packet_id".into(), number(packet_id.get()));
            }
            fields
        }
        Packet::PubAck(ack) | Packet::PubRec(ack) | Packet::PubRel(ack) | Packet::PubComp(ack) => {
            table([
                ("packet_id", number(ack.packet_id.get())),
                ("reason", reason(ack.reason)),
                ("properties", properties(ack.properties)),
            ])
        }
        Packet::Subscribe(subscribe) => {
            let filters = subscribe.filters.iter().map(|&(filter, options)| {
                Value::Table(table([
                    ("filter", text(filter)),
                    ("qos", qos(options.maximum_qos)),
                    ("no_local", options.no_local.into()),
                    ("retain_as_published", options.retain_as_published.into()),
                    ("retain_handling", number(options.retain_handling as u8)),
                ]))
            });
            table([
                ("packet_id", number(subscribe.packet_id.get())),
                ("properties", properties(subscribe.properties)),
                ("filters", list(filters)),
            ])
        }
        Packet::SubAck(suback) => table([
            ("packet_id", number(suback.packet_id.get())),
            ("properties", properties(suback.properties)),
            (
                "reasons",
                list(suback.reasons.iter().map(|&code| reason(code))),
            ),
        ]),
        Packet::Unsubscribe(unsubscribe) => table([
            ("packet_id", number(unsubscribe.packet_id.get())),
            ("properties", properties(unsubscribe.properties)),
            (
                "filters",
                list(unsubscribe.filters.iter().map(|&filter| text(filter))),
            ),
        ]),
        Packet::UnsubAck(unsuback) => table([
            ("packet_id", number(unsuback.packet_id.get())),
            ("properties", properties(unsuback.properties)),
            (
                "reasons",
                list(unsuback.reasons.iter().map(|&code| reason(code))),
            ),
        ]),
        Packet::PingReq | Packet::PingResp => Table::new(),
        Packet::Disconnect(disconnect) => table([
            ("reason", reason(disconnect.reason)),
            ("properties", properties(disconnect.properties)),
        ]),
        Packet::Auth(auth) => table([
            ("reason", reason(auth.reason)),
            ("properties", properties(auth.properties)),
        ]),
    }
}

fn connect_fields(connect: &Connect<'_>) -> Table {
    let mut fields = table([
        ("is_bridge", connect.is_bridge.into()),
        ("clean_start", connect.clean_start.into()),
        ("keep_alive_s", number(connect.keep_alive_s)),
        ("properties", properties(connect.properties)),
        ("client_id", text(connect.client_id)),
    ]);
    if let Some(will) = &connect.will {
        fields.insert("will".into(), Value::Table(will_fields(will)));
    }
    if let Some(username) = connect.username {
        fields.insert("username".into(), text(username));
    }
    if let Some(password) = connect.password {
        fields.insert("password".into(), hex(password));
    }
    fields
}

fn will_fields(will: &Will<'_>) -> Table {
    table([
        ("topic", text(will.topic)),
        ("payload", hex(will.payload)),
        ("qos", qos(will.qos)),
        ("retain", will.retain.into()),
        ("properties", properties(will.properties)),
    ])
}

fn properties(properties: Properties<'_>) -> Value {
    list(properties.iter().map(|one| property(&one)))
}

fn property(property: &Property<'_>) -> Value {
    let name = match format!("{:?}", property.id()).as_str() {
        "MaximumQoS" => "Maximum QoS".to_owned(),
        name => spaced(name),
    };
    let (first, second) = match *property {
        Property::PayloadFormatIndicator(value)
        | Property::RequestProblemInformation(value)
        | Property::RequestResponseInformation(value)
        | Property::RetainAvailable(value)
        | Property::WildcardSubscriptionAvailable(value)
        | Property::SubscriptionIdentifierAvailable(value)
        | Property::SharedSubscriptionAvailable(value) => (value.into(), None),
        Property::MaximumQoS(value) => (qos(value), None),
        Property::ServerKeepAlive(value) | Property::TopicAliasMaximum(value) => {
            (number(value), None)
        }
        Property::ReceiveMaximum(value) | Property::TopicAlias(value) => {
            (number(value.get()), None)
        }
        Property::MessageExpiryInterval(value)
        | Property::SessionExpiryInterval(value)
        | Property::WillDelayInterval(value) => (number(value), None),
        Property::SubscriptionIdentifier(value) | Property::MaximumPacketSize(value) => {
            (number(value.get()), None)
        }
        Property::ContentType(value)
        | Property::ResponseTopic(value)
        | Property::AssignedClientIdentifier(value)
        | Property::AuthenticationMethod(value)
        | Property::ResponseInformation(value)
        | Property::ServerReference(value)
        | Property::ReasonString(value) => (text(value), None),
        Property::CorrelationData(value) | Property::AuthenticationData(value) => {
            (hex(value), None)
        }
        Property::UserProperty(name, value) => (text(name), Some(text(value))),
    };
    list([Value::String(name), first].into_iter().chain(second))
}

/// `TopicAlias` as the specification writes it: `Topic Alias`.
fn spaced(name: &str) -> String {
    let mut spaced = String::new();
    for character in name.chars() {
        if character.is_uppercase() && !spaced.is_empty() {
            spaced.push(' ');
        }
        spaced.push(character);
    }
    spaced
}

fn table<const N: usize>(fields: [(&str, Value); N]) -> Table {
    fields
        .map(|(key, value)| (key.to_owned(), value))
        .into_iter()
        .collect()
}

fn list(values: impl Iterator<Item = Value>) -> Value {
    Value::Array(values.collect())
}

fn number(value: impl Into<i64>) -> Value {
    Value::Integer(value.into())
}

fn qos(qos: QoS) -> Value {
    number(u8::from(qos))
}

fn reason(reason: ReasonCode) -> Value {
    number(reason.value())
}

fn text(text: Text<'_>) -> Value {
    text.as_str().into()
}

fn hex(bytes: &[u8]) -> Value {
    let digits: Vec<_> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    digits.concat().into()
}
