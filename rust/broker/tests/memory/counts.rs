//! What a message costs the broker, in counts that a busy machine does not change: allocations, and page faults of the
//! shard's thread. `counts.txt` has the most that each may be; a change that needs more says why there.

use std::cell::Cell;
use std::fmt::Write;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mqttcore_broker::{
    Broker, BrokerHandle, Config, Extensions, Figure, Figures, Hooks, Service, ServiceError, Stats,
    TraceFilter, TraceSpec, keep_freed,
};
use mqttcore_codec::{PacketId, PublishQoS, QoS};

use crate::common::{Client, Plugin, v3};
use crate::{Heap, bounds, frame, one_shard};

/// Allocations of threads that are not the test's own.
pub(crate) static BROKER_ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static IS_TEST: Cell<bool> = const { Cell::new(false) };
}

/// Counts an allocation, unless it is the test's own.
pub(crate) fn count_allocation() {
    if !IS_TEST.try_with(Cell::get).unwrap_or(true) {
        BROKER_ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Minor page faults of the shards' threads.
fn faults() -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("threads").flatten();
    let shards = tasks.filter_map(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).ok()?;
        let (name, fields) = stat.split_once(") ")?;
        // The tenth field; state is the third.
        let faults = fields.split(' ').nth(7)?.parse::<usize>().ok()?;
        let (_, index) = name.split_once("(mqttcore-")?;
        index.parse::<usize>().is_ok().then_some(faults)
    });
    shards.sum()
}

/// Batches of equal messages.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    qos: QoS,
    /// Each has its own topic; all send before a reader reads.
    writers: usize,
    /// Those of a shared group over all topics. Without them each writer has its own reader.
    members: usize,
    batch: usize,
    bytes: usize,
    rounds: usize,
}

const ONE_TO_ONE: Row = Row {
    name: "one_64_bytes",
    qos: QoS::AtMostOnce,
    writers: 1,
    members: 0,
    batch: 1,
    bytes: 64,
    rounds: 1_000,
};

/// With one writer: when another one is read depends on how busy the machine is.
const SHARED: Row = Row {
    name: "shared_10_batch_20",
    members: 10,
    batch: 20,
    rounds: 100,
    ..ONE_TO_ONE
};

const ROWS: [Row; 8] = [
    ONE_TO_ONE,
    Row {
        name: "batch_256_64_bytes",
        batch: 256,
        rounds: 40,
        ..ONE_TO_ONE
    },
    Row {
        name: "batch_256_1_kib",
        batch: 256,
        bytes: 1_024,
        rounds: 40,
        ..ONE_TO_ONE
    },
    Row {
        name: "one_1_mb",
        bytes: 1_000_000,
        rounds: 20,
        ..ONE_TO_ONE
    },
    Row {
        name: "qos1_batch_16",
        qos: QoS::AtLeastOnce,
        batch: 16,
        rounds: 100,
        ..ONE_TO_ONE
    },
    Row {
        name: "qos2_batch_16",
        qos: QoS::ExactlyOnce,
        batch: 16,
        rounds: 100,
        ..ONE_TO_ONE
    },
    Row {
        name: "pairs_50_batch_16_1_kib",
        writers: 50,
        batch: 16,
        bytes: 1_024,
        rounds: 20,
        ..ONE_TO_ONE
    },
    SHARED,
];

impl Row {
    /// Allocations and page faults a message, each the least of three times all rounds: memory that is used for the first
    /// time is counted once, what each message costs is counted every time.
    fn count(&self, broker: &Counted) -> [f64; 2] {
        let mut place = (0..).map(|number| format!("{}-{number}", self.name));
        let mut connect = |shard: usize| {
            let name = place.find(|name| broker.has_on(shard, name));
            v3(&name.expect("some name has its session there")).connect(&broker.broker)
        };
        let topics: Vec<_> = (0..self.writers).map(|n| format!("counted/{n}")).collect();
        let filters: Vec<_> = match self.members {
            0 => topics.clone(),
            members => vec!["$share/all/counted/+".into(); members],
        };
        let mut writers: Vec<_> = topics.iter().map(|_| connect(0)).collect();
        let mut readers = Vec::new();
        for (number, filter) in filters.iter().enumerate() {
            let mut reader = connect(number % broker.shards);
            reader.subscribe(filter, self.qos);
            readers.push(reader);
        }
        let batches: Vec<_> = topics.iter().map(|topic| self.batch_to(topic)).collect();
        let mut round = || {
            for (writer, batch) in writers.iter_mut().zip(&batches) {
                writer.send_bytes(batch);
            }
            self.exchange(&mut writers, &mut readers);
        };
        let counted = || [BROKER_ALLOCATIONS.load(Ordering::Relaxed), faults()];
        let mut least = [usize::MAX; 2];
        for _ in 0..3 {
            let before = counted();
            (0..self.rounds).for_each(|_| round());
            for ((least, after), before) in least.iter_mut().zip(counted()).zip(before) {
                *least = (*least).min(after - before);
            }
        }
        let messages = self.rounds * self.batch * self.writers;
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        least.map(|count| count as f64 / messages as f64)
    }

    /// The PUBLISHes of a writer in a round.
    fn batch_to(&self, topic: &str) -> Vec<u8> {
        let payload = vec![0; self.bytes];
        let ids = (1..).map_while(PacketId::new).take(self.batch);
        let frames = ids.flat_map(|packet_id| {
            let dup = false;
            let delivery = match self.qos {
                QoS::AtMostOnce => PublishQoS::AtMostOnce,
                QoS::AtLeastOnce => PublishQoS::AtLeastOnce { packet_id, dup },
                QoS::ExactlyOnce => PublishQoS::ExactlyOnce { packet_id, dup },
            };
            frame(topic, delivery, &payload)
        });
        frames.collect()
    }

    /// What follows the PUBLISHes. A client sends its answers in one write, so that they are one read.
    fn exchange(&self, writers: &mut [Client], readers: &mut [Client]) {
        let each = self.batch * self.writers / readers.len();
        for reader in &mut *readers {
            let ids = (0..each).map(|_| reader.message().packet_id);
            let ids: Vec<_> = ids.collect();
            match self.qos {
                QoS::AtMostOnce => {}
                QoS::AtLeastOnce => reader.send_bytes(&answers(PUBACK, &ids)),
                QoS::ExactlyOnce => {
                    reader.send_bytes(&answers(PUBREC, &ids));
                    receive(reader, ids.len());
                    reader.send_bytes(&answers(PUBCOMP, &ids));
                }
            }
        }
        if self.qos == QoS::AtMostOnce {
            return;
        }
        let ids: Vec<_> = (1..).take(self.batch).collect();
        for writer in writers {
            receive(writer, ids.len());
            if self.qos == QoS::ExactlyOnce {
                writer.send_bytes(&answers(PUBREL, &ids));
                receive(writer, ids.len());
            }
        }
    }
}

fn receive(client: &mut Client, packets: usize) {
    for _ in 0..packets {
        client.receive();
    }
}

const PUBACK: u8 = 0x40;
const PUBREC: u8 = 0x50;
const PUBREL: u8 = 0x62;
const PUBCOMP: u8 = 0x70;

/// Packets with this first byte and these identifiers.
fn answers(first: u8, ids: &[u16]) -> Vec<u8> {
    let answer = |id: &u16| {
        let [high, low] = id.to_be_bytes();
        [first, 2, high, low]
    };
    ids.iter().flat_map(answer).collect()
}

#[test]
fn a_message_takes_as_few_allocations_and_page_faults_as_the_baseline_says() {
    let alone = Heap::alone();
    Counted::start(1, false).assert_within_bounds(&ROWS);
    drop(alone);
}

/// Members that are on the writer's shard, and as many on the other.
#[test]
fn a_message_to_another_shard_takes_as_few_allocations_and_page_faults_as_the_baseline_says() {
    let alone = Heap::alone();
    let two = Row {
        name: "shared_10_batch_20_2_shards",
        ..SHARED
    };
    Counted::start(2, false).assert_within_bounds(&[two]);
    drop(alone);
}

/// ADR 0058
#[test]
fn a_trace_of_another_client_costs_a_message_no_allocation() {
    let alone = Heap::alone();
    Counted::start(1, true).assert_within_bounds(&ROWS);
    drop(alone);
}

/// Says where sessions are, and may start a trace of a client that does not connect.
struct Steering {
    traces: bool,
    handle: OnceLock<BrokerHandle>,
}

impl Figures for Steering {
    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    fn memory_bytes(&self) -> usize {
        0
    }

    fn sys_topics(&self, _: &Stats) -> Vec<(String, String)> {
        Vec::new()
    }
}

impl Service for Steering {
    fn start(&self, broker: &BrokerHandle, _: &Config) -> Result<(), ServiceError> {
        if self.traces {
            let filter = TraceFilter {
                client_id: Some("another".parse()?),
                ..TraceFilter::default()
            };
            broker.start_trace(TraceSpec {
                filter,
                ..TraceSpec::default()
            })?;
        }
        assert!(self.handle.set(broker.clone()).is_ok(), "it starts once");
        Ok(())
    }

    fn begin_to_stop(&self, _: Duration) {}

    fn stop(&self) {}
}

/// A broker whose allocations are counted.
struct Counted {
    broker: Broker,
    shards: usize,
    steering: Arc<Steering>,
}

impl Counted {
    /// From here on the allocations of this thread are not the broker's. As in `mqttcore serve`, freed memory is kept.
    fn start(shards: usize, traces: bool) -> Self {
        IS_TEST.set(true);
        assert!(keep_freed());
        let steering = Arc::new(Steering {
            traces,
            handle: OnceLock::new(),
        });
        let services: Vec<Arc<dyn Service>> = vec![Arc::clone(&steering) as _];
        let config = Config {
            shards,
            ..one_shard()
        };
        let hooks: Arc<dyn Hooks> = Arc::new(Plugin::default());
        let extensions = Extensions {
            services,
            ..Extensions::default()
        };
        let broker = Broker::start_with(config, &hooks, extensions).expect("the broker starts");
        Self {
            broker,
            shards,
            steering,
        }
    }

    fn has_on(&self, shard: usize, client_id: &str) -> bool {
        let handle = self.steering.handle.get().expect("it has started");
        handle.shard_of(client_id) == Some(shard)
    }

    fn assert_within_bounds(&self, rows: &[Row]) {
        let mut report = String::from("name, allocations and page faults a message\n");
        let mut is_within = true;

        for row in rows {
            let counted = row.count(self);

            let most: [f64; 2] = bounds(include_str!("counts.txt"), row.name);
            is_within &= counted.iter().zip(most).all(|(count, most)| *count <= most);
            writeln!(
                report,
                "{} {:.3} {:.3} (at most {most:?})",
                row.name, counted[0], counted[1]
            )
            .expect("a string takes it");
        }

        eprintln!("{report}");
        assert!(is_within, "{report}");
    }
}
