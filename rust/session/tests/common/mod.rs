//! A session behind a wire: bytes in, bytes out, and a clock that the test moves.
#![allow(
    clippy::unwrap_used,
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "each test file uses a part of it"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use mqttcore_codec::{
    Properties, PropertiesBuf, Property, ProtocolVersion, QoS, ReasonCode, decode, decode_connect,
};
use mqttcore_session::{
    AckToken, Cause, Chunk, ConnectRequest, Delivered, Delivery, DetachOutcome, Details, Message,
    Request, ServerLimits, Session, SessionEvent, Terms, Transmit, Violation,
};
use mqttcore_topics::{TopicLimits, TopicName};

/// A moment to count from. Nothing here reads a clock twice.
pub fn start() -> Instant {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    #[expect(
        clippy::disallowed_methods,
        reason = "tests need one instant to begin with"
    )]
    *START.get_or_init(Instant::now)
}

pub fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// What a packet asked of the engine, without its borrows.
#[derive(Debug)]
pub enum Asked {
    Nothing,
    Publish(Message),
    Other(String),
    Left(Cause),
}

pub struct Wire {
    pub session: Session,
    pub now: Instant,
    pub limits: Arc<ServerLimits>,
    pub version: ProtocolVersion,
    /// Accept publishes and confirm tokens as they come.
    pub obliging: bool,
    pub durable: bool,
}

impl Wire {
    pub fn new() -> Self {
        Self::with(ServerLimits::default())
    }

    pub fn with(limits: ServerLimits) -> Self {
        let limits = Arc::new(limits);
        Self {
            session: Session::new(Arc::clone(&limits)),
            now: start(),
            limits,
            version: ProtocolVersion::V5,
            obliging: true,
            durable: false,
        }
    }

    /// A wire whose CONNECT was accepted, and whose CONNACK was read.
    pub fn connected(connect: &[u8]) -> Self {
        let mut wire = Self::new();
        wire.connect(connect);
        wire.receive();
        wire
    }

    pub fn terms(&self) -> Terms {
        Terms {
            durable: self.durable,
            ..Terms::new(Arc::clone(&self.limits))
        }
    }

    pub fn connect(&mut self, connect: &[u8]) -> AckToken {
        let terms = self.terms();
        self.connect_on(connect, terms)
    }

    pub fn resume(&mut self, connect: &[u8]) -> AckToken {
        let terms = Terms {
            session_present: true,
            ..self.terms()
        };
        self.connect_on(connect, terms)
    }

    pub fn connect_on(&mut self, connect: &[u8], terms: Terms) -> AckToken {
        let request = self.parse(connect).expect("CONNECT is in order");
        self.version = request.version;
        self.session.connect(self.now, &request, terms)
    }

    pub fn parse(&self, connect: &[u8]) -> Result<ConnectRequest, Violation> {
        let (connect, len) = decode_connect(connect, &self.limits.before_connect())
            .map(|decoded| decoded.expect("CONNECT is whole"))
            .map(|(decoded, len)| (decoded, len == connect.len()))
            .expect("CONNECT is well formed");
        assert!(len, "nothing behind CONNECT");
        ConnectRequest::parse(&connect, &self.limits)
    }

    /// Sends one packet; an obliging wire answers what it asks for.
    pub fn send(&mut self, bytes: &[u8]) -> Result<Asked, Violation> {
        let (packet, len) = decode(bytes, self.version, &self.limits.after_connect())
            .expect("the packet is well formed")
            .expect("the packet is whole");
        assert_eq!(len, bytes.len(), "one packet at a time");
        let request = self.session.handle_packet(self.now, packet)?;
        let chunk: Chunk = bytes.into();
        let asked = match request {
            Request::None => Asked::Nothing,
            Request::Publish(publish) => {
                let message = publish.to_message(self.now, bytes, &chunk, 0);
                let (packet_id, qos) = (publish.packet_id(), publish.qos());
                if let Some(packet_id) = packet_id.filter(|_| self.obliging) {
                    self.session
                        .accept_publish(packet_id, qos, ReasonCode::SUCCESS);
                }
                Asked::Publish(message)
            }
            Request::Subscribe(request) => {
                let text = format!("{request:?}");
                self.session.complete_subscribe(request, Details::none());
                Asked::Other(text)
            }
            Request::Unsubscribe(request) => {
                let text = format!("{request:?}");
                self.session.complete_unsubscribe(request, Details::none());
                Asked::Other(text)
            }
            Request::Disconnect(cause) => Asked::Left(cause),
            other => Asked::Other(format!("{other:?}")),
        };
        if self.obliging {
            self.confirm_all();
        }
        Ok(asked)
    }

    /// Sends a packet that must be in order.
    pub fn ok(&mut self, bytes: &[u8]) -> Asked {
        self.send(bytes).expect("the packet is in order")
    }

    pub fn refused(&mut self, bytes: &[u8]) -> ReasonCode {
        self.send(bytes).expect_err("a violation").reason
    }

    pub fn confirm_all(&mut self) {
        self.session.confirm(self.session.last_token());
    }

    /// Everything that the session wants to send, one packet an element.
    pub fn receive(&mut self) -> Vec<Vec<u8>> {
        if self.obliging {
            self.confirm_all();
        }
        let transmits: Vec<Transmit> =
            std::iter::from_fn(|| self.session.poll_transmit()).collect();
        transmits
            .iter()
            .map(|transmit| self.encode(transmit))
            .collect()
    }

    fn encode(&self, transmit: &Transmit) -> Vec<u8> {
        let mut out = Vec::new();
        let limit = self.session.client_packet_bytes();
        match transmit {
            Transmit::Control(control) => {
                control.encode(self.version, limit, &mut out);
            }
            Transmit::Publish(publish) => {
                if let Some((chunk, range)) = publish.shared_frame(self.version) {
                    return chunk[range].to_vec();
                }
                let mut scratch = PropertiesBuf::default();
                publish
                    .encode(self.version, self.now, &mut scratch, &mut out)
                    .expect("it encodes");
            }
        }
        out
    }

    pub fn events(&mut self) -> Vec<SessionEvent> {
        std::iter::from_fn(|| self.session.poll_event()).collect()
    }

    pub fn deliver(&mut self, message: &Message, granted: QoS) -> Delivered {
        self.session
            .deliver(self.now, message, Delivery::new(granted, &[]))
    }

    pub fn lose(&mut self) -> DetachOutcome {
        self.session.detach(self.now, Cause::ConnectionLost)
    }
}

pub fn message(topic: &str, payload: &[u8], qos: QoS) -> Message {
    message_with(topic, payload, qos, &[])
}

pub fn message_with(topic: &str, payload: &[u8], qos: QoS, properties: &[Property<'_>]) -> Message {
    let mut built = PropertiesBuf::default();
    for property in properties {
        built.push(*property).unwrap();
    }
    let topic = TopicName::parse(topic, &TopicLimits::default()).unwrap();
    let properties: Properties<'_> = built.as_properties();
    Message::copied(start(), topic, properties, payload, qos, false)
}

/// MQTT 3.1.1, Clean Session, Keep Alive 60, id `c`.
pub const CONNECT_3: &[u8] = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01c";
/// The same without Clean Session.
pub const CONNECT_3_KEPT: &[u8] = b"\x10\x0d\x00\x04MQTT\x04\x00\x00\x3c\x00\x01c";
/// As [`CONNECT_3`], from a bridge.
pub const CONNECT_BRIDGE: &[u8] = b"\x10\x0d\x00\x04MQTT\x84\x02\x00\x3c\x00\x01c";
/// MQTT 5.0, Clean Start, Keep Alive 60, no properties, id `c`.
pub const CONNECT_5: &[u8] = b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x01c";
/// MQTT 5.0, Session Expiry Interval 100 s, id `c`.
pub const CONNECT_5_KEPT: &[u8] =
    b"\x10\x13\x00\x04MQTT\x05\x00\x00\x3c\x05\x11\x00\x00\x00\x64\x00\x01c";
/// MQTT 5.0, Clean Start, Request Problem Information 0, id `c`: answers are as short as can be.
pub const CONNECT_5_TERSE: &[u8] = b"\x10\x10\x00\x04MQTT\x05\x02\x00\x3c\x02\x17\x00\x00\x01c";
/// The CONNACK of an accepted 3.1.1 client without a session.
pub const ACCEPTED_3: &[u8] = b"\x20\x02\x00\x00";

/// A v5 CONNECT with these properties, Keep Alive 60, id `c`; below 128 bytes.
pub fn connect_5(flags: u8, properties: &[u8]) -> Vec<u8> {
    let mut body = b"\x00\x04MQTT\x05".to_vec();
    body.extend([flags, 0, 60, u8::try_from(properties.len()).unwrap()]);
    body.extend_from_slice(properties);
    body.extend(b"\x00\x01c");
    framed(0x10, &body)
}

/// A packet with this first byte; below 16 KiB.
pub fn framed(first: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![first];
    match u8::try_from(body.len()) {
        Ok(len) if len < 0x80 => packet.push(len),
        _ => packet.extend([
            u8::try_from(body.len() % 128).unwrap() | 0x80,
            u8::try_from(body.len() / 128).unwrap(),
        ]),
    }
    packet.extend_from_slice(body);
    packet
}
