//! One connection of a test, and what it hears.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::time::{Duration, Instant};

use mqttcore_codec::{
    Ack, Auth, Disconnect, Limits, Packet, PacketId, Properties, PropertiesBuf, Property,
    ProtocolVersion, Publish, PublishQoS, QoS, ReasonCode, Subscribe, SubscriptionOptions,
    Unsubscribe, decode, encode,
};

use super::DEADLINE;
use super::hello::text;

/// A PUBLISH from the broker.
#[derive(Clone, Eq, PartialEq)]
pub struct Message {
    pub topic: String,
    pub payload: Vec<u8>,
    pub qos: QoS,
    /// 0 for QoS 0.
    pub packet_id: u16,
    pub retain: bool,
    pub dup: bool,
    /// The Subscription Identifiers that came with it.
    pub subscription_ids: Vec<u32>,
    /// What is left of its expiry.
    pub expiry_s: Option<u32>,
    /// All of its properties, as bytes.
    pub properties: Vec<u8>,
}

impl Message {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.payload).expect("a text payload")
    }

    /// The payload as a number in decimal digits.
    pub fn number(&self) -> usize {
        self.text().parse().expect("a number")
    }
}

/// The start of the payload says enough where a test fails.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = &self.payload[..self.payload.len().min(20)];
        f.debug_struct("Message")
            .field("topic", &self.topic)
            .field("payload", &String::from_utf8_lossy(start))
            .field("bytes", &self.payload.len())
            .field("qos", &self.qos)
            .field("packet_id", &self.packet_id)
            .field("retain", &self.retain)
            .field("dup", &self.dup)
            .finish_non_exhaustive()
    }
}

/// A packet from the broker.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Received {
    ConnAck {
        session_present: bool,
        reason: ReasonCode,
    },
    Publish(Message),
    PubAck(u16, ReasonCode),
    PubRec(u16, ReasonCode),
    PubRel(u16, ReasonCode),
    PubComp(u16, ReasonCode),
    SubAck(u16, Vec<ReasonCode>),
    UnsubAck(u16, Vec<ReasonCode>),
    PingResp,
    Disconnect(ReasonCode),
    Auth(ReasonCode, AuthFields),
}

/// Method and data of an AUTH.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AuthFields {
    pub method: String,
    pub data: String,
}

impl From<Properties<'_>> for AuthFields {
    fn from(properties: Properties<'_>) -> Self {
        let method = properties.authentication_method();
        let data = properties.authentication_data();
        Self {
            method: method.map_or_else(String::new, |method| method.as_str().into()),
            data: data.map_or_else(String::new, |data| String::from_utf8_lossy(data).into()),
        }
    }
}

/// The client's end of one connection.
pub struct Client {
    stream: TcpStream,
    version: ProtocolVersion,
    unread: Vec<u8>,
    /// Bytes of `unread` that are handed out already.
    used: usize,
    last_id: u16,
    /// Properties of the last packet that was handed out.
    properties: Vec<u8>,
}

impl Client {
    pub(super) fn new(stream: TcpStream, version: ProtocolVersion) -> Self {
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        stream.set_write_timeout(Some(DEADLINE)).expect("a timeout");
        Self {
            stream,
            version,
            unread: Vec::new(),
            used: 0,
            last_id: 0,
            properties: Vec::new(),
        }
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the broker reads");
    }

    /// Sends what the broker may refuse to read any more.
    pub fn try_send_bytes(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Whether the broker takes all of `bytes`, each part of them within this time.
    pub fn sends_within(&mut self, bytes: &[u8], time: Duration) -> bool {
        let set = self.stream.set_write_timeout(Some(time));
        set.expect("a timeout");
        self.stream.write_all(bytes).is_ok()
    }

    /// The same connection, for another thread to send over.
    pub fn second_hand(&self) -> Self {
        let stream = self.stream.try_clone().expect("a second handle");
        Self::new(stream, self.version)
    }

    pub fn send(&mut self, packet: &Packet<'_>) {
        let mut out = Vec::new();
        encode(packet, self.version, &mut out).expect("the packet encodes");
        self.send_bytes(&out);
    }

    /// CONNACK with success; tells whether the session was there.
    pub fn expect_welcome(&mut self) -> bool {
        match self.receive() {
            Received::ConnAck {
                session_present,
                reason: ReasonCode::SUCCESS,
            } => session_present,
            other => panic!("no welcome: {other:?}"),
        }
    }

    /// The next packet.
    pub fn receive(&mut self) -> Received {
        self.next_packet().expect("closed by the broker")
    }

    /// The reason string of the last packet; empty if it had none.
    pub fn reason_string(&self) -> String {
        let properties = Properties::from_checked(&self.properties);
        let text = properties.reason_string();
        text.map_or_else(String::new, |text| text.as_str().into())
    }

    /// The first user property of the last packet.
    pub fn user_property(&self) -> Option<(String, String)> {
        let properties = Properties::from_checked(&self.properties);
        let mut pairs = properties.user_properties();
        let (name, value) = pairs.next()?;
        Some((name.as_str().into(), value.as_str().into()))
    }

    /// What the last packet says about the authentication.
    pub fn auth_fields(&self) -> AuthFields {
        Properties::from_checked(&self.properties).into()
    }

    /// Sends an AUTH of method `m`.
    pub fn auth(&mut self, reason: ReasonCode, data: &str) {
        let mut properties = PropertiesBuf::default();
        for property in [
            Property::AuthenticationMethod(text("m")),
            Property::AuthenticationData(data.as_bytes()),
        ] {
            properties.push(property).expect("the property encodes");
        }
        self.send(&Packet::Auth(Auth {
            reason,
            properties: properties.as_properties(),
        }));
    }

    /// The next packet, or `None` when the broker closed.
    pub fn next_packet(&mut self) -> Option<Received> {
        loop {
            if let Some(packet) = self.take_packet() {
                return Some(packet);
            }
            if !self.read() {
                let left = self.unread.len() - self.used;
                assert_eq!(left, 0, "closed within a packet, bytes of it");
                return None;
            }
        }
    }

    /// Everything that comes until the broker closes.
    pub fn until_closed(&mut self) -> Vec<Received> {
        std::iter::from_fn(|| self.next_packet()).collect()
    }

    /// What has come already and was not looked at.
    fn take_packet(&mut self) -> Option<Received> {
        let waiting = &self.unread[self.used..];
        let decoded = decode(waiting, self.version, &Limits::MAX);
        let (packet, len) = decoded.expect("the broker sends packets")?;
        self.properties = properties_of(&packet).as_bytes().into();
        let packet = Received::from(packet);
        self.used += len;
        if self.used == self.unread.len() {
            self.unread.clear();
            self.used = 0;
        }
        Some(packet)
    }

    /// Takes at most 16 KiB from the socket, to be looked at later.
    pub fn read_a_little(&mut self) {
        assert!(self.read(), "closed by the broker");
    }

    /// Reads once; false when the broker closed.
    fn read(&mut self) -> bool {
        self.unread.drain(..self.used);
        self.used = 0;
        let mut bytes = [0; 16 * 1024];
        let result = loop {
            match self.stream.read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        match result {
            Ok(0) => false,
            Ok(len) => {
                self.unread.extend_from_slice(&bytes[..len]);
                true
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("nothing came within {DEADLINE:?}: {error}"),
        }
    }

    /// The next packet identifier.
    pub fn next_id(&mut self) -> PacketId {
        self.last_id = self.last_id % u16::MAX + 1;
        PacketId::new(self.last_id).expect("not 0")
    }

    /// Sends a PUBLISH; returns its packet identifier, 0 for QoS 0.
    pub fn publish(&mut self, topic: &str, payload: impl AsRef<[u8]>, qos: QoS) -> u16 {
        self.publish_with(topic, payload.as_ref(), qos, false, Properties::EMPTY)
    }

    pub fn publish_retained(&mut self, topic: &str, payload: impl AsRef<[u8]>, qos: QoS) -> u16 {
        self.publish_with(topic, payload.as_ref(), qos, true, Properties::EMPTY)
    }

    pub fn publish_with(
        &mut self,
        topic: &str,
        payload: &[u8],
        qos: QoS,
        retain: bool,
        properties: Properties<'_>,
    ) -> u16 {
        let delivery = self.delivery(qos);
        self.send(&Packet::Publish(Publish {
            delivery,
            retain,
            topic: text(topic),
            properties,
            payload,
        }));
        delivery.packet_id().map_or(0, PacketId::get)
    }

    fn delivery(&mut self, qos: QoS) -> PublishQoS {
        let dup = false;
        match qos {
            QoS::AtMostOnce => PublishQoS::AtMostOnce,
            QoS::AtLeastOnce => PublishQoS::AtLeastOnce {
                packet_id: self.next_id(),
                dup,
            },
            QoS::ExactlyOnce => PublishQoS::ExactlyOnce {
                packet_id: self.next_id(),
                dup,
            },
        }
    }

    /// The bytes of many small messages with numbers for payloads, to be sent in one write.
    pub fn numbered(
        &mut self,
        topic: &str,
        qos: QoS,
        numbers: impl IntoIterator<Item = usize>,
    ) -> Vec<u8> {
        let mut out = Vec::new();
        for number in numbers {
            let payload = number.to_string();
            let publish = Publish {
                delivery: self.delivery(qos),
                retain: false,
                topic: text(topic),
                properties: Properties::EMPTY,
                payload: payload.as_bytes(),
            };
            let packet = Packet::Publish(publish);
            encode(&packet, self.version, &mut out).expect("the packet encodes");
        }
        out
    }

    /// Publishes `0..count` as payloads, 50 under way, and sees all of them acknowledged.
    pub fn publish_numbers(&mut self, topic: &str, qos: QoS, count: usize) {
        self.publish_range(topic, qos, 0..count);
    }

    /// The same for any numbers.
    pub fn publish_range(&mut self, topic: &str, qos: QoS, numbers: Range<usize>) {
        const BATCH: usize = 50;
        let mut next = numbers.start;
        while next < numbers.end {
            let end = numbers.end.min(next + BATCH);
            let batch = self.numbered(topic, qos, next..end);
            self.send_bytes(&batch);
            for _ in next..end {
                self.see_through(qos);
            }
            next = end;
        }
        // Nothing is behind: all QoS 0 messages are handled too.
        self.ping();
    }

    /// The broker's part of one exchange, whichever message it is for.
    pub fn see_through(&mut self, qos: QoS) {
        let steps = match qos {
            QoS::AtMostOnce => 0,
            QoS::AtLeastOnce => 1,
            QoS::ExactlyOnce => 2,
        };
        for _ in 0..steps {
            match self.receive() {
                Received::PubAck(_, reason) if qos == QoS::AtLeastOnce => {
                    assert!(!reason.is_error(), "refused: {reason:?}");
                }
                Received::PubRec(id, reason) if qos == QoS::ExactlyOnce => {
                    assert!(!reason.is_error(), "refused: {reason:?}");
                    self.pubrel(id);
                }
                Received::PubComp(..) if qos == QoS::ExactlyOnce => {}
                other => panic!("no acknowledgement: {other:?}"),
            }
        }
    }

    /// Publishes at QoS 1 and returns the reason code of PUBACK.
    pub fn publish_acknowledged(&mut self, topic: &str, payload: impl AsRef<[u8]>) -> ReasonCode {
        let id = self.publish(topic, payload, QoS::AtLeastOnce);
        match self.receive() {
            Received::PubAck(acknowledged, reason) if acknowledged == id => reason,
            other => panic!("no PUBACK: {other:?}"),
        }
    }

    /// Subscribes and waits for SUBACK, which must come first; returns its reason code.
    pub fn try_subscribe(&mut self, filter: &str, qos: QoS) -> ReasonCode {
        let id = self.send_subscribe(&[filter], qos);
        match self.receive() {
            Received::SubAck(acknowledged, reasons) if acknowledged == id => {
                assert_eq!(reasons.len(), 1);
                reasons[0]
            }
            other => panic!("no SUBACK: {other:?}"),
        }
    }

    /// Subscribes; the broker must grant the QoS.
    pub fn subscribe(&mut self, filter: &str, qos: QoS) {
        assert_eq!(self.try_subscribe(filter, qos), ReasonCode::granted(qos));
    }

    /// Sends SUBSCRIBE and waits for nothing.
    pub fn send_subscribe(&mut self, filters: &[&str], maximum_qos: QoS) -> u16 {
        let packet_id = self.next_id();
        let options = SubscriptionOptions {
            maximum_qos,
            ..SubscriptionOptions::default()
        };
        self.send(&Packet::Subscribe(Subscribe {
            packet_id,
            properties: Properties::EMPTY,
            filters: filters
                .iter()
                .map(|filter| (text(filter), options))
                .collect(),
        }));
        packet_id.get()
    }

    /// Sends UNSUBSCRIBE and waits for nothing.
    pub fn send_unsubscribe(&mut self, filter: &str) -> u16 {
        self.send_unsubscribe_all(&[filter])
    }

    fn send_unsubscribe_all(&mut self, filters: &[&str]) -> u16 {
        let packet_id = self.next_id();
        self.send(&Packet::Unsubscribe(Unsubscribe {
            packet_id,
            properties: Properties::EMPTY,
            filters: filters.iter().map(|filter| text(filter)).collect(),
        }));
        packet_id.get()
    }

    /// One UNSUBSCRIBE with these filters; the codes of its UNSUBACK.
    pub fn unsubscribe_all(&mut self, filters: &[&str]) -> Vec<ReasonCode> {
        let packet_id = self.send_unsubscribe_all(filters);
        match self.receive() {
            Received::UnsubAck(id, reasons) if id == packet_id => reasons,
            other => panic!("no UNSUBACK: {other:?}"),
        }
    }

    pub fn unsubscribe(&mut self, filter: &str) -> ReasonCode {
        let reasons = self.unsubscribe_all(&[filter]);
        reasons.first().copied().unwrap_or(ReasonCode::SUCCESS)
    }

    /// PINGREQ, and PINGRESP before anything else: there is nothing that the client did not read.
    pub fn ping(&mut self) {
        self.send(&Packet::PingReq);
        assert_eq!(self.receive(), Received::PingResp);
    }

    /// The next message, which must be the next packet; it is not acknowledged.
    pub fn message(&mut self) -> Message {
        match self.receive() {
            Received::Publish(message) => message,
            other => panic!("no message: {other:?}"),
        }
    }

    /// The next message, acknowledged; releases of earlier ones are completed on the way.
    pub fn take_message(&mut self) -> Message {
        loop {
            match self.receive() {
                Received::Publish(message) => {
                    self.acknowledge(&message);
                    return message;
                }
                Received::PubRel(id, _) => self.pubcomp(id),
                other => panic!("no message: {other:?}"),
            }
        }
    }

    /// The client's first answer to `message`.
    pub fn acknowledge(&mut self, message: &Message) {
        let Some(id) = PacketId::new(message.packet_id) else {
            return;
        };
        let ack = Ack::success(id);
        self.send(&match message.qos {
            QoS::ExactlyOnce => Packet::PubRec(ack),
            _ => Packet::PubAck(ack),
        });
    }

    pub fn pubrel(&mut self, id: u16) {
        self.send(&Packet::PubRel(success(id)));
    }

    pub fn pubcomp(&mut self, id: u16) {
        self.send(&Packet::PubComp(success(id)));
    }

    /// Sees that the broker neither says anything nor closes for this long.
    pub fn hears_nothing_for(&mut self, time: Duration) {
        assert_eq!(self.take_packet(), None);
        self.set_read_timeout(time);
        let start = Instant::now();
        let kind = self.read_byte().map_err(|error| error.kind());
        assert_eq!(
            kind,
            Err(ErrorKind::WouldBlock),
            "after {:?}",
            start.elapsed()
        );
        self.set_read_timeout(DEADLINE);
    }

    fn read_byte(&mut self) -> std::io::Result<usize> {
        let mut byte = [0; 1];
        loop {
            match self.stream.read(&mut byte) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Whether the broker closes within this time; what it says before is thrown away.
    pub fn is_closed_within(&mut self, time: Duration) -> bool {
        self.set_read_timeout(time);
        let mut bytes = [0; 1024];
        let closed = loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => break true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break false,
                Err(_) => break true,
            }
        };
        self.set_read_timeout(DEADLINE);
        closed
    }

    fn set_read_timeout(&mut self, time: Duration) {
        let set = self.stream.set_read_timeout(Some(time));
        set.expect("a timeout");
    }

    /// Leaves in order and sees the broker close.
    pub fn disconnect(mut self) {
        self.send(&Packet::Disconnect(Disconnect {
            reason: ReasonCode::NORMAL_DISCONNECTION,
            properties: Properties::EMPTY,
        }));
        self.until_closed();
    }

    /// Closes the sending half, without DISCONNECT.
    pub fn half_close(&self) {
        let closed = self.stream.shutdown(Shutdown::Write);
        closed.expect("a connection");
    }

    /// Ends the connection without a word.
    pub fn vanish(self) {
        // A shutdown, so that bytes that were never read do not turn it into a reset.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

fn properties_of<'a>(packet: &Packet<'a>) -> Properties<'a> {
    match packet {
        Packet::ConnAck(packet) => packet.properties,
        Packet::PubAck(ack) | Packet::PubRec(ack) | Packet::PubRel(ack) | Packet::PubComp(ack) => {
            ack.properties
        }
        Packet::SubAck(packet) => packet.properties,
        Packet::UnsubAck(packet) => packet.properties,
        Packet::Disconnect(packet) => packet.properties,
        Packet::Auth(packet) => packet.properties,
        _ => Properties::EMPTY,
    }
}

fn success(id: u16) -> Ack<'static> {
    Ack::success(PacketId::new(id).expect("not 0"))
}

impl From<Packet<'_>> for Received {
    fn from(packet: Packet<'_>) -> Self {
        match packet {
            Packet::ConnAck(ack) => Self::ConnAck {
                session_present: ack.session_present,
                reason: ack.reason,
            },
            Packet::Publish(publish) => Self::Publish(Message::from(publish)),
            Packet::PubAck(ack) => Self::PubAck(ack.packet_id.get(), ack.reason),
            Packet::PubRec(ack) => Self::PubRec(ack.packet_id.get(), ack.reason),
            Packet::PubRel(ack) => Self::PubRel(ack.packet_id.get(), ack.reason),
            Packet::PubComp(ack) => Self::PubComp(ack.packet_id.get(), ack.reason),
            Packet::SubAck(ack) => Self::SubAck(ack.packet_id.get(), ack.reasons),
            Packet::UnsubAck(ack) => Self::UnsubAck(ack.packet_id.get(), ack.reasons),
            Packet::PingResp => Self::PingResp,
            Packet::Disconnect(disconnect) => Self::Disconnect(disconnect.reason),
            Packet::Auth(auth) => Self::Auth(auth.reason, auth.properties.into()),
            other => panic!("no packet of a broker's: {other:?}"),
        }
    }
}

impl From<Publish<'_>> for Message {
    fn from(publish: Publish<'_>) -> Self {
        let ids = publish
            .properties
            .iter()
            .filter_map(|property| match property {
                Property::SubscriptionIdentifier(id) => Some(id.get()),
                _ => None,
            });
        Self {
            topic: publish.topic.as_str().into(),
            payload: publish.payload.into(),
            qos: publish.delivery.qos(),
            packet_id: publish.delivery.packet_id().map_or(0, PacketId::get),
            retain: publish.retain,
            dup: publish.delivery.dup(),
            subscription_ids: ids.collect(),
            expiry_s: publish.properties.message_expiry_interval(),
            properties: publish.properties.as_bytes().into(),
        }
    }
}
