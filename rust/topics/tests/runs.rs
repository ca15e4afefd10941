//! Runs: entries of the tree whose text is several levels, divided where a filter leaves them and joined again.

mod oracle;

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use mqttcore_codec::QoS;
use mqttcore_topics::{
    Change, Directory, Options, RetainedStore, Strategy as Choice, SubscriberId,
};
use oracle::{Receivers, filter, name};
use proptest::prelude::*;

fn directory(mask: u64) -> (Directory, SubscriberId) {
    let directory = Directory::with_hash_mask(5, Choice::RoundRobin, mask);
    let id = directory.join(7);
    (directory, id)
}

/// A Subscription Identifier that tells the filter from others: its text as a number.
fn number(text: &str) -> NonZeroU32 {
    let digits = text.bytes().map(|byte| byte % 13);
    let number = digits.fold(1, |number, digit| {
        (number * 13 + u32::from(digit)) % 268_435_399
    });
    NonZeroU32::new(number + 1).expect("at least 1")
}

fn subscribe(directory: &Directory, id: SubscriberId, text: &str) {
    let (filter, options) = (
        &filter(text),
        Options {
            id: Some(number(text)),
            ..Options::at(QoS::AtMostOnce)
        },
    );
    directory.commit(id, &[Change::Subscribe { filter, options }]);
}

fn unsubscribe(directory: &Directory, id: SubscriberId, text: &str) {
    let filter = &filter(text);
    directory.commit(id, &[Change::Unsubscribe { filter }]);
}

/// The texts of the entries of a tree, in the order of its walk.
fn entries(directory: &Directory) -> Vec<String> {
    let shape = directory.audit().expect("a sound tree");
    let words = shape.split(' ');
    words
        .filter_map(|word| word.strip_prefix("entry:").map(str::to_owned))
        .collect()
}

#[test]
fn a_run_is_divided_where_a_filter_leaves_it_and_joined_when_that_goes() {
    let (directory, id) = directory(u64::MAX);
    subscribe(&directory, id, "a/b/+/c/x/#");
    subscribe(&directory, id, "a/b/+/c/y/#");
    assert_eq!(entries(&directory), ["a/b/+/c"]);

    for (text, divided) in [
        ("a/#", vec!["a", "b/+/c"]),
        ("a/+", vec!["a", "b/+/c"]),
        ("a/b/+", vec!["a/b/+", "c"]),
        ("a/b/d/+", vec!["a/b", "+/c"]),
        ("a/b/+/d", vec!["a/b/+", "c"]),
        ("a/b/+/c", vec!["a/b/+/c"]),
    ] {
        subscribe(&directory, id, text);
        assert_eq!(entries(&directory), divided, "{text}");

        unsubscribe(&directory, id, text);
        assert_eq!(entries(&directory), ["a/b/+/c"], "{text}");
    }
}

/// Levels of which filters share many.
fn filters() -> impl Strategy<Value = String> {
    let level = prop::sample::select(vec!["a", "a", "a", "b", "", "+", "+"]);
    let tail = prop::sample::select(vec!["", "", "/#", "/+"]);
    (prop::collection::vec(level, 1..=6), tail)
        .prop_map(|(levels, tail)| format!("{}{tail}", levels.join("/")))
        .prop_filter("no filter", |text| !text.is_empty())
}

/// Every topic of up to five levels.
fn topics() -> Vec<String> {
    let mut all = vec![String::new()];
    let mut last = vec![String::new()];
    for depth in 0..5 {
        let deeper = last.iter().flat_map(|front| {
            let separator = if depth == 0 { "" } else { "/" };
            ["a", "b", ""].map(|level| format!("{front}{separator}{level}"))
        });
        last = deeper.collect();
        all.extend_from_slice(&last);
    }
    all.retain(|topic| !topic.is_empty());
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_history_ends_in_the_shape_of_its_content_and_matches_by_definition(
        steps in prop::collection::vec((filters(), 0..3), 1..60),
        mask in prop::sample::select(vec![u64::MAX, 0x0400_0000_0021, 0]),
    ) {
        let (directory, id) = directory(mask);
        let mut left = BTreeSet::new();
        for (text, what) in &steps {
            // The drawn filter comes, or goes where it may never have been, or another goes.
            let other = left.iter().nth(left.len() / 2);
            let text = if *what == 2 { other.unwrap_or(text) } else { text }.clone();
            if *what == 0 {
                subscribe(&directory, id, &text);
                left.insert(text);
            } else {
                unsubscribe(&directory, id, &text);
                left.remove(&text);
            }
            directory.audit().map_err(TestCaseError::fail)?;
        }

        let (fresh, fresh_id) = self::directory(mask);
        for text in &left {
            subscribe(&fresh, fresh_id, text);
            prop_assert!(directory.options(id, &filter(text)).is_some(), "{}", text);
        }
        prop_assert_eq!(directory.audit(), fresh.audit());
        for topic in &topics() {
            let topic = name(topic);
            let matching = left.iter().filter(|text| filter(text).filter().matches(topic));
            let mut expected: Vec<_> = matching.map(|text| number(text)).collect();
            expected.sort_unstable();
            let (mut one, mut turns) = (Receivers::default(), Receivers::default());
            directory.snapshot().match_one(topic, None, 0, &mut one);
            directory.snapshot().match_interleaved(&[topic], None, 0, &mut turns);
            let seen = one.plain.first().map_or(vec![], |seen| seen.ids.clone());
            prop_assert_eq!(seen, expected, "{}", topic.as_str());
            prop_assert_eq!(&one, &turns);
        }
    }

    #[test]
    fn a_walk_over_runs_pages_through_all_that_a_filter_matches(
        kept in prop::collection::btree_set(prop::sample::select(topics()), 1..80),
        gone in prop::collection::vec(prop::sample::select(topics()), 0..40),
        asked in filters(),
        limit in 1_usize..5,
    ) {
        let retained = RetainedStore::new(3);
        for topic in kept.iter().chain(&gone) {
            retained.set(name(topic), topic.clone());
        }
        for topic in gone.iter().filter(|topic| !kept.contains(*topic)) {
            retained.remove(name(topic));
        }
        let asked = filter(&asked);

        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let visit = &mut |topic: &str, value: &String| {
                assert_eq!(topic, value);
                seen.push(value.clone());
            };
            cursor = retained.walk(asked.filter(), cursor, limit, visit);
            if cursor.is_none() {
                break;
            }
        }

        seen.sort();
        let expected = kept.iter().filter(|topic| asked.filter().matches(name(topic)));
        prop_assert_eq!(seen, expected.cloned().collect::<Vec<_>>());
    }
}
