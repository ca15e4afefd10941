//! A traced packet as a line: JSON, or text for people.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use mqttcore_broker::{TraceDirection, TracedPacket, timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::fields::{PacketFields, fields_of};

/// A line in JSON. The order of the fields is that of the text.
#[derive(Serialize)]
struct TraceLine<'a> {
    number: u64,
    ts_us: u64,
    dir: &'static str,
    client_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    packet: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fields: Option<PacketFields>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
}

/// How lines are written.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum LineFormat {
    #[default]
    Json,
    Text,
}

impl LineFormat {
    /// A packet as a line, without a line break at its end or in it.
    pub(super) fn line(self, packet: &TracedPacket) -> String {
        let line = TraceLine::of(packet);
        match self {
            Self::Json => serde_json::to_string(&line).unwrap_or_default(),
            Self::Text => line.text(packet.at),
        }
    }

    /// A line about packets that are missing.
    pub(super) fn lost(self, count: u64) -> String {
        match self {
            Self::Json => format!("{{\"dir\":\"broker\",\"lost\":{count}}}"),
            Self::Text => format!("-- {count} packets are missing here --"),
        }
    }
}

/// Microseconds since 1970.
pub(in crate::api) fn unix_us(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

impl<'a> TraceLine<'a> {
    fn of(packet: &'a TracedPacket) -> Self {
        let peer = packet.peer.map(|peer| peer.host_and_port());
        let (ip, port) = peer.unzip();
        let (name, fields) = fields_of(packet).unzip();
        Self {
            number: packet.number,
            ts_us: unix_us(packet.at),
            dir: match packet.direction {
                TraceDirection::In => "in",
                TraceDirection::Out => "out",
                TraceDirection::Broker => "broker",
            },
            client_id: &packet.client_id,
            ip,
            port,
            version: packet.version.to_string(),
            bytes: name.is_some().then_some(packet.bytes),
            packet: name,
            fields,
            topic: packet.topic.as_deref(),
            note: packet.note.as_deref(),
        }
    }

    /// Time, direction, client, address, packet and fields. Texts of clients are quoted, and their control characters
    /// escaped.
    fn text(&self, at: SystemTime) -> String {
        let mut line = format!("{} {:6} {:?}", timestamp(at), self.dir, self.client_id);
        // Writing to a string does not fail.
        if let Some((ip, port)) = self.ip.as_ref().zip(self.port) {
            let _ = write!(line, " {ip}:{port}");
        }
        if let Some((packet, bytes)) = self.packet.as_ref().zip(self.bytes) {
            let _ = write!(line, " {packet} {bytes} B");
        }
        for (name, value) in self.fields.iter().flatten() {
            let _ = write!(line, " {name}=");
            write_value(value, &mut line);
        }
        if let Some(topic) = self.topic {
            let _ = write!(line, " in the broker: {topic:?}");
        }
        if let Some(note) = self.note {
            let _ = write!(line, " {}", note.escape_debug());
        }
        line
    }
}

fn write_value(value: &Value, line: &mut String) {
    match value {
        Value::String(text) => drop(write!(line, "{text:?}")),
        Value::Array(values) => {
            line.push('[');
            for (index, value) in values.iter().enumerate() {
                line.push_str(if index > 0 { ", " } else { "" });
                write_value(value, line);
            }
            line.push(']');
        }
        Value::Object(fields) => {
            line.push('{');
            for (index, (name, value)) in fields.iter().enumerate() {
                line.push_str(if index > 0 { ", " } else { "" });
                let _ = write!(line, "{name}: ");
                write_value(value, line);
            }
            line.push('}');
        }
        plain => drop(write!(line, "{plain}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_text_stays_in_its_line_and_in_its_quotes() {
        let value = serde_json::json!({"topic": "a\n\u{1b}[2J\u{202e}\u{9b}\"x", "list": ["b\r"]});
        let mut line = String::new();

        write_value(&value, &mut line);

        assert_eq!(
            line,
            r#"{list: ["b\r"], topic: "a\n\u{1b}[2J\u{202e}\u{9b}\"x"}"#
        );
    }
}
