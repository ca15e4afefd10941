//! Arrow rows as MQTT messages, and the client that publishes them to any broker.
//!
//! [`MessageColumns`] reads a record batch of messages; the broker's sink uses it too. A [`Publisher`] is the protocol
//! state of one connection that only publishes, at QoS 1 and 2. Its inputs are rows and received bytes, its outputs
//! bytes to send. A message is complete when the server has acknowledged it. Over MQTT 5.0 each message has the user
//! property [`ID`], by which consumers recognise duplicates.
//!
//! The crate opens no sockets, never waits, reads no clocks, and does not keep sent rows: if the connection is lost,
//! the caller publishes its rows again.
//!
//! ```
//! use std::sync::Arc;
//!
//! use arrow_array::{ArrayRef, RecordBatch, StringArray};
//! use mqttcore_publisher::{ConnectOptions, Publisher};
//!
//! let login = ConnectOptions { client_id: "me", ..ConnectOptions::default() };
//! let mut publisher = Publisher::new(&login, "nightly/0/0", 0)?;
//! let mut out = Vec::new();
//! publisher.poll_transmit(&mut out)?;
//! assert_eq!(out[0], 0x10, "CONNECT");
//! publisher.handle_bytes(&[0x20, 3, 0, 0, 0])?;
//!
//! let topic: ArrayRef = Arc::new(StringArray::from(vec!["plant/1"]));
//! let payload: ArrayRef = Arc::new(StringArray::from(vec!["20.5"]));
//! publisher.publish(&RecordBatch::try_from_iter([("topic", topic), ("payload", payload)])?)?;
//! out.clear();
//! publisher.poll_transmit(&mut out)?;
//! assert_eq!((out[0], publisher.in_flight()), (0x32, 1));
//! publisher.handle_bytes(&[0x40, 2, 0, 1])?;
//! assert_eq!(publisher.in_flight(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod columns;
mod encoder;
mod error;
mod in_flight;
mod publisher;
mod server;

pub use columns::{MessageColumns, PublishRow};
pub use error::{ColumnError, PublisherFailure, RowError};
pub use publisher::{ConnectOptions, ID, Publisher};
