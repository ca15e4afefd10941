//! PUBLISH to the client: sections 3.3, 4.3, 4.6, 4.9, and its queued messages.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::num::NonZeroU32;
use std::sync::Arc;

use common::{
    CONNECT_3, CONNECT_3_KEPT, CONNECT_5, CONNECT_5_KEPT, CONNECT_5_TERSE, Wire, connect_5,
    message, message_with, seconds,
};
use mqttcore_codec::{Properties, PropertiesBuf, Property, ProtocolVersion, QoS, ReasonCode, Text};
use mqttcore_session::{
    Delivered, Delivery, DropReason, Message, QueuePolicy, ServerLimits, SessionEvent, Transmit,
};
use mqttcore_topics::{MountPoint, TopicLimits, TopicName};

const ONCE: QoS = QoS::AtLeastOnce;
const EXACTLY: QoS = QoS::ExactlyOnce;
/// A topic that an alias makes much shorter.
const LONG: &str = "plant/building-7/line-12/machine-4711";

#[test]
fn mqtt_4_3_1_1_qos_0_leaves_without_id_and_dup() {
    let mut wire = Wire::connected(CONNECT_3);

    assert_eq!(
        wire.deliver(&message("t", b"!", QoS::AtMostOnce), EXACTLY),
        Delivered::Sent
    );

    assert_eq!(wire.receive(), [b"\x30\x04\x00\x01t!"]);
}

#[test]
fn mqtt_4_3_2_1_qos_1_leaves_with_a_fresh_id_and_waits_for_puback() {
    let mut wire = Wire::connected(CONNECT_3);

    wire.deliver(&message("t", b"!", ONCE), EXACTLY);

    assert_eq!(wire.receive(), [b"\x32\x06\x00\x01t\x00\x01!"]);
    assert_eq!(wire.session.in_flight(), 1);
    wire.ok(b"\x40\x02\x00\x01");
    assert_eq!(wire.session.in_flight(), 0);
    wire.deliver(&message("t", b"!", ONCE), EXACTLY);
    assert_eq!(wire.receive(), [b"\x32\x06\x00\x01t\x00\x02!"]);
}

#[test]
fn mqtt_4_3_3_4_qos_2_takes_four_packets() {
    let mut wire = Wire::connected(CONNECT_3);

    wire.deliver(&message("t", b"!", EXACTLY), EXACTLY);
    assert_eq!(wire.receive(), [b"\x34\x06\x00\x01t\x00\x01!"]);
    wire.ok(b"\x50\x02\x00\x01");
    assert_eq!(wire.receive(), [b"\x62\x02\x00\x01"]);
    wire.ok(b"\x70\x02\x00\x01");

    assert_eq!(wire.session.in_flight(), 0);
}

/// [MQTT-3.8.4-8] The lower one of published and granted.
#[test]
fn mqtt_3_8_4_8_the_lower_qos_is_used() {
    let mut wire = Wire::connected(CONNECT_3);

    wire.deliver(&message("t", b"", EXACTLY), ONCE);
    wire.deliver(&message("t", b"", EXACTLY), QoS::AtMostOnce);

    let firsts: Vec<u8> = wire.receive().iter().map(|packet| packet[0]).collect();
    assert_eq!(firsts, [0x32, 0x30]);
}

#[test]
fn an_upgraded_message_has_the_qos_of_its_subscription_and_waits_for_an_absent_client() {
    let mut wire = Wire::with(ServerLimits {
        upgrade_outgoing_qos: true,
        ..ServerLimits::default()
    });
    wire.connect(CONNECT_3_KEPT);
    wire.receive();

    wire.deliver(&message("t", b"", QoS::AtMostOnce), EXACTLY);
    wire.deliver(&message("t", b"", EXACTLY), ONCE);
    wire.deliver(&message("t", b"", EXACTLY), QoS::AtMostOnce);
    let firsts: Vec<u8> = wire.receive().iter().map(|packet| packet[0]).collect();
    wire.lose();
    let delivered = wire.deliver(&message("t", b"", QoS::AtMostOnce), ONCE);

    assert_eq!(firsts, [0x34, 0x32, 0x30]);
    assert_eq!(delivered, Delivered::Queued);
}

#[test]
fn mqtt_3_3_1_8_the_retain_flag_is_the_engines() {
    let mut wire = Wire::connected(CONNECT_3);
    let delivery = Delivery {
        retain: true,
        ..Delivery::new(ONCE, &[])
    };

    wire.session
        .deliver(wire.now, &message("t", b"!", QoS::AtMostOnce), delivery);

    assert_eq!(wire.receive(), [b"\x31\x04\x00\x01t!"]);
}

/// [MQTT-3.3.4-9], [MQTT-4.9.0-2].
#[test]
fn mqtt_3_3_4_9_no_more_than_the_clients_receive_maximum() {
    let mut wire = Wire::connected(&connect_5(2, b"\x21\x00\x02"));

    let outcomes: Vec<Delivered> = [(); 4]
        .map(|()| wire.deliver(&message("t", b"!", ONCE), ONCE))
        .into();

    assert_eq!(outcomes[1..3], [Delivered::Sent, Delivered::Queued]);
    assert_eq!(wire.receive().len(), 2);
    wire.ok(b"\x40\x02\x00\x01");
    assert_eq!(wire.receive(), [b"\x32\x07\x00\x01t\x00\x03\x00!"]);
}

fn limited(max_inflight_bytes: usize) -> Wire {
    let mut wire = Wire::with(ServerLimits {
        max_inflight_bytes,
        ..ServerLimits::default()
    });
    wire.connect(CONNECT_5_KEPT);
    wire.receive();
    wire
}

/// A member of a shared subscription that is full gets nothing while another one is not.
#[test]
fn a_session_is_full_when_a_message_would_wait() {
    let mut wire = Wire::connected(&connect_5(2, b"\x21\x00\x01"));
    assert!(!wire.session.is_full());
    wire.deliver(&message("t", b"!", ONCE), ONCE);
    assert!(wire.session.is_full(), "the send quota");
    wire.receive();
    wire.ok(b"\x40\x02\x00\x01");
    assert!(!wire.session.is_full());

    let mut behind = Wire::connected(CONNECT_5_KEPT);
    behind.lose();
    behind.session.restore_spilled(1, 2);
    behind.resume(CONNECT_5_KEPT);

    assert!(behind.session.is_full(), "the queue");
}

#[test]
fn a_queue_has_room_until_its_limit() {
    let mut wire = away(2, QueuePolicy::DropNewest);

    assert!(wire.session.has_queue_room());
    deliver_messages(&mut wire, b"ab");

    assert!(!wire.session.has_queue_room());
}

/// Topics have one byte, so that these have 10, 10 and 1.
#[test]
fn no_more_bytes_are_under_way_than_the_limit_says() {
    let mut wire = limited(20);

    let outcomes = [&[b'!'; 9][..], &[b'!'; 9], b""]
        .map(|payload| wire.deliver(&message("t", payload, ONCE), ONCE));

    let (sent, queued) = (Delivered::Sent, Delivered::Queued);
    assert_eq!(outcomes, [sent, sent, queued]);
    assert_eq!(wire.receive().len(), 2);
    assert!(wire.session.is_full());
    wire.ok(b"\x40\x02\x00\x01");
    assert_eq!(wire.receive(), [b"\x32\x06\x00\x01t\x00\x03\x00"]);
}

#[test]
fn a_message_of_more_bytes_than_the_limit_goes_alone() {
    let mut wire = limited(5);
    for payload in [&b"1"[..], b"larger than it", b"3"] {
        wire.deliver(&message("t", payload, EXACTLY), EXACTLY);
    }

    assert_eq!(wire.receive()[0][8..], *b"1");
    wire.ok(b"\x50\x02\x00\x01");
    let second = wire.receive();
    assert_eq!(
        second.len(),
        2,
        "PUBREL, and what the client has frees its bytes"
    );
    assert_eq!(second[1][8..], *b"larger than it");
    wire.ok(b"\x50\x02\x00\x02");
    assert_eq!(wire.receive()[1][8..], *b"3");
}

/// What was admitted under another limit is sent again one by one.
#[test]
fn a_smaller_limit_holds_for_what_is_sent_again() {
    let mut wire = limited(0);
    for payload in [b"1", b"2", b"3"] {
        wire.deliver(&message("t", payload, ONCE), ONCE);
    }
    assert_eq!(wire.receive().len(), 3);

    wire.lose();
    wire.limits = Arc::new(ServerLimits {
        max_inflight_bytes: 3,
        ..ServerLimits::default()
    });
    wire.resume(CONNECT_5_KEPT);

    assert_eq!(wire.receive().len(), 2, "CONNACK and one message");
    wire.ok(b"\x40\x02\x00\x01");
    assert_eq!(wire.receive().len(), 1);
}

/// A packet of 9 bytes: the levels that the client does not see do not count.
#[test]
fn maximum_packet_size_counts_the_topic_that_the_client_sees() {
    let connect = connect_5(2, b"\x27\x00\x00\x00\x09");
    let mut wire = Wire::new();
    let mut request = wire.parse(&connect).unwrap();
    let mount_point = MountPoint::parse("plant/1").unwrap();
    request.mount(mount_point).unwrap();
    wire.session.connect(wire.now, &request, wire.terms());
    wire.receive();

    let fits = wire.deliver(&message("plant/1/t", b"!", ONCE), ONCE);
    let too_large = wire.deliver(&message("plant/1/t", b"!!", ONCE), ONCE);
    let hidden = wire.deliver(&message("plant/2/t", b"!", ONCE), ONCE);

    assert_eq!(fits, Delivered::Sent);
    assert_eq!(too_large, Delivered::Dropped(DropReason::PacketTooLarge));
    assert_eq!(hidden, Delivered::Dropped(DropReason::OutsideMountPoint));
    assert_eq!(wire.receive(), [b"\x32\x07\x00\x01t\x00\x01\x00!"]);
}

/// [MQTT-4.9.0-1] A QoS 2 exchange counts until PUBCOMP, or an error in PUBREC (abuse D16).
#[test]
fn mqtt_4_9_0_1_pubcomp_or_an_error_pubrec_gives_quota_back() {
    let mut wire = Wire::connected(&connect_5(2, b"\x21\x00\x01"));
    for _ in 0..3 {
        wire.deliver(&message("t", b"!", EXACTLY), EXACTLY);
    }

    assert_eq!(wire.receive().len(), 1);
    wire.ok(b"\x50\x02\x00\x01");
    assert_eq!(wire.receive(), [b"\x62\x02\x00\x01"]);
    wire.ok(b"\x70\x02\x00\x01");
    assert_eq!(wire.receive()[0][..2], *b"\x34\x07");
    wire.ok(b"\x50\x03\x00\x02\x97");
    assert_eq!(
        wire.receive()[0][5..7],
        *b"\x00\x03",
        "no PUBREL, the next message"
    );
}

/// [MQTT-4.9.0-3] Everything else flows while the send quota is used up.
#[test]
fn mqtt_3_3_4_10_a_used_up_send_quota_delays_nothing_else() {
    let mut wire = Wire::connected(&connect_5(2, b"\x21\x00\x01"));
    for _ in 0..2 {
        wire.deliver(&message("t", b"!", ONCE), ONCE);
    }
    wire.receive();

    wire.deliver(&message("t", b"?", QoS::AtMostOnce), ONCE);
    wire.ok(b"\xc0\x00");

    assert_eq!(
        wire.receive(),
        [&b"\xd0\x00"[..], b"\x30\x05\x00\x01t\x00?"]
    );
}

#[test]
fn the_limit_of_the_server_holds_for_a_client_with_a_large_receive_maximum() {
    let mut wire = Wire::connected(CONNECT_5);

    for _ in 0..40 {
        wire.deliver(&message("t", b"!", ONCE), ONCE);
    }

    assert_eq!((wire.receive().len(), wire.session.queued()), (32, 8));
}

#[test]
fn mqtt_4_6_0_5_messages_of_a_qos_leave_in_their_order() {
    let mut wire = Wire::connected(&connect_5(2, b"\x21\x00\x02"));
    for payload in b'a'..=b'f' {
        wire.deliver(&message("t", &[payload], ONCE), ONCE);
    }

    let mut payloads = Vec::new();
    for id in 1..=6 {
        payloads.extend(wire.receive().iter().map(|packet| *packet.last().unwrap()));
        wire.ok(&[0x40, 2, 0, id]);
    }

    assert_eq!(payloads, b"abcdef");
}

/// Abuse D14: an acknowledgement of the wrong kind; the state stays.
#[test]
fn acknowledgements_of_the_wrong_kind_are_protocol_errors() {
    let mut wire = Wire::connected(CONNECT_5);
    wire.deliver(&message("t", b"!", ONCE), ONCE);
    wire.deliver(&message("t", b"!", EXACTLY), EXACTLY);
    wire.receive();

    for packet in [
        b"\x50\x02\x00\x01",
        b"\x40\x02\x00\x02",
        b"\x70\x02\x00\x02",
    ] {
        assert_eq!(wire.refused(packet), ReasonCode::PROTOCOL_ERROR);
    }
    assert_eq!(wire.session.in_flight(), 2);
    wire.ok(b"\x50\x02\x00\x02");
    assert_eq!(
        wire.refused(b"\x40\x02\x00\x02"),
        ReasonCode::PROTOCOL_ERROR
    );
}

/// Abuse D15.
#[test]
fn acknowledgements_of_nothing_are_ignored_and_pubrec_is_answered() {
    let mut wire = Wire::connected(CONNECT_5_TERSE);
    wire.ok(b"\x40\x02\x00\x07");
    wire.ok(b"\x70\x02\x00\x07");
    wire.ok(b"\x50\x02\x00\x07");

    assert_eq!(wire.receive(), [b"\x62\x03\x00\x07\x92"]);
}

#[test]
fn a_pubrec_of_nothing_that_is_an_error_is_not_answered() {
    let mut wire = Wire::connected(CONNECT_5_TERSE);

    wire.ok(b"\x50\x03\x00\x07\x80");

    assert!(wire.receive().is_empty());
}

#[test]
fn a_3_x_pubrec_of_nothing_is_answered_by_pubrel() {
    let mut wire = Wire::connected(CONNECT_3);
    wire.ok(b"\x50\x02\x00\x07");

    assert_eq!(wire.receive(), [b"\x62\x02\x00\x07"]);
}

#[test]
fn a_flood_of_stray_acknowledgements_ends_the_connection() {
    let mut wire = Wire::with(ServerLimits {
        stray_acknowledgements: 3,
        ..ServerLimits::default()
    });
    wire.connect(CONNECT_5);
    for _ in 0..3 {
        wire.ok(b"\x40\x02\x00\x07");
    }

    assert_eq!(
        wire.refused(b"\x40\x02\x00\x07"),
        ReasonCode::MESSAGE_RATE_TOO_HIGH
    );
}

/// A client that works is not counted out by a stray now and then.
#[test]
fn a_good_acknowledgement_makes_up_for_a_stray() {
    let mut wire = Wire::with(ServerLimits {
        stray_acknowledgements: 1,
        ..ServerLimits::default()
    });
    wire.connect(CONNECT_3);
    wire.receive();

    for id in 1..=9 {
        wire.deliver(&message("t", b"!", ONCE), ONCE);
        wire.receive();
        wire.ok(&[0x40, 2, 0, id]);
        wire.ok(&[0x40, 2, 0, id]);
    }
}

/// A message that was never sent cannot be acknowledged.
#[test]
fn an_acknowledgement_ahead_of_its_publish_is_a_stray() {
    let mut wire = Wire::connected(CONNECT_5);
    wire.deliver(&message("t", b"!", ONCE), ONCE);

    wire.ok(b"\x40\x02\x00\x01");

    assert_eq!(wire.receive(), [b"\x32\x07\x00\x01t\x00\x01\x00!"]);
}

#[test]
fn a_repeated_pubrec_is_answered_by_pubrel_again() {
    let mut wire = Wire::connected(CONNECT_3);
    wire.deliver(&message("t", b"!", EXACTLY), EXACTLY);
    wire.receive();

    wire.ok(b"\x50\x02\x00\x01");
    wire.ok(b"\x50\x02\x00\x01");

    assert_eq!(wire.receive(), [b"\x62\x02\x00\x01"; 2]);
}

/// [MQTT 3.1.1 MQTT-3.1.2-5] QoS 1 and 2 wait for an absent client, QoS 0 does not.
#[test]
fn mqtt_3_1_1_3_1_2_5_messages_wait_for_an_absent_client() {
    let mut wire = Wire::connected(CONNECT_3_KEPT);
    wire.lose();

    let dropped = wire.deliver(&message("t", b"0", QoS::AtMostOnce), EXACTLY);
    wire.deliver(&message("t", b"1", ONCE), EXACTLY);
    wire.deliver(&message("t", b"2", EXACTLY), EXACTLY);
    wire.resume(CONNECT_3_KEPT);

    assert_eq!(dropped, Delivered::Dropped(DropReason::Offline));
    assert_eq!(
        wire.receive(),
        [
            &b"\x20\x02\x01\x00"[..],
            b"\x32\x06\x00\x01t\x00\x011",
            b"\x34\x06\x00\x01t\x00\x022"
        ]
    );
}

/// [MQTT-4.6.0-5] A later QoS 0 message does not overtake those that were kept.
#[test]
fn mqtt_4_6_0_5_kept_qos_0_messages_come_first() {
    let mut wire = Wire::with(ServerLimits {
        queue_qos0: true,
        ..ServerLimits::default()
    });
    wire.connect(&connect_5(0, b"\x11\x00\x00\x00\x64\x21\x00\x01"));
    wire.lose();
    for (payload, qos) in [(b"1", ONCE), (b"2", ONCE), (b"a", QoS::AtMostOnce)] {
        assert_eq!(
            wire.deliver(&message("t", payload, qos), ONCE),
            Delivered::Queued
        );
    }

    wire.resume(&connect_5(0, b"\x11\x00\x00\x00\x64\x21\x00\x01"));
    wire.deliver(&message("t", b"b", QoS::AtMostOnce), ONCE);
    let mut payloads: Vec<u8> = wire
        .receive()
        .iter()
        .map(|packet| *packet.last().unwrap())
        .collect();
    wire.ok(b"\x40\x02\x00\x01");
    payloads.extend(wire.receive().iter().map(|packet| *packet.last().unwrap()));

    let kept: Vec<u8> = payloads
        .into_iter()
        .filter(u8::is_ascii_alphabetic)
        .collect();
    assert_eq!(kept, b"ab");
}

#[test]
fn a_qos_0_message_waits_behind_kept_ones_of_qos_0_alone() {
    let one_at_a_time = connect_5(0, b"\x11\x00\x00\x00\x64\x21\x00\x01");
    let mut wire = Wire::with(ServerLimits {
        queue_qos0: true,
        ..ServerLimits::default()
    });
    wire.connect(&one_at_a_time);
    wire.lose();
    for (payload, qos) in [(b"a", QoS::AtMostOnce), (b"1", ONCE), (b"2", ONCE)] {
        wire.deliver(&message("t", payload, qos), ONCE);
    }

    wire.resume(&one_at_a_time);
    assert_eq!(wire.session.queued(), 1, "the last one waits for its turn");
    let delivered = wire.deliver(&message("t", b"b", QoS::AtMostOnce), ONCE);

    assert_eq!(delivered, Delivered::Sent);
}

/// Abuse F16: the client came back with fewer rights.
#[test]
fn queued_messages_that_the_client_may_not_read_any_more_are_dropped() {
    let mut wire = Wire::connected(&connect_5(0x02, b"\x21\x00\x01"));
    for topic in ["sent", "secret", "open"] {
        wire.deliver(&message(topic, b"!", ONCE), ONCE);
    }
    assert_eq!(wire.receive(), [b"\x32\x0a\x00\x04sent\x00\x01\x00!"]);

    wire.session
        .keep_queued(|message| message.topic() == "open");

    let events = wire.events();
    let [
        SessionEvent::Dropped {
            reason, message, ..
        },
    ] = &events[..]
    else {
        panic!("one drop, not {events:?}")
    };
    assert_eq!((*reason, message.topic()), (DropReason::Revoked, "secret"));
    wire.ok(b"\x40\x02\x00\x01");
    assert_eq!(wire.receive(), [b"\x32\x0a\x00\x04open\x00\x02\x00!"]);
}

/// Decision 20: the newest is dropped.
#[test]
fn a_full_queue_drops_the_newest() {
    let mut wire = away(2, QueuePolicy::DropNewest);

    let outcomes = deliver_messages(&mut wire, b"abc");

    assert_eq!(outcomes[2], Delivered::Dropped(DropReason::QueueFull));
    assert_eq!(resumed_payloads(&mut wire), b"ab");
}

#[test]
fn a_full_queue_drops_the_oldest_if_told_so() {
    let mut wire = away(2, QueuePolicy::DropOldest);

    deliver_messages(&mut wire, b"abc");

    let events = wire.events();
    let [
        SessionEvent::Dropped {
            reason, message, ..
        },
    ] = &events[..]
    else {
        panic!("one drop, not {events:?}")
    };
    assert_eq!(
        (*reason, message.payload()),
        (DropReason::QueueFull, &b"a"[..])
    );
    assert_eq!(resumed_payloads(&mut wire), b"bc");
}

#[test]
fn a_full_queue_disconnects_a_connected_client_if_told_so() {
    let mut wire = away(1, QueuePolicy::Disconnect);
    wire.resume(&connect_5(0, b"\x11\x00\x00\x00\x64\x21\x00\x01"));

    let outcomes = deliver_messages(&mut wire, b"abc");

    assert_eq!(outcomes[2], Delivered::Dropped(DropReason::QueueFull));
    assert!(matches!(wire.events()[..], [SessionEvent::Overflowed]));
}

#[test]
fn a_full_queue_disconnects_nobody_who_is_away_and_nobody_without_that_policy() {
    for (policy, is_here) in [
        (QueuePolicy::Disconnect, false),
        (QueuePolicy::DropNewest, true),
    ] {
        let mut wire = away(1, policy);
        if is_here {
            wire.resume(&connect_5(0, b"\x11\x00\x00\x00\x64\x21\x00\x01"));
        }

        let outcomes = deliver_messages(&mut wire, b"abc");

        assert_eq!(outcomes[2], Delivered::Dropped(DropReason::QueueFull));
        assert!(wire.events().is_empty(), "{policy:?}");
    }
}

#[test]
fn a_queue_is_bounded_in_bytes_too() {
    let limits = ServerLimits {
        queue_bytes: 10_000,
        queue_policy: QueuePolicy::DropOldest,
        ..ServerLimits::default()
    };
    let mut wire = Wire::with(limits);
    wire.connect(CONNECT_5_KEPT);
    wire.lose();

    for _ in 0..9 {
        wire.deliver(&message("t", &[0; 3_000], ONCE), ONCE);
        assert!(wire.session.queued_bytes() <= 10_000);
    }
    let too_large = wire.deliver(&message("t", &[0; 10_000], ONCE), ONCE);

    assert_eq!(too_large, Delivered::Dropped(DropReason::QueueFull));
    assert_eq!(wire.session.queued(), 3, "nothing was evicted for it");
}

/// Decision 37: QoS 0 messages that nobody polls do not pile up.
#[test]
fn the_qos_0_backlog_is_bounded() {
    let mut wire = Wire::connected(CONNECT_5);
    let large = message("t", &vec![0; 400_000], QoS::AtMostOnce);

    let outcomes = [(); 3].map(|()| wire.deliver(&large, ONCE));

    assert_eq!(outcomes[2], Delivered::Dropped(DropReason::BacklogFull));
    assert_eq!(wire.receive().len(), 2);
    assert_eq!(wire.deliver(&large, ONCE), Delivered::Sent);
}

/// Queued bytes count exactly; an empty queue takes a message of any size.
#[test]
fn the_qos_0_backlog_has_room_for_as_many_bytes_as_its_limit_says() {
    let message = message("t", &[0; 300], QoS::AtMostOnce);
    let (sent, full) = (Delivered::Sent, Delivered::Dropped(DropReason::BacklogFull));
    let mut queue = Wire::with(ServerLimits {
        queue_qos0: true,
        ..ServerLimits::default()
    });
    queue.connect(CONNECT_5_KEPT);
    queue.lose();
    queue.deliver(&message, ONCE);
    let cost_bytes = queue.session.queued_bytes();

    for (limit_bytes, first, later) in [
        (2 * cost_bytes, [sent, sent, full], [sent, full]),
        (2 * cost_bytes + 10, [sent, sent, full], [sent, full]),
        (10, [sent, full, full], [sent, full]),
    ] {
        let mut wire = Wire::with(ServerLimits {
            qos0_backlog_bytes: limit_bytes,
            ..ServerLimits::default()
        });
        wire.connect(CONNECT_5);
        wire.receive();

        assert_eq!([(); 3].map(|()| wire.deliver(&message, ONCE)), first);
        assert!(wire.session.poll_transmit().is_some());
        assert_eq!([(); 2].map(|()| wire.deliver(&message, ONCE)), later);
    }
}

#[test]
fn mqtt_3_3_2_5_an_expired_message_is_not_delivered() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    let short = message_with("t", b"s", ONCE, &[Property::MessageExpiryInterval(5)]);
    let zero = message_with("t", b"z", ONCE, &[Property::MessageExpiryInterval(0)]);
    wire.lose();
    wire.deliver(&short, ONCE);
    wire.deliver(&message("t", b"l", ONCE), ONCE);

    let at_once = wire.deliver(&zero, ONCE);
    wire.now += seconds(5);
    wire.resume(CONNECT_5_KEPT);

    assert_eq!(at_once, Delivered::Dropped(DropReason::Expired));
    let received = wire.receive();
    assert_eq!((received.len(), received[1].last()), (2, Some(&b'l')));
    let reason = DropReason::Expired;
    assert!(
        matches!(&wire.events()[..], [SessionEvent::Dropped { reason: told, .. }] if *told == reason)
    );
}

/// [MQTT-3.3.2-6] Rounded up; 0xFFFFFFFF does not overflow (abuse B18).
#[test]
fn mqtt_3_3_2_6_the_forwarded_expiry_is_what_is_left() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    let message = message_with("t", b"", ONCE, &[Property::MessageExpiryInterval(10)]);
    let long = message_with("t", b"", ONCE, &[Property::MessageExpiryInterval(u32::MAX)]);
    wire.lose();
    wire.deliver(&message, ONCE);
    wire.deliver(&long, ONCE);

    wire.now += std::time::Duration::from_millis(3_200);
    wire.resume(CONNECT_5_KEPT);

    let received = wire.receive();
    assert_eq!(
        received[1],
        b"\x32\x0b\x00\x01t\x00\x01\x05\x02\x00\x00\x00\x07"
    );
    assert_eq!(
        received[2],
        b"\x32\x0b\x00\x01t\x00\x02\x05\x02\xff\xff\xff\xfc"
    );
}

/// [MQTT-4.3.3-7] Once sent, a QoS 2 message does not expire.
#[test]
fn mqtt_4_3_3_7_a_message_that_was_sent_does_not_expire() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    let short = message_with("t", b"", EXACTLY, &[Property::MessageExpiryInterval(1)]);
    wire.deliver(&short, EXACTLY);
    wire.receive();
    wire.lose();

    wire.now += seconds(2);
    wire.resume(CONNECT_5_KEPT);

    let again = b"\x3c\x0b\x00\x01t\x00\x01\x05\x02\x00\x00\x00\x00";
    assert_eq!(wire.receive()[1], again);
}

/// [MQTT-3.3.2-4, -15, -16, -17, -18, -20] Everything else passes as it is, in its order.
#[test]
fn mqtt_3_3_2_17_properties_pass_unchanged_and_in_order() {
    let text = |text| Text::new(text).unwrap();
    let properties = [
        Property::UserProperty(text("b"), text("1")),
        Property::PayloadFormatIndicator(true),
        Property::UserProperty(text("a"), text("2")),
        Property::ContentType(text("c")),
        Property::ResponseTopic(text("r")),
        Property::CorrelationData(b"d"),
    ];
    let bytes = b"\x26\x00\x01b\x00\x011\x01\x01\x26\x00\x01a\x00\x012\x03\x00\x01c\x08\x00\x01r\x09\x00\x01d";
    let expected = [&b"\x30\x21\x00\x01t\x1c"[..], bytes, b"!"].concat();
    let mut wire = Wire::connected(CONNECT_5);

    wire.deliver(&message_with("t", b"!", QoS::AtMostOnce, &properties), ONCE);

    assert_eq!(wire.receive(), [expected]);
}

#[test]
fn a_3_x_client_gets_no_properties() {
    let mut wire = Wire::connected(CONNECT_3);

    wire.deliver(
        &message_with(
            "t",
            b"!",
            QoS::AtMostOnce,
            &[Property::PayloadFormatIndicator(true)],
        ),
        ONCE,
    );

    assert_eq!(wire.receive(), [b"\x30\x04\x00\x01t!"]);
}

#[test]
fn mqtt_3_3_4_4_all_subscription_identifiers_travel() {
    let mut wire = Wire::connected(CONNECT_5);
    let ids = [1, 200].map(|id| NonZeroU32::new(id).unwrap());

    wire.session.deliver(
        wire.now,
        &message("t", b"!", QoS::AtMostOnce),
        Delivery::new(ONCE, &ids),
    );

    assert_eq!(
        wire.receive(),
        [b"\x30\x0a\x00\x01t\x05\x0b\x01\x0b\xc8\x01!"]
    );
}

/// [MQTT-3.1.2-24, -25] (abuse B19) To the byte.
#[test]
fn mqtt_3_1_2_25_a_message_too_large_for_the_client_is_dropped() {
    // 1 + 1 + 2 + 1 + 2 + 1 + 3 = 11 bytes for QoS 1 with a payload of 3.
    for (limit, fits) in [(11, true), (10, false)] {
        let mut wire = Wire::connected(&connect_5(2, &[0x27, 0, 0, 0, limit]));

        let outcome = wire.deliver(&message("t", b"abc", ONCE), ONCE);

        let expected = if fits {
            Delivered::Sent
        } else {
            Delivered::Dropped(DropReason::PacketTooLarge)
        };
        assert_eq!(outcome, expected);
        assert_eq!(
            wire.receive().iter().map(Vec::len).collect::<Vec<_>>(),
            if fits { vec![11] } else { vec![] }
        );
    }
}

/// MQTT 5.0 section 1.5.5: a length of 128 bytes has two bytes, one of 16,384 has three.
#[test]
fn mqtt_3_1_2_25_maximum_packet_size_counts_the_bytes_of_the_length() {
    for body in [127, 128, 16_383, 16_384_u32] {
        let length = 1 + u32::from(body > 127) + u32::from(body > 16_383);
        let len = 1 + length + body;
        // Topic with its length, packet identifier, length of no properties.
        let payload = vec![b'!'; body as usize - 6];
        for (limit, is_sent) in [(len, true), (len - 1, false)] {
            let limit = [&[0x27][..], &limit.to_be_bytes()].concat();
            let mut wire = Wire::connected(&connect_5(2, &limit));

            wire.deliver(&message("t", &payload, ONCE), ONCE);

            let lens: Vec<usize> = wire.receive().iter().map(Vec::len).collect();
            let expected: &[usize] = if is_sent { &[len as usize] } else { &[] };
            assert_eq!(lens, expected, "{body}");
        }
    }
}

/// The publisher's alias is not forwarded, and a Subscription Identifier comes beside the properties: 10 bytes.
#[test]
fn mqtt_3_1_2_25_maximum_packet_size_counts_the_properties_that_are_forwarded() {
    let frame = b"\x30\x0a\x00\x01t\x05\x23\x00\x01\x01\x01!";
    let plain = b"\x30\x07\x00\x01t\x02\x01\x01!";
    let id = [NonZeroU32::new(5).unwrap()];
    for (frame, ids, len) in [
        (&frame[..], &[][..], 9),
        (&frame[..], &id[..], 11),
        (&plain[..], &[][..], 9),
        (&plain[..], &id[..], 11),
    ] {
        for (limit, is_sent) in [(len, true), (len - 1, false)] {
            let mut publisher = Wire::connected(CONNECT_5);
            let common::Asked::Publish(message) = publisher.ok(frame) else {
                panic!("a PUBLISH")
            };
            let mut wire = Wire::connected(&connect_5(2, &[0x27, 0, 0, 0, limit]));

            let delivery = Delivery::new(QoS::AtMostOnce, ids);
            wire.session.deliver(wire.now, &message, delivery);

            let lens: Vec<usize> = wire.receive().iter().map(Vec::len).collect();
            let expected: &[usize] = if is_sent { &[usize::from(len)] } else { &[] };
            assert_eq!(lens, expected, "{ids:?} {limit}");
        }
    }
}

/// Whatever a client gets that the publisher did not write: its own QoS, RETAIN, alias, topic and identifiers.
#[test]
fn the_publishers_frame_goes_to_clients_that_get_nothing_of_their_own() {
    let frame = b"\x30\x0d\x00\x09plant/1/t\x00!";
    let mut publisher = Wire::connected(CONNECT_5);
    let common::Asked::Publish(message) = publisher.ok(frame) else {
        panic!("a PUBLISH")
    };
    let mounted = |path: Option<&str>, upgrade_outgoing_qos, alias_maximum| {
        let mut wire = Wire::with(ServerLimits {
            upgrade_outgoing_qos,
            ..ServerLimits::default()
        });
        let connect = connect_5(2, &[0x22, 0, alias_maximum]);
        let mut request = wire.parse(&connect).unwrap();
        if let Some(path) = path {
            request.mount(MountPoint::parse(path).unwrap()).unwrap();
        }
        wire.session.connect(wire.now, &request, wire.terms());
        wire.receive();
        assert_eq!(wire.session.mount_point().is_some(), path.is_some());
        wire
    };
    let plain = || mounted(None, false, 0);
    let at = |qos| Delivery::new(qos, &[]);
    let retained = Delivery {
        retain: true,
        ..at(ONCE)
    };
    let id = [NonZeroU32::MIN];
    let cases: [(&str, Wire, Delivery<'_>); 6] = [
        ("nothing", plain(), at(ONCE)),
        ("QoS", mounted(None, true, 0), at(ONCE)),
        ("RETAIN", plain(), retained),
        ("alias", mounted(None, false, 1), at(ONCE)),
        ("topic", mounted(Some("plant"), false, 0), at(ONCE)),
        ("identifiers", plain(), Delivery::new(ONCE, &id)),
    ];
    for (own, mut wire, delivery) in cases {
        wire.session.deliver(wire.now, &message, delivery);

        let Some(Transmit::Publish(publish)) = wire.session.poll_transmit() else {
            panic!("a PUBLISH")
        };
        let is_shared = publish.shared_frame(ProtocolVersion::V5).is_some();
        assert_eq!(is_shared, own == "nothing", "{own}");
        assert_eq!(publish.qos() == ONCE, own == "QoS");
        assert_eq!(publish.retain(), own == "RETAIN");
        assert_eq!(publish.alias().is_some(), own == "alias");
    }
}

#[test]
fn a_queued_message_too_large_for_the_new_connection_is_dropped() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    wire.deliver(&message("t", &[b'x'; 100], EXACTLY), EXACTLY);
    wire.receive();
    wire.lose();
    wire.deliver(&message("t", &[b'x'; 100], ONCE), ONCE);
    wire.deliver(&message("t", b"!", ONCE), ONCE);

    wire.resume(&connect_5(0, b"\x11\x00\x00\x00\x64\x27\x00\x00\x00\x20"));

    let received = wire.receive();
    assert_eq!(received[1..], [b"\x32\x07\x00\x01t\x00\x02\x00!"]);
    assert_eq!(wire.events().len(), 2);
    assert_eq!(wire.session.in_flight(), 1);
}

/// [MQTT-3.1.2-27] The first message says which alias its topic has, the second has the alias alone.
#[test]
fn mqtt_3_1_2_26_aliases_only_for_clients_that_take_them() {
    let mut plain = Wire::connected(CONNECT_5);
    let mut aliased = Wire::connected(&connect_5(2, b"\x22\x00\x01"));
    let long = message(LONG, b"!", QoS::AtMostOnce);
    let lens = |wire: &mut Wire| -> Vec<usize> {
        for _ in 0..3 {
            wire.deliver(&long, ONCE);
        }
        wire.receive().iter().map(Vec::len).collect()
    };

    assert_eq!(lens(&mut plain), [43, 43, 43]);
    assert_eq!(lens(&mut aliased), [46, 9, 9]);
}

/// [MQTT-3.3.4-4] A client that uses one identifier for several subscriptions is told of it once.
#[test]
fn equal_subscription_identifiers_of_one_copy_are_sent_once() {
    let id = |number| NonZeroU32::new(number).expect("not 0");
    let mut wire = Wire::connected(CONNECT_5);

    for ids in [&[id(7), id(7)][..], &[id(9), id(7), id(9), id(7)]] {
        let delivery = Delivery::new(ONCE, ids);
        wire.session
            .deliver(wire.now, &message("t", b"!", QoS::AtMostOnce), delivery);
    }

    let once: &[u8] = b"\x30\x07\x00\x01t\x02\x0b\x07!";
    let both: &[u8] = b"\x30\x09\x00\x01t\x04\x0b\x07\x0b\x09!";
    assert_eq!(wire.receive(), [once, both]);
}

#[test]
fn an_alias_never_makes_a_packet_too_large() {
    let mut wire = Wire::connected(&connect_5(2, b"\x22\x00\x01\x27\x00\x00\x00\x2b"));
    let long = message(LONG, b"!", QoS::AtMostOnce);

    for _ in 0..3 {
        assert_eq!(wire.deliver(&long, ONCE), Delivered::Sent);
    }

    assert_eq!(
        wire.receive().iter().map(Vec::len).collect::<Vec<_>>(),
        [43, 43, 43]
    );
}

#[test]
fn qos_0_messages_are_lost_with_the_connection() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    wire.deliver(&message("t", b"!", QoS::AtMostOnce), ONCE);
    wire.lose();

    wire.resume(CONNECT_5_KEPT);

    assert_eq!(wire.receive().len(), 1, "CONNACK alone");
}

fn away(queue_messages: usize, queue_policy: QueuePolicy) -> Wire {
    let mut wire = Wire::with(ServerLimits {
        queue_messages,
        queue_policy,
        ..ServerLimits::default()
    });
    wire.connect(CONNECT_5_KEPT);
    wire.lose();
    wire
}

fn deliver_messages(wire: &mut Wire, letters: &[u8]) -> Vec<Delivered> {
    letters
        .iter()
        .map(|letter| wire.deliver(&message("t", &[*letter], ONCE), ONCE))
        .collect()
}

fn resumed_payloads(wire: &mut Wire) -> Vec<u8> {
    wire.resume(CONNECT_5_KEPT);
    wire.receive()[1..]
        .iter()
        .map(|packet| *packet.last().unwrap())
        .collect()
}

/// MQTT 5.0 section 1.5.5: behind its fixed header a packet has 268,435,455 bytes at most. What a
/// receiver gets beside the message counts, and it uses no send quota.
#[test]
fn a_message_that_is_too_large_with_what_comes_beside_it_is_dropped() {
    let mut wire = Wire::connected(CONNECT_5);
    let name = TopicName::parse(LONG, &TopicLimits::default()).unwrap();
    // topic with its length, packet identifier, length of no properties
    let payload = vec![0; 268_435_455 - (2 + LONG.len()) - 2 - 1];
    let (no, limits) = (Properties::EMPTY, ServerLimits::default());
    let message = Message::composed(name, no, &payload, ONCE, false, &limits).unwrap();
    drop(payload);
    let ids = [NonZeroU32::MIN];

    let too_large = wire
        .session
        .deliver(wire.now, &message, Delivery::new(ONCE, &ids));
    let in_flight = wire.session.in_flight();
    let fits = wire.deliver(&message, ONCE);

    assert_eq!(too_large, Delivered::Dropped(DropReason::PacketTooLarge));
    assert_eq!((fits, in_flight), (Delivered::Sent, 0));
    let Some(Transmit::Publish(publish)) = wire.session.poll_transmit() else {
        panic!("no PUBLISH");
    };
    let (mut scratch, mut head) = (PropertiesBuf::default(), Vec::new());
    let encoded = publish.encode_head(ProtocolVersion::V5, wire.now, &mut scratch, &mut head);
    assert_eq!(encoded, Ok(()));
    assert_eq!(head[..5], [0x32, 0xff, 0xff, 0xff, 0x7f]);
}
