//! One contender, loaded, behind a face that forgets its type; the loops that are timed know it.

use std::hint::black_box;
use std::time::Duration;

use mqttcore_topics::{MatchCache, SubscriptionFilter, TopicName};

use super::clock::{count, measure, nanos_a_unit};
use super::heap::{growth, settle};
use crate::contenders::ctrie::CTrie;
use crate::contenders::emqx::Emqx;
use crate::contenders::hamt::{Hamt, Imbl, Rpds};
use crate::contenders::moquette::Moquette;
use crate::contenders::nats::Nats;
use crate::contenders::ours::Ours;
use crate::contenders::rwlock_trie::RwLockTrie;
use crate::contenders::{Contender, client};
use crate::workload::Workload;

/// Topics of one call of `match_many`: what one read of a socket often holds.
const BATCH: usize = 16;

/// Fresh filters of one slice of writes: few enough that the size stays what it is.
#[must_use]
pub fn writes_at(size: usize) -> usize {
    (size / 4).clamp(256, 8192)
}

/// What loading a contender took, by subscription, of which each client has one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Footprint {
    /// Bytes of heap, the allocator's own included, without those of clients.
    pub bytes: f64,
    /// Bytes that a client takes before it subscribes: its seat, and room for the list of its filters. Others
    /// leave both to the session.
    pub client_bytes: f64,
    /// Nanoseconds, one subscription after the other, or however the contender loads quickest.
    pub load: f64,
}

/// A contender with the subscriptions of a workload.
pub trait Peer {
    /// What tables call it.
    fn name(&self) -> &'static str;

    /// What loading it took.
    fn loaded(&self) -> Footprint;

    /// Nanoseconds a match, one topic at a time.
    fn one(&mut self, topics: &[TopicName<'_>], budget: Duration) -> f64;

    /// Nanoseconds a match, 16 topics at a time, where the contender can.
    fn many(&mut self, topics: &[TopicName<'_>], budget: Duration) -> Option<f64>;

    /// Nanoseconds a match of a few hot topics, by way of a reader's cache where the contender has one.
    fn hot(&mut self, topics: &[TopicName<'_>], budget: Duration) -> f64;

    /// Nanoseconds a subscription with filters that were never there, and nanoseconds a removal of the same.
    fn write(&self, filters: &[SubscriptionFilter], first: usize, budget: Duration) -> (f64, f64);

    /// Nanoseconds a change when subscribers of the workload leave and come back, one after the other.
    fn churn(&mut self, filters: &[SubscriptionFilter], budget: Duration) -> f64;

    /// Matches a topic, over a sample of topics.
    fn receivers(&mut self, sample: &[TopicName<'_>]) -> f64;

    /// Frees what was replaced.
    fn collect_garbage(&self);
}

struct Loaded<C: Contender> {
    contender: C,
    reader: C::Reader,
    extras: Option<&'static Extras<C>>,
    cache: MatchCache,
    next: usize,
    next_client: usize,
    footprint: Footprint,
}

/// What only ours can.
struct Extras<C> {
    /// Matches several topics in one go; answers something that depends on all it found.
    many: fn(&C, &[TopicName<'_>]) -> u32,
    /// Matches topics in turn, so many times, by way of a cache; answers likewise.
    hot: fn(&C, &mut MatchCache, &[TopicName<'_>], usize) -> u32,
}

/// Makes a peer with everybody of `workload` in it; clients up to `clients` may subscribe later.
pub type Loader = fn(workload: &Workload, clients: usize) -> Box<dyn Peer>;

/// All contenders, ours first.
pub const ALL: [Loader; 9] = [
    |workload, clients| load(workload, clients, Some(OURS)),
    |workload, clients| load::<RwLockTrie>(workload, clients, None),
    |workload, clients| load::<Nats<false>>(workload, clients, None),
    |workload, clients| load::<Nats<true>>(workload, clients, None),
    |workload, clients| load::<Emqx>(workload, clients, None),
    |workload, clients| load::<CTrie>(workload, clients, None),
    |workload, clients| load::<Moquette>(workload, clients, None),
    |workload, clients| load::<Hamt<Imbl>>(workload, clients, None),
    |workload, clients| load::<Hamt<Rpds>>(workload, clients, None),
];

const OURS: &Extras<Ours> = &Extras {
    many: |ours, topics| {
        let mut sum = 0_u32;
        ours.for_each_match_of(topics, |client, qos| {
            sum = sum.wrapping_add(client ^ u32::from(qos));
        });
        sum
    },
    hot: |ours, cache, topics, times| {
        let mut sum = 0_u32;
        for topic in topics.iter().cycle().take(times) {
            ours.for_each_cached(cache, black_box(*topic), |client, qos| {
                sum = sum.wrapping_add(client ^ u32::from(qos));
            });
        }
        sum
    },
};

fn load<C: Contender>(
    workload: &Workload,
    clients: usize,
    extras: Option<&'static Extras<C>>,
) -> Box<dyn Peer> {
    let filters = &workload.filters;
    settle();
    let (table, empty) = growth(|| {
        let mut empty = C::new();
        empty.admit(client(filters.len()));
        empty
    });
    drop(empty);
    settle();
    let (total, (nanos, mut contender)) = growth(|| {
        let (nanos, contender) = measure(|| C::load(filters));
        contender.collect_garbage();
        (nanos, contender)
    });
    contender.admit(client(clients));
    Box::new(Loaded {
        contender,
        reader: C::Reader::default(),
        extras,
        cache: MatchCache::new(),
        next: 0,
        next_client: 0,
        footprint: Footprint {
            bytes: (total - table) / count(filters.len()),
            client_bytes: table / count(filters.len()),
            load: nanos / count(filters.len()),
        },
    })
}

impl<C: Contender> Loaded<C> {
    fn write_and_remove(
        &self,
        filters: &[SubscriptionFilter],
        first: usize,
        budget: Duration,
    ) -> (f64, f64) {
        let mut written = 0;
        let write_ns = nanos_a_unit(budget, |ask| {
            let end = filters.len().min(written + ask);
            for (number, filter) in filters.iter().enumerate().take(end).skip(written) {
                self.contender.subscribe(filter, client(first + number), 1);
            }
            end - std::mem::replace(&mut written, end)
        });
        let mut removed = 0;
        let remove_ns = nanos_a_unit(Duration::MAX, |ask| {
            let end = written.min(removed + ask);
            for (number, filter) in filters.iter().enumerate().take(end).skip(removed) {
                self.contender.unsubscribe(filter, client(first + number));
            }
            end - std::mem::replace(&mut removed, end)
        });
        (write_ns, remove_ns)
    }

    fn match_next(&mut self, topics: &[TopicName<'_>], ask: usize) -> usize {
        let mut sum = 0_u32;
        for _ in 0..ask {
            self.next = if self.next + 1 < topics.len() {
                self.next + 1
            } else {
                0
            };
            let topic = black_box(topics[self.next]);
            self.contender
                .for_each_match(&mut self.reader, topic, |client, qos| {
                    sum = sum.wrapping_add(client ^ u32::from(qos));
                });
        }
        black_box(sum);
        ask
    }

    fn match_batches(&mut self, extras: &Extras<C>, topics: &[TopicName<'_>], ask: usize) -> usize {
        for _ in 0..ask {
            let start = if self.next + 2 * BATCH <= topics.len() {
                self.next + BATCH
            } else {
                0
            };
            self.next = start;
            let end = topics.len().min(start + BATCH);
            black_box((extras.many)(
                &self.contender,
                black_box(&topics[start..end]),
            ));
        }
        ask * BATCH.min(topics.len())
    }
}

impl<C: Contender> Peer for Loaded<C> {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn loaded(&self) -> Footprint {
        self.footprint
    }

    fn one(&mut self, topics: &[TopicName<'_>], budget: Duration) -> f64 {
        nanos_a_unit(budget / 3, |ask| self.match_next(topics, ask));
        nanos_a_unit(budget, |ask| self.match_next(topics, ask))
    }

    fn many(&mut self, topics: &[TopicName<'_>], budget: Duration) -> Option<f64> {
        let extras = self.extras?;
        nanos_a_unit(budget / 3, |ask| self.match_batches(extras, topics, ask));
        Some(nanos_a_unit(budget, |ask| {
            self.match_batches(extras, topics, ask)
        }))
    }

    fn hot(&mut self, topics: &[TopicName<'_>], budget: Duration) -> f64 {
        let Some(extras) = self.extras else {
            return self.one(topics, budget);
        };
        let mut block = |ask: usize| {
            black_box((extras.hot)(&self.contender, &mut self.cache, topics, ask));
            ask
        };
        nanos_a_unit(budget / 3, &mut block);
        nanos_a_unit(budget, block)
    }

    fn write(&self, filters: &[SubscriptionFilter], first: usize, budget: Duration) -> (f64, f64) {
        let (before, filters) = filters.split_at(filters.len() / 4);
        self.write_and_remove(before, first, budget / 3);
        self.write_and_remove(filters, first + before.len(), budget)
    }

    fn churn(&mut self, filters: &[SubscriptionFilter], budget: Duration) -> f64 {
        nanos_a_unit(budget, |ask| {
            for _ in 0..ask {
                // A prime that no size is a multiple of: every subscriber has its turn, in no order.
                self.next_client = (self.next_client + 7919) % filters.len();
                let filter = &filters[self.next_client];
                self.contender.unsubscribe(filter, client(self.next_client));
                self.contender
                    .subscribe(filter, client(self.next_client), 1);
            }
            2 * ask
        })
    }

    fn receivers(&mut self, sample: &[TopicName<'_>]) -> f64 {
        let mut found = 0;
        for topic in sample {
            self.contender
                .for_each_match(&mut self.reader, *topic, |_, _| found += 1);
        }
        count(found) / count(sample.len())
    }

    fn collect_garbage(&self) {
        self.contender.collect_garbage();
    }
}
