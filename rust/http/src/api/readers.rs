//! Readers of long answers, which are sent as fast as each of them reads: files and streams of events.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::response::Response;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use crate::event_stream::EventStream;

use super::events::StreamedEvents;
use super::problem::Problem;

/// Maximum number of readers.
const READERS: usize = 16;
/// Pieces that wait for a reader.
const WAITING: usize = 2;
/// A piece is sent when it has so many bytes.
pub(super) const PIECE_BYTES: usize = 64 << 10;
/// How long a stream waits for new events before it looks again.
const LIVE_PAUSE: Duration = Duration::from_millis(100);
/// A stream without events sends a comment so often, so that a reader that is gone is noticed.
const SILENCE: Duration = Duration::from_secs(15);
/// The media type of streams of events.
pub(super) const EVENT_STREAM: &str = "text/event-stream";

/// The places of readers.
#[derive(Debug)]
pub(super) struct Readers {
    places: Arc<Semaphore>,
    is_closed: watch::Sender<bool>,
}

impl Default for Readers {
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

impl Readers {
    /// Ends all streams and files, and refuses new ones.
    pub(super) fn close(&self) {
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
            let text = format!("{READERS} readers read traces or deliveries, or the broker stops");
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

/// Sends a piece, unless it is empty.
pub(super) async fn send(sender: &Pieces, out: &mut Vec<u8>) -> Result<(), Gone> {
    if out.is_empty() {
        return Ok(());
    }
    let piece = Bytes::from(std::mem::take(out));
    sender.send(piece).await.map_err(|_| Gone)
}

/// How a stream of events goes on.
pub(super) enum Progress {
    /// More events may be there already.
    More,
    /// All events so far were added.
    Waiting,
    /// There will be no more events.
    End,
}

/// Sends a comment, then the events that `add` appends, until it returns [`Progress::End`].
pub(super) async fn stream(
    sender: Pieces,
    comment: &str,
    mut add: impl FnMut(&mut Vec<u8>) -> Progress,
) -> Result<(), Gone> {
    let mut last_sent = Instant::now();
    // The headers of the response are sent with the first piece.
    let mut out = format!(": {comment}\n\n").into_bytes();
    loop {
        let progress = add(&mut out);
        if out.is_empty() && last_sent.elapsed() >= SILENCE {
            out.extend(b": nothing new\n\n");
        }
        if !out.is_empty() {
            last_sent = Instant::now();
            send(&sender, &mut out).await?;
        }
        match progress {
            Progress::More => {}
            Progress::Waiting => tokio::time::sleep(LIVE_PAUSE).await,
            Progress::End => return Ok(()),
        }
    }
}

/// Appends an event that counts missing ones, if there are some.
pub(super) fn add_lost(lost: u64, out: &mut Vec<u8>) {
    if lost > 0 {
        let event = format!("event: lost\ndata: {{\"lost\":{lost}}}\n\n");
        out.extend(event.into_bytes());
    }
}
