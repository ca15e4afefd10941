//! How many publishes a second the directory routes, and how many subscriptions a second it takes.
//!
//! `MQTTCORE_BENCH_MILLION=1` adds a million filters to the 10,000 and 100,000. All of it takes minutes; a filter
//! keeps it quick and loads only what it names: `cargo bench --bench tree -- tree/match/telemetry/10000/`. How it
//! compares with those of other brokers is said by `make tree-report`.

use std::cell::LazyCell;
use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{
    BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main,
};
use mqttcore_benches::numbered::{NumberedDirectory, client};
use mqttcore_benches::workload::{Kind, Workload, names};
use mqttcore_topics::{RetainedStore, TopicFilter, TopicLimits, TopicName};

const SEED: u64 = 42;
/// As the figures of former runs are called.
const NAME: &str = "mqttcore";

/// Topics of one call of `match_many`: what one read of a socket often holds.
const BATCH: usize = 16;

fn sizes() -> Vec<usize> {
    let mut sizes = vec![10_000, 100_000];
    if std::env::var_os("MQTTCORE_BENCH_MILLION").is_some() {
        sizes.push(1_000_000);
    }
    sizes
}

/// A group whose figures take about a second each.
fn group<'c>(c: &'c mut Criterion, name: &str) -> BenchmarkGroup<'c, WallTime> {
    let mut group = c.benchmark_group(name);
    group.sample_size(20);
    group.warm_up_time(Duration::from_millis(300));
    group.measurement_time(Duration::from_secs(1));
    group
}

/// One element is one publish, with a pin of its own.
fn match_one(c: &mut Criterion) {
    for kind in Kind::ALL {
        for size in sizes() {
            let workload = LazyCell::new(|| kind.workload(size, 0));
            let mut group = group(c, &format!("tree/match/{}/{size}", kind.name()));
            group.throughput(Throughput::Elements(1));
            let loaded = LazyCell::new(|| load(&workload));
            let mut next = 0;
            group.bench_function(NAME, |b| {
                let (directory, topics) = &*loaded;
                b.iter(|| {
                    let mut sum = 0_u32;
                    next = (next + 1) % topics.len();
                    directory.for_each_match(black_box(topics[next]), |client, qos| {
                        sum = sum.wrapping_add(client ^ u32::from(qos));
                    });
                    sum
                });
            });
        }
    }
}

/// A directory with the filters of a workload, and its topics.
fn load(workload: &Workload) -> (NumberedDirectory, Vec<TopicName<'_>>) {
    let directory = NumberedDirectory::load(&workload.filters);
    (directory, names(&workload.topics))
}

/// One element is one publish; 16 share a pin.
fn match_many(c: &mut Criterion) {
    for kind in [Kind::Telemetry, Kind::Deep, Kind::Exact] {
        for size in sizes() {
            let workload = LazyCell::new(|| kind.workload(size, 0));
            let loaded = LazyCell::new(|| load(&workload));
            let mut group = group(c, &format!("tree/match_many/{}/{size}", kind.name()));
            group.throughput(Throughput::Elements(BATCH as u64));
            let mut next = 0;
            group.bench_function(NAME, |b| {
                let (directory, topics) = &*loaded;
                b.iter(|| {
                    let mut sum = 0_u32;
                    next = (next + BATCH) % (topics.len() - BATCH);
                    directory.for_each_match_of(
                        black_box(&topics[next..next + BATCH]),
                        |client, _| {
                            sum = sum.wrapping_add(client);
                        },
                    );
                    sum
                });
            });
        }
    }
}

/// One element is one commit: an existing subscription goes, or comes back.
fn churn(c: &mut Criterion) {
    for kind in Kind::ALL {
        for size in sizes() {
            let workload = LazyCell::new(|| kind.workload(size, 0));
            let mut group = group(c, &format!("tree/churn/{}/{size}", kind.name()));
            group.throughput(Throughput::Elements(2));
            let directory = LazyCell::new(|| NumberedDirectory::load(&workload.filters));
            let mut next = 0;
            group.bench_function(NAME, |b| {
                let (directory, filters) = (&*directory, &workload.filters);
                b.iter(|| {
                    next = (next + 7919) % filters.len();
                    let was_there = directory.unsubscribe(&filters[next], client(next));
                    was_there & directory.subscribe(&filters[next], client(next), 1)
                });
            });
        }
    }
}

/// One element is one retained value: replaced, or visited.
fn retained(c: &mut Criterion) {
    let mut group = group(c, "tree/retained");
    for size in sizes() {
        let workload = Workload::exact(size, 0);
        let topics: Vec<_> = workload.filters.iter().map(ToString::to_string).collect();
        let topics = names(&topics);
        let retained = RetainedStore::new(SEED);
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

criterion_group!(benches, match_one, match_many, churn, retained);
criterion_main!(benches);
