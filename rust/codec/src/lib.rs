//! Encodes and decodes MQTT 3.1, 3.1.1 and 5.0 packets.
//!
//! One codec serves all versions: the version is an argument, and a 3.x packet is the same struct with empty
//! properties. Decoded packets borrow from the source bytes; decoding a PUBLISH allocates nothing.
//!
//! The crate keeps no state, does not block or log, and does not know which side of a connection it is on. Rules that
//! depend on a session, a direction or a topic tree belong to higher layers. Topic names and filters are checked as
//! text only.
//!
//! ```
//! use mqttcore_codec::{Limits, Packet, ProtocolVersion, decode, encode};
//!
//! let bytes = [0x30, 0x06, 0x00, 0x03, b'a', b'/', b'b', b'!'];
//! let (packet, len) = decode(&bytes, ProtocolVersion::V3_1_1, &Limits::default())?.expect("complete");
//! assert_eq!(len, bytes.len());
//! let Packet::Publish(publish) = packet else { panic!("a PUBLISH") };
//! assert_eq!(publish.topic.as_str(), "a/b");
//! assert_eq!(publish.payload, b"!");
//!
//! let mut out = Vec::new();
//! encode(&packet, ProtocolVersion::V3_1_1, &mut out)?;
//! assert_eq!(out, bytes);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod error;
mod frame;
mod limits;
mod packet;
mod properties;
mod property_id;
mod property_table;
mod reason;
mod text;
mod types;
mod var_int;
mod wire;

pub use error::{DecodeError, EncodeError};
pub use frame::{decode, decode_connect, encode, encode_publish_head, frame_len};
pub use limits::Limits;
pub use packet::{
    Ack, Auth, ConnAck, Connect, Disconnect, Packet, Publish, PublishQoS, RetainHandling, SubAck,
    Subscribe, SubscriptionOptions, UnsubAck, Unsubscribe, Will, connack_for_error,
};
pub use properties::{Properties, PropertiesBuf, PropertiesIter, Property};
pub use property_id::PropertyId;
pub use reason::ReasonCode;
pub use text::{Text, TextError};
pub use types::{PacketId, PacketType, ProtocolVersion, QoS, UnknownQoS};
pub use var_int::{VAR_INT_MAX, decode_var_int};
