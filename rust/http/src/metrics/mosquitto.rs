//! `GET /metrics?names=mosquitto`: the figures of `$SYS` under the names of Mosquitto's usual exporter, for dashboards that
//! were made for it.

use std::collections::BTreeMap;
use std::fmt::Write;

use mqttcore_broker::{BrokerHandle, BrokerStopped};
use mqttcore_topics::{TopicFilter, TopicLimits};

/// Media type of the response: names of counters of OpenMetrics would have to end in `_total`.
pub(crate) const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Maximum number of topics below `$SYS/broker` that are read.
const TOPICS_MAX: usize = 1_000;

/// Counters, below `$SYS/broker`. The exporter calls all others gauges.
const COUNTERS: [&str; 7] = [
    "bytes/received",
    "bytes/sent",
    "messages/received",
    "messages/sent",
    "publish/messages/received",
    "publish/messages/sent",
    "publish/messages/dropped",
];

/// Topics below `$SYS/broker` that the exporter leaves out, since Mosquitto has newer names for them.
const OLD_NAMES: [&str; 2] = ["clients/active", "clients/inactive"];

/// The figures as text.
///
/// # Errors
///
/// [`BrokerStopped`]
pub(crate) async fn page(broker: &BrokerHandle) -> Result<String, BrokerStopped> {
    // INVARIANT: it is a filter.
    let filter = TopicFilter::parse("$SYS/broker/#", &TopicLimits::WIDEST).expect("a filter");
    let kept = broker.list_retained(&filter, None, TOPICS_MAX).await?;
    let topics = kept.messages.iter().map(|kept| &kept.message);
    Ok(text(
        topics.map(|message| (message.topic(), message.payload())),
    ))
}

/// The metrics of topics and their payloads.
fn text<'a>(topics: impl Iterator<Item = (&'a str, &'a [u8])>) -> String {
    let metrics = topics.filter_map(|(topic, payload)| {
        let below = topic.strip_prefix("$SYS/broker/")?;
        let name = name(below).filter(|_| !OLD_NAMES.contains(&below))?;
        Some((name, (below, number(payload)?)))
    });
    // Two topics may have one name, such as `a/b` and `a_b`.
    let metrics: BTreeMap<_, _> = metrics.collect();
    let mut text = String::new();
    for (name, (below, value)) in metrics {
        let kind = if COUNTERS.contains(&below) {
            "counter"
        } else {
            "gauge"
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "# HELP {name} $SYS/broker/{below}\n# TYPE {name} {kind}\n{name} {value}"
        );
    }
    text
}

/// The name of a topic's metric; `None` if the topic has other characters than those of Mosquitto.
fn name(below: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_/ ".contains(&byte);
    let name = || format!("broker_{}", below.replace(['/', ' '], "_"));
    below.bytes().all(is_plain).then(name)
}

/// The number in a payload such as `7`, `1.25` or `12 seconds`.
fn number(payload: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(payload).ok()?;
    let number = text.strip_suffix(" seconds").unwrap_or(text);
    number
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(topics: &[(&str, &str)]) -> String {
        text(
            topics
                .iter()
                .map(|(topic, payload)| (*topic, payload.as_bytes())),
        )
    }

    #[test]
    fn names_kinds_and_values_are_those_of_the_exporter() {
        let text = metrics(&[
            ("$SYS/broker/uptime", "12 seconds"),
            ("$SYS/broker/bytes/received", "7"),
            ("$SYS/broker/retained messages/count", "3"),
            ("$SYS/broker/load/messages/sent/1min", "1.25"),
        ]);

        let lines: Vec<_> = text
            .lines()
            .filter(|line| !line.starts_with("# HELP"))
            .collect();
        assert_eq!(
            lines,
            [
                "# TYPE broker_bytes_received counter",
                "broker_bytes_received 7",
                "# TYPE broker_load_messages_sent_1min gauge",
                "broker_load_messages_sent_1min 1.25",
                "# TYPE broker_retained_messages_count gauge",
                "broker_retained_messages_count 3",
                "# TYPE broker_uptime gauge",
                "broker_uptime 12",
            ]
        );
        assert!(text.starts_with("# HELP broker_bytes_received $SYS/broker/bytes/received\n"));
    }

    #[test]
    fn topics_without_a_number_or_a_name_are_left_out() {
        let text = metrics(&[
            ("$SYS/broker/version", "mqttcore 1.0"),
            ("$SYS/broker/infinite", "inf"),
            ("$SYS/broker/listeners/a-b/denied", "1"),
            ("$SYS/broker/line\nbreak", "1"),
            ("$SYS/broker/clients/active", "1"),
            ("$SYS/spark/query", "1"),
        ]);

        assert_eq!(text, "");
    }
}
