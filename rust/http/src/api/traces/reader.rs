//! Sends the packets of a trace to an HTTP client, as fast as it reads them.

use std::sync::Arc;

use mqttcore_broker::{Trace, TracedPacket};
use serde::Deserialize;
use utoipa::ToSchema;

use super::super::ApiState;
use super::super::readers::{Gone, PIECE_BYTES, Pieces, Progress, add_lost, send, stream};
use super::super::scope::Scope;
use super::lines::LineFormat;
use super::pcapng::{self, Capture};

/// Packets that are taken out of a trace at once.
const BATCH: usize = 256;

/// The format of a file.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum FileFormat {
    #[default]
    Json,
    Text,
    Pcapng,
}

impl FileFormat {
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/x-ndjson",
            Self::Text => "text/plain; charset=utf-8",
            Self::Pcapng => "application/x-pcapng",
        }
    }
}

/// Writes a file.
enum FileWriter {
    Lines(LineFormat),
    Pcapng(Box<Capture>),
}

impl FileWriter {
    fn new(format: FileFormat) -> Self {
        match format {
            FileFormat::Json => Self::Lines(LineFormat::Json),
            FileFormat::Text => Self::Lines(LineFormat::Text),
            FileFormat::Pcapng => Self::Pcapng(Box::default()),
        }
    }

    fn header(&self) -> Vec<u8> {
        match self {
            Self::Lines(_) => Vec::new(),
            Self::Pcapng(_) => pcapng::header(),
        }
    }

    /// Appends a packet, behind `lost` missing ones.
    fn add(&mut self, packet: &TracedPacket, lost: u64, out: &mut Vec<u8>) {
        match self {
            Self::Lines(format) => {
                let lost = (lost > 0).then(|| format.lost(lost));
                for line in lost.into_iter().chain([format.line(packet)]) {
                    out.extend(line.into_bytes());
                    out.push(b'\n');
                }
            }
            Self::Pcapng(capture) => capture.add(packet, out),
        }
    }
}

/// Sends the packets that a trace has now.
pub(super) async fn send_file(
    trace: Arc<Trace>,
    format: FileFormat,
    sender: Pieces,
) -> Result<(), Gone> {
    let mut writer = FileWriter::new(format);
    let mut out = writer.header();
    let (end, mut after) = (trace.figures().last, 0);
    loop {
        let batch = trace.read(after, BATCH);
        let is_end = batch.packets.len() < BATCH;
        for packet in batch.packets.iter().filter(|packet| packet.number <= end) {
            writer.add(packet, packet.number - after - 1, &mut out);
            after = packet.number;
            if out.len() >= PIECE_BYTES {
                send(&sender, &mut out).await?;
            }
        }
        if is_end || after >= end {
            return send(&sender, &mut out).await;
        }
    }
}

/// A stream of the packets of a trace.
pub(super) struct LiveReader {
    pub(super) trace: Arc<Trace>,
    /// The number of the last packet that was sent.
    pub(super) after: u64,
    pub(super) format: LineFormat,
    pub(super) state: ApiState,
    /// SHA-256 of the key that asked, if it was one.
    pub(super) key: Option<[u8; 32]>,
}

impl LiveReader {
    /// Sends packets until the trace has ended or the key is not in force.
    pub(super) async fn send(mut self, sender: Pieces) -> Result<(), Gone> {
        stream(sender, "packets of a trace", |out| self.add_batch(out)).await
    }

    fn add_batch(&mut self, out: &mut Vec<u8>) -> Progress {
        if !self.is_admitted() {
            return Progress::End;
        }
        let batch = self.trace.read(self.after, BATCH);
        for packet in &batch.packets {
            if out.len() >= PIECE_BYTES {
                return Progress::More;
            }
            self.add(packet, out);
        }
        if batch.is_last {
            out.extend(b"event: end\ndata: {}\n\n");
            return Progress::End;
        }
        if batch.packets.len() < BATCH {
            Progress::Waiting
        } else {
            Progress::More
        }
    }

    fn is_admitted(&self) -> bool {
        self.key.as_ref().is_none_or(|key| {
            [Scope::Operate, Scope::Payload]
                .into_iter()
                .all(|scope| self.state.admits(key, scope))
        })
    }

    /// Appends a packet as an event, behind one that counts missing packets.
    fn add(&mut self, packet: &TracedPacket, out: &mut Vec<u8>) {
        let number = packet.number;
        add_lost(number.saturating_sub(self.after.saturating_add(1)), out);
        let line = self.format.line(packet);
        out.extend(format!("id: {number}\nevent: packet\ndata: {line}\n\n").into_bytes());
        self.after = number;
    }
}
