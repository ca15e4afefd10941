//! Packets to the client other than PUBLISH.

use mqttcore_codec::{
    Ack, Auth, ConnAck, Disconnect, EncodeError, Packet, PacketId, PacketType, Properties,
    PropertiesBuf, Property, ProtocolVersion, ReasonCode, SubAck, Text, UnsubAck, encode,
};

/// A packet that waits to be encoded for one client.
///
/// Small, because many acknowledgements may be queued; rare and long variants are boxed.
#[derive(Clone, Debug)]
pub struct Control(pub(crate) ControlKind);

#[derive(Clone, Debug)]
pub(crate) enum ControlKind {
    ConnAck(Box<ConnAckBody>),
    PubAck(PacketId, ReasonCode),
    PubRec(PacketId, ReasonCode),
    PubRel(PacketId, ReasonCode),
    PubComp(PacketId, ReasonCode),
    /// One of the four above, with details; only failures have details.
    Explained(Box<ExplainedAck>),
    SubAck(Box<ReasonsBody>),
    UnsubAck(Box<ReasonsBody>),
    PingResp,
    Disconnect(Box<PropertiesBody>),
    Auth(Box<PropertiesBody>),
}

#[derive(Clone, Debug)]
pub(crate) struct ConnAckBody {
    pub(crate) session_present: bool,
    pub(crate) reason: ReasonCode,
    pub(crate) properties: PropertiesBuf,
    pub(crate) details: Details,
}

#[derive(Clone, Debug)]
pub(crate) struct ExplainedAck {
    pub(crate) packet_type: PacketType,
    pub(crate) packet_id: PacketId,
    pub(crate) reason: ReasonCode,
    pub(crate) details: Details,
}

#[derive(Clone, Debug)]
pub(crate) struct ReasonsBody {
    pub(crate) packet_id: PacketId,
    pub(crate) reasons: Vec<ReasonCode>,
    pub(crate) details: Details,
}

#[derive(Clone, Debug)]
pub(crate) struct PropertiesBody {
    pub(crate) reason: ReasonCode,
    pub(crate) properties: PropertiesBuf,
    pub(crate) details: Details,
}

/// Reason string and user properties of an answer. They are left out first if a packet would be too large for the
/// client.
#[derive(Clone, Debug, Default)]
pub struct Details {
    /// The Reason String. Text that MQTT cannot carry is left out.
    pub reason_string: Option<Box<str>>,
    /// User Properties, in this order.
    pub user_properties: Vec<(Box<str>, Box<str>)>,
}

/// How much of the details a packet carries.
#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
enum Detail {
    Nothing,
    ReasonString,
    Everything,
}

impl Details {
    /// Nothing to add.
    pub fn none() -> Self {
        Self::default()
    }

    /// A Reason String alone.
    pub fn reason(text: &str) -> Self {
        Self {
            reason_string: Some(text.into()),
            user_properties: Vec::new(),
        }
    }

    /// The details, with `text` as the reason string if they have none.
    pub(crate) fn or_reason(mut self, text: Option<&str>) -> Self {
        if self.reason_string.is_none() {
            self.reason_string = text.map(Into::into);
        }
        self
    }

    /// Whether there is nothing to add.
    pub fn is_empty(&self) -> bool {
        self.reason_string.is_none() && self.user_properties.is_empty()
    }

    fn add_to(&self, properties: &mut PropertiesBuf, detail: Detail) -> Result<(), EncodeError> {
        let reason = self
            .reason_string
            .as_deref()
            .and_then(|text| Text::new(text).ok());
        if let (Some(text), true) = (reason, detail >= Detail::ReasonString) {
            properties.push(Property::ReasonString(text))?;
        }
        if detail < Detail::Everything {
            return Ok(());
        }
        for (name, value) in &self.user_properties {
            if let (Ok(name), Ok(value)) = (Text::new(name), Text::new(value)) {
                properties.push(Property::UserProperty(name, value))?;
            }
        }
        Ok(())
    }
}

impl Control {
    /// Makes an acknowledgement with details if there are any, else a plain one.
    pub(crate) fn explained(
        packet_type: PacketType,
        (packet_id, reason): (PacketId, ReasonCode),
        details: Details,
    ) -> Self {
        if details.is_empty() {
            return Self(match packet_type {
                PacketType::PubAck => ControlKind::PubAck(packet_id, reason),
                PacketType::PubRec => ControlKind::PubRec(packet_id, reason),
                PacketType::PubRel => ControlKind::PubRel(packet_id, reason),
                _ => ControlKind::PubComp(packet_id, reason),
            });
        }
        Self(ControlKind::Explained(Box::new(ExplainedAck {
            packet_type,
            packet_id,
            reason,
            details,
        })))
    }

    /// A CONNACK with a failure code and without Session Present [MQTT-3.2.2-6].
    pub(crate) fn refused(reason: ReasonCode, properties: PropertiesBuf, details: Details) -> Self {
        let body = ConnAckBody {
            session_present: false,
            reason,
            properties,
            details,
        };
        Self(ControlKind::ConnAck(Box::new(body)))
    }

    /// The type of the encoded packet.
    pub fn packet_type(&self) -> PacketType {
        match self.0 {
            ControlKind::ConnAck(_) => PacketType::ConnAck,
            ControlKind::PubAck(..) => PacketType::PubAck,
            ControlKind::PubRec(..) => PacketType::PubRec,
            ControlKind::PubRel(..) => PacketType::PubRel,
            ControlKind::PubComp(..) => PacketType::PubComp,
            ControlKind::Explained(ref body) => body.packet_type,
            ControlKind::SubAck(_) => PacketType::SubAck,
            ControlKind::UnsubAck(_) => PacketType::UnsubAck,
            ControlKind::PingResp => PacketType::PingResp,
            ControlKind::Disconnect(_) => PacketType::Disconnect,
            ControlKind::Auth(_) => PacketType::Auth,
        }
    }

    /// Appends the packet to `out` if it exists in `version` and fits into `limit_bytes`, the client's Maximum Packet
    /// Size [MQTT-3.1.2-24].
    ///
    /// If the packet is too large, user properties are left out first, then the reason string
    /// [MQTT-3.2.2-19, -20, MQTT-3.4.2-2, -3 and their like]. Returns whether anything was appended.
    pub fn encode(&self, version: ProtocolVersion, limit_bytes: u32, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let limit = usize::try_from(limit_bytes).unwrap_or(usize::MAX);
        for detail in [Detail::Everything, Detail::ReasonString, Detail::Nothing] {
            if self.write(version, detail, out).is_ok() && out.len() - start <= limit {
                return out.len() > start;
            }
            out.truncate(start);
        }
        false
    }

    fn write(
        &self,
        version: ProtocolVersion,
        detail: Detail,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let mut put = |packet: Packet<'_>| encode(&packet, version, out);
        match &self.0 {
            ControlKind::PubAck(id, reason) => put(Packet::PubAck(ack(*id, *reason))),
            ControlKind::PubRec(id, reason) => put(Packet::PubRec(ack(*id, *reason))),
            ControlKind::PubRel(id, reason) => put(Packet::PubRel(ack(*id, *reason))),
            ControlKind::PubComp(id, reason) => put(Packet::PubComp(ack(*id, *reason))),
            ControlKind::Explained(body) => body.write(version, detail, put),
            ControlKind::PingResp => put(Packet::PingResp),
            ControlKind::ConnAck(body) => body.write(version, detail, put),
            ControlKind::SubAck(body) => body.write(version, detail, |body, properties| {
                put(Packet::SubAck(SubAck {
                    packet_id: body.packet_id,
                    properties,
                    reasons: body.reasons.clone(),
                }))
            }),
            ControlKind::UnsubAck(body) => body.write(version, detail, |body, properties| {
                put(Packet::UnsubAck(UnsubAck {
                    packet_id: body.packet_id,
                    properties,
                    reasons: body.reasons.clone(),
                }))
            }),
            // 3.x has no DISCONNECT from the server, and no AUTH at all.
            ControlKind::Disconnect(_) | ControlKind::Auth(_) if !version.has_properties() => {
                Ok(())
            }
            ControlKind::Disconnect(body) => body.write(detail, |reason, properties| {
                put(Packet::Disconnect(Disconnect { reason, properties }))
            }),
            ControlKind::Auth(body) => body.write(detail, |reason, properties| {
                put(Packet::Auth(Auth { reason, properties }))
            }),
        }
    }
}

impl ConnAckBody {
    fn write(
        &self,
        version: ProtocolVersion,
        detail: Detail,
        put: impl FnOnce(Packet<'_>) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let properties = with_details(&self.properties, &self.details, version, detail)?;
        put(Packet::ConnAck(ConnAck {
            session_present: self.session_present,
            reason: self.reason,
            properties: properties.as_properties(),
        }))
    }
}

impl ExplainedAck {
    fn write(
        &self,
        version: ProtocolVersion,
        detail: Detail,
        put: impl FnOnce(Packet<'_>) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let properties = with_details(&PropertiesBuf::default(), &self.details, version, detail)?;
        let ack = Ack {
            properties: properties.as_properties(),
            ..ack(self.packet_id, self.reason)
        };
        put(match self.packet_type {
            PacketType::PubAck => Packet::PubAck(ack),
            PacketType::PubRec => Packet::PubRec(ack),
            PacketType::PubRel => Packet::PubRel(ack),
            _ => Packet::PubComp(ack),
        })
    }
}

impl ReasonsBody {
    fn write(
        &self,
        version: ProtocolVersion,
        detail: Detail,
        put: impl FnOnce(&Self, Properties<'_>) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let nothing = PropertiesBuf::default();
        let properties = with_details(&nothing, &self.details, version, detail)?;
        put(self, properties.as_properties())
    }
}

impl PropertiesBody {
    fn write(
        &self,
        detail: Detail,
        put: impl FnOnce(ReasonCode, Properties<'_>) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let properties =
            with_details(&self.properties, &self.details, ProtocolVersion::V5, detail)?;
        put(self.reason, properties.as_properties())
    }
}

/// An acknowledgement in its smallest form.
fn ack(packet_id: PacketId, reason: ReasonCode) -> Ack<'static> {
    Ack {
        packet_id,
        reason,
        properties: Properties::EMPTY,
    }
}

fn with_details(
    own: &PropertiesBuf,
    details: &Details,
    version: ProtocolVersion,
    detail: Detail,
) -> Result<PropertiesBuf, EncodeError> {
    if !version.has_properties() {
        return Ok(PropertiesBuf::default());
    }
    let mut properties = own.clone();
    if !details.is_empty() {
        details.add_to(&mut properties, detail)?;
    }
    Ok(properties)
}

/// Returns `reason` if the packet type allows it, else "unspecified error".
pub(crate) fn listed(reason: ReasonCode, packet_type: PacketType) -> ReasonCode {
    if reason.allowed_in(packet_type) {
        reason
    } else {
        ReasonCode::UNSPECIFIED_ERROR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes an acknowledgement with one user property into at most `room` bytes.
    fn written(packet_type: PacketType, room: u32) -> Vec<u8> {
        let packet_id = PacketId::new(7).expect("not 0");
        let reason = ReasonCode::PACKET_IDENTIFIER_NOT_FOUND;
        let details = Details {
            reason_string: None,
            user_properties: vec![("n".into(), "v".into())],
        };
        let mut out = Vec::new();
        Control::explained(packet_type, (packet_id, reason), details).encode(
            ProtocolVersion::V5,
            room,
            &mut out,
        );
        out
    }

    #[test]
    fn mqtt_3_6_2_3_pubrel_loses_its_user_properties_when_it_is_too_large() {
        let whole = b"\x62\x0b\x00\x07\x92\x07\x26\x00\x01n\x00\x01v";

        assert_eq!(written(PacketType::PubRel, 13), whole);
        assert_eq!(written(PacketType::PubRel, 12), b"\x62\x03\x00\x07\x92");
    }

    #[test]
    fn mqtt_3_7_2_3_pubcomp_loses_its_user_properties_when_it_is_too_large() {
        let whole = b"\x70\x0b\x00\x07\x92\x07\x26\x00\x01n\x00\x01v";

        assert_eq!(written(PacketType::PubComp, 13), whole);
        assert_eq!(written(PacketType::PubComp, 12), b"\x70\x03\x00\x07\x92");
    }

    #[test]
    fn what_is_in_the_buffer_before_does_not_count_against_the_limit() {
        let details = Details::reason("r");
        let packet_id = PacketId::new(7).expect("not 0");
        let told = (packet_id, ReasonCode::PACKET_IDENTIFIER_NOT_FOUND);
        let mut out = vec![0; 20];

        let is_written = Control::explained(PacketType::PubRel, told, details).encode(
            ProtocolVersion::V5,
            10,
            &mut out,
        );

        assert!(is_written);
        assert_eq!(&out[20..], b"\x62\x08\x00\x07\x92\x04\x1f\x00\x01r");
    }

    #[test]
    fn nothing_is_written_for_a_version_without_such_a_packet() {
        for kind in [ControlKind::Disconnect, ControlKind::Auth] {
            let body = PropertiesBody {
                reason: ReasonCode::SUCCESS,
                properties: PropertiesBuf::default(),
                details: Details::none(),
            };
            let mut out = vec![0; 3];

            assert!(!Control(kind(Box::new(body))).encode(
                ProtocolVersion::V3_1_1,
                u32::MAX,
                &mut out
            ));

            assert_eq!(out, [0; 3]);
        }
    }

    #[test]
    fn details_are_empty_when_they_have_neither_a_reason_string_nor_user_properties() {
        let named = Details {
            user_properties: vec![("n".into(), "v".into())],
            ..Details::none()
        };

        assert!(Details::none().is_empty());
        assert!(!Details::reason("r").is_empty() && !named.is_empty());
    }
}
