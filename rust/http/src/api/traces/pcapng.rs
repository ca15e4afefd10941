//! Traced packets as a pcapng file: MQTT in synthetic TCP segments, so that Wireshark decodes it.
//!
//! Each connection has the address of its client, a fixed address for the broker, and running sequence numbers.
//! Packets of TLS and WebSocket clients are written as plain MQTT. Source: draft-ietf-opsawg-pcapng, RFC 791, RFC
//! 8200, RFC 9293.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use mqttcore_broker::{Peer, TraceDirection, TracedPacket};
use mqttcore_codec::{Connect, Packet, PacketType, Properties, ProtocolVersion, Text, encode};

use super::lines::unix_us;
use super::segment::{ACK, Endpoints, PSH, SYN, Segment};

/// Addresses of the broker and of clients of Unix sockets in the file (RFC 5737, RFC 3849).
const BROKER_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const BROKER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xDB8, 0, 0, 0, 0, 0, 1);
const LOCAL_CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const MQTT_PORT: u16 = 1883;
/// Bytes of a packet in one segment; IP has room for 65,535.
const SEGMENT_BYTES: usize = 60_000;

/// Raw IP, by the list of link types.
const LINKTYPE_RAW: u16 = 101;
const SECTION_HEADER: u32 = 0x0A0D_0D0A;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;

const MADE: &str = "not captured: made, so that the protocol version of the connection is known";

/// A file in the making.
#[derive(Default)]
pub(super) struct Capture {
    connections: HashMap<Key, Connection>,
    /// Connections so far.
    count: u32,
}

/// A connection: by address, or by client identifier for a Unix socket.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Key {
    Address(SocketAddr),
    Local(Arc<str>),
}

struct Connection {
    endpoints: Endpoints,
    /// Next sequence numbers of the client and of the broker.
    next: [u32; 2],
}

/// The beginning of each file.
pub(super) fn header() -> Vec<u8> {
    let mut out = Vec::new();
    let mut section = Vec::new();
    section.extend(0x1A2B_3C4D_u32.to_le_bytes());
    section.extend(1_u16.to_le_bytes());
    section.extend(0_u16.to_le_bytes());
    // The length of the section is not given.
    section.extend(u64::MAX.to_le_bytes());
    block(SECTION_HEADER, &section, &mut out);
    let mut interface = Vec::new();
    interface.extend(LINKTYPE_RAW.to_le_bytes());
    interface.extend(0_u16.to_le_bytes());
    interface.extend(0_u32.to_le_bytes());
    block(INTERFACE_DESCRIPTION, &interface, &mut out);
    out
}

impl Capture {
    /// Appends a packet; an event is left out.
    pub(super) fn add(&mut self, traced: &TracedPacket, out: &mut Vec<u8>) {
        let Some(key) = key_of(traced).filter(|_| !traced.packet.is_empty()) else {
            return;
        };
        let ts_us = unix_us(traced.at);
        let first = traced.packet.first().copied().unwrap_or_default();
        let begins = PacketType::of(first) == Some(PacketType::Connect);
        if begins || !self.connections.contains_key(&key) {
            let mut connection = self.open(&key);
            connection.shake_hands(ts_us, out);
            if !begins {
                let connect = connect_packet(traced.version);
                connection.send(false, &connect, (ts_us, Some(MADE)), out);
            }
            self.connections.insert(key.clone(), connection);
        }
        if let Some(connection) = self.connections.get_mut(&key) {
            let comment = comment(traced);
            let is_broker = traced.direction == TraceDirection::Out;
            connection.send(is_broker, &traced.packet, (ts_us, comment.as_deref()), out);
        }
    }

    fn open(&mut self, key: &Key) -> Connection {
        self.count = self.count.wrapping_add(1);
        // Another number each time, so that a port that is used again is a new connection.
        let start = self.count.wrapping_mul(0x0101_0101);
        Connection {
            endpoints: endpoints(key, self.count),
            next: [start, start],
        }
    }
}

impl Connection {
    fn shake_hands(&mut self, ts_us: u64, out: &mut Vec<u8>) {
        for (is_broker, flags) in [(false, SYN), (true, SYN | ACK), (false, ACK)] {
            self.segment(is_broker, flags, &[], (ts_us, None), out);
        }
    }

    /// Appends an MQTT packet in as many segments as it needs.
    fn send(
        &mut self,
        is_broker: bool,
        packet: &[u8],
        (ts_us, comment): (u64, Option<&str>),
        out: &mut Vec<u8>,
    ) {
        for part in packet.chunks(SEGMENT_BYTES) {
            self.segment(is_broker, PSH | ACK, part, (ts_us, comment), out);
        }
    }

    fn segment(
        &mut self,
        is_broker: bool,
        flags: u8,
        payload: &[u8],
        (ts_us, comment): (u64, Option<&str>),
        out: &mut Vec<u8>,
    ) {
        let (own, other) = (usize::from(is_broker), usize::from(!is_broker));
        let segment = Segment {
            endpoints: if is_broker {
                self.endpoints.reversed()
            } else {
                self.endpoints
            },
            sequence: self.next[own],
            acknowledged: if flags & ACK == 0 {
                0
            } else {
                self.next[other]
            },
            flags,
            payload,
        };
        let bytes = segment.to_ip();
        // SYN counts as a byte.
        let len = u32::try_from(payload.len()).unwrap_or(0) + u32::from(flags & SYN != 0);
        self.next[own] = self.next[own].wrapping_add(len);
        enhanced_packet(&bytes, ts_us, comment, out);
    }
}

fn key_of(traced: &TracedPacket) -> Option<Key> {
    match traced.peer? {
        Peer::Tcp { ip, port } => Some(Key::Address(SocketAddr::new(ip, port))),
        Peer::Unix { .. } => Some(Key::Local(Arc::clone(&traced.client_id))),
    }
}

fn endpoints(key: &Key, count: u32) -> Endpoints {
    let (client, port) = match key {
        Key::Address(address) => (address.ip().to_canonical(), address.port()),
        // The ports from 49,152 on are for such uses.
        Key::Local(_) => {
            let port = 0xC000 | u16::try_from(count & 0x3FFF).unwrap_or_default();
            (LOCAL_CLIENT.into(), port)
        }
    };
    let broker = match client {
        IpAddr::V4(_) => BROKER_V4.into(),
        IpAddr::V6(_) => BROKER_V6.into(),
    };
    Endpoints {
        from: (client, port),
        to: (broker, MQTT_PORT),
    }
}

/// A comment about data that the file cannot show otherwise.
fn comment(traced: &TracedPacket) -> Option<String> {
    let mut words = Vec::new();
    if traced.packet.len() != traced.bytes {
        words.push(format!(
            "{} bytes on the wire: a part is left out",
            traced.bytes
        ));
    }
    if let Some(topic) = &traced.topic {
        words.push(format!("topic in the broker: {topic:?}"));
    }
    (!words.is_empty()).then(|| words.join("; "))
}

/// A CONNECT for a connection whose own is not in the trace.
fn connect_packet(version: ProtocolVersion) -> Vec<u8> {
    let mut out = Vec::new();
    let connect = Connect {
        version,
        is_bridge: false,
        clean_start: true,
        keep_alive_s: 0,
        properties: Properties::EMPTY,
        // 3.1 wants one.
        client_id: Text::new("made").unwrap_or(Text::EMPTY),
        will: None,
        username: None,
        password: None,
    };
    let encoded = encode(&Packet::Connect(connect), version, &mut out);
    debug_assert!(encoded.is_ok(), "a bare CONNECT encodes");
    out
}

fn enhanced_packet(bytes: &[u8], ts_us: u64, comment: Option<&str>, out: &mut Vec<u8>) {
    let mut body = Vec::new();
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    body.extend(0_u32.to_le_bytes());
    // The upper half of the time comes first.
    let time = ts_us.to_le_bytes();
    body.extend(&time[4..]);
    body.extend(&time[..4]);
    body.extend(len.to_le_bytes());
    body.extend(len.to_le_bytes());
    body.extend(bytes);
    pad(&mut body);
    if let Some(comment) = comment {
        let comment = comment.as_bytes();
        let comment = &comment[..comment.len().min(usize::from(u16::MAX))];
        body.extend(OPTION_COMMENT.to_le_bytes());
        body.extend(
            u16::try_from(comment.len())
                .unwrap_or_default()
                .to_le_bytes(),
        );
        body.extend(comment);
        pad(&mut body);
        body.extend(OPTION_END.to_le_bytes());
        body.extend(0_u16.to_le_bytes());
    }
    block(ENHANCED_PACKET, &body, out);
}

/// Appends a block: its type, its length in front and behind, and its body, a multiple of 4 bytes.
fn block(kind: u32, body: &[u8], out: &mut Vec<u8>) {
    let len = u32::try_from(body.len() + 12).unwrap_or(u32::MAX);
    out.extend(kind.to_le_bytes());
    out.extend(len.to_le_bytes());
    out.extend(body);
    out.extend(len.to_le_bytes());
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}
