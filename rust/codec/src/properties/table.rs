//! The one table of properties: id, name, value, and the packets that may carry it.

use std::fmt;
use std::num::{NonZeroU16, NonZeroU32};

use super::value::{
    Binary, Flag, FourBytes, NonZeroFourBytes, NonZeroTwoBytes, NonZeroVarInt, Shape, TwoBytes,
    Utf8, ZeroOrOne,
};
use crate::wire::{Reader, Writer};
use crate::{DecodeError, EncodeError, PacketType, QoS, Text};

/// A set of places that hold properties: bit `n` is packet type `n`, bit 0 is the will.
pub(crate) type Places = u16;

/// The will inside of CONNECT.
pub(crate) const WILL: Places = 1;

/// The place that a packet of this type is.
#[inline]
pub(crate) const fn place(packet_type: PacketType) -> Places {
    1 << packet_type as u16
}

/// Where a property may stand.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    /// At most once there.
    pub(crate) once: Places,
    /// Any number of times there.
    pub(crate) many: Places,
}

macro_rules! places {
    ($($place:ident)*) => { 0 $(| places!(@ $place))* };
    (@ Will) => { WILL };
    (@ $packet:ident) => { place(PacketType::$packet) };
}

macro_rules! properties {
    ($(
        $(#[$doc:meta])+
        $id:literal $variant:ident $finder:ident
        ($($field:ident: $type:ty as $shape:ident),+)
        once [$($once:ident)*] many [$($many:ident)*]
    )+) => {
        /// The identifier of a property.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[repr(u8)]
        pub enum PropertyId {
            $($(#[$doc])+ $variant = $id,)+
        }

        impl PropertyId {
            /// Every property of MQTT 5.0, ascending.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The property with this identifier, or `None` where MQTT 5.0 defines none.
            #[inline]
            #[must_use]
            pub const fn from_value(value: u32) -> Option<Self> {
                match value {
                    $($id => Some(Self::$variant),)+
                    _ => None,
                }
            }

            #[inline]
            pub(crate) const fn row(self) -> Row {
                match self {
                    $(Self::$variant => Row {
                        once: places!($($once)*),
                        many: places!($($many)*),
                    },)+
                }
            }
        }

        /// One property of a packet: its identifier and its value.
        #[derive(Clone, Copy, Eq, PartialEq)]
        pub enum Property<'a> {
            $($(#[$doc])+ $variant($($type),+),)+
        }

        impl<'a> Property<'a> {
            /// Its identifier.
            #[inline]
            #[must_use]
            pub const fn id(&self) -> PropertyId {
                match self {
                    $(Self::$variant(..) => PropertyId::$variant,)+
                }
            }

            /// Reads the value behind the identifier.
            #[inline]
            pub(crate) fn read(
                id: PropertyId,
                reader: &mut Reader<'a>,
            ) -> Result<Self, DecodeError> {
                Ok(match id {
                    $(PropertyId::$variant => Self::$variant(
                        $(<$shape as Shape<'_>>::read(reader, id)?),+
                    ),)+
                })
            }

            /// Writes identifier and value.
            pub(crate) fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
                let id = self.id();
                writer.u8(id as u8);
                match *self {
                    $(Self::$variant($($field),+) => {
                        $(<$shape as Shape<'_>>::write($field, writer, id)?;)+
                    })+
                }
                Ok(())
            }
        }

        /// Prints the value too, but for authentication data, which is a secret.
        impl fmt::Debug for Property<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                if self.id() == PropertyId::AuthenticationData {
                    return f.write_str("AuthenticationData(..)");
                }
                match self {
                    $(Self::$variant($($field),+) => f
                        .debug_tuple(stringify!($variant))
                        $(.field($field))+
                        .finish(),)+
                }
            }
        }

        properties!(@finders $($variant $finder ($($type),+))+);
    };
    (@finders $($variant:ident $finder:ident ($first:ty $(, $second:ty)?))+) => {
        impl<'a> super::Properties<'a> {
            $(properties!(@finder $variant $finder ($first $(, $second)?));)+
        }
    };
    (@finder $variant:ident $finder:ident ($type:ty)) => {
        #[doc = concat!("The first [`Property::", stringify!($variant), "`], if there is one.")]
        #[must_use]
        pub fn $finder(self) -> Option<$type> {
            self.iter().find_map(|property| match property {
                Property::$variant(value) => Some(value),
                _ => None,
            })
        }
    };
    (@finder $variant:ident $finder:ident ($first:ty, $second:ty)) => {
        #[doc = concat!("The first [`Property::", stringify!($variant), "`], if there is one.")]
        #[must_use]
        pub fn $finder(self) -> Option<($first, $second)> {
            self.iter().find_map(|property| match property {
                Property::$variant(first, second) => Some((first, second)),
                _ => None,
            })
        }
    };
}

properties! {
    /// Whether the payload is UTF-8 text.
    0x01 PayloadFormatIndicator payload_format_indicator (value: bool as Flag)
        once [Publish Will] many []
    /// Lifetime of the message, in seconds.
    0x02 MessageExpiryInterval message_expiry_interval (value: u32 as FourBytes)
        once [Publish Will] many []
    /// What the payload is, in the application's words.
    0x03 ContentType content_type (value: Text<'a> as Utf8)
        once [Publish Will] many []
    /// Where a response is expected.
    0x08 ResponseTopic response_topic (value: Text<'a> as Utf8)
        once [Publish Will] many []
    /// Which request a response belongs to.
    0x09 CorrelationData correlation_data (value: &'a [u8] as Binary)
        once [Publish Will] many []
    /// The number of a subscription, 1 to 268,435,455.
    0x0B SubscriptionIdentifier subscription_identifier (value: NonZeroU32 as NonZeroVarInt)
        once [Subscribe] many [Publish]
    /// How long the session outlives its connection, in seconds; `u32::MAX` is for ever.
    0x11 SessionExpiryInterval session_expiry_interval (value: u32 as FourBytes)
        once [Connect ConnAck Disconnect] many []
    /// The client identifier that the server chose.
    0x12 AssignedClientIdentifier assigned_client_identifier (value: Text<'a> as Utf8)
        once [ConnAck] many []
    /// The keep alive that the server asks for, in seconds.
    0x13 ServerKeepAlive server_keep_alive (value: u16 as TwoBytes)
        once [ConnAck] many []
    /// The name of the enhanced authentication method.
    0x15 AuthenticationMethod authentication_method (value: Text<'a> as Utf8)
        once [Connect ConnAck Auth] many []
    /// What the authentication method exchanges; a secret.
    0x16 AuthenticationData authentication_data (value: &'a [u8] as Binary)
        once [Connect ConnAck Auth] many []
    /// Whether reason strings and user properties may come with any packet.
    0x17 RequestProblemInformation request_problem_information (value: bool as Flag)
        once [Connect] many []
    /// How long the will waits, in seconds.
    0x18 WillDelayInterval will_delay_interval (value: u32 as FourBytes)
        once [Will] many []
    /// Whether CONNACK may carry response information.
    0x19 RequestResponseInformation request_response_information (value: bool as Flag)
        once [Connect] many []
    /// From what response topics are made.
    0x1A ResponseInformation response_information (value: Text<'a> as Utf8)
        once [ConnAck] many []
    /// Another server to use.
    0x1C ServerReference server_reference (value: Text<'a> as Utf8)
        once [ConnAck Disconnect] many []
    /// A diagnostic for people.
    0x1F ReasonString reason_string (value: Text<'a> as Utf8)
        once [ConnAck PubAck PubRec PubRel PubComp SubAck UnsubAck Disconnect Auth] many []
    /// How many messages above QoS 0 may be in flight.
    0x21 ReceiveMaximum receive_maximum (value: NonZeroU16 as NonZeroTwoBytes)
        once [Connect ConnAck] many []
    /// The highest topic alias that is accepted; 0 is none.
    0x22 TopicAliasMaximum topic_alias_maximum (value: u16 as TwoBytes)
        once [Connect ConnAck] many []
    /// A number that stands for the topic name on this connection.
    0x23 TopicAlias topic_alias (value: NonZeroU16 as NonZeroTwoBytes)
        once [Publish] many []
    /// The highest QoS that the server takes: 0 or 1.
    0x24 MaximumQoS maximum_qos (value: QoS as ZeroOrOne)
        once [ConnAck] many []
    /// Whether the server retains messages.
    0x25 RetainAvailable retain_available (value: bool as Flag)
        once [ConnAck] many []
    /// A name and a value of the application's own.
    0x26 UserProperty user_property (name: Text<'a> as Utf8, value: Text<'a> as Utf8)
        once []
        many [Will Connect ConnAck Publish PubAck PubRec PubRel PubComp Subscribe SubAck
            Unsubscribe UnsubAck Disconnect Auth]
    /// The largest packet that is accepted, in bytes with its fixed header.
    0x27 MaximumPacketSize maximum_packet_size (value: NonZeroU32 as NonZeroFourBytes)
        once [Connect ConnAck] many []
    /// Whether the server takes topic filters with wildcards.
    0x28 WildcardSubscriptionAvailable wildcard_subscription_available (value: bool as Flag)
        once [ConnAck] many []
    /// Whether the server takes subscription identifiers.
    0x29 SubscriptionIdentifierAvailable subscription_identifier_available (value: bool as Flag)
        once [ConnAck] many []
    /// Whether the server has shared subscriptions.
    0x2A SharedSubscriptionAvailable shared_subscription_available (value: bool as Flag)
        once [ConnAck] many []
}
