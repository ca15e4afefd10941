//! What a session costs: bytes at rest, and no allocation on the way of a message.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::{CONNECT_3, CONNECT_5_KEPT, Wire, connect_5, message};
use mqttcore_codec::{QoS, ReasonCode, Version, decode};
use mqttcore_session::{Cause, Delivery, Message, Session};

/// Counts what this thread allocates.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<isize> = const { Cell::new(0) };
}

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
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: the caller's promise is passed on.
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

/// What `wire` holds on the heap, with the text of the filter: 16 and its length.
fn heap_bytes(wire: impl FnOnce() -> Wire) -> isize {
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

    assert!(heap <= 400, "{heap} bytes on the heap");
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

    assert!(inline <= 112, "{inline} bytes inline");
    assert!(heap <= 32, "{heap} bytes on the heap");
}

#[test]
fn the_parts_that_queue_up_are_small() {
    assert_eq!(size_of::<Message>(), 56);
    assert!(size_of::<mqttcore_session::Control>() <= 16);
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
                let (packet, _) = decode(&bytes, Version::V3_1_1, &limits).unwrap().unwrap();
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
            let (packet, _) = decode(bytes, Version::V3_1_1, &limits).unwrap().unwrap();
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
            .encode(Version::V5, wire.now, &mut scratch, &mut out)
            .unwrap();
    };
    round();

    assert_eq!(allocations(|| (0..1_000).for_each(|_| round())), 0);
}
