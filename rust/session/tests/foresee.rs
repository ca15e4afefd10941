//! What a session foresees of a delivery, beside what the delivery does.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{CONNECT_5, CONNECT_5_KEPT, Wire, connect_5, message, message_with, seconds};
use mqttcore_codec::{Property, QoS};
use mqttcore_session::{
    Delivered, Delivery, DeliveryDecision, DropReason, Message, QueueCause, QueuePolicy, QueueRoom,
    ServerLimits, SessionEvent,
};
use proptest::prelude::*;

const ONCE: QoS = QoS::AtLeastOnce;

fn dropped(reason: DropReason) -> DeliveryDecision {
    DeliveryDecision::Drop { reason, evicted: 0 }
}

fn queued(cause: QueueCause) -> DeliveryDecision {
    DeliveryDecision::Queue { cause, evicted: 0 }
}

fn foresee(wire: &Wire, message: &Message) -> DeliveryDecision {
    let delivery = Delivery::new(QoS::ExactlyOnce, &[]);
    wire.session.foresee(wire.now, message, delivery)
}

#[test]
fn a_message_for_an_idle_client_is_sent() {
    let wire = Wire::connected(CONNECT_5);

    let at_most_once = foresee(&wire, &message("t", b"", QoS::AtMostOnce));
    let at_least_once = foresee(&wire, &message("t", b"", ONCE));

    assert_eq!(at_most_once, DeliveryDecision::SendAtMostOnce);
    assert_eq!(at_least_once, DeliveryDecision::SendInFlight);
}

#[test]
fn a_message_for_an_offline_client_is_queued_above_qos_0() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    wire.lose();

    let at_most_once = foresee(&wire, &message("t", b"", QoS::AtMostOnce));
    let at_least_once = foresee(&wire, &message("t", b"", ONCE));

    assert_eq!(at_most_once, dropped(DropReason::Offline));
    assert_eq!(at_least_once, queued(QueueCause::Offline));
}

#[test]
fn a_message_beyond_the_send_quota_is_queued_and_so_is_the_one_behind_it() {
    let mut wire = Wire::with(ServerLimits {
        inflight_max: 1,
        ..ServerLimits::default()
    });
    wire.connect(CONNECT_5);
    let message = message("t", b"", ONCE);
    wire.deliver(&message, ONCE);

    let second = foresee(&wire, &message);
    wire.deliver(&message, ONCE);
    let third = foresee(&wire, &message);

    assert_eq!(second, queued(QueueCause::SendQuota));
    assert_eq!(third, queued(QueueCause::Earlier));
}

#[test]
fn a_message_for_a_full_queue_is_dropped_or_takes_the_room_of_the_oldest() {
    let full = |queue_policy| {
        let mut wire = Wire::with(ServerLimits {
            queue_messages: 1,
            queue_policy,
            ..ServerLimits::default()
        });
        wire.connect(CONNECT_5_KEPT);
        wire.lose();
        wire.deliver(&message("t", b"", ONCE), ONCE);
        foresee(&wire, &message("t", b"", ONCE))
    };

    assert_eq!(
        full(QueuePolicy::DropNewest),
        dropped(DropReason::QueueFull)
    );
    let (cause, evicted) = (QueueCause::Offline, 1);
    let exchanged = DeliveryDecision::Queue { cause, evicted };
    assert_eq!(full(QueuePolicy::DropOldest), exchanged);
}

#[test]
fn a_message_that_the_client_cannot_get_is_dropped() {
    let maximum_packet_size = [0x27, 0, 0, 0, 30];
    let mut wire = Wire::connected(&connect_5(0x02, &maximum_packet_size));
    let expiring = message_with("t", b"", ONCE, &[Property::MessageExpiryInterval(1)]);

    let large = foresee(&wire, &message("t", &[0; 30], ONCE));
    wire.now += seconds(1);
    let expired = foresee(&wire, &expiring);

    assert_eq!(large, dropped(DropReason::PacketTooLarge));
    assert_eq!(expired, dropped(DropReason::Expired));
}

#[test]
fn a_qos_0_message_for_a_client_that_does_not_read_is_dropped() {
    let mut wire = Wire::with(ServerLimits {
        qos0_backlog_bytes: 10,
        ..ServerLimits::default()
    });
    wire.connect(CONNECT_5);
    let message = message("t", b"", QoS::AtMostOnce);
    wire.deliver(&message, ONCE);

    assert_eq!(foresee(&wire, &message), dropped(DropReason::BacklogFull));
}

/// One thing that happens to a session.
#[derive(Clone, Debug)]
enum Step {
    Deliver(New),
    /// The session's packets leave.
    Receive,
    /// The client acknowledges the oldest message.
    Acknowledge,
    Cut,
    /// The client comes back, with this Receive Maximum and Maximum Packet Size.
    Return(u8, u8),
    Wait,
    /// The engine drops stored messages from memory, and reads them again.
    Spill,
    BeginPaging,
    EndPaging,
}

/// A message for the client.
#[derive(Clone, Debug)]
struct New {
    qos: QoS,
    granted: QoS,
    bytes: usize,
    retain: bool,
    expiry_s: Option<u32>,
    is_stored: bool,
    room: QueueRoom,
}

fn qos() -> impl Strategy<Value = QoS> {
    prop::sample::select(vec![QoS::AtMostOnce, ONCE, QoS::ExactlyOnce])
}

fn new() -> impl Strategy<Value = New> {
    let room = vec![QueueRoom::Limits, QueueRoom::Any, QueueRoom::None];
    let parts = (
        qos(),
        qos(),
        0..60_usize,
        any::<bool>(),
        prop::option::of(0..4_u32),
        any::<bool>(),
        prop::sample::select(room),
    );
    parts.prop_map(
        |(qos, granted, bytes, retain, expiry_s, is_stored, room)| New {
            qos,
            granted,
            bytes,
            retain,
            expiry_s,
            is_stored,
            room,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => new().prop_map(Step::Deliver),
        1 => Just(Step::Receive),
        2 => Just(Step::Acknowledge),
        1 => Just(Step::Cut),
        2 => (1..4_u8, 30..120_u8).prop_map(|(window, bytes)| Step::Return(window, bytes)),
        1 => Just(Step::Wait),
        1 => Just(Step::Spill),
        1 => Just(Step::BeginPaging),
        1 => Just(Step::EndPaging),
    ]
}

prop_compose! {
    fn limits()(
        policy in prop::sample::select(vec![
            QueuePolicy::DropNewest,
            QueuePolicy::DropOldest,
            QueuePolicy::Disconnect,
        ]),
        (queue_messages, queue_disk_messages) in (0..6_usize, 0..9_usize),
        (queue_bytes, queue_disk_bytes) in (0..2_000_usize, 0..3_000_usize),
        (queue_qos0, upgrade_outgoing_qos) in (any::<bool>(), any::<bool>()),
        (max_inflight_bytes, qos0_backlog_bytes) in (0..90_usize, 0..500_usize),
    ) -> ServerLimits {
        ServerLimits {
            queue_policy: policy,
            queue_messages,
            queue_disk_messages,
            queue_bytes,
            queue_disk_bytes,
            queue_qos0,
            upgrade_outgoing_qos,
            max_inflight_bytes,
            qos0_backlog_bytes,
            ..ServerLimits::default()
        }
    }
}

/// A session to which random things happen.
struct World {
    wire: Wire,
    next: u64,
    /// Packets and events are polled only where a step says so, as a busy engine does.
    decisions: Vec<DeliveryDecision>,
}

impl World {
    fn new(limits: ServerLimits, is_durable: bool) -> Self {
        let mut wire = Wire::with(limits);
        wire.durable = is_durable;
        wire.connect(&connect(3, 120));
        wire.receive();
        Self {
            wire,
            next: 1,
            decisions: Vec::new(),
        }
    }

    fn run(&mut self, step: &Step) {
        let wire = &mut self.wire;
        match step {
            Step::Deliver(new) => self.deliver(new),
            Step::Receive => drop(wire.receive()),
            Step::Acknowledge => acknowledge(wire),
            Step::Cut if wire.session.is_connected() => drop(wire.lose()),
            Step::Return(window, bytes) if !wire.session.is_connected() => {
                wire.resume(&connect(*window, *bytes));
                wire.receive();
            }
            Step::Wait => wire.now += seconds(1),
            Step::Spill => {
                wire.session.spill();
            }
            Step::BeginPaging => wire.session.begin_paging(self.next),
            Step::EndPaging => wire.session.page(wire.now, [], true, |_| true),
            Step::Cut | Step::Return(..) => {}
        }
        self.wire.events();
    }

    fn deliver(&mut self, new: &New) {
        let expiry = new.expiry_s.map(Property::MessageExpiryInterval);
        let payload = vec![0; new.bytes];
        let message = message_with("t", &payload, new.qos, expiry.as_slice());
        let delivery = Delivery {
            retain: new.retain,
            key: if new.is_stored { self.next } else { 0 },
            room: new.room,
            ..Delivery::new(new.granted, &[])
        };
        self.next += 1;
        let before = State::of(&self.wire);
        let decision = self.wire.session.foresee(self.wire.now, &message, delivery);
        assert_eq!(State::of(&self.wire), before, "to foresee changes nothing");

        let session = &mut self.wire.session;
        let delivered = session.deliver(self.wire.now, &message, delivery);

        assert_eq!(delivered, decision.delivered());
        self.check_change(&before, decision);
        self.decisions.push(decision);
    }

    /// The change of the session's state is the one that the decision names.
    fn check_change(&mut self, before: &State, decision: DeliveryDecision) {
        let after = State::of(&self.wire);
        let (mut evictions, mut overflows) = (0, 0);
        for event in self.wire.events() {
            match event {
                SessionEvent::Dropped { reason, .. } => {
                    assert_eq!(reason, DropReason::QueueFull);
                    evictions += 1;
                }
                SessionEvent::Overflowed => overflows += 1,
                _ => {}
            }
        }
        let (sent, queued, evicted) = match decision {
            DeliveryDecision::SendAtMostOnce => (0, 0, 0),
            DeliveryDecision::SendInFlight => (1, 0, 0),
            DeliveryDecision::Queue { evicted, .. } => (0, 1, evicted),
            DeliveryDecision::Drop { evicted, .. } => (0, 0, evicted),
        };
        assert_eq!(after.in_flight, before.in_flight + sent);
        assert_eq!(after.queued + evicted, before.queued + queued);
        assert_eq!(evictions, evicted);
        let is_full = decision.delivered() == Delivered::Dropped(DropReason::QueueFull);
        let disconnects = self.wire.limits.queue_policy == QueuePolicy::Disconnect;
        let overflowed = is_full && disconnects && self.wire.session.is_connected();
        assert_eq!(overflows, usize::from(overflowed));
    }
}

/// What a delivery may change.
#[derive(Debug, Eq, PartialEq)]
struct State {
    in_flight: usize,
    queued: usize,
    queued_bytes: usize,
    held_bytes: usize,
}

impl State {
    fn of(wire: &Wire) -> Self {
        Self {
            in_flight: wire.session.in_flight(),
            queued: wire.session.queued(),
            queued_bytes: wire.session.queued_bytes(),
            held_bytes: wire.session.held_bytes(),
        }
    }
}

fn connect(window: u8, packet_bytes: u8) -> Vec<u8> {
    let (expiry, receive) = ([0x11, 0, 0, 0, 100], [0x21, 0, window]);
    let maximum = [0x27, 0, 0, 0, packet_bytes];
    connect_5(0, &[&expiry[..], &receive[..], &maximum[..]].concat())
}

/// The client acknowledges the oldest message that was sent on this connection.
fn acknowledge(wire: &mut Wire) {
    if !wire.session.is_connected() {
        return;
    }
    let is_publish = |packet: &Vec<u8>| packet[0] >> 4 == 3 && packet[0] & 6 != 0;
    let Some(sent) = wire.receive().into_iter().find(is_publish) else {
        return;
    };
    // Topic "t": the identifier is in bytes 5 and 6.
    let (first, id) = (sent[0], [sent[5], sent[6]]);
    match first >> 1 & 3 {
        1 => drop(wire.ok(&[0x40, 2, id[0], id[1]])),
        2 => {
            wire.ok(&[0x50, 2, id[0], id[1]]);
            wire.receive();
            wire.ok(&[0x70, 2, id[0], id[1]]);
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_session_foresees_what_its_delivery_does(
        limits in limits(),
        is_durable in any::<bool>(),
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let mut world = World::new(limits, is_durable);

        for step in &steps {
            world.run(step);
        }
    }
}

/// The histories above would show nothing if they never got to some decisions.
#[test]
fn random_histories_reach_every_decision() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut seen: Vec<String> = Vec::new();

    for _ in 0..600 {
        let histories = (limits(), any::<bool>(), prop::collection::vec(step(), 60));
        let (limits, is_durable, steps) = histories.new_tree(&mut runner).unwrap().current();
        let mut world = World::new(limits, is_durable);
        for step in &steps {
            world.run(step);
        }
        for decision in world.decisions {
            let name = match decision {
                DeliveryDecision::Queue { cause, evicted } => {
                    format!("{cause:?} {}", evicted > 0)
                }
                DeliveryDecision::Drop { reason, .. } => format!("{reason:?}"),
                sent => format!("{sent:?}"),
            };
            if !seen.contains(&name) {
                seen.push(name);
            }
        }
    }

    seen.sort();
    let all = [
        "BacklogFull",
        "Earlier false",
        "Earlier true",
        "Expired",
        "Offline",
        "Offline false",
        "Offline true",
        "PacketTooLarge",
        "QueueFull",
        "SendAtMostOnce",
        "SendInFlight",
        "SendQuota false",
    ];
    assert_eq!(seen, all);
}
