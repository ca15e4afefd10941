//! TLS on a TCP stream: records are decrypted in the read buffer, and at most 32 KiB of them wait to be written.

use std::io::{self, IoSlice, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use mqttcore_tls::TlsConfig;
use mqttcore_tls::rustls::pki_types::CertificateDer;
use mqttcore_tls::rustls::{
    CipherSuite, Error, IoState, PeerMisbehaved, ServerConfig, ServerConnection,
};
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;

use crate::transport::socket::{ReadBytes, ReadEnd, WrittenBytes, poll_receive_raw};
use crate::transport::tls_records::RecordPosition;

/// Maximum bytes of encrypted records that wait for the socket; later bytes stay in the outbox.
const ENCRYPTED_BYTES: usize = 32 * 1024;

/// Maximum bytes of a read, about those of the longest record: 64 KiB of requests for new keys, 27 bytes each, take a shard
/// 6 to 12 ms (abuse I01).
pub(super) const READ_BYTES: usize = 16 * 1024 + 512;

/// Bytes of heap of a TLS session, during its handshake and idle: measured, since rustls does not report them.
pub(crate) const TLS_BYTES: usize = 7_500;

/// The server side of a TLS session, and its TCP stream.
pub(crate) struct TlsStream {
    tcp: TcpStream,
    session: Box<TlsSession>,
}

/// The server side of a TLS session, without its socket.
pub(crate) struct TlsSession {
    rustls: ServerConnection,
    position: RecordPosition,
}

impl TlsSession {
    /// Processes the bytes up to the end of the current record, or all of `bytes`. Returns their number, whether the
    /// record ends with them, and the state after it.
    fn process(&mut self, bytes: &[u8]) -> Result<(usize, bool, IoState), Error> {
        let (len, is_end) = self.position.pass(bytes);
        let mut records = &bytes[..len];
        loop {
            // rustls takes 4 KiB at once.
            if !matches!(self.rustls.read_tls(&mut records), Ok(1..)) {
                return Err(Error::General("the records are too long".to_owned()));
            }
            let state = self.rustls.process_new_packets()?;
            if records.is_empty() {
                return Ok((len, is_end, state));
            }
        }
    }
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
            Ok(mut rustls) => {
                rustls.set_buffer_limit(Some(ENCRYPTED_BYTES));
                let position = RecordPosition::default();
                let session = TlsSession { rustls, position };
                Ok(Self::from_parts(tcp, Box::new(session)))
            }
            Err(error) => Err((tcp, error)),
        }
    }

    pub(crate) fn from_parts(tcp: TcpStream, session: Box<TlsSession>) -> Self {
        Self { tcp, session }
    }

    pub(crate) fn into_parts(self) -> (TcpStream, Box<TlsSession>) {
        (self.tcp, self.session)
    }

    pub(crate) fn tcp_mut(&mut self) -> &mut TcpStream {
        &mut self.tcp
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.session.rustls.is_handshaking()
    }

    /// The cipher suite; `None` before the handshake.
    pub(crate) fn cipher_suite(&self) -> Option<CipherSuite> {
        let negotiated = self.session.rustls.negotiated_cipher_suite()?;
        Some(negotiated.suite())
    }

    /// The client's certificate, if it presented one.
    pub(crate) fn peer_certificate(&self) -> Option<&CertificateDer<'static>> {
        self.session.rustls.peer_certificates()?.first()
    }

    /// Processes records of the handshake; the reply waits to be written. At the end the certificate of a resumed
    /// session is verified again.
    pub(crate) fn handshake(
        &mut self,
        mut records: &[u8],
        config: &TlsConfig,
    ) -> Result<(), Error> {
        while !records.is_empty() {
            let (len, ..) = self.session.process(records)?;
            records = &records[len..];
        }
        if self.is_handshaking() {
            return Ok(());
        }
        config.verify_resumed(&self.session.rustls)
    }

    /// Reads at most [`READ_BYTES`] into `bytes`, which then begins with the decrypted payload.
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
        let room = bytes.len().min(READ_BYTES);
        let raw = ready!(poll_receive_raw(&mut self.tcp, cx, &mut bytes[..room]))?;
        Poll::Ready(self.open(bytes, raw).map_err(|error| match error {
            Error::PeerMisbehaved(
                PeerMisbehaved::TooManyKeyUpdateRequests | PeerMisbehaved::TooManyEmptyFragments,
            ) => ReadEnd::Flood,
            _ => ReadEnd::Lost,
        }))
    }

    /// Decrypts the records in the first `raw` bytes; their payload replaces them. Records without payload count as
    /// control frames: requests for new keys cost most, and rustls allows 32 of them before each record of payload,
    /// which may be empty (abuse I01).
    fn open(&mut self, bytes: &mut [u8], raw: usize) -> Result<ReadBytes, Error> {
        let (mut taken, mut payload, mut control_frames) = (0, 0, 0);
        // Decrypted, without room in `bytes`.
        let mut left = 0;
        while taken < raw {
            let (len, is_end, state) = self.session.process(&bytes[taken..raw])?;
            taken += len;
            let decrypted = state.plaintext_bytes_to_read();
            control_frames += u32::from(is_end && decrypted == left);
            left = decrypted;
            if decrypted > 0 {
                let mut reader = self.session.rustls.reader();
                let read = reader.read(&mut bytes[payload..taken]);
                let read = read.unwrap_or_default();
                payload += read;
                left -= read;
            }
            if state.peer_has_closed() {
                // The rest is ignored, and the next read ends.
                break;
            }
        }
        Ok(ReadBytes {
            raw,
            payload,
            control_frames,
        })
    }

    /// Returns payload that rustls has decrypted and that did not fit the last read.
    fn take_payload(&mut self, bytes: &mut [u8]) -> Result<usize, ReadEnd> {
        match self.session.rustls.reader().read(bytes) {
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
        let payload = self.session.rustls.writer().write_vectored(slices)?;
        // The next write retries what the socket does not take now.
        let _ = self.poll_send(cx, &mut raw)?;
        Poll::Ready(Ok(WrittenBytes { raw, payload }))
    }

    /// Whether encrypted records wait for the socket.
    pub(crate) fn has_output(&self) -> bool {
        self.session.rustls.wants_write()
    }

    /// Writes all encrypted records; adds the bytes written to `sent`.
    fn poll_send(&mut self, cx: &mut Context<'_>, sent: &mut usize) -> Poll<io::Result<()>> {
        while self.session.rustls.wants_write() {
            let mut sender = Sender {
                tcp: &mut self.tcp,
                cx,
            };
            match self.session.rustls.write_tls(&mut sender) {
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
        self.session.rustls.send_close_notify();
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write as _;
    use std::sync::Arc;
    use std::{env, fs, process, thread};

    use mqttcore_tls::rustls::crypto::ring;
    use mqttcore_tls::rustls::pki_types::CertificateDer;
    use mqttcore_tls::rustls::pki_types::pem::PemObject as _;
    use mqttcore_tls::rustls::{ClientConfig, ClientConnection, RootCertStore};
    use mqttcore_tls::{TlsServer, TlsSettings, make_files};
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;
    use tokio::runtime::Builder;

    use super::*;

    const UPDATES: usize = 1_000;

    /// The end of a client that asks for new keys 1,000 times, with a byte of payload after each 16 requests.
    fn ask_for_keys(stream: std::net::TcpStream, ca: CertificateDer<'static>) {
        let mut roots = RootCertStore::empty();
        roots.add(ca).expect("a CA");
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let host = "localhost".try_into().expect("a name");
        let mut session = ClientConnection::new(Arc::new(config), host).expect("a session");
        let mut stream = stream;
        session.complete_io(&mut stream).expect("a handshake");
        session.set_buffer_limit(None);
        let mut records = Vec::new();
        for number in 0..UPDATES {
            session.refresh_traffic_keys().expect("TLS 1.3");
            if number % 16 == 15 {
                session.writer().write_all(b"!").expect("room");
            }
            session.write_tls(&mut records).expect("a vector");
        }
        stream.write_all(&records).expect("the socket takes it");
    }

    /// The first read from a client that has asked for new keys.
    async fn first_read() -> ReadBytes {
        let folder = env::temp_dir().join(format!("mqttcore-keys-{}", process::id()));
        let made = make_files(&folder, &["localhost".to_owned()], "client").expect("files");
        let settings = TlsSettings::new(&made.server, &made.server_key);
        let loaded = TlsServer::load(settings, &["mqtt"]).expect("a configuration");
        let ca = CertificateDer::from_pem_file(&made.ca).expect("a certificate");
        fs::remove_dir_all(&folder).expect("the folder goes");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("an address");
        let address = listener.local_addr().expect("an address");
        let client = thread::spawn(move || {
            let stream = std::net::TcpStream::connect(address).expect("it listens");
            ask_for_keys(stream, ca);
        });
        let (tcp, _) = listener.accept().await.expect("a client");
        let config = loaded.server.config();
        let mut stream = TlsStream::new(tcp, config.server()).expect("a session");
        let mut buffer = vec![0; 64 * 1024];
        while stream.is_handshaking() {
            let len = stream.tcp.read(&mut buffer).await.expect("records");
            let done = stream.handshake(&buffer[..len], &config);
            done.expect("valid records");
            poll_fn(|cx| stream.poll_flush(cx)).await.expect("sent");
        }
        client.join().expect("all is sent");
        let read = poll_fn(|cx| stream.poll_read(cx, &mut buffer)).await;
        read.expect("valid records")
    }

    /// (abuse I01)
    #[test]
    fn i01_a_read_of_records_without_payload_is_short_and_ends_the_turn() {
        let runtime = Builder::new_current_thread().enable_all().build();

        let read = runtime.expect("a runtime").block_on(first_read());

        assert!(
            read.raw > 16 * 1024 && read.raw <= READ_BYTES && read.payload > 0,
            "{read:?}"
        );
        assert!(read.cost() > 60 * 1024, "{read:?}");
        // 16 between two bytes of payload; the first and the last may be cut.
        let requests = 16 * (read.payload - 1)..=16 * (read.payload + 1);
        assert!(
            requests.contains(&(read.control_frames as usize)),
            "{read:?}"
        );
    }
}
