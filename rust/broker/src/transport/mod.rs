//! Transport of a connection: a socket, or WebSocket frames on one.
//!
//! The connection's task sees only bytes of packets. This costs a plain stream two branches.

pub(crate) mod address;
pub(crate) mod channel;
pub(crate) mod outbox;
pub(crate) mod socket;
pub(crate) mod tls;
mod tls_records;
pub(crate) mod websocket;

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{Interest, ReadBuf};
use tokio::task::coop::has_budget_remaining;

use crate::runtime::tallies::TransportKind;
use crate::transport::channel::Channel;
use crate::transport::outbox::Outbox;
use crate::transport::socket::{
    DetachedSocket, ReadBytes, ReadEnd, ReadPlace, Socket, WrittenBytes,
};
use crate::transport::websocket::{Framing, WebSocket};

/// Maximum bytes of one read.
pub(crate) const SCRATCH_BYTES: usize = 64 * 1024;

/// Maximum number of bytes that the system holds unsent for a client of large messages, before its socket counts as full.
pub(crate) const LARGE_UNSENT_BYTES: u32 = 1024 * 1024;

/// A transport on the shard that reads and writes it.
pub(crate) enum Transport {
    /// Without frames.
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
    /// Whether the runtime wakes the task of `cx` when there is something to read: `read`, into a place of `room` bytes,
    /// found nothing, or did not fill it. Asked behind each read of a plain stream, it saves the turns of a client a
    /// further attempt to read ([`Self::is_quiet`]).
    pub(crate) fn is_watched(
        &self,
        cx: &mut Context<'_>,
        read: &Poll<Result<ReadBytes, ReadEnd>>,
        room: usize,
    ) -> bool {
        let Self::Stream(Socket::Plain(tcp)) = self else {
            return false;
        };
        let is_empty = match read {
            Poll::Pending => true,
            // The runtime takes a read that does not fill its place for the last one.
            Poll::Ready(Ok(read)) if read.raw < room => tcp.poll_read_ready(cx).is_pending(),
            Poll::Ready(_) => false,
        };
        // A task that has used up its budget waits for its next turn, and not for the socket.
        is_empty && has_budget_remaining()
    }

    /// Whether a read would find nothing, if the transport [`Self::is_watched`] since the last one.
    pub(crate) fn is_quiet(&self) -> bool {
        match self {
            Self::Stream(Socket::Plain(tcp)) => tcp.try_io(Interest::READABLE, || Ok(())).is_err(),
            _ => false,
        }
    }

    /// Reads once into `place`.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        place: ReadPlace<'_>,
    ) -> Poll<Result<ReadBytes, ReadEnd>> {
        match self {
            Self::Stream(socket) => socket.poll_read(cx, place),
            Self::WebSocket(socket) => {
                place.over(SCRATCH_BYTES, |bytes| socket.poll_read(cx, bytes))
            }
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

    /// Lets the system hold up to `bytes` unsent of a plain TCP connection before its socket counts as full; returns false
    /// if it does not.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(unused_variables, reason = "other systems have no such option")
    )]
    pub(crate) fn hold_unsent(&self, bytes: u32) -> bool {
        #[cfg(target_os = "linux")]
        if let Self::Stream(Socket::Plain(tcp)) = self {
            return SockRef::from(tcp).set_tcp_notsent_lowat(bytes).is_ok();
        }
        false
    }

    /// Tries to send the first bytes of `outbox` over a plain TCP connection that is not writable as the runtime sees it;
    /// returns the number of sent bytes. The system takes some if the client has taken any since, and calls the socket
    /// writable only once half of what it may hold is sent.
    pub(crate) fn send_at_once(&self, outbox: &Outbox) -> usize {
        let Self::Stream(Socket::Plain(tcp)) = self else {
            return 0;
        };
        let mut slices = Outbox::empty_slices();
        let count = outbox.fill(&mut slices);
        let Some(first) = slices[..count].first() else {
            return 0;
        };
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        let sent = SockRef::from(tcp).send_with_flags(first, flags);
        sent.unwrap_or(0)
    }

    /// Heap size in bytes beyond that of a plain TCP connection.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Stream(socket) => socket.heap_bytes(),
            Self::WebSocket(socket) => socket.heap_bytes(),
        }
    }

    /// Whether it is a TCP connection without TLS and WebSocket: its end has no message of its own.
    pub(crate) fn is_plain(&self) -> bool {
        self.kind() == TransportKind::Tcp
    }

    /// What it is, for counts of bytes.
    pub(crate) fn kind(&self) -> TransportKind {
        match self {
            Self::Stream(socket) => socket.kind(),
            Self::WebSocket(_) => TransportKind::WebSocket,
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
            Self::Stream(socket) => (socket, None),
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

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::io::Write;
    use std::net::TcpListener;
    use std::pin::pin;

    use tokio::net::TcpStream;
    use tokio::task::coop::consume_budget;

    use super::*;

    /// A transport, and the client's end of it.
    fn connected() -> (Transport, std::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (tcp, _) = listener.accept().unwrap();
        tcp.set_nonblocking(true).unwrap();
        let tcp = TcpStream::from_std(tcp).unwrap();
        (Transport::Stream(Socket::Plain(tcp)), client)
    }

    /// Reads until nothing is left, as a turn does, and returns the number of bytes, and whether the socket is watched.
    fn read_all(transport: &mut Transport, cx: &mut Context<'_>) -> (usize, bool) {
        let mut bytes = [0; 16];
        let mut count = 0;
        loop {
            let read = transport.poll_read(cx, ReadPlace::Over(&mut bytes));
            let is_watched = transport.is_watched(cx, &read, bytes.len());
            match read {
                Poll::Ready(read) => count += read.expect("an open socket").raw,
                Poll::Pending => return (count, is_watched),
            }
            if is_watched {
                return (count, true);
            }
        }
    }

    fn block_on(work: impl Future<Output = ()>) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_io().build().unwrap();
        runtime.block_on(work);
    }

    #[test]
    fn a_socket_is_quiet_from_a_read_of_nothing_until_input_wakes_its_task() {
        block_on(async {
            let (mut transport, mut client) = connected();
            for _ in 0..3 {
                let read = poll_fn(|cx| Poll::Ready(read_all(&mut transport, cx))).await;
                assert_eq!(read, (0, true));
                assert!(transport.is_quiet());

                client.write_all(b"ping").unwrap();
                let read = poll_fn(|cx| {
                    if transport.is_quiet() {
                        return Poll::Pending;
                    }
                    Poll::Ready(read_all(&mut transport, cx))
                });
                assert_eq!(read.await, (4, true), "the task was woken");
                assert!(transport.is_quiet(), "4 bytes did not fill 16");
            }
        });
    }

    #[test]
    fn a_socket_that_the_budget_kept_from_being_read_is_not_watched() {
        block_on(async {
            let (mut transport, _client) = connected();
            poll_fn(|cx| {
                while has_budget_remaining() {
                    let _ = pin!(consume_budget()).poll(cx);
                }
                assert_eq!(read_all(&mut transport, cx), (0, false));
                Poll::Ready(())
            })
            .await;
        });
    }
}
