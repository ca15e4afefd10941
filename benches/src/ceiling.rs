//! A bare forwarder: what the system's sockets allow, for comparison with a broker.
//!
//! It copies each PUBLISH of QoS 0 to the connections that subscribed to exactly its topic, in one thread on epoll, with
//! one read and one write a connection and wake. It checks nothing, keeps nothing and limits nothing.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

const READ_BYTES: usize = 256 * 1_024;
const EVENTS: usize = 1_024;
const LISTENER: Token = Token(usize::MAX);
const CONNACK: [u8; 4] = [0x20, 2, 0, 0];
const PINGRESP: [u8; 2] = [0xd0, 0];

struct Connection {
    stream: TcpStream,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// It is in the list of connections to write to.
    is_listed: bool,
}

#[derive(Default)]
struct Forwarder {
    connections: Vec<Option<Connection>>,
    receivers: HashMap<Vec<u8>, Vec<usize>>,
    to_write: Vec<usize>,
}

/// Forwards messages of clients of MQTT 3.1.1 that connect to `listener`, until the process ends.
///
/// # Errors
///
/// When the system refuses to accept or to poll.
pub fn run(listener: net::TcpListener) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut listener = TcpListener::from_std(listener);
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(EVENTS);
    let mut buffer = vec![0; READ_BYTES];
    let mut forwarder = Forwarder::default();
    poll.registry()
        .register(&mut listener, LISTENER, Interest::READABLE)?;
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            let Token(place) = event.token();
            if event.token() == LISTENER {
                forwarder.accept(&listener, &poll)?;
                continue;
            }
            if event.is_writable() {
                forwarder.list(place);
            }
            if event.is_readable() && !forwarder.read(place, &mut buffer) {
                forwarder.close(place);
            }
        }
        forwarder.write();
    }
}

impl Forwarder {
    fn accept(&mut self, listener: &TcpListener, poll: &Poll) -> io::Result<()> {
        loop {
            let mut stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            stream.set_nodelay(true)?;
            let token = Token(self.connections.len());
            let both = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut stream, token, both)?;
            self.connections.push(Some(Connection {
                stream,
                incoming: Vec::new(),
                outgoing: Vec::new(),
                is_listed: false,
            }));
        }
    }

    fn list(&mut self, place: usize) {
        if let Some(Some(connection)) = self.connections.get_mut(place)
            && !connection.is_listed
        {
            connection.is_listed = true;
            self.to_write.push(place);
        }
    }

    /// Reads until the socket is empty, and forwards what came; `false` if the connection has to end.
    fn read(&mut self, place: usize, buffer: &mut [u8]) -> bool {
        loop {
            let Some(Some(connection)) = self.connections.get_mut(place) else {
                return true;
            };
            let bytes = match connection.stream.read(buffer) {
                Ok(0) => return false,
                Ok(bytes) => bytes,
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            };
            let mut incoming = std::mem::take(&mut connection.incoming);
            let rest = if incoming.is_empty() {
                self.forward(place, &buffer[..bytes])
            } else {
                incoming.extend_from_slice(&buffer[..bytes]);
                self.forward(place, &incoming)
            };
            let Some(rest) = rest.map(<[u8]>::to_vec) else {
                return false;
            };
            if let Some(Some(connection)) = self.connections.get_mut(place) {
                connection.incoming = rest;
            }
            if bytes < buffer.len() {
                return true;
            }
        }
    }

    /// Handles the packets in `bytes`; returns the start of one that is not complete, and `None` at one that it does not
    /// know.
    fn forward<'b>(&mut self, from: usize, mut bytes: &'b [u8]) -> Option<&'b [u8]> {
        while let Some((header, length)) = frame(bytes) {
            let (packet, rest) = bytes.split_at(header + length);
            let body = &packet[header..];
            match packet[0] >> 4 {
                1 => self.send(from, &CONNACK),
                3 if packet[0] & 0b0110 == 0 => self.copy(packet, text(body)?),
                8 => self.subscribe(from, body)?,
                12 => self.send(from, &PINGRESP),
                14 => {}
                _ => return None,
            }
            bytes = rest;
        }
        Some(bytes)
    }

    fn copy(&mut self, packet: &[u8], topic: &[u8]) {
        let Some(receivers) = self.receivers.get(topic) else {
            return;
        };
        for &place in receivers {
            if let Some(Some(connection)) = self.connections.get_mut(place) {
                connection.outgoing.extend_from_slice(packet);
                if !connection.is_listed {
                    connection.is_listed = true;
                    self.to_write.push(place);
                }
            }
        }
    }

    fn subscribe(&mut self, from: usize, body: &[u8]) -> Option<()> {
        let (packet_id, mut filters) = body.split_at_checked(2)?;
        let mut suback = vec![0x90, 2, packet_id[0], packet_id[1]];
        while !filters.is_empty() {
            let filter = text(filters)?;
            filters = filters.get(2 + filter.len() + 1..)?;
            if filter.contains(&b'+') || filter.contains(&b'#') {
                return None;
            }
            self.receivers
                .entry(filter.to_vec())
                .or_default()
                .push(from);
            suback.push(0);
            suback[1] += 1;
        }
        self.send(from, &suback);
        Some(())
    }

    fn send(&mut self, to: usize, packet: &[u8]) {
        if let Some(Some(connection)) = self.connections.get_mut(to) {
            connection.outgoing.extend_from_slice(packet);
        }
        self.list(to);
    }

    /// Writes what there is for each connection, once.
    fn write(&mut self) {
        for place in std::mem::take(&mut self.to_write) {
            let Some(Some(connection)) = self.connections.get_mut(place) else {
                continue;
            };
            connection.is_listed = false;
            match connection.stream.write(&connection.outgoing) {
                Ok(bytes) => drop(connection.outgoing.drain(..bytes)),
                // It is writable again later.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => self.close(place),
            }
        }
    }

    fn close(&mut self, place: usize) {
        if let Some(connection) = self.connections.get_mut(place) {
            *connection = None;
        }
    }
}

/// The bytes of the fixed header and of what follows it; `None` if the packet is not complete.
fn frame(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut length = 0;
    for (place, byte) in bytes.iter().skip(1).take(4).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            let header = place + 2;
            return (bytes.len() >= header + length).then_some((header, length));
        }
    }
    None
}

/// The text with a length that `bytes` begins with.
fn text(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.get(..usize::from(u16::from_be_bytes(*length)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::connection::{Terms, open};
    use crate::load::framing::{Version, connect};

    #[test]
    fn messages_go_to_the_subscribers_of_their_topic() -> io::Result<()> {
        let listener = net::TcpListener::bind("127.0.0.1:0")?;
        let terms = Terms {
            address: listener.local_addr()?,
            kept: false,
            version: Version::V3,
            tls: None,
        };
        std::thread::spawn(move || run(listener));
        let mut subscriber = open(&terms, "subscriber", Some(("a", 0)))?;
        let mut publisher = net::TcpStream::connect(terms.address)?;
        let message = b"\x30\x05\x00\x01aHI";

        publisher.write_all(&connect("publisher", false, Version::V3))?;
        publisher.write_all(b"\x30\x05\x00\x01bNO")?;
        let (begin, end) = message.split_at(3);
        publisher.write_all(begin)?;
        publisher.write_all(end)?;

        let mut received = [0; 7];
        subscriber.read_exact(&mut received)?;
        assert_eq!(&received, message);
        Ok(())
    }
}
