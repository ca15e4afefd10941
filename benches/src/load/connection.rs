//! One client: a handshake that waits, then bytes in and out that never do.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::framing::{self, Version};

/// How long one step of the handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Connects, and subscribes when there is a filter; the stream still blocks. A session that is
/// `kept` outlives its connection.
///
/// # Errors
///
/// When the broker refuses, answers something else or takes too long.
pub fn open(
    address: SocketAddr,
    client_id: &str,
    kept: bool,
    version: Version,
    subscription: Option<(&str, u8)>,
) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, HANDSHAKE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(HANDSHAKE))?;
    stream.write_all(&framing::connect(client_id, kept, version))?;
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
fn answer(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
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
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream: mio::net::TcpStream::from_std(stream),
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
        match self.stream.read(&mut scratch[start..]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.tail.clear();
                Ok(Some((start + count, start + count == scratch.len())))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
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

    /// Bytes that wait for the socket.
    pub fn backlog(&self) -> usize {
        self.out.len() - self.written
    }
}
