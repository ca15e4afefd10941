//! Filters and topics are chosen by strangers: long ones, deep ones, and ones whose hashes are equal.
//!
//! How much a publish visits is counted in `src/directory/effort.rs`.

mod oracle;

use std::thread;

use mqttcore_codec::QoS;
use mqttcore_topics::{
    Change, Directory, MAX_LEVELS, Options, Strategy, SubscriptionFilter, TopicError, TopicFilter,
    TopicLimits, TopicName,
};
use oracle::{Receivers, filter, name};

const OPTIONS: Options = Options::at(QoS::AtLeastOnce);

fn levels(count: usize) -> String {
    vec!["a"; count].join("/")
}

#[test]
fn a_text_deeper_than_the_limit_is_refused_with_that_reason() {
    let limits = TopicLimits::default();
    assert_eq!(limits.levels, 128);

    for text in [levels(128), format!("{}/#", levels(127)), "/".repeat(127)] {
        assert!(TopicFilter::parse(&text, &limits).is_ok());
    }
    for text in [levels(129), format!("{}/#", levels(128)), "/".repeat(128)] {
        let error = TopicFilter::parse(&text, &limits).unwrap_err();
        assert_eq!(error, TopicError::TooManyLevels);
        assert_eq!(error.to_string(), "topic has more levels than the limit");
    }
    let shared = format!("$share/g/{}", levels(129));
    assert_eq!(
        SubscriptionFilter::parse(&shared, &limits).unwrap_err(),
        TopicError::TooManyLevels
    );
    assert_eq!(
        TopicName::parse(&levels(129), &limits).unwrap_err(),
        TopicError::TooManyLevels
    );
}

#[test]
fn no_limit_allows_more_than_the_cap() {
    let limits = TopicLimits {
        levels: usize::MAX,
        bytes: usize::MAX,
        ..TopicLimits::default()
    };

    assert!(TopicFilter::parse(&levels(MAX_LEVELS), &limits).is_ok());
    assert_eq!(
        TopicFilter::parse(&levels(MAX_LEVELS + 1), &limits).unwrap_err(),
        TopicError::TooManyLevels
    );
}

/// Everything in one bucket, as if somebody had the seed: the answers stay right, in both indices and for groups.
#[test]
fn lists_of_equal_hashes_answer_as_maps_do() {
    const COUNT: u64 = if cfg!(miri) { 12 } else { 300 };
    let directory = Directory::with_hash_mask(1, Strategy::RoundRobin, 0);
    let shapes = |client: u64| {
        [
            format!("exact/{client}"),
            format!("{client}/+"),
            format!("$share/group{client}/groups/+"),
        ]
        .map(|text| filter(&text))
    };
    let ids: Vec<_> = (0..COUNT).map(|client| directory.join(client)).collect();
    for (client, id) in (0..).zip(&ids) {
        let filters = shapes(client);
        let changes = filters.each_ref().map(|filter| Change::Subscribe {
            filter,
            options: OPTIONS,
        });
        directory.commit(*id, &changes);
    }
    let receivers = |topic: &str| {
        let mut receivers = Receivers::that_accept();
        directory
            .snapshot()
            .match_one(name(topic), None, 0, &mut receivers);
        receivers
    };

    for client in 0..COUNT {
        for topic in [format!("exact/{client}"), format!("{client}/x")] {
            let plain = receivers(&topic).plain;
            assert_eq!(plain.len(), 1, "{topic}");
            assert_eq!(plain[0].handle, client, "{topic}");
        }
    }
    assert_eq!(receivers("groups/x").groups.len() as u64, COUNT);
    assert_eq!(directory.audit().err(), None);

    for (client, id) in (0..).zip(&ids) {
        let filters = shapes(client);
        let changes = filters
            .each_ref()
            .map(|filter| Change::Unsubscribe { filter });
        assert!(
            directory
                .commit(*id, &changes)
                .iter()
                .all(|outcome| outcome.existed)
        );
    }
    assert_eq!(directory.stats().nodes, 0);
}

/// A chain of nodes a thousand levels deep, on a stack that a recursive walk of it would not fit.
#[test]
fn nothing_recurses_over_depth() {
    const DEPTH: usize = if cfg!(miri) { 12 } else { 1_000 };
    let limits = TopicLimits {
        levels: MAX_LEVELS,
        ..TopicLimits::default()
    };
    let parse = move |text: &str| SubscriptionFilter::parse(text, &limits).unwrap();
    let work = move || {
        let directory = Directory::new(1, Strategy::RoundRobin);
        let id = directory.join(7);
        // Each level ends a filter, so that no chain folds.
        let filters: Vec<_> = (1..DEPTH)
            .flat_map(|depth| {
                [
                    format!("{}/+", levels(depth)),
                    levels(depth),
                    format!("{}/b/#", levels(depth)),
                ]
            })
            .map(|text| parse(&text))
            .collect();
        for filter in &filters {
            directory.commit(
                id,
                &[Change::Subscribe {
                    filter,
                    options: OPTIONS,
                }],
            );
        }
        let topic = levels(DEPTH);
        let mut receivers = Receivers::default();
        let topic = TopicName::parse(&topic, &limits).unwrap();
        directory
            .snapshot()
            .match_one(topic, None, 0, &mut receivers);
        assert_eq!(receivers.plain.len(), 1);
        for filter in &filters[..filters.len() / 2] {
            assert!(directory.commit(id, &[Change::Unsubscribe { filter }])[0].existed);
        }
        // The other half is dropped with the directory.
        directory.stats().subscriptions
    };
    let thread = thread::Builder::new()
        .stack_size(128 << 10)
        .spawn(work)
        .unwrap();

    assert_eq!(
        thread.join().unwrap(),
        3 * (DEPTH - 1) - 3 * (DEPTH - 1) / 2
    );
}
