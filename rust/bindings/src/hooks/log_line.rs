//! Log lines of the engine for Python's `logging`.

use std::sync::Arc;

use mqttcore_broker::LogLine;

/// Level, text, and the known keys of machine-readable logs, in order.
pub(super) type Parts = (u8, String, Vec<(&'static str, String)>);

pub(super) fn parts(line: &LogLine) -> Parts {
    (line.level as u8, line.to_string(), fields(line))
}

fn fields(line: &LogLine) -> Vec<(&'static str, String)> {
    let subject = &line.subject;
    let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
    let ip = |peer: mqttcore_broker::Peer| {
        peer.ip()
            .map_or_else(|| peer.to_string(), |ip| ip.to_string())
    };
    let event = if line.event.is_empty() {
        line.class
    } else {
        line.event
    };
    let reason = subject.reason.map(|reason| reason.value().to_string());
    let suppressed = Some(line.suppressed).filter(|count| *count > 0);
    let known = [
        ("class", Some(line.class.to_owned())),
        ("event", Some(event.to_owned())),
        ("client_id", text(&subject.client_id)),
        ("username", text(&subject.username)),
        ("ip", subject.peer.map(ip)),
        ("listener", text(&subject.listener)),
        ("reason_code", reason),
        ("text", Some(line.text.clone())),
        ("suppressed", suppressed.map(|count| count.to_string())),
    ];
    let known = known.into_iter();
    known
        .filter_map(|(key, value)| Some((key, value?)))
        .collect()
}
