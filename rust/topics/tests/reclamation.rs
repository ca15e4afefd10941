//! Memory that waits for readers, and the remains of removed subscribers.

mod oracle;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Barrier;
use std::thread;

use mqttcore_codec::QoS;
use mqttcore_topics::{
    Change, Directory, Match, Options, Strategy, SubscriberId, SubscriptionFilter, Visitor,
};
use oracle::{filter, name};

const OPTIONS: Options = Options::at(QoS::AtLeastOnce);

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

fn subscribe(directory: &Directory, id: SubscriberId, filter: &SubscriptionFilter) -> bool {
    let options = OPTIONS;
    directory.commit(id, &[Change::Subscribe { filter, options }])[0].first_or_last
}

fn unsubscribe(directory: &Directory, id: SubscriberId, filter: &SubscriptionFilter) -> bool {
    directory.commit(id, &[Change::Unsubscribe { filter }])[0].first_or_last
}

fn receivers(directory: &Directory, topic: &str) -> Vec<u64> {
    let mut handles = Handles::default();
    directory
        .snapshot()
        .match_one(name(topic), None, 0, &mut handles);
    handles.0
}

#[test]
#[cfg_attr(miri, ignore = "retires 60 MB")]
fn writers_wait_for_a_reader_that_holds_back_too_much_and_no_longer_than_that() {
    let directory = Directory::new(1, Strategy::RoundRobin);
    let wide = filter("a/+");
    for handle in 0..200 {
        subscribe(&directory, directory.join(handle), &wide);
    }
    let id = directory.join(200);
    let (pinned, may_go) = (Barrier::new(2), Barrier::new(2));

    thread::scope(|scope| {
        scope.spawn(|| {
            let _snapshot = directory.snapshot();
            pinned.wait();
            may_go.wait();
        });
        pinned.wait();
        // Each commit copies 1.6 KB and more, none of which can be freed.
        let mut writes = 0;
        while directory.stats().garbage_waits < 5 {
            subscribe(&directory, id, &wide);
            unsubscribe(&directory, id, &wide);
            writes += 1;
            assert!(writes < 1_000_000, "nobody waited");
        }
        assert!(directory.stats().retired_bytes > 48 << 20);
        assert!(directory.stats().retired_bytes <= 64 << 20);
        may_go.wait();
    });

    // The reader is gone: the next commits free what it held back, and wait no more.
    for _ in 0..10_000_000 {
        subscribe(&directory, id, &wide);
        unsubscribe(&directory, id, &wide);
        if directory.stats().retired_bytes < 32 << 20 {
            return;
        }
    }
    panic!("{} bytes are still held", directory.stats().retired_bytes);
}

#[test]
#[cfg_attr(miri, ignore = "retires 70 MB")]
fn a_writer_does_not_wait_for_a_pin_of_its_own() {
    let directory = Directory::new(1, Strategy::RoundRobin);
    let wide = filter("a/+");
    for handle in 0..250 {
        subscribe(&directory, directory.join(handle), &wide);
    }
    let id = directory.join(250);

    let snapshot = directory.snapshot();
    while directory.stats().retired_bytes < 70 << 20 {
        subscribe(&directory, id, &wide);
        unsubscribe(&directory, id, &wide);
    }

    assert_eq!(directory.stats().garbage_waits, 0);
    drop(snapshot);
}

#[test]
fn a_commit_drops_removed_subscribers_from_the_set_that_it_copies() {
    // The dead are numbered 0 to 149, in one array with the living or in the first of several.
    for living in [1, 3, 100, 200, 400] {
        let directory = Directory::new(2, Strategy::RoundRobin);
        let filters = ["x/+", "$share/g/x/+"].map(filter);
        let dead: Vec<_> = (0..150).map(|_| directory.join(1)).collect();
        let alive: Vec<_> = (0..living).map(|_| directory.join(2)).collect();
        for id in dead.iter().chain(&alive) {
            for filter in &filters {
                subscribe(&directory, *id, filter);
            }
        }
        for id in dead {
            directory.leave(id);
        }
        assert_eq!(directory.stats().subscriptions, 2 * (150 + living));

        for filter in &filters {
            let before = directory.stats().subscriptions;
            let is_last = unsubscribe(&directory, alive[0], filter);
            assert_eq!(is_last, living == 1 && filter.is_shared());
            assert!(directory.stats().subscriptions < before - 1, "{living}");
            directory.audit().unwrap();
        }

        let plain = receivers(&directory, "x/y");
        assert_eq!(plain.len(), living - 1 + usize::from(living > 1));
        directory.clean(usize::MAX);
        assert_eq!(directory.stats().subscriptions, 2 * (living - 1));
        directory.audit().unwrap();
    }
}

#[test]
fn each_filter_comes_and_goes_strictly_in_turn() {
    let directory = Directory::new(3, Strategy::RoundRobin);
    let filters: Vec<_> = ["a", "a/+", "$share/g/a", "b/#"].map(filter).to_vec();
    let mut present: BTreeMap<String, bool> = BTreeMap::new();
    let mut ids: Vec<_> = (0..6).map(|handle| directory.join(handle)).collect();
    let mut toggle = |filter: &SubscriptionFilter, came: bool| {
        let before = present.insert(filter.filter().as_str().to_owned(), came);
        assert_eq!(before.unwrap_or(false), !came, "{filter} {came}");
    };
    let mut state = 7_u64;
    for _ in 0..3_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let draw = usize::try_from(state >> 40).unwrap();
        let (index, filter) = (draw % 6, &filters[draw / 6 % 4]);
        match draw / 24 % 8 {
            0..4 => {
                if subscribe(&directory, ids[index], filter) {
                    toggle(filter, true);
                }
            }
            4..6 => {
                if unsubscribe(&directory, ids[index], filter) {
                    toggle(filter, false);
                }
            }
            6 => {
                directory.leave(ids[index]);
                ids[index] = directory.join(9);
            }
            _ => {
                directory.clean_with(draw % 3, &mut |filter| toggle(filter, false));
            }
        }
    }
    for id in ids {
        directory.leave(id);
    }
    directory.clean_with(usize::MAX, &mut |filter| toggle(filter, false));

    assert!(present.values().all(|is_there| !is_there));
    assert_eq!(directory.stats().filters, 0);
}

#[test]
fn cleaning_is_due_when_many_subscribers_are_removed_and_they_are_many_of_all() {
    let directory = Directory::new(4, Strategy::RoundRobin);
    let filters: Vec<_> = (0..2_000)
        .map(|number| filter(&format!("f/{number}")))
        .collect();
    let stays = directory.join(1);
    let leaves = directory.join(2);
    for (number, filter) in filters.iter().enumerate() {
        subscribe(&directory, stays, filter);
        if number < 1_025 {
            subscribe(&directory, leaves, filter);
        }
    }
    assert!(!directory.is_sweep_due());

    directory.leave(leaves);

    assert!(directory.is_sweep_due());
    directory.clean(1);
    assert!(!directory.is_sweep_due());
}

#[test]
fn a_listing_visits_what_stays_exactly_once_while_others_come_and_go() {
    let directory = Directory::new(5, Strategy::RoundRobin);
    let mut expected = Vec::new();
    for client in 0..40_u64 {
        let id = directory.join(client);
        for number in 0..client * 3 {
            let text = match number % 4 {
                0 => format!("a/{number}"),
                1 => format!("a/+/{number}"),
                2 => format!("$share/g{client}/a/{number}/#"),
                _ => format!("+/{number}/#"),
            };
            let options = Options {
                id: NonZeroU32::new(u32::try_from(number + 1).unwrap()),
                ..OPTIONS
            };
            let filter = filter(&text);
            directory.commit(
                id,
                &[Change::Subscribe {
                    filter: &filter,
                    options,
                }],
            );
            expected.push((client, text, options.id));
        }
    }
    let (churning, churned) = (directory.join(1_000), filter("churn/+"));
    let mut seen = Vec::new();
    let mut listing = None;
    let mut calls = 0;
    loop {
        let mut visited = 0;
        listing = directory.list(listing, 10, &mut |handle, filter, options| {
            visited += 1;
            if handle != 1_000 {
                seen.push((handle, filter.to_string(), options.id));
            }
        });
        assert!(visited <= 10 + 32);
        calls += 1;
        subscribe(&directory, churning, &churned);
        let other = directory.join(1_000);
        subscribe(&directory, other, &churned);
        directory.leave(other);
        directory.clean(1);
        if listing.is_none() {
            break;
        }
        assert!(calls < 10_000);
    }

    seen.sort();
    expected.sort();
    assert_eq!(seen, expected);
    assert!(calls > 50);
}
