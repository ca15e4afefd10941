//! What idle connections and filters hold, by the size of their blocks: `bytes.txt` has the most that each may be.

use std::array;
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

use mqttcore_codec::QoS;
use mqttcore_topics::Directory;

use crate::common::{Client, start, v3};
use crate::{Heap, bounds, one_shard};

/// Sizes that are told apart, in steps of 8 bytes.
const SIZES: usize = 64;

/// Live blocks of this process by their size.
static BLOCKS: [AtomicUsize; SIZES] = [const { AtomicUsize::new(0) }; SIZES];

pub(crate) fn count_block(bytes: usize) {
    if let Some(count) = BLOCKS.get(bytes.div_ceil(8)) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) fn count_out_block(bytes: usize) {
    if let Some(count) = BLOCKS.get(bytes.div_ceil(8)) {
        count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Small blocks from a moment on. Larger ones are tables and buffers of the shard, which come and go.
struct Held {
    pieces: usize,
    blocks: [usize; SIZES],
}

impl Held {
    fn count() -> Self {
        Self {
            pieces: Directory::heap_bytes(),
            blocks: array::from_fn(|size| BLOCKS[size].load(Ordering::Relaxed)),
        }
    }

    /// Bytes of each of `count` in small blocks, and in pieces of the directory; prints them with the blocks.
    fn each(&self, of: &str, count: usize) -> [usize; 2] {
        let pieces = Directory::heap_bytes().saturating_sub(self.pieces) / count;
        let (mut bytes, mut text) = (0, String::new());
        for (size, before) in self.blocks.iter().enumerate() {
            let more = BLOCKS[size].load(Ordering::Relaxed).saturating_sub(*before);
            bytes += 8 * size * more;
            let each = 10 * more / count;
            if each > 4 {
                write!(text, " {}.{} of {},", each / 10, each % 10, 8 * size).expect("a string");
            }
        }
        let bytes = bytes / count;
        eprintln!("{of}: {bytes} bytes each, {pieces} in pieces of the directory; blocks:{text}");
        [bytes, pieces]
    }
}

/// Bytes in blocks of each of `count` clients, each with a wildcard filter if it `subscribes`.
fn idle_bytes(count: usize, subscribes: bool) -> usize {
    let _alone = Heap::alone();
    let broker = start(one_shard());
    v3("first").connect(&broker).disconnect();
    let held = Held::count();

    let clients: Vec<Client> = (0..count)
        .map(|index| {
            let mut client = v3(&format!("idle-{index}")).connect(&broker);
            if subscribes {
                client.subscribe(&format!("load/idle/{index}/+"), QoS::AtMostOnce);
            }
            client.ping();
            client
        })
        .collect();

    let of = if subscribes { "with a filter" } else { "idle" };
    let [each, _] = held.each(of, count);
    drop(clients);
    each
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn assert_within_bounds<const N: usize>(row: &str, bytes: [usize; N]) {
    let most: [f64; N] = bounds(include_str!("bytes.txt"), row);
    let is_within = bytes
        .iter()
        .zip(most)
        .all(|(bytes, most)| *bytes as f64 <= most);
    assert!(is_within, "{row}: {bytes:?} bytes each, at most {most:?}");
}

/// Eight bytes are the test's own client.
#[test]
fn blocks_of_an_idle_connection_are_few_and_small() {
    assert_within_bounds("idle", [idle_bytes(500, false)]);
}

/// Empty buffers are freed with the answers, not by the timer.
#[test]
fn blocks_of_an_idle_connection_with_a_filter_are_few_and_small() {
    assert_within_bounds("idle_with_a_filter", [idle_bytes(500, true)]);
}

/// The goal of issue 18 is 150 bytes, by resident memory of 100,000 filters. Here 10,000 of them share the free pieces of
/// the shard's thread.
#[test]
fn blocks_of_a_filter_of_many_are_few_and_small() {
    const CLIENTS: usize = 10;
    const FILTERS: usize = 1_000;
    let _alone = Heap::alone();
    let broker = start(one_shard());
    let mut clients: Vec<Client> = (0..CLIENTS)
        .map(|index| v3(&format!("client-{index}")).connect(&broker))
        .collect();
    let held = Held::count();

    for (index, client) in clients.iter_mut().enumerate() {
        let places = index * FILTERS..(index + 1) * FILTERS;
        let filters: Vec<_> = places
            .map(|place| format!("load/filters/{}/+/{place}", place % 1_000))
            .collect();
        for packet in filters.chunks(100) {
            let packet: Vec<_> = packet.iter().map(String::as_str).collect();
            client.send_subscribe(&packet, QoS::AtMostOnce);
            client.receive();
        }
        client.ping();
    }

    assert_within_bounds(
        "filter_of_many",
        held.each("one of many filters", CLIENTS * FILTERS),
    );
}
