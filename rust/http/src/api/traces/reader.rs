//! Sends the packets of a trace to an HTTP client, as fast as it reads them.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::response::Response;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use mqttcore_broker::{Trace, TracedPacket};
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use utoipa::ToSchema;

use crate::event_stream::EventStream;

use super::super::ApiState;
use super::super::events::StreamedEvents;
use super::super::problem::Problem;
use super::super::scope::Scope;
use super::lines::LineFormat;
use super::pcapng::{self, Capture};

/// Maximum number of readers of files and streams.
const READERS: usize = 16;
/// Packets that are taken out of a trace at once.
const BATCH: usize = 256;
/// Pieces that wait for a reader.
const WAITING: usize = 2;
/// A piece of a file is sent when it has so many bytes.
const PIECE_BYTES: usize = 64 << 10;
/// How long a stream waits for new packets before it looks again.
const LIVE_PAUSE: Duration = Duration::from_millis(100);
/// A stream without packets sends a comment so often, so that a reader that is gone is noticed.
const SILENCE: Duration = Duration::from_secs(15);

/// The places of readers.
#[derive(Debug)]
pub(in crate::api) struct TraceReaders {
    places: Arc<Semaphore>,
    is_closed: watch::Sender<bool>,
}

impl Default for TraceReaders {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(READERS)),
            is_closed: watch::Sender::new(false),
        }
    }
}

/// A reader that has a place.
pub(super) struct Admitted {
    _place: OwnedSemaphorePermit,
    sender: mpsc::Sender<Bytes>,
    is_closed: watch::Receiver<bool>,
}

/// The reader is gone.
pub(super) struct Gone;

/// Where pieces for a reader go.
pub(super) type Pieces = mpsc::Sender<Bytes>;

impl TraceReaders {
    /// Ends all streams and files, and refuses new ones.
    pub(in crate::api) fn close(&self) {
        self.places.close();
        self.is_closed.send_replace(true);
    }

    /// A place for a reader, and the response that it gets.
    ///
    /// # Errors
    ///
    /// There is no place.
    pub(super) fn admit(&self, media_type: &'static str) -> Result<(Admitted, Response), Problem> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| {
            let text = format!("{READERS} readers read traces, or the broker stops");
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", text).retry_after(1)
        })?;
        let (sender, stream) = EventStream::new(WAITING);
        let mut response = Response::new(Body::empty());
        let kind = HeaderValue::from_static(media_type);
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
            .extensions_mut()
            .insert(StreamedEvents::new(stream));
        let admitted = Admitted {
            _place: place,
            sender,
            is_closed: self.is_closed.subscribe(),
        };
        Ok((admitted, response))
    }
}

impl Admitted {
    /// Runs `send` until it is done, the reader is gone, or the endpoint stops.
    pub(super) async fn run<F>(mut self, send: impl FnOnce(Pieces) -> F)
    where
        F: Future<Output = Result<(), Gone>>,
    {
        let sender = self.sender.clone();
        let mut sending = pin!(send(self.sender));
        let mut gone = pin!(sender.closed());
        let mut closed = pin!(self.is_closed.wait_for(|is_closed| *is_closed));
        poll_fn(|cx| {
            let is_over = sending.as_mut().poll(cx).is_ready()
                || gone.as_mut().poll(cx).is_ready()
                || closed.as_mut().poll(cx).is_ready();
            if is_over {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

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

async fn send(sender: &Pieces, out: &mut Vec<u8>) -> Result<(), Gone> {
    if out.is_empty() {
        return Ok(());
    }
    let piece = Bytes::from(std::mem::take(out));
    sender.send(piece).await.map_err(|_| Gone)
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
        let mut last_sent = Instant::now();
        // The headers of the response are sent with the first piece.
        let mut out = b": packets of a trace\n\n".to_vec();
        loop {
            if !self.is_admitted() {
                return Ok(());
            }
            let batch = self.trace.read(self.after, BATCH);
            for packet in &batch.packets {
                self.add(packet, &mut out);
                if out.len() >= PIECE_BYTES {
                    send(&sender, &mut out).await?;
                }
            }
            if batch.is_last {
                out.extend(b"event: end\ndata: {}\n\n");
                return send(&sender, &mut out).await;
            }
            if out.is_empty() && last_sent.elapsed() >= SILENCE {
                out.extend(b": no packets\n\n");
            }
            if !out.is_empty() {
                last_sent = Instant::now();
                send(&sender, &mut out).await?;
            }
            if batch.packets.len() < BATCH {
                tokio::time::sleep(LIVE_PAUSE).await;
            }
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
        let lost = number.saturating_sub(self.after.saturating_add(1));
        if lost > 0 {
            let event = format!("event: lost\ndata: {{\"lost\":{lost}}}\n\n");
            out.extend(event.into_bytes());
        }
        let line = self.format.line(packet);
        out.extend(format!("id: {number}\nevent: packet\ndata: {line}\n\n").into_bytes());
        self.after = number;
    }
}
