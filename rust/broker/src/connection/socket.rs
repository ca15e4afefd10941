//! Bytes off a socket and onto it, whatever carries the packets.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tungstenite::protocol::frame::coding::CloseCode;

/// What one read brought: bytes off the socket, and bytes of packets among them, at the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input {
    pub(crate) raw: usize,
    pub(crate) payload: usize,
}

/// What one write took: bytes onto the socket, and bytes of the outbox among them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) raw: usize,
    pub(crate) payload: usize,
}

/// Why nothing more will be read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stop {
    /// The peer closed, or the socket failed.
    Lost,
    /// The peer broke the rules of its frames.
    Fault(Fault),
}

/// A WebSocket frame that breaks a rule.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("WebSocket: {what}")]
pub(crate) struct Fault {
    pub(super) code: CloseCode,
    pub(super) what: &'static str,
}

impl Fault {
    /// What the Close frame says about it.
    pub(super) fn code(self) -> CloseCode {
        self.code
    }
}

/// Reads once; no byte means that the peer is gone.
pub(crate) fn poll_receive(
    stream: &mut TcpStream,
    cx: &mut Context<'_>,
    bytes: &mut [u8],
) -> Poll<Result<usize, Stop>> {
    let mut read = ReadBuf::new(bytes);
    let result = ready!(Pin::new(stream).poll_read(cx, &mut read));
    let len = read.filled().len();
    Poll::Ready(if result.is_err() || len == 0 {
        Err(Stop::Lost)
    } else {
        Ok(len)
    })
}

/// Appends what one read brings to `buffer`, and returns how many bytes those were.
///
/// The bytes come over the stack: a connection that is silent holds no buffer.
///
/// # Errors
///
/// [`Stop::Lost`].
pub(crate) async fn receive(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<usize, Stop> {
    poll_fn(|cx| {
        let mut bytes = [0; 2048];
        let len = ready!(poll_receive(stream, cx, &mut bytes))?;
        buffer.extend_from_slice(bytes.get(..len).unwrap_or_default());
        Poll::Ready(Ok(len))
    })
    .await
}
