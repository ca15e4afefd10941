//! How fast one client is read, and gets retained messages.

use std::net::IpAddr;

use crate::config::Config;

/// How fast one client is read, unless its address is exempt from limits ([`AddressLimits::exempt`]). 0 is no limit.
///
/// [`AddressLimits::exempt`]: crate::AddressLimits::exempt
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ClientRates {
    /// SUBSCRIBE, UNSUBSCRIBE, PINGREQ and WebSocket control frames a second. A client that sends more, five seconds in a
    /// row, is disconnected with 0x96.
    pub control_packets: u32,
    /// PUBLISH packets a second of clients with a user name, where their grants do not say.
    pub messages: u32,
    /// PUBLISH packets a second of clients without a user name, where their grants do not say.
    pub anonymous_messages: u32,
    /// Bytes a second.
    pub bytes: u32,
    /// Bytes a second of retained messages that are sent because of the SUBSCRIBE packets of one connection; those of four
    /// seconds are sent at once. The client is read meanwhile.
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

impl ClientRates {
    /// No limits.
    const NONE: Self = Self {
        control_packets: 0,
        messages: 0,
        anonymous_messages: 0,
        bytes: 0,
        retained_bytes: 0,
    };

    /// Those of `config` for a client at `peer`; `None` is a Unix socket.
    pub(crate) fn of(config: &Config, peer: Option<IpAddr>) -> Self {
        if config.address_limits.apply_to(peer) {
            config.client_rates
        } else {
            Self::NONE
        }
    }
}
