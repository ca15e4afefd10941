//! What a session costs: bytes at rest, and no allocation on the way of a message.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::{CONNECT_3, CONNECT_5_KEPT, Wire, connect_5, message, start};
use mqttcore_codec::{ProtocolVersion, QoS, ReasonCode, decode};
use mqttcore_session::{Cause, Delivered, Delivery, Message, Secret, ServerLimits, Session};
use mqttcore_topics::{TopicFilter, TopicLimits};

/// Counts what this thread allocates.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<isize> = const { Cell::new(0) };
    /// How many blocks of [`WATCHED_BYTES`] were freed without being wiped.
    static NOT_WIPED: Cell<usize> = const { Cell::new(0) };
}

/// The size of a secret that no other block has.
const WATCHED_BYTES: usize = 4_099;

fn count(bytes: isize) {
    // A thread that is being torn down has no counters any more.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + usize::from(bytes > 0)));
    let _ = BYTES.try_with(|count| count.set(count.get() + bytes));
}

// SAFETY: every call is passed on to the system's allocator as it came.
#[expect(unsafe_code, reason = "a counting allocator cannot be written without")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller's contract is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        if layout.size() == WATCHED_BYTES {
            // SAFETY: whoever frees a block of bytes has written all of them.
            let bytes = unsafe { std::slice::from_raw_parts(pointer, WATCHED_BYTES) };
            let is_wiped = bytes.iter().all(|byte| *byte == 0);
            let _ = NOT_WIPED.try_with(|count| count.set(count.get() + usize::from(!is_wiped)));
        }
        // SAFETY: the caller's contract is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

/// A session with a connection and one subscription, whose buffers are empty.
fn idle() -> Wire {
    let mut wire = Wire::new();
    wire.connect(CONNECT_5_KEPT);
    wire.receive();
    wire.ok(b"\x82\x15\x00\x01\x00\x00\x0ffleet/+/command\x01");
    wire.receive();
    wire.ok(b"\xc0\x00");
    wire.receive();
    wire.session.shrink();
    wire
}

/// Texts of filters come from the allocator of the directory, whose own tables are not counted.
fn make_first_filter() {
    let filter = TopicFilter::parse("first", &TopicLimits::default());
    assert!(filter.is_ok());
}

/// What `wire` holds on the heap, without the text of the filter.
fn heap_bytes(wire: impl FnOnce() -> Wire) -> isize {
    make_first_filter();
    let before = BYTES.get();
    let wire = wire();
    let limits = size_of_val(&*wire.limits) + 2 * size_of::<usize>();
    BYTES.get() - before - limits.cast_signed()
}

/// The goal of the engine is 1,500 bytes a connected client with one subscription, 734 as a
/// stretch.
#[test]
fn an_idle_connected_session_with_one_subscription_is_small() {
    let heap = heap_bytes(idle);

    assert!(heap <= 272, "{heap} bytes on the heap");
}

/// Of a million of them each byte is a megabyte.
#[test]
fn a_session_whose_client_is_away_is_smaller() {
    let heap = heap_bytes(|| {
        let mut wire = idle();
        wire.session.detach(wire.now, Cause::ConnectionLost);
        assert!(wire.session.poll_event().is_none());
        wire
    });
    let inline = size_of::<Session>();

    assert!(inline <= 96, "{inline} bytes inline");
    assert_eq!(heap, 0, "bytes on the heap");
}

#[test]
fn the_parts_that_queue_up_are_small() {
    assert_eq!(size_of::<Message>(), 48);
    assert!(size_of::<mqttcore_session::Control>() <= 16);
}

#[test]
fn a_message_tells_what_it_has_on_the_heap() {
    let before = BYTES.get();
    // 24 bytes: the allocator is asked for whole words.
    let message = message("fleet/7/command", b"a payload", QoS::AtMostOnce);

    assert_eq!(BYTES.get() - before, message.heap_bytes().cast_signed());
}

#[test]
fn delivering_qos_0_allocates_nothing() {
    let mut wire = Wire::connected(CONNECT_3);
    let message = message("fleet/7/command", b"payload", QoS::AtMostOnce);
    let mut round = || {
        wire.session
            .deliver(wire.now, &message, Delivery::default());
        assert!(wire.session.poll_transmit().is_some());
    };
    round();

    assert_eq!(allocations(|| (0..1_000).for_each(|_| round())), 0);
}

#[test]
fn delivering_qos_1_and_2_allocates_nothing_once_warm() {
    let mut wire = Wire::connected(CONNECT_3);
    let (once, exactly) = (
        message("t", b"payload", QoS::AtLeastOnce),
        message("t", b"payload", QoS::ExactlyOnce),
    );
    let mut id = 0_u16;
    let mut round = || {
        for message in [&once, &exactly] {
            id = if id == u16::MAX { 1 } else { id + 1 };
            let [high, low] = id.to_be_bytes();
            wire.session
                .deliver(wire.now, message, Delivery::new(QoS::ExactlyOnce, &[]));
            assert!(wire.session.poll_transmit().is_some());
            for ack in if message.qos() == QoS::AtLeastOnce {
                &[0x40][..]
            } else {
                &[0x50, 0x70]
            } {
                let bytes = [*ack, 2, high, low];
                let limits = wire.limits.after_connect();
                let (packet, _) = decode(&bytes, ProtocolVersion::V3_1_1, &limits)
                    .unwrap()
                    .unwrap();
                wire.session.handle_packet(wire.now, packet).unwrap();
                while wire.session.poll_transmit().is_some() {}
            }
        }
    };
    round();

    assert_eq!(allocations(|| (0..40_000).for_each(|_| round())), 0);
}

#[test]
fn taking_a_publish_allocates_nothing_once_warm() {
    let mut wire = Wire::connected(CONNECT_3);
    let mut round = || {
        for bytes in [
            &b"\x30\x06\x00\x01t123"[..],
            b"\x32\x08\x00\x01t\x00\x01123",
            b"\x34\x08\x00\x01t\x00\x02123",
            b"\x62\x02\x00\x02",
        ] {
            let limits = wire.limits.after_connect();
            let (packet, _) = decode(bytes, ProtocolVersion::V3_1_1, &limits)
                .unwrap()
                .unwrap();
            let request = wire.session.handle_packet(wire.now, packet).unwrap();
            if let mqttcore_session::Request::Publish(publish) = request
                && let Some(packet_id) = publish.packet_id()
            {
                wire.session
                    .accept_publish(packet_id, publish.qos(), ReasonCode::SUCCESS);
            }
            wire.session.confirm(wire.session.last_token());
            while wire.session.poll_transmit().is_some() {}
        }
    };
    round();

    assert_eq!(allocations(|| (0..1_000).for_each(|_| round())), 0);
}

#[test]
fn encoding_for_a_subscription_identifier_allocates_nothing_once_warm() {
    let mut wire = Wire::connected(&connect_5(2, b""));
    let message = message("t", b"payload", QoS::AtMostOnce);
    let id = [std::num::NonZeroU32::MIN];
    let mut scratch = mqttcore_codec::PropertiesBuf::default();
    let mut out = Vec::new();
    let mut round = || {
        wire.session
            .deliver(wire.now, &message, Delivery::new(QoS::AtMostOnce, &id));
        let Some(mqttcore_session::Transmit::Publish(publish)) = wire.session.poll_transmit()
        else {
            panic!("a PUBLISH")
        };
        out.clear();
        publish
            .encode(ProtocolVersion::V5, wire.now, &mut scratch, &mut out)
            .unwrap();
    };
    round();

    assert_eq!(allocations(|| (0..1_000).for_each(|_| round())), 0);
}

#[test]
fn a_secret_is_wiped_before_its_memory_is_freed() {
    let before = NOT_WIPED.get();

    drop(vec![b'x'; WATCHED_BYTES]);
    assert_eq!(NOT_WIPED.get(), before + 1, "whatever is no secret");
    drop(Secret::from(&[b'x'; WATCHED_BYTES][..]));

    assert_eq!(NOT_WIPED.get(), before + 1);
}

/// Abuse D08: 3.x has no Receive Maximum; the engine reads less when many are open.
#[test]
fn a_3_x_client_may_open_every_id_and_costs_one_bit_each() {
    let mut wire = Wire::connected(CONNECT_3);
    let before = BYTES.get();

    for id in 1..=u16::MAX {
        let [high, low] = id.to_be_bytes();
        wire.ok(&[0x34, 6, 0, 1, b't', high, low, b'!']);
        wire.receive();
    }

    wire.session.shrink();
    assert_eq!(wire.session.unreleased_ids().count(), 65_535);
    let grown = BYTES.get() - before;
    assert!(grown < 10_000, "{grown} bytes");
}

/// Two subscriptions, and messages in both directions, at every QoS, more than the send quota allows.
fn work(wire: &mut Wire) {
    wire.ok(b"\x82\x0b\x00\x01\x00\x00\x01u\x01\x00\x01v\x01");
    wire.receive();
    for payload in 0..60_u8 {
        let qos = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][usize::from(payload % 3)];
        wire.deliver(&message("t", &[payload], qos), QoS::ExactlyOnce);
        wire.ok(&[0x34, 7, 0, 1, b't', 0, payload + 1, 0, b'!']);
    }
    for id in 1..=60_u8 {
        wire.ok(&[0x62, 2, 0, id]);
    }
    loop {
        let packets = wire.receive();
        if packets.is_empty() {
            break;
        }
        for packet in packets {
            match packet[..] {
                [0x32, _, 0, 1, b't', high, low, ..] => wire.ok(&[0x40, 2, high, low]),
                [0x34, _, 0, 1, b't', high, low, ..] => wire.ok(&[0x50, 2, high, low]),
                [0x62, _, high, low, ..] => wire.ok(&[0x70, 2, high, low]),
                _ => continue,
            };
        }
    }
    assert_eq!(wire.session.in_flight() + wire.session.queued(), 0);
    wire.ok(b"\xa2\x09\x00\x01\x00\x00\x01u\x00\x01v");
    wire.receive();
    wire.events();
}

#[test]
fn a_client_that_was_busy_costs_no_more_than_one_that_was_not() {
    make_first_filter();
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    wire.session.shrink();
    let before = BYTES.get();

    work(&mut wire);
    wire.session.shrink();

    assert_eq!(BYTES.get(), before);
}

/// The client asked for no aliases, as most do.
#[test]
fn a_client_without_aliases_has_no_table_of_them() {
    let connected = |alias_maximum: u8| {
        let connect = connect_5(2, &[0x22, 0, alias_maximum]);
        heap_bytes(move || Wire::connected(&connect))
    };

    assert!(connected(0) < connected(1));
}

/// Stores a message under `key`; the session may let go of it.
fn deliver(wire: &mut Wire, key: u64) -> Delivered {
    let delivery = Delivery {
        key,
        ..Delivery::new(QoS::AtLeastOnce, &[])
    };
    let message = message("t", b"a payload of 30 bytes for this", QoS::AtLeastOnce);
    wire.session.deliver(wire.now, &message, delivery)
}

#[test]
fn a_closed_queue_holds_nothing_but_figures() {
    let mut wire = Wire::new();
    wire.durable = true;
    wire.connect(CONNECT_5_KEPT);
    wire.lose();
    assert!(wire.session.spill());
    wire.events();
    let before = BYTES.get();

    for key in 1..=1_000 {
        deliver(&mut wire, key);
    }

    assert_eq!(wire.session.queued(), 1_000);
    let grown = BYTES.get() - before;
    assert!(grown < 200, "{grown} bytes");
}

/// Whether its client is here and slow or away.
#[test]
fn a_queue_beyond_memory_holds_what_memory_may_hold_and_figures() {
    for is_here in [false, true] {
        let mut wire = Wire::with(ServerLimits {
            inflight_max: 3,
            queue_messages: 12,
            queue_bytes: 12 * 130,
            ..ServerLimits::default()
        });
        wire.durable = true;
        wire.connect(CONNECT_5_KEPT);
        wire.receive();
        if !is_here {
            wire.lose();
        }
        let before = BYTES.get();

        for key in 1..=2_000 {
            deliver(&mut wire, key);
            wire.events();
        }

        let grown = BYTES.get() - before;
        assert!(grown < 5_000, "{grown} bytes");
    }
}

fn restored() -> Wire {
    let mut wire = Wire::new();
    wire.session = Session::restored(
        ProtocolVersion::V5,
        std::sync::Arc::clone(&wire.limits),
        start(),
        100,
    );
    wire
}

#[test]
fn a_queue_without_messages_in_the_store_is_opened_for_nothing() {
    let mut wire = restored();

    let allocated = allocations(|| {
        wire.session.restore_maybe_sent(0);
        wire.session.begin_paging(1);
    });

    assert_eq!(allocated, 0);
}

/// Of the queued messages only the mark that some may have been sent takes memory.
#[test]
fn a_queue_that_is_spilled_again_remembers_a_crash_as_long_as_that_concerns_it() {
    let at = |key| Delivery {
        key,
        ..Delivery::new(QoS::AtLeastOnce, &[])
    };
    let message = |payload| message("t", payload, QoS::AtLeastOnce);
    let spilled_again = |maybe_sent_below, last_of_old| {
        heap_bytes(|| {
            let mut wire = restored();
            wire.session.restore_spilled(2, 4);
            wire.session.restore_maybe_sent(maybe_sent_below);
            // Session Expiry Interval 100 s, Receive Maximum 1.
            wire.resume(&connect_5(0, b"\x11\x00\x00\x00\x64\x21\x00\x01"));
            wire.session.begin_paging(10);
            let page = [6, 7].map(|key| (message(b"a"), at(key)));
            wire.session.page(wire.now, page, true, |_| true);
            wire.session.deliver(wire.now, &message(b"b"), at(10));
            wire.receive();
            for id in 1..=last_of_old {
                wire.ok(&[0x40, 2, 0, id]);
                wire.receive();
            }
            wire.lose();
            assert!(wire.session.spill());
            wire
        })
    };

    assert!(spilled_again(8, 0) > spilled_again(0, 0));
    assert_eq!(spilled_again(8, 1), spilled_again(0, 1));
}
