//! The few packets of MQTT 3.1.1 and 5.0 that the load needs, written and read in place.

use std::ops::Range;

/// Bytes at the start of every payload: publisher (4), sequence (8), send time in nanoseconds (8).
pub const STAMP_BYTES: usize = 20;

/// What clients of the load speak.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Version {
    /// MQTT 3.1.1.
    V3,
    /// MQTT 5.0, with this Topic Alias Maximum.
    V5(u16),
}

impl Version {
    /// A property length of zero, where packets have one.
    fn no_properties(self) -> &'static [u8] {
        match self {
            Self::V3 => &[],
            Self::V5(_) => &[0],
        }
    }
}

/// What a payload says about itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stamp {
    /// Which publisher sent it.
    pub publisher: u32,
    /// Its place among the publisher's messages, from 0.
    pub sequence: u64,
    /// When it was written, in nanoseconds since the run began.
    pub sent_ns: u64,
}

impl Stamp {
    /// Reads the stamp of a payload; `None` when the payload is too short to be ours.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let (publisher, rest) = payload.split_first_chunk()?;
        let (sequence, rest) = rest.split_first_chunk()?;
        let (sent_ns, _) = rest.split_first_chunk()?;
        Some(Self {
            publisher: u32::from_be_bytes(*publisher),
            sequence: u64::from_be_bytes(*sequence),
            sent_ns: u64::from_be_bytes(*sent_ns),
        })
    }

    fn write(self, payload: &mut [u8]) {
        payload[..4].copy_from_slice(&self.publisher.to_be_bytes());
        payload[4..12].copy_from_slice(&self.sequence.to_be_bytes());
        payload[12..STAMP_BYTES].copy_from_slice(&self.sent_ns.to_be_bytes());
    }
}

/// One publisher's PUBLISH, encoded once and stamped for each message.
#[derive(Clone, Debug)]
pub struct PublishTemplate {
    bytes: Vec<u8>,
    packet_id: Option<Range<usize>>,
    payload: Range<usize>,
}

impl PublishTemplate {
    /// A PUBLISH to `topic` with `payload_bytes` of payload, at least [`STAMP_BYTES`].
    pub fn new(topic: &str, qos: u8, payload_bytes: usize, version: Version) -> Self {
        let payload_bytes = payload_bytes.max(STAMP_BYTES);
        let id_bytes = if qos == 0 { 0 } else { 2 };
        let properties = version.no_properties();
        let head_bytes = 2 + topic.len() + id_bytes + properties.len();
        let mut bytes = vec![0x30 | (qos << 1)];
        push_remaining_length(&mut bytes, head_bytes + payload_bytes);
        push_text(&mut bytes, topic);
        let packet_id = (qos > 0).then(|| bytes.len()..bytes.len() + 2);
        bytes.resize(bytes.len() + id_bytes, 0);
        bytes.extend_from_slice(properties);
        let payload = bytes.len()..bytes.len() + payload_bytes;
        bytes.resize(payload.end, b'x');
        Self {
            bytes,
            packet_id,
            payload,
        }
    }

    /// Appends one stamped message to `out`.
    pub fn append(&self, out: &mut Vec<u8>, stamp: Stamp) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let message = &mut out[start..];
        if let Some(place) = &self.packet_id {
            message[place.clone()].copy_from_slice(&packet_id(stamp.sequence).to_be_bytes());
        }
        stamp.write(&mut message[self.payload.clone()]);
    }

    /// The two bytes of the packet id in a message of this form; zeros at QoS 0.
    pub fn packet_id_of(&self, message: &[u8]) -> [u8; 2] {
        let place = self.packet_id.clone().and_then(|place| message.get(place));
        let id = place.and_then(|place| place.first_chunk());
        id.copied().unwrap_or_default()
    }
}

/// The packet id of a publisher's message: 1 to 65,535 in turn.
fn packet_id(sequence: u64) -> u16 {
    u16::try_from(sequence % 65_535 + 1).unwrap_or(1)
}

/// A retained PUBLISH at QoS 0.
pub fn retained(topic: &str, payload_bytes: usize, version: Version) -> Vec<u8> {
    let mut message = PublishTemplate::new(topic, 0, payload_bytes, version);
    message.bytes[0] |= 1;
    message.bytes
}

/// PINGREQ.
pub const PINGREQ: [u8; 2] = [0xc0, 0];
/// PINGRESP.
pub const PINGRESP: [u8; 2] = [0xd0, 0];

/// DISCONNECT, of each version.
pub const DISCONNECT: [u8; 2] = [0xe0, 0];

/// A CONNECT with a keep-alive of five minutes; without Clean Session if the session is `kept`.
pub fn connect(client_id: &str, kept: bool, version: Version) -> Vec<u8> {
    let mut head = Vec::new();
    push_text(&mut head, "MQTT");
    let level = if version == Version::V3 { 4 } else { 5 };
    head.extend_from_slice(&[level, if kept { 0 } else { 0x02 }, 0x01, 0x2c]);
    if let Version::V5(aliases) = version {
        let [high, low] = aliases.to_be_bytes();
        let expiry = if kept { [0xff; 4] } else { [0; 4] };
        head.extend_from_slice(&[8, 0x22, high, low, 0x11]);
        head.extend_from_slice(&expiry);
    }
    push_text(&mut head, client_id);
    let mut out = vec![0x10];
    push_remaining_length(&mut out, head.len());
    out.extend_from_slice(&head);
    out
}

/// A SUBSCRIBE with packet id 1.
pub fn subscribe(filters: &[impl AsRef<str>], qos: u8, version: Version) -> Vec<u8> {
    let mut body = vec![0, 1];
    body.extend_from_slice(version.no_properties());
    for filter in filters {
        push_text(&mut body, filter.as_ref());
        body.push(qos);
    }
    let mut out = vec![0x82];
    push_remaining_length(&mut out, body.len());
    out.extend_from_slice(&body);
    out
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn push_remaining_length(out: &mut Vec<u8>, mut length: usize) {
    loop {
        let low = u8::try_from(length % 128).unwrap_or(0);
        length /= 128;
        out.push(if length > 0 { low | 0x80 } else { low });
        if length == 0 {
            return;
        }
    }
}

/// One packet that the broker sent, as far as the load cares.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Received<'a> {
    /// PUBLISH: its quality of service, its packet id (0 at QoS 0) and its payload.
    Publish {
        /// 0, 1 or 2.
        qos: u8,
        /// Two bytes as they stood on the wire.
        packet_id: [u8; 2],
        /// The application message.
        payload: &'a [u8],
    },
    /// PUBACK.
    PubAck,
    /// PUBREC with its packet id.
    PubRec([u8; 2]),
    /// PUBREL with its packet id.
    PubRel([u8; 2]),
    /// PUBCOMP.
    PubComp,
    /// Anything else.
    Other(u8),
}

/// Splits the first whole packet off `bytes`; `Ok(None)` when it is not whole yet.
///
/// # Errors
///
/// A text when the bytes are no packet.
pub fn read(bytes: &[u8], version: Version) -> Result<Option<(Received<'_>, usize)>, &'static str> {
    let Some((&first, rest)) = bytes.split_first() else {
        return Ok(None);
    };
    let Some((length, length_bytes)) = remaining_length(rest)? else {
        return Ok(None);
    };
    let Some(body) = rest.get(length_bytes..length_bytes + length) else {
        return Ok(None);
    };
    let packet = match first >> 4 {
        3 => publish(first, body, version)?,
        4 => Received::PubAck,
        5 => Received::PubRec(leading_id(body)?),
        6 => Received::PubRel(leading_id(body)?),
        7 => Received::PubComp,
        other => Received::Other(other),
    };
    Ok(Some((packet, 1 + length_bytes + length)))
}

fn publish(first: u8, body: &[u8], version: Version) -> Result<Received<'_>, &'static str> {
    const SHORT: &str = "PUBLISH ends inside its head";
    let qos = (first >> 1) & 3;
    let (length, rest) = body.split_first_chunk::<2>().ok_or(SHORT)?;
    let rest = rest
        .get(usize::from(u16::from_be_bytes(*length))..)
        .ok_or(SHORT)?;
    let (packet_id, mut payload) = match qos {
        0 => ([0, 0], rest),
        _ => rest
            .split_first_chunk()
            .map(|(id, payload)| (*id, payload))
            .ok_or(SHORT)?,
    };
    if version != Version::V3 {
        let (length, length_bytes) = remaining_length(payload)?.ok_or(SHORT)?;
        payload = payload.get(length_bytes + length..).ok_or(SHORT)?;
    }
    Ok(Received::Publish {
        qos,
        packet_id,
        payload,
    })
}

fn leading_id(body: &[u8]) -> Result<[u8; 2], &'static str> {
    body.first_chunk()
        .copied()
        .ok_or("acknowledgement without packet id")
}

fn remaining_length(bytes: &[u8]) -> Result<Option<(usize, usize)>, &'static str> {
    let mut length = 0;
    for (place, byte) in bytes.iter().take(4).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Ok(Some((length, place + 1)));
        }
    }
    if bytes.len() < 4 {
        return Ok(None);
    }
    Err("remaining length of more than four bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp {
        publisher: 7,
        sequence: 65_535,
        sent_ns: 99,
    };

    #[test]
    fn connect_is_the_bytes_of_a_clean_session_of_3_1_1() {
        assert_eq!(
            connect("a", false, Version::V3),
            b"\x10\x0d\x00\x04MQTT\x04\x02\x01\x2c\x00\x01a"
        );
        assert_eq!(connect("a", true, Version::V3)[9], 0);
    }

    #[test]
    fn subscribe_asks_for_its_filters() {
        assert_eq!(
            subscribe(&["a/b", "+"], 1, Version::V3),
            b"\x82\x0c\x00\x01\x00\x03a/b\x01\x00\x01+\x01"
        );
    }

    #[test]
    fn a_message_of_quality_0_is_read_back_whole() {
        let mut out = Vec::new();
        PublishTemplate::new("a/b", 0, 64, Version::V3).append(&mut out, STAMP);

        let (packet, length) = read(&out, Version::V3).unwrap().unwrap();

        assert_eq!(out[..7], *b"\x30\x45\x00\x03a/b");
        assert_eq!(
            retained("a/b", 64, Version::V3)[..7],
            *b"\x31\x45\x00\x03a/b"
        );
        assert_eq!(length, out.len());
        let Received::Publish {
            qos: 0, payload, ..
        } = packet
        else {
            panic!("{packet:?}");
        };
        assert_eq!(payload.len(), 64);
        assert_eq!(Stamp::read(payload), Some(STAMP));
    }

    #[test]
    fn packet_ids_start_at_1_and_wrap_before_65536() {
        assert_eq!(packet_id(0), 1);
        assert_eq!(packet_id(65_534), 65_535);
        assert_eq!(packet_id(65_535), 1);
    }

    #[test]
    fn a_message_of_quality_2_carries_its_packet_id() {
        let mut out = Vec::new();
        PublishTemplate::new("t", 2, 200, Version::V3).append(&mut out, STAMP);

        let (packet, _) = read(&out, Version::V3).unwrap().unwrap();

        assert_eq!(out[..3], *b"\x34\xcd\x01");
        let Received::Publish {
            qos: 2,
            packet_id,
            payload,
        } = packet
        else {
            panic!("{packet:?}");
        };
        assert_eq!(packet_id, [0, 1]);
        assert_eq!(payload.len(), 200);
    }

    #[test]
    fn a_torn_packet_waits_for_the_rest() {
        let mut out = Vec::new();
        PublishTemplate::new("t", 1, 200, Version::V3).append(&mut out, STAMP);

        for cut in 0..out.len() {
            assert_eq!(read(&out[..cut], Version::V3), Ok(None), "cut at {cut}");
        }
    }

    #[test]
    fn packets_of_5_0_have_properties() {
        let version = Version::V5(10);
        let mut out = Vec::new();
        PublishTemplate::new("t", 0, 20, version).append(&mut out, STAMP);
        // topic alias 1 in place of the topic
        let aliased = [b"\x30\x1a\x00\x00\x03\x23\x00\x01", &out[6..]].concat();

        assert_eq!(
            connect("a", false, version),
            b"\x10\x16\x00\x04MQTT\x05\x02\x01\x2c\x08\x22\x00\x0a\x11\x00\x00\x00\x00\x00\x01a"
        );
        assert_eq!(
            subscribe(&["a/b"], 1, version),
            b"\x82\x09\x00\x01\x00\x00\x03a/b\x01"
        );
        for bytes in [out, aliased] {
            let (packet, length) = read(&bytes, version).unwrap().unwrap();
            let Received::Publish { payload, .. } = packet else {
                panic!("{packet:?}");
            };
            assert_eq!((Stamp::read(payload), length), (Some(STAMP), bytes.len()));
        }
    }

    #[test]
    fn a_fifth_length_byte_is_refused() {
        assert!(read(&[0x30, 0x80, 0x80, 0x80, 0x80, 1], Version::V3).is_err());
    }
}
