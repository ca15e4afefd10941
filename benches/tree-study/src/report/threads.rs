//! The directory with several threads at work: readers, writers, both, and whether anything is lost.
//!
//! Times are processor time of the thread in question, so that a core that another program takes away does not count;
//! the 99.9th percentile alone is of the wall clock.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use mqttcore_topics::{SubscriptionFilter, TopicLimits, TopicName};

use super::clock::{count, measure};
use super::grid::{median, names};
use super::options::Options;
use super::progress::Progress;
use crate::contenders::ctrie::CTrie;
use crate::contenders::ours::Ours;
use crate::contenders::{Contender, client};
use crate::workload::Workload;

/// Fresh filters that one writer subscribes to and leaves again.
const WRITES: usize = 2048;

/// Matches between two looks at whether to stop.
const STRIDE: usize = 64;

/// What was measured of threads beside each other; one value a round in lists.
#[derive(Debug, Default)]
pub struct Threads {
    /// Subscriptions in the directory.
    pub size: usize,
    /// Nanoseconds a match: a reader alone.
    pub alone: Vec<f64>,
    /// A reader beside a writer at full speed.
    pub beside: Vec<f64>,
    /// A reader beside a writer of another directory of the same size: what comes of the machine alone.
    pub beside_other: Vec<f64>,
    /// A reader that matches 16 topics at a time, alone and beside a writer.
    pub batches: (Vec<f64>, Vec<f64>),
    /// The 99.9th percentile of a match beside a writer, in nanoseconds of the wall clock.
    pub p999: Vec<f64>,
    /// Each of two readers.
    pub two_readers: Vec<f64>,
    /// Nanoseconds a commit: one writer.
    pub one_writer: Vec<f64>,
    /// Each of two writers.
    pub two_writers: Vec<f64>,
    /// Commits that another writer overtook, of all attempts of two writers.
    pub retries: f64,
    /// Commits of two writers that the directory does not show afterwards.
    pub lost_writes: usize,
    /// What threads lost that subscribe, look and leave.
    pub ours: Churn,
    /// The same threads and the CTrie port.
    pub ctrie: Churn,
}

/// What came of threads that subscribe, look, leave and look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Churn {
    /// Threads.
    pub threads: usize,
    /// Turns of all threads.
    pub cycles: usize,
    /// Acknowledged subscriptions that were not found, or still found when they were gone.
    pub lost: usize,
}

#[derive(Clone, Copy)]
struct Scene<'s> {
    ours: &'s Ours,
    /// Where writers write: the same, or another one.
    written: &'s Ours,
    /// Topics that readers match at a time.
    batch: usize,
    topics: &'s [TopicName<'s>],
    workload: &'s Workload,
    span: Duration,
}

impl Threads {
    /// Measures on telemetry with the largest size up to 100,000.
    #[must_use]
    pub fn measure(options: &Options, progress: &Progress) -> Self {
        let fits = options
            .sizes
            .iter()
            .copied()
            .filter(|&size| size <= 100_000);
        let size = fits.max().unwrap_or(100_000);
        progress.say(&format!("threads {size}: loading"));
        let workload = Workload::telemetry(size, 2 * WRITES);
        let topics = names(&workload.topics);
        let mut ours = Ours::load(&workload.filters);
        let mut other = Ours::load(&workload.filters);
        ours.admit(client(size + 2 * WRITES));
        other.admit(client(size + 2 * WRITES));
        let scene = Scene {
            ours: &ours,
            written: &ours,
            batch: 1,
            topics: &topics,
            workload: &workload,
            span: options.span,
        };
        let mut threads = Self {
            size,
            ..Self::default()
        };
        for round in 0..options.rounds {
            progress.say(&format!(
                "threads {size}: round {} of {}",
                round + 1,
                options.rounds
            ));
            threads.read(&scene);
            let apart = Scene {
                written: &other,
                ..scene
            };
            threads.beside_other.extend(beside(1, 1, &apart).0);
            let batches = Scene { batch: 16, ..scene };
            threads.batches.0.extend(beside(1, 0, &batches).0);
            threads.batches.1.extend(beside(1, 1, &batches).0);
            threads.write(&scene);
        }
        progress.say("threads: subscribe, look, leave");
        threads.ours = churn::<Ours>(4, 4 * options.span);
        threads.ctrie = churn::<CTrie>(2, 4 * options.span);
        threads
    }

    fn read(&mut self, scene: &Scene<'_>) {
        let (alone, _) = beside(1, 0, scene);
        self.alone.extend(alone);
        let (with_writer, _) = beside(1, 1, scene);
        self.beside.extend(with_writer);
        self.p999.push(percentile_beside_writer(scene));
        let (two, _) = beside(2, 0, scene);
        self.two_readers
            .push(two.iter().sum::<f64>() / count(two.len()));
    }

    fn write(&mut self, scene: &Scene<'_>) {
        let (_, one) = beside(0, 1, scene);
        self.one_writer.extend(one);
        let before = scene.ours.directory().stats();
        let (_, two) = beside(0, 2, scene);
        let after = scene.ours.directory().stats();
        self.two_writers
            .push(two.iter().sum::<f64>() / count(two.len()));
        let (lost, won) = (
            after.lost_races - before.lost_races,
            after.version - before.version,
        );
        #[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
        let share = lost as f64 / (lost + won).max(1) as f64;
        self.retries = self.retries.max(share);
        self.lost_writes += missing_or_left(scene);
    }

    /// Throughput of two readers to one, had each a core of its own.
    #[must_use]
    pub fn readers_gain(&self) -> f64 {
        let gains = self
            .alone
            .iter()
            .zip(&self.two_readers)
            .map(|(one, two)| 2.0 * one / two);
        median(&gains.collect::<Vec<_>>())
    }
}

/// Runs readers and writers for the span; answers the nanoseconds a match and a commit of each.
fn beside(readers: usize, writers: usize, scene: &Scene<'_>) -> (Vec<f64>, Vec<f64>) {
    let (is_over, start) = (AtomicBool::new(false), Barrier::new(readers + writers + 1));
    thread::scope(|scope| {
        let reader = |number: usize| {
            let (is_over, start) = (&is_over, &start);
            scope.spawn(move || {
                start.wait();
                read_until(is_over, scene, number * scene.topics.len() / 2)
            })
        };
        let readers: Vec<_> = (0..readers).map(reader).collect();
        let writer = |number: usize| {
            let (is_over, start) = (&is_over, &start);
            scope.spawn(move || {
                start.wait();
                write_until(is_over, scene, number)
            })
        };
        let writers: Vec<_> = (0..writers).map(writer).collect();
        start.wait();
        thread::sleep(scene.span);
        is_over.store(true, Relaxed); // ORDERING: only asks to stop.
        let join = |threads: Vec<thread::ScopedJoinHandle<'_, f64>>| {
            // INVARIANT: a reader or writer that panics ends the report, as it should.
            let times = threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"));
            times.collect()
        };
        (join(readers), join(writers))
    })
}

fn read_until(is_over: &AtomicBool, scene: &Scene<'_>, first: usize) -> f64 {
    let (mut next, mut matches, mut sum) = (first, 0, 0_u32);
    let (nanos, ()) = measure(|| {
        // ORDERING: Relaxed: only asked to stop.
        while !is_over.load(Relaxed) {
            for _ in 0..STRIDE / scene.batch {
                let end = next + scene.batch;
                let topics = &scene.topics[next..end];
                next = if end + scene.batch <= scene.topics.len() {
                    end
                } else {
                    0
                };
                let visit = |client, _| sum = sum.wrapping_add(client);
                if let [topic] = topics {
                    scene.ours.for_each_match(*topic, visit);
                } else {
                    scene.ours.for_each_match_of(topics, visit);
                }
            }
            matches += STRIDE;
        }
    });
    black_box(sum);
    nanos / count(matches)
}

/// The filters of one writer and the client of its first.
fn own<'s>(scene: &Scene<'s>, number: usize) -> (&'s [SubscriptionFilter], usize) {
    let start = number * WRITES;
    (
        &scene.workload.fresh[start..start + WRITES],
        scene.workload.filters.len() + start,
    )
}

/// Subscribes and leaves in turn; stops between turns or amid subscribing, which leaves what it did.
fn write_until(is_over: &AtomicBool, scene: &Scene<'_>, number: usize) -> f64 {
    let (filters, first) = own(scene, number);
    let mut commits = 0;
    let (nanos, ()) = measure(|| {
        // ORDERING: Relaxed: only asked to stop.
        while !is_over.load(Relaxed) {
            for (place, filter) in filters.iter().enumerate() {
                scene.written.subscribe(filter, client(first + place), 1);
            }
            for (place, filter) in filters.iter().enumerate() {
                scene.written.unsubscribe(filter, client(first + place));
            }
            commits += 2 * filters.len();
        }
    });
    nanos / count(commits)
}

/// Subscribes once more with two threads, then counts what is not found; leaves, then counts what still is.
fn missing_or_left(scene: &Scene<'_>) -> usize {
    let step = |is_subscribe: bool| {
        thread::scope(|scope| {
            for number in 0..2 {
                scope.spawn(move || {
                    let (filters, first) = own(scene, number);
                    for (place, filter) in filters.iter().enumerate() {
                        let client = client(first + place);
                        if is_subscribe {
                            scene.ours.subscribe(filter, client, 1);
                        } else {
                            scene.ours.unsubscribe(filter, client);
                        }
                    }
                });
            }
        });
        let is_found = |(place, filter): &(usize, &SubscriptionFilter)| {
            let text = filter.as_str().replace('+', "status");
            let client = client(scene.workload.filters.len() + place);
            finds(scene.ours, &mut (), &text, client)
        };
        let fresh = scene.workload.fresh.iter().enumerate();
        fresh.filter(is_found).count()
    };
    (2 * WRITES - step(true)) + step(false)
}

fn finds<C: Contender>(contender: &C, reader: &mut C::Reader, topic: &str, client: u32) -> bool {
    let mut is_found = false;
    let topic = TopicName::parse(topic, &TopicLimits::default());
    // INVARIANT: made of a generated filter, whose one wildcard is replaced.
    let topic = topic.expect("a topic of the workload");
    contender.for_each_match(reader, topic, |found, _| is_found |= found == client);
    is_found
}

/// The 99.9th percentile of one match beside a writer at full speed.
fn percentile_beside_writer(scene: &Scene<'_>) -> f64 {
    let is_over = AtomicBool::new(false);
    let mut times: Vec<u32> = Vec::with_capacity(1 << 20);
    thread::scope(|scope| {
        scope.spawn(|| write_until(&is_over, scene, 0));
        let start = Instant::now();
        let mut sum = 0_u32;
        for topic in scene.topics.iter().cycle().take(times.capacity()) {
            let before = Instant::now();
            scene
                .ours
                .for_each_match(*topic, |client, _| sum = sum.wrapping_add(client));
            times.push(u32::try_from(before.elapsed().as_nanos()).unwrap_or(u32::MAX));
            if start.elapsed() >= scene.span {
                break;
            }
        }
        black_box(sum);
        is_over.store(true, Relaxed); // ORDERING: only asks to stop.
    });
    times.sort_unstable();
    times
        .get(times.len() * 999 / 1000)
        .map_or(f64::NAN, |&nanos| nanos.into())
}

/// Threads that subscribe, look, leave and look on filters that they share, for a while.
fn churn<C: Contender>(threads: usize, span: Duration) -> Churn {
    let workload = Workload::telemetry(1_000, 2);
    let mut contender = C::load(&workload.filters);
    contender.admit(client(workload.filters.len() + threads));
    let (cycles, lost) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let end = Instant::now() + span;
    thread::scope(|scope| {
        for number in 0..threads {
            let (contender, workload, cycles, lost) = (&contender, &workload, &cycles, &lost);
            scope.spawn(move || {
                let me = client(workload.filters.len() + number);
                let mut turn = Turn::new(contender, me, workload);
                let mut done = 0;
                while Instant::now() < end {
                    (0..STRIDE).for_each(|step| turn.take(step));
                    done += STRIDE;
                }
                cycles.fetch_add(done, Relaxed); // ORDERING: a count, read behind the join.
                lost.fetch_add(turn.lost, Relaxed); // ORDERING: as above.
            });
        }
    });
    Churn {
        threads,
        cycles: cycles.into_inner(),
        lost: lost.into_inner(),
    }
}

/// One thread of the churn.
struct Turn<'t, C: Contender> {
    contender: &'t C,
    reader: C::Reader,
    me: u32,
    shared: Vec<(&'t SubscriptionFilter, String)>,
    /// Subscribed all the time: must be found in every turn.
    permanent: String,
    lost: usize,
}

impl<'t, C: Contender> Turn<'t, C> {
    fn new(contender: &'t C, me: u32, workload: &'t Workload) -> Self {
        let topic = |filter: &SubscriptionFilter| filter.as_str().replace('+', "status");
        let shared = workload.fresh.iter().map(|filter| (filter, topic(filter)));
        Self {
            contender,
            reader: C::Reader::default(),
            me,
            shared: shared.collect(),
            permanent: topic(&workload.filters[0]),
            lost: 0,
        }
    }

    fn take(&mut self, step: usize) {
        let place = step / 8 % self.shared.len();
        let filter = self.shared[place].0;
        self.contender.subscribe(filter, self.me, 1);
        let is_found = self.finds(place, self.me);
        self.contender.unsubscribe(filter, self.me);
        let is_left = self.finds(place, self.me);
        let is_permanent = self.finds(usize::MAX, 0);
        self.lost += usize::from(!is_found) + usize::from(is_left) + usize::from(!is_permanent);
    }

    fn finds(&mut self, place: usize, client: u32) -> bool {
        let topic = self
            .shared
            .get(place)
            .map_or(&self.permanent, |(_, topic)| topic);
        finds(self.contender, &mut self.reader, topic, client)
    }
}
