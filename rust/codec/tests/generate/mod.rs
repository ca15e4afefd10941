//! Packets that are valid by construction, for the property tests.
//!
//! What may stand where is written down here once more, packet by packet as the chapters of the
//! specification list it, so that the codec's own table is held against something.
//! Texts and lists are leaked: a packet borrows, and a test run is short.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::num::{NonZeroU16, NonZeroU32};

use mqttcore_codec::{
    Ack, Auth, ConnAck, Connect, Disconnect, Packet, PacketId, PacketType, Properties,
    PropertiesBuf, Property, PropertyId, ProtocolVersion, Publish, PublishQoS, QoS, ReasonCode,
    RetainHandling, SubAck, Subscribe, SubscriptionOptions, Text, UnsubAck, Unsubscribe, Will,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// Where properties stand: a packet, or the will.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Place {
    Packet(PacketType),
    Will,
}

pub(crate) const VERSIONS: [ProtocolVersion; 3] = [
    ProtocolVersion::V3_1,
    ProtocolVersion::V3_1_1,
    ProtocolVersion::V5,
];

pub(crate) fn version() -> impl Strategy<Value = ProtocolVersion> {
    select(&VERSIONS[..])
}

/// The identifiers of the properties that may stand once in this place; MQTT 5.0 chapter 3.
pub(crate) fn once(place: Place) -> &'static [u8] {
    let Place::Packet(packet_type) = place else {
        return &[0x18, 0x01, 0x02, 0x03, 0x08, 0x09];
    };
    match packet_type {
        PacketType::Connect => &[0x11, 0x21, 0x27, 0x22, 0x19, 0x17, 0x15, 0x16],
        PacketType::ConnAck => &[
            0x11, 0x21, 0x24, 0x25, 0x27, 0x12, 0x22, 0x1F, 0x28, 0x29, 0x2A, 0x13, 0x1A, 0x1C,
            0x15, 0x16,
        ],
        PacketType::Publish => &[0x01, 0x02, 0x23, 0x08, 0x09, 0x03],
        PacketType::PubAck
        | PacketType::PubRec
        | PacketType::PubRel
        | PacketType::PubComp
        | PacketType::SubAck
        | PacketType::UnsubAck => &[0x1F],
        PacketType::Subscribe => &[0x0B],
        PacketType::Disconnect => &[0x11, 0x1F, 0x1C],
        PacketType::Auth => &[0x15, 0x16, 0x1F],
        PacketType::Unsubscribe | PacketType::PingReq | PacketType::PingResp => &[],
    }
}

/// The identifiers of the properties that may repeat in this place.
pub(crate) fn many(place: Place) -> &'static [u8] {
    match place {
        Place::Packet(PacketType::PingReq | PacketType::PingResp) => &[],
        Place::Packet(PacketType::Publish) => &[0x26, 0x0B],
        _ => &[0x26],
    }
}

/// Any packet of this version, with nothing in it that the version cannot say.
pub(crate) fn packet(version: ProtocolVersion) -> BoxedStrategy<Packet<'static>> {
    let mut packets = vec![
        connect(version).prop_map(Packet::Connect).boxed(),
        connack(version).prop_map(Packet::ConnAck).boxed(),
        publish(version).prop_map(Packet::Publish).boxed(),
        ack(PacketType::PubAck, version)
            .prop_map(Packet::PubAck)
            .boxed(),
        ack(PacketType::PubRec, version)
            .prop_map(Packet::PubRec)
            .boxed(),
        ack(PacketType::PubRel, version)
            .prop_map(Packet::PubRel)
            .boxed(),
        ack(PacketType::PubComp, version)
            .prop_map(Packet::PubComp)
            .boxed(),
        subscribe(version).prop_map(Packet::Subscribe).boxed(),
        suback(version).prop_map(Packet::SubAck).boxed(),
        unsubscribe(version).prop_map(Packet::Unsubscribe).boxed(),
        unsuback(version).prop_map(Packet::UnsubAck).boxed(),
        select(&[Packet::PingReq, Packet::PingResp][..]).boxed(),
        outcome(PacketType::Disconnect, version)
            .prop_map(|(reason, properties)| Packet::Disconnect(Disconnect { reason, properties }))
            .boxed(),
    ];
    if version == ProtocolVersion::V5 {
        packets.push(
            outcome(PacketType::Auth, version)
                .prop_map(|(reason, properties)| Packet::Auth(Auth { reason, properties }))
                .boxed(),
        );
    }
    prop::strategy::Union::new(packets).boxed()
}

pub(crate) fn connect(version: ProtocolVersion) -> impl Strategy<Value = Connect<'static>> {
    let login = (prop::option::of(text()), prop::option::of(binary())).prop_filter(
        "3.x has no password without a user name",
        move |(username, password)| {
            version == ProtocolVersion::V5 || username.is_some() || password.is_none()
        },
    );
    (
        any::<(bool, bool, u16)>(),
        properties(Place::Packet(PacketType::Connect), version),
        text(),
        prop::option::of(will(version)),
        login,
    )
        .prop_map(
            move |((is_bridge, clean_start, keep_alive_s), properties, client_id, will, login)| {
                Connect {
                    version,
                    is_bridge: is_bridge && version != ProtocolVersion::V5,
                    clean_start,
                    keep_alive_s,
                    properties,
                    client_id,
                    will,
                    username: login.0,
                    password: login.1,
                }
            },
        )
}

fn will(version: ProtocolVersion) -> impl Strategy<Value = Will<'static>> {
    (
        qos(),
        any::<bool>(),
        properties(Place::Will, version),
        text(),
        binary(),
    )
        .prop_map(|(qos, retain, properties, topic, payload)| Will {
            qos,
            retain,
            properties,
            topic,
            payload,
        })
}

fn connack(version: ProtocolVersion) -> impl Strategy<Value = ConnAck<'static>> {
    let reason = if version == ProtocolVersion::V5 {
        reason(PacketType::ConnAck).boxed()
    } else {
        (0_u8..=5)
            .prop_map(|code| ReasonCode::from_connect_return_code(code).expect("0 to 5"))
            .boxed()
    };
    (
        any::<bool>(),
        reason,
        properties(Place::Packet(PacketType::ConnAck), version),
    )
        .prop_map(move |(present, reason, properties)| ConnAck {
            session_present: present
                && reason == ReasonCode::SUCCESS
                && version != ProtocolVersion::V3_1,
            reason,
            properties,
        })
}

pub(crate) fn publish(version: ProtocolVersion) -> impl Strategy<Value = Publish<'static>> {
    let delivery =
        (0_u8..3, packet_id(), any::<bool>()).prop_map(|(qos, packet_id, dup)| match qos {
            0 => PublishQoS::AtMostOnce,
            1 => PublishQoS::AtLeastOnce { packet_id, dup },
            _ => PublishQoS::ExactlyOnce { packet_id, dup },
        });
    (
        delivery,
        any::<bool>(),
        text(),
        properties(Place::Packet(PacketType::Publish), version),
        vec(any::<u8>(), 0..300),
    )
        .prop_map(|(delivery, retain, topic, properties, payload)| Publish {
            delivery,
            retain,
            topic: if topic.is_empty() && properties.topic_alias().is_none() {
                Text::new("t").expect("is text")
            } else {
                topic
            },
            properties,
            payload: payload.leak(),
        })
}

fn ack(packet_type: PacketType, version: ProtocolVersion) -> impl Strategy<Value = Ack<'static>> {
    (packet_id(), outcome(packet_type, version)).prop_map(|(packet_id, (reason, properties))| Ack {
        packet_id,
        reason,
        properties,
    })
}

fn subscribe(version: ProtocolVersion) -> impl Strategy<Value = Subscribe<'static>> {
    let options = (qos(), any::<(bool, bool)>(), 0_u8..3).prop_map(move |(qos, flags, retain)| {
        let plain = SubscriptionOptions {
            maximum_qos: qos,
            ..SubscriptionOptions::default()
        };
        if version != ProtocolVersion::V5 {
            return plain;
        }
        SubscriptionOptions {
            no_local: flags.0,
            retain_as_published: flags.1,
            retain_handling: match retain {
                0 => RetainHandling::SendAtSubscribe,
                1 => RetainHandling::SendIfNew,
                _ => RetainHandling::DoNotSend,
            },
            ..plain
        }
    });
    (
        packet_id(),
        properties(Place::Packet(PacketType::Subscribe), version),
        vec((text(), options), 1..5),
    )
        .prop_map(|(packet_id, properties, filters)| Subscribe {
            packet_id,
            properties,
            filters,
        })
}

fn suback(version: ProtocolVersion) -> impl Strategy<Value = SubAck<'static>> {
    let reason = if version == ProtocolVersion::V5 {
        reason(PacketType::SubAck).boxed()
    } else {
        select(
            &[
                ReasonCode::GRANTED_QOS_0,
                ReasonCode::GRANTED_QOS_1,
                ReasonCode::GRANTED_QOS_2,
                ReasonCode::UNSPECIFIED_ERROR,
            ][..],
        )
        .boxed()
    };
    (
        packet_id(),
        properties(Place::Packet(PacketType::SubAck), version),
        vec(reason, 1..5),
    )
        .prop_map(|(packet_id, properties, reasons)| SubAck {
            packet_id,
            properties,
            reasons,
        })
}

fn unsubscribe(version: ProtocolVersion) -> impl Strategy<Value = Unsubscribe<'static>> {
    (
        packet_id(),
        properties(Place::Packet(PacketType::Unsubscribe), version),
        vec(text(), 1..5),
    )
        .prop_map(|(packet_id, properties, filters)| Unsubscribe {
            packet_id,
            properties,
            filters,
        })
}

fn unsuback(version: ProtocolVersion) -> impl Strategy<Value = UnsubAck<'static>> {
    let len = if version == ProtocolVersion::V5 {
        1..5
    } else {
        0..1
    };
    (
        packet_id(),
        properties(Place::Packet(PacketType::UnsubAck), version),
        vec(reason(PacketType::UnsubAck), len),
    )
        .prop_map(|(packet_id, properties, reasons)| UnsubAck {
            packet_id,
            properties,
            reasons,
        })
}

fn outcome(
    packet_type: PacketType,
    version: ProtocolVersion,
) -> BoxedStrategy<(ReasonCode, Properties<'static>)> {
    if version == ProtocolVersion::V5 {
        let properties = properties(Place::Packet(packet_type), version);
        (reason(packet_type), properties).boxed()
    } else {
        Just((ReasonCode::SUCCESS, Properties::EMPTY)).boxed()
    }
}

fn reason(packet_type: PacketType) -> impl Strategy<Value = ReasonCode> {
    let allowed: Vec<_> = ReasonCode::ALL
        .iter()
        .copied()
        .filter(|reason| reason.allowed_in(packet_type))
        .collect();
    select(allowed)
}

/// Properties that fit the place, in any order; none before version 5.
pub(crate) fn properties(
    place: Place,
    version: ProtocolVersion,
) -> BoxedStrategy<Properties<'static>> {
    if version != ProtocolVersion::V5 {
        return Just(Properties::EMPTY).boxed();
    }
    let repeated: Vec<u8> = many(place).iter().flat_map(|&id| [id; 3]).collect();
    let ids = [once(place).to_vec(), repeated].concat();
    let len = ids.len();
    let some = subsequence(ids, 0..=len).prop_shuffle();
    prop_oneof![1 => Just(Vec::new()), 3 => some]
        .prop_flat_map(|ids| ids.into_iter().map(property).collect::<Vec<_>>())
        .prop_map(|mut properties| {
            complete_authentication(&mut properties);
            let mut buffer = PropertiesBuf::default();
            for property in properties {
                buffer.push(property).expect("generated values fit");
            }
            let leaked: &'static PropertiesBuf = Box::leak(Box::new(buffer));
            leaked.as_properties()
        })
        .boxed()
}

/// Authentication data goes with a method.
fn complete_authentication(properties: &mut Vec<Property<'static>>) {
    let has = |id| properties.iter().any(|property| property.id() == id);
    if has(PropertyId::AuthenticationData) && !has(PropertyId::AuthenticationMethod) {
        properties.push(Property::AuthenticationMethod(Text::EMPTY));
    }
}

/// A property with this identifier and any value that it may have.
pub(crate) fn property(id: u8) -> BoxedStrategy<Property<'static>> {
    match PropertyId::from_value(id.into()).expect("is an identifier") {
        PropertyId::PayloadFormatIndicator => any::<bool>()
            .prop_map(Property::PayloadFormatIndicator)
            .boxed(),
        PropertyId::MessageExpiryInterval => any::<u32>()
            .prop_map(Property::MessageExpiryInterval)
            .boxed(),
        PropertyId::ContentType => text().prop_map(Property::ContentType).boxed(),
        PropertyId::ResponseTopic => text().prop_map(Property::ResponseTopic).boxed(),
        PropertyId::CorrelationData => binary().prop_map(Property::CorrelationData).boxed(),
        PropertyId::SubscriptionIdentifier => (1_u32..=0x0FFF_FFFF)
            .prop_map(|id| Property::SubscriptionIdentifier(NonZeroU32::new(id).expect("not 0")))
            .boxed(),
        PropertyId::SessionExpiryInterval => any::<u32>()
            .prop_map(Property::SessionExpiryInterval)
            .boxed(),
        PropertyId::AssignedClientIdentifier => {
            text().prop_map(Property::AssignedClientIdentifier).boxed()
        }
        PropertyId::ServerKeepAlive => any::<u16>().prop_map(Property::ServerKeepAlive).boxed(),
        PropertyId::AuthenticationMethod => text().prop_map(Property::AuthenticationMethod).boxed(),
        PropertyId::AuthenticationData => binary().prop_map(Property::AuthenticationData).boxed(),
        PropertyId::RequestProblemInformation => any::<bool>()
            .prop_map(Property::RequestProblemInformation)
            .boxed(),
        PropertyId::WillDelayInterval => any::<u32>().prop_map(Property::WillDelayInterval).boxed(),
        PropertyId::RequestResponseInformation => any::<bool>()
            .prop_map(Property::RequestResponseInformation)
            .boxed(),
        PropertyId::ResponseInformation => text().prop_map(Property::ResponseInformation).boxed(),
        PropertyId::ServerReference => text().prop_map(Property::ServerReference).boxed(),
        PropertyId::ReasonString => text().prop_map(Property::ReasonString).boxed(),
        PropertyId::ReceiveMaximum => any::<NonZeroU16>()
            .prop_map(Property::ReceiveMaximum)
            .boxed(),
        PropertyId::TopicAliasMaximum => any::<u16>().prop_map(Property::TopicAliasMaximum).boxed(),
        PropertyId::TopicAlias => any::<NonZeroU16>().prop_map(Property::TopicAlias).boxed(),
        PropertyId::MaximumQoS => select(&[QoS::AtMostOnce, QoS::AtLeastOnce][..])
            .prop_map(Property::MaximumQoS)
            .boxed(),
        PropertyId::RetainAvailable => any::<bool>().prop_map(Property::RetainAvailable).boxed(),
        PropertyId::UserProperty => (text(), text())
            .prop_map(|(name, value)| Property::UserProperty(name, value))
            .boxed(),
        PropertyId::MaximumPacketSize => any::<NonZeroU32>()
            .prop_map(Property::MaximumPacketSize)
            .boxed(),
        PropertyId::WildcardSubscriptionAvailable => any::<bool>()
            .prop_map(Property::WildcardSubscriptionAvailable)
            .boxed(),
        PropertyId::SubscriptionIdentifierAvailable => any::<bool>()
            .prop_map(Property::SubscriptionIdentifierAvailable)
            .boxed(),
        PropertyId::SharedSubscriptionAvailable => any::<bool>()
            .prop_map(Property::SharedSubscriptionAvailable)
            .boxed(),
    }
}

pub(crate) fn packet_id() -> impl Strategy<Value = PacketId> {
    any::<NonZeroU16>().prop_map(PacketId::from)
}

fn qos() -> impl Strategy<Value = QoS> {
    select(&[QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][..])
}

/// Short text of any characters but U+0000, with every length of UTF-8 in it.
pub(crate) fn text() -> impl Strategy<Value = Text<'static>> {
    let character = prop_oneof![
        6 => prop::char::range('!', '~'),
        1 => any::<char>(),
        1 => select(&['/', '+', '#', '$', 'é', '\u{feff}', '温', '🚚', '\u{10ffff}'][..]),
    ];
    vec(character, 0..12).prop_map(|characters| {
        let text: String = characters.into_iter().filter(|&one| one != '\0').collect();
        Text::new(text.leak()).expect("short, and without U+0000")
    })
}

fn binary() -> impl Strategy<Value = &'static [u8]> {
    vec(any::<u8>(), 0..20).prop_map(|bytes| &*bytes.leak())
}
