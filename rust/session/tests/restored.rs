//! Sessions made again out of what a store kept; sections 4.1 and 4.4, 3.1.2.11.2, 3.1.3.2.2.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::num::NonZeroU32;
use std::sync::Arc;

use common::{CONNECT_5_KEPT, Wire, connect_5, message, seconds, start};
use mqttcore_codec::{PacketId, Properties, ProtocolVersion, QoS};
use mqttcore_session::{
    Delivery, Message, QueuePolicy, ServerLimits, Session, SessionEvent, Subscription, WillMessage,
};
use mqttcore_topics::{Options, SubscriptionFilter, TopicLimits, TopicName};

const ONCE: QoS = QoS::AtLeastOnce;
const EXACTLY: QoS = QoS::ExactlyOnce;

fn id(value: u16) -> PacketId {
    PacketId::new(value).unwrap()
}

/// A wire whose session was away for `away_s` seconds, and expires after 100 seconds.
fn restored(away_s: u64) -> Wire {
    let mut wire = Wire::new();
    wire.session = Session::restored(ProtocolVersion::V5, Arc::clone(&wire.limits), start(), 100);
    wire.now = start() + seconds(away_s);
    wire
}

#[test]
fn mqtt_4_4_0_1_what_was_open_is_sent_again_with_its_ids_and_the_queue_behind_it() {
    let mut wire = restored(1);
    wire.session
        .restore_publish(id(7), message("t", b"a", ONCE), Delivery::new(ONCE, &[]));
    wire.session.restore_publish(
        id(9),
        message("t", b"b", EXACTLY),
        Delivery::new(EXACTLY, &[]),
    );
    wire.session.restore_release(id(1));
    let ids = [NonZeroU32::new(5).unwrap()];
    wire.session.restore_spilled(1, 2);

    wire.resume(CONNECT_5_KEPT);
    wire.session.begin_paging(2);
    let page = [(message("t", b"c", EXACTLY), Delivery::new(ONCE, &ids))];
    wire.session.page(wire.now, page, true, |_| true);

    assert_eq!(
        wire.receive()[1..],
        [
            &b"\x62\x02\x00\x01"[..],
            b"\x3a\x07\x00\x01t\x00\x07\x00a",
            b"\x3c\x07\x00\x01t\x00\x09\x00b",
            b"\x32\x09\x00\x01t\x00\x02\x02\x0b\x05c",
        ]
    );
}

#[test]
fn what_was_open_counts_towards_the_bytes_under_way() {
    let mut wire = restored(1);
    wire.limits = Arc::new(ServerLimits {
        max_inflight_bytes: 3,
        ..ServerLimits::default()
    });
    wire.session
        .restore_publish(id(7), message("t", b"ab", ONCE), Delivery::new(ONCE, &[]));
    wire.resume(CONNECT_5_KEPT);
    assert_eq!(wire.receive().len(), 2, "CONNACK and the open one");

    wire.deliver(&message("t", b"cd", ONCE), ONCE);

    assert_eq!(wire.session.queued(), 1);
    assert!(wire.receive().is_empty());
    wire.ok(b"\x40\x02\x00\x07");
    assert_eq!(wire.receive().len(), 1);
}

/// The log ends somewhere before the crash: what it says to be waiting may have left.
#[test]
fn mqtt_3_3_1_1_what_may_have_been_sent_at_qos_1_goes_with_dup_and_nothing_else_does() {
    let mut wire = restored(1);
    wire.session.restore_spilled(3, 6);
    wire.session.restore_maybe_sent(8);

    wire.resume(CONNECT_5_KEPT);
    wire.session.begin_paging(10);
    let at = |qos, key| Delivery {
        key,
        ..Delivery::new(qos, &[])
    };
    let new = message("t", b"c", ONCE);
    wire.session.deliver(wire.now, &new, at(ONCE, 9));
    let page = [
        (message("t", b"a", EXACTLY), at(ONCE, 6)),
        (message("t", b"b", EXACTLY), at(EXACTLY, 7)),
        (message("t", b"d", ONCE), at(ONCE, 8)),
    ];
    wire.session.page(wire.now, page, true, |_| true);

    assert_eq!(
        wire.receive()[1..],
        [
            &b"\x3a\x07\x00\x01t\x00\x01\x00a"[..],
            b"\x34\x07\x00\x01t\x00\x02\x00b",
            b"\x32\x07\x00\x01t\x00\x03\x00d",
            b"\x32\x07\x00\x01t\x00\x04\x00c",
        ]
    );
}

/// What memory let go of is read again.
#[test]
fn mqtt_3_3_1_1_what_may_have_been_sent_goes_with_dup_after_it_was_spilled_again() {
    let mut wire = restored(1);
    wire.session.restore_spilled(2, 4);
    wire.session.restore_maybe_sent(8);
    // Session Expiry Interval 100 s, Receive Maximum 1.
    let one_at_a_time = connect_5(0, b"\x11\x00\x00\x00\x64\x21\x00\x01");
    let page = || {
        let delivery = |key| Delivery {
            key,
            ..Delivery::new(ONCE, &[])
        };
        [6, 7].map(|key| (message("t", b"a", ONCE), delivery(key)))
    };
    wire.resume(&one_at_a_time);
    wire.session.begin_paging(10);
    wire.session.page(wire.now, page(), true, |_| true);
    assert_eq!(wire.receive()[1..], [b"\x3a\x07\x00\x01t\x00\x01\x00a"]);
    wire.lose();
    assert!(wire.session.spill());

    wire.resume(&one_at_a_time);
    wire.session.begin_paging(10);
    let [_, second] = page();
    wire.session.page(wire.now, [second], true, |_| true);
    let packets = wire.receive();
    assert_eq!(packets[1..], [b"\x3a\x07\x00\x01t\x00\x01\x00a"]);
    wire.ok(b"\x40\x02\x00\x01");

    assert_eq!(wire.receive(), [b"\x3a\x07\x00\x01t\x00\x02\x00a"]);
}

#[test]
fn mqtt_4_3_3_10_a_repeat_of_a_kept_identifier_is_no_new_message() {
    let mut wire = restored(1);
    wire.session.restore_received(id(3));
    wire.resume(CONNECT_5_KEPT);
    wire.receive();

    let asked = wire.ok(b"\x3c\x07\x00\x01t\x00\x03\x00!");

    assert!(matches!(asked, common::Asked::Nothing), "{asked:?}");
    assert_eq!(wire.receive(), [b"\x50\x02\x00\x03"]);
}

#[test]
fn subscriptions_and_their_options_are_kept() {
    let mut wire = restored(1);
    let filter = SubscriptionFilter::parse("$share/g/a/+", &TopicLimits::default()).unwrap();
    let options = Options::at(ONCE);
    wire.session
        .restore_subscription(Subscription { filter, options });

    wire.resume(CONNECT_5_KEPT);

    let held = wire.session.subscriptions();
    assert_eq!((held.len(), held[0].filter.as_str()), (1, "$share/g/a/+"));
    assert_eq!(held[0].options, options);
}

#[test]
fn the_expiry_of_a_session_goes_on_while_the_broker_is_down() {
    let mut wire = restored(99);
    assert_eq!(wire.session.poll_timeout(), Some(start() + seconds(100)));
    wire.session.handle_timeout(wire.now).unwrap();
    assert!(wire.events().is_empty());

    wire.now += seconds(1);
    wire.session.handle_timeout(wire.now).unwrap();

    assert!(matches!(wire.events()[..], [SessionEvent::Expired]));
}

#[test]
fn a_will_whose_delay_passed_while_the_broker_was_down_is_due_at_once() {
    let mut wire = restored(31);
    wire.session.restore_will(WillMessage {
        message: message("gone", b"c", ONCE),
        delay_s: 30,
    });

    wire.session.handle_timeout(wire.now).unwrap();

    let events = wire.events();
    assert!(matches!(&events[..], [SessionEvent::WillDue(will)] if will.topic() == "gone"));
}

/// [MQTT-3.1.3-9] The will is published when the session ends, whatever its delay.
#[test]
fn a_session_that_ended_with_its_connection_ends_at_once_and_its_will_is_due() {
    let mut wire = restored(0);
    wire.session = Session::restored(ProtocolVersion::V5, Arc::clone(&wire.limits), start(), 0);
    wire.session.restore_will(WillMessage {
        message: message("gone", b"c", ONCE),
        delay_s: 30,
    });
    assert_eq!(wire.session.poll_timeout(), Some(start()));

    wire.session.handle_timeout(wire.now).unwrap();

    let events = wire.events();
    assert!(matches!(
        &events[..],
        [SessionEvent::WillDue(_), SessionEvent::Expired]
    ));
}

#[test]
fn a_kept_message_knows_what_is_left_of_its_expiry() {
    let topic = TopicName::parse("t", &TopicLimits::default()).unwrap();
    let expires_at = Some(start() + seconds(10));
    let kept = Message::restored(topic, Properties::EMPTY, b"x", ONCE, true, expires_at);

    assert_eq!(kept.remaining_expiry_s(start() + seconds(4)), Some(6));
    assert!(kept.is_expired(start() + seconds(10)));
    assert!(kept.retain());
}

#[test]
fn what_was_accepted_waits_whatever_the_limits_are_today() {
    let mut wire = Wire::with(ServerLimits {
        queue_messages: 1,
        ..Default::default()
    });
    wire.session = Session::restored(ProtocolVersion::V5, Arc::clone(&wire.limits), start(), 100);
    wire.session.restore_spilled(3, 6);

    wire.resume(CONNECT_5_KEPT);
    wire.session.begin_paging(4);
    let page = [b"a", b"b", b"c"].map(|payload| {
        let message = message("t", payload, ONCE);
        (message, Delivery::new(ONCE, &[]))
    });
    wire.session.page(wire.now, page, true, |_| true);

    assert_eq!(wire.receive().len(), 4, "CONNACK and three messages");
}

#[test]
fn messages_in_the_store_count_with_as_many_bytes_as_those_in_memory() {
    let mut here = Wire::connected(CONNECT_5_KEPT);
    here.lose();
    for _ in 0..3 {
        here.deliver(&message("t", b"abc", ONCE), ONCE);
    }

    let mut wire = restored(1);
    wire.session.restore_spilled(3, 3 * 4);

    assert_eq!(wire.session.queued_bytes(), here.session.queued_bytes());
}

/// The client left before its first page was there.
#[test]
fn mqtt_3_3_1_1_what_was_not_read_in_a_connection_goes_with_dup_in_the_next() {
    let mut wire = restored(1);
    wire.session.restore_spilled(1, 2);
    wire.session.restore_maybe_sent(8);
    wire.resume(CONNECT_5_KEPT);
    wire.session.begin_paging(8);
    wire.lose();
    assert!(wire.session.spill());

    wire.resume(CONNECT_5_KEPT);
    wire.session.begin_paging(8);
    let delivery = Delivery {
        key: 7,
        ..Delivery::new(ONCE, &[])
    };
    let page = [(message("t", b"a", ONCE), delivery)];
    wire.session.page(wire.now, page, true, |_| true);

    assert_eq!(wire.receive()[1..], [b"\x3a\x07\x00\x01t\x00\x01\x00a"]);
}

/// It was read for a connection that is gone, and the queue was emptied since.
#[test]
fn a_page_that_nobody_waits_for_is_left_out() {
    let mut wire = restored(1);
    wire.resume(CONNECT_5_KEPT);

    let page = [(message("t", b"a", ONCE), Delivery::new(ONCE, &[]))];
    wire.session.page(wire.now, page, true, |_| true);

    assert_eq!(wire.receive().len(), 1, "CONNACK alone");
}

/// With `DropOldest` the oldest have to be known before they can be dropped.
#[test]
fn the_oldest_of_a_queue_that_is_too_long_are_dropped_when_they_were_read() {
    let letters = [b"a", b"b", b"c", b"d"];
    let cost = {
        let mut wire = restored(1);
        wire.session.restore_spilled(1, 2);
        wire.session.queued_bytes()
    };
    for (queue_messages, queue_bytes, left) in [
        (2, 1 << 20, &b"cd"[..]),
        (100, 2 * cost, b"cd"),
        (4, 4 * cost, b"abcd"),
    ] {
        let mut wire = Wire::with(ServerLimits {
            queue_policy: QueuePolicy::DropOldest,
            queue_messages,
            queue_bytes,
            ..ServerLimits::default()
        });
        wire.session =
            Session::restored(ProtocolVersion::V5, Arc::clone(&wire.limits), start(), 100);
        wire.session.restore_spilled(4, 8);
        wire.session.begin_paging(5);
        assert!(wire.session.wants_page(), "its client is away");

        let page = letters.map(|letter| (message("t", letter, ONCE), Delivery::new(ONCE, &[])));
        wire.session.page(wire.now, page, true, |_| true);

        assert_eq!(wire.events().len(), 4 - left.len());
        wire.resume(CONNECT_5_KEPT);
        let packets = wire.receive();
        let payloads = packets[1..].iter().map(|packet| packet[8]);
        assert!(payloads.eq(left.iter().copied()));
    }
}
