//! What a message costs the broker, in counts that a busy machine does not change: allocations, and page faults of the
//! shard's thread. `counts.txt` has the most that each may be; a change that needs more says why there.

use std::cell::Cell;
use std::fmt::Write;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mqttcore_broker::{
    Broker, BrokerHandle, Config, Extensions, Figure, Figures, Hooks, Service, ServiceError, Stats,
    TraceFilter, TraceSpec,
};
use mqttcore_codec::{PublishQoS, QoS};

use crate::common::{Client, Plugin, start, v3};
use crate::{Heap, frame, one_shard};

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

/// Minor page faults of the only shard's thread.
fn faults() -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("threads").flatten();
    let shards = tasks.filter_map(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).ok()?;
        let (name, fields) = stat.split_once(") ")?;
        // The tenth field; state is the third.
        let faults = fields.split(' ').nth(7)?.parse::<usize>().ok()?;
        name.ends_with("(mqttcore-0").then_some(faults)
    });
    shards.sum()
}

/// Batches of equal messages from one client to another.
struct Row {
    name: &'static str,
    batch: usize,
    bytes: usize,
    rounds: usize,
}

const ROWS: [Row; 4] = [
    Row {
        name: "one_64_bytes",
        batch: 1,
        bytes: 64,
        rounds: 1_000,
    },
    Row {
        name: "batch_256_64_bytes",
        batch: 256,
        bytes: 64,
        rounds: 40,
    },
    Row {
        name: "batch_256_1_kib",
        batch: 256,
        bytes: 1_024,
        rounds: 40,
    },
    Row {
        name: "one_1_mb",
        batch: 1,
        bytes: 1_000_000,
        rounds: 20,
    },
];

impl Row {
    /// Allocations and page faults a message.
    fn count(&self, writer: &mut Client, reader: &mut Client) -> [f64; 2] {
        let payload = vec![0; self.bytes];
        let bytes = frame("counted", PublishQoS::AtMostOnce, &payload).repeat(self.batch);
        let mut round = || {
            writer.send_bytes(&bytes);
            (0..self.batch).for_each(|_| drop(reader.message()));
        };
        (0..self.rounds).for_each(|_| round());
        let before = [BROKER_ALLOCATIONS.load(Ordering::Relaxed), faults()];
        (0..self.rounds).for_each(|_| round());
        let after = [BROKER_ALLOCATIONS.load(Ordering::Relaxed), faults()];
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let each = |index: usize| {
            (after[index] - before[index]) as f64 / (self.rounds * self.batch) as f64
        };
        [each(0), each(1)]
    }
}

/// The bounds of `counts.txt`: a name, and the most allocations and page faults a message.
fn bounds(name: &str) -> [f64; 2] {
    let lines = include_str!("counts.txt").lines();
    let line = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
    let found = line.into_iter().find(|words| words.first() == Some(&name));
    let words = found.expect("a line for each row");
    [words[1], words[2]].map(|word| word.parse().expect("a number"))
}

#[test]
fn a_message_takes_as_few_allocations_and_page_faults_as_the_baseline_says() {
    let alone = Heap::alone();
    IS_TEST.set(true);
    assert_is_within_bounds(&start(one_shard()));
    drop(alone);
}

/// Starts a trace of a client that does not connect.
struct TraceOfAnother;

impl Figures for TraceOfAnother {
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

impl Service for TraceOfAnother {
    fn start(&self, broker: &BrokerHandle, _: &Config) -> Result<(), ServiceError> {
        let filter = TraceFilter {
            client_id: Some("another".parse()?),
            ..TraceFilter::default()
        };
        broker.start_trace(TraceSpec {
            filter,
            ..TraceSpec::default()
        })?;
        Ok(())
    }

    fn begin_to_stop(&self, _: Duration) {}

    fn stop(&self) {}
}

/// ADR 0058
#[test]
fn a_trace_of_another_client_costs_a_message_no_allocation() {
    let alone = Heap::alone();
    IS_TEST.set(true);
    let hooks: Arc<dyn Hooks> = Arc::new(Plugin::default());
    let extensions = Extensions {
        services: vec![Arc::new(TraceOfAnother)],
        ..Extensions::default()
    };
    let broker = Broker::start_with(one_shard(), &hooks, extensions).expect("the broker starts");
    assert_is_within_bounds(&broker);
    drop(broker);
    drop(alone);
}

/// Counts all rows.
fn assert_is_within_bounds(broker: &Broker) {
    let mut reader = v3("reader").connect(broker);
    reader.subscribe("counted", QoS::AtMostOnce);
    let mut writer = v3("writer").connect(broker);
    let mut report = String::from("name, allocations and page faults a message\n");
    let mut is_within = true;

    for row in ROWS {
        let counted = row.count(&mut writer, &mut reader);

        let most = bounds(row.name);
        is_within &= counted.iter().zip(most).all(|(count, most)| *count <= most);
        writeln!(
            report,
            "{} {:.3} {:.3} (at most {:?})",
            row.name, counted[0], counted[1], most
        )
        .expect("a string takes it");
    }

    eprintln!("{report}");
    assert!(is_within, "{report}");
}
