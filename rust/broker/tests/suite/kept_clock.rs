//! The system's clock is wrong in one run of the broker, and right in the next (ADR 0022).

use std::time::{Duration, SystemTime};

use mqttcore_broker::{Broker, Config};
use mqttcore_codec::{PropertiesBuf, Property, QoS};

use crate::common::{Hello, Home, Received, config, v5};

const DAY_S: u32 = 24 * 3_600;

fn long_ago() -> SystemTime {
    SystemTime::now() - 20 * 365 * Duration::from_secs(DAY_S.into())
}

fn at(system_time: fn() -> SystemTime) -> Config {
    Config {
        system_time,
        ..config()
    }
}

fn reader() -> Hello {
    v5("reader").keeping_session_s(DAY_S)
}

/// A session, a message that waits for it, a retained message and a delayed will, each good for a
/// day; kept while the clock says `system_time`.
fn filled(home: &Home, system_time: fn() -> SystemTime) -> Broker {
    let broker = home.start_with(0, at(system_time));
    let mut away = reader().connect(&broker);
    away.subscribe("a", QoS::AtLeastOnce);
    away.subscribe("will", QoS::AtLeastOnce);
    away.disconnect();
    let mut lasting = PropertiesBuf::default();
    lasting
        .push(Property::MessageExpiryInterval(DAY_S))
        .expect("a property");
    let mut writer = v5("writer").connect(&broker);
    for (topic, retain) in [("a", false), ("kept", true)] {
        let properties = lasting.as_properties();
        writer.publish_with(topic, b"still good", QoS::AtLeastOnce, retain, properties);
        assert!(matches!(writer.receive(), Received::PubAck(..)));
    }
    let leaving = v5("leaving").keeping_session_s(DAY_S);
    let leaving = leaving.will("will", "too early").will_delay_s(DAY_S);
    leaving.connect(&broker).vanish();
    broker
}

/// Nothing of [`filled`] has expired, and nothing was published early.
fn all_is_there(broker: &Broker) {
    let (mut reader, is_present) = reader().connect_or_resume(broker);
    assert!(is_present);
    let message = reader.take_message();
    assert_eq!(
        (message.topic.as_str(), message.text()),
        ("a", "still good")
    );
    let mut other = v5("other").connect(broker);
    other.subscribe("kept", QoS::AtMostOnce);
    assert_eq!(other.message().text(), "still good");
    other.publish("will", "at last", QoS::AtLeastOnce);
    assert_eq!(reader.take_message().text(), "at last");
}

#[test]
fn a_clock_that_is_put_right_while_the_broker_is_down_ends_nothing() {
    let home = Home::new();
    let first = filled(&home, long_ago);

    let second = home.crash_with(first, 0, at(SystemTime::now));

    all_is_there(&second);
    let third = home.crash_with(second, 1, at(SystemTime::now));
    assert!(
        reader().connect_or_resume(&third).1,
        "the next start agrees"
    );
}

#[test]
fn a_clock_that_goes_back_while_the_broker_is_down_ends_nothing() {
    let home = Home::new();
    let first = filled(&home, SystemTime::now);

    let second = home.crash_with(first, 0, at(long_ago));

    all_is_there(&second);
    let third = home.crash_with(second, 1, at(SystemTime::now));
    assert!(
        reader().connect_or_resume(&third).1,
        "nor does the way back"
    );
}

#[test]
fn a_clock_that_is_accepted_counts_all_of_the_time() {
    let home = Home::new();
    let first = filled(&home, long_ago);

    let accepting = Config {
        accepts_clock: true,
        ..at(SystemTime::now)
    };
    let second = home.crash_with(first, 0, accepting);

    assert!(!reader().connect_or_resume(&second).1);
}
