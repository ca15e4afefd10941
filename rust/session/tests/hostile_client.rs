//! A session against a client that sends any packet at any time.
//!
//! Whatever it does: no panic, no more state than the limits allow, every violation has a reason
//! that DISCONNECT can carry, no packet is larger than the client takes, and the aliases that it
//! is sent stand for the right topics.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;

use common::{connect_5, message, start};
use mqttcore_codec::{
    Ack, Auth, Disconnect, Limits, Packet, PacketId, PacketType, Properties, PropertiesBuf,
    Property, Publish, PublishQoS as Sent, QoS, ReasonCode, Subscribe, SubscriptionOptions, Text,
    Unsubscribe, decode, decode_connect, encode,
};
use mqttcore_session::{
    Cause, ConnectRequest, Delivery, Details, Request, ServerLimits, Session, Terms, Transmit,
};
use proptest::prelude::*;

const TOPICS: [&str; 4] = [
    "t",
    "plant/building-7/line-12/machine-4711",
    "plant/building-7/line-12/machine-4712",
    "plant/building-7/line-13/machine-4711",
];
const FILTERS: [&str; 5] = ["a", "#", "a/+", "$share/g/a", "a/#/b"];

#[derive(Clone, Debug)]
enum Step {
    Publish {
        qos: u8,
        id: u16,
        topic: usize,
        alias: Option<u16>,
    },
    Ack {
        kind: usize,
        id: u16,
        reason: ReasonCode,
    },
    Subscribe {
        filters: Vec<usize>,
    },
    Unsubscribe {
        filters: Vec<usize>,
    },
    Ping,
    Disconnect(Option<u32>),
    Auth(ReasonCode),
    Deliver {
        qos: u8,
        topic: usize,
        bytes: usize,
    },
    Confirm,
    Cut {
        version: usize,
        packet_bytes: u8,
        aliases: u8,
        receive_maximum: u8,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let id = 1..6_u16;
    let reason = prop::sample::select(ReasonCode::ALL);
    let filters = || prop::collection::vec(0..FILTERS.len(), 1..4);
    prop_oneof![
        4 => (0..3_u8, id.clone(), 0..4_usize, prop::option::of(1..12_u16))
            .prop_map(|(qos, id, topic, alias)| Step::Publish { qos, id, topic, alias }),
        6 => (0..4_usize, id, reason.clone()).prop_map(|(kind, id, reason)| Step::Ack { kind, id, reason }),
        1 => filters().prop_map(|filters| Step::Subscribe { filters }),
        1 => filters().prop_map(|filters| Step::Unsubscribe { filters }),
        1 => Just(Step::Ping),
        1 => prop::option::of(any::<u32>()).prop_map(Step::Disconnect),
        1 => reason.prop_map(Step::Auth),
        6 => (0..3_u8, 0..4_usize, 0..60_usize)
            .prop_map(|(qos, topic, bytes)| Step::Deliver { qos, topic, bytes }),
        3 => Just(Step::Confirm),
        1 => (0..3_usize, 20..120_u8, 0..3_u8, 1..5_u8).prop_map(
            |(version, packet_bytes, aliases, receive_maximum)| Step::Cut {
                version,
                packet_bytes,
                aliases,
                receive_maximum
            }
        ),
    ]
}

struct World {
    session: Session,
    limits: Arc<ServerLimits>,
    durable: bool,
    /// What the client's aliases stand for.
    aliases: BTreeMap<NonZeroU16, String>,
    alias_maximum: u8,
}

impl World {
    fn new(durable: bool) -> Self {
        let limits = Arc::new(ServerLimits {
            receive_maximum: 4,
            queue_messages: 5,
            subscriptions: 3,
            stray_acknowledgements: 5,
            ..ServerLimits::default()
        });
        let mut world = Self {
            session: Session::new(Arc::clone(&limits)),
            limits,
            durable,
            aliases: BTreeMap::new(),
            alias_maximum: 0,
        };
        world.connect(0, 100, 2, 3);
        world
    }

    fn connect(&mut self, version: usize, packet_bytes: u8, aliases: u8, receive_maximum: u8) {
        let bytes = match version {
            0 => connect_5(
                0,
                &[
                    0x11,
                    0,
                    0,
                    0,
                    9,
                    0x27,
                    0,
                    0,
                    0,
                    packet_bytes,
                    0x22,
                    0,
                    aliases,
                    0x21,
                    0,
                    receive_maximum,
                ],
            ),
            1 => b"\x10\x0d\x00\x04MQTT\x04\x00\x00\x3c\x00\x01c".to_vec(),
            _ => b"\x10\x0f\x00\x06MQIsdp\x03\x00\x00\x3c\x00\x01c".to_vec(),
        };
        let (connect, _) = decode_connect(&bytes, &Limits::default()).unwrap().unwrap();
        let request = ConnectRequest::parse(&connect, &self.limits).unwrap();
        let terms = Terms {
            session_present: true,
            durable: self.durable,
            ..Terms::new(Arc::clone(&self.limits))
        };
        self.aliases.clear();
        self.alias_maximum = if version == 0 { aliases } else { 0 };
        self.session.connect(start(), &request, terms);
    }

    fn run(&mut self, step: &Step) {
        let text = |index: usize| Text::new(TOPICS[index]).unwrap();
        let filter = |index: &usize| Text::new(FILTERS[*index]).unwrap();
        let mut properties = PropertiesBuf::default();
        match step {
            Step::Publish {
                qos,
                id,
                topic,
                alias,
            } => {
                if let Some(alias) = alias.and_then(NonZeroU16::new) {
                    properties.push(Property::TopicAlias(alias)).unwrap();
                }
                let is_empty = alias.is_some() && *topic == 0;
                self.send(&Packet::Publish(Publish {
                    delivery: sent(*qos, *id),
                    retain: false,
                    topic: if is_empty { Text::EMPTY } else { text(*topic) },
                    properties: properties.as_properties(),
                    payload: b"!",
                }));
            }
            Step::Ack { kind, id, reason } => self.send(&ack(*kind, *id, *reason)),
            Step::Subscribe { filters } => {
                let options = SubscriptionOptions::default();
                self.send(&Packet::Subscribe(Subscribe {
                    packet_id: PacketId::MIN,
                    properties: Properties::EMPTY,
                    filters: filters
                        .iter()
                        .map(|index| (filter(index), options))
                        .collect(),
                }));
            }
            Step::Unsubscribe { filters } => self.send(&Packet::Unsubscribe(Unsubscribe {
                packet_id: PacketId::MIN,
                properties: Properties::EMPTY,
                filters: filters.iter().map(filter).collect(),
            })),
            Step::Ping => self.send(&Packet::PingReq),
            Step::Disconnect(expiry) => {
                if let Some(expiry) = expiry {
                    properties
                        .push(Property::SessionExpiryInterval(*expiry))
                        .unwrap();
                }
                let (reason, properties) = (ReasonCode::SUCCESS, properties.as_properties());
                self.send(&Packet::Disconnect(Disconnect { reason, properties }));
            }
            Step::Auth(reason) => {
                let (reason, properties) = (*reason, Properties::EMPTY);
                self.send(&Packet::Auth(Auth { reason, properties }));
            }
            Step::Deliver { qos, topic, bytes } => {
                let qos = QoS::try_from(*qos).unwrap();
                let message = message(TOPICS[*topic], &vec![b'x'; *bytes], qos);
                self.session
                    .deliver(start(), &message, Delivery::new(QoS::ExactlyOnce, &[]));
            }
            Step::Confirm => self.session.confirm(self.session.last_token()),
            Step::Cut {
                version,
                packet_bytes,
                aliases,
                receive_maximum,
            } => {
                self.session.detach(start(), Cause::ConnectionLost);
                self.connect(*version, *packet_bytes, *aliases, *receive_maximum);
            }
        }
        self.check();
    }

    /// Sends what can be encoded in the client's version; a violation brings it back anew.
    fn send(&mut self, packet: &Packet<'_>) {
        let mut bytes = Vec::new();
        if encode(packet, self.session.version(), &mut bytes).is_err() {
            return;
        }
        let Ok(Some((packet, _))) = decode(&bytes, self.session.version(), &Limits::default())
        else {
            return;
        };
        match self.session.handle_packet(start(), packet) {
            Ok(Request::Publish(publish)) => {
                let Some(packet_id) = publish.packet_id() else {
                    return;
                };
                let qos = publish.qos();
                self.session
                    .accept_publish(packet_id, qos, ReasonCode::SUCCESS);
            }
            Ok(Request::Subscribe(request)) => {
                self.session.complete_subscribe(request, Details::none());
            }
            Ok(Request::Unsubscribe(request)) => {
                self.session.complete_unsubscribe(request, Details::none());
            }
            Ok(Request::Disconnect(cause)) => {
                self.session.detach(start(), cause);
                self.connect(0, 100, 1, 3);
            }
            Ok(_) => {}
            Err(violation) => {
                assert!(
                    violation.reason.allowed_in(PacketType::Disconnect),
                    "{violation:?}"
                );
                assert!(!violation.statement.is_empty(), "{violation:?}");
                self.session.detach(start(), Cause::Violation);
                self.connect(1, 0, 0, 0);
            }
        }
    }

    fn check(&mut self) {
        while self.session.poll_event().is_some() {}
        while let Some(transmit) = self.session.poll_transmit() {
            let (version, limit) = (self.session.version(), self.session.client_packet_bytes());
            let mut out = Vec::new();
            match &transmit {
                Transmit::Control(control) => {
                    control.encode(version, limit, &mut out);
                }
                Transmit::Publish(publish) => {
                    publish
                        .encode(version, start(), &mut PropertiesBuf::default(), &mut out)
                        .unwrap();
                    self.check_alias(&out, publish.message().topic());
                }
            }
            assert!(
                u32::try_from(out.len()).unwrap() <= limit,
                "Maximum Packet Size"
            );
        }
        assert!(self.session.in_flight() <= 32);
        assert!(self.session.queued() <= 5);
        assert!(self.session.subscriptions().len() <= 3);
        assert!(self.session.unreleased_ids().count() <= 5);
    }

    /// What the client makes of topic and alias is what was published.
    fn check_alias(&mut self, bytes: &[u8], topic: &str) {
        let (packet, _) = decode(bytes, self.session.version(), &Limits::default())
            .unwrap()
            .unwrap();
        let Packet::Publish(publish) = packet else {
            panic!("not a PUBLISH")
        };
        let Some(alias) = publish.properties.topic_alias() else {
            assert_eq!(publish.topic.as_str(), topic);
            return;
        };
        assert!(
            alias.get() <= self.alias_maximum.into(),
            "alias above the client's maximum"
        );
        if !publish.topic.is_empty() {
            self.aliases.insert(alias, publish.topic.as_str().into());
        }
        assert_eq!(self.aliases.get(&alias).map(String::as_str), Some(topic));
    }
}

fn sent(qos: u8, id: u16) -> Sent {
    let (packet_id, dup) = (PacketId::new(id).unwrap(), false);
    match qos {
        0 => Sent::AtMostOnce,
        1 => Sent::AtLeastOnce { packet_id, dup },
        _ => Sent::ExactlyOnce { packet_id, dup },
    }
}

fn ack(kind: usize, id: u16, reason: ReasonCode) -> Packet<'static> {
    let ack = Ack {
        packet_id: PacketId::new(id).unwrap(),
        reason,
        properties: Properties::EMPTY,
    };
    match kind {
        0 => Packet::PubAck(ack),
        1 => Packet::PubRec(ack),
        2 => Packet::PubRel(ack),
        _ => Packet::PubComp(ack),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_history_breaks_the_session(
        durable in any::<bool>(),
        steps in prop::collection::vec(step(), 0..150),
    ) {
        let mut world = World::new(durable);
        for step in &steps {
            world.run(step);
        }
    }
}
