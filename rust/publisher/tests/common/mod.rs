//! Rows for a publisher.
#![allow(
    clippy::unwrap_used,
    dead_code,
    unreachable_pub,
    reason = "each test file uses a part of it"
)]

use std::num::NonZeroU16;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray};
use mqttcore_publisher::{ConnectOptions, Publisher, PublisherFailure};

/// A CONNACK of MQTT 5.0 without properties.
pub const CONNACK: [u8; 5] = [0x20, 3, 0, 0, 0];

/// A batch of these columns.
pub fn batch<const N: usize>(columns: [(&str, ArrayRef); N]) -> RecordBatch {
    RecordBatch::try_from_iter(columns).unwrap()
}

pub fn texts(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

pub fn numbers(values: &[i64]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

pub fn flags(values: &[bool]) -> ArrayRef {
    Arc::new(BooleanArray::from(values.to_vec()))
}

/// A row for each QoS, to topic `t`; its payload is its number.
pub fn rows(qos: &[i64]) -> RecordBatch {
    let payloads: Vec<String> = (0..qos.len()).map(|n| n.to_string()).collect();
    let payloads: Vec<&str> = payloads.iter().map(String::as_str).collect();
    batch([
        ("topic", texts(&vec!["t"; qos.len()])),
        ("payload", texts(&payloads)),
        ("qos", numbers(qos)),
    ])
}

/// A publisher whose CONNECT is out.
pub fn connecting(login: &ConnectOptions<'_>) -> Publisher {
    let mut publisher = Publisher::new(login, "q/3/1", 0).unwrap();
    assert_eq!(sent(&mut publisher).unwrap()[0], 0x10);
    publisher
}

/// A publisher that the server let in with these properties of MQTT 5.0.
pub fn connected(in_flight_max: u16, properties: &[u8]) -> Publisher {
    let login = ConnectOptions {
        client_id: "c",
        in_flight_max: NonZeroU16::new(in_flight_max),
        ..ConnectOptions::default()
    };
    let mut publisher = connecting(&login);
    let length = u8::try_from(properties.len()).unwrap();
    let connack = [&[0x20, 3 + length, 0, 0, length], properties].concat();
    publisher.handle_bytes(&connack).unwrap();
    assert!(publisher.is_connected());
    publisher
}

/// What it wants to send.
pub fn sent(publisher: &mut Publisher) -> Result<Vec<u8>, PublisherFailure> {
    let mut out = Vec::new();
    publisher.poll_transmit(&mut out)?;
    Ok(out)
}
