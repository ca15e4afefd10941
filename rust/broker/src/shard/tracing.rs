//! Adds packets and events of traced clients to traces (ADR 0058).
//!
//! Each connection caches the active traces that it belongs to, and compares the version of the cache with that of the
//! broker: that is all that a packet of other clients costs.

use std::sync::Arc;

use mqttcore_codec::{Limits, Packet, PropertiesBuf, ProtocolVersion, ReasonCode, decode};
use mqttcore_session::{Control, Transmit};
use mqttcore_topics::{MountPoint, TopicName};

use crate::clients::client::Client;
use crate::clients::link::Link;
use crate::clients::traces::{
    ExchangeStep, FrameTopics, NewPacket, Trace, TraceDirection, TraceSet, TraceSubject, redacted,
};
use crate::config::Peer;
use crate::config::hooks::Login;
use crate::runtime::memory::MemoryLevel;
use crate::shard::Shard;

/// A packet as it stood on the wire, or would have without TLS and WebSocket.
#[derive(Clone, Copy)]
pub(crate) struct TracedFrame<'a> {
    pub(crate) direction: TraceDirection,
    pub(crate) bytes: &'a [u8],
    /// The topic of a PUBLISH in the broker.
    pub(crate) topic: Option<TopicName<'a>>,
    pub(crate) mount_point: Option<&'a MountPoint>,
}

impl<'a> TraceSubject<'a> {
    pub(crate) fn of_login(login: &'a Login) -> Self {
        Self {
            client_id: &login.client_id,
            username: login.username.as_deref(),
            peer: Some(login.peer),
            version: login.version,
        }
    }
}

impl Client {
    /// The active traces that its connection belongs to.
    #[inline]
    pub(crate) fn traces(&self, shard: &Shard, link: &Link) -> TraceSet {
        let (version, set) = link.traces.get();
        if version == shard.engine.traces.version() {
            return set;
        }
        shard.find_traces(self, link)
    }
}

impl Shard {
    /// Finds the active traces of a connection again, after they have changed.
    #[cold]
    fn find_traces(&self, client: &Client, link: &Link) -> TraceSet {
        let login = client.login();
        let subject = TraceSubject {
            peer: Some(link.peer()),
            ..TraceSubject::of_login(&login)
        };
        let set = self.traces_of(&subject);
        link.traces.set((self.active_traces.borrow().version, set));
        set
    }

    /// The active traces that record packets of `subject`.
    fn traces_of(&self, subject: &TraceSubject<'_>) -> TraceSet {
        let mut active = self.active_traces.borrow_mut();
        if active.version != self.engine.traces.version() {
            (active.version, active.traces) = self.engine.traces.active();
        }
        let mut set = TraceSet::default();
        let covering = active.traces.iter().filter(|trace| trace.covers(subject));
        covering.for_each(|trace| set.add(trace));
        set
    }

    /// Adds a packet to the traces of `set`.
    fn trace_frame(&self, set: TraceSet, subject: TraceSubject<'_>, frame: TracedFrame<'_>) {
        let Ok(Some((packet, _))) = decode(frame.bytes, subject.version, &Limits::MAX) else {
            return;
        };
        let topics = FrameTopics::of(&packet, frame.topic, frame.mount_point);
        // The packet itself has no topic, or not the whole one.
        let is_seen = |topic: &str| match &packet {
            Packet::Publish(publish) => publish.topic.as_str() == topic,
            _ => true,
        };
        let topic = frame.topic.map(TopicName::as_str);
        let topic = topic.filter(|topic| !is_seen(topic));
        let step = ExchangeStep::of(&packet, frame.direction);
        self.add_to_traces(set, subject.client_id, (&topics, step), |trace| {
            let part = topics.part(trace.spec().payload);
            let (bytes, payload_bytes) = redacted(frame.bytes, &packet, subject.version, part)?;
            Some(NewPacket {
                direction: frame.direction,
                subject,
                bytes: frame.bytes.len(),
                payload_bytes,
                packet: bytes,
                topic,
                note: None,
            })
        });
    }

    /// Adds an event in the broker to the traces of `set`.
    fn trace_note(
        &self,
        set: TraceSet,
        subject: TraceSubject<'_>,
        (note, topic): (&str, Option<&str>),
    ) {
        let topics = &FrameTopics::of_event(topic);
        self.add_to_traces(set, subject.client_id, (topics, None), |_| {
            Some(NewPacket {
                direction: TraceDirection::Broker,
                subject,
                bytes: 0,
                payload_bytes: 0,
                packet: Vec::new(),
                topic,
                note: Some(note.to_owned()),
            })
        });
    }

    fn add_to_traces<'a>(
        &self,
        set: TraceSet,
        client_id: &Arc<str>,
        (topics, step): (&FrameTopics<'_>, Option<ExchangeStep>),
        new: impl Fn(&Trace) -> Option<NewPacket<'a>>,
    ) {
        let is_short = self.memory_level() == MemoryLevel::Full;
        let active = self.active_traces.borrow();
        let wanting = active
            .traces
            .iter()
            .filter(|trace| set.has(trace) && trace.wants(client_id, topics, step));
        for trace in wanting {
            if let Some(packet) = new(trace) {
                trace.push(packet, self.now(), is_short);
            }
        }
    }

    /// Adds a packet that the client sent.
    #[cold]
    pub(crate) fn trace_received(
        &self,
        set: TraceSet,
        (client, link): (&Client, &Link),
        bytes: &[u8],
        topic: Option<TopicName<'_>>,
    ) {
        let session = client.session.borrow();
        let frame = TracedFrame {
            direction: TraceDirection::In,
            bytes,
            topic,
            mount_point: session.mount_point(),
        };
        self.trace_frame(set, subject_of(client, link), frame);
    }

    /// Adds a packet that was put into the outbox.
    #[cold]
    pub(crate) fn trace_sent(
        &self,
        set: TraceSet,
        (client, link): (&Client, &Link),
        transmit: &Transmit,
    ) {
        let mut bytes = Vec::new();
        let mut topic = None;
        match transmit {
            Transmit::Publish(publish) => {
                topic = Some(publish.message().topic_name());
                if let Some((chunk, range)) = publish.shared_frame(link.version) {
                    bytes.extend_from_slice(chunk.get(range).unwrap_or_default());
                } else {
                    let mut scratch = PropertiesBuf::default();
                    // One that cannot be encoded was not sent.
                    let _ = publish.encode(link.version, self.now(), &mut scratch, &mut bytes);
                }
            }
            Transmit::Control(control) => {
                control.encode(link.version, link.packet_bytes, &mut bytes);
            }
        }
        let frame = TracedFrame {
            direction: TraceDirection::Out,
            bytes: &bytes,
            topic,
            mount_point: None,
        };
        self.trace_frame(set, subject_of(client, link), frame);
    }

    /// As [`Shard::trace_sent`], for one of the last packets of a connection.
    pub(crate) fn trace_control(&self, client: &Client, link: &Link, control: &Control) {
        let set = client.traces(self, link);
        if !set.is_empty() {
            self.trace_sent(set, (client, link), &Transmit::Control(control.clone()));
        }
    }

    /// Adds an event of `client` to its traces.
    pub(crate) fn trace_event(
        &self,
        client: &Client,
        topic: Option<&str>,
        reason: Option<ReasonCode>,
        text: impl FnOnce() -> String,
    ) {
        if self.engine.traces.version() == 0 {
            return;
        }
        let (login, link) = (client.login(), client.link());
        let link_peer = link.map(|link| link.peer());
        let subject = TraceSubject {
            peer: link_peer.or(client.was_here().then_some(login.peer)),
            ..TraceSubject::of_login(&login)
        };
        let set = self.traces_of(&subject);
        if !set.is_empty() {
            self.trace_note(set, subject, (&with_reason(text(), reason), topic));
        }
    }

    /// Adds a packet that is exchanged before CONNACK.
    pub(crate) fn trace_login(&self, login: &Login, direction: TraceDirection, bytes: &[u8]) {
        if self.engine.traces.version() == 0 {
            return;
        }
        let subject = TraceSubject::of_login(login);
        let set = self.traces_of(&subject);
        if !set.is_empty() {
            let frame = TracedFrame {
                direction,
                bytes,
                topic: None,
                mount_point: None,
            };
            self.trace_frame(set, subject, frame);
        }
    }

    /// Adds a rejection that is not the reply to a login, and has no client identifier therefore.
    pub(crate) fn trace_rejection(&self, peer: Peer, text: impl FnOnce() -> String) {
        if self.engine.traces.version() == 0 {
            return;
        }
        let client_id = Arc::default();
        let subject = TraceSubject {
            client_id: &client_id,
            username: None,
            peer: Some(peer),
            version: ProtocolVersion::V5,
        };
        let set = self.traces_of(&subject);
        if !set.is_empty() {
            self.trace_note(set, subject, (&text(), None));
        }
    }
}

fn with_reason(text: String, reason: Option<ReasonCode>) -> String {
    match reason {
        Some(reason) => format!("{text} (0x{:02X} {})", reason.value(), reason.name()),
        None => text,
    }
}

fn subject_of<'a>(client: &'a Client, link: &Link) -> TraceSubject<'a> {
    TraceSubject {
        client_id: &client.id,
        username: None,
        peer: Some(link.peer()),
        version: link.version,
    }
}
