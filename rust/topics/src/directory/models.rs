//! Models for loom: short histories of two writers and a reader, in every order that the memory model allows.
//!
//! `make loom` runs them with the grace period of `sync/grace.rs`, which frees as early as any epoch may. The number
//! of preemptions is limited (`LOOM_MAX_PREEMPTIONS`, default 4); within that limit every order is tried. Blocks are
//! plain heap memory, which loom does not observe; `make miri` does. Here, loom observes the values behind a
//! [`Root`], which wait for the same pins as the blocks below them.
//!
//! Tried by hand, and detected by these models: `Relaxed` in [`Root::load`] or [`Root::replace`], destroying a
//! replaced value at once, and reusing a number without waiting. Faults that this module can make itself have tests
//! below.
#![expect(
    clippy::unwrap_used,
    reason = "helpers outside of #[test] functions, too, are tests"
)]

use std::sync::atomic::Ordering::SeqCst;

use loom::cell::UnsafeCell;
use loom::thread::{self, JoinHandle};
use mqttcore_codec::QoS;

use super::{Change, Directory};
use crate::sync::{Acquire, Arc, Release, Root, pin};
use crate::{
    Match, MatchCache, Options, RetainedStore, Strategy, SubscriberId, SubscriptionFilter,
    TopicLimits, TopicName, Visitor,
};

/// Runs a model in every order, and prints the number of orders.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(4);
    builder.max_branches = 100_000;
    let runs = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    builder.check(move || {
        count.fetch_add(1, SeqCst);
        model();
    });
    eprintln!("{} orders", runs.load(SeqCst));
}

fn both<T>(one: JoinHandle<T>, two: JoinHandle<T>) -> (T, T) {
    (one.join().unwrap(), two.join().unwrap())
}

/// A value that notices when it is dropped while somebody reads it.
struct Watched {
    number: UnsafeCell<u64>,
    dropped: Arc<std::sync::atomic::AtomicUsize>,
}

// SAFETY: loom stops the model when two threads touch the number without order and one of them writes.
unsafe impl Sync for Watched {}

impl Watched {
    fn new(number: u64, dropped: &Arc<std::sync::atomic::AtomicUsize>) -> Self {
        Self {
            number: UnsafeCell::new(number),
            dropped: Arc::clone(dropped),
        }
    }

    fn number(&self) -> u64 {
        // SAFETY: loom stops the model when somebody else writes meanwhile.
        self.number.with(|number| unsafe { *number })
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // SAFETY: as above; loom stops the model when somebody reads this without being ordered before it.
        self.number.with_mut(|number| unsafe { *number = 99 });
        self.dropped.fetch_add(1, SeqCst);
    }
}

/// Adds one as all writers do: load, compute, compare and set; start again if another writer was faster.
fn add_one(root: &Root<Watched>) {
    let guard = pin();
    loop {
        let current = root.load(&guard);
        let next = Watched::new(current.number() + 1, &current.dropped);
        if let Some(replaced) = root.replace(current, next, &guard) {
            return replaced.destroy_with(None);
        }
    }
}

/// The root: no update is lost, versions are seen in order, and a replaced value is freed once, when no pin needs it.
#[test]
fn two_writers_and_a_reader_share_a_root() {
    explore(|| {
        let dropped = Arc::default();
        let root = Arc::new(Root::new(Watched::new(0, &dropped)));
        let writer = || {
            let root = Arc::clone(&root);
            thread::spawn(move || add_one(&root))
        };
        let (one, two) = (writer(), writer());
        read_twice(&root);
        both(one, two);

        assert_eq!(root.load(&pin()).number(), 2);
        // The two that were replaced, and perhaps one that lost its race.
        assert!(matches!(dropped.load(SeqCst), 2 | 3));
        drop(root);
        assert!(matches!(dropped.load(SeqCst), 3 | 4));
    });
}

fn read_twice(root: &Root<Watched>) {
    let guard = pin();
    let seen = root.load(&guard);
    let number = seen.number();
    assert!(root.load(&guard).number() >= number);
    assert_eq!(seen.number(), number);
}

/// The same history detects writers that compare with a later version than the one they started from.
#[test]
fn writers_that_compare_too_late_lose_an_update() {
    let lost = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let seen = Arc::clone(&lost);
    explore(move || {
        let root = Arc::new(Root::new(0_u64));
        let writer = || {
            let root = Arc::clone(&root);
            thread::spawn(move || {
                let guard = pin();
                let next = *root.load(&guard) + 1;
                while root.replace(root.load(&guard), next, &guard).is_none() {}
            })
        };
        both(writer(), writer());

        seen.fetch_add(usize::from(*root.load(&pin()) < 2), SeqCst);
    });
    assert!(lost.load(SeqCst) > 0);
}

/// The same history detects a writer that frees a replaced value at once.
#[test]
fn without_a_grace_period_a_value_is_read_after_it_is_gone() {
    let late = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let seen = Arc::clone(&late);
    explore(move || {
        // What is tested is who touches a value last, so a flag stands for its memory.
        let gone = Arc::new(loom::sync::atomic::AtomicBool::new(false));
        let root = Arc::new(Root::new(0_u64));
        let reader = {
            let (root, gone, seen) = (Arc::clone(&root), Arc::clone(&gone), Arc::clone(&seen));
            thread::spawn(move || {
                let number = *root.load(&pin());
                seen.fetch_add(usize::from(number == 0 && gone.load(SeqCst)), SeqCst);
            })
        };
        let guard = pin();
        assert!(root.replace(root.load(&guard), 1, &guard).is_some());
        gone.store(true, SeqCst);
        reader.join().unwrap();
    });
    assert!(late.load(SeqCst) > 0);
}

#[derive(Default)]
struct Handles(Vec<u64>);

impl Visitor for Handles {
    fn plain(&mut self, found: Match<'_>) {
        self.0.push(found.handle);
    }

    fn shared(&mut self, candidate: Match<'_>) -> bool {
        self.0.push(candidate.handle);
        true
    }

    fn shared_offline(&mut self, _: Match<'_>) {}
}

fn filter(text: &str) -> SubscriptionFilter {
    SubscriptionFilter::parse(text, &TopicLimits::default()).unwrap()
}

fn name(text: &str) -> TopicName<'_> {
    TopicName::parse(text, &TopicLimits::default()).unwrap()
}

fn subscribe(directory: &Directory, id: SubscriberId, text: &str) {
    let (filter, options) = (filter(text), Options::at(QoS::AtLeastOnce));
    directory.commit(
        id,
        &[Change::Subscribe {
            filter: &filter,
            options,
        }],
    );
}

fn receivers(directory: &Directory, topic: &str) -> Vec<u64> {
    let mut handles = Handles::default();
    directory
        .snapshot()
        .match_one(name(topic), None, 0, &mut handles);
    handles.0
}

/// The whole directory: both acknowledged subscriptions are present, and retired memory is freed once.
#[test]
fn two_subscribers_and_a_match_share_a_filter() {
    explore(|| {
        let directory = Arc::new(Directory::new(1, Strategy::RoundRobin));
        let ids = [directory.join(0), directory.join(1)];
        let subscriber = |index: usize| {
            let directory = Arc::clone(&directory);
            thread::spawn(move || {
                subscribe(&directory, ids[index], "a/+");
                assert!(receivers(&directory, "a/b").contains(&(index as u64)));
            })
        };
        let (one, two) = (subscriber(0), subscriber(1));
        let before = receivers(&directory, "a/b");
        both(one, two);

        assert!(before.is_sorted());
        assert_eq!(receivers(&directory, "a/b"), [0, 1]);
        assert_eq!(directory.stats().version, 2);
        directory.audit().unwrap();
        assert_eq!(directory.stats().retired_bytes, 0);
    });
}

/// A worker's cache: a match sees everything that returned before it began, whatever the cache contained. The handle
/// of a number is that of the subscription, even if the number has a new owner.
#[test]
fn a_cache_sees_what_has_returned() {
    explore(|| {
        let directory = Arc::new(Directory::new(1, Strategy::RoundRobin));
        let first = directory.join(1);
        subscribe(&directory, first, "a");
        let is_done = Arc::new(loom::sync::atomic::AtomicBool::new(false));
        let writer = {
            let (directory, is_done) = (Arc::clone(&directory), Arc::clone(&is_done));
            thread::spawn(move || {
                directory.leave(first);
                directory.clean(1);
                let second = directory.join(2);
                subscribe(&directory, second, "b");
                is_done.store(true, Release);
            })
        };
        let mut cache = MatchCache::new();
        let mut cached = |topic: &str| {
            let mut handles = Handles::default();
            directory.match_cached(&mut cache, name(topic), None, 0, &mut handles);
            handles.0
        };
        for _ in 0..2 {
            assert!(matches!(cached("a").as_slice(), [] | [1]));
        }
        if is_done.load(Acquire) {
            assert_eq!(cached("a"), [0; 0]);
            assert_eq!(cached("b"), [2]);
        }
        writer.join().unwrap();
    });
}

/// Tombstone and reuse of a number: one pinned version never meets a later owner of a number in an earlier place.
#[test]
fn a_number_is_reused_after_every_match_that_may_have_seen_it() {
    explore(|| {
        let directory = Arc::new(Directory::new(1, Strategy::RoundRobin));
        let first = directory.join(1);
        subscribe(&directory, first, "a");
        let writer = {
            let directory = Arc::clone(&directory);
            thread::spawn(move || {
                directory.leave(first);
                assert!(receivers(&directory, "a").is_empty());
                directory.clean(1);
                let second = directory.join(2);
                subscribe(&directory, second, "b");
                second == first
            })
        };
        let snapshot = directory.snapshot();
        for (topic, owner) in [("a", 1), ("b", 2), ("a", 1)] {
            let mut handles = Handles::default();
            snapshot.match_one(name(topic), None, 0, &mut handles);
            assert!(handles.0.iter().all(|handle| *handle == owner));
        }
        drop(snapshot);
        writer.join().unwrap();

        assert_eq!(receivers(&directory, "a"), [0; 0]);
        assert_eq!(receivers(&directory, "b"), [2]);
    });
}

/// A retained value that is replaced by two writers is never missing, and the last one stays.
#[test]
fn a_retained_value_is_swapped_by_two_writers() {
    explore(|| {
        let retained = Arc::new(RetainedStore::<u64>::new(1));
        retained.set(name("t"), 0);
        let writer = |value: u64| {
            let retained = Arc::clone(&retained);
            thread::spawn(move || retained.set(name("t"), value))
        };
        let (one, two) = (writer(1), writer(2));
        assert!(retained.get(name("t")).is_some());
        let replaced = both(one, two);

        let last = retained.get(name("t"));
        let mut all = [replaced.0, replaced.1, last];
        all.sort_unstable();
        assert_eq!(all, [Some(0), Some(1), Some(2)]);
    });
}

/// One writer clears a topic while another sets it: the last one wins, and the count is one or none.
#[test]
fn a_retained_value_is_cleared_while_it_is_set() {
    explore(|| {
        let retained = Arc::new(RetainedStore::<u64>::new(1));
        retained.set(name("t"), 0);
        let setter = {
            let retained = Arc::clone(&retained);
            thread::spawn(move || retained.set(name("t"), 1))
        };
        let clearer = {
            let retained = Arc::clone(&retained);
            thread::spawn(move || retained.remove(name("t")))
        };
        let (replaced, removed) = both(setter, clearer);

        let expected = match (replaced, removed) {
            (Some(0), Some(1)) => None,
            (None, Some(0)) => Some(1),
            other => panic!("{other:?}"),
        };
        assert_eq!(retained.get(name("t")), expected);
        assert_eq!(retained.len(), usize::from(expected.is_some()));
        retained.audit().unwrap();
    });
}
