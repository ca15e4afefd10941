//! How many publishes a second the directory routes, and how many subscriptions a second it takes.
//!
//! `MQTTCORE_BENCH_MILLION=1` adds a million filters to the 10,000 and 100,000.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use mqttcore_benches::workload::Workload;
use mqttcore_codec::QoS;
use mqttcore_topics::{
    Change, Directory, Match, Options, Retained, Strategy, SubscriberId, SubscriptionFilter,
    TopicFilter, TopicLimits, TopicName, Visitor,
};

const SEED: u64 = 42;
const OPTIONS: Options = Options::at(QoS::AtLeastOnce);

/// Topics of one call of `match_many`: what one read of a socket often holds.
const BATCH: usize = 16;

fn sizes() -> Vec<usize> {
    let mut sizes = vec![10_000, 100_000];
    if std::env::var_os("MQTTCORE_BENCH_MILLION").is_some() {
        sizes.push(1_000_000);
    }
    sizes
}

/// Uses what a router would use of each match.
#[derive(Default)]
struct Sum {
    handles: u64,
    receivers: u64,
}

impl Visitor for Sum {
    fn plain(&mut self, found: Match<'_>) {
        self.handles = self.handles.wrapping_add(found.handle);
        self.receivers += 1;
    }

    fn shared(&mut self, candidate: Match<'_>) -> bool {
        self.plain(candidate);
        true
    }

    fn shared_offline(&mut self, _: Match<'_>) {}
}

fn subscribe(directory: &Directory, filters: &[SubscriptionFilter]) -> Vec<SubscriberId> {
    let mut ids = Vec::with_capacity(filters.len());
    for (handle, filter) in filters.iter().enumerate() {
        let id = directory.join(handle as u64);
        directory.commit(
            id,
            &[Change::Subscribe {
                filter,
                options: OPTIONS,
            }],
        );
        ids.push(id);
    }
    ids
}

fn names(topics: &[String]) -> Vec<TopicName<'_>> {
    let limits = TopicLimits::default();
    let name = |text| TopicName::parse(text, &limits).expect("generated topics are valid");
    topics.iter().map(|text| name(text)).collect()
}

/// One element is one publish, with a pin of its own.
fn match_one(c: &mut Criterion) {
    let mut group = c.benchmark_group("tree/match_one");
    group.throughput(Throughput::Elements(1));
    for size in sizes() {
        for workload in
            [Workload::telemetry, Workload::deep, Workload::exact].map(|make| make(size, 0))
        {
            let directory = Directory::new(SEED, Strategy::RoundRobin);
            subscribe(&directory, &workload.filters);
            let topics = names(&workload.topics);
            let mut next = 0;
            group.bench_function(BenchmarkId::from_parameter(&workload.name), |b| {
                b.iter(|| {
                    let mut sum = Sum::default();
                    next = (next + 1) % topics.len();
                    directory
                        .snapshot()
                        .match_one(black_box(topics[next]), None, 0, &mut sum);
                    sum.handles
                });
            });
            report(&workload, &directory, &topics);
        }
    }
    group.finish();
}

/// Says on standard error what was measured: bytes a subscription, and receivers a topic.
#[expect(clippy::cast_precision_loss, reason = "figures to read")]
fn report(workload: &Workload, directory: &Directory, topics: &[TopicName<'_>]) {
    let mut sum = Sum::default();
    directory.snapshot().match_many(topics, None, 0, &mut sum);
    let stats = directory.stats();
    eprintln!(
        "{}: {:.1} bytes a subscription, {:.2} receivers a topic, {} nodes",
        workload.name,
        stats.bytes as f64 / stats.subscriptions as f64,
        sum.receivers as f64 / topics.len() as f64,
        stats.nodes,
    );
}

/// One element is one publish; 16 share a pin.
fn match_many(c: &mut Criterion) {
    let mut group = c.benchmark_group("tree/match_many");
    group.throughput(Throughput::Elements(BATCH as u64));
    for size in sizes() {
        for workload in [Workload::telemetry, Workload::deep].map(|make| make(size, 0)) {
            let directory = Directory::new(SEED, Strategy::RoundRobin);
            subscribe(&directory, &workload.filters);
            let topics = names(&workload.topics);
            let mut batches = topics.chunks_exact(BATCH).cycle();
            group.bench_function(BenchmarkId::from_parameter(&workload.name), |b| {
                b.iter(|| {
                    let mut sum = Sum::default();
                    let batch = batches.next().unwrap_or(&[]);
                    directory
                        .snapshot()
                        .match_many(black_box(batch), None, 0, &mut sum);
                    sum.handles
                });
            });
        }
    }
    group.finish();
}

/// One element is one delivery.
fn fan_out(c: &mut Criterion) {
    let mut group = c.benchmark_group("tree/fan_out");
    for size in sizes() {
        let workload = Workload::fan_out(size, 0);
        let directory = Directory::new(SEED, Strategy::RoundRobin);
        subscribe(&directory, &workload.filters);
        let topics = names(&workload.topics);
        group.throughput(Throughput::Elements(size as u64));
        group.bench_function(BenchmarkId::from_parameter(&workload.name), |b| {
            b.iter(|| {
                let mut sum = Sum::default();
                directory
                    .snapshot()
                    .match_one(black_box(topics[0]), None, 0, &mut sum);
                sum.handles
            });
        });
        report(&workload, &directory, &topics);
    }
    group.finish();
}

/// One element is one commit: an existing subscription goes, or comes back.
fn churn(c: &mut Criterion) {
    let mut group = c.benchmark_group("tree/churn");
    group.throughput(Throughput::Elements(2));
    let kinds = [
        Workload::telemetry,
        Workload::deep,
        Workload::exact,
        Workload::fan_out,
    ];
    for size in sizes() {
        for workload in kinds.map(|make| make(size, 0)) {
            let directory = Directory::new(SEED, Strategy::RoundRobin);
            let ids = subscribe(&directory, &workload.filters);
            let mut next = 0;
            group.bench_function(BenchmarkId::from_parameter(&workload.name), |b| {
                b.iter(|| {
                    next = (next + 7919) % ids.len();
                    let (id, filter) = (ids[next], &workload.filters[next]);
                    directory.commit(id, &[Change::Unsubscribe { filter }]);
                    directory.commit(
                        id,
                        &[Change::Subscribe {
                            filter,
                            options: OPTIONS,
                        }],
                    )
                });
            });
        }
    }
    group.finish();
}

/// One element is one retained value: replaced, or visited.
fn retained(c: &mut Criterion) {
    let mut group = c.benchmark_group("tree/retained");
    for size in sizes() {
        let workload = Workload::exact(size, 0);
        let topics: Vec<_> = workload.filters.iter().map(ToString::to_string).collect();
        let topics = names(&topics);
        let retained = Retained::new(SEED);
        for topic in &topics {
            retained.set(*topic, 0_u64);
        }
        let mut next = 0;
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("replace", size), |b| {
            b.iter(|| {
                next = (next + 1) % topics.len();
                retained.set(black_box(topics[next]), next as u64)
            });
        });
        let all = TopicFilter::parse("#", &TopicLimits::default()).expect("a filter");
        group.throughput(Throughput::Elements(1_000));
        group.bench_function(BenchmarkId::new("walk_1000", size), |b| {
            b.iter(|| {
                let mut sum = 0_u64;
                retained.walk(&all, None, 1_000, &mut |topic, value| {
                    sum = sum.wrapping_add(value + topic.len() as u64);
                });
                sum
            });
        });
    }
    group.finish();
}

criterion_group!(benches, match_one, match_many, fan_out, churn, retained);
criterion_main!(benches);
