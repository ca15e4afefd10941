//! The protocol state of one connection that publishes rows.

use std::collections::VecDeque;
use std::num::{NonZeroU16, NonZeroU32};

use arrow_array::RecordBatch;
use mqttcore_codec::{
    Ack, Connect, Disconnect, Limits, Packet, PacketType, Properties, PropertiesBuf, Property,
    ProtocolVersion, ReasonCode, Text, decode, encode,
};

use crate::columns::MessageColumns;
use crate::encoder::Encoder;
use crate::in_flight::{AckOutcome, RowsInFlight};
use crate::server::ServerCapabilities;
use crate::{ColumnError, PublisherFailure};

/// Name of the user property that identifies a message over MQTT 5.0. Its value is the publisher's name and the row
/// number.
pub const ID: &str = "mqttcore-id";

/// Fields of CONNECT, and how many messages may be in flight.
#[derive(Clone, Copy)]
pub struct ConnectOptions<'a> {
    /// The protocol version.
    pub version: ProtocolVersion,
    /// The client identifier.
    pub client_id: &'a str,
    /// The user name, if the server requires one.
    pub username: Option<&'a str>,
    /// The password; a secret.
    pub password: Option<&'a str>,
    /// Maximum number of messages in flight; the server may allow less. The default is 1000, and 20 before MQTT 5.0:
    /// such a server cannot announce a Receive Maximum, most clients use 20, and Mosquitto 2.0 does not deliver
    /// messages beyond that.
    pub in_flight_max: Option<NonZeroU16>,
    /// Keep Alive in seconds; 0 disables it.
    pub keep_alive_s: u16,
}

/// MQTT 5.0, an empty client identifier, a Keep Alive of 60 s.
impl Default for ConnectOptions<'_> {
    fn default() -> Self {
        Self {
            version: ProtocolVersion::V5,
            client_id: "",
            username: None,
            password: None,
            in_flight_max: None,
            keep_alive_s: 60,
        }
    }
}

impl ConnectOptions<'_> {
    /// Encodes CONNECT for a session that ends with its connection.
    fn packet(&self) -> Result<Vec<u8>, PublisherFailure> {
        let (mut out, mut properties) = (Vec::new(), PropertiesBuf::default());
        let most = Property::MaximumPacketSize(RECEIVED_BYTES);
        properties.push(most).map_err(PublisherFailure::Login)?;
        let connect = Connect {
            version: self.version,
            is_bridge: false,
            clean_start: true,
            keep_alive_s: self.keep_alive_s,
            properties: properties.as_properties(),
            client_id: Text::new(self.client_id)?,
            will: None,
            username: self.username.map(Text::new).transpose()?,
            password: self.password.map(str::as_bytes),
        };
        encode(&Packet::Connect(connect), self.version, &mut out)
            .map_err(PublisherFailure::Login)?;
        Ok(out)
    }
}

/// Publishes rows over one connection; the owner of the socket drives it.
///
/// Messages of QoS 0 are published at QoS 1, so that each one is acknowledged.
pub struct Publisher {
    encoder: Encoder,
    in_flight: RowsInFlight,
    phase: Phase,
    /// The configured number of messages in flight; the server may allow less.
    in_flight_max: u16,
    keep_alive_s: u16,
    /// Batches with unsent rows.
    batches: VecDeque<MessageColumns>,
    /// Number of sent rows of the first batch.
    sent: usize,
    /// The number of the next row to send.
    next_row: u64,
    /// Control packets, which are sent before any message.
    answers: Vec<u8>,
    /// A partial frame from the server.
    torn: Vec<u8>,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Phase {
    Connecting,
    Connected,
}

impl Publisher {
    /// Starts a connection with CONNECT. `first_row` is the number of the first row; the [`ID`] of a row consists of
    /// `name` and its number.
    ///
    /// # Errors
    ///
    /// [`PublisherFailure::Login`] and [`PublisherFailure::LoginText`].
    pub fn new(
        login: &ConnectOptions<'_>,
        name: &str,
        first_row: u64,
    ) -> Result<Self, PublisherFailure> {
        let default = match login.version {
            ProtocolVersion::V5 => 1000,
            _ => 20,
        };
        Ok(Self {
            encoder: Encoder::new(login.version, name),
            in_flight: RowsInFlight::new(0),
            phase: Phase::Connecting,
            in_flight_max: login.in_flight_max.map_or(default, u16::from),
            keep_alive_s: login.keep_alive_s,
            batches: VecDeque::new(),
            sent: 0,
            next_row: first_row,
            answers: login.packet()?,
            torn: Vec::new(),
        })
    }

    /// Queues the rows of a batch; they are sent as the send quota allows. All rows are validated before the first one
    /// is sent, but against the server's limits only after its CONNACK.
    ///
    /// # Errors
    ///
    /// [`PublisherFailure::Columns`], and [`PublisherFailure::Row`] for the first row that cannot be sent.
    pub fn publish(&mut self, batch: &RecordBatch) -> Result<(), PublisherFailure> {
        let columns = MessageColumns::of(batch)?;
        let has_place = self.encoder.version.has_properties();
        if let Some(name) = columns.needs_5().filter(|_| !has_place) {
            return Err(ColumnError::NotCarried(name).into());
        }
        let waiting: usize = self.batches.iter().map(MessageColumns::rows).sum();
        let first = self.next_row + (waiting - self.sent) as u64;
        for index in 0..columns.rows() {
            self.encoder.check(&columns, index, first + index as u64)?;
        }
        if columns.rows() > 0 {
            self.batches.push_back(columns);
        }
        Ok(())
    }

    /// Appends bytes to send to `out`, up to about 256 KiB. If it appends none, there is nothing to send until bytes or
    /// rows arrive.
    ///
    /// # Errors
    ///
    /// [`PublisherFailure::Row`] for a row that was queued before CONNACK and exceeds the server's limits.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Result<(), PublisherFailure> {
        out.append(&mut self.answers);
        while out.len() < CHUNK_BYTES {
            let Some(columns) = self.batches.front().cloned() else {
                break;
            };
            while self.sent < columns.rows() && out.len() < CHUNK_BYTES {
                if !self.send_row(&columns, out)? {
                    return Ok(());
                }
            }
            if self.sent == columns.rows() {
                self.batches.pop_front();
                self.sent = 0;
            }
        }
        Ok(())
    }

    /// Sends the next row of the first batch; returns false if the send quota is used up.
    fn send_row(
        &mut self,
        columns: &MessageColumns,
        out: &mut Vec<u8>,
    ) -> Result<bool, PublisherFailure> {
        let (place, in_flight) = ((self.sent, self.next_row), &mut self.in_flight);
        let take = |qos| in_flight.take(place.1, qos);
        let has_room = self.encoder.append(columns, place, take, out)?;
        if has_room {
            self.sent += 1;
            self.next_row += 1;
        }
        Ok(has_room)
    }

    /// Handles bytes from the server, in chunks of any size.
    ///
    /// # Errors
    ///
    /// The server refuses something, or violates the protocol.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<(), PublisherFailure> {
        let mut torn = std::mem::take(&mut self.torn);
        torn.extend_from_slice(bytes);
        let mut rest = torn.as_slice();
        while let Some((packet, len)) = self.decode(rest)? {
            self.handle_packet(&packet)?;
            rest = rest.split_at(len).1;
        }
        let handled = torn.len() - rest.len();
        torn.drain(..handled);
        self.torn = torn;
        Ok(())
    }

    fn decode<'b>(&self, bytes: &'b [u8]) -> Result<Option<(Packet<'b>, usize)>, PublisherFailure> {
        let error = match decode(bytes, self.encoder.version, &RECEIVED) {
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        // A server without MQTT 5.0 may refuse with a CONNACK of MQTT 3.1.1.
        let old = decode(bytes, ProtocolVersion::V3_1_1, &RECEIVED);
        match (self.phase, old) {
            (Phase::Connecting, Ok(Some((Packet::ConnAck(connack), len))))
                if connack.reason.is_error() =>
            {
                Ok(Some((Packet::ConnAck(connack), len)))
            }
            _ => Err(error.into()),
        }
    }

    fn handle_packet(&mut self, packet: &Packet<'_>) -> Result<(), PublisherFailure> {
        let packet_type = packet.packet_type();
        match (self.phase, packet) {
            (Phase::Connecting, Packet::ConnAck(connack)) => {
                self.encoder.server = ServerCapabilities::of(connack)?;
                let most = self.encoder.server.receive_maximum;
                self.in_flight = RowsInFlight::new(self.in_flight_max.min(most));
                self.phase = Phase::Connected;
                Ok(())
            }
            (
                Phase::Connected,
                Packet::PubAck(ack) | Packet::PubRec(ack) | Packet::PubComp(ack),
            ) => self.acknowledge(packet_type, ack),
            (Phase::Connected, Packet::PingResp) => Ok(()),
            // A server may have subscribed the client to something. Such messages are ignored and not acknowledged; the
            // session ends with the connection.
            (Phase::Connected, Packet::Publish(_)) => Ok(()),
            (Phase::Connected, Packet::Disconnect(disconnect)) => {
                Err(PublisherFailure::Disconnected {
                    reason: disconnect.reason,
                    text: reason_string(disconnect.properties),
                })
            }
            _ => Err(PublisherFailure::Unexpected(packet_type)),
        }
    }

    fn acknowledge(
        &mut self,
        packet_type: PacketType,
        ack: &Ack<'_>,
    ) -> Result<(), PublisherFailure> {
        let id = ack.packet_id;
        match self.in_flight.acknowledge(packet_type, id, ack.reason) {
            Some(AckOutcome::Delivered) => Ok(()),
            Some(AckOutcome::Release(id)) => {
                self.answer(&Packet::PubRel(Ack::success(id)));
                Ok(())
            }
            Some(AckOutcome::Refused(row)) => Err(PublisherFailure::Refused {
                id: self.encoder.id(row).to_owned(),
                reason: ack.reason,
                text: reason_string(ack.properties),
            }),
            None => Err(PublisherFailure::Unasked(packet_type, id.get())),
        }
    }

    /// Queues a PINGREQ.
    pub fn ping(&mut self) {
        self.answer(&Packet::PingReq);
    }

    /// Queues a DISCONNECT; nothing may follow it.
    pub fn disconnect(&mut self) {
        self.answer(&Packet::Disconnect(Disconnect {
            reason: ReasonCode::SUCCESS,
            properties: Properties::EMPTY,
        }));
    }

    fn answer(&mut self, packet: &Packet<'_>) {
        let encoded = encode(packet, self.encoder.version, &mut self.answers);
        // INVARIANT: neither packet has a field that could be too long or misplaced.
        encoded.expect("a packet without texts");
    }

    /// Whether the server has accepted the connection.
    pub fn is_connected(&self) -> bool {
        self.phase == Phase::Connected
    }

    /// Whether there are unsent rows.
    pub fn has_rows(&self) -> bool {
        !self.batches.is_empty()
    }

    /// Number of sent messages that are not completely acknowledged.
    pub fn in_flight(&self) -> usize {
        self.in_flight.in_flight()
    }

    /// The number of the next row to send; together with `in_flight` it tells the progress.
    pub fn next_row(&self) -> u64 {
        self.next_row
    }

    /// The Keep Alive that the server requires, in seconds; 0 disables it.
    pub fn keep_alive_s(&self) -> u16 {
        let asked = self.encoder.server.keep_alive_s;
        asked.unwrap_or(self.keep_alive_s)
    }
}

/// The server's reason string, as a String.
pub(crate) fn reason_string(properties: Properties<'_>) -> Option<String> {
    let text = properties.reason_string()?;
    Some(text.as_str().to_owned())
}

/// Limits of packets from the server, which are small; the maximum size is announced in CONNECT.
const RECEIVED: Limits = Limits {
    packet_bytes: RECEIVED_BYTES.get(),
    user_properties: 64,
    user_property_bytes: RECEIVED_BYTES.get(),
};
// INVARIANT: the literal is not 0.
const RECEIVED_BYTES: NonZeroU32 = NonZeroU32::new(64 * 1024).expect("not 0");

/// Approximate number of bytes that one call of `poll_transmit` returns.
const CHUNK_BYTES: usize = 256 * 1024;
