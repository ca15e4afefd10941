//! Transport of a connection: a socket, or WebSocket frames on one.
//!
//! The connection's task sees only bytes of packets. This costs a plain stream two branches.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use tokio::io::ReadBuf;

use crate::clients::channel::Channel;
use crate::clients::outbox::Outbox;
use crate::connection::socket::{DetachedSocket, ReadBytes, ReadEnd, Socket, WrittenBytes};
use crate::connection::websocket::{Framing, WebSocket};

/// A transport on the shard that reads and writes it.
pub(crate) enum Transport {
    Stream(Socket),
    /// Boxed, so that a plain connection does not need the space.
    WebSocket(Box<WebSocket>),
}

/// A transport on its way to the shard of its session. It stays registered with the runtime of a shard that is the
/// right one already: to register it again takes three system calls.
pub(crate) enum MovingTransport {
    Here(Transport),
    Elsewhere(DetachedTransport),
}

impl MovingTransport {
    /// Takes the transport on the shard of its session.
    ///
    /// # Errors
    ///
    /// Errors of the runtime; the connection is then closed.
    pub(crate) fn arrive(self) -> io::Result<Transport> {
        match self {
            Self::Here(transport) => Ok(transport),
            Self::Elsewhere(transport) => transport.attach(),
        }
    }
}

/// A transport that moves to another shard.
pub(crate) struct DetachedTransport {
    socket: DetachedSocket,
    framing: Option<Box<Framing>>,
}

impl Transport {
    /// Reads once into `bytes`.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<Result<ReadBytes, ReadEnd>> {
        match self {
            Self::Stream(socket) => socket.poll_read(cx, bytes),
            Self::WebSocket(socket) => socket.poll_read(cx, bytes),
        }
    }

    /// Writes once from the outbox: one `send`, or one `writev`.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        outbox: &Outbox,
    ) -> Poll<io::Result<WrittenBytes>> {
        match self {
            Self::Stream(socket) => poll_send(socket, cx, outbox),
            Self::WebSocket(socket) => socket.poll_write(cx, outbox),
        }
    }

    /// Heap size in bytes beyond that of a plain TCP connection.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Stream(socket) => socket.heap_bytes(),
            Self::WebSocket(socket) => socket.heap_bytes(),
        }
    }

    /// What the connection runs over.
    pub(crate) fn channel(&self) -> Channel {
        match self {
            Self::Stream(socket) => Channel::new(false, socket.cipher_suite()),
            Self::WebSocket(socket) => Channel::new(true, socket.socket().cipher_suite()),
        }
    }

    /// Whether bytes besides those of the outbox wait to be written.
    pub(crate) fn has_output(&self) -> bool {
        match self {
            Self::Stream(socket) => socket.has_output(),
            Self::WebSocket(socket) => socket.has_output(),
        }
    }

    /// Whether the peer sent a Close frame that is not answered yet.
    pub(crate) fn must_answer_close(&self) -> bool {
        match self {
            Self::Stream(_) => false,
            Self::WebSocket(socket) => socket.must_answer_close(),
        }
    }

    /// Waits until the peer has sent something or has closed the connection; returns true if it has closed it.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut byte = [0; 1];
        let mut peeked = ReadBuf::new(&mut byte);
        let stream = match self {
            Self::Stream(socket) => socket,
            Self::WebSocket(socket) => socket.socket_mut(),
        };
        let peeked = ready!(stream.tcp_mut().poll_peek(cx, &mut peeked));
        Poll::Ready(matches!(peeked, Ok(0) | Err(_)))
    }

    /// Number of unsent bytes of the packet at the front of `outbox`, if a part of it was sent.
    pub(crate) fn begun(&self, outbox: &Outbox) -> usize {
        match self {
            Self::Stream(_) => outbox.begun(),
            // Possibly only the header of the packet's frame was sent.
            Self::WebSocket(socket) => socket.begun(),
        }
    }

    /// The socket, and `last_bytes` as the last bytes for it.
    pub(crate) fn into_last(self, last_bytes: Vec<u8>) -> (Socket, Vec<u8>) {
        match self {
            Self::Stream(socket) => (socket, last_bytes),
            Self::WebSocket(socket) => socket.into_last(&last_bytes),
        }
    }

    /// Detaches the transport from this shard's runtime.
    ///
    /// # Errors
    ///
    /// Errors of the runtime; the connection is then closed.
    pub(crate) fn detach(self) -> io::Result<DetachedTransport> {
        let (stream, framing) = match self {
            Self::Stream(stream) => (stream, None),
            Self::WebSocket(socket) => {
                let (stream, framing) = socket.into_parts();
                (stream, Some(Box::new(framing)))
            }
        };
        let socket = stream.detach()?;
        Ok(DetachedTransport { socket, framing })
    }
}

impl DetachedTransport {
    /// Attaches the transport to this shard's runtime.
    fn attach(self) -> io::Result<Transport> {
        let stream = self.socket.attach()?;
        Ok(match self.framing {
            None => Transport::Stream(stream),
            Some(framing) => Transport::WebSocket(Box::new(WebSocket::new(stream, *framing))),
        })
    }
}

fn poll_send(
    socket: &mut Socket,
    cx: &mut Context<'_>,
    outbox: &Outbox,
) -> Poll<io::Result<WrittenBytes>> {
    if let Some(bytes) = outbox.single() {
        return socket.poll_write_slices(cx, &[IoSlice::new(bytes)]);
    }
    let mut slices: [IoSlice<'_>; _] = Outbox::empty_slices();
    let count = outbox.fill(&mut slices);
    socket.poll_write_slices(cx, &slices[..count])
}
