//! The one table of properties: identifier, name, value, and the packets that may carry it once or many times.
//!
//! [`property_id`](crate::property_id) makes identifiers and places of it,
//! [`properties`](crate::properties) the values and how they are read and written.

/// Hands the rows of the table to the macro `$define`.
macro_rules! property_table {
    ($define:ident) => {
        $define! {
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
            /// The highest topic alias that is accepted; 0 disables topic aliases.
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
    };
}

pub(crate) use property_table;
