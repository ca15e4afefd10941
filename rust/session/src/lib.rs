//! The protocol state of one MQTT client, without sockets, clocks or locks.
//!
//! A [`Session`] takes decoded packets and the time, and returns [`Transmit`]s, [`SessionEvent`]s and deadlines. It
//! implements every rule of MQTT 3.1, 3.1.1 and 5.0 that concerns one client: both QoS exchanges, the send quota,
//! packet identifiers, topic aliases, Keep Alive, the will, expiry, and the order of packets. The engine is responsible
//! for authorization, routing and storage.
//!
//! The crate does not read clocks, lock, start threads, decode packets or write to sockets. [`Control::encode`] and
//! [`PublishTransmit::encode_head`] encode the packets that it returns, so that the engine decides where the bytes go.
//!
//! # How an engine drives it
//!
//! 1. CONNECT: [`ConnectRequest::parse`], then authenticate (with [`Authentication`] if the
//!    client names a method), then [`Session::connect`], or [`connack_failure`] and close.
//! 2. Every packet: [`Session::handle_packet`]; do what the [`Request`] asks, and answer it.
//! 3. Every message for it: [`Session::deliver`].
//! 4. After any of these: [`Session::poll_event`] and [`Session::poll_transmit`] until `None`,
//!    then arm a timer for [`Session::poll_timeout`].
//! 5. End of the connection: [`Session::detach`].
//!
//! # Held acknowledgements
//!
//! An [`AckToken`] holds back an acknowledgement until the engine has confirmed that its record is safe
//! (docs/decisions.md, 2). PUBACK and PUBREC wait for the token of [`Session::accept_publish`] in every session, since
//! a durable session may receive the message. If nothing has to be written, confirm the token at once. Other packets
//! wait in durable sessions only: CONNACK, SUBACK and UNSUBACK for the token that their call returned; PUBREL, PUBCOMP
//! and QoS 2 PUBLISH for the token in [`SessionEvent::Record`]. Tokens are confirmed in order: [`Session::confirm`]
//! confirms every token up to the given one. So poll events, and queue their tokens, before you take the next token.
//!
//! # What may surprise
//!
//! * Requests of the client are answered in the order of the calls. Messages to the client may overtake
//!   acknowledgements that wait for a token.
//! * Drop a PUBLISH that the session returned and the engine had not accepted when the connection ended. The client
//!   sends it again, and it is handled as a new message.
//! * QoS 1 and 2 messages that exceed the send quota wait in the queue, in the order of [`Session::deliver`]; they are
//!   copied out of the chunk that they arrived in (docs/decisions.md, 18).
//! * Topic aliases are used for repeated topics above 32 bytes, if the client accepts aliases: such a PUBLISH cannot
//!   share bytes with those of other clients.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Instant;
//!
//! use mqttcore_codec::{ProtocolVersion, decode, decode_connect};
//! use mqttcore_session::{ConnectRequest, Request, ServerLimits, Session, Terms, Transmit};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limits = Arc::new(ServerLimits::default());
//! let now = Instant::now();
//! let connect = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01a";
//! let (connect, _) = decode_connect(connect, &limits.before_connect())?.expect("complete");
//!
//! let request = ConnectRequest::parse(&connect, &limits)?;
//! let mut session = Session::new(Arc::clone(&limits));
//! session.connect(now, &request, Terms::new(Arc::clone(&limits)));
//!
//! let Some(Transmit::Control(connack)) = session.poll_transmit() else { panic!("CONNACK") };
//! let mut out = Vec::new();
//! connack.encode(session.version(), session.client_packet_bytes(), &mut out);
//! assert_eq!(out, b"\x20\x02\x00\x00");
//!
//! let (publish, _) = decode(b"\x30\x04\x00\x01t!", ProtocolVersion::V3_1_1, &limits.after_connect())?
//!     .expect("complete");
//! let Request::Publish(publish) = session.handle_packet(now, publish)? else { panic!() };
//! assert_eq!((publish.topic().as_str(), publish.payload()), ("t", &b"!"[..]));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod acknowledged;
mod alias;
mod auth;
mod cause;
mod changed;
mod chunk;
mod composed;
mod connect;
mod control;
mod decision;
mod departure;
mod deque;
mod event;
mod forward;
mod gate;
mod handshake;
mod inbound;
mod inflight;
mod limits;
mod live;
mod message;
mod on_demand;
mod outbound;
mod packet_ids;
mod queue;
mod received;
mod request;
mod restore;
mod secret;
mod session;
mod spill;
mod subscribing;
mod subscriptions;
mod timers;
mod transmit;
mod undecided;
mod violation;
mod will;

pub use alias::AliasUse;
pub use auth::{AuthStep, Authentication, reauthentication_refusal};
pub use cause::Cause;
pub use changed::{ChangeError, MessageChanges};
pub use chunk::{BufferKeeper, Chunk, ChunkAccount, ChunkTotal};
pub use composed::MessageError;
pub use connect::{ConnAckFormat, ConnectRequest};
pub use control::{Control, Details};
pub use decision::{DeliveryDecision, QueueCause};
pub use departure::DetachOutcome;
pub use event::{DropReason, ExchangeRecord, SessionEvent};
pub use gate::AckToken;
pub use handshake::{Terms, connack_failure};
pub use inflight::InFlightMessage;
pub use limits::{PACKET_BYTES_MAX, QueuePolicy, ServerLimits};
pub use message::Message;
pub use on_demand::{Idle, OnDemand};
pub use outbound::{Delivered, Delivery, QueueRoom};
pub use request::{
    PublishRequest, PublishTopic, Request, SubscribeEntry, SubscribeRequest, UnsubscribeEntry,
    UnsubscribeRequest,
};
pub use secret::{Secret, SecretBuffer, wipe};
pub use session::Session;
pub use subscriptions::Subscription;
pub use timers::Expiry;
pub use transmit::{PublishTransmit, Transmit};
pub use undecided::{HeldDecision, UNDECIDED_MAX};
pub use violation::{Violation, ViolationKind};
pub use will::WillMessage;
