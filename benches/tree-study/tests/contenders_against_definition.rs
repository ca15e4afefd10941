//! Every contender finds what the definition finds: a bench against a wrong peer would measure nothing.

use std::collections::BTreeMap;

use mqttcore_topics::{SubscriptionFilter, TopicLimits, TopicName};
use mqttcore_tree_study::contenders::hamt::{Hamt, Imbl, Rpds};
use mqttcore_tree_study::contenders::{
    Contender, ctrie::CTrie, emqx::Emqx, moquette::Moquette, nats::Nats, ours::Ours,
    rwlock_trie::RwLockTrie,
};
use proptest::prelude::*;

/// More than a map, an array or a list of few holds, so that filters of many subscribers occur.
const CLIENTS: u32 = 300;

#[derive(Clone, Debug)]
enum Step {
    Subscribe(String, u32, u8),
    Unsubscribe(String, u32),
    Match(String),
}

fn word() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "a",
        "b",
        "",
        "$a",
        "a-word-of-many-bytes",
        "!",
        "\u{e9}",
    ])
}

fn topic() -> impl Strategy<Value = String> {
    let topic = prop::collection::vec(word(), 1..5).prop_map(|words| words.join("/"));
    topic.prop_map(|topic| {
        if topic.is_empty() {
            "/".to_owned()
        } else {
            topic
        }
    })
}

fn filter() -> impl Strategy<Value = String> {
    let word = prop_oneof![3 => word(), 2 => Just("+")];
    (prop::collection::vec(word, 0..5), any::<bool>()).prop_map(|(mut words, is_hash)| {
        if is_hash || words.concat().is_empty() {
            words.push("#");
        }
        words.join("/")
    })
}

fn client() -> impl Strategy<Value = u32> {
    prop_oneof![0..4_u32, 0..CLIENTS]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (filter(), client(), 0..3_u8).prop_map(|(text, client, qos)| Step::Subscribe(text, client, qos)),
        3 => (filter(), client()).prop_map(|(text, client)| Step::Unsubscribe(text, client)),
        2 => topic().prop_map(Step::Match),
    ]
}

fn parse(text: &str) -> SubscriptionFilter {
    SubscriptionFilter::parse(text, &TopicLimits::default()).expect("a filter")
}

fn name(text: &str) -> TopicName<'_> {
    TopicName::parse(text, &TopicLimits::default()).expect("a topic")
}

/// Clients and the QoS of each match.
type Found = Vec<(u32, u8)>;

/// The clients of a topic and the QoS of each match, by the definition alone.
fn by_definition(model: &BTreeMap<(String, u32), u8>, topic: TopicName<'_>) -> Found {
    let matching = model
        .iter()
        .filter(|((text, _), _)| parse(text).filter().matches(topic));
    sorted(matching.map(|((_, client), qos)| (*client, *qos)).collect())
}

fn sorted(mut found: Found) -> Found {
    found.sort_unstable();
    found
}

/// Overlapping subscriptions of one client merged, as ours hands them out: the highest QoS.
fn merged(found: Found) -> Found {
    let best = found
        .into_iter()
        .fold(BTreeMap::new(), |mut best, (client, qos)| {
            let slot = best.entry(client).or_insert(qos);
            *slot = qos.max(*slot);
            best
        });
    best.into_iter().collect()
}

fn run<C: Contender>(steps: &[Step], order: fn(Found) -> Found) {
    let mut contender = C::new();
    contender.admit(CLIENTS);
    let (mut model, mut reader) = (BTreeMap::new(), C::Reader::default());
    for step in steps {
        match step {
            Step::Subscribe(text, client, qos) => {
                let is_new = model.insert((text.clone(), *client), *qos).is_none();
                assert_eq!(
                    contender.subscribe(&parse(text), *client, *qos),
                    is_new,
                    "{} {step:?}",
                    C::NAME
                );
            }
            Step::Unsubscribe(text, client) => {
                let was_there = model.remove(&(text.clone(), *client)).is_some();
                assert_eq!(
                    contender.unsubscribe(&parse(text), *client),
                    was_there,
                    "{} {step:?}",
                    C::NAME
                );
            }
            Step::Match(text) => {
                let topic = name(text);
                let mut found = Vec::new();
                contender
                    .for_each_match(&mut reader, topic, |client, qos| found.push((client, qos)));
                let expected = order(by_definition(&model, topic));
                assert_eq!(order(sorted(found)), expected, "{} {step:?}", C::NAME);
            }
        }
    }
}

fn run_all(steps: &[Step]) {
    run::<RwLockTrie>(steps, sorted);
    run::<Nats<false>>(steps, sorted);
    run::<Nats<true>>(steps, sorted);
    run::<Moquette>(steps, sorted);
    run::<CTrie>(steps, sorted);
    run::<Emqx>(steps, sorted);
    run::<Hamt<Imbl>>(steps, sorted);
    run::<Hamt<Rpds>>(steps, sorted);
    run::<Ours>(steps, merged);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_contender_matches_what_the_definition_matches(steps in prop::collection::vec(step(), 1..120)) {
        run_all(&steps);
    }
}

#[test]
fn a_filter_of_many_subscribers_grows_and_shrinks_in_every_contender() {
    let mut steps = Vec::new();
    for client in 0..CLIENTS {
        steps.push(Step::Subscribe("a/+".to_owned(), client, 1));
        steps.extend((client % 50 == 0).then(|| Step::Match("a/b".to_owned())));
    }
    for client in 0..CLIENTS {
        steps.push(Step::Unsubscribe("a/+".to_owned(), client));
        steps.extend((client % 20 == 0).then(|| Step::Match("a/b".to_owned())));
    }
    run_all(&steps);
}

fn loaded<C: Contender>(filters: &[SubscriptionFilter]) {
    let contender = C::load(filters);
    let topic = name("a/b");
    let mut found = Vec::new();
    contender.for_each_match(&mut C::Reader::default(), topic, |client, _| {
        found.push(client);
    });
    found.sort_unstable();
    assert_eq!(found, [0, 1, 2, 4], "{}", C::NAME);
    assert!(contender.unsubscribe(&filters[1], 1), "{}", C::NAME);
}

#[test]
fn what_is_loaded_in_bulk_is_subscribed() {
    let filters = ["a/b", "a/+", "#", "b/a", "a/+"].map(parse);
    loaded::<RwLockTrie>(&filters);
    loaded::<Nats<false>>(&filters);
    loaded::<Nats<true>>(&filters);
    loaded::<Moquette>(&filters);
    loaded::<CTrie>(&filters);
    loaded::<Emqx>(&filters);
    loaded::<Hamt<Imbl>>(&filters);
    loaded::<Hamt<Rpds>>(&filters);
    loaded::<Ours>(&filters);
}
