//! A WebSocket client that frames what a test tells it, byte by byte if it must.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use mqttcore_broker::{Broker, Config, Grant, Listener, WebSocketRules};

use super::{DEADLINE, config};

/// The key is that of RFC 6455 section 1.3.
pub const REQUEST: &str = "GET /mqtt HTTP/1.1\r\nHost: broker\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";

pub const BINARY: u8 = 0x82;
pub const CLOSE: u8 = 0x88;
pub const PING: u8 = 0x89;
pub const PONG: u8 = 0x8A;

/// A plain listener as always, and one for WebSocket behind it.
pub fn with_websocket(mut config: Config) -> Config {
    config.listeners.push(Listener {
        anonymous: Some(Grant::everything()),
        websocket: Some(WebSocketRules {
            path: "/mqtt".into(),
            origins: Vec::new(),
        }),
        ..Listener::new("web", ([127, 0, 0, 1], 0).into())
    });
    config
}

pub fn websocket_config() -> Config {
    with_websocket(config())
}

/// A masked frame of a client; `first` is its first byte.
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0xA5, 0x00, 0xFF, 0x3C];
    let mut out = vec![first];
    match payload.len() {
        len @ ..126 => out.push(0x80 | u8::try_from(len).expect("short")),
        len @ ..0x1_0000 => {
            out.push(0xFE);
            out.extend_from_slice(&u16::try_from(len).expect("16 bits").to_be_bytes());
        }
        len => {
            out.push(0xFF);
            out.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&mask);
    out.extend(payload.iter().zip(mask.iter().cycle()).map(|(a, b)| a ^ b));
    out
}

/// The client's end of a WebSocket.
pub struct Socket {
    pub stream: TcpStream,
    unread: Vec<u8>,
}

impl Socket {
    /// Connects to the second listener and sends `request`.
    pub fn ask(broker: &Broker, request: &[u8]) -> Self {
        let stream = TcpStream::connect(broker.addresses()[1]).expect("the broker listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        stream.set_write_timeout(Some(DEADLINE)).expect("a timeout");
        stream.set_nodelay(true).expect("a socket");
        let mut socket = Self {
            stream,
            unread: Vec::new(),
        };
        socket.send(request);
        socket
    }

    /// A WebSocket without a CONNECT yet.
    pub fn open(broker: &Broker) -> Self {
        let mut socket = Self::ask(broker, REQUEST.as_bytes());
        let answer = socket.head();
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        socket
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the broker reads");
    }

    pub fn send_frame(&mut self, first: u8, payload: &[u8]) {
        self.send(&frame(first, payload));
    }

    /// The response up to its empty line.
    pub fn head(&mut self) -> String {
        loop {
            let found = self.unread.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(at) = found {
                let head = self.unread.drain(..at + 4).collect();
                return String::from_utf8(head).expect("text");
            }
            assert!(self.fill(), "closed before the response was whole");
        }
    }

    /// The first byte and the payload of the next frame; `None` when the broker has closed.
    pub fn receive(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Some((len, found)) = split(&self.unread) {
                self.unread.drain(..len);
                return Some(found);
            }
            if !self.fill() {
                assert_eq!(self.unread, b"", "a frame was cut");
                return None;
            }
        }
    }

    /// The next frame is binary and holds exactly `bytes`.
    pub fn expect(&mut self, bytes: &[u8]) {
        assert_eq!(self.receive(), Some((BINARY, bytes.to_vec())));
    }

    /// Binary frames until they hold `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while out.len() < len {
            let (first, payload) = self.receive().expect("more bytes");
            assert_eq!(first, BINARY);
            out.extend(payload);
        }
        assert_eq!(out.len(), len);
        out
    }

    /// A Close frame with `code`, and then the end.
    pub fn expect_close(&mut self, code: u16) {
        assert_eq!(self.receive(), Some((CLOSE, code.to_be_bytes().to_vec())));
        assert_eq!(self.receive(), None);
    }

    fn fill(&mut self) -> bool {
        let mut bytes = [0; 16 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(len) => {
                self.unread.extend_from_slice(&bytes[..len]);
                len > 0
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("nothing came: {error}"),
        }
    }
}

/// The first frame of `bytes` and its length, once it is whole; servers never mask.
fn split(bytes: &[u8]) -> Option<(usize, (u8, Vec<u8>))> {
    let (&[first, short], rest) = bytes.split_first_chunk::<2>()?;
    let (head, len) = match short {
        ..126 => (2, usize::from(short)),
        126 => (4, usize::from(u16::from_be_bytes(*rest.first_chunk()?))),
        127 => (
            10,
            usize::try_from(u64::from_be_bytes(*rest.first_chunk()?)).ok()?,
        ),
        128.. => panic!("a masked frame of the server"),
    };
    let payload = bytes.get(head..head + len)?;
    Some((head + len, (first, payload.to_vec())))
}
