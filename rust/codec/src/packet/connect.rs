//! CONNECT, and the CONNACK that answers a malformed one.

use std::fmt;

use super::{ConnAck, Context};
use crate::property_id::{WILL, place};
use crate::var_int::decode_var_int;
use crate::wire::{PacketReader, PacketWriter};
use crate::{
    DecodeError, EncodeError, Limits, PacketType, Properties, ProtocolVersion, QoS, ReasonCode,
    Text,
};

/// The first packet of a connection.
///
/// Protocol name (2 bytes of length and text), level (1), connect flags (1), keep alive (2), in version 5 properties;
/// then client identifier, will, user name and password, each with 2 bytes of length.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Connect<'a> {
    /// The protocol version of the connection.
    pub version: ProtocolVersion,
    /// The client is a bridge of another broker: the top bit of its protocol level is set. Only 3.1 and 3.1.1 have
    /// this bit, which is Mosquitto's extension.
    pub is_bridge: bool,
    /// Whether an earlier session is dropped; Clean Session in 3.x.
    pub clean_start: bool,
    /// Keep Alive in seconds; 0 disables it.
    pub keep_alive_s: u16,
    /// Properties of version 5.
    pub properties: Properties<'a>,
    /// The client identifier; may be empty.
    pub client_id: Text<'a>,
    /// The will: published if the connection ends without a DISCONNECT.
    pub will: Option<Will<'a>>,
    /// The user name; an empty one is not the same as none.
    pub username: Option<Text<'a>>,
    /// The password; never printed. In 3.x it requires a user name.
    pub password: Option<&'a [u8]>,
}

/// The message that a server publishes for a client that is gone.
///
/// In version 5 properties; then topic name and payload, each with its length.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Will<'a> {
    /// The QoS to publish with.
    pub qos: QoS,
    /// Whether the message is retained.
    pub retain: bool,
    /// Properties of version 5.
    pub properties: Properties<'a>,
    /// The topic to publish to.
    pub topic: Text<'a>,
    /// The payload.
    pub payload: &'a [u8],
}

impl<'a> Connect<'a> {
    pub(crate) fn read(
        reader: &mut PacketReader<'a>,
        limits: &Limits,
    ) -> Result<Self, DecodeError> {
        let (version, is_bridge) = read_version(reader)?;
        let context = Context { version, limits };
        let flags = ConnectFlags::read(reader.u8()?, version)?;
        Ok(Self {
            version,
            is_bridge,
            clean_start: flags.has(CLEAN_START),
            keep_alive_s: reader.u16()?,
            properties: context.properties(reader, place(PacketType::Connect))?,
            client_id: reader.text()?,
            will: match flags.will() {
                Some((qos, retain)) => Some(Will::read(reader, (qos, retain), context)?),
                None => None,
            },
            username: if flags.has(USER_NAME) && !is_left_out(reader, version) {
                Some(reader.text()?)
            } else {
                None
            },
            password: if flags.has(PASSWORD) && !is_left_out(reader, version) {
                Some(reader.binary()?)
            } else {
                None
            },
        })
    }

    pub(crate) fn write(&self, writer: &mut PacketWriter<'_>) -> Result<(), EncodeError> {
        let has_properties = self.version.has_properties();
        if self.password.is_some() && self.username.is_none() && !has_properties {
            return Err(EncodeError::PasswordWithoutUserName);
        }
        writer.packet(PacketType::Connect.first_byte(), |body| {
            body.binary(protocol_name(self.version))?;
            let bridge = if self.is_bridge && !has_properties {
                BRIDGE
            } else {
                0
            };
            body.u8(self.version.level() | bridge);
            body.u8(ConnectFlags::of(self).0);
            body.u16(self.keep_alive_s);
            if has_properties {
                self.properties.write(place(PacketType::Connect), body)?;
            }
            body.text(self.client_id)?;
            if let Some(will) = &self.will {
                will.write(self.version, body)?;
            }
            if let Some(username) = self.username {
                body.text(username)?;
            }
            if let Some(password) = self.password {
                body.binary(password)?;
            }
            Ok(())
        })
    }
}

/// Prints whether there is a password, not its value.
impl fmt::Debug for Connect<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect")
            .field("version", &self.version)
            .field("is_bridge", &self.is_bridge)
            .field("clean_start", &self.clean_start)
            .field("keep_alive_s", &self.keep_alive_s)
            .field("properties", &self.properties)
            .field("client_id", &self.client_id)
            .field("will", &self.will)
            .field("username", &self.username)
            .field("password", &self.password.map(|_| ".."))
            .finish()
    }
}

impl<'a> Will<'a> {
    fn read(
        reader: &mut PacketReader<'a>,
        (qos, retain): (QoS, bool),
        context: Context<'_>,
    ) -> Result<Self, DecodeError> {
        Ok(Self {
            qos,
            retain,
            properties: context.properties(reader, WILL)?,
            topic: reader.text()?,
            payload: reader.binary()?,
        })
    }

    fn write(
        &self,
        version: ProtocolVersion,
        writer: &mut PacketWriter<'_>,
    ) -> Result<(), EncodeError> {
        if version.has_properties() {
            self.properties.write(WILL, writer)?;
        }
        writer.text(self.topic)?;
        writer.binary(self.payload)
    }
}

/// The connect flags; their combination is checked.
#[derive(Clone, Copy)]
struct ConnectFlags(u8);

impl ConnectFlags {
    fn read(byte: u8, version: ProtocolVersion) -> Result<Self, DecodeError> {
        if byte & RESERVED != 0 && version != ProtocolVersion::V3_1 {
            return Err(DecodeError::ReservedConnectFlag);
        }
        if byte & WILL_QOS == WILL_QOS {
            return Err(DecodeError::WillQoS);
        }
        if byte & WILL_FLAG == 0 && byte & (WILL_QOS | WILL_RETAIN) != 0 {
            return Err(DecodeError::WillFlags);
        }
        if byte & (USER_NAME | PASSWORD) == PASSWORD && !version.has_properties() {
            return Err(DecodeError::PasswordWithoutUserName);
        }
        Ok(Self(byte))
    }

    fn of(connect: &Connect<'_>) -> Self {
        let will = connect.will.map_or(0, |will| {
            let retain = if will.retain { WILL_RETAIN } else { 0 };
            WILL_FLAG | retain | u8::from(will.qos) << WILL_QOS_SHIFT
        });
        let flag = |set, bit| if set { bit } else { 0 };
        Self(
            will | flag(connect.clean_start, CLEAN_START)
                | flag(connect.username.is_some(), USER_NAME)
                | flag(connect.password.is_some(), PASSWORD),
        )
    }

    const fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    fn will(self) -> Option<(QoS, bool)> {
        if !self.has(WILL_FLAG) {
            return None;
        }
        let qos = match self.0 & WILL_QOS {
            0 => QoS::AtMostOnce,
            WILL_QOS_1 => QoS::AtLeastOnce,
            _ => QoS::ExactlyOnce,
        };
        Some((qos, self.has(WILL_RETAIN)))
    }
}

/// Whether user name or password may be missing: in 3.1 the remaining length has precedence over the flags.
///
/// Source: MQTT V3.1 section 3.1, "User name and password flags".
fn is_left_out(reader: &PacketReader<'_>, version: ProtocolVersion) -> bool {
    version == ProtocolVersion::V3_1 && reader.is_empty()
}

/// The version, and whether the client is a bridge.
fn read_version(reader: &mut PacketReader<'_>) -> Result<(ProtocolVersion, bool), DecodeError> {
    let name = reader.binary()?;
    if name != MQTT && name != MQISDP {
        return Err(DecodeError::ProtocolName);
    }
    let level = reader.u8()?;
    let is_bridge = level & BRIDGE != 0;
    ProtocolVersion::from_level(level & !BRIDGE)
        .filter(|&version| protocol_name(version) == name)
        .filter(|version| !is_bridge || !version.has_properties())
        .map(|version| (version, is_bridge))
        .ok_or(DecodeError::ProtocolLevel {
            level,
            answer: answer_version(name, level),
        })
}

/// The version of a CONNACK for a client whose protocol level is not supported.
fn answer_version(name: &[u8], level: u8) -> ProtocolVersion {
    if name == MQISDP || level & !BRIDGE < ProtocolVersion::V5.level() {
        ProtocolVersion::V3_1_1
    } else {
        ProtocolVersion::V5
    }
}

const fn protocol_name(version: ProtocolVersion) -> &'static [u8] {
    match version {
        ProtocolVersion::V3_1 => MQISDP,
        ProtocolVersion::V3_1_1 | ProtocolVersion::V5 => MQTT,
    }
}

/// Returns the CONNACK for the CONNECT at the front of `src`, which failed with `error`, and the version to encode it
/// in. Returns `None` if the connection must be closed without an answer.
///
/// Version 5 gets the reason code. 3.x gets an answer only if its protocol level is not supported
/// [MQTT 3.1.1 MQTT-3.1.4-1]. A peer without an MQTT protocol name gets no answer.
#[must_use]
pub fn connack_for_error(
    src: &[u8],
    error: DecodeError,
) -> Option<(ProtocolVersion, ConnAck<'static>)> {
    let version = match error {
        DecodeError::ProtocolLevel { answer, .. } => answer,
        _ => announced_version(src)?,
    };
    let is_told = version.has_properties() || error.connack_3x().is_some();
    let reason = match error.reason_code() {
        reason if reason.allowed_in(PacketType::ConnAck) => reason,
        _ => ReasonCode::PROTOCOL_ERROR,
    };
    is_told.then_some((
        version,
        ConnAck {
            session_present: false,
            reason,
            properties: Properties::EMPTY,
        },
    ))
}

/// The version of an incomplete or malformed CONNECT, if it can be read.
fn announced_version(src: &[u8]) -> Option<ProtocolVersion> {
    let (&first_byte, rest) = src.split_first()?;
    if PacketType::of(first_byte) != Some(PacketType::Connect) {
        return None;
    }
    let (_, length_len) = decode_var_int(rest).ok()??;
    let version = read_version(&mut PacketReader::new(rest.get(length_len..)?));
    version.ok().map(|(version, _)| version)
}

const MQTT: &[u8] = b"MQTT";
const MQISDP: &[u8] = b"MQIsdp";
/// Marks a bridge in the protocol level: Mosquitto's extension of MQTT 3.1 and 3.1.1.
const BRIDGE: u8 = 0x80;

const RESERVED: u8 = 0b0000_0001;
const CLEAN_START: u8 = 0b0000_0010;
const WILL_FLAG: u8 = 0b0000_0100;
const WILL_QOS: u8 = 0b0001_1000;
const WILL_QOS_1: u8 = 0b0000_1000;
const WILL_QOS_SHIFT: u32 = 3;
const WILL_RETAIN: u8 = 0b0010_0000;
const PASSWORD: u8 = 0b0100_0000;
const USER_NAME: u8 = 0b1000_0000;
