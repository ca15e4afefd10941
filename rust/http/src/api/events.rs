//! `GET /events`: figures and warnings of the broker once a second, events of clients and lines of the log, as
//! server-sent events.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use mqttcore_broker::{
    BrokerHandle, BrokerStopped, EventWatch, LogLevel, LoggedLine, WatchedEvents,
};
use mqttcore_codec::ReasonCode;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::event_stream::EventStream;

use super::ApiState;
use super::explain::Happened;
use super::identity::Identity;
use super::page::{unix_ms, whole_ms};
use super::problem::Problem;
use super::query::{ApiQuery, with_near};

/// Maximum number of event readers.
const READERS_MAX: usize = 64;
/// Events that wait for a reader; one that is further behind is cut off.
const WAITING: usize = 16;
/// Interval in which shards are asked for events of clients, while somebody reads them.
const WATCHED_EVERY: Duration = Duration::from_millis(500);

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(events))
}

/// The readers of `GET /events`.
#[derive(Debug, Default)]
pub(super) struct Events(Mutex<Audience>);

#[derive(Debug, Default)]
struct Audience {
    readers: Vec<Reader>,
    /// The figures of the last event.
    figures: BTreeMap<String, u64>,
    /// The warnings of the last event, as JSON.
    warnings: String,
    events: u64,
    is_closed: bool,
}

/// A kind of events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// Figures and warnings.
    Stats,
    /// Connections, sessions and subscriptions of clients.
    Client,
    /// Messages that a client did not get, and publishes that were refused.
    Drop,
    /// Lines of the log.
    Log,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Stats, Self::Client, Self::Drop, Self::Log];

    fn name(self) -> &'static str {
        match self {
            Self::Stats => "stats",
            Self::Client => "client",
            Self::Drop => "drop",
            Self::Log => "log",
        }
    }
}

/// The kinds that a reader wants.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Kinds([bool; Kind::ALL.len()]);

impl Kinds {
    const ALL: Self = Self([true; Kind::ALL.len()]);
    const STATS: Self = Self([true, false, false, false]);

    fn has(self, kind: Kind) -> bool {
        self.0[kind as usize]
    }

    /// Reads names between commas.
    fn named(text: &str) -> Result<Self, Problem> {
        let mut kinds = Self([false; Kind::ALL.len()]);
        for name in text.split(',') {
            let mut all = Kind::ALL.into_iter();
            let kind = all.find(|kind| kind.name() == name).ok_or_else(|| {
                let names = Kind::ALL.map(Kind::name);
                with_near(
                    Problem::bad(format!("kinds: unknown: {name:?}")),
                    name,
                    &names,
                )
            })?;
            kinds.0[kind as usize] = true;
        }
        Ok(kinds)
    }
}

#[derive(Debug)]
struct Reader {
    kinds: Kinds,
    /// SHA-256 of the key that asked, if it was one.
    key: Option<[u8; 32]>,
    sender: mpsc::Sender<Bytes>,
    /// Whether it got all figures; later events have those that changed.
    is_informed: bool,
}

impl Events {
    fn audience(&self) -> MutexGuard<'_, Audience> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a reader, whose first events are `first`; `None` if there are too many, or the endpoint stops.
    fn add_reader(&self, key: Option<[u8; 32]>, kinds: Kinds, first: Bytes) -> Option<EventStream> {
        let mut audience = self.audience();
        audience.readers.retain(|reader| !reader.sender.is_closed());
        if audience.is_closed || audience.readers.len() >= READERS_MAX {
            return None;
        }
        let (sender, stream) = EventStream::new(WAITING);
        if !first.is_empty() {
            // There is room in a new stream.
            let _ = sender.try_send(first);
        }
        audience.readers.push(Reader {
            kinds,
            key,
            sender,
            is_informed: false,
        });
        Some(stream)
    }

    /// Sends figures, and warnings as JSON if they have changed, to all readers; ends the streams of those that do not read, and of keys that are not in force.
    pub(super) fn send(
        &self,
        figures: &HashMap<String, u64>,
        warnings: &str,
        is_in_force: impl Fn(&[u8; 32]) -> bool,
    ) {
        let mut audience = self.audience();
        audience
            .readers
            .retain(|reader| reader.key.as_ref().is_none_or(&is_in_force));
        if audience.readers.is_empty() {
            return;
        }
        let audience = &mut *audience;
        let figures: BTreeMap<_, _> = figures.iter().map(|(k, v)| (k.clone(), *v)).collect();
        let old = std::mem::replace(&mut audience.figures, figures);
        let changed: BTreeMap<_, _> = audience
            .figures
            .iter()
            .filter(|(name, value)| old.get(*name) != Some(*value))
            .collect();
        audience.events += 1;
        let has_changed = audience.warnings != warnings;
        if has_changed {
            warnings.clone_into(&mut audience.warnings);
        }
        let number = audience.events;
        let whole = event_text(number, &audience.figures, Some(warnings));
        let update = event_text(number, &changed, has_changed.then_some(warnings));
        audience.readers.retain_mut(|reader| {
            if !reader.kinds.has(Kind::Stats) {
                return true;
            }
            let event = if reader.is_informed { &update } else { &whole };
            reader.is_informed = true;
            reader.sender.try_send(event.clone()).is_ok()
        });
    }

    /// Whether somebody wants other events than figures.
    fn is_watched(&self) -> bool {
        let audience = self.audience();
        let mut kinds = audience.readers.iter().map(|reader| reader.kinds);
        kinds.any(|kinds| kinds != Kinds::STATS)
    }

    /// Sends events of clients and lines of the log to their readers; ends the streams of readers that are too slow.
    fn tell(&self, found: WatchedEvents) {
        let texts = texts_of(found);
        if texts.iter().all(|(_, text)| text.is_empty()) {
            return;
        }
        self.audience().readers.retain(|reader| {
            let wanted = texts.iter().filter(|(kind, _)| reader.kinds.has(*kind));
            let text: String = wanted.map(|(_, text)| text.as_str()).collect();
            text.is_empty() || reader.sender.try_send(text.into()).is_ok()
        });
    }

    /// Ends all streams, and refuses new ones.
    pub(super) fn close(&self) {
        let mut audience = self.audience();
        audience.readers.clear();
        audience.is_closed = true;
    }
}

/// Figures and warnings as server-sent events (HTML Living Standard, section 9.2).
fn event_text(number: u64, figures: &impl serde::Serialize, warnings: Option<&str>) -> Bytes {
    let data = serde_json::to_string(figures).unwrap_or_default();
    let warnings = warnings.map(|data| format!("event: warnings\ndata: {data}\n\n"));
    let warnings = warnings.unwrap_or_default();
    format!("{warnings}id: {number}\nevent: stats\ndata: {data}\n\n").into()
}

/// Converts events to server-sent events, by kind.
fn texts_of(found: WatchedEvents) -> [(Kind, String); 3] {
    let (mut clients, mut drops) = (String::new(), String::new());
    if found.left_out > 0 {
        clients = format!("event: lost\ndata: {{\"lost\":{}}}\n\n", found.left_out);
    }
    let now_ms = unix_ms();
    for event in found.events {
        let event = Happened::new(event, now_ms);
        let (kind, out) = match event.event {
            "dropped" | "publish_refused" => (Kind::Drop, &mut drops),
            _ => (Kind::Client, &mut clients),
        };
        add_event(kind, &event, out);
    }
    let lines = log_text(&found.lines);
    [
        (Kind::Client, clients),
        (Kind::Drop, drops),
        (Kind::Log, lines),
    ]
}

fn add_event(kind: Kind, data: &impl Serialize, out: &mut String) {
    let data = serde_json::to_string(data).unwrap_or_default();
    // Writing to a string does not fail.
    let _ = write!(out, "event: {}\ndata: {data}\n\n", kind.name());
}

/// A line of the log, with the keys of the log in JSON.
#[derive(Serialize)]
struct Line<'a> {
    ts_ms: u64,
    level: &'static str,
    class: &'a str,
    event: &'a str,
    client_id: Option<&'a str>,
    username: Option<&'a str>,
    ip: Option<String>,
    listener: Option<&'a str>,
    reason_code: Option<u8>,
    text: &'a str,
    suppressed: u64,
}

fn log_text(lines: &[LoggedLine]) -> String {
    let mut out = String::new();
    for LoggedLine { at, line, .. } in lines {
        let subject = &line.subject;
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let shown = Line {
            ts_ms: whole_ms(since),
            level: match line.level {
                LogLevel::Info => "info",
                LogLevel::Warning => "warning",
                LogLevel::Error => "error",
            },
            class: line.class,
            event: if line.event.is_empty() {
                line.class
            } else {
                line.event
            },
            client_id: subject.client_id.as_deref(),
            username: subject.username.as_deref(),
            ip: subject.peer.map(|peer| peer.host_and_port().0),
            listener: subject.listener.as_deref(),
            reason_code: subject.reason.map(ReasonCode::value),
            text: &line.text,
            suppressed: line.suppressed,
        };
        add_event(Kind::Log, &shown, &mut out);
    }
    out
}

/// Watches events of clients and the log while somebody reads them.
#[derive(Debug, Default)]
pub(super) struct Watching(tokio::sync::Mutex<Option<EventWatch>>);

impl Watching {
    /// Starts the watch unless it runs: a new reader gets events from now on.
    async fn begin(&self, broker: &BrokerHandle) -> Result<(), BrokerStopped> {
        let mut watch = self.0.lock().await;
        if watch.is_none() {
            broker
                .watch_events(watch.insert(EventWatch::default()))
                .await?;
        }
        Ok(())
    }

    /// Passes new events to `events` repeatedly, until the broker stops.
    pub(super) async fn run(&self, broker: &BrokerHandle, events: &Events) {
        loop {
            tokio::time::sleep(WATCHED_EVERY).await;
            let mut watch = self.0.lock().await;
            if !events.is_watched() {
                *watch = None;
            }
            let Some(watch) = watch.as_mut() else {
                continue;
            };
            match broker.watch_events(watch).await {
                Ok(found) => events.tell(found),
                Err(BrokerStopped) => return,
            }
        }
    }
}

/// The body of a response that does not end by itself; [`finish`](super::finish) takes it out of the extensions.
#[derive(Clone, Debug)]
pub(super) struct Streamed(Arc<Mutex<Option<EventStream>>>);

impl Streamed {
    pub(super) fn new(stream: EventStream) -> Self {
        Self(Arc::new(Mutex::new(Some(stream))))
    }

    pub(super) fn take(&self) -> Option<EventStream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct EventsQuery {
    /// Kinds of events, between commas: `stats` (with `warnings`), `client`, `drop`, `log`. Default: all.
    kinds: Option<String>,
}

/// Streams server-sent events: figures and warnings, all at first, then each second those that have changed; connections of clients, lost messages, and the log.
#[utoipa::path(get, path = "/api/v1/events", tag = "broker", params(EventsQuery), security(("key" = ["view"])),
    responses((status = 200, body = String, content_type = "text/event-stream")))]
async fn events(
    State(state): State<ApiState>,
    Extension(identity): Extension<Identity>,
    ApiQuery(query): ApiQuery<EventsQuery>,
) -> Result<Response, Problem> {
    let kinds = query.kinds.as_deref().map(Kinds::named).transpose()?;
    let kinds = kinds.unwrap_or(Kinds::ALL);
    let first = if kinds.has(Kind::Log) {
        log_text(&state.broker.log_lines(0)).into()
    } else {
        Bytes::new()
    };
    let stream = state.events.add_reader(identity.key, kinds, first);
    if kinds != Kinds::STATS {
        state.watching.begin(&state.broker).await?;
    }
    let stream = stream.ok_or_else(|| {
        let text = format!("{READERS_MAX} clients read events, or the broker stops");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", text).retry_after(1)
    })?;
    let mut response = Response::new(Body::empty());
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response.extensions_mut().insert(Streamed::new(stream));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(messages: u64) -> HashMap<String, u64> {
        [("messages".into(), messages), ("uptime".into(), 1)].into()
    }

    fn next(stream: &mut EventStream) -> Option<String> {
        let bytes = stream.next()?;
        Some(String::from_utf8(bytes.to_vec()).expect("text"))
    }

    #[test]
    fn a_reader_gets_all_figures_and_then_those_that_change() {
        let events = Events::default();
        events.send(&figures(1), "[]", |_| true);
        let mut first = events
            .add_reader(None, Kinds::STATS, Bytes::new())
            .expect("room");
        events.send(&figures(2), "[]", |_| true);
        let mut second = events
            .add_reader(None, Kinds::STATS, Bytes::new())
            .expect("room");
        events.send(&figures(3), "[]", |_| true);

        let all = |id, messages| {
            format!(
                "event: warnings\ndata: []\n\nid: {id}\nevent: stats\ndata: {{\"messages\":{messages},\"uptime\":1}}\n\n"
            )
        };
        let changed = "id: 2\nevent: stats\ndata: {\"messages\":3}\n\n";
        assert_eq!(next(&mut first), Some(all(1, 2)));
        assert_eq!(next(&mut first).as_deref(), Some(changed));
        assert_eq!(next(&mut second), Some(all(2, 3)));
    }

    #[test]
    fn a_reader_gets_the_kinds_that_it_wants() {
        let events = Events::default();
        let kinds = |text| Kinds::named(text).expect("kinds");
        let log = kinds("log");
        let mut reader = events.add_reader(None, log, "first".into()).expect("room");
        assert!(events.is_watched());

        events.send(&figures(1), "[]", |_| true);

        assert_eq!(next(&mut reader).as_deref(), Some("first"));
        assert_eq!(next(&mut reader), None);
        assert_eq!(kinds("stats"), Kinds::STATS);
        assert_eq!(kinds("client,stats,drop,log"), Kinds::ALL);
        let problem = Kinds::named("stats,logs").expect_err("unknown");
        assert!(
            format!("{problem:?}").contains("did you mean \\\"log\\\"?"),
            "{problem:?}"
        );
    }

    #[test]
    fn warnings_are_sent_when_they_change() {
        let events = Events::default();
        let mut reader = events
            .add_reader(None, Kinds::STATS, Bytes::new())
            .expect("room");
        let mut sent = |warnings| {
            events.send(&figures(1), warnings, |_| true);
            let event = next(&mut reader).expect("an event");
            event.split_once("\nid: ").map(|parts| parts.0.to_owned())
        };

        assert_eq!(sent("[]").as_deref(), Some("event: warnings\ndata: []\n"));
        assert_eq!(sent("[]"), None);
        assert_eq!(sent("[1]").as_deref(), Some("event: warnings\ndata: [1]\n"));
        assert_eq!(sent("[1]"), None);
    }

    #[test]
    fn a_reader_that_does_not_read_is_cut_off_and_the_others_go_on() {
        let events = Events::default();
        let mut slow = events
            .add_reader(None, Kinds::STATS, Bytes::new())
            .expect("room");
        let mut reader = events
            .add_reader(None, Kinds::STATS, Bytes::new())
            .expect("room");

        for number in 0..20 {
            events.send(&figures(number), "[]", |_| true);
            assert!(next(&mut reader).is_some());
        }

        let mut waiting = 0;
        while next(&mut slow).is_some() {
            waiting += 1;
        }
        assert_eq!(waiting, WAITING);
        events.send(&figures(20), "[]", |_| true);
        assert!(next(&mut slow).is_none(), "its stream has ended");
    }

    #[test]
    fn there_are_64_readers_at_most_and_places_of_those_that_leave_are_free() {
        let events = Events::default();
        let mut all: Vec<_> = (0..READERS_MAX)
            .map(|_| events.add_reader(None, Kinds::STATS, Bytes::new()))
            .collect();
        assert!(all.iter().all(Option::is_some));
        assert!(
            events
                .add_reader(None, Kinds::STATS, Bytes::new())
                .is_none()
        );

        all.pop();

        assert!(
            events
                .add_reader(None, Kinds::STATS, Bytes::new())
                .is_some()
        );
        events.close();
        assert!(
            events
                .add_reader(None, Kinds::STATS, Bytes::new())
                .is_none()
        );
    }

    #[test]
    fn the_stream_of_a_key_ends_when_the_key_is_not_in_force() {
        let events = Events::default();
        let mut revoked = events
            .add_reader(Some([1; 32]), Kinds::STATS, Bytes::new())
            .expect("room");
        let mut other = events
            .add_reader(Some([2; 32]), Kinds::STATS, Bytes::new())
            .expect("room");
        let mut owner = events
            .add_reader(None, Kinds::STATS, Bytes::new())
            .expect("room");

        events.send(&figures(1), "[]", |key| *key != [1; 32]);

        assert!(next(&mut revoked).is_none(), "it has ended");
        assert!(next(&mut other).is_some() && next(&mut owner).is_some());
        assert_eq!(events.audience().readers.len(), 2);
    }
}
