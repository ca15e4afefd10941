//! Keep Alive, the will and the end of a session: sections 3.1.2.5 to 3.1.2.11, 3.14.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::time::Duration;

use common::{
    Asked, CONNECT_3, CONNECT_3_KEPT, CONNECT_5, CONNECT_5_KEPT, Wire, framed, message, seconds,
};
use mqttcore_codec::{QoS, ReasonCode};
use mqttcore_session::{Cause, Expiry, Message, ServerLimits, SessionEvent};

#[test]
fn mqtt_3_1_2_22_silence_for_one_and_a_half_keep_alives_ends_the_connection() {
    let mut wire = Wire::connected(CONNECT_5);

    assert_eq!(wire.session.poll_timeout(), Some(wire.now + seconds(90)));
    wire.now += Duration::from_millis(89_999);
    assert!(wire.session.handle_timeout(wire.now).is_ok());
    wire.now += Duration::from_millis(1);

    let violation = wire.session.handle_timeout(wire.now).unwrap_err();
    assert_eq!(violation.reason, ReasonCode::KEEP_ALIVE_TIMEOUT);
}

/// Abuse C29.
#[test]
fn any_packet_counts_against_the_silence() {
    let mut wire = Wire::connected(CONNECT_5);
    for packet in [
        &b"\xc0\x00"[..],
        b"\x30\x04\x00\x01t\x00",
        b"\x40\x02\x00\x07",
    ] {
        wire.now += seconds(80);
        wire.ok(packet);

        assert_eq!(wire.session.poll_timeout(), Some(wire.now + seconds(90)));
    }
}

#[test]
fn a_3_x_client_without_keep_alive_has_no_deadline() {
    let wire = Wire::connected(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c");

    assert_eq!(wire.session.poll_timeout(), None);
}

#[test]
fn mqtt_3_12_4_1_ping_is_answered() {
    let mut wire = Wire::connected(CONNECT_3);

    wire.ok(b"\xc0\x00");

    assert_eq!(wire.receive(), [b"\xd0\x00"]);
}

#[test]
fn mqtt_3_1_1_3_1_2_8_the_will_is_published_when_the_connection_is_lost() {
    let mut wire = Wire::connected(&will_3(0x2e));

    let departure = wire.lose();

    let will = departure.will.unwrap();
    assert_eq!((will.topic(), will.payload()), ("w", &b"p"[..]));
    assert_eq!((will.qos(), will.retain()), (QoS::AtLeastOnce, true));
    assert_eq!(departure.expiry, Expiry::Now);
    assert!(wire.lose().will.is_none(), "once");
}

/// Without a delay the will does not wait for the end of a session that is kept.
#[test]
fn mqtt_3_1_2_8_a_will_without_a_delay_is_due_with_the_end_of_the_connection() {
    let mut wire = Wire::connected(&will_5(0, 100));
    assert_eq!(wire.session.will().unwrap().message.topic(), "w");

    let departure = wire.lose();

    assert_eq!(departure.will.unwrap().topic(), "w");
    assert!(wire.session.will().is_none());
}

#[test]
fn mqtt_3_14_4_3_disconnect_forgets_the_will() {
    let mut wire = Wire::connected(&will_3(0x0e));

    let Asked::Left(cause) = wire.ok(b"\xe0\x00") else {
        panic!("a goodbye")
    };

    assert!(wire.session.detach(wire.now, cause).will.is_none());
}

#[test]
fn disconnect_with_will_keeps_the_will() {
    let mut wire = Wire::connected(&will_5(0, 0));

    let Asked::Left(cause) = wire.ok(b"\xe0\x01\x04") else {
        panic!("a goodbye")
    };

    assert!(wire.session.detach(wire.now, cause).will.is_some());
}

#[test]
fn every_other_end_publishes_the_will() {
    for cause in [
        Cause::KeepAliveTimeout,
        Cause::Violation,
        Cause::TakenOver,
        Cause::ServerStop,
    ] {
        let mut wire = Wire::connected(&will_3(0x06));

        assert!(
            wire.session.detach(wire.now, cause).will.is_some(),
            "{cause:?}"
        );
    }
}

#[test]
fn mqtt_3_1_2_8_a_delayed_will_waits() {
    let mut wire = Wire::connected(&will_5(10, 100));

    let departure = wire.lose();

    assert!(departure.will.is_none());
    assert_eq!(wire.session.poll_timeout(), Some(wire.now + seconds(10)));
    assert!(due(&mut wire, 9).is_empty());
    let wills = due(&mut wire, 1);
    assert_eq!(wills[0].topic(), "w");
    assert_eq!(
        wire.session.poll_timeout(),
        Some(wire.now + seconds(90)),
        "then the session"
    );
}

/// [MQTT-3.1.2-8] The end of the session comes first (abuse F10).
#[test]
fn mqtt_3_1_2_8_a_will_does_not_outlive_its_session() {
    let mut wire = Wire::connected(&will_5(100, 10));
    wire.lose();

    wire.now += seconds(10);
    wire.session.handle_timeout(wire.now).unwrap();

    let events = wire.events();
    assert!(
        matches!(
            &events[..],
            [SessionEvent::WillDue(_), SessionEvent::Expired]
        ),
        "{events:?}"
    );
    assert_eq!(wire.session.poll_timeout(), None);
}

/// Whoever handles messages alone leaves the will and the end of the session to whoever handles sessions.
#[test]
fn events_about_messages_stop_at_a_will_and_at_the_end_of_the_session() {
    let mut wire = Wire::connected(&will_5(100, 10));
    wire.lose();
    wire.now += seconds(10);
    wire.session.handle_timeout(wire.now).unwrap();

    assert!(wire.session.poll_message_event().is_none());
    assert!(matches!(
        wire.session.poll_event(),
        Some(SessionEvent::WillDue(_))
    ));
    assert!(wire.session.poll_message_event().is_none());
    assert!(matches!(
        wire.session.poll_event(),
        Some(SessionEvent::Expired)
    ));
}

#[test]
fn an_event_about_a_message_is_polled_as_any_other() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    wire.lose();
    wire.deliver(&message("t", b"!", QoS::AtLeastOnce), QoS::AtLeastOnce);
    wire.session.keep_queued(|_| false);

    let event = wire.session.poll_message_event();

    assert!(
        matches!(event, Some(SessionEvent::Dropped { .. })),
        "{event:?}"
    );
    assert!(wire.session.poll_message_event().is_none());
}

#[test]
fn a_client_that_is_not_read_is_not_silent() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    let later = wire.now + seconds(50);

    wire.session.restart_keep_alive(later);
    assert_eq!(wire.session.poll_timeout(), Some(later + seconds(90)));
    wire.lose();
    wire.session.restart_keep_alive(later);

    let end = wire.now + seconds(100);
    assert_eq!(wire.session.poll_timeout(), Some(end), "of the session");
}

#[test]
fn a_delayed_will_is_due_at_once_when_the_session_ends_with_the_connection() {
    let mut wire = Wire::connected(&will_5(100, 0));

    assert!(wire.lose().will.is_some());
}

#[test]
fn mqtt_3_1_3_9_coming_back_in_time_cancels_the_will() {
    let mut wire = Wire::connected(&will_5(10, 100));
    wire.lose();
    wire.now += seconds(9);

    wire.resume(CONNECT_5_KEPT);
    wire.lose();

    assert!(due(&mut wire, 50).is_empty());
}

#[test]
fn coming_back_too_late_does_not_cancel_the_will() {
    let mut wire = Wire::connected(&will_5(10, 100));
    wire.lose();
    wire.now += seconds(10);

    wire.resume(CONNECT_5_KEPT);

    assert!(matches!(&wire.events()[..], [SessionEvent::WillDue(_)]));
}

/// A clean start ends the session, and with it the wait.
#[test]
fn a_clean_start_publishes_a_waiting_will() {
    let mut connected = Wire::connected(&will_5(10, 100));
    connected.lose();
    connected.connect(CONNECT_5);
    let mut ended = Wire::connected(&will_5(10, 100));
    ended.lose();

    assert!(matches!(
        &connected.events()[..],
        [SessionEvent::WillDue(_)]
    ));
    assert!(ended.session.end(ended.now).is_some());
}

/// [MQTT-3.3.2-6] The will's expiry begins when it is published.
#[test]
fn the_wills_expiry_begins_with_its_publication() {
    // Will Delay 10, Message Expiry 5, Session Expiry 100.
    let body = b"\x00\x04MQTT\x05\x04\x00\x3c\x05\x11\x00\x00\x00\x64\x00\x01c\
                 \x0a\x18\x00\x00\x00\x0a\x02\x00\x00\x00\x05\x00\x01w\x00\x01p";
    let mut wire = Wire::connected(&framed(0x10, body));
    wire.lose();

    let will = due(&mut wire, 10).remove(0);

    assert_eq!(will.expires_at(), Some(wire.now + seconds(5)));
    assert_eq!(will.properties().will_delay_interval(), None);
}

#[test]
fn mqtt_3_1_2_23_a_session_is_kept_for_its_expiry() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);

    let departure = wire.lose();

    assert_eq!(departure.expiry, Expiry::At(wire.now + seconds(100)));
    wire.now += seconds(100);
    wire.session.handle_timeout(wire.now).unwrap();
    assert!(matches!(wire.events()[..], [SessionEvent::Expired]));
}

#[test]
fn a_session_without_expiry_ends_with_its_connection() {
    assert_eq!(Wire::connected(CONNECT_5).lose().expiry, Expiry::Now);
    assert_eq!(Wire::connected(CONNECT_3).lose().expiry, Expiry::Now);
}

#[test]
fn a_session_may_be_kept_for_ever_if_the_limits_allow_it() {
    let mut wire = Wire::with(ServerLimits {
        session_expiry_max_s: u32::MAX,
        ..Default::default()
    });
    wire.connect(CONNECT_3_KEPT);

    assert_eq!(wire.lose().expiry, Expiry::Never);
    assert_eq!(wire.session.poll_timeout(), None);
}

#[test]
fn disconnect_may_change_the_expiry() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);

    wire.ok(b"\xe0\x07\x00\x05\x11\x00\x00\x00\x07");

    assert_eq!(wire.lose().expiry, Expiry::At(wire.now + seconds(7)));
}

/// Abuse F13, MQTT 5.0 section 3.14.2.2.2.
#[test]
fn disconnect_may_not_keep_a_session_that_connect_did_not_keep() {
    let mut wire = Wire::connected(CONNECT_5);

    let reason = wire.refused(b"\xe0\x07\x00\x05\x11\x00\x00\x00\x07");

    assert_eq!(reason, ReasonCode::PROTOCOL_ERROR);
    wire.ok(b"\xe0\x07\x00\x05\x11\x00\x00\x00\x00");
}

/// The client asked for 100 s in CONNECT, and the server keeps nothing.
#[test]
fn disconnect_may_repeat_an_expiry_that_was_not_granted() {
    let mut wire = Wire::with(ServerLimits {
        session_expiry_max_s: 0,
        ..ServerLimits::default()
    });
    wire.connect(CONNECT_5_KEPT);

    wire.ok(b"\xe0\x07\x00\x05\x11\x00\x00\x00\x64");

    assert_eq!(wire.lose().expiry, Expiry::Now);
}

fn due(wire: &mut Wire, after_s: u64) -> Vec<Message> {
    wire.now += seconds(after_s);
    wire.session.handle_timeout(wire.now).unwrap();
    let wills = wire.events().into_iter().filter_map(|event| match event {
        SessionEvent::WillDue(will) => Some(will),
        _ => None,
    });
    wills.collect()
}

/// A 3.1.1 CONNECT with will topic `w` and payload `p`.
fn will_3(flags: u8) -> Vec<u8> {
    let head = [&b"\x00\x04MQTT\x04"[..], &[flags], b"\x00\x3c\x00\x01c"].concat();
    framed(0x10, &[&head[..], b"\x00\x01w\x00\x01p"].concat())
}

/// The same for 5.0, with a Will Delay and a Session Expiry in seconds.
fn will_5(delay_s: u8, expiry_s: u8) -> Vec<u8> {
    let head = [
        &b"\x00\x04MQTT\x05\x04\x00\x3c\x05\x11\x00\x00\x00"[..],
        &[expiry_s],
    ]
    .concat();
    let will = [
        &b"\x05\x18\x00\x00\x00"[..],
        &[delay_s],
        b"\x00\x01w\x00\x01p",
    ]
    .concat();
    framed(0x10, &[&head[..], b"\x00\x01c", &will].concat())
}
