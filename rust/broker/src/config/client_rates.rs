//! Rate limits of one client: how fast it is read, and how fast it gets retained messages.

use std::net::IpAddr;

use crate::config::Config;

/// Rate limits of one client, unless its address is exempt from limits ([`AddressLimits::exempt`]). 0 means no limit.
///
/// [`AddressLimits::exempt`]: crate::AddressLimits::exempt
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ClientRates {
    /// SUBSCRIBE, UNSUBSCRIBE, PINGREQ, WebSocket control frames and TLS records without payload a second. A client
    /// that sends more for five seconds is disconnected with 0x96.
    pub control_packets: u32,
    /// PUBLISH packets a second of a client with a user name, unless its grant has a limit.
    pub messages: u32,
    /// PUBLISH packets a second of a client without a user name, unless its grant has a limit.
    pub anonymous_messages: u32,
    /// Bytes a second.
    pub bytes: u32,
    /// Bytes a second of retained messages that one connection gets because of its SUBSCRIBE packets; the bytes of four
    /// seconds are sent at once. The client is still read meanwhile.
    pub retained_bytes: u32,
}

impl Default for ClientRates {
    fn default() -> Self {
        Self {
            control_packets: 1_000,
            messages: 0,
            anonymous_messages: 1_000,
            bytes: 0,
            retained_bytes: 8 << 20,
        }
    }
}

/// A rate limit of [`ClientRates`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RateLimitKind {
    /// PUBLISH packets a second.
    Messages,
    /// Bytes a second.
    Bytes,
    /// Control packets a second.
    ControlPackets,
    /// Bytes of retained messages a second.
    RetainedBytes,
}

impl RateLimitKind {
    /// The name in figures and for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Bytes => "bytes",
            Self::ControlPackets => "control_packets",
            Self::RetainedBytes => "retained_bytes",
        }
    }
}

impl ClientRates {
    /// No limits.
    const NONE: Self = Self {
        control_packets: 0,
        messages: 0,
        anonymous_messages: 0,
        bytes: 0,
        retained_bytes: 0,
    };

    /// The limits in `config` for a client at `peer`; `None` is a Unix socket.
    pub(crate) fn of(config: &Config, peer: Option<IpAddr>) -> Self {
        if config.address_limits.apply_to(peer) {
            config.client_rates
        } else {
            Self::NONE
        }
    }
}
