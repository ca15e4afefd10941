//! What decoding allocates: nothing, unless a packet holds a list.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use mqttcore_codec::{Limits, Packet, ProtocolVersion, decode, decode_connect};

#[test]
fn a_publish_of_qos_0_is_decoded_without_allocating() {
    let bytes = b"\x30\x0A\x00\x05a/b/cxyz";

    let (decoded, allocations) =
        counted(|| decode(bytes, ProtocolVersion::V3_1_1, &Limits::default()));

    assert!(matches!(decoded, Ok(Some((Packet::Publish(_), 12)))));
    assert_eq!(allocations, 0);
}

#[test]
fn a_publish_of_5_with_properties_is_decoded_and_listed_without_allocating() {
    let bytes =
        b"\x32\x1E\x00\x05a/b/c\x00\x07\x11\x02\x00\x00\x00\x3C\x03\x00\x01j\x26\x00\x01k\x00\x02vwxyz";

    let (found, allocations) = counted(|| {
        let decoded = decode(bytes, ProtocolVersion::V5, &Limits::default());
        let Ok(Some((Packet::Publish(publish), 32))) = decoded else {
            panic!("{decoded:?}");
        };
        publish.properties.iter().count() + publish.properties.user_properties().count()
    });

    assert_eq!(found, 4);
    assert_eq!(allocations, 0);
}

#[test]
fn an_acknowledgement_is_decoded_without_allocating() {
    let (decoded, allocations) =
        counted(|| decode(b"\x40\x02\x00\x01", ProtocolVersion::V5, &Limits::default()));

    assert!(matches!(decoded, Ok(Some((Packet::PubAck(_), 4)))));
    assert_eq!(allocations, 0);
}

#[test]
fn a_connect_is_decoded_without_allocating() {
    let bytes = b"\x10\x13\x00\x04MQTT\x04\xC2\x00\x3C\x00\x02ab\x00\x01u\x00\x00";

    let (decoded, allocations) = counted(|| decode_connect(bytes, &Limits::default()));

    assert!(decoded.is_ok_and(|found| found.is_some()));
    assert_eq!(allocations, 0);
}

/// [MQTT-4.13.1-1] What is refused costs no memory, however long it says it is.
#[test]
fn a02_an_announced_length_allocates_nothing() {
    let limits = Limits {
        packet_bytes: 8 * 1024,
        ..Limits::default()
    };

    let (refused, allocations) = counted(|| decode_connect(b"\x10\xFF\xFF\xFF\x7F", &limits));

    assert!(refused.is_err());
    assert_eq!(allocations, 0);
}

/// Runs `work` and counts the allocations of this thread meanwhile.
fn counted<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATIONS.get();
    let result = work();
    (result, ALLOCATIONS.get() - before)
}

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system allocator unchanged; the counter neither allocates nor
// needs a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the memory came from `alloc` above, with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;
