//! Capabilities that a server announced in its CONNACK.

use mqttcore_codec::{ConnAck, QoS};

use crate::publisher::reason_string;
use crate::{PublisherFailure, RowError};

/// Limits and features of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerCapabilities {
    pub(crate) receive_maximum: u16,
    pub(crate) maximum_qos: QoS,
    pub(crate) retain_available: bool,
    pub(crate) packet_bytes: usize,
    /// The server's Keep Alive in seconds, if it differs from the client's.
    pub(crate) keep_alive_s: Option<u16>,
}

impl ServerCapabilities {
    /// The defaults of the protocol, for a server that announces nothing.
    pub(crate) const ANY: Self = Self {
        receive_maximum: u16::MAX,
        maximum_qos: QoS::ExactlyOnce,
        retain_available: true,
        packet_bytes: usize::MAX,
        keep_alive_s: None,
    };

    /// # Errors
    ///
    /// The connection is refused, an old session was resumed, or the server supports QoS 0 only.
    pub(crate) fn of(connack: &ConnAck<'_>) -> Result<Self, PublisherFailure> {
        let said = connack.properties;
        if connack.reason.is_error() {
            return Err(PublisherFailure::ConnectionRefused {
                reason: connack.reason,
                text: reason_string(said),
            });
        }
        if connack.session_present {
            return Err(PublisherFailure::SessionPresent);
        }
        let maximum_qos = said.maximum_qos().unwrap_or(QoS::ExactlyOnce);
        if maximum_qos == QoS::AtMostOnce {
            return Err(PublisherFailure::NothingAcknowledged);
        }
        let packet_bytes = said.maximum_packet_size().map(|size| size.get() as usize);
        Ok(Self {
            receive_maximum: said.receive_maximum().map_or(u16::MAX, u16::from),
            maximum_qos,
            retain_available: said.retain_available().unwrap_or(true),
            packet_bytes: packet_bytes.unwrap_or(usize::MAX),
            keep_alive_s: said.server_keep_alive(),
        })
    }

    /// # Errors
    ///
    /// The server would not accept such a message.
    pub(crate) fn check(&self, qos: QoS, retain: bool, bytes: usize) -> Result<(), RowError> {
        if qos > self.maximum_qos {
            return Err(RowError::MaximumQoS(qos));
        }
        if retain && !self.retain_available {
            return Err(RowError::RetainNotAvailable);
        }
        if bytes > self.packet_bytes {
            let most = self.packet_bytes;
            return Err(RowError::TooLarge { bytes, most });
        }
        Ok(())
    }
}
