//! Removes secrets from packets, and returns the topics by which traces select packets.

use mqttcore_codec::{
    Auth, ConnAck, Connect, EncodeError, Limits, Packet, Properties, PropertiesBuf, Property,
    PropertyId, ProtocolVersion, Publish, Will, decode, encode,
};
use mqttcore_topics::{MountPoint, SubscriptionFilter, TopicFilter, TopicLimits, TopicName};

use crate::clients::traces::TracedPayload;

/// Replaces a secret of any length.
const SECRET: &[u8] = b"***";
/// The beginning of a JSON Web Token: `{"` in base64.
const TOKEN: &[u8] = b"eyJ";
/// A shorter text is not taken for a token.
const TOKEN_BYTES: usize = 12;

/// The topics of a packet or an event, with the mount point.
pub(crate) enum FrameTopics<'a> {
    None,
    /// A message.
    Name(TopicName<'a>),
    /// Subscriptions.
    Filters(Vec<TopicFilter>),
}

impl<'a> FrameTopics<'a> {
    /// The topics of a packet; `topic` is that of a PUBLISH, with its alias resolved.
    pub(crate) fn of(
        packet: &Packet<'_>,
        topic: Option<TopicName<'a>>,
        mount_point: Option<&MountPoint>,
    ) -> Self {
        let parsed = |text: &str| {
            let filter = SubscriptionFilter::parse(text, &TopicLimits::AS_IT_CAME).ok()?;
            let filter = match mount_point {
                Some(mount_point) => mount_point.filter(filter).ok()?,
                None => filter,
            };
            Some(filter.filter().clone())
        };
        match packet {
            Packet::Publish(_) => topic.map_or(Self::None, Self::Name),
            Packet::Subscribe(subscribe) => {
                let filters = subscribe.filters.iter();
                Self::Filters(
                    filters
                        .filter_map(|(text, _)| parsed(text.as_str()))
                        .collect(),
                )
            }
            Packet::Unsubscribe(unsubscribe) => {
                let filters = unsubscribe.filters.iter();
                Self::Filters(filters.filter_map(|text| parsed(text.as_str())).collect())
            }
            _ => Self::None,
        }
    }

    /// The topics of an event, which has a topic or a filter.
    pub(crate) fn of_event(text: Option<&'a str>) -> Self {
        let Some(text) = text else { return Self::None };
        if let Ok(name) = TopicName::parse(text, &TopicLimits::AS_IT_CAME) {
            return Self::Name(name);
        }
        let filter = SubscriptionFilter::parse(text, &TopicLimits::AS_IT_CAME);
        filter.map_or(Self::None, |filter| {
            Self::Filters(vec![filter.filter().clone()])
        })
    }

    /// How much of the payload a trace has that asks for `wanted`: requests on control topics may have passwords in them.
    pub(crate) fn part(&self, wanted: TracedPayload) -> TracedPayload {
        match self {
            Self::Name(name) if name.as_str().starts_with("$CONTROL/") => TracedPayload::None,
            _ => wanted,
        }
    }

    /// Whether `filter` matches the topic, or overlaps one of the filters.
    pub(crate) fn concern(&self, filter: &TopicFilter) -> bool {
        match self {
            Self::None => false,
            Self::Name(name) => filter.matches(*name),
            Self::Filters(filters) => filters.iter().any(|own| filter.overlaps(own)),
        }
    }
}

/// Returns the bytes of `packet` from `source` without secrets and with a part of its payload, and the number of
/// bytes of the whole payload.
///
/// Passwords and authentication data are replaced, and text that looks like a JSON Web Token is masked. Other packets
/// are not changed. `None` if the packet cannot be encoded.
pub(crate) fn redacted(
    source: &[u8],
    packet: &Packet<'_>,
    version: ProtocolVersion,
    part: TracedPayload,
) -> Option<(Vec<u8>, usize)> {
    let payload_bytes = match packet {
        Packet::Publish(publish) => publish.payload.len(),
        Packet::Connect(Connect { will, .. }) => will.map_or(0, |will| will.payload.len()),
        _ => 0,
    };
    let mut out = Vec::new();
    encode_public(source, packet, version, part, &mut out).ok()?;
    mask_tokens(&mut out, version);
    Some((out, payload_bytes))
}

/// Writes the packet with a part of its payload, and with replaced passwords and authentication data.
fn encode_public(
    source: &[u8],
    packet: &Packet<'_>,
    version: ProtocolVersion,
    part: TracedPayload,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    match packet {
        Packet::Publish(publish) if part.of(publish.payload).len() < publish.payload.len() => {
            let publish = Publish {
                payload: part.of(publish.payload),
                ..*publish
            };
            encode(&Packet::Publish(publish), version, out)
        }
        Packet::Connect(connect) => encode_connect(connect, part, out),
        Packet::ConnAck(connack) if has_secret(connack.properties) => {
            let properties = without_secret(connack.properties);
            let connack = ConnAck {
                properties: properties.as_properties(),
                ..*connack
            };
            encode(&Packet::ConnAck(connack), version, out)
        }
        Packet::Auth(auth) if has_secret(auth.properties) => {
            let properties = without_secret(auth.properties);
            let auth = Auth {
                properties: properties.as_properties(),
                ..*auth
            };
            encode(&Packet::Auth(auth), version, out)
        }
        _ => {
            out.extend_from_slice(source);
            Ok(())
        }
    }
}

fn encode_connect(
    connect: &Connect<'_>,
    part: TracedPayload,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let properties = without_secret(connect.properties);
    let will = connect.will.map(|will| Will {
        payload: part.of(will.payload),
        ..will
    });
    let connect = Connect {
        properties: properties.as_properties(),
        password: connect.password.map(|_| SECRET),
        will,
        ..*connect
    };
    encode(&Packet::Connect(connect), connect.version, out)
}

fn has_secret(properties: Properties<'_>) -> bool {
    properties.contains(PropertyId::AuthenticationData)
}

/// The properties with another authentication data.
fn without_secret(properties: Properties<'_>) -> PropertiesBuf {
    if !has_secret(properties) {
        return properties.into();
    }
    let mut public = PropertiesBuf::default();
    for property in properties {
        // INVARIANT: the properties come from a packet, so that each of them can be encoded.
        let _ = public.push(match property {
            Property::AuthenticationData(_) => Property::AuthenticationData(SECRET),
            property => property,
        });
    }
    public
}

/// `text` with masked tokens; `None` if it has none.
pub(crate) fn masked(text: &str) -> Option<String> {
    if !has_token(text.as_bytes()) {
        return None;
    }
    let mut bytes = text.as_bytes().to_vec();
    mask(&mut bytes, false);
    // Only ASCII has become other ASCII.
    String::from_utf8(bytes).ok()
}

fn has_token(bytes: &[u8]) -> bool {
    bytes.windows(TOKEN.len()).any(|three| three == TOKEN)
}

/// Masks tokens in the texts, payload and binary fields of an encoded packet; lengths stay as they are.
fn mask_tokens(out: &mut [u8], version: ProtocolVersion) {
    if !has_token(out) {
        return;
    }
    let start = out.as_ptr().addr();
    let Ok(Some((packet, _))) = decode(out, version, &Limits::MAX) else {
        // It was encoded a moment ago.
        out.fill(0);
        return;
    };
    let mut fields = Vec::new();
    fields_of(&packet, &mut |field, may_be_cut| {
        let at = field.as_ptr().addr() - start;
        fields.push((at..at + field.len(), may_be_cut));
    });
    drop(packet);
    for (field, may_be_cut) in fields {
        mask(out.get_mut(field).unwrap_or_default(), may_be_cut);
    }
}

/// Masks text that looks like a token. At the end of a field that `may_be_cut`, the beginning of a token is enough.
fn mask(field: &mut [u8], may_be_cut: bool) {
    let mut at = 0;
    while let Some(found) = field
        .get(at..)
        .and_then(|rest| rest.windows(TOKEN.len()).position(|three| three == TOKEN))
    {
        let token = field.get_mut(at + found..).unwrap_or_default();
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.=+/".contains(byte);
        let len = token.iter().take_while(|byte| is_part(byte)).count();
        if len >= TOKEN_BYTES || may_be_cut && len == token.len() {
            token[..len].fill(b'*');
        }
        at += found + len;
    }
}

/// Calls `visit` with each text, binary field and payload of a packet.
fn fields_of(packet: &Packet<'_>, visit: &mut impl FnMut(&[u8], bool)) {
    match packet {
        Packet::Connect(connect) => {
            of_properties(connect.properties, visit);
            visit(connect.client_id.as_str().as_bytes(), false);
            if let Some(username) = connect.username {
                visit(username.as_str().as_bytes(), false);
            }
            if let Some(will) = connect.will {
                of_properties(will.properties, visit);
                visit(will.topic.as_str().as_bytes(), false);
                visit(will.payload, true);
            }
        }
        Packet::ConnAck(connack) => of_properties(connack.properties, visit),
        Packet::Publish(publish) => {
            of_properties(publish.properties, visit);
            visit(publish.topic.as_str().as_bytes(), false);
            visit(publish.payload, true);
        }
        Packet::PubAck(ack) | Packet::PubRec(ack) | Packet::PubRel(ack) | Packet::PubComp(ack) => {
            of_properties(ack.properties, visit);
        }
        Packet::Subscribe(subscribe) => {
            of_properties(subscribe.properties, visit);
            let filters = subscribe.filters.iter();
            filters.for_each(|(text, _)| visit(text.as_str().as_bytes(), false));
        }
        Packet::SubAck(suback) => of_properties(suback.properties, visit),
        Packet::Unsubscribe(unsubscribe) => {
            of_properties(unsubscribe.properties, visit);
            let filters = unsubscribe.filters.iter();
            filters.for_each(|text| visit(text.as_str().as_bytes(), false));
        }
        Packet::UnsubAck(unsuback) => of_properties(unsuback.properties, visit),
        Packet::Disconnect(disconnect) => of_properties(disconnect.properties, visit),
        Packet::Auth(auth) => of_properties(auth.properties, visit),
        Packet::PingReq | Packet::PingResp => {}
    }
}

fn of_properties(properties: Properties<'_>, visit: &mut impl FnMut(&[u8], bool)) {
    for property in properties {
        match property {
            Property::ContentType(text)
            | Property::ResponseTopic(text)
            | Property::AssignedClientIdentifier(text)
            | Property::AuthenticationMethod(text)
            | Property::ResponseInformation(text)
            | Property::ServerReference(text)
            | Property::ReasonString(text) => visit(text.as_str().as_bytes(), false),
            Property::UserProperty(name, value) => {
                visit(name.as_str().as_bytes(), false);
                visit(value.as_str().as_bytes(), false);
            }
            Property::CorrelationData(bytes) => visit(bytes, false),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use mqttcore_codec::{PacketId, PublishQoS, QoS, Text};

    use super::*;

    const JWT: &str = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.c2lnbmF0dXJl";

    fn text(text: &str) -> Text<'_> {
        Text::new(text).expect("text")
    }

    fn packet(bytes: &[u8], version: ProtocolVersion) -> Packet<'_> {
        let decoded = decode(bytes, version, &Limits::MAX);
        decoded.expect("a packet").expect("whole").0
    }

    fn publish<'a>(topic: &'a str, payload: &'a [u8]) -> Packet<'a> {
        let packet_id = PacketId::new(0x4141).expect("not 0");
        Packet::Publish(Publish {
            delivery: PublishQoS::AtLeastOnce {
                packet_id,
                dup: false,
            },
            retain: false,
            topic: text(topic),
            properties: Properties::EMPTY,
            payload,
        })
    }

    #[test]
    fn password_and_authentication_data_are_replaced() {
        let mut properties = PropertiesBuf::default();
        for property in [
            Property::AuthenticationMethod(text("SCRAM")),
            Property::AuthenticationData(b"secret data"),
            Property::ReceiveMaximum(7.try_into().expect("not 0")),
        ] {
            properties.push(property).expect("a property");
        }
        let connect = Connect {
            version: ProtocolVersion::V5,
            is_bridge: false,
            clean_start: true,
            keep_alive_s: 60,
            properties: properties.as_properties(),
            client_id: text("c"),
            will: Some(Will {
                qos: QoS::AtMostOnce,
                retain: false,
                properties: Properties::EMPTY,
                topic: text("will"),
                payload: b"last words",
            }),
            username: Some(text("u")),
            password: Some(b"secret password"),
        };

        let connect = Packet::Connect(connect);
        let redacted = redacted(&[], &connect, ProtocolVersion::V5, TracedPayload::Head(4));

        let (bytes, payload_bytes) = redacted.expect("it encodes");
        assert!(!bytes.windows(6).any(|part| part == b"secret"));
        assert_eq!(payload_bytes, 10);
        let Packet::Connect(seen) = packet(&bytes, ProtocolVersion::V5) else {
            panic!("a CONNECT");
        };
        assert_eq!(seen.password, Some(SECRET));
        assert_eq!(seen.properties.authentication_data(), Some(SECRET));
        assert_eq!(seen.properties.receive_maximum().map(u16::from), Some(7));
        assert_eq!(seen.will.map(|will| will.payload), Some(&b"last"[..]));
    }

    #[test]
    fn a_token_is_masked_wherever_it_stands_and_nothing_else_is() {
        let payload = format!("{{\"token\":\"{JWT}\",\"eyJ\":1}}");
        for part in [TracedPayload::All, TracedPayload::Head(20)] {
            let topic = format!("a/{JWT}");
            let publish = publish(&topic, payload.as_bytes());
            let mut source = Vec::new();
            encode(&publish, ProtocolVersion::V3_1_1, &mut source).expect("it encodes");
            let redacted = redacted(&source, &publish, ProtocolVersion::V3_1_1, part);

            let (bytes, _) = redacted.expect("it encodes");
            let Packet::Publish(seen) = packet(&bytes, ProtocolVersion::V3_1_1) else {
                panic!("a PUBLISH");
            };
            assert_eq!(seen.topic.as_str(), format!("a/{}", "*".repeat(JWT.len())));
            let expected = payload.replace(JWT, &"*".repeat(JWT.len()));
            assert_eq!(seen.payload, part.of(expected.as_bytes()));
            // It stands between topic and payload, and is made of letters of tokens.
            assert_eq!(seen.delivery.packet_id().map(PacketId::get), Some(0x4141));
        }
        assert_eq!(masked("heyJude"), Some("heyJude".into()));
        assert_eq!(masked("plain"), None);
    }

    #[test]
    fn payloads_of_control_requests_are_left_out() {
        let part = |topic| FrameTopics::of_event(Some(topic)).part(TracedPayload::All);

        assert_eq!(part("$CONTROL/dynamic-security/v1"), TracedPayload::None);
        assert_eq!(
            part("$CONTROL/dynamic-security/v1/response"),
            TracedPayload::None
        );
        assert_eq!(part("a/$CONTROL/"), TracedPayload::All);
    }

    #[test]
    fn topics_and_overlapping_filters_concern_a_trace() {
        let filter = TopicFilter::parse("plant/+/temp", &TopicLimits::WIDEST).expect("a filter");
        let concerns = |text| FrameTopics::of_event(Some(text)).concern(&filter);

        assert!(concerns("plant/1/temp") && concerns("plant/#") && concerns("$share/g/+/1/temp"));
        assert!(!concerns("plant/1/speed") && !concerns("other/#"));
        assert!(!FrameTopics::of_event(None).concern(&filter));
    }
}
