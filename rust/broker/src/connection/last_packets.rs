//! The last packets of a connection: acknowledgements that are due, then DISCONNECT if the broker ends it.
//!
//! A client whose messages were accepted and never acknowledged sends them again. So an acknowledgement that still waits
//! for the store or for Kafka when a connection ends is awaited for a while, and leaves first. A client that sends nothing
//! more may have closed its sending half alone, so it gets its acknowledgements, too.

use std::rc::Rc;
use std::time::Duration;

use mqttcore_codec::{PacketType, ReasonCode};
use mqttcore_session::Details;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::clients::client::Client;
use crate::clients::link::{LastPackets, Link};
use crate::clients::outbox::{Outbox, OutboxCursor};
use crate::routing::journal;
use crate::shard::Shard;

/// How long acknowledgements may keep a connection that ends.
const LONGEST: Duration = Duration::from_secs(5);
/// Waiting bytes that a connection that ends still gets.
const CLOSE_FLUSH_BYTES: usize = 256 * 1024;

/// Has the connection of `client` end with its acknowledgements and, if the broker ends it, a DISCONNECT with the reason
/// and text of `farewell`, where the client's version has one.
///
/// What waits for nothing is in the outbox at once, the rest when [`send_rest`] says so.
pub(crate) fn send_disconnect(
    shard: &Rc<Shard>,
    client: &Client,
    farewell: Option<(ReasonCode, &str)>,
) {
    let Some(link) = client.link() else { return };
    let mut session = client.session.borrow_mut();
    let disconnect = farewell.and_then(|(reason, text)| {
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
            // The connection may have waited long enough.
            let _ = sender.send(());
        };
        journal::when_acknowledged(shard, client, Box::new(tell));
        link.last_packets.set(Some(Box::new(LastPackets {
            acknowledgements,
            safe,
            disconnect,
        })));
    } else if let Some(disconnect) = disconnect {
        link.push_control(shard, &disconnect);
    }
}

/// Puts what [`send_disconnect`] held back into the outbox; false if that is nothing.
pub(crate) async fn send_rest(shard: &Shard, link: &Link) -> bool {
    let Some(last) = link.last_packets.take() else {
        return false;
    };
    let is_safe = matches!(timeout(LONGEST, last.safe).await, Ok(Ok(())));
    if is_safe && !link.has_lost_a_record() {
        for acknowledgement in &last.acknowledgements {
            link.push_control(shard, acknowledgement);
        }
    }
    if let Some(disconnect) = &last.disconnect {
        link.push_control(shard, disconnect);
    }
    true
}

/// What still leaves of `outbox`, [`CLOSE_FLUSH_BYTES`] at most: the `begun` bytes that are left of a packet that the client has a
/// part of, and of whole packets DISCONNECT first, then all but PUBLISH, then PUBLISH, in their order.
///
/// A PUBLISH that is left out is still in its session, unless it has QoS 0. If more than that is left of the packet that
/// is begun, nothing can follow it, and nothing leaves.
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
            // Nothing of this rank that stands behind it leaves either: their order stays.
            *room = 0;
        }
    }
    last
}

/// How many ranks packets have.
const RANKS: usize = 3;

/// Packets of a lower rank leave rather than others.
fn rank(packet: &OutboxCursor<'_>) -> usize {
    let mut first = [0];
    packet.peek(&mut first);
    match PacketType::of(first[0]) {
        Some(PacketType::Disconnect) => 0,
        Some(PacketType::Publish) => 2,
        _ => 1,
    }
}

/// The packets behind the first `begun` bytes, each as the place where it begins and its length.
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
