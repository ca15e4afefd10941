//! Retention while the system's clock is wrong in one run of the broker, and right in the next (ADR 0022).

use std::fs;
use std::time::{Duration, SystemTime};

use mqttcore_broker::{Broker, Data, Durability};
use mqttcore_codec::QoS;

use crate::client::Http;
use crate::common::{HOUR_S, Home, Received, v5};
use crate::served::{Setup, stream};

fn long_ago() -> SystemTime {
    SystemTime::now() - 20 * 365 * Duration::from_secs(24 * u64::from(HOUR_S))
}

/// A broker with a stream, whose clock says `system_time`.
fn with_stream(home: &Home, system_time: fn() -> SystemTime) -> Setup {
    let mut setup = Setup::new(home, vec![stream("plant", "plant/#")]);
    setup.config.data = Some(Data {
        durability: Durability::Fsync,
        ..home.data(0)
    });
    setup.config.system_time = system_time;
    setup
}

/// One more row of the stream, in a file of its own.
fn seal_a_row(home: &Home, run: u32, broker: &Broker) {
    let mut writer = v5("writer").connect(broker);
    writer.publish("plant/1", "a row", QoS::AtLeastOnce);
    assert!(matches!(writer.receive(), Received::PubAck(..)));
    let status = ask(home, run, "/v1/streams/plant/seal", "");
    assert!((200..300).contains(&status), "{status}");
}

fn ask(home: &Home, run: u32, target: &str, body: &str) -> u16 {
    let socket = home.folder(run).join("streams/endpoint.sock");
    Http::unix(&socket).request("POST", target, body).status
}

/// The numbers under `key` in a file of the stream, in their order.
fn numbers(home: &Home, run: u32, file: &str, key: &str) -> Vec<u64> {
    let text = fs::read_to_string(home.folder(run).join("streams/plant").join(file));
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
        let first = with_stream(&home, long_ago).start();
        seal_a_row(&home, 0, &first);
        let hold = r#"{ "consumer": "spark", "offsets": [0] }"#;
        let status = ask(&home, 0, "/v1/streams/plant/holds", hold);
        assert!((200..300).contains(&status), "{status}");

        let mut setup = with_stream(&home, SystemTime::now);
        setup.config.accepts_clock = accepts_clock;
        let second = setup.start_after_crash(&home, first);
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
