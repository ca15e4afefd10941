//! What the fuzz targets of WebSocket connections do with their bytes, and what has to hold of the answer.
//!
//! Part of `rust/broker`, in its tests and under a fuzzer: what it calls is not public.

use super::inbound::Inbound;
use super::upgrade::{Refused, request_in, respond};
use crate::config::WebSocketRules;

/// Decodes frames in reads whose lengths the first byte chooses: the packets and the end are those of a reader that
/// gets one byte at a time.
pub fn frames(input: &[u8]) {
    let Some((&choice, bytes)) = input.split_first() else {
        return;
    };
    let slow = decoded(bytes, 1);
    assert_eq!(decoded(bytes, usize::from(choice) + 2), slow);
    assert_eq!(decoded(bytes, bytes.len().max(1)), slow);
}

/// The bytes of packets, and how the frames end.
fn decoded(bytes: &[u8], step: usize) -> (Vec<u8>, String) {
    let mut inbound = Inbound::default();
    let mut packets = Vec::new();
    for part in bytes.chunks(step) {
        let mut part = part.to_vec();
        let kept = inbound.decode(&mut part);
        packets.extend_from_slice(&part[..kept]);
        assert!(inbound.held_bytes() <= 2 * 125, "control frames are short");
    }
    assert!(packets.len() <= bytes.len());
    let pong = inbound.take_ping();
    (packets, format!("{:?} {pong:?}", inbound.ending()))
}

/// Answers a request for an upgrade, in reads whose lengths the first byte chooses, as one that comes a byte at a time.
pub fn upgrade(input: &[u8]) {
    let Some((&choice, bytes)) = input.split_first() else {
        return;
    };
    let slow = answered(bytes, 1);
    assert_eq!(answered(bytes, usize::from(choice) + 2), slow);
    assert_eq!(answered(bytes, bytes.len().max(1)), slow);
}

/// Status of the response, and how many bytes the request has.
fn answered(bytes: &[u8], step: usize) -> Option<(String, usize)> {
    let rules = WebSocketRules {
        path: "/mqtt".into(),
        origins: vec!["http://good.example".into()],
    };
    let mut head = Vec::new();
    for part in bytes.chunks(step) {
        let seen = head.len();
        head.extend_from_slice(part);
        match request_in(&head, seen) {
            Ok(None) => assert!(head.len() <= 8 * 1024, "the head has a limit"),
            Ok(Some((request, len))) => {
                let answer = respond(&request, &rules).unwrap_or_else(|refused| refused.answer);
                return Some((status(&answer), len));
            }
            Err(Refused { answer, .. }) => return Some((status(&answer), 0)),
        }
    }
    None
}

/// The status line of an answer with one head.
fn status(answer: &[u8]) -> String {
    let text = std::str::from_utf8(answer).expect("a response is text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a response has a head");
    let (line, fields) = head.split_once("\r\n").expect("a status line");
    assert!(
        line.starts_with("HTTP/1.1 ") && text.len() < 1024,
        "{text:?}"
    );
    assert!(
        fields.split("\r\n").all(|field| field.contains(": ")),
        "{text:?}"
    );
    assert!(body.is_empty() == line.contains(" 101 "), "{text:?}");
    line.to_owned()
}
