//! The fifteen packets, one file each; the four acknowledgements of a PUBLISH share one.

mod ack;
mod auth;
mod connack;
mod connect;
mod disconnect;
mod publish;
mod suback;
mod subscribe;
mod unsuback;
mod unsubscribe;

pub use ack::Ack;
pub use auth::Auth;
pub use connack::ConnAck;
pub use connect::{Connect, Will, connack_for_error};
pub use disconnect::Disconnect;
pub use publish::{Publish, PublishQoS};
pub use suback::SubAck;
pub use subscribe::{RetainHandling, Subscribe, SubscriptionOptions};
pub use unsuback::UnsubAck;
pub use unsubscribe::Unsubscribe;

use crate::PacketType;
use crate::property_id::{PropertyPlaces, place};
use crate::wire::PacketReader;
use crate::{DecodeError, EncodeError, Limits, Properties, ProtocolVersion, ReasonCode};

/// A packet of any version; it borrows from the bytes that it was decoded from.
#[derive(Clone, Debug, Eq, PartialEq)]
#[expect(missing_docs, reason = "each variant is documented at its struct")]
pub enum Packet<'a> {
    Connect(Connect<'a>),
    ConnAck(ConnAck<'a>),
    Publish(Publish<'a>),
    PubAck(Ack<'a>),
    PubRec(Ack<'a>),
    PubRel(Ack<'a>),
    PubComp(Ack<'a>),
    Subscribe(Subscribe<'a>),
    SubAck(SubAck<'a>),
    Unsubscribe(Unsubscribe<'a>),
    UnsubAck(UnsubAck<'a>),
    PingReq,
    PingResp,
    Disconnect(Disconnect<'a>),
    Auth(Auth<'a>),
}

impl Packet<'_> {
    /// The type of this packet.
    #[must_use]
    pub const fn packet_type(&self) -> PacketType {
        match self {
            Self::Connect(_) => PacketType::Connect,
            Self::ConnAck(_) => PacketType::ConnAck,
            Self::Publish(_) => PacketType::Publish,
            Self::PubAck(_) => PacketType::PubAck,
            Self::PubRec(_) => PacketType::PubRec,
            Self::PubRel(_) => PacketType::PubRel,
            Self::PubComp(_) => PacketType::PubComp,
            Self::Subscribe(_) => PacketType::Subscribe,
            Self::SubAck(_) => PacketType::SubAck,
            Self::Unsubscribe(_) => PacketType::Unsubscribe,
            Self::UnsubAck(_) => PacketType::UnsubAck,
            Self::PingReq => PacketType::PingReq,
            Self::PingResp => PacketType::PingResp,
            Self::Disconnect(_) => PacketType::Disconnect,
            Self::Auth(_) => PacketType::Auth,
        }
    }
}

/// Version and limits for decoding a packet's body.
#[derive(Clone, Copy)]
pub(crate) struct Context<'l> {
    pub(crate) version: ProtocolVersion,
    pub(crate) limits: &'l Limits,
}

impl Context<'_> {
    /// Reads the properties of a version 5 packet; returns none for 3.x.
    #[inline]
    pub(crate) fn properties<'a>(
        self,
        reader: &mut PacketReader<'a>,
        place: PropertyPlaces,
    ) -> Result<Properties<'a>, DecodeError> {
        if self.version.has_properties() {
            Properties::read(reader, place, self.limits)
        } else {
            Ok(Properties::EMPTY)
        }
    }
}

/// Reads a reason code and checks that version 5 allows it in this packet.
#[inline]
fn read_reason(
    reader: &mut PacketReader<'_>,
    packet_type: PacketType,
) -> Result<ReasonCode, DecodeError> {
    let value = reader.u8()?;
    ReasonCode::new(value)
        .filter(|reason| reason.allowed_in(packet_type))
        .ok_or(DecodeError::ReasonCode(value, packet_type))
}

/// Checks that version 5 allows this reason code in this packet.
fn check_reason(reason: ReasonCode, packet_type: PacketType) -> Result<(), EncodeError> {
    if reason.allowed_in(packet_type) {
        Ok(())
    } else {
        Err(EncodeError::ReasonCode(reason, packet_type))
    }
}

/// Reads the reason code and properties at the end of an acknowledgement, a DISCONNECT or an AUTH of version 5.
///
/// If both are missing, the packet means success; properties alone may be missing, too.
#[inline]
fn read_outcome<'a>(
    reader: &mut PacketReader<'a>,
    packet_type: PacketType,
    context: Context<'_>,
) -> Result<(ReasonCode, Properties<'a>), DecodeError> {
    if reader.is_empty() || !context.version.has_properties() {
        return Ok((ReasonCode::SUCCESS, Properties::EMPTY));
    }
    let reason = read_reason(reader, packet_type)?;
    if reader.is_empty() {
        return Ok((reason, Properties::EMPTY));
    }
    Ok((reason, context.properties(reader, place(packet_type))?))
}

/// Writes the shortest format that [`read_outcome`] accepts; nothing in 3.x.
fn write_outcome(
    writer: &mut crate::wire::PacketWriter<'_>,
    (reason, properties): (ReasonCode, Properties<'_>),
    packet_type: PacketType,
    version: ProtocolVersion,
) -> Result<(), EncodeError> {
    if !version.has_properties() {
        return Ok(());
    }
    check_reason(reason, packet_type)?;
    if reason == ReasonCode::SUCCESS && properties.is_empty() {
        return Ok(());
    }
    writer.u8(reason.value());
    if properties.is_empty() {
        return Ok(());
    }
    properties.write(place(packet_type), writer)
}
