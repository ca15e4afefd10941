//! Arrow rows as MQTT messages, and the client that publishes them to any broker.
//!
//! [`MessageColumns`] reads a record batch of messages; the broker's own sink reads the same. A
//! [`Publisher`] is one connection of a client that does nothing but publish, at QoS 1 and 2: rows
//! and received bytes go in, bytes to send come out, and a message is over when the server has
//! acknowledged it. Over MQTT 5.0 each has the user property [`ID`], by which a consumer tells
//! a repeat.
//!
//! The crate refuses to open sockets, to wait, to read clocks, and to keep what was sent: when a
//! connection is lost, the caller sends its rows again.
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
mod publisher;
mod server;
mod window;

pub use columns::{MessageColumns, PublishRow};
pub use error::{ColumnError, PublisherFailure, RowError};
pub use publisher::{ConnectOptions, ID, Publisher};
