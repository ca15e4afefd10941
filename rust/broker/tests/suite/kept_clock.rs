//! The system's clock is wrong in one life of the broker, and right in the next (ADR 0022).

use std::fs;
use std::time::{Duration, SystemTime};

use mqttcore_broker::{Broker, Config, Data, Promise};
use mqttcore_codec::{PropertiesBuf, Property, QoS};

use crate::common::http::Http;
use crate::common::{HOUR_S, Hello, Home, Received, config, stream, v5};

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

/// A broker with a stream, whose clock says `system_time`.
fn with_stream(home: &Home, system_time: fn() -> SystemTime) -> Config {
    Config {
        data: Some(Data {
            promise: Promise::Fsync,
            ..home.data(0)
        }),
        streams: vec![stream("plant", "plant/#")],
        ..at(system_time)
    }
}

/// One more row of the stream, in a file of its own.
fn seal_a_row(home: &Home, life: u32, broker: &Broker) {
    let mut writer = v5("writer").connect(broker);
    writer.publish("plant/1", "a row", QoS::AtLeastOnce);
    assert!(matches!(writer.receive(), Received::PubAck(..)));
    let status = ask(home, life, "/v1/streams/plant/seal", "");
    assert!((200..300).contains(&status), "{status}");
}

fn ask(home: &Home, life: u32, target: &str, body: &str) -> u16 {
    let socket = home.life(life).join("streams/endpoint.sock");
    Http::unix(&socket).request("POST", target, body).status
}

/// The numbers under `key` in a file of the stream, in their order.
fn numbers(home: &Home, life: u32, file: &str, key: &str) -> Vec<u64> {
    let text = fs::read_to_string(home.life(life).join("streams/plant").join(file));
    let text = text.expect("a file of the stream");
    let key = format!(r#""{key}":"#);
    let values = text.split(&key).skip(1).map(|behind| {
        let digits = behind.split(|letter: char| !letter.is_ascii_digit()).next();
        digits.expect("digits").parse().expect("a number")
    });
    values.collect()
}

/// What retention counts by: `rust/store/tests/kept_time.rs` has the rest.
#[test]
fn the_age_of_files_and_holds_is_counted_in_kept_time() {
    let hours_us = u64::from(HOUR_S) * 1_000_000;
    let years_us = 19 * 365 * 24 * hours_us;
    for (accepts_clock, least_us, most_us) in
        [(false, 0, 2 * hours_us), (true, years_us, 2 * years_us)]
    {
        let home = Home::new();
        let first = home.start_with(0, with_stream(&home, long_ago));
        seal_a_row(&home, 0, &first);
        let hold = r#"{ "consumer": "spark", "offsets": [0] }"#;
        let status = ask(&home, 0, "/v1/streams/plant/holds", hold);
        assert!((200..300).contains(&status), "{status}");

        let config = Config {
            accepts_clock,
            ..with_stream(&home, SystemTime::now)
        };
        let second = home.crash_with(first, 0, config);
        seal_a_row(&home, 1, &second);

        let sealed_us = numbers(&home, 1, "sealed.json", "sealed_us");
        let [former, later] = sealed_us[..] else {
            panic!("{sealed_us:?}");
        };
        assert!(
            (least_us..most_us).contains(&(later - former)),
            "{sealed_us:?}"
        );
        let until_ms = numbers(&home, 1, "holds.json", "until_ms");
        let lasts_us = until_ms[0] * 1_000 - former;
        assert!(
            (167 * hours_us..169 * hours_us).contains(&lasts_us),
            "{until_ms:?}"
        );
    }
}
