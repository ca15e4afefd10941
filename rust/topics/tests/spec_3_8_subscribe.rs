//! MQTT 5.0 sections 3.3.4, 3.8 and 3.10: what subscriptions do to who gets a message.

mod oracle;

use std::num::NonZeroU32;

use mqttcore_codec::QoS;
use mqttcore_topics::{Change, ChangeOutcome, Directory, Options, Strategy};
use oracle::{Receivers, filter, name};

const AT_ONE: Options = Options::at(QoS::AtLeastOnce);

fn directory() -> Directory {
    Directory::new(1, Strategy::RoundRobin)
}

/// [MQTT-3.8.3-3] No Local keeps a message from whoever published it, and from nobody else.
#[test]
fn mqtt_3_8_3_3_no_local_keeps_a_message_from_its_publisher() {
    let directory = directory();
    let (publisher, other) = (directory.join(1), directory.join(2));
    let (options, filter) = (
        Options {
            no_local: true,
            ..AT_ONE
        },
        filter("a"),
    );
    for id in [publisher, other] {
        directory.commit(
            id,
            &[Change::Subscribe {
                filter: &filter,
                options,
            }],
        );
    }

    let mut receivers = Receivers::default();
    directory
        .snapshot()
        .match_one(name("a"), Some(publisher), 0, &mut receivers);

    assert_eq!(
        receivers
            .plain
            .iter()
            .map(|seen| seen.handle)
            .collect::<Vec<_>>(),
        [2]
    );
}

/// [MQTT-3.3.4-2] Overlapping subscriptions deliver once, with the maximum QoS; [MQTT-3.3.4-4] with all identifiers.
/// No Local is looked at first, so the subscription that has it adds nothing.
#[test]
fn mqtt_3_3_4_2_overlapping_subscriptions_deliver_once_with_the_maximum_qos() {
    let directory = directory();
    let id = directory.join(1);
    let identifier = NonZeroU32::new(7);
    let filters = ["a/b", "a/+", "#"].map(filter);
    let options = [
        Options {
            id: identifier,
            ..Options::at(QoS::AtMostOnce)
        },
        Options {
            id: identifier,
            retain_as_published: true,
            ..AT_ONE
        },
        Options {
            no_local: true,
            ..Options::at(QoS::ExactlyOnce)
        },
    ];
    let changes: Vec<_> = filters
        .iter()
        .zip(options)
        .map(|(filter, options)| Change::Subscribe { filter, options })
        .collect();
    directory.commit(id, &changes);

    let mut receivers = Receivers::default();
    directory
        .snapshot()
        .match_one(name("a/b"), Some(id), 0, &mut receivers);

    let [only] = receivers.plain.as_slice() else {
        panic!("{:?}", receivers.plain)
    };
    assert_eq!(only.qos, QoS::AtLeastOnce);
    assert!(only.retain_as_published);
    assert_eq!(
        only.ids.iter().map(|id| id.get()).collect::<Vec<_>>(),
        [7, 7]
    );
}

/// [MQTT-3.8.4-3] A subscription with the same filter replaces the one before.
#[test]
fn mqtt_3_8_4_3_a_second_subscription_replaces_the_first() {
    let directory = directory();
    let (id, filter) = (directory.join(1), filter("a/+"));
    directory.commit(
        id,
        &[Change::Subscribe {
            filter: &filter,
            options: AT_ONE,
        }],
    );

    let options = Options::at(QoS::AtMostOnce);
    let outcomes = directory.commit(
        id,
        &[Change::Subscribe {
            filter: &filter,
            options,
        }],
    );

    assert_eq!(
        outcomes,
        [ChangeOutcome {
            existed: true,
            first_or_last: false
        }]
    );
    let mut receivers = Receivers::default();
    directory
        .snapshot()
        .match_one(name("a/b"), None, 0, &mut receivers);
    assert_eq!(receivers.plain.len(), 1);
    assert_eq!(receivers.plain[0].qos, QoS::AtMostOnce);
}

/// [MQTT-3.10.4-1] An unsubscribe compares the whole filter: what only covers it, or begins with it, stays.
#[test]
fn mqtt_3_10_4_1_an_unsubscribe_removes_exactly_its_filter() {
    let directory = directory();
    let id = directory.join(1);
    let filters = ["a/b/#", "a/#", "a/b"].map(filter);
    for filter in &filters {
        directory.commit(
            id,
            &[Change::Subscribe {
                filter,
                options: AT_ONE,
            }],
        );
    }
    let version = directory.stats().version;

    for absent in ["a/b/c/#", "a/+", "a", "$share/g/a/b", "a/b/c"].map(filter) {
        let outcomes = directory.commit(id, &[Change::Unsubscribe { filter: &absent }]);
        assert_eq!(outcomes, [ChangeOutcome::default()], "{absent}");
    }
    assert_eq!(directory.stats().version, version);

    let outcomes = directory.commit(
        id,
        &[Change::Unsubscribe {
            filter: &filters[2],
        }],
    );
    assert_eq!(
        outcomes,
        [ChangeOutcome {
            existed: true,
            first_or_last: true
        }]
    );
    assert_eq!(directory.stats().filters, 2);
}

#[test]
fn a_subscriber_that_left_changes_nothing_any_more() {
    let directory = directory();
    let (id, filter) = (directory.join(1), filter("a"));
    directory.leave(id);

    let outcomes = directory.commit(
        id,
        &[Change::Subscribe {
            filter: &filter,
            options: AT_ONE,
        }],
    );

    assert_eq!(outcomes, [ChangeOutcome::default()]);
    assert_eq!(directory.stats().subscriptions, 0);
}

#[test]
fn cleaning_removes_what_was_left_behind_a_bounded_part_a_call() {
    let directory = directory();
    let (id, other) = (directory.join(1), directory.join(2));
    for number in 0..1_000 {
        let filter = filter(&format!("a/{number}/#"));
        directory.commit(
            id,
            &[Change::Subscribe {
                filter: &filter,
                options: AT_ONE,
            }],
        );
    }
    directory.commit(
        other,
        &[Change::Subscribe {
            filter: &filter("a/0/#"),
            options: AT_ONE,
        }],
    );
    directory.leave(id);

    assert_eq!(directory.clean(0), 1_000);
    assert_eq!(directory.clean(300), 700);
    assert_eq!(directory.stats().subscriptions, 701);
    assert_eq!(directory.clean(10_000), 0);

    let stats = directory.stats();
    assert_eq!(
        (stats.subscribers, stats.subscriptions, stats.filters),
        (1, 1, 1)
    );
}
