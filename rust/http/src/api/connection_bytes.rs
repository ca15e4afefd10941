//! Bytes of TCP connections as the kernel counts them, read by `sock_diag` (ADR 0104).
//!
//! Neither shards nor sockets of the broker take part: the kernel lists the sockets with these remote ports.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use serde::Serialize;
use socket2::{Domain, Protocol, Socket, Type};
use utoipa::ToSchema;

/// Maximum number of connections of one question: the kernel compares each socket with all of their ports.
pub(super) const MOST: usize = 100;

/// Bytes of the TCP connection since its begin, with TLS and WebSocket frames, as the system counts them.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, ToSchema)]
pub(super) struct ConnectionBytes {
    /// From the client.
    r#in: u64,
    /// To the client, as far as its system has acknowledged them.
    out: u64,
}

/// The counters of the connections with these clients, by address of the client. A client behind a proxy, or one whose
/// connection cannot be told from another one, is missing; so are all if the system does not count.
///
/// `ports`: those of the broker's listeners; 0 stands for any.
pub(super) fn read(clients: &[SocketAddr], ports: &[u16]) -> HashMap<SocketAddr, ConnectionBytes> {
    let mut found = Found::new(clients, ports);
    for family in [Domain::IPV4, Domain::IPV6] {
        // A listener with an IPv6 address may also have clients with IPv4.
        if found.is_complete()
            || (family == Domain::IPV4 && clients.iter().all(SocketAddr::is_ipv6))
        {
            continue;
        }
        if ask(family, clients, &mut |socket| found.add(socket)).is_err() {
            return HashMap::new();
        }
    }
    found.into_map()
}

/// The sockets that were found for clients.
struct Found<'a> {
    ports: &'a [u16],
    /// By client; `None`: several sockets have its address.
    counters: HashMap<SocketAddr, Option<ConnectionBytes>>,
    wanted: &'a [SocketAddr],
}

impl<'a> Found<'a> {
    fn new(wanted: &'a [SocketAddr], ports: &'a [u16]) -> Self {
        let counters = HashMap::new();
        Self {
            ports,
            counters,
            wanted,
        }
    }

    fn is_complete(&self) -> bool {
        self.counters.len() == self.wanted.len()
    }

    fn add(&mut self, socket: &ListedSocket) {
        let is_own = self
            .ports
            .iter()
            .any(|port| [0, socket.local_port].contains(port));
        if is_own && self.wanted.contains(&socket.remote) {
            let counters = self.counters.entry(socket.remote);
            counters
                .and_modify(|known| *known = None)
                .or_insert(Some(socket.bytes));
        }
    }

    fn into_map(self) -> HashMap<SocketAddr, ConnectionBytes> {
        let counters = self.counters.into_iter();
        counters
            .filter_map(|(client, bytes)| Some((client, bytes?)))
            .collect()
    }
}

/// A socket that the kernel has listed.
#[derive(Debug, Eq, PartialEq)]
struct ListedSocket {
    local_port: u16,
    remote: SocketAddr,
    bytes: ConnectionBytes,
}

// Numbers of linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h.
const AF_NETLINK: i32 = 16;
const NETLINK_SOCK_DIAG: i32 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const REQUEST_DUMP: u16 = 0x301;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const IPPROTO_TCP: u8 = 6;
/// ESTABLISHED and CLOSE_WAIT: states in which the broker still has the connection.
const STATES: u32 = 1 << 1 | 1 << 8;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_REQ_BYTECODE: u16 = 1;
const OPERATION_JUMP: u8 = 1;
const OPERATION_REMOTE_PORT_IS: u8 = 12;

const HEADER_BYTES: usize = 16;
const SOCKET_BYTES: usize = 72;
const ATTRIBUTE_BYTES: usize = 4;
/// `tcpi_bytes_acked` and `tcpi_bytes_received` in `struct tcp_info`, since Linux 4.1.
const ACKNOWLEDGED_AT: usize = 120;
const RECEIVED_AT: usize = 128;

/// The kernel answers at once, in parts of at most this size.
const PART_BYTES: usize = 64 << 10;
const PATIENCE: Duration = Duration::from_millis(500);

/// Has the kernel list the TCP sockets of a family with the remote ports of `clients`.
fn ask(
    family: Domain,
    clients: &[SocketAddr],
    visit: &mut dyn FnMut(&ListedSocket),
) -> io::Result<()> {
    let protocol = Protocol::from(NETLINK_SOCK_DIAG);
    let mut kernel = Socket::new(Domain::from(AF_NETLINK), Type::DGRAM, Some(protocol))?;
    kernel.set_read_timeout(Some(PATIENCE))?;
    kernel.write_all(&request(family, clients))?;
    let mut part = vec![0; PART_BYTES];
    loop {
        let length = kernel.read(&mut part)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut messages = part.get(..length).unwrap_or_default();
        while let Some((kind, body, rest)) = next_message(messages) {
            match kind {
                DONE => return Ok(()),
                ERROR => return Err(io::ErrorKind::Unsupported.into()),
                _ => listed(body).iter().for_each(&mut *visit),
            }
            messages = rest;
        }
    }
}

/// The question: a dump of TCP sockets with their `tcp_info`, filtered by remote port.
fn request(family: Domain, clients: &[SocketAddr]) -> Vec<u8> {
    let mut filter = remote_ports(clients);
    let length = HEADER_BYTES + 56 + ATTRIBUTE_BYTES + filter.len();
    let mut bytes = Vec::with_capacity(length);
    bytes.extend(narrow::<u32>(length).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(REQUEST_DUMP.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([
        u8::try_from(i32::from(family)).unwrap_or_default(),
        IPPROTO_TCP,
        1 << (INET_DIAG_INFO - 1),
        0,
    ]);
    bytes.extend(STATES.to_ne_bytes());
    bytes.extend([0; 48]);
    bytes.extend(narrow::<u16>(ATTRIBUTE_BYTES + filter.len()).to_ne_bytes());
    bytes.extend(INET_DIAG_REQ_BYTECODE.to_ne_bytes());
    bytes.append(&mut filter);
    bytes
}

/// A program for the kernel that accepts sockets with one of these remote ports. Each test is followed by a jump to the
/// end, which accepts; a port that differs goes to the next test, after the last one beyond the end, which refuses.
fn remote_ports(clients: &[SocketAddr]) -> Vec<u8> {
    let mut program = Vec::new();
    let operation = |code: u8, then: u8, otherwise: usize| {
        let [low, high] = narrow::<u16>(otherwise).to_ne_bytes();
        [code, then, low, high]
    };
    for (index, client) in clients.iter().enumerate() {
        let left = clients.len() - index - 1;
        program.extend(operation(OPERATION_REMOTE_PORT_IS, 8, 12));
        program.extend(operation(0, 0, usize::from(client.port())));
        if left > 0 {
            // To the end: each test has 12 bytes with its jump, the last one has none, but this jump counts.
            program.extend(operation(OPERATION_JUMP, 4, 12 * left));
        }
    }
    program
}

/// A number that fits: requests are small.
fn narrow<T: TryFrom<usize> + Default>(number: usize) -> T {
    T::try_from(number).unwrap_or_default()
}

/// Type and body of the first message, and what follows.
fn next_message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::try_from(u32::from_ne_bytes(array(bytes, 0)?)).ok()?;
    let kind = u16::from_ne_bytes(array(bytes, 4)?);
    let body = bytes.get(HEADER_BYTES..length)?;
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, body, rest))
}

/// A socket of the list; `None` if its counters are missing.
fn listed(body: &[u8]) -> Option<ListedSocket> {
    let local_port = u16::from_be_bytes(array(body, 4)?);
    let remote_port = u16::from_be_bytes(array(body, 6)?);
    let address: [u8; 16] = array(body, 24)?;
    let [a, b, c, d, ..] = address;
    let address = if i32::from(*body.first()?) == i32::from(Domain::IPV4) {
        IpAddr::from([a, b, c, d])
    } else {
        IpAddr::from(Ipv6Addr::from(address)).to_canonical()
    };
    let info = attribute(body.get(SOCKET_BYTES..)?, INET_DIAG_INFO)?;
    Some(ListedSocket {
        local_port,
        remote: SocketAddr::new(address, remote_port),
        bytes: ConnectionBytes {
            r#in: u64::from_ne_bytes(array(info, RECEIVED_AT)?),
            out: u64::from_ne_bytes(array(info, ACKNOWLEDGED_AT)?),
        },
    })
}

/// The value of the attribute of this type.
fn attribute(mut bytes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes(array(bytes, 0)?));
        let value = bytes.get(ATTRIBUTE_BYTES..length)?;
        if u16::from_ne_bytes(array(bytes, 2)?) == kind {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{TcpListener, TcpStream, ToSocketAddrs};
    use std::time::Instant;

    use super::*;

    /// Both ends of a connection in which the client has sent and received so many bytes.
    fn connection(listener: &TcpListener, sent: usize, received: usize) -> (TcpStream, TcpStream) {
        connection_to(
            listener.local_addr().expect("a bound socket"),
            listener,
            sent,
            received,
        )
    }

    fn connection_to(
        address: impl ToSocketAddrs,
        listener: &TcpListener,
        sent: usize,
        received: usize,
    ) -> (TcpStream, TcpStream) {
        let mut client = TcpStream::connect(address).expect("the listener listens");
        let (mut server, _) = listener.accept().expect("a client that waits");
        client
            .write_all(&vec![0; sent])
            .expect("the server is there");
        server
            .read_exact(&mut vec![0; sent])
            .expect("bytes of the client");
        server
            .write_all(&vec![0; received])
            .expect("the client is there");
        client
            .read_exact(&mut vec![0; received])
            .expect("bytes of the server");
        (client, server)
    }

    /// Reads until the clients have so many bytes: the kernel may acknowledge late.
    fn read_until(clients: &[SocketAddr], port: u16, wanted: &[(u64, u64)]) {
        let begun = Instant::now();
        loop {
            let found = read(clients, &[1, port]);
            let of = |client| found.get(client).map(|bytes| (bytes.r#in, bytes.out));
            let counted: Vec<_> = clients.iter().filter_map(of).collect();
            if counted == wanted {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "{counted:?}");
            std::thread::yield_now();
        }
    }

    /// Of the two sockets of a connection on this machine, only the broker's has the client's port on the other side.
    #[test]
    fn the_kernel_counts_the_bytes_of_each_client() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let held = [(1_000, 0), (1_001, 10), (1_002, 20)]
            .map(|(sent, received)| connection(&listener, sent, received));
        let clients = held
            .each_ref()
            .map(|(client, _)| client.local_addr().unwrap());

        read_until(&clients, port, &[(1_000, 0), (1_001, 10), (1_002, 20)]);
        read_until(&clients[1..2], port, &[(1_001, 10)]);

        assert_eq!(read(&clients, &[0]).len(), 3, "any port");
        assert!(read(&clients, &[1]).is_empty(), "sockets of somebody else");
        let behind_a_proxy = SocketAddr::from(([192, 0, 2, 1], clients[0].port()));
        assert!(read(&[behind_a_proxy], &[port]).is_empty());
        drop(held);
    }

    #[test]
    fn as_many_clients_as_may_be_asked_about_are_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let held: Vec<_> = (0..MOST).map(|_| connection(&listener, 1, 0)).collect();
        let clients: Vec<_> = held
            .iter()
            .map(|(client, _)| client.local_addr().unwrap())
            .collect();

        assert_eq!(read(&clients, &[port]).len(), MOST);
    }

    #[test]
    fn clients_with_ipv6_are_found_and_those_with_ipv4_at_the_same_listener() {
        let Ok(listener) = TcpListener::bind("[::]:0") else {
            return; // this machine has no IPv6
        };
        let port = listener.local_addr().unwrap().port();
        let (client, _server) = connection_to(("127.0.0.1", port), &listener, 4, 0);
        let client = client.local_addr().unwrap();

        read_until(&[client], port, &[(4, 0)]);
        if TcpStream::connect(("::1", port)).is_ok() {
            listener.accept().unwrap();
            let (other, _server) = connection_to(("::1", port), &listener, 3, 2);
            read_until(
                &[other.local_addr().unwrap(), client],
                port,
                &[(3, 2), (4, 0)],
            );
        }
    }

    #[test]
    fn two_sockets_with_the_same_client_are_not_told_apart() {
        let client = SocketAddr::from(([127, 0, 0, 1], 4_000));
        let wanted = [client];
        let mut found = Found::new(&wanted, &[0]);
        let bytes = ConnectionBytes { r#in: 1, out: 2 };
        let socket = |local_port| ListedSocket {
            local_port,
            remote: client,
            bytes,
        };

        found.add(&socket(1_883));
        assert_eq!(found.counters.get(&client), Some(&Some(bytes)));
        found.add(&socket(9));

        assert!(found.into_map().is_empty());
    }

    #[test]
    fn what_is_cut_off_is_not_read() {
        let whole = [&[2, 0, 0, 0][..], &[0; SOCKET_BYTES + 140]].concat();

        for length in 0..whole.len() {
            let part = &whole[..length];
            let _ = (
                next_message(part),
                listed(part),
                attribute(part, INET_DIAG_INFO),
            );
        }
    }
}
