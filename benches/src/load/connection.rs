//! One client: a handshake that waits, then bytes in and out that never do.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use mqttcore_tls::rustls::{ClientConfig, ClientConnection};

use super::framing::{self, Version};
use super::stream::Stream;

/// How long one step of the handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How all clients of a run connect.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Where the broker listens.
    pub address: SocketAddr,
    /// Sessions outlive their connections.
    pub kept: bool,
    /// The version of MQTT.
    pub version: Version,
    /// `None`: nothing is encrypted.
    pub tls: Option<Arc<ClientConfig>>,
}

/// Connects, and subscribes when there is a filter; the stream still blocks.
///
/// # Errors
///
/// When the broker refuses, answers something else or takes too long.
pub fn open(
    terms: &Terms,
    client_id: &str,
    subscription: Option<(&str, u8)>,
) -> io::Result<Stream> {
    let tcp = TcpStream::connect_timeout(&terms.address, HANDSHAKE)?;
    tcp.set_nodelay(true)?;
    tcp.set_read_timeout(Some(HANDSHAKE))?;
    let version = terms.version;
    let mut stream = Stream::new(tcp, terms.tls.as_ref())?;
    stream.write_all(&framing::connect(client_id, terms.kept, version))?;
    let connack = answer(&mut stream)?;
    if !connack.starts_with(&[0x20]) || connack.get(2..4) != Some(&[0, 0]) {
        return Err(refused("CONNECT", &connack));
    }
    let Some((filter, qos)) = subscription else {
        return Ok(stream);
    };
    stream.write_all(&framing::subscribe(filter, qos, version))?;
    let suback = answer(&mut stream)?;
    if !suback.starts_with(&[0x90]) || !suback.ends_with(&[qos]) {
        return Err(refused("SUBSCRIBE", &suback));
    }
    Ok(stream)
}

/// One packet of up to 127 bytes behind its first two.
fn answer(stream: &mut Stream) -> io::Result<Vec<u8>> {
    let mut packet = vec![0; 2];
    stream.read_exact(&mut packet)?;
    packet.resize(2 + usize::from(packet[1] & 0x7f), 0);
    stream.read_exact(&mut packet[2..])?;
    Ok(packet)
}

fn refused(what: &str, answer: &[u8]) -> io::Error {
    io::Error::other(format!("{what} was answered with {answer:02x?}"))
}

/// A connected client's unread tail and unsent bytes.
#[derive(Debug)]
pub struct Connection {
    stream: mio::net::TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// The start of a packet whose rest has not come.
    tail: Vec<u8>,
    /// Bytes to send; those before `written` are gone.
    out: Vec<u8>,
    written: usize,
}

impl Connection {
    /// Takes over an open stream, which no longer blocks.
    ///
    /// # Errors
    ///
    /// When the socket cannot be made non-blocking.
    pub fn new(stream: Stream) -> io::Result<Self> {
        stream.tcp.set_nonblocking(true)?;
        Ok(Self {
            stream: mio::net::TcpStream::from_std(stream.tcp),
            tls: stream.tls,
            tail: Vec::new(),
            out: Vec::new(),
            written: 0,
        })
    }

    /// The socket, for registration.
    pub fn source(&mut self) -> &mut mio::net::TcpStream {
        &mut self.stream
    }

    /// Where packets to send are appended.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Reads once into `scratch`, after the tail of the last read. Answers how many bytes of it
    /// are filled, and whether the socket may hold more; `None` when there was nothing.
    ///
    /// # Errors
    ///
    /// When the broker closed the connection, or the socket fails.
    pub fn fill(&mut self, scratch: &mut [u8]) -> io::Result<Option<(usize, bool)>> {
        let start = self.tail.len();
        scratch[..start].copy_from_slice(&self.tail);
        match self.read(&mut scratch[start..]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.tail.clear();
                Ok(Some((start + count, start + count == scratch.len())))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return self.stream.read(bytes);
        };
        loop {
            match tls.reader().read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            if tls.read_tls(&mut self.stream)? == 0 {
                return Ok(0);
            }
            tls.process_new_packets().map_err(io::Error::other)?;
        }
    }

    /// Keeps the start of a packet for the next read.
    pub fn keep(&mut self, tail: &[u8]) {
        self.tail.extend_from_slice(tail);
    }

    /// Sends what the socket takes.
    ///
    /// # Errors
    ///
    /// When the socket fails.
    pub fn flush(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.writer().write_all(&self.out)?;
            self.out.clear();
            while tls.wants_write() {
                match tls.write_tls(&mut self.stream) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    written => written?,
                };
            }
            return Ok(());
        }
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(())
    }

    /// Bytes that wait for the socket; of encrypted ones, whether there are any.
    pub fn backlog(&self) -> usize {
        let is_encrypted_left = self.tls.as_ref().is_some_and(|tls| tls.wants_write());
        self.out.len() - self.written + usize::from(is_encrypted_left)
    }
}
