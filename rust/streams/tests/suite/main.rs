//! Streams whose log is Kafka, as publishers meet them.
//!
//! One binary, so that it links once. Streams in the broker's store are tested in `mqttcore-http`, through which they are
//! read.

#[path = "../../../broker/tests/common/mod.rs"]
mod common;

mod kafka;
#[cfg(feature = "kafka")]
mod kafka_client;
mod setup;
