//! One packet, or one event, of a trace.

use std::sync::Arc;
use std::time::SystemTime;

use mqttcore_codec::ProtocolVersion;

use crate::config::Peer;

/// The direction of a packet, or an event in the broker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TraceDirection {
    /// The client sent it.
    In,
    /// The broker sent it to the client: it is in the outbox of the connection, and may not be written yet.
    Out,
    /// Something happened in the broker; there is no packet.
    Broker,
}

/// A packet of a client, or an event in the broker that concerns it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TracedPacket {
    /// Counts the packets of the trace from 1. A gap means that packets were dropped.
    pub number: u64,
    /// When the broker handled it.
    pub at: SystemTime,
    /// The sender.
    pub direction: TraceDirection,
    /// The client identifier. Text that looks like a token is masked.
    pub client_id: Arc<str>,
    /// Its address; `None` if it is not connected.
    pub peer: Option<Peer>,
    /// The protocol version of the connection.
    pub version: ProtocolVersion,
    /// Bytes of the packet on the wire, before anything was left out.
    pub bytes: usize,
    /// Bytes of its payload, before anything was left out.
    pub payload_bytes: usize,
    /// The packet without secrets, and with as much of the payload as the trace has. Empty for an event.
    pub packet: Box<[u8]>,
    /// The topic in the broker, if the packet has an alias or the client does not see the whole topic; that of an event.
    pub topic: Option<Box<str>>,
    /// The description of an event.
    pub note: Option<Box<str>>,
}

impl TracedPacket {
    /// Bytes of memory, including its entry in the queue.
    pub(crate) fn memory_bytes(&self) -> usize {
        let texts = [&self.topic, &self.note];
        let texts = texts.into_iter().flatten().map(|text| text.len());
        // A queue grows to twice its length; the two counts belong to the `Arc`.
        let fixed = size_of::<Self>() + 4 * size_of::<usize>();
        fixed + self.client_id.len() + self.packet.len() + texts.sum::<usize>()
    }
}
