//! The last packets of a connection: outstanding acknowledgements, then DISCONNECT if the broker ends it.
//!
//! A client sends a message again if it gets no acknowledgement. So if a connection ends while acknowledgements wait
//! for the store or for Kafka, the broker waits for them up to a limit and sends them first. A client that closed its
//! sending half gets them, too, since it may still read.

use std::rc::Rc;
use std::time::Duration;

use mqttcore_codec::{PacketType, ReasonCode};
use mqttcore_session::Details;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::clients::client::Client;
use crate::clients::link::{LastPackets, Link};
use crate::routing::journal;
use crate::shard::Shard;
use crate::transport::outbox::{Outbox, OutboxCursor};

/// Longest wait for acknowledgements at the end of a connection.
const LONGEST: Duration = Duration::from_secs(5);
/// Maximum bytes of the outbox that are still sent at the end of a connection.
const CLOSE_FLUSH_BYTES: usize = 256 * 1024;

/// Prepares the last packets of `client`: acknowledgements and, if the broker ends the connection and the client's
/// version has it, a DISCONNECT with the reason code and reason string of `disconnect_reason`.
///
/// Without held acknowledgements the DISCONNECT goes into the outbox at once; otherwise [`send_rest`] adds both.
pub(crate) fn send_disconnect(
    shard: &Rc<Shard>,
    client: &Client,
    disconnect_reason: Option<(ReasonCode, &str)>,
) {
    let Some(link) = client.link() else { return };
    let mut session = client.session.borrow_mut();
    let disconnect = disconnect_reason.and_then(|(reason, text)| {
        let details = if text.is_empty() {
            Details::none()
        } else {
            Details::reason(text)
        };
        session.disconnect_packet(reason, None, details)
    });
    let acknowledgements = if link.has_lost_a_record() || shard.has_lost_its_store() {
        Vec::new()
    } else {
        session.take_held_acks()
    };
    drop(session);
    if !acknowledgements.is_empty() {
        let (sender, safe) = oneshot::channel();
        let tell = move || {
            // The receiver is gone if the wait was too long.
            let _ = sender.send(());
        };
        journal::when_acknowledged(shard, client, Box::new(tell));
        link.hold_last_packets(LastPackets {
            acknowledgements,
            safe,
            disconnect,
        });
    } else if let Some(disconnect) = disconnect {
        shard.trace_control(client, &link, &disconnect);
        link.push_control(shard, &disconnect);
    }
}

/// Puts the packets that [`send_disconnect`] held back into the outbox; returns false if there are none.
pub(crate) async fn send_rest(shard: &Shard, client: &Client, link: &Link) -> bool {
    let Some(last) = link.take_last_packets() else {
        return false;
    };
    let is_safe = matches!(timeout(LONGEST, last.safe).await, Ok(Ok(())));
    if is_safe && !link.has_lost_a_record() {
        for acknowledgement in &last.acknowledgements {
            shard.trace_control(client, link, acknowledgement);
            link.push_control(shard, acknowledgement);
        }
    }
    if let Some(disconnect) = &last.disconnect {
        shard.trace_control(client, link, disconnect);
        link.push_control(shard, disconnect);
    }
    true
}

/// Selects up to [`CLOSE_FLUSH_BYTES`] of `outbox` to send: the `begun` bytes that complete a partly sent packet,
/// then complete packets: DISCONNECT first, then all but PUBLISH, then PUBLISH. The packets are sent in their
/// original order.
///
/// An omitted PUBLISH is still in its session, unless it has QoS 0. If the partly sent packet needs more than that,
/// nothing is sent.
pub(crate) fn leaving(outbox: &Outbox, begun: usize) -> Vec<u8> {
    if begun > CLOSE_FLUSH_BYTES {
        return Vec::new();
    }
    let mut sizes = [0; RANKS];
    for (packet, len) in packets(outbox, begun) {
        sizes[rank(&packet)] += len;
    }
    let mut rooms = [CLOSE_FLUSH_BYTES - begun; RANKS];
    for rank in 1..RANKS {
        rooms[rank] = rooms[rank - 1].saturating_sub(sizes[rank - 1]);
    }
    let mut last = Vec::with_capacity(outbox.len().min(CLOSE_FLUSH_BYTES));
    outbox.walk().copy(begun, &mut last);
    for (mut packet, len) in packets(outbox, begun) {
        let room = &mut rooms[rank(&packet)];
        if len <= *room {
            *room -= len;
            packet.copy(len, &mut last);
        } else {
            // Later packets of this rank are omitted, too, so that the order is kept.
            *room = 0;
        }
    }
    last
}

/// Number of ranks.
const RANKS: usize = 3;

/// Packets of a lower rank have priority.
fn rank(packet: &OutboxCursor<'_>) -> usize {
    let mut first = [0];
    packet.peek(&mut first);
    match PacketType::of(first[0]) {
        Some(PacketType::Disconnect) => 0,
        Some(PacketType::Publish) => 2,
        _ => 1,
    }
}

/// Packets after the first `begun` bytes: position and length of each.
fn packets(outbox: &Outbox, begun: usize) -> impl Iterator<Item = (OutboxCursor<'_>, usize)> {
    let (mut walk, mut waiting) = (outbox.walk(), outbox.len() - begun);
    walk.skip(begun);
    std::iter::from_fn(move || {
        if waiting == 0 {
            return None;
        }
        let (packet, len) = (walk.clone(), walk.packet_len(waiting));
        walk.skip(len);
        waiting -= len;
        Some((packet, len))
    })
}

#[cfg(test)]
mod tests {
    use mqttcore_session::Chunk;

    use super::*;

    const PUBACK: [u8; 4] = [0x40, 2, 0, 1];
    const DISCONNECT: [u8; 3] = [0xE0, 1, 0x8B];

    /// A PUBLISH of 65,538 bytes, which are all `byte` behind the topic.
    fn publish(byte: u8) -> Vec<u8> {
        let mut packet = vec![0x30, 0xFE, 0xFF, 0x03, 0, 1, b't'];
        packet.resize(65_538, byte);
        packet
    }

    fn outbox(packets: &[&[u8]]) -> Outbox {
        let mut outbox = Outbox::default();
        for packet in packets {
            outbox.push_with(|own| own.extend_from_slice(packet));
        }
        outbox
    }

    #[test]
    fn all_leaves_if_it_is_not_too_much() {
        let outbox = outbox(&[&publish(b'a'), &PUBACK, &publish(b'b'), &DISCONNECT]);

        let expected = [&publish(b'a')[..], &PUBACK, &publish(b'b'), &DISCONNECT].concat();
        assert!(leaving(&outbox, 0) == expected);
    }

    #[test]
    fn publishes_are_left_out_before_acknowledgements_and_disconnect() {
        let publishes: Vec<Vec<u8>> = (b'a'..=b'z').map(publish).collect();
        let mut packets: Vec<&[u8]> = publishes.iter().map(|packet| &packet[..]).collect();
        packets.push(&PUBACK);
        packets.push(&[0x30, 3, 0, 1, b't']);
        packets.push(&DISCONNECT);

        let last = leaving(&outbox(&packets), 0);

        let expected = [&publishes[..3].concat()[..], &PUBACK, &DISCONNECT].concat();
        assert!(last == expected, "{} bytes", last.len());
    }

    #[test]
    fn disconnect_leaves_before_acknowledgements() {
        let acknowledgements = PUBACK.repeat(CLOSE_FLUSH_BYTES / 4);

        let last = leaving(&outbox(&[&acknowledgements, &DISCONNECT]), 0);

        let expected = [&acknowledgements[4..], &DISCONNECT].concat();
        assert!(last == expected, "{} bytes", last.len());
    }

    /// The rest of a packet that has begun, in each piece that it may be in.
    #[test]
    fn a_packet_of_which_a_part_is_written_is_ended_first() {
        let chunk: Chunk = publish(b'a').repeat(9).into();
        let one = publish(b'a').len();
        let mut own = Outbox::default();
        own.push_with(|out| out.extend_from_slice(&chunk));
        let mut shared = Outbox::default();
        shared.push_shared(&chunk, 0..chunk.len());
        let mut payload = Outbox::default();
        for at in 0..9 {
            payload.push_with(|out| out.extend_from_slice(&chunk[..7]));
            payload.push_payload(&chunk, at * one + 7..(at + 1) * one);
        }
        for mut outbox in [own, shared, payload] {
            outbox.push_with(|out| out.extend_from_slice(&DISCONNECT));
            outbox.advance(one + 3);
            assert_eq!(outbox.begun(), one - 3);
            outbox.advance(97);
            outbox.release_chunks();
            assert_eq!(outbox.begun(), one - 100);

            let last = leaving(&outbox, outbox.begun());

            let expected = [&chunk[100..4 * one], &DISCONNECT].concat();
            assert!(last == expected, "{} bytes", last.len());
        }
    }

    #[test]
    fn nothing_follows_a_packet_whose_rest_is_too_much() {
        let mut large = vec![0x30, 0x80, 0x80, 0x40];
        large.resize(4 + (1 << 20), 0);
        let mut outbox = outbox(&[&large, &DISCONNECT]);
        outbox.advance(1);

        assert_eq!(leaving(&outbox, outbox.begun()), b"");
    }
}
