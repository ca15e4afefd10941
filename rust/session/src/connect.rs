//! CONNECT as the server uses it: owned, typed and validated.

use std::num::NonZeroU32;
use std::sync::Arc;

use mqttcore_codec::{Connect, Properties, Property, ProtocolVersion, ReasonCode, Text, Will};
use mqttcore_topics::{MountPoint, TopicName};

use crate::control::{Control, Details};
use crate::handshake::connack_failure;
use crate::limits::ServerLimits;
use crate::message::Message;
use crate::secret::Secret;
use crate::violation::Violation;
use crate::will::WillMessage;

/// A CONNECT that is well formed and within the limits. The client is not authenticated yet.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one flag of the packet"
)]
pub struct ConnectRequest {
    /// The version that the client speaks.
    pub version: ProtocolVersion,
    /// The client is a bridge of another broker. 3.x subscriptions have no options for this, so each gets No Local
    /// and Retain As Published.
    pub is_bridge: bool,
    /// The prefix of the client's topics, set by [`ConnectRequest::mount`].
    pub mount_point: Option<MountPoint>,
    /// Drop an existing session first; Clean Session in 3.x.
    pub clean_start: bool,
    /// The requested Keep Alive in seconds; 0 disables it.
    pub keep_alive_s: u16,
    /// The client identifier; `None` asks the broker to assign one.
    pub client_id: Option<Arc<str>>,
    /// The user name; an empty one is not the same as none (abuse C08).
    pub username: Option<Box<str>>,
    /// The password.
    pub password: Option<Secret>,
    /// The will: published if the connection ends without a DISCONNECT.
    pub will: Option<Box<WillMessage>>,
    /// How long the session should outlive the connection, in seconds. `u32::MAX`: it never expires, as in 3.x
    /// without Clean Session.
    pub session_expiry_interval_s: u32,
    /// Receive Maximum: how many QoS 1 and 2 publishes the client accepts in flight, at least 1.
    pub receive_maximum: u16,
    /// The largest packet that the client accepts; `u32::MAX` means no limit.
    pub maximum_packet_size: u32,
    /// The highest topic alias that the client accepts.
    pub topic_alias_maximum: u16,
    /// The client asks for Response Information.
    pub request_response_information: bool,
    /// The client accepts reason strings and user properties on every packet.
    pub request_problem_information: bool,
    /// User properties, in this order.
    pub user_properties: Vec<(Box<str>, Box<str>)>,
    /// The method of an enhanced authentication, if the client wants one.
    pub authentication_method: Option<Box<str>>,
    /// The first authentication data.
    pub authentication_data: Option<Secret>,
}

/// The properties of a client that decide the form of its CONNACK.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnAckFormat {
    /// The version that the client speaks.
    pub version: ProtocolVersion,
    /// The largest packet that the client accepts; `u32::MAX` means no limit.
    pub maximum_packet_size: u32,
    /// The client accepts reason strings and user properties.
    pub request_problem_information: bool,
}

impl ConnAckFormat {
    /// Reads the format from `connect`, even if the rest of the packet is not acceptable.
    pub fn of(connect: &Connect<'_>) -> Self {
        let properties = connect.properties;
        Self {
            version: connect.version,
            maximum_packet_size: properties
                .maximum_packet_size()
                .map_or(u32::MAX, NonZeroU32::get),
            request_problem_information: properties.request_problem_information().unwrap_or(true),
        }
    }

    /// Appends a CONNACK that refuses the client, as [`connack_failure`](crate::connack_failure) makes it. The details
    /// are left out if the client did not ask for them or they do not fit [MQTT-3.2.2-19, -20]. Returns whether
    /// anything was appended.
    pub fn refuse(&self, reason: ReasonCode, details: Details, out: &mut Vec<u8>) -> bool {
        self.redirect(reason, None, details, out)
    }

    /// As [`refuse`](Self::refuse). With 0x9C and 0x9D, `server_reference` is sent as the server to use instead.
    pub fn redirect(
        &self,
        reason: ReasonCode,
        server_reference: Option<&str>,
        details: Details,
        out: &mut Vec<u8>,
    ) -> bool {
        let details = self.allowed(details);
        connack_failure(self.version, reason, server_reference, details)
            .is_some_and(|connack| self.tell(&connack, out))
    }

    /// The details if the client asked for them, else none [MQTT-3.1.2-29].
    pub fn allowed(&self, details: Details) -> Details {
        if self.request_problem_information {
            details
        } else {
            Details::none()
        }
    }

    /// Appends `control` in the client's version and size limit. Returns whether anything was appended.
    pub fn tell(&self, control: &Control, out: &mut Vec<u8>) -> bool {
        control.encode(self.version, self.maximum_packet_size, out)
    }
}

impl ConnectRequest {
    /// The format of the CONNACK for this client.
    pub fn recipient(&self) -> ConnAckFormat {
        ConnAckFormat {
            version: self.version,
            maximum_packet_size: self.maximum_packet_size,
            request_problem_information: self.request_problem_information,
        }
    }

    /// Checks what the codec cannot check: the client identifier, the characters of the user name, and the will.
    ///
    /// # Errors
    ///
    /// 0x85 for a client identifier that this server does not accept [MQTT-3.1.3-8], 0x86 for control characters in the
    /// user name, 0x90 for the will's topic, 0x9B and 0x9A for a will with a QoS or RETAIN that the server does not
    /// offer [MQTT-3.2.2-12, -13], 0x82 for an empty will topic and for wildcards in the will's response topic, 0x99
    /// for a will whose payload is declared as UTF-8 and is not. [`connack_failure`](crate::connack_failure) makes the
    /// CONNACK for a violation.
    pub fn parse(connect: &Connect<'_>, limits: &ServerLimits) -> Result<Self, Violation> {
        let client_id = check_client_id(connect, limits)?;
        check_username(connect.username)?;
        let will = connect
            .will
            .as_ref()
            .map(|will| check_will(will, limits))
            .transpose()?;
        let mut request = Self::plain(connect);
        request.client_id = client_id;
        request.will = will.map(Box::new);
        request.take_properties(connect.properties);
        Ok(request)
    }

    /// Puts the client behind a mount point: prefixes the will's topic now, and other topics when they arrive.
    ///
    /// # Errors
    ///
    /// 0x90 if the will's topic gets too long or too deep.
    pub fn mount(&mut self, mount_point: MountPoint) -> Result<(), Violation> {
        if let Some(will) = &mut self.will {
            let topic = will.message.topic_name();
            let mounted = mount_point.name(topic).map_err(Violation::topic_name)?;
            if let Some(topic) = mounted {
                will.message = will.message.moved_to(topic.as_name());
            }
        }
        self.mount_point = Some(mount_point);
        Ok(())
    }

    /// The fields that need no check, and the defaults of the properties.
    fn plain(connect: &Connect<'_>) -> Self {
        let is_kept = !connect.version.has_properties() && !connect.clean_start;
        Self {
            version: connect.version,
            is_bridge: connect.is_bridge,
            mount_point: None,
            clean_start: connect.clean_start,
            keep_alive_s: connect.keep_alive_s,
            client_id: None,
            username: connect.username.map(|name| name.as_str().into()),
            password: connect.password.map(Secret::from),
            will: None,
            session_expiry_interval_s: if is_kept { u32::MAX } else { 0 },
            receive_maximum: u16::MAX,
            maximum_packet_size: u32::MAX,
            topic_alias_maximum: 0,
            request_response_information: false,
            request_problem_information: true,
            user_properties: Vec::new(),
            authentication_method: None,
            authentication_data: None,
        }
    }

    fn take_properties(&mut self, properties: Properties<'_>) {
        for property in properties {
            match property {
                Property::SessionExpiryInterval(value) => self.session_expiry_interval_s = value,
                Property::ReceiveMaximum(value) => self.receive_maximum = value.get(),
                Property::MaximumPacketSize(value) => self.maximum_packet_size = value.get(),
                Property::TopicAliasMaximum(value) => self.topic_alias_maximum = value,
                Property::RequestResponseInformation(value) => {
                    self.request_response_information = value;
                }
                Property::RequestProblemInformation(value) => {
                    self.request_problem_information = value;
                }
                Property::UserProperty(name, value) => {
                    self.user_properties
                        .push((name.as_str().into(), value.as_str().into()));
                }
                Property::AuthenticationMethod(method) => {
                    self.authentication_method = Some(method.as_str().into());
                }
                Property::AuthenticationData(data) => {
                    self.authentication_data = Some(data.into());
                }
                _ => {}
            }
        }
    }
}

/// Returns the client's own identifier, or `None` if the broker has to assign one.
fn check_client_id(
    connect: &Connect<'_>,
    limits: &ServerLimits,
) -> Result<Option<Arc<str>>, Violation> {
    let id = connect.client_id;
    if id.is_empty() {
        return match connect.version {
            ProtocolVersion::V5 => Ok(None),
            ProtocolVersion::V3_1_1 if connect.clean_start => Ok(None),
            _ => Err(Violation::protocol(
                ReasonCode::CLIENT_IDENTIFIER_NOT_VALID,
                "MQTT-3.1.3-8",
                "client identifier is empty",
            )),
        };
    }
    if id.len() > limits.client_id_bytes {
        return Err(Violation::limit(
            ReasonCode::CLIENT_IDENTIFIER_NOT_VALID,
            "limit client_id_bytes",
            "client identifier is too long",
        ));
    }
    let is_suspect = id.contains(['+', '#']) || id.has_control_or_non_character();
    if limits.client_id_strict && is_suspect {
        return Err(Violation::limit(
            ReasonCode::CLIENT_IDENTIFIER_NOT_VALID,
            "limit client_id_strict",
            "client identifier contains a character that is not allowed",
        ));
    }
    Ok(Some(id.as_str().into()))
}

fn check_username(username: Option<Text<'_>>) -> Result<(), Violation> {
    if username.is_some_and(Text::has_control_or_non_character) {
        return Err(Violation::protocol(
            ReasonCode::BAD_USER_NAME_OR_PASSWORD,
            "MQTT-1.5.4-1",
            "user name contains a control character or a non-character",
        ));
    }
    Ok(())
}

fn check_will(will: &Will<'_>, limits: &ServerLimits) -> Result<WillMessage, Violation> {
    let topic =
        TopicName::parse(will.topic.as_str(), &limits.topic).map_err(Violation::topic_name)?;
    if will.qos > limits.maximum_qos {
        return Err(Violation::limit(
            ReasonCode::QOS_NOT_SUPPORTED,
            "MQTT-3.2.2-12",
            "will QoS is above the maximum",
        ));
    }
    if will.retain && !limits.retain_available {
        return Err(Violation::limit(
            ReasonCode::RETAIN_NOT_SUPPORTED,
            "MQTT-3.2.2-13",
            "will has RETAIN set, but retained messages are not available",
        ));
    }
    let (properties, payload) = (will.properties, will.payload);
    let message = Message::composed(topic, properties, payload, will.qos, will.retain, limits)?;
    Ok(WillMessage {
        message,
        delay_s: will.properties.will_delay_interval().unwrap_or(0),
    })
}
