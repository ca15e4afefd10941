//! The HTTP request that upgrades a connection to a WebSocket, and its response.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tungstenite::error::{Error, ProtocolError};
use tungstenite::handshake::machine::TryParse;
use tungstenite::handshake::server::{Request, create_response, write_response};
use tungstenite::http::HeaderMap;
use tungstenite::http::header::{HOST, HeaderName, HeaderValue, ORIGIN, SEC_WEBSOCKET_PROTOCOL};

use crate::config::WebSocketRules;
use crate::runtime::metrics::Metrics;
use crate::runtime::tallies::TransportKind;
use crate::transport::address::names_an_address;
use crate::transport::socket::{CONTROL_FRAMES_BEFORE_CONNACK, Socket, receive};

/// Deadline from the accepted socket to the end of the request's head (abuse I09).
const LONGEST: Duration = Duration::from_secs(5);
/// Maximum bytes of the request's head (abuse I09).
const HEAD_BYTES: usize = 8 * 1024;
/// Supported sub-protocols, the preferred one first; clients from before MQTT 3.1.1 use the other.
const PROTOCOLS: [&str; 2] = ["mqtt", "mqttv3.1"];

/// Why a connection did not become a WebSocket.
#[derive(Debug)]
pub(crate) struct Refused {
    /// The HTTP response; empty if the peer has closed the connection.
    pub(crate) answer: Vec<u8>,
    pub(crate) why: &'static str,
}

/// Answers the request on `stream`; returns the bytes after the request, which belong to frames.
///
/// # Errors
///
/// [`Refused`], with the response to send.
pub(crate) async fn accept(
    stream: &mut Socket,
    rules: &WebSocketRules,
    deadline: Instant,
    metrics: &Metrics,
) -> Result<Vec<u8>, Refused> {
    let deadline = deadline.min(Instant::now() + LONGEST);
    let late = |_| refused(408, "no complete WebSocket request before the deadline");
    let (request, rest) = timeout_at(deadline, receive_request(stream, metrics))
        .await
        .map_err(late)??;
    let response = respond(&request, rules)?;
    match timeout_at(deadline, stream.write_all(&response)).await {
        Ok(Ok(sent)) => {
            let sent_bytes = &metrics.tallies.bytes_sent;
            sent_bytes.add(TransportKind::WebSocket, sent);
            Ok(rest)
        }
        Ok(Err(_)) | Err(_) => Err(gone()),
    }
}

async fn receive_request(
    stream: &mut Socket,
    metrics: &Metrics,
) -> Result<(Request, Vec<u8>), Refused> {
    let (mut head, mut control_frames) = (Vec::new(), 0_u32);
    loop {
        let seen = head.len();
        let received = receive(stream, &mut head).await.map_err(|_| gone())?;
        let received_bytes = &metrics.tallies.bytes_received;
        received_bytes.add(TransportKind::WebSocket, received.raw);
        control_frames = control_frames.saturating_add(received.control_frames);
        if control_frames > CONTROL_FRAMES_BEFORE_CONNACK {
            return Err(refused(400, "too many TLS records without payload"));
        }
        if head.is_empty() {
            // An incomplete TLS record, or one without payload.
            continue;
        }
        if let Some((request, len)) = request_in(&head, seen)? {
            return Ok((request, head.split_off(len)));
        }
    }
}

/// The request at the front of `head` and its length; `None` if it is incomplete, as its first `seen` bytes are.
pub(super) fn request_in(head: &[u8], seen: usize) -> Result<Option<(Request, usize)>, Refused> {
    if head.starts_with(&[0x16, 0x03]) {
        return Err(refused(
            400,
            "TLS on a listener without TLS: connect to ws:// instead of wss://, or give the listener a certificate",
        ));
    }
    if !head.first().is_some_and(u8::is_ascii_uppercase) {
        return Err(refused(400, "not an HTTP request"));
    }
    let end = end_of_head(head, seen);
    if end.unwrap_or(head.len()) > HEAD_BYTES {
        return Err(refused(
            431,
            "the head of the request is longer than the limit of 8 KiB",
        ));
    }
    if end.is_none() {
        return Ok(None);
    }
    match Request::try_parse(head) {
        Ok(Some((len, request))) => Ok(Some((request, len))),
        Ok(None) => Err(refused(400, "not an HTTP request")),
        Err(error) => Err(unfit(&error)),
    }
}

/// The end of the empty line, which must end after the first `seen` bytes.
fn end_of_head(head: &[u8], seen: usize) -> Option<usize> {
    const EMPTY_LINE: &[u8] = b"\r\n\r\n";
    let from = seen.saturating_sub(EMPTY_LINE.len() - 1);
    let mut windows = head.get(from..)?.windows(EMPTY_LINE.len());
    let at = windows.position(|window| window == EMPTY_LINE)?;
    Some(from + at + EMPTY_LINE.len())
}

/// The response to a valid request, or the rejection.
pub(super) fn respond(request: &Request, rules: &WebSocketRules) -> Result<Vec<u8>, Refused> {
    if request.uri().path() != rules.path {
        return Err(refused(404, "no such path"));
    }
    let mut response = create_response(request).map_err(|error| unfit(&error))?;
    let protocol = agreed(request.headers())
        .ok_or_else(|| refused(400, "the sub-protocol mqtt is not offered"))?;
    if !is_welcome(request.headers(), rules) {
        return Err(refused(
            403,
            "the page's origin is not in the listener's `origins`",
        ));
    }
    // [MQTT-6.0.0-4]
    let name = HeaderValue::from_static(protocol);
    response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, name);
    let mut bytes = Vec::new();
    match write_response(&mut bytes, &response) {
        Ok(()) => Ok(bytes),
        Err(_) => Err(refused(400, "not an HTTP request")),
    }
}

/// The sub-protocol to use.
fn agreed(headers: &HeaderMap) -> Option<&'static str> {
    let offers = |protocol: &&str| {
        words(headers, &SEC_WEBSOCKET_PROTOCOL).any(|offered| offered == *protocol)
    };
    PROTOCOLS.into_iter().find(offers)
}

fn words<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',').map(str::trim))
}

/// Whether the page that connects, if it is a page, is allowed: browsers let any page try, and the broker would take
/// it for a client on this machine.
///
/// A page of the listener's own host and port is allowed if that host is an address or `localhost`. A name must be
/// listed: the owner of a page can make its name resolve to this machine (DNS rebinding, abuse I09).
fn is_welcome(headers: &HeaderMap, rules: &WebSocketRules) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    headers.get_all(ORIGIN).into_iter().all(|origin| {
        let Ok(origin) = origin.to_str() else {
            return false;
        };
        let own = origin.split_once("://").map(|(_, authority)| authority);
        let is_listed = |listed: &String| listed == "*" || listed.eq_ignore_ascii_case(origin);
        let is_own = |own: &str| host.is_some_and(|host| host.eq_ignore_ascii_case(own));
        rules.origins.iter().any(is_listed)
            || own.is_some_and(|own| is_own(own) && names_an_address(own))
    })
}

/// Converts an error of the handshake into a rejection.
fn unfit(error: &Error) -> Refused {
    let Error::Protocol(error) = error else {
        return refused(400, "not an HTTP request");
    };
    match error {
        ProtocolError::WrongHttpMethod => refused(405, "the method is not GET"),
        ProtocolError::WrongHttpVersion => refused(505, "the HTTP version is not 1.1"),
        ProtocolError::MissingConnectionUpgradeHeader
        | ProtocolError::MissingUpgradeWebSocketHeader => refused(
            426,
            "this is an MQTT broker: connect with a WebSocket client",
        ),
        ProtocolError::MissingSecWebSocketVersionHeader => {
            refused(426, "the WebSocket version is not 13")
        }
        _ => refused(400, "Sec-WebSocket-Key is missing or wrong"),
    }
}

fn gone() -> Refused {
    Refused {
        answer: Vec::new(),
        why: "closed before the WebSocket request was answered",
    }
}

fn refused(status: u16, why: &'static str) -> Refused {
    let (phrase, extra) = match status {
        403 => ("Forbidden", ""),
        404 => ("Not Found", ""),
        405 => ("Method Not Allowed", "Allow: GET\r\n"),
        408 => ("Request Timeout", ""),
        426 => (
            "Upgrade Required",
            "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
        ),
        431 => ("Request Header Fields Too Large", ""),
        505 => ("HTTP Version Not Supported", ""),
        _ => ("Bad Request", ""),
    };
    let connection = if status == 426 {
        "Upgrade, close"
    } else {
        "close"
    };
    let len = why.len() + 1;
    let answer = format!(
        "HTTP/1.1 {status} {phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {len}\r\nConnection: {connection}\r\n{extra}\r\n{why}\n"
    );
    Refused {
        answer: answer.into_bytes(),
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &str = "GET /mqtt HTTP/1.1\r\nHost: broker:8083\r\nConnection: Upgrade\r\n\
        Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";

    fn rules(origins: &[&str]) -> WebSocketRules {
        WebSocketRules {
            path: "/mqtt".into(),
            origins: origins.iter().map(|&origin| origin.into()).collect(),
        }
    }

    fn answer(request: &str, rules: &WebSocketRules) -> String {
        let answer = match Request::try_parse(request.as_bytes()) {
            Ok(Some((_, request))) => respond(&request, rules).unwrap_or_else(|no| no.answer),
            Ok(None) => panic!("not whole: {request}"),
            Err(error) => unfit(&error).answer,
        };
        String::from_utf8(answer).expect("text")
    }

    fn status(request: &str, origins: &[&str]) -> u16 {
        let answer = answer(request, &rules(origins));
        answer[9..12].parse().expect("a status")
    }

    /// The key and its answer are those of RFC 6455 section 1.3.
    #[test]
    fn a_request_that_fits_is_answered_with_the_sub_protocol() {
        let answer = answer(REQUEST, &rules(&[])).to_lowercase();

        assert!(answer.starts_with("http/1.1 101 "), "{answer}");
        assert!(answer.contains("\r\nsec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"));
        assert!(answer.contains("\r\nsec-websocket-protocol: mqtt\r\n"));
        assert!(answer.ends_with("\r\n\r\n"));
    }

    #[test]
    fn the_sub_protocol_of_old_clients_is_spoken_when_the_new_one_is_not_offered() {
        for (offered, spoken) in [
            ("mqttv3.1", "mqttv3.1"),
            ("mqttv3.1, mqtt", "mqtt"),
            ("other,mqtt", "mqtt"),
            ("other\r\nSec-WebSocket-Protocol: mqtt", "mqtt"),
        ] {
            let request = REQUEST.replace("Protocol: mqtt", &format!("Protocol: {offered}"));
            let answer = answer(&request, &rules(&[])).to_lowercase();
            let wanted = format!("\r\nsec-websocket-protocol: {spoken}\r\n");
            assert!(answer.contains(&wanted), "{offered}: {answer}");
        }
    }

    #[test]
    fn every_request_that_does_not_fit_has_its_status() {
        let without = |line: &str| REQUEST.replace(line, "");
        let rows = [
            (REQUEST.replace("GET", "POST"), 405),
            (REQUEST.replace("HTTP/1.1", "HTTP/1.0"), 505),
            (REQUEST.replace("/mqtt HTTP", "/ HTTP"), 404),
            (REQUEST.replace("/mqtt HTTP", "/mqtt/ HTTP"), 404),
            (REQUEST.replace("/mqtt HTTP", "/mqtt?x=1 HTTP"), 101),
            (without("Connection: Upgrade\r\n"), 426),
            (without("Upgrade: websocket\r\n"), 426),
            (REQUEST.replace("Version: 13", "Version: 8"), 426),
            (
                without("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"),
                400,
            ),
            (REQUEST.replace("dGhl", ""), 400),
            (without("Sec-WebSocket-Protocol: mqtt\r\n"), 400),
            (REQUEST.replace("Protocol: mqtt", "Protocol: soap"), 400),
            (REQUEST.replace("Host:", "Ho st:"), 400),
        ];

        for (request, wanted) in rows {
            assert_eq!(status(&request, &[]), wanted, "{request}");
        }
    }

    fn status_of_page(host: &str, origin: &str, listed: &[&str]) -> u16 {
        let page = format!("Host: {host}\r\nOrigin: {origin}\r\n");
        status(&REQUEST.replace("Host: broker:8083\r\n", &page), listed)
    }

    #[test]
    fn a_page_of_another_origin_is_refused_unless_it_is_listed() {
        let rows: [(&str, &[&str], u16); 5] = [
            ("http://192.0.2.1", &[], 403),
            ("https://evil.example", &[], 403),
            ("null", &[], 403),
            ("https://good.example", &["https://good.example"], 101),
            ("https://evil.example", &["*"], 101),
        ];

        for (origin, listed, wanted) in rows {
            let found = status_of_page("192.0.2.1:8083", origin, listed);
            assert_eq!(found, wanted, "{origin} {listed:?}");
        }
    }

    /// (abuse I09) DNS rebinding: the page's own name resolves to this machine.
    #[test]
    fn a_page_of_the_same_host_is_refused_if_that_is_a_name_that_is_not_listed() {
        let rows: [(&str, &[&str], u16); 8] = [
            ("127.0.0.1:8083", &[], 101),
            ("[::1]:8083", &[], 101),
            ("LocalHost:8083", &[], 101),
            ("evil.example:8083", &[], 403),
            ("evil.example", &[], 403),
            ("127.0.0.1.evil.example:8083", &[], 403),
            ("localhost.evil.example:8083", &[], 403),
            ("broker:8083", &["http://BROKER:8083"], 101),
        ];

        for (host, listed, wanted) in rows {
            let found = status_of_page(host, &format!("http://{host}"), listed);
            assert_eq!(found, wanted, "{host} {listed:?}");
        }
    }

    #[test]
    fn the_end_of_the_head_is_found_however_it_is_split() {
        let head = b"GET / HTTP/1.1\r\n\r\nrest";

        for seen in 0..=18 {
            assert_eq!(end_of_head(head, seen.min(17)), Some(18), "{seen}");
        }
        assert_eq!(end_of_head(&head[..17], 0), None);
    }
}
