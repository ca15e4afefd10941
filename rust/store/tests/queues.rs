//! Long queues: rows of many deliveries, changed while some of the changes are being written.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use mqttcore_store::faults::{Disk, Faults};
use mqttcore_store::files::Files;
use mqttcore_store::record::{MessageRecord, RecipientsBuf, Record, SessionOpened};
use mqttcore_store::{
    Batch, Durability, QueueSummary, SimulatedStore, SpacePolicy, Store, StoreOptions,
};
use proptest::prelude::*;

const OPTIONS: StoreOptions = StoreOptions::small(40_000, 1);
const SESSIONS: u64 = 2;

#[derive(Clone, Debug)]
enum Op {
    /// So many messages to a session; in the log every second one comes before the one in front.
    Publish(u64, usize),
    /// Takes so many out of a queue, from a place in it on.
    Take(u64, prop::sample::Index, usize),
    End(u64),
    Begin,
    Finish,
    Checkpoint,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let session = || 1..=SESSIONS;
    prop_oneof![
        5 => (session(), 1..400_usize).prop_map(|(session, count)| Op::Publish(session, count)),
        6 => (session(), any::<prop::sample::Index>(), 1..300_usize)
            .prop_map(|(session, place, count)| Op::Take(session, place, count)),
        1 => session().prop_map(Op::End),
        2 => Just(Op::Begin),
        2 => Just(Op::Finish),
        1 => Just(Op::Checkpoint),
        1 => Just(Op::Reopen),
    ]
}

/// A store, and what its queues should be: sizes of messages by number.
struct World {
    disk: Disk,
    store: SimulatedStore,
    queues: BTreeMap<u64, BTreeMap<u64, u64>>,
    /// Bytes of the records of messages.
    records: BTreeMap<u64, u64>,
}

impl World {
    fn new() -> Self {
        let disk = Disk::new(1, Faults::default());
        let store = open(&disk);
        let mut world = Self {
            disk,
            store,
            queues: BTreeMap::new(),
            records: BTreeMap::new(),
        };
        (1..=SESSIONS).for_each(|session| world.open_session(session));
        world
    }

    fn append(&self, batch: &mut Batch) {
        self.store
            .append(batch, Durability::Fsync, SpacePolicy::Ordinary)
            .unwrap();
        while self.store.step().unwrap() {}
    }

    fn open_session(&mut self, session: u64) {
        let mut batch = Batch::default();
        batch.push(&Record::Opened(SessionOpened {
            session,
            at_ms: 1,
            version: 5,
            expiry_s: u32::MAX,
            client_id: &format!("client-{session}"),
            username: None,
        }));
        self.append(&mut batch);
        self.queues.insert(session, BTreeMap::new());
    }

    fn publish(&mut self, session: u64, count: usize) {
        let first = self.store.numbers(count as u64);
        let mut numbers: Vec<u64> = (first..first + count as u64).collect();
        numbers.chunks_mut(2).for_each(<[u64]>::reverse);
        let (mut batch, mut recipients) = (Batch::default(), RecipientsBuf::default());
        recipients.push(session, 1, false, &[]);
        for number in numbers {
            let payload = vec![b'.'; usize::try_from(number % 50).unwrap()];
            let before = batch.len_bytes();
            batch.push(&Record::Message(MessageRecord {
                message: number,
                qos: 1,
                topic: "t",
                recipients: recipients.as_recipients(),
                payload: &payload,
                ..MessageRecord::default()
            }));
            let bytes = (batch.len_bytes() - before) as u64;
            self.records.insert(number, bytes);
            let queue = self.queues.get_mut(&session).unwrap();
            queue.insert(number, 1 + number % 50);
        }
        self.append(&mut batch);
    }

    fn take(&mut self, session: u64, place: prop::sample::Index, count: usize) {
        let queue = self.queues.get_mut(&session).unwrap();
        if queue.is_empty() {
            return;
        }
        let place = place.index(queue.len());
        let taken: Vec<u64> = queue.keys().skip(place).take(count).copied().collect();
        let mut batch = Batch::default();
        for delivery in taken {
            queue.remove(&delivery);
            batch.push(&Record::Dropped { session, delivery });
        }
        self.append(&mut batch);
    }

    fn end(&mut self, session: u64) {
        let mut batch = Batch::default();
        batch.push(&Record::Ended { session });
        self.append(&mut batch);
        self.open_session(session);
    }

    fn check(&self) {
        let wanted = self.queues.values().flat_map(BTreeMap::keys);
        let bytes: u64 = wanted.map(|number| self.records[number]).sum();
        assert_eq!(self.store.stats().live_bytes, bytes);
        let mut waiting = BTreeMap::new();
        self.store
            .sessions(&mut |kept| {
                waiting.insert(kept.number, kept.waiting);
            })
            .unwrap();
        for (session, queue) in &self.queues {
            let numbers: Vec<u64> = queue.keys().copied().collect();
            let from = numbers.get(numbers.len() / 2).copied().unwrap_or(0);
            for (from, limit) in [(0, usize::MAX), (from, 7), (0, 300)] {
                let found = self.store.queue(*session, from, limit).unwrap();
                let found: Vec<u64> = found.iter().map(|delivery| delivery.number).collect();
                let right = numbers.iter().copied().filter(|number| *number >= from);
                assert_eq!(found, right.take(limit).collect::<Vec<_>>());
            }
            let figures = (queue.len() as u64, queue.values().sum::<u64>());
            let found = waiting.get(session).copied().unwrap_or_default();
            let QueueSummary {
                deliveries, bytes, ..
            } = found;
            assert_eq!((deliveries, bytes), figures);
            for (_, message) in self.store.page(*session, from, 3, u64::MAX).unwrap() {
                assert_eq!(message.unwrap().message().topic, "t");
            }
        }
    }
}

fn open(disk: &Disk) -> SimulatedStore {
    let files: Arc<dyn Files> = Arc::new(disk.clone());
    SimulatedStore::open(&files, &OPTIONS).unwrap().0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_long_queue_is_what_was_put_in_and_not_taken_out(ops in prop::collection::vec(op(), 1..30)) {
        let mut world = World::new();
        for op in ops {
            match op {
                Op::Publish(session, count) => world.publish(session, count),
                Op::Take(session, place, count) => world.take(session, place, count),
                Op::End(session) => world.end(session),
                Op::Begin => world.store.begin_checkpoint().unwrap(),
                Op::Finish => world.store.end_checkpoint().unwrap(),
                Op::Checkpoint => world.store.checkpoint().unwrap(),
                Op::Reopen => {
                    let disk = world.disk.after_power_cut();
                    drop(world.store);
                    let store = open(&disk);
                    world = World { disk, store, ..world };
                }
            }
            world.check();
        }
    }
}
