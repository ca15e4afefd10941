//! A plain blocking HTTP client that says exactly what a test tells it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use socket2::{Domain, Socket, Type};

use crate::common::DEADLINE;

/// One connection to an endpoint.
pub(crate) struct Http(Box<dyn Stream>);

trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

/// What came back.
#[derive(Default)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// In small letters.
    pub(crate) headers: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    /// One header, whose name is in small letters.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

impl Http {
    pub(crate) fn unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("the endpoint listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        Self(Box::new(stream))
    }

    pub(crate) fn tcp(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the endpoint listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        Self(Box::new(stream))
    }

    /// From an address of this machine.
    pub(crate) fn tcp_from(source: [u8; 4], address: SocketAddr) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let source = SocketAddr::from((source, 0));
        socket.bind(&source.into()).expect("an own address");
        socket
            .connect(&address.into())
            .expect("the endpoint listens");
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        Self(Box::new(stream))
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).expect("sent");
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("sent");
    }

    /// Whether the other side still takes something.
    pub(crate) fn try_send(&mut self, text: &str) -> bool {
        self.0.write_all(text.as_bytes()).is_ok()
    }

    pub(crate) fn get(&mut self, target: &str) -> Response {
        self.request("GET", target, "")
    }

    /// Sends a request with `body`, if that is not empty.
    pub(crate) fn request(&mut self, method: &str, target: &str, body: &str) -> Response {
        let length = body.len();
        self.send(&format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        self.response().expect("a response")
    }

    /// The next response; `None` when the connection ends instead.
    pub(crate) fn response(&mut self) -> Option<Response> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.byte()?);
        }
        let head = String::from_utf8(head).expect("text").to_lowercase();
        let (status, headers) = head.split_once("\r\n").expect("a status line");
        let status = status[9..12].parse().expect("a status");
        let body = match header(headers, "content-length") {
            // RFC 9110 section 15.3.5
            _ if status == 204 => Vec::new(),
            Some(length) => self.bytes(length.parse().expect("a length")),
            None => self.chunks(),
        };
        Some(Response {
            status,
            headers: headers.into(),
            body,
        })
    }

    fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let mut line = Vec::new();
            while !line.ends_with(b"\r\n") {
                line.push(self.byte().expect("a chunk"));
            }
            let length = std::str::from_utf8(&line[..line.len() - 2]).expect("text");
            let length = usize::from_str_radix(length, 16).expect("a length");
            body.extend(self.bytes(length));
            self.bytes(2);
            if length == 0 {
                return body;
            }
        }
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).expect("a body");
        bytes
    }

    /// `None` at the end, however it comes.
    fn byte(&mut self) -> Option<u8> {
        let mut byte = [0];
        match self.0.read(&mut byte) {
            Ok(0) => None,
            Ok(_) => Some(byte[0]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("neither a byte nor the end: {error}"),
        }
    }

    /// Reads up to and with `end`, in small letters.
    pub(crate) fn until(&mut self, end: &str) -> String {
        let mut read = Vec::new();
        while !read.ends_with(end.as_bytes()) {
            read.push(self.byte().expect("more"));
        }
        String::from_utf8(read).expect("text").to_lowercase()
    }

    /// Reads until the other side closes.
    pub(crate) fn until_end(&mut self) {
        while self.byte().is_some() {}
    }

    /// Waits for the other side to close.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.byte().is_none()
    }
}

fn header<'a>(headers: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = headers.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}
