//! TLS on a TCP stream: records are decrypted in the read buffer, and at most 32 KiB of them wait to be written.

use std::io::{self, IoSlice, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use mqttcore_tls::rustls::pki_types::CertificateDer;
use mqttcore_tls::rustls::{Error, ServerConfig, ServerConnection};
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;

use crate::connection::socket::{ReadBytes, ReadEnd, WrittenBytes, poll_receive_raw};

/// Maximum bytes of encrypted records that wait for the socket; later bytes stay in the outbox.
const ENCRYPTED_BYTES: usize = 32 * 1024;

/// Bytes of heap of a TLS session, during its handshake and idle: measured, since rustls does not report them.
pub(crate) const TLS_BYTES: usize = 7_500;

/// The server side of a TLS session, and its TCP stream.
pub(crate) struct TlsStream {
    tcp: TcpStream,
    session: Box<ServerConnection>,
}

impl TlsStream {
    /// A session before its handshake.
    ///
    /// # Errors
    ///
    /// rustls rejects the configuration; the TCP stream is returned with the error.
    pub(crate) fn new(
        tcp: TcpStream,
        config: Arc<ServerConfig>,
    ) -> Result<Self, (TcpStream, Error)> {
        match ServerConnection::new(config) {
            Ok(mut session) => {
                session.set_buffer_limit(Some(ENCRYPTED_BYTES));
                Ok(Self::from_parts(tcp, Box::new(session)))
            }
            Err(error) => Err((tcp, error)),
        }
    }

    pub(crate) fn from_parts(tcp: TcpStream, session: Box<ServerConnection>) -> Self {
        Self { tcp, session }
    }

    pub(crate) fn into_parts(self) -> (TcpStream, Box<ServerConnection>) {
        (self.tcp, self.session)
    }

    pub(crate) fn tcp_mut(&mut self) -> &mut TcpStream {
        &mut self.tcp
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    /// The client's certificate, if it presented one.
    pub(crate) fn peer_certificate(&self) -> Option<&CertificateDer<'static>> {
        self.session.peer_certificates()?.first()
    }

    /// Processes records of the handshake; the reply waits to be written.
    pub(crate) fn handshake(&mut self, mut records: &[u8]) -> Result<(), Error> {
        while !records.is_empty() {
            let taken = self.session.read_tls(&mut records);
            if !matches!(taken, Ok(1..)) {
                return Err(Error::General("the records are too long".to_owned()));
            }
            self.session.process_new_packets()?;
        }
        Ok(())
    }

    /// Reads once into `bytes`, which then begins with the decrypted payload.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<Result<ReadBytes, ReadEnd>> {
        // rustls can hold more payload than the last read had room for, since a record began before it.
        let payload = self.take_payload(bytes)?;
        if payload > 0 {
            return Poll::Ready(Ok(ReadBytes::new(0, payload)));
        }
        let raw = ready!(poll_receive_raw(&mut self.tcp, cx, bytes))?;
        Poll::Ready(match self.open(bytes, raw) {
            Ok(payload) => Ok(ReadBytes::new(raw, payload)),
            Err(_) => Err(ReadEnd::Lost),
        })
    }

    /// Decrypts the records in the first `raw` bytes; their payload replaces them.
    fn open(&mut self, bytes: &mut [u8], raw: usize) -> Result<usize, Error> {
        let (mut taken, mut payload) = (0, 0);
        while taken < raw {
            let mut records = &bytes[taken..raw];
            match self.session.read_tls(&mut records) {
                Ok(len @ 1..) => taken += len,
                _ => return Err(Error::General("the records are too long".to_owned())),
            }
            let state = self.session.process_new_packets()?;
            if state.plaintext_bytes_to_read() > 0 {
                let read = self.session.reader().read(&mut bytes[payload..taken]);
                payload += read.unwrap_or_default();
            }
        }
        Ok(payload)
    }

    /// Returns payload that rustls has decrypted and that did not fit the last read.
    fn take_payload(&mut self, bytes: &mut [u8]) -> Result<usize, ReadEnd> {
        match self.session.reader().read(bytes) {
            // The peer has closed its half.
            Ok(0) => Err(ReadEnd::Lost),
            Ok(len) => Ok(len),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(_) => Err(ReadEnd::Lost),
        }
    }

    /// Writes the encrypted records, then encrypts as much of `slices` as fits.
    pub(crate) fn poll_write_slices(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<WrittenBytes>> {
        let mut raw = 0;
        if self.poll_send(cx, &mut raw)?.is_pending() {
            // Return progress even if not all bytes were written.
            return match raw {
                0 => Poll::Pending,
                raw => Poll::Ready(Ok(WrittenBytes { raw, payload: 0 })),
            };
        }
        let payload = self.session.writer().write_vectored(slices)?;
        // The next write retries what the socket does not take now.
        let _ = self.poll_send(cx, &mut raw)?;
        Poll::Ready(Ok(WrittenBytes { raw, payload }))
    }

    /// Whether encrypted records wait for the socket.
    pub(crate) fn has_output(&self) -> bool {
        self.session.wants_write()
    }

    /// Writes all encrypted records; adds the bytes written to `sent`.
    fn poll_send(&mut self, cx: &mut Context<'_>, sent: &mut usize) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            let mut sender = Sender {
                tcp: &mut self.tcp,
                cx,
            };
            match self.session.write_tls(&mut sender) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(len) => *sent += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut sent = 0;
        ready!(self.poll_send(cx, &mut sent))?;
        Poll::Ready(Ok(sent))
    }

    /// Sends the `close_notify` alert, and closes the sending half.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.session.send_close_notify();
        ready!(self.poll_flush(cx))?;
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

/// The TCP stream as the writer that rustls expects.
struct Sender<'a, 'b> {
    tcp: &'a mut TcpStream,
    cx: &'a mut Context<'b>,
}

impl Sender<'_, '_> {
    fn unless_pending(written: Poll<io::Result<usize>>) -> io::Result<usize> {
        match written {
            Poll::Ready(written) => written,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl Write for Sender<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Self::unless_pending(Pin::new(&mut *self.tcp).poll_write(self.cx, bytes))
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Self::unless_pending(Pin::new(&mut *self.tcp).poll_write_vectored(self.cx, slices))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
