//! What clients can make the broker hold: every byte that is allocated in this process counts.
//!
//! A test's own client is part of it and small. One test at a time, since there is one heap.

#[path = "memory/blocks.rs"]
mod blocks;
#[path = "memory/budget.rs"]
mod budget;
mod common;
#[path = "memory/counts.rs"]
mod counts;
#[path = "memory/durability.rs"]
mod durability;
#[path = "memory/handling.rs"]
mod handling;
#[path = "memory/kept.rs"]
mod kept;
#[path = "common/tls.rs"]
mod tls_client;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mqttcore_broker::{Broker, Config};
use mqttcore_codec::{Packet, Properties, ProtocolVersion, Publish, PublishQoS, QoS, Text, encode};

use common::frames::{BINARY, PING, PONG, REQUEST, Socket, websocket_config};
use common::{Client, config, config_with_limits, eventually, start, v3, v5};
use tls_client::{Dial, Files, TlsSocket, connect_packet, open, tls_config};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
/// Bytes of all allocations so far, given back or not.
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
/// Pages of a checkpoint that are held: as many as its cache may have, however many sessions there are.
static CHECKPOINT_PAGES: AtomicUsize = AtomicUsize::new(0);

/// A page, behind the two counts of whoever shares it.
const PAGE: usize = 16 + 4_096;

// SAFETY: every call goes to the system's allocator as it came; only numbers are kept beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        counts::count_allocation();
        blocks::count_block(layout.size());
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        CHECKPOINT_PAGES.fetch_add(usize::from(layout.size() == PAGE), Ordering::Relaxed);
        // SAFETY: the caller's contract about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        blocks::count_out_block(layout.size());
        CHECKPOINT_PAGES.fetch_sub(usize::from(layout.size() == PAGE), Ordering::Relaxed);
        // SAFETY: the caller's contract about `pointer` and `layout` is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// How much of the heap was in use when the test began to count.
struct Heap {
    before: usize,
}

/// The right to be the one test that runs; taken first, so that it is given back last.
type Alone = MutexGuard<'static, ()>;

impl Heap {
    fn alone() -> Alone {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts from here.
    fn count(_alone: &Alone) -> Self {
        let before = live();
        PEAK.store(before, Ordering::Relaxed);
        Self { before }
    }

    fn grown(&self) -> usize {
        live().saturating_sub(self.before)
    }

    /// Most that was in use at once since counting began.
    fn grown_at_most(&self) -> usize {
        PEAK.load(Ordering::Relaxed).saturating_sub(self.before)
    }
}

/// The bounds of a row of a baseline file: its numbers.
fn bounds<const N: usize>(file: &str, name: &str) -> [f64; N] {
    let rows = file.lines().map(|line| line.split_whitespace());
    let mut row = rows.filter_map(|mut words| (words.next()? == name).then_some(words));
    let numbers = row.next().expect("a line for each row");
    let numbers: Vec<f64> = numbers
        .map(|word| word.parse().expect("a number"))
        .collect();
    numbers.try_into().expect("so many numbers")
}

fn live() -> usize {
    LIVE.load(Ordering::Relaxed)
}

/// One shard, so that every read of a publisher is one chunk for its subscribers.
fn one_shard() -> Config {
    Config {
        shards: 1,
        ..config_with_limits(|limits| limits.qos0_backlog_bytes = 8 * MIB)
    }
}

fn frame(topic: &str, delivery: PublishQoS, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let publish = Publish {
        delivery,
        retain: false,
        topic: Text::new(topic).expect("text"),
        properties: Properties::EMPTY,
        payload,
    };
    encode(&Packet::Publish(publish), ProtocolVersion::V3_1_1, &mut out).expect("PUBLISH encodes");
    out
}

/// A read's worth of bytes of which a subscriber of `small` gets very few: it must be one read,
/// so the broker has handled the one before when this one is sent.
fn send_diluted(publisher: &mut Client, delivery: PublishQoS) {
    let mut bytes = frame("small", delivery, b"!");
    bytes.extend(frame("nobody", PublishQoS::AtMostOnce, &vec![0; 60 * KIB]));
    publisher.send_bytes(&bytes);
    if delivery == PublishQoS::AtMostOnce {
        publisher.ping();
    } else {
        publisher.receive();
    }
}

/// Fills the sockets to a client that does not read.
fn block(broker: &Broker, topic: &str) {
    let mut publisher = v3("blocker").connect(broker);
    for _ in 0..6 {
        publisher.publish(topic, vec![0; 1_000_000], QoS::AtMostOnce);
    }
    publisher.ping();
    publisher.disconnect();
    eventually("the blocker is gone", || {
        broker.stats().clients_connected == 2
    });
}

/// Decision 18
#[test]
fn a_slow_client_does_not_hold_the_chunks_of_its_queued_messages() {
    const MESSAGES: usize = 1_000;
    let alone = Heap::alone();
    let broker = start(one_shard());
    let mut slow = v3("slow").small_buffer().connect(&broker);
    slow.subscribe("small", QoS::AtMostOnce);
    slow.subscribe("block", QoS::AtMostOnce);
    let mut publisher = v3("publisher").connect(&broker);
    block(&broker, "block");
    let heap = Heap::count(&alone);

    for _ in 0..MESSAGES {
        send_diluted(&mut publisher, PublishQoS::AtMostOnce);
    }

    // 60 MiB went by; the queue of the slow client is 10 KiB.
    assert_eq!(broker.stats().dropped_qos0_backlog, 0);
    assert!(heap.grown() < 2 * MIB, "{} KiB", heap.grown() / KIB);
}

/// Thirty-two messages are under way to it for as long as it likes.
#[test]
fn a_client_that_does_not_acknowledge_does_not_hold_the_chunks_of_what_it_was_sent() {
    const WINDOW: u16 = 32;
    let alone = Heap::alone();
    let broker = start(one_shard());
    let mut mute = v3("mute").connect(&broker);
    mute.subscribe("small", QoS::AtLeastOnce);
    let mut publisher = v3("publisher").connect(&broker);
    let heap = Heap::count(&alone);

    for id in 1..=WINDOW {
        let packet_id = mqttcore_codec::PacketId::new(id).expect("not 0");
        let dup = false;
        send_diluted(&mut publisher, PublishQoS::AtLeastOnce { packet_id, dup });
        mute.message();
    }

    // 2 MiB if each of them held its chunk; the broker may take a tick to let go.
    eventually("the chunks are let go", || heap.grown() < 512 * KIB);
}

#[test]
fn an_offline_client_does_not_hold_the_chunks_of_its_queued_messages() {
    const MESSAGES: u16 = 200;
    let alone = Heap::alone();
    let broker = start(one_shard());
    let mut away = v3("away").keeping_session_s(60).connect(&broker);
    away.subscribe("small", QoS::AtLeastOnce);
    away.disconnect();
    let mut publisher = v3("publisher").connect(&broker);
    let heap = Heap::count(&alone);

    for id in 1..=MESSAGES {
        let packet_id = mqttcore_codec::PacketId::new(id).expect("not 0");
        let dup = false;
        send_diluted(&mut publisher, PublishQoS::AtLeastOnce { packet_id, dup });
    }

    assert!(heap.grown() < MIB, "{} KiB", heap.grown() / KIB);
}

#[test]
fn a_retained_message_does_not_hold_its_chunk() {
    const MESSAGES: usize = 200;
    let alone = Heap::alone();
    let broker = start(one_shard());
    let mut publisher = v3("publisher").connect(&broker);
    let heap = Heap::count(&alone);

    for number in 0..MESSAGES {
        let mut bytes = frame(&format!("kept/{number}"), PublishQoS::AtMostOnce, b"!");
        bytes[0] |= 1;
        bytes.extend(frame("nobody", PublishQoS::AtMostOnce, &vec![0; 60 * KIB]));
        publisher.send_bytes(&bytes);
        publisher.ping();
    }

    assert_eq!(broker.stats().retained_messages, MESSAGES as u64);
    assert!(heap.grown() < MIB, "{} KiB", heap.grown() / KIB);
}

/// Abuse H01: the backlog is the bound, however much is published.
#[test]
fn a_stalled_client_costs_its_backlog_and_no_more() {
    const BACKLOG: usize = MIB;
    let alone = Heap::alone();
    let broker = start(Config {
        shards: 1,
        ..config_with_limits(|limits| limits.qos0_backlog_bytes = BACKLOG)
    });
    let mut stalled = v3("stalled").small_buffer().connect(&broker);
    stalled.subscribe("flood", QoS::AtMostOnce);
    let mut publisher = v3("publisher").connect(&broker);
    let heap = Heap::count(&alone);

    for _ in 0..1_000 {
        for _ in 0..20 {
            publisher.publish("flood", [0; 2_000], QoS::AtMostOnce);
        }
        publisher.ping();
    }

    assert!(broker.stats().dropped_qos0_backlog > 10_000);
    let most = heap.grown_at_most();
    assert!(most < 5 * BACKLOG, "{} KiB", most / KIB);
}

/// A hundred of them hold one copy of what they all wait for.
#[test]
fn many_stalled_clients_share_their_queued_messages() {
    const CLIENTS: usize = 20;
    let alone = Heap::alone();
    let broker = start(Config {
        shards: 1,
        ..config_with_limits(|limits| limits.qos0_backlog_bytes = 2 * MIB)
    });
    let stalled: Vec<Client> = (0..CLIENTS)
        .map(|index| {
            let hello = v3(&format!("stalled-{index}")).small_buffer();
            let mut client = hello.connect(&broker);
            client.subscribe("flood", QoS::AtMostOnce);
            client
        })
        .collect();
    let mut publisher = v3("publisher").connect(&broker);
    let heap = Heap::count(&alone);

    for _ in 0..10 {
        publisher.publish("flood", vec![0; 900_000], QoS::AtMostOnce);
        publisher.ping();
    }

    eventually("all of them are behind", || {
        broker.stats().dropped_qos0_backlog >= CLIENTS as u64
    });
    assert!(heap.grown() < 16 * MIB, "{} KiB", heap.grown() / KIB);
    drop(stalled);
}

/// Abuse D22: the payload is there once.
#[test]
fn a_large_message_to_many_clients_is_held_once() {
    const CLIENTS: usize = 100;
    let alone = Heap::alone();
    let broker = start(one_shard());
    let clients: Vec<Client> = (0..CLIENTS)
        .map(|index| {
            let hello = v3(&format!("away-{index}")).keeping_session_s(60);
            let mut client = hello.connect(&broker);
            client.subscribe("large", QoS::AtLeastOnce);
            client
        })
        .collect();
    clients.into_iter().for_each(Client::disconnect);
    let mut publisher = v3("publisher").connect(&broker);
    let heap = Heap::count(&alone);

    publisher.publish("large", vec![0; 1_000_000], QoS::AtLeastOnce);
    publisher.receive();

    assert!(heap.grown() < 4 * MIB, "{} KiB", heap.grown() / KIB);
}

/// Abuse D21: whoever does not read the answers is not read from either.
#[test]
fn unread_answers_are_bounded() {
    let alone = Heap::alone();
    let broker = start(one_shard());
    let mut bystander = v3("bystander").connect(&broker);
    let mut client = v3("flood").small_buffer().connect(&broker);
    let questions = b"\xC0\x00".repeat(32 * KIB);
    let heap = Heap::count(&alone);

    while client.sends_within(&questions, std::time::Duration::from_millis(300)) {}

    bystander.ping();
    let most = heap.grown_at_most();
    assert!(most < 4 * MIB, "{} KiB", most / KIB);
}

/// Abuse E16: asking for everything again and again makes no list of it.
#[test]
fn subscriptions_made_again_during_a_replay_are_not_piled_up() {
    const PACKETS: usize = 1_000;
    let alone = Heap::alone();
    let broker = start(one_shard());
    let mut publisher = v3("publisher").connect(&broker);
    for number in 0..4_000 {
        publisher.publish_retained(&format!("kept/{number}"), [0; 2_000], QoS::AtMostOnce);
    }
    publisher.ping();
    let mut stalled = v3("stalled").small_buffer().connect(&broker);
    stalled.send_subscribe(&["kept/+"], QoS::AtMostOnce);
    eventually("its replay has begun", || broker.stats().messages_sent > 0);
    let heap = Heap::count(&alone);

    for _ in 0..PACKETS {
        stalled.send_subscribe(&["kept/+"; 100], QoS::AtMostOnce);
    }

    eventually("all of them are read", || {
        broker.stats().packets_received >= 4_000 + PACKETS as u64
    });
    assert!(heap.grown() < 2 * MIB, "{} KiB", heap.grown() / KIB);
}

/// Decision 17: a full mailbox between shards stops the reading of its publisher. Beside a build of all cores the most was
/// 22 to 66 MiB: it depends on how long a shard waits for its core.
#[test]
fn a_flood_from_shard_to_shard_is_bounded() {
    let alone = Heap::alone();
    let broker = start(config());
    let mut subscribers: Vec<Client> = (0..4)
        .map(|index| {
            let mut client = v3(&format!("subscriber-{index}")).connect(&broker);
            client.subscribe("flood", QoS::AtMostOnce);
            client
        })
        .collect();
    let heap = Heap::count(&alone);

    std::thread::scope(|scope| {
        for index in 0..3 {
            let broker = &broker;
            scope.spawn(move || {
                let mut publisher = v3(&format!("publisher-{index}")).connect(broker);
                let batch = publisher.numbered("flood", QoS::AtMostOnce, 0..10_000);
                for _ in 0..10 {
                    publisher.send_bytes(&batch);
                }
                publisher.ping();
            });
        }
    });
    eventually("all is delivered or dropped", || {
        let stats = broker.stats();
        stats.messages_sent + stats.dropped_qos0_backlog == 4 * 300_000
    });

    let most = heap.grown_at_most();
    assert!(most < 96 * MIB, "{} KiB", most / KIB);
    subscribers.clear();
}

/// Abuse C15: a connection that has said nothing costs little.
#[test]
fn half_open_connections_are_cheap() {
    const CONNECTIONS: usize = 200;
    let alone = Heap::alone();
    let broker = start(one_shard());
    let address = broker.addresses()[0];
    // The shard's own buffers are there before it counts.
    v3("first").connect(&broker).disconnect();
    let heap = Heap::count(&alone);

    let silent: Vec<Client> = (0..CONNECTIONS).map(|_| v3("").open(address)).collect();
    eventually("all are accepted", || {
        broker.stats().connections_accepted == CONNECTIONS as u64 + 1
    });

    let each = heap.grown() / CONNECTIONS;
    assert!(each < 4 * KIB, "{each} bytes each");
    drop(silent);
}

/// A WebSocket costs the state of its frames, whatever came through it before.
#[test]
fn an_idle_websocket_that_took_large_messages_holds_little_more_than_a_plain_connection() {
    const CLIENTS: usize = 20;
    let alone = Heap::alone();
    let broker = start(Config {
        shards: 1,
        ..websocket_config()
    });
    v3("first").connect(&broker).disconnect();
    let large = frame("nobody", PublishQoS::AtMostOnce, &vec![0; 1_000_000]);
    let heap = Heap::count(&alone);

    let sockets: Vec<Socket> = (0..CLIENTS)
        .map(|index| {
            let mut socket = Socket::open(&broker);
            socket.send_frame(BINARY, &v3(&format!("idle-{index}")).bytes());
            socket.expect(b"\x20\x02\x00\x00");
            socket.send_frame(BINARY, &large);
            socket.send_frame(BINARY, b"\xC0\x00");
            socket.expect(b"\xD0\x00");
            socket
        })
        .collect();

    // The buffer of the last message is kept for a moment, for the next one.
    eventually("less than 4 KiB are left of each", || {
        heap.grown() / CLIENTS < 4 * KIB
    });
    drop(sockets);
}

/// Both ends of TLS are in this process. The client's end is about as large as the broker's; the goal for the latter
/// is 24 KiB.
#[test]
fn an_idle_client_of_tls_holds_little() {
    const CLIENTS: usize = 50;
    let files = Files::new("client");
    let dial = Dial::new(&files.made.ca).config();
    let alone = Heap::alone();
    let broker = start(Config {
        shards: 1,
        ..tls_config(files.settings())
    });
    let connect = |id: &str| {
        let mut socket =
            open(Arc::clone(&dial), "localhost", broker.addresses()[0]).expect("let in");
        socket
            .write_all(&connect_packet(id))
            .expect("the broker reads");
        socket.read_exact(&mut [0; 4]).expect("CONNACK");
        socket
    };
    let first = connect("first");
    let heap = Heap::count(&alone);

    let sockets: Vec<TlsSocket> = (0..CLIENTS)
        .map(|index| connect(&format!("idle-{index}")))
        .collect();

    let each = heap.grown() / CLIENTS;
    assert!(each < 24 * KIB, "{each} bytes for both ends");
    drop((first, sockets));
}

/// A header announces what it likes: room is made for what comes.
#[test]
fn a_frame_that_only_announces_its_length_costs_nothing() {
    const CLIENTS: usize = 20;
    let alone = Heap::alone();
    let broker = start(Config {
        shards: 1,
        ..websocket_config()
    });
    v3("first").connect(&broker).disconnect();
    let heap = Heap::count(&alone);

    let mut sockets: Vec<Socket> = (0..CLIENTS).map(|_| Socket::open(&broker)).collect();
    for socket in &mut sockets {
        socket.send_frame(PING, b"");
        assert_eq!(socket.receive().map(|(first, _)| first), Some(PONG));
        socket.send(b"\x82\xFF\0\0\0\0\x0F\xFF\xFF\xFF\0\0\0\0\x10");
    }
    eventually("the headers are read", || {
        broker.stats().bytes_received >= (CLIENTS * (REQUEST.len() + 6 + 15)) as u64
    });

    assert!(heap.grown_at_most() < CLIENTS * 16 * KIB + 128 * KIB);
}

#[test]
fn clients_that_came_and_went_leave_nothing_behind() {
    fn churn(broker: &Broker, rounds: usize) {
        for round in 0..rounds {
            let mut client = v5(&format!("client-{}", round % 50)).connect(broker);
            client.subscribe(&format!("topic/{round}/+"), QoS::AtLeastOnce);
            client.publish_retained("topic/kept", round.to_string(), QoS::AtMostOnce);
            client.publish(&format!("topic/{round}/a"), "x", QoS::AtLeastOnce);
            client.vanish();
        }
        eventually("everybody is gone", || {
            let stats = broker.stats();
            (stats.clients_connected, stats.subscriptions) == (0, 0)
        });
    }
    let alone = Heap::alone();
    let broker = start(config());
    churn(&broker, 300);
    let heap = Heap::count(&alone);

    churn(&broker, 1_500);

    // The directory cleans up and forgets in its own time.
    eventually("it is as before", || heap.grown() < 256 * KIB);
}

#[test]
fn a_stopped_broker_gives_everything_back() {
    let alone = Heap::alone();
    let cycle = || {
        let broker = start(config());
        let mut client = v5("one").connect(&broker);
        client.subscribe("a", QoS::AtLeastOnce);
        client.publish_retained("a", vec![0; 10 * KIB], QoS::AtLeastOnce);
        client.vanish();
        broker.stop(common::DEADLINE);
    };
    (0..5).for_each(|_| cycle());
    let heap = Heap::count(&alone);

    (0..20).for_each(|_| cycle());

    assert!(heap.grown() < MIB, "{} KiB", heap.grown() / KIB);
}

/// A subscriber that always reads but never catches up.
#[test]
fn a_client_that_is_always_a_little_behind_costs_its_backlog_and_no_more() {
    let alone = Heap::alone();
    let broker = start(one_shard());
    let mut slow = v3("slow").small_buffer().connect(&broker);
    slow.subscribe("small", QoS::AtMostOnce);
    let mut publisher = v3("publisher").connect(&broker);
    let batch = frame("small", PublishQoS::AtMostOnce, &[0; 100]).repeat(500);
    let heap = Heap::count(&alone);

    // 4 MiB lie between the two from now on.
    for _ in 0..100 {
        publisher.send_bytes(&batch);
        publisher.ping();
    }
    for _ in 0..1_000 {
        publisher.send_bytes(&batch);
        publisher.ping();
        (0..500).for_each(|_| drop(slow.message()));
    }

    assert_eq!(broker.stats().dropped_qos0_backlog, 0);
    assert!(heap.grown() < 24 * MIB, "{} MiB", heap.grown() / MIB);
}
