//! A queue whose middle is in the engine's store behaves like a queue that stays in memory.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use common::{CONNECT_5_KEPT, Wire, message, message_with, seconds};
use mqttcore_codec::{Property, QoS};
use mqttcore_session::{
    Delivered, Delivery, DropReason, ExchangeRecord, Message, QueuePolicy, QueueRoom, ServerLimits,
    SessionEvent, Transmit,
};
use proptest::prelude::*;

const ONCE: QoS = QoS::AtLeastOnce;

/// A session, its store, and the messages and pages on their way between publishers, store and session.
struct World {
    wire: Wire,
    /// The queue as the store has it.
    store: BTreeMap<u64, Message>,
    next: u64,
    /// Stored messages that the session has not got yet, by publisher and in order.
    lanes: [VecDeque<u64>; 2],
    /// The publisher of each key.
    lane_of: BTreeMap<u64, usize>,
    /// The queue is being read, up to `below`.
    is_paging: bool,
    below: u64,
    from: u64,
    has_settled: bool,
    /// A page that was read and has not reached the session.
    page: Option<(Vec<(u64, Message)>, bool)>,
    sent: Vec<u64>,
    dropped: BTreeSet<u64>,
    unacknowledged: VecDeque<u16>,
}

fn limits() -> ServerLimits {
    ServerLimits {
        inflight_max: 3,
        queue_messages: 12,
        queue_bytes: 12 * 130,
        queue_disk_messages: 12,
        queue_disk_bytes: 12 * 130,
        ..ServerLimits::default()
    }
}

impl World {
    fn with(limits: ServerLimits) -> Self {
        let mut wire = Wire::with(limits);
        wire.durable = true;
        wire.connect(CONNECT_5_KEPT);
        let mut world = Self {
            wire,
            store: BTreeMap::new(),
            next: 1,
            lanes: Default::default(),
            lane_of: BTreeMap::new(),
            is_paging: false,
            below: 0,
            from: 0,
            has_settled: false,
            page: None,
            sent: Vec::new(),
            dropped: BTreeSet::new(),
            unacknowledged: VecDeque::new(),
        };
        world.look();
        world
    }

    fn publish(&mut self, lane: usize, len: usize) {
        let key = self.next;
        self.next += 1;
        let mut payload = key.to_be_bytes().to_vec();
        payload.resize(8 + len, b'.');
        self.store.insert(key, message("t", &payload, ONCE));
        self.lanes[lane].push_back(key);
        self.lane_of.insert(key, lane);
    }

    fn arrive(&mut self, lane: usize) -> Option<Delivered> {
        let key = self.lanes[lane].pop_front()?;
        let message = self.store[&key].clone();
        let delivery = Delivery {
            key,
            ..Delivery::new(ONCE, &[])
        };
        let delivered = self.wire.session.deliver(self.wire.now, &message, delivery);
        if matches!(delivered, Delivered::Dropped(_)) {
            self.store.remove(&key);
            self.dropped.insert(key);
        }
        self.look();
        Some(delivered)
    }

    fn lose(&mut self) {
        self.wire.lose();
        self.unacknowledged.clear();
        self.look();
    }

    fn spill(&mut self) {
        if self.wire.session.spill() {
            (self.page, self.is_paging) = (None, false);
        }
    }

    fn resume(&mut self) {
        if self.wire.session.is_connected() {
            self.lose();
        }
        self.wire.resume(CONNECT_5_KEPT);
        if self.wire.session.is_spilling() {
            self.open();
        }
        self.look();
    }

    fn open(&mut self) {
        self.wire.session.begin_paging(self.next);
        (self.below, self.from) = (self.next, 0);
        (self.has_settled, self.page) = (false, None);
        self.is_paging = self.wire.session.spilled() > 0;
    }

    /// Begins paging again if the session wants a page and the previous paging has ended.
    fn reopen(&mut self) {
        let session = &self.wire.session;
        if session.is_spilling() && session.wants_page() && !self.is_paging {
            self.open();
        }
    }

    /// Delivers the messages that were on their way when paging began.
    fn settle(&mut self) {
        for lane in 0..self.lanes.len() {
            while self.lanes[lane]
                .front()
                .is_some_and(|&key| key < self.below)
            {
                self.arrive(lane);
            }
        }
        self.has_settled = true;
    }

    fn read_page(&mut self, limit: usize) {
        self.reopen();
        let is_ready = self.is_paging && self.has_settled && self.page.is_none();
        if !is_ready || !self.wire.session.wants_page() {
            return;
        }
        let rest = self.store.range(self.from..self.below);
        let rest = rest.map(|(key, message)| (*key, message.clone()));
        let page: Vec<_> = rest.take(limit).collect();
        let is_last = page.len() < limit;
        self.from = page.last().map_or(self.from, |(last, _)| last + 1);
        self.page = Some((page, is_last));
    }

    fn take_page(&mut self) {
        let Some((page, is_last)) = self.page.take() else {
            return;
        };
        let page: Vec<_> = page
            .into_iter()
            .map(|(key, message)| {
                let delivery = Delivery {
                    key,
                    ..Delivery::new(ONCE, &[])
                };
                (message, delivery)
            })
            .collect();
        let session = &mut self.wire.session;
        session.page(self.wire.now, page, is_last, |_| true);
        self.is_paging &= !is_last && session.spilled() > 0;
        self.look();
    }

    fn acknowledge(&mut self) {
        if let Some(id) = self.unacknowledged.pop_front() {
            let [high, low] = id.to_be_bytes();
            self.wire.ok(&[0x40, 2, high, low]);
            self.look();
        }
    }

    /// Handles events and packets of the session, and removes from the store what they say.
    fn look(&mut self) {
        for event in self.wire.events() {
            match event {
                SessionEvent::Record {
                    record: ExchangeRecord::Sending { key, .. },
                    ..
                } => assert!(self.store.remove(&key).is_some(), "{key} was not waiting"),
                SessionEvent::Dropped { key, .. } => {
                    assert!(self.store.remove(&key).is_some(), "{key} was not waiting");
                    self.dropped.insert(key);
                }
                _ => {}
            }
        }
        self.wire.confirm_all();
        while let Some(transmit) = self.wire.session.poll_transmit() {
            if let Transmit::Publish(publish) = transmit {
                self.unacknowledged
                    .push_back(publish.packet_id().unwrap().get());
                if !publish.dup() {
                    self.sent.push(publish.key());
                }
            }
        }
    }

    /// Reads pages until the session wants no more.
    fn page_at_once(&mut self) {
        while self.wire.session.wants_page() {
            self.reopen();
            self.settle();
            self.read_page(4);
            self.take_page();
        }
    }

    /// Delivers, pages and acknowledges until no message is left.
    fn finish(&mut self) {
        self.resume();
        self.take_page();
        for lane in 0..self.lanes.len() {
            while self.arrive(lane).is_some() {}
        }
        while self.wire.session.queued() + self.wire.session.in_flight() > 0 {
            self.page_at_once();
            self.acknowledge();
        }
    }

    fn seen(&self) -> (&[u64], &BTreeSet<u64>, usize, usize, usize) {
        let session = &self.wire.session;
        let (queued, bytes) = (session.queued(), session.queued_bytes());
        (
            &self.sent,
            &self.dropped,
            queued,
            bytes,
            session.in_flight(),
        )
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Publish(usize, usize),
    Arrive(usize),
    Lose,
    Spill,
    Resume,
    Settle,
    Read(usize),
    Page,
    Acknowledge,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..2_usize, 0..40_usize).prop_map(|(lane, len)| Op::Publish(lane, len)),
        6 => (0..2_usize).prop_map(Op::Arrive),
        1 => Just(Op::Lose),
        2 => Just(Op::Spill),
        2 => Just(Op::Resume),
        1 => Just(Op::Settle),
        3 => (1..6_usize).prop_map(Op::Read),
        3 => Just(Op::Page),
        3 => Just(Op::Acknowledge),
    ]
}

fn both(one: &mut World, other: &mut World, act: fn(&mut World)) {
    act(one);
    act(other);
}

proptest! {
    /// In any order of pages, arrivals, disconnects and reconnects, each accepted message is sent once,
    /// in the order of its publisher.
    #[test]
    fn nothing_is_lost_doubled_or_out_of_order(
        ops in prop::collection::vec(op(), 1..200),
        in_memory in 1..13_usize,
    ) {
        let mut world = World::with(ServerLimits { queue_messages: in_memory, ..limits() });
        for op in ops {
            match op {
                Op::Publish(lane, len) => world.publish(lane, len),
                Op::Arrive(lane) => { world.arrive(lane); }
                Op::Lose => world.lose(),
                Op::Spill => world.spill(),
                Op::Resume => world.resume(),
                Op::Settle => world.settle(),
                Op::Read(limit) => world.read_page(limit),
                Op::Page => world.take_page(),
                Op::Acknowledge => world.acknowledge(),
            }
        }
        world.finish();

        prop_assert!(world.store.is_empty(), "left: {:?}", world.store.keys());
        prop_assert_eq!(world.sent.len() + world.dropped.len(), world.lane_of.len());
        for lane in 0..2 {
            let of_lane = |key: &&u64| world.lane_of[key] == lane;
            let sent: Vec<_> = world.sent.iter().filter(of_lane).collect();
            prop_assert!(sent.is_sorted_by(|a, b| a < b), "{sent:?}");
        }
    }

    /// If pages come at once, a queue in the store behaves like a queue in memory: the limits drop the
    /// same messages, and every figure is the same.
    #[test]
    fn limits_and_figures_are_those_of_a_queue_in_memory(
        ops in prop::collection::vec(op(), 1..200),
        drops_oldest: bool,
        in_memory in 1..13_usize,
    ) {
        let limits = || ServerLimits {
            queue_policy: if drops_oldest { QueuePolicy::DropOldest } else { QueuePolicy::DropNewest },
            ..limits()
        };
        let small = || ServerLimits {
            queue_messages: if drops_oldest { 12 } else { in_memory },
            ..limits()
        };
        let (mut spilled, mut plain) = (World::with(small()), World::with(limits()));
        for op in ops {
            match op {
                Op::Publish(_, len) | Op::Read(len) => {
                    for world in [&mut spilled, &mut plain] {
                        world.publish(0, len);
                        world.arrive(0);
                    }
                }
                Op::Lose => both(&mut spilled, &mut plain, World::lose),
                Op::Spill => spilled.spill(),
                Op::Resume => both(&mut spilled, &mut plain, World::resume),
                Op::Acknowledge | Op::Page => both(&mut spilled, &mut plain, World::acknowledge),
                Op::Arrive(_) | Op::Settle => {}
            }
            if spilled.wire.session.is_connected() {
                spilled.page_at_once();
            }
            prop_assert_eq!(spilled.seen(), plain.seen());
        }
    }
}

#[test]
fn what_the_store_does_not_have_is_never_let_go_of() {
    let mut wire = Wire::with(ServerLimits {
        queue_qos0: true,
        ..ServerLimits::default()
    });
    wire.connect(CONNECT_5_KEPT);
    wire.receive();
    wire.lose();
    wire.deliver(&message("t", b"before", QoS::AtMostOnce), QoS::AtMostOnce);
    assert!(wire.session.spill());
    wire.deliver(&message("t", b"after", QoS::AtMostOnce), QoS::AtMostOnce);
    wire.deliver(&message("t", b"memory", ONCE), ONCE);

    wire.resume(CONNECT_5_KEPT);
    wire.session.begin_paging(1);

    assert!(!wire.session.wants_page());
    assert_eq!(wire.receive().len(), 4, "CONNACK and three messages");
}

#[test]
fn mqtt_3_3_2_5_what_expired_in_the_store_is_dropped_when_its_page_comes() {
    let mut wire = Wire::new();
    wire.session.restore_spilled(2, 20);
    wire.resume(CONNECT_5_KEPT);
    wire.session.begin_paging(3);
    wire.receive();
    let expiry = [Property::MessageExpiryInterval(5)];
    let page = [
        (1, message_with("t", b"late", ONCE, &expiry)),
        (2, message("t", b"still good", ONCE)),
    ];
    let page = page.map(|(key, message)| {
        let delivery = Delivery {
            key,
            ..Delivery::new(ONCE, &[])
        };
        (message, delivery)
    });

    wire.now += seconds(5);
    wire.session.page(wire.now, page, true, |_| true);

    assert_eq!(wire.receive().len(), 1);
    let is_drop = |event: &SessionEvent| {
        matches!(
            event,
            SessionEvent::Dropped {
                reason: DropReason::Expired,
                key: 1,
                ..
            }
        )
    };
    assert!(wire.events().iter().any(is_drop));
    assert_eq!((wire.session.queued(), wire.session.queued_bytes()), (0, 0));
}

#[test]
fn what_the_client_may_not_have_any_more_is_dropped_when_its_page_comes() {
    let mut wire = Wire::new();
    wire.session.restore_spilled(1, 10);
    wire.resume(CONNECT_5_KEPT);
    wire.session.begin_paging(3);
    wire.receive();
    let delivery = Delivery {
        key: 1,
        ..Delivery::new(ONCE, &[])
    };

    let page = [(message("secret", b"x", ONCE), delivery)];
    wire.session
        .page(wire.now, page, true, |message| message.topic() != "secret");

    assert!(wire.receive().is_empty());
    let is_drop = |event: &SessionEvent| {
        matches!(
            event,
            SessionEvent::Dropped {
                reason: DropReason::Revoked,
                key: 1,
                ..
            }
        )
    };
    assert!(wire.events().iter().any(is_drop));
}

/// The client is slow or offline: messages beyond the limits of memory are only in the store, and none is dropped.
#[test]
fn a_queue_beyond_memory_goes_to_the_store_and_comes_back_in_order() {
    for is_here in [false, true] {
        let mut world = World::with(ServerLimits {
            queue_disk_messages: usize::MAX,
            queue_disk_bytes: 1 << 20,
            ..limits()
        });
        if !is_here {
            world.lose();
        }
        for _ in 0..2_000 {
            world.publish(0, 30);
            world.arrive(0);
        }

        let session = &world.wire.session;
        assert!(session.spilled() >= 2_000 - 20, "{}", session.spilled());
        world.finish();
        assert!(world.dropped.is_empty());
        assert_eq!(world.sent, (1..=2_000).collect::<Vec<_>>());
    }
}

#[test]
fn a_full_disk_queue_drops_the_newest() {
    let mut world = World::with(ServerLimits {
        queue_messages: 2,
        ..limits()
    });
    world.lose();

    for _ in 0..14 {
        world.publish(0, 30);
        world.arrive(0);
    }

    assert_eq!(world.dropped, BTreeSet::from([13, 14]));
    world.finish();
    assert_eq!(world.sent, (1..=12).collect::<Vec<_>>());
}

/// Messages that the store does not have count against the limits of memory, stored ones against those of the disk.
#[test]
fn messages_that_the_store_does_not_have_keep_the_limits_of_memory() {
    let mut wire = Wire::with(ServerLimits {
        queue_messages: 3,
        ..ServerLimits::default()
    });
    wire.connect(CONNECT_5_KEPT);
    wire.lose();
    let mut deliver = |key| {
        let delivery = Delivery {
            key,
            ..Delivery::new(ONCE, &[])
        };
        let message = message("t", b"!", ONCE);
        wire.session.deliver(wire.now, &message, delivery)
    };

    let stored: Vec<_> = (1..=10).map(&mut deliver).collect();
    let others: Vec<_> = (0..4).map(|_| deliver(0)).collect();

    assert_eq!(stored, [Delivered::Queued; 10]);
    assert_eq!(others[..3], [Delivered::Queued; 3]);
    assert_eq!(others[3], Delivered::Dropped(DropReason::QueueFull));
}

/// With the policy `refuse`, limits are checked before the acknowledgement: a stored message is queued in any case.
#[test]
fn an_acknowledged_message_is_queued_beyond_the_limits() {
    let mut wire = Wire::with(limits());
    wire.durable = true;
    wire.connect(CONNECT_5_KEPT);
    wire.lose();
    let mut deliver = |key, room| {
        let delivery = Delivery {
            key,
            room,
            ..Delivery::new(ONCE, &[])
        };
        let message = message("t", b"!", ONCE);
        wire.session.deliver(wire.now, &message, delivery)
    };
    for key in 1..=12 {
        assert_eq!(deliver(key, QueueRoom::Limits), Delivered::Queued);
    }

    let acknowledged = [13, 14].map(|key| deliver(key, QueueRoom::Any));
    let other = deliver(15, QueueRoom::Limits);
    let unstored: Vec<_> = (0..13).map(|_| deliver(0, QueueRoom::Any)).collect();

    assert_eq!(acknowledged, [Delivered::Queued; 2]);
    assert_eq!(other, Delivered::Dropped(DropReason::QueueFull));
    assert_eq!(unstored[12], Delivered::Dropped(DropReason::QueueFull));
}

/// All queues together are full: a message that would wait is dropped, one that need not wait is sent.
#[test]
fn where_there_is_no_room_at_all_nothing_is_queued_that_the_store_has() {
    let mut wire = Wire::with(limits());
    wire.durable = true;
    wire.connect(CONNECT_5_KEPT);
    let deliver = |wire: &mut Wire, key| {
        let delivery = Delivery {
            key,
            room: QueueRoom::None,
            ..Delivery::new(ONCE, &[])
        };
        let message = message("t", b"!", ONCE);
        wire.session.deliver(wire.now, &message, delivery)
    };

    assert_eq!(deliver(&mut wire, 1), Delivered::Sent);
    wire.lose();

    let full = Delivered::Dropped(DropReason::QueueFull);
    assert_eq!(deliver(&mut wire, 2), full);
    assert_eq!(deliver(&mut wire, 0), Delivered::Queued, "it is in memory");
}

/// With `DropOldest`, a message replaces the oldest one; there must be one, in memory or in the store.
#[test]
fn where_there_is_no_room_at_all_the_oldest_makes_room_for_the_newest() {
    for (spilled, expected) in [
        (0, Delivered::Dropped(DropReason::QueueFull)),
        (2, Delivered::Queued),
    ] {
        let mut wire = Wire::with(ServerLimits {
            queue_policy: QueuePolicy::DropOldest,
            ..limits()
        });
        wire.durable = true;
        wire.connect(CONNECT_5_KEPT);
        wire.lose();
        wire.session.restore_spilled(spilled, spilled * 130);
        let delivery = Delivery {
            key: 9,
            room: QueueRoom::None,
            ..Delivery::new(ONCE, &[])
        };

        let message = message("t", b"!", ONCE);
        let delivered = wire.session.deliver(wire.now, &message, delivery);

        assert_eq!(delivered, expected, "{spilled}");
    }
}

/// Delivers a message of a fixed size; the store has it if `key` is not 0.
fn deliver(wire: &mut Wire, key: u64) -> Delivered {
    let delivery = Delivery {
        key,
        ..Delivery::new(ONCE, &[])
    };
    let message = message("t", b"!", ONCE);
    wire.session.deliver(wire.now, &message, delivery)
}

/// Bytes that one message of [`deliver`] counts.
fn cost_bytes() -> usize {
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    wire.lose();
    deliver(&mut wire, 0);
    wire.session.queued_bytes()
}

/// Messages that the store does not have do not move the others out of memory.
#[test]
fn memory_holds_as_much_of_what_the_store_has_as_its_limits_say() {
    for (queue_messages, queue_bytes) in [(2, 1 << 20), (100, 2 * cost_bytes())] {
        let mut wire = Wire::with(ServerLimits {
            queue_messages,
            queue_bytes,
            ..ServerLimits::default()
        });
        wire.durable = true;
        wire.connect(CONNECT_5_KEPT);
        wire.lose();

        let spilled = [0, 0, 1, 2, 3].map(|key| {
            assert_eq!(deliver(&mut wire, key), Delivered::Queued);
            wire.session.is_spilling()
        });

        assert_eq!(spilled, [false, false, false, false, true]);
    }
}

#[test]
fn a_message_that_left_memory_counts_no_more() {
    let mut wire = Wire::with(ServerLimits {
        inflight_max: 1,
        queue_bytes: 2 * cost_bytes() + 10,
        ..ServerLimits::default()
    });
    wire.connect(CONNECT_5_KEPT);
    let full = Delivered::Dropped(DropReason::QueueFull);
    let first = [(); 4].map(|()| deliver(&mut wire, 0));
    assert_eq!(
        first,
        [Delivered::Sent, Delivered::Queued, Delivered::Queued, full]
    );

    wire.receive();
    wire.ok(b"\x40\x02\x00\x01");
    let later = [(); 2].map(|()| deliver(&mut wire, 0));

    assert_eq!(later, [Delivered::Queued, full]);
}

#[test]
fn the_next_page_is_wanted_when_little_is_at_hand() {
    let mut wire = Wire::with(ServerLimits {
        inflight_max: 1,
        queue_messages: 300,
        ..ServerLimits::default()
    });
    wire.durable = true;
    wire.connect(CONNECT_5_KEPT);

    for key in 1..=400 {
        deliver(&mut wire, key);
    }
    assert!(wire.session.spilled() > 0);
    assert!(!wire.session.wants_page());
    wire.receive();
    let mut packet_ids = 1..=300_u16;
    while !wire.session.wants_page() {
        let [high, low] = packet_ids.next().unwrap().to_be_bytes();
        wire.ok(&[0x40, 2, high, low]);
        wire.receive();
    }

    let at_hand = wire.session.queued() - wire.session.spilled();
    assert_eq!(at_hand, 127);
}

/// The limit that is nearest counts: messages or bytes, in memory, or on the disk if the store keeps the session.
#[test]
fn the_fill_of_a_queue_is_that_of_the_limit_which_is_next() {
    let (newest, oldest) = (QueuePolicy::DropNewest, QueuePolicy::DropOldest);
    for (queue_policy, queue_bytes, is_kept, percent) in [
        (newest, 1 << 20, false, 50),
        (newest, 1 << 20, true, 20),
        (oldest, 1 << 20, true, 50),
        (oldest, 1 << 20, false, 50),
        (newest, 2 * cost_bytes(), false, 100),
    ] {
        let mut wire = Wire::with(ServerLimits {
            queue_policy,
            queue_messages: 4,
            queue_bytes,
            queue_disk_messages: 10,
            ..ServerLimits::default()
        });
        wire.connect(CONNECT_5_KEPT);
        wire.lose();

        deliver(&mut wire, 0);
        deliver(&mut wire, 0);

        assert_eq!(wire.session.queue_fill_percent(is_kept), percent);
    }
}

/// If more stored messages are in memory than the limit allows, they leave memory once.
#[test]
fn what_is_at_hand_is_let_go_of_once() {
    let mut wire = Wire::with(ServerLimits {
        queue_messages: 2,
        ..ServerLimits::default()
    });
    wire.durable = true;
    wire.connect(CONNECT_5_KEPT);
    wire.lose();
    for key in 0..=3 {
        deliver(&mut wire, key);
    }
    assert!(wire.session.is_spilling());

    assert!(wire.session.may_spill() && wire.session.spill());

    assert!(!wire.session.may_spill() && !wire.session.spill());
    assert_eq!((wire.session.spilled(), wire.session.queued()), (3, 4));
}
