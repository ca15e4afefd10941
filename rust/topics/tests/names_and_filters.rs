//! MQTT 5.0 sections 4.7 and 4.8.2: topic names, filters, shared subscriptions.

#![expect(
    clippy::unwrap_used,
    reason = "helpers outside of #[test] functions, too, are tests"
)]

use mqttcore_topics::{SubscriptionFilter, TopicError, TopicFilter, TopicLimits, TopicName};
use proptest::prelude::*;

const LIMITS: TopicLimits = TopicLimits {
    bytes: 4096,
    levels: 128,
    refuse_control_characters: true,
};

fn name(text: &str) -> Result<TopicName<'_>, TopicError> {
    TopicName::parse(text, &LIMITS)
}

fn filter(text: &str) -> TopicFilter {
    TopicFilter::parse(text, &LIMITS).unwrap()
}

fn filter_error(text: &str) -> Option<TopicError> {
    TopicFilter::parse(text, &LIMITS).err()
}

fn share_error(text: &str) -> Option<TopicError> {
    SubscriptionFilter::parse(text, &LIMITS).err()
}

fn matches(pattern: &str, topic: &str) -> bool {
    filter(pattern).matches(name(topic).unwrap())
}

/// [MQTT-4.7.0-1] A topic name has no wildcard; the error differs from those of filters.
#[test]
fn levels_count_from_the_first_plus_on() {
    for (text, levels) in [
        ("a/b", 0),
        ("a/#", 0),
        ("a/+", 1),
        ("+", 1),
        ("a/+/b/+/#", 4),
        ("+/+/+", 3),
        ("+a/b", 0),
    ] {
        let Ok(filter) = TopicFilter::parse(text, &TopicLimits::default()) else {
            assert_eq!(text, "+a/b");
            continue;
        };
        assert_eq!(filter.wildcard_levels(), levels, "{text}");
    }
}

#[test]
fn mqtt_4_7_0_1_a_wildcard_in_a_topic_name_is_refused() {
    for text in ["+", "#", "a/+/b", "a/#", "a+b", "x#"] {
        assert_eq!(name(text), Err(TopicError::WildcardInName), "{text}");
    }
}

#[test]
fn a_topic_is_a_filter_that_matches_it_alone_whatever_limits_it_was_checked_with() {
    let deep = vec!["a"; 300].join("/");
    let deep = TopicName::parse(&deep, &TopicLimits::WIDEST).unwrap();

    let filter = TopicFilter::from(deep);

    assert!(filter.matches(deep));
    assert!(!filter.matches(name("a").unwrap()));
    assert!(!filter.has_wildcard());
    assert_eq!(filter.as_str(), deep.as_str());
}

/// [MQTT-4.7.1-1] `#` is alone in the last level.
#[test]
fn mqtt_4_7_1_1_a_misplaced_hash_is_refused() {
    for text in ["a#", "a/#/b", "##", "#/", "a/b#", "#a", "+#", "#/#"] {
        assert_eq!(
            filter_error(text),
            Some(TopicError::MisplacedMultiLevelWildcard),
            "{text}"
        );
    }
}

/// [MQTT-4.7.1-2] `+` fills its level.
#[test]
fn mqtt_4_7_1_2_a_plus_beside_other_characters_is_refused() {
    for text in ["a+", "+a", "++", "a/b+/c", "/+b"] {
        assert_eq!(
            filter_error(text),
            Some(TopicError::MisplacedSingleLevelWildcard),
            "{text}"
        );
    }
}

/// [MQTT-4.7.1-1], [MQTT-4.7.1-2] Wildcards that fill their level are fine wherever they are allowed.
#[test]
fn mqtt_4_7_1_2_wildcards_that_fill_their_level_are_filters() {
    for text in [
        "+", "#", "/", "//", "+/+", "/+", "+/", "a/+/b/#", "$SYS/#", "/#",
    ] {
        assert_eq!(filter(text).as_str(), text);
    }
}

/// [MQTT-4.7.2-1] A leading wildcard does not reach topics that begin with `$`.
#[test]
fn mqtt_4_7_2_1_a_leading_wildcard_does_not_match_dollar_topics() {
    assert!(!matches("#", "$SYS/load"));
    assert!(!matches("+/load", "$SYS/load"));
    assert!(!matches("+/#", "$SYS"));
    assert!(matches("$SYS/#", "$SYS/load"));
    assert!(matches("$SYS/+", "$SYS/load"));
    assert!(matches("+/$SYS", "a/$SYS"));
    assert!(matches("#", "a/$SYS"));
}

/// [MQTT-4.7.3-1] At least one character.
#[test]
fn mqtt_4_7_3_1_an_empty_topic_is_refused() {
    assert_eq!(name(""), Err(TopicError::Empty));
    assert_eq!(filter_error(""), Some(TopicError::Empty));
}

/// [MQTT-4.7.3-2] No null character.
#[test]
fn mqtt_4_7_3_2_a_null_character_is_refused() {
    assert_eq!(name("a\0b"), Err(TopicError::NullCharacter));
    assert_eq!(filter_error("a/\0/#"), Some(TopicError::NullCharacter));
    assert_eq!(share_error("$share/g\0/a"), Some(TopicError::NullCharacter));
}

/// [MQTT-4.7.3-3] The byte limit, and the wire's own.
#[test]
fn mqtt_4_7_3_3_a_topic_that_is_too_long_is_refused() {
    let wide = TopicLimits {
        bytes: usize::MAX,
        levels: usize::MAX,
        ..LIMITS
    };
    let longest = "a".repeat(65_535);
    let too_long = "a".repeat(65_536);

    assert!(TopicName::parse(&longest, &wide).is_ok());
    assert_eq!(TopicName::parse(&too_long, &wide), Err(TopicError::TooLong));
    assert_eq!(name(&"a".repeat(4097)), Err(TopicError::TooLong));
    assert!(name(&"a".repeat(4096)).is_ok());
}

/// [MQTT-4.7.3-4] Matching is byte for byte: case, empty levels and composition all count.
#[test]
fn mqtt_4_7_3_4_topics_are_not_normalized() {
    assert!(!matches("A/b", "a/b"));
    assert!(!matches("a/b", "a//b"));
    assert!(!matches("\u{e9}", "e\u{301}"));
}

/// [MQTT-4.8.2-1] The share name has at least one character.
#[test]
fn mqtt_4_8_2_1_an_empty_share_name_is_refused() {
    assert_eq!(share_error("$share//t"), Some(TopicError::EmptyShareName));
    assert_eq!(share_error("$share/"), Some(TopicError::EmptyShareName));
}

/// [MQTT-4.8.2-2] The share name has no wildcard and is followed by a filter.
#[test]
fn mqtt_4_8_2_2_a_share_name_is_clean_and_followed_by_a_filter() {
    assert_eq!(
        share_error("$share/+/t"),
        Some(TopicError::WildcardInShareName)
    );
    assert_eq!(
        share_error("$share/g#/t"),
        Some(TopicError::WildcardInShareName)
    );
    assert_eq!(
        share_error("$share/ab"),
        Some(TopicError::ShareWithoutFilter)
    );
    assert_eq!(
        share_error("$share/g/"),
        Some(TopicError::ShareWithoutFilter)
    );
    assert_eq!(
        share_error("$share/g/a#"),
        Some(TopicError::MisplacedMultiLevelWildcard)
    );
}

#[test]
fn a_shared_filter_is_split_once_and_keeps_its_text() {
    let shared = SubscriptionFilter::parse("$share/group/a//+", &LIMITS).unwrap();

    assert_eq!(shared.share().unwrap().as_str(), "group");
    assert_eq!(shared.filter().as_str(), "a//+");
    assert_eq!(shared.as_str(), "$share/group/a//+");
    assert!(shared.filter().has_wildcard());
}

#[test]
fn a_share_prefix_in_other_letters_or_without_a_slash_is_an_ordinary_filter() {
    for text in ["$SHARE/g/t", "$share", "share/g/t", "/$share/g/t"] {
        let plain = SubscriptionFilter::parse(text, &LIMITS).unwrap();
        assert!(!plain.is_shared());
        assert_eq!(plain.filter().as_str(), text);
    }
}

#[test]
fn a_topic_of_nothing_but_separators_is_refused_by_its_levels() {
    let wide = TopicLimits {
        bytes: 65_535,
        ..LIMITS
    };
    let slashes = "/".repeat(65_400);

    assert_eq!(
        TopicName::parse(&slashes, &wide),
        Err(TopicError::TooManyLevels)
    );
    assert_eq!(
        TopicFilter::parse(&slashes, &wide).err(),
        Some(TopicError::TooManyLevels)
    );
    assert_eq!(name(&slashes), Err(TopicError::TooLong));
    assert!(name(&"/".repeat(127)).is_ok());
    assert_eq!(name(&"/".repeat(128)), Err(TopicError::TooManyLevels));
}

#[test]
fn control_characters_are_refused_unless_the_limits_allow_them() {
    let lax = TopicLimits {
        refuse_control_characters: false,
        ..LIMITS
    };
    for text in [
        "a\u{1}", "\u{1f}", "\u{7f}/b", "\u{80}", "x\u{9f}", "\u{fffe}", "\u{fdd0}",
    ] {
        assert_eq!(name(text), Err(TopicError::ControlCharacter), "{text:?}");
        assert!(TopicName::parse(text, &lax).is_ok(), "{text:?}");
    }
    for text in [" ", "\u{a0}", "\u{fffd}", "\u{feff}a", "é/ü", "🦀"] {
        assert!(name(text).is_ok(), "{text:?}");
    }
}

#[test]
fn the_parent_level_belongs_to_the_multi_level_wildcard() {
    for (pattern, topic, expected) in [
        ("a/#", "a", true),
        ("a/#", "a/", true),
        ("a/#", "a/b/c", true),
        ("a/#", "ab", false),
        ("+/#", "a", true),
        ("a/+", "a", false),
        ("a/+", "a/", true),
        ("a/+", "a/b/c", false),
        ("+/+", "/", true),
        ("+", "/", false),
        ("/+", "/", true),
        ("a/+/#", "a", false),
        ("a/+/#", "a/b", true),
        ("a", "a/", false),
        ("a/", "a", false),
    ] {
        assert_eq!(matches(pattern, topic), expected, "{pattern} on {topic}");
    }
}

/// Every text of up to three levels out of a small alphabet, longer words and `$` included.
fn all_texts(words: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = words.iter().map(ToString::to_string).collect();
    let mut last = all.clone();
    for _ in 0..3 {
        last = last
            .iter()
            .flat_map(|prefix| words.iter().map(move |word| format!("{prefix}/{word}")))
            .collect();
        all.extend(last.iter().cloned());
    }
    all
}

fn level() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", "a", "b", "$x", "+", "+", "a long level"])
}

fn any_filter() -> impl Strategy<Value = TopicFilter> {
    (prop::collection::vec(level(), 1..=3), any::<bool>()).prop_filter_map(
        "empty",
        |(mut levels, hash)| {
            if hash {
                levels.pop();
                levels.push("#");
            }
            TopicFilter::parse(&levels.join("/"), &LIMITS).ok()
        },
    )
}

/// The definition, level by level, slow.
fn definition(filter: &str, topic: &str) -> bool {
    let (filter, topic): (Vec<_>, Vec<_>) =
        (filter.split('/').collect(), topic.split('/').collect());
    if topic[0].starts_with('$') && ["+", "#"].contains(&filter[0]) {
        return false;
    }
    let fits = |(f, t): (&&str, &&str)| *f == "+" || f == t;
    match filter.split_last() {
        Some((&"#", parents)) => {
            topic.len() >= parents.len() && parents.iter().zip(&topic).all(fits)
        }
        _ => filter.len() == topic.len() && filter.iter().zip(&topic).all(fits),
    }
}

proptest! {
    #[test]
    fn matches_covers_and_overlaps_are_exact(one in any_filter(), two in any_filter()) {
        // One word more than filters can name, so that `+` is more than the sum of the literals.
        let words = ["", "a", "b", "$x", "c", "$y", "a long level"];
        let (mut covered, mut overlap) = (true, false);
        for topic in all_texts(&words).iter().filter_map(|text| name(text).ok()) {
            let (by_one, by_two) = (one.matches(topic), two.matches(topic));
            prop_assert_eq!(by_one, definition(one.as_str(), topic.as_str()));
            covered &= by_one || !by_two;
            overlap |= by_one && by_two;
        }
        prop_assert_eq!(one.covers(&two), covered, "{} covers {}", one, two);
        prop_assert_eq!(one.overlaps(&two), overlap, "{} overlaps {}", one, two);
    }

    #[test]
    fn a_name_is_a_filter_that_matches_itself(text in "[a-c$/é ]{1,12}") {
        let topic = name(&text).unwrap();
        prop_assert!(filter(&text).matches(topic));
        prop_assert!(!filter(&text).has_wildcard());
        prop_assert_eq!(topic.levels().collect::<Vec<_>>().join("/"), text.as_str());
    }
}
