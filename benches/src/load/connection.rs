//! One client: a handshake that waits, then bytes in and out that never do.

use std::io::{self, Read, Write};
use std::mem;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use mqttcore_tls::rustls::{ClientConfig, ClientConnection};
use socket2::{Domain, Socket, Type};

use super::framing::{self, Version};
use super::stream::{self, Stream};

/// How long one step of the handshake may take.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(10);

/// Read at once from one connection, at least.
const READ_BYTES: usize = 256 * 1_024;

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
    accepted(&answer(&mut stream)?)?;
    if let Some((filter, qos)) = subscription {
        subscribe(&mut stream, &[filter], qos, version)?;
    }
    Ok(stream)
}

/// Subscribes with one packet, to fewer than 120 filters.
///
/// # Errors
///
/// When the broker refuses a filter or grants another quality of service, answers something else or takes too long.
pub fn subscribe(
    stream: &mut Stream,
    filters: &[impl AsRef<str>],
    qos: u8,
    version: Version,
) -> io::Result<()> {
    stream.write_all(&framing::subscribe(filters, qos, version))?;
    let suback = answer(stream)?;
    let granted = suback.len().checked_sub(filters.len());
    let granted = granted.and_then(|start| suback.get(start..));
    if !suback.starts_with(&[0x90]) || !granted.is_some_and(|all| all.iter().all(|one| *one == qos))
    {
        return Err(refused("SUBSCRIBE", &suback));
    }
    Ok(())
}

/// One packet of up to 127 bytes behind its first two.
fn answer(stream: &mut Stream) -> io::Result<Vec<u8>> {
    let mut packet = vec![0; 2];
    stream.read_exact(&mut packet)?;
    packet.resize(2 + usize::from(packet[1] & 0x7f), 0);
    stream.read_exact(&mut packet[2..])?;
    Ok(packet)
}

/// Has `connect` choose the port instead of `bind`, which does not know the other end and takes ports in TIME-WAIT for used.
fn choose_port_at_connect(socket: &Socket) -> io::Result<()> {
    let on: libc::c_int = 1;
    let size = libc::socklen_t::try_from(size_of_val(&on)).map_err(io::Error::other)?;
    // SAFETY: the option is an integer of this size, which outlives the call.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size,
        )
    };
    if status == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// Checks that a whole CONNACK accepts the client.
///
/// # Errors
///
/// When it refuses the client, resumes a session, or is another packet.
pub(super) fn accepted(connack: &[u8]) -> io::Result<()> {
    if connack.starts_with(&[0x20]) && connack.get(2..4) == Some(&[0, 0]) {
        return Ok(());
    }
    Err(refused("CONNECT", connack))
}

fn refused(what: &str, answer: &[u8]) -> io::Error {
    io::Error::other(format!("{what} was answered with {answer:02x?}"))
}

/// Bytes that were read from one connection.
#[derive(Debug, Default)]
pub struct Unread {
    /// Bytes from `filled` on are room.
    bytes: Vec<u8>,
    filled: usize,
}

impl Unread {
    /// What was read.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    /// Whether all that was read is used.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Forgets the first bytes.
    pub fn consume(&mut self, count: usize) {
        if count > 0 {
            self.bytes.copy_within(count..self.filled, 0);
            self.filled -= count;
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.filled = 0;
    }

    fn room(&mut self) -> &mut [u8] {
        let least = self.filled + READ_BYTES;
        if self.bytes.len() < least {
            self.bytes.resize(least, 0);
        }
        &mut self.bytes[self.filled..]
    }
}

/// A connected client's unread and unsent bytes.
#[derive(Debug)]
pub struct Connection {
    stream: mio::net::TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// The start of a packet whose rest has not come.
    unread: Unread,
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
        Ok(Self::of(
            mio::net::TcpStream::from_std(stream.tcp),
            stream.tls,
        ))
    }

    /// Begins to connect, from the source address if there is one, and does not wait for it.
    ///
    /// # Errors
    ///
    /// When the system refuses, or the source has no free port.
    pub fn begin(terms: &Terms, source: Option<IpAddr>) -> io::Result<Self> {
        let domain = Domain::for_address(terms.address);
        let socket = Socket::new(domain, Type::STREAM.nonblocking(), None)?;
        if let Some(source) = source {
            choose_port_at_connect(&socket)?;
            socket.bind(&SocketAddr::new(source, 0).into())?;
        }
        match socket.connect(&terms.address.into()) {
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            connected => connected?,
        }
        let tls = terms.tls.as_ref().map(stream::client).transpose()?;
        Ok(Self::of(mio::net::TcpStream::from_std(socket.into()), tls))
    }

    fn of(stream: mio::net::TcpStream, tls: Option<Box<ClientConnection>>) -> Self {
        Self {
            stream,
            tls,
            unread: Unread::default(),
            out: Vec::new(),
            written: 0,
        }
    }

    /// The socket, for registration.
    pub fn source(&mut self) -> &mut mio::net::TcpStream {
        &mut self.stream
    }

    /// Where packets to send are appended.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// What was read and not used, which the connection forgets.
    pub fn take_unread(&mut self) -> Unread {
        mem::take(&mut self.unread)
    }

    /// Keeps the start of a packet for the next read.
    pub fn keep(&mut self, unread: Unread) {
        self.unread = unread;
    }

    /// Reads once, behind what is there. Answers whether the socket may hold more.
    ///
    /// # Errors
    ///
    /// When the broker closed the connection, or the socket fails.
    pub fn fill(&mut self, unread: &mut Unread) -> io::Result<bool> {
        let room = unread.room();
        let size = room.len();
        match self.read(room) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                unread.filled += count;
                Ok(count == size)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
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
