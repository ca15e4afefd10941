//! The table of properties: identifier, name, value, and the packets that may carry it once or many times.
//!
//! [`property_id`](crate::property_id) makes identifiers and places from it, [`properties`](crate::properties) the
//! values and their encoding.

/// Passes the rows of the table to the macro `$define`.
macro_rules! property_table {
    ($define:ident) => {
        $define! {
            /// Whether the payload is UTF-8 text.
            0x01 PayloadFormatIndicator payload_format_indicator (value: bool as Flag)
                once [Publish Will] many []
            /// Lifetime of the message, in seconds.
            0x02 MessageExpiryInterval message_expiry_interval (value: u32 as FourBytes)
                once [Publish Will] many []
            /// Description of the payload's content, defined by the application.
            0x03 ContentType content_type (value: Text<'a> as Utf8)
                once [Publish Will] many []
            /// The topic for responses.
            0x08 ResponseTopic response_topic (value: Text<'a> as Utf8)
                once [Publish Will] many []
            /// Identifies the request of a response.
            0x09 CorrelationData correlation_data (value: &'a [u8] as Binary)
                once [Publish Will] many []
            /// The identifier of a subscription, 1 to 268,435,455.
            0x0B SubscriptionIdentifier subscription_identifier (value: NonZeroU32 as NonZeroVarInt)
                once [Subscribe] many [Publish]
            /// How long the session outlives its connection, in seconds; `u32::MAX` means that it never expires.
            0x11 SessionExpiryInterval session_expiry_interval (value: u32 as FourBytes)
                once [Connect ConnAck Disconnect] many []
            /// The client identifier that the server assigned.
            0x12 AssignedClientIdentifier assigned_client_identifier (value: Text<'a> as Utf8)
                once [ConnAck] many []
            /// The Keep Alive that the server requires, in seconds.
            0x13 ServerKeepAlive server_keep_alive (value: u16 as TwoBytes)
                once [ConnAck] many []
            /// The name of the enhanced authentication method.
            0x15 AuthenticationMethod authentication_method (value: Text<'a> as Utf8)
                once [Connect ConnAck Auth] many []
            /// Data of the authentication method; a secret.
            0x16 AuthenticationData authentication_data (value: &'a [u8] as Binary)
                once [Connect ConnAck Auth] many []
            /// Whether reason strings and user properties may come with any packet.
            0x17 RequestProblemInformation request_problem_information (value: bool as Flag)
                once [Connect] many []
            /// Delay of the will, in seconds.
            0x18 WillDelayInterval will_delay_interval (value: u32 as FourBytes)
                once [Will] many []
            /// Whether CONNACK may carry response information.
            0x19 RequestResponseInformation request_response_information (value: bool as Flag)
                once [Connect] many []
            /// Basis for response topics.
            0x1A ResponseInformation response_information (value: Text<'a> as Utf8)
                once [ConnAck] many []
            /// Another server to use.
            0x1C ServerReference server_reference (value: Text<'a> as Utf8)
                once [ConnAck Disconnect] many []
            /// A diagnostic for people.
            0x1F ReasonString reason_string (value: Text<'a> as Utf8)
                once [ConnAck PubAck PubRec PubRel PubComp SubAck UnsubAck Disconnect Auth] many []
            /// Maximum number of QoS 1 and 2 messages in flight.
            0x21 ReceiveMaximum receive_maximum (value: NonZeroU16 as NonZeroTwoBytes)
                once [Connect ConnAck] many []
            /// The highest topic alias that is accepted; 0 disables topic aliases.
            0x22 TopicAliasMaximum topic_alias_maximum (value: u16 as TwoBytes)
                once [Connect ConnAck] many []
            /// A number that replaces the topic name on this connection.
            0x23 TopicAlias topic_alias (value: NonZeroU16 as NonZeroTwoBytes)
                once [Publish] many []
            /// The highest QoS that the server accepts: 0 or 1.
            0x24 MaximumQoS maximum_qos (value: QoS as ZeroOrOne)
                once [ConnAck] many []
            /// Whether the server supports retained messages.
            0x25 RetainAvailable retain_available (value: bool as Flag)
                once [ConnAck] many []
            /// A name and a value that the application defines.
            0x26 UserProperty user_property (name: Text<'a> as Utf8, value: Text<'a> as Utf8)
                once []
                many [Will Connect ConnAck Publish PubAck PubRec PubRel PubComp Subscribe SubAck
                    Unsubscribe UnsubAck Disconnect Auth]
            /// The largest packet that is accepted, in bytes with its fixed header.
            0x27 MaximumPacketSize maximum_packet_size (value: NonZeroU32 as NonZeroFourBytes)
                once [Connect ConnAck] many []
            /// Whether the server supports topic filters with wildcards.
            0x28 WildcardSubscriptionAvailable wildcard_subscription_available (value: bool as Flag)
                once [ConnAck] many []
            /// Whether the server supports subscription identifiers.
            0x29 SubscriptionIdentifierAvailable subscription_identifier_available (value: bool as Flag)
                once [ConnAck] many []
            /// Whether the server supports shared subscriptions.
            0x2A SharedSubscriptionAvailable shared_subscription_available (value: bool as Flag)
                once [ConnAck] many []
        }
    };
}

pub(crate) use property_table;
