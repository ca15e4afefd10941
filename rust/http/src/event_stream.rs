//! A response body of events that arrive while it is sent.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::Bytes;
use tokio::sync::mpsc;

/// The events for one reader.
#[derive(Debug)]
pub(crate) struct EventStream(mpsc::Receiver<Bytes>);

impl EventStream {
    /// A stream and its sender; `waiting` events can wait for the reader. The stream ends when the sender is dropped.
    pub(crate) fn new(waiting: usize) -> (mpsc::Sender<Bytes>, Self) {
        let (sender, receiver) = mpsc::channel(waiting);
        (sender, Self(receiver))
    }

    /// The next event; `None` at the end.
    pub(crate) fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.get_mut().0.poll_recv(cx)
    }

    /// The next event, if it is there.
    #[cfg(test)]
    pub(crate) fn next(&mut self) -> Option<Bytes> {
        self.0.try_recv().ok()
    }
}
