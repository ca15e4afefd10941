//! What durability `memory` costs beside a store that others use: nothing. No allocation more than without one, no
//! record, no byte of the log, no sync, and its thread sleeps on.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mqttcore_broker::{Broker, Config, Data, Durability, Grant, Listener, TopicDurability};
use mqttcore_codec::QoS;

use crate::common::{
    Client, HOUR_S, Home, Plugin, Received, allow, config, eventually, figure, filter, start_with,
    v5,
};
use crate::{ALLOCATIONS, Heap};

/// Messages of each QoS.
const ROUNDS: usize = 500;

/// One shard, and a second listener; who names itself has the durability `memory`.
fn started(data: Option<Data>) -> Broker {
    let mut config = Config {
        shards: 1,
        data,
        ..config()
    };
    config.listeners.push(Listener {
        durability: Some(Durability::Memory),
        ..config.listeners[0].clone()
    });
    config.topic_durability = vec![TopicDurability {
        filter: filter("lost/#"),
        durability: Durability::Memory,
    }];
    let plugin = Plugin::default().authenticate(|_, reply| {
        reply.send(allow(Grant {
            durability: Some(Durability::Memory),
            ..Grant::everything()
        }));
    });
    start_with(config, plugin)
}

/// Who says that it is `memory`.
#[derive(Clone, Copy, Debug)]
enum Says {
    Broker,
    Listener,
    Topic,
    Grant,
}

/// A publisher and its subscriber, and their topic.
struct Pair {
    writer: Client,
    reader: Client,
    topic: String,
}

impl Pair {
    fn new(broker: &Broker, says: Says) -> Self {
        let listener = usize::from(matches!(says, Says::Listener));
        let topic = match says {
            Says::Topic => "lost/t".to_owned(),
            other => format!("{other:?}"),
        };
        let hello = |id| {
            let hello = v5(&format!("{id}-{says:?}"));
            match says {
                Says::Grant => hello.username(id),
                _ => hello,
            }
        };
        let writer = hello("writer").connect_at(broker, listener).0;
        let reader = match says {
            // Its session is kept, and what it gets here is not.
            Says::Topic => hello("reader").keeping_session_s(HOUR_S),
            _ => hello("reader"),
        };
        let mut reader = reader.connect_at(broker, listener).0;
        let qos = match says {
            Says::Topic => QoS::AtLeastOnce,
            _ => QoS::ExactlyOnce,
        };
        reader.subscribe(&topic, qos);
        Self {
            writer,
            reader,
            topic,
        }
    }

    /// A message of each QoS, from its first packet to its last one.
    fn round(&mut self) {
        let (writer, reader) = (&mut self.writer, &mut self.reader);
        writer.publish(&self.topic, [0; 64], QoS::AtMostOnce);
        assert_eq!(reader.message().qos, QoS::AtMostOnce);
        writer.publish(&self.topic, [0; 64], QoS::AtLeastOnce);
        assert!(matches!(writer.receive(), Received::PubAck(..)));
        assert_eq!(reader.take_message().qos, QoS::AtLeastOnce);
        let id = writer.publish(&self.topic, [0; 64], QoS::ExactlyOnce);
        assert!(matches!(writer.receive(), Received::PubRec(..)));
        writer.pubrel(id);
        assert!(matches!(writer.receive(), Received::PubComp(..)));
        let message = reader.take_message();
        if message.qos == QoS::ExactlyOnce {
            assert!(matches!(reader.receive(), Received::PubRel(id, _) if id == message.packet_id));
            reader.pubcomp(message.packet_id);
        }
        reader.ping();
    }

    /// What all rounds allocate, in the whole process.
    fn allocations(&mut self) -> usize {
        (0..ROUNDS).for_each(|_| self.round());
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        (0..ROUNDS).for_each(|_| self.round());
        ALLOCATIONS.load(Ordering::Relaxed) - before
    }
}

/// Records and syncs of the store, and how often the thread of its log was woken.
fn work(broker: &Broker) -> [u64; 3] {
    let [records, syncs] = ["store_records", "store_syncs"].map(|name| figure(broker, name));
    [records, syncs, wakes_of_the_log()]
}

/// How often the thread of the log went to sleep.
fn wakes_of_the_log() -> u64 {
    let wakes = |task: &Path| {
        let read = |file| fs::read_to_string(task.join(file)).unwrap_or_default();
        let is_log = read("comm").trim() == "mqttcore-log";
        let status = is_log.then(|| read("status"))?;
        let mut lines = status.lines();
        let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        count.trim().parse::<u64>().ok()
    };
    let tasks = fs::read_dir("/proc/self/task").expect("threads").flatten();
    tasks.filter_map(|task| wakes(&task.path())).sum()
}

/// Its work, once the store has settled.
fn work_so_far(broker: &Broker) -> [u64; 3] {
    let mut before = work(broker);
    eventually("the log is left alone", || {
        std::thread::park_timeout(Duration::from_millis(1_200));
        std::mem::replace(&mut before, work(broker)) == before
    });
    before
}

#[test]
fn durability_memory_costs_nothing_beside_a_store() {
    let _alone = Heap::alone();
    let all = [Says::Broker, Says::Listener, Says::Topic, Says::Grant];
    let bare = started(None);
    let without = all.map(|says| Pair::new(&bare, says).allocations());
    drop(bare);
    let home = Home::new();

    for durability in [Durability::Memory, Durability::Fsync] {
        let folder = home.folder(durability as u32);
        let broker = started(Some(Data { folder, durability }));
        let is_said =
            |says: Says| matches!(says, Says::Broker) == (durability == Durability::Memory);
        let said = all
            .into_iter()
            .zip(without)
            .filter(|(says, _)| is_said(*says));
        let mut pairs: Vec<_> = said
            .map(|(says, without)| (Pair::new(&broker, says), without))
            .collect();
        let before = work_so_far(&broker);

        for (pair, without) in &mut pairs {
            let says = pair.topic.clone();
            let with = pair.allocations();

            let after = work(&broker);
            assert_eq!(after, before, "{says}: records, syncs, wakes of the log");
            assert!(
                with < *without + ROUNDS / 10,
                "{says}: {with}, not {without}"
            );
        }
    }
}
