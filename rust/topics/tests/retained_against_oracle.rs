//! Retained values answer as a sorted map does, however the walk is cut into calls.
#![expect(
    clippy::unwrap_used,
    reason = "helpers outside of #[test] functions, too, are tests"
)]

use std::collections::{BTreeMap, BTreeSet};

use mqttcore_topics::{RetainedCursor, RetainedStore, TopicFilter, TopicLimits, TopicName};
use proptest::prelude::*;

const FILTERS: [&str; 20] = [
    "#",
    "+",
    "+/+",
    "+/#",
    "a/#",
    "a/+",
    "a/b",
    "a",
    "/",
    "/#",
    "+/b/#",
    "$x/#",
    "$x/+",
    "$x",
    "a/+/c",
    "+/+/+",
    "a//#",
    "long level/#",
    "b/+/#",
    "zz/#",
];

/// Hash masks: all bits, few, and none, so that collision lists and deep branches come up.
const MASKS: [u64; 4] = [u64::MAX, 0x0400_0000_0021, 0b11, 0];

#[derive(Clone, Debug)]
enum Step {
    Set(String, String),
    Remove(String),
}

fn topic() -> impl Strategy<Value = String> {
    let level = prop::sample::select(vec!["", "a", "a", "b", "c", "$x", "long level"]);
    prop::collection::vec(level, 1..=4)
        .prop_map(|levels| levels.join("/"))
        .prop_filter("empty", |text| !text.is_empty())
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (topic(), "[a-z]{0,9}").prop_map(|(topic, value)| Step::Set(topic, value)),
        1 => topic().prop_map(Step::Remove),
    ]
}

fn name(text: &str) -> TopicName<'_> {
    TopicName::parse(text, &TopicLimits::default()).unwrap()
}

fn filter(text: &str) -> TopicFilter {
    TopicFilter::parse(text, &TopicLimits::default()).unwrap()
}

fn store(mask: u64) -> RetainedStore<String> {
    RetainedStore::with_hash_mask(11, String::len, mask)
}

fn run(retained: &RetainedStore<String>, oracle: &mut BTreeMap<String, String>, step: &Step) {
    match step {
        Step::Set(topic, value) => {
            let old = retained.set(name(topic), value.clone());
            assert_eq!(old, oracle.insert(topic.clone(), value.clone()));
        }
        Step::Remove(topic) => assert_eq!(retained.remove(name(topic)), oracle.remove(topic)),
    }
}

/// One call, as an owned list.
fn page(
    retained: &RetainedStore<String>,
    filter: &TopicFilter,
    cursor: Option<RetainedCursor>,
    limit: usize,
) -> (Vec<(String, String)>, Option<RetainedCursor>) {
    let mut seen = Vec::new();
    let rest = retained.walk(filter, cursor, limit, &mut |topic, value| {
        seen.push((topic.to_owned(), value.clone()));
    });
    assert!(seen.len() <= limit);
    (seen, rest)
}

fn all(
    retained: &RetainedStore<String>,
    filter: &TopicFilter,
    limit: usize,
) -> Vec<(String, String)> {
    let (mut seen, mut cursor) = page(retained, filter, None, limit);
    while let Some(next) = cursor {
        let (more, rest) = page(retained, filter, Some(next), limit);
        seen.extend(more);
        cursor = rest;
    }
    seen.sort();
    seen
}

proptest! {
    #[test]
    fn a_history_answers_as_a_map(
        steps in prop::collection::vec(step(), 1..80),
        mask in prop::sample::select(MASKS.to_vec()),
        limit in 1_usize..9,
    ) {
        let (retained, mut oracle) = (store(mask), BTreeMap::new());
        for step in &steps {
            run(&retained, &mut oracle, step);
            retained.audit().map_err(TestCaseError::fail)?;
            prop_assert_eq!(retained.len(), oracle.len());
            prop_assert_eq!(retained.weight(), oracle.values().map(String::len).sum::<usize>());
        }
        for text in FILTERS {
            let filter = filter(text);
            let expected: Vec<_> = oracle
                .iter()
                .filter(|(topic, _)| filter.matches(name(topic)))
                .map(|(topic, value)| (topic.clone(), value.clone()))
                .collect();
            prop_assert_eq!(&all(&retained, &filter, usize::MAX), &expected, "{}", text);
            prop_assert_eq!(&all(&retained, &filter, limit), &expected, "{} by {}", text, limit);
        }
        for (topic, value) in &oracle {
            prop_assert_eq!(retained.get(name(topic)), Some(value.clone()));
            prop_assert_eq!(retained.remove(name(topic)), Some(value.clone()));
        }
        prop_assert_eq!((retained.len(), retained.weight()), (0, 0));
        prop_assert_eq!(retained.audit(), Ok(0));
    }

    /// Topics come and go between the calls: what stays is seen once, what was never there is not seen.
    #[test]
    fn a_walk_survives_changes_between_its_calls(
        before in prop::collection::vec(step(), 1..60),
        meanwhile in prop::collection::vec(prop::collection::vec(step(), 0..4), 1..40),
        mask in prop::sample::select(MASKS.to_vec()),
        limit in 1_usize..4,
        text in prop::sample::select(FILTERS.to_vec()),
    ) {
        let (retained, mut oracle) = (store(mask), BTreeMap::new());
        for step in &before {
            run(&retained, &mut oracle, step);
        }
        let filter = filter(text);
        let matching = |topic: &&String| filter.matches(name(topic));
        let mut always: BTreeSet<String> = oracle.keys().filter(matching).cloned().collect();
        let mut ever = always.clone();

        let (mut seen, mut cursor) = page(&retained, &filter, None, limit);
        let mut changes = meanwhile.iter();
        while let Some(next) = cursor {
            for step in changes.next().into_iter().flatten() {
                run(&retained, &mut oracle, step);
                match step {
                    Step::Set(topic, _) => ever.extend(Some(topic).filter(matching).cloned()),
                    Step::Remove(topic) => drop(always.remove(topic)),
                }
            }
            let (more, rest) = page(&retained, &filter, Some(next), limit);
            seen.extend(more);
            cursor = rest;
        }

        let mut topics: Vec<String> = seen.into_iter().map(|(topic, _)| topic).collect();
        topics.sort();
        let distinct: BTreeSet<String> = topics.iter().cloned().collect();
        prop_assert!(always.is_subset(&distinct), "missed one of {:?}", always);
        prop_assert!(distinct.is_subset(&ever));
        let twice: Vec<_> = topics.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        prop_assert!(twice.is_empty(), "{:?}", twice);
    }
}

#[test]
fn mqtt_4_7_2_1_a_leading_wildcard_does_not_reach_retained_dollar_topics() {
    let retained = RetainedStore::new(1);
    retained.set(name("$SYS/load"), 1);
    retained.set(name("$SYS/uptime"), 2);
    retained.set(name("a/$SYS"), 3);

    let mut seen = Vec::new();
    for text in ["#", "+/load", "+/#", "$SYS/#"] {
        retained.walk(&filter(text), None, 100, &mut |_, value| {
            seen.push((text, *value));
        });
    }

    seen.sort_unstable();
    assert_eq!(seen, [("#", 3), ("$SYS/#", 1), ("$SYS/#", 2), ("+/#", 3)]);
}

#[test]
fn a_call_looks_at_no_more_than_its_limit_even_when_nothing_matches() {
    let retained = RetainedStore::new(1);
    for number in 0..1000 {
        retained.set(name(&format!("a/{number}/x")), number);
        retained.set(name(&format!("a/{number}/y")), number);
    }

    let (mut calls, mut cursor) = (0, None);
    loop {
        cursor = retained.walk(&filter("a/+/z"), cursor, 10, &mut |_, _| panic!("no match"));
        calls += 1;
        if cursor.is_none() {
            break;
        }
    }

    assert!((100..=110).contains(&calls), "{calls}");
}
