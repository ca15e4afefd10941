//! A socket, with or without TLS: reads and writes of bytes.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::BufMut;
use mqttcore_session::wipe;
use mqttcore_tls::rustls::CipherSuite;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tungstenite::protocol::frame::coding::CloseCode;

use crate::runtime::tallies::TransportKind;
use crate::transport::tls::{self, TLS_BYTES, TlsSession, TlsStream};

/// Maximum number of control frames of a client before CONNACK.
pub(crate) const CONTROL_FRAMES_BEFORE_CONNACK: u32 = 100;

/// Where a read puts its bytes.
pub(crate) enum ReadPlace<'p> {
    /// Over these bytes.
    Over(&'p mut [u8]),
    /// Behind those of a buffer, and at most so many. Of a plain TCP stream the system writes them there; nothing is
    /// filled with zeros before.
    Behind(&'p mut Vec<u8>, usize),
}

impl ReadPlace<'_> {
    /// Maximum number of bytes.
    pub(crate) fn room(&self) -> usize {
        match self {
            Self::Over(bytes) => bytes.len(),
            Self::Behind(_, most) => *most,
        }
    }

    /// Calls `read` with bytes to overwrite, at most `most`, for a stream that looks at them.
    pub(super) fn over(
        self,
        most: usize,
        read: impl FnOnce(&mut [u8]) -> Poll<Result<ReadBytes, ReadEnd>>,
    ) -> Poll<Result<ReadBytes, ReadEnd>> {
        match self {
            Self::Over(bytes) => read(bytes),
            Self::Behind(buffer, room) => {
                let filled = buffer.len();
                buffer.resize(filled + room.min(most), 0);
                let read = read(&mut buffer[filled..]);
                let payload = match read {
                    Poll::Ready(Ok(read)) => read.payload,
                    _ => 0,
                };
                buffer.truncate(filled + payload);
                read
            }
        }
    }
}

/// Result of one read: bytes from the socket, bytes of packets, which are at the front, and frames without payload:
/// control frames of WebSocket, and TLS records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadBytes {
    pub(crate) raw: usize,
    pub(crate) payload: usize,
    pub(crate) control_frames: u32,
}

impl ReadBytes {
    /// A read without frames.
    pub(crate) fn new(raw: usize, payload: usize) -> Self {
        Self {
            raw,
            payload,
            control_frames: 0,
        }
    }

    /// What it takes of the budget of a turn: bytes of records and frames around the payload count four times, since
    /// TLS records without payload cost most.
    pub(crate) fn cost(self) -> usize {
        self.raw + 3 * self.raw.saturating_sub(self.payload)
    }
}

/// Result of one write: bytes to the socket, and bytes of the outbox among them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrittenBytes {
    pub(crate) raw: usize,
    pub(crate) payload: usize,
}

/// Why no more is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReadEnd {
    /// The peer closed, or the socket failed.
    Lost,
    /// The peer sent invalid frames.
    Fault(FramingError),
    /// The peer sent too many TLS records without payload one after the other.
    Flood,
}

/// A WebSocket frame that breaks a rule.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("WebSocket: {what}")]
pub(crate) struct FramingError {
    pub(super) code: CloseCode,
    pub(super) what: &'static str,
}

impl FramingError {
    /// Status code for the Close frame.
    pub(super) fn code(self) -> CloseCode {
        self.code
    }
}

/// A TCP stream, encrypted or not.
pub(crate) enum Socket {
    Plain(TcpStream),
    /// Boxed, so that a plain connection does not need the space.
    Tls(Box<TlsStream>),
}

/// A socket that moves to another shard's runtime.
pub(crate) struct DetachedSocket {
    tcp: std::net::TcpStream,
    session: Option<Box<TlsSession>>,
}

impl Socket {
    /// Heap size in bytes beyond that of a plain TCP connection.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Plain(_) => 0,
            Self::Tls(_) => TLS_BYTES,
        }
    }

    /// What it is, for counts of bytes.
    pub(crate) fn kind(&self) -> TransportKind {
        match self {
            Self::Plain(_) => TransportKind::Tcp,
            Self::Tls(_) => TransportKind::Tls,
        }
    }

    /// The cipher suite; `None`: no TLS.
    pub(crate) fn cipher_suite(&self) -> Option<CipherSuite> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => stream.cipher_suite(),
        }
    }

    /// Reads once.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        place: ReadPlace<'_>,
    ) -> Poll<Result<ReadBytes, ReadEnd>> {
        match self {
            Self::Plain(tcp) => {
                let raw = match place {
                    ReadPlace::Over(bytes) => ready!(poll_receive_raw(tcp, cx, bytes))?,
                    ReadPlace::Behind(buffer, most) => {
                        let mut room = buffer.limit(most);
                        let read = ready!(pin!(tcp.read_buf(&mut room)).poll(cx));
                        read.ok().filter(|raw| *raw > 0).ok_or(ReadEnd::Lost)?
                    }
                };
                Poll::Ready(Ok(ReadBytes::new(raw, raw)))
            }
            Self::Tls(stream) => place.over(tls::READ_BYTES, |bytes| stream.poll_read(cx, bytes)),
        }
    }

    /// Writes once: one `send`, or one `writev`.
    pub(crate) fn poll_write_slices(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<WrittenBytes>> {
        match self {
            Self::Plain(tcp) => {
                let raw = match slices {
                    [bytes] => ready!(Pin::new(tcp).poll_write(cx, bytes))?,
                    slices => ready!(Pin::new(tcp).poll_write_vectored(cx, slices))?,
                };
                Poll::Ready(Ok(WrittenBytes { raw, payload: raw }))
            }
            Self::Tls(stream) => stream.poll_write_slices(cx, slices),
        }
    }

    /// Whether encrypted bytes wait to be written.
    pub(crate) fn has_output(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.has_output(),
        }
    }

    /// The TCP stream.
    pub(crate) fn tcp_mut(&mut self) -> &mut TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(stream) => stream.tcp_mut(),
        }
    }

    /// Writes all of `bytes`; returns the number of bytes on the wire.
    pub(crate) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (mut left, mut raw) = (bytes, 0);
        while !left.is_empty() || self.has_output() {
            let slices = [IoSlice::new(left)];
            let written = poll_fn(|cx| self.poll_write_slices(cx, &slices)).await?;
            if written.raw == 0 && written.payload == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            left = left.get(written.payload..).unwrap_or_default();
            raw += written.raw;
        }
        Ok(raw)
    }

    /// Closes the sending half.
    pub(crate) async fn shutdown(&mut self) -> io::Result<()> {
        poll_fn(|cx| match self {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(stream) => stream.poll_shutdown(cx),
        })
        .await
    }

    /// Detaches the socket from this shard's runtime.
    ///
    /// # Errors
    ///
    /// Errors of the runtime; the connection is then closed.
    pub(crate) fn detach(self) -> io::Result<DetachedSocket> {
        let (tcp, session) = match self {
            Self::Plain(tcp) => (tcp, None),
            Self::Tls(stream) => {
                let (tcp, session) = stream.into_parts();
                (tcp, Some(session))
            }
        };
        let tcp = tcp.into_std()?;
        Ok(DetachedSocket { tcp, session })
    }
}

impl DetachedSocket {
    /// Attaches the socket to this shard's runtime.
    ///
    /// # Errors
    ///
    /// Errors of the runtime; the connection is then closed.
    pub(crate) fn attach(self) -> io::Result<Socket> {
        let tcp = TcpStream::from_std(self.tcp)?;
        Ok(match self.session {
            None => Socket::Plain(tcp),
            Some(session) => Socket::Tls(Box::new(TlsStream::from_parts(tcp, session))),
        })
    }
}

/// Reads once; a read of 0 bytes means that the peer is gone.
pub(crate) fn poll_receive_raw(
    stream: &mut TcpStream,
    cx: &mut Context<'_>,
    bytes: &mut [u8],
) -> Poll<Result<usize, ReadEnd>> {
    let mut read = ReadBuf::new(bytes);
    let result = ready!(Pin::new(stream).poll_read(cx, &mut read));
    let len = read.filled().len();
    Poll::Ready(if result.is_err() || len == 0 {
        Err(ReadEnd::Lost)
    } else {
        Ok(len)
    })
}

/// Reads once from the TCP stream and appends to `buffer`; returns the number of bytes.
///
/// # Errors
///
/// [`ReadEnd::Lost`].
pub(crate) async fn receive_raw(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
) -> Result<usize, ReadEnd> {
    poll_fn(|cx| {
        let mut bytes = [0; 2048];
        let len = ready!(poll_receive_raw(stream, cx, &mut bytes))?;
        buffer.extend_from_slice(bytes.get(..len).unwrap_or_default());
        wipe(&mut bytes);
        Poll::Ready(Ok(len))
    })
    .await
}

/// Reads once and appends the payload to `buffer`.
///
/// The read buffer is on the stack, so an idle connection has none.
///
/// # Errors
///
/// [`ReadEnd::Lost`] or [`ReadEnd::Flood`].
pub(crate) async fn receive(
    stream: &mut Socket,
    buffer: &mut Vec<u8>,
) -> Result<ReadBytes, ReadEnd> {
    poll_fn(|cx| {
        let mut bytes = [0; 2048];
        let input = ready!(stream.poll_read(cx, ReadPlace::Over(&mut bytes)))?;
        buffer.extend_from_slice(bytes.get(..input.payload).unwrap_or_default());
        wipe(&mut bytes);
        Poll::Ready(Ok(input))
    })
    .await
}
