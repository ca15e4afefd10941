//! `GET /events`: figures and warnings of the broker once a second, events of clients and lines of the log, as
//! server-sent events.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, StatusCode};
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
use super::identity::CallerIdentity;
use super::kept_events::{EventId, KEPT_FOR, KeptEvents};
use super::page::{unix_ms, whole_ms};
use super::problem::Problem;
use super::query::{ApiQuery, with_near};
use super::scope::Scope;
use super::system::WarningTexts;

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
    /// The warnings of the last event, as JSON for callers with the scope `admin`.
    warnings: String,
    /// Events of clients and lines of the log.
    kept: KeptEvents<Kind>,
    /// When a reader of them was last seen; `None` while they are not collected.
    read_at: Option<Instant>,
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

/// A reader that comes.
struct NewReader {
    kinds: Kinds,
    /// SHA-256 of the key that asked, if it was one.
    key: Option<[u8; 32]>,
    /// The last event that it has.
    after: Option<EventId>,
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

impl Audience {
    /// The next event of a reader without and with the scope `admin`: all figures and warnings, and those that have
    /// changed.
    fn next_events(
        &mut self,
        figures: &HashMap<String, u64>,
        warnings: &WarningTexts,
    ) -> [(Bytes, Bytes); 2] {
        let figures: BTreeMap<_, _> = figures.iter().map(|(k, v)| (k.clone(), *v)).collect();
        let old = std::mem::replace(&mut self.figures, figures);
        let changed: BTreeMap<_, _> = self
            .figures
            .iter()
            .filter(|(name, value)| old.get(*name) != Some(*value))
            .collect();
        let has_changed = self.warnings != warnings.for_admin;
        if has_changed {
            warnings.for_admin.clone_into(&mut self.warnings);
        }
        let id = self.kept.last();
        [&*warnings.for_view, &*warnings.for_admin].map(|warnings| {
            let whole = event_text(id, &self.figures, Some(warnings));
            let update = event_text(id, &changed, has_changed.then_some(warnings));
            (whole, update)
        })
    }
}

impl Events {
    fn audience(&self) -> MutexGuard<'_, Audience> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a reader; `None` if there are too many, or the endpoint stops. Its first events are those that it missed, or
    /// `log`.
    fn add_reader(&self, new: &NewReader, log: &str) -> Option<EventStream> {
        let mut audience = self.audience();
        audience.readers.retain(|reader| !reader.sender.is_closed());
        if audience.is_closed || audience.readers.len() >= READERS_MAX {
            return None;
        }
        let (sender, stream) = EventStream::new(WAITING);
        if new.kinds != Kinds::STATS {
            if audience.read_at.replace(Instant::now()).is_none() {
                audience.kept.begin_series();
            }
            // There is room in a new stream.
            let _ = sender.try_send(first_text(&audience.kept, new, log).into());
        }
        audience.readers.push(Reader {
            kinds: new.kinds,
            key: new.key,
            sender,
            is_informed: false,
        });
        Some(stream)
    }

    /// Sends figures, and warnings if they have changed, to all readers; ends the streams of those that do not read, and
    /// of keys that are not in force. `admits` tells whether a key is, with a scope.
    pub(super) fn send(
        &self,
        figures: &HashMap<String, u64>,
        warnings: &WarningTexts,
        admits: impl Fn(&[u8; 32], Scope) -> bool,
    ) {
        let has = |reader: &Reader, scope| {
            let key = reader.key.as_ref();
            key.is_none_or(|key| admits(key, scope))
        };
        let mut audience = self.audience();
        audience.readers.retain(|reader| has(reader, Scope::View));
        if audience.readers.is_empty() {
            return;
        }
        let events = audience.next_events(figures, warnings);
        audience.readers.retain_mut(|reader| {
            if !reader.kinds.has(Kind::Stats) {
                return true;
            }
            let (whole, update) = &events[usize::from(has(reader, Scope::Admin))];
            let event = if reader.is_informed { update } else { whole };
            reader.is_informed = true;
            reader.sender.try_send(event.clone()).is_ok()
        });
    }

    /// Whether events of clients and lines of the log are collected: somebody reads them, or did so a short time ago and
    /// may connect again.
    fn are_collected(&self, now: Instant) -> bool {
        let mut audience = self.audience();
        audience.readers.retain(|reader| !reader.sender.is_closed());
        let mut kinds = audience.readers.iter().map(|reader| reader.kinds);
        if kinds.any(|kinds| kinds != Kinds::STATS) {
            audience.read_at = Some(now);
        }
        let read_at = audience.read_at;
        let are_collected = read_at.is_some_and(|at| now.saturating_duration_since(at) < KEPT_FOR);
        if !are_collected && audience.read_at.take().is_some() {
            audience.kept.begin_series();
        }
        are_collected
    }

    /// Keeps events of clients and lines of the log, and sends them to those who want them; ends the streams of those that
    /// do not read.
    fn tell(&self, found: WatchedEvents) {
        let texts = texts_of(found);
        if texts.is_empty() {
            return;
        }
        let mut audience = self.audience();
        let audience = &mut *audience;
        let before = audience.kept.last();
        for (kind, text) in texts {
            audience.kept.add(kind, &text);
        }
        let kept = &audience.kept;
        audience.readers.retain(|reader| {
            let text = missed_text(kept, before, reader.kinds).unwrap_or_default();
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
fn event_text(id: EventId, figures: &impl Serialize, warnings: Option<&str>) -> Bytes {
    let data = serde_json::to_string(figures).unwrap_or_default();
    let warnings = warnings.map(|data| format!("event: warnings\ndata: {data}\n\n"));
    let warnings = warnings.unwrap_or_default();
    format!("{warnings}id: {id}\nevent: stats\ndata: {data}\n\n").into()
}

/// The first events of a reader of other events than figures. An `id` without data sets its place.
fn first_text(kept: &KeptEvents<Kind>, new: &NewReader, log: &str) -> String {
    let missed = new
        .after
        .and_then(|after| missed_text(kept, after, new.kinds));
    let mut first = missed.unwrap_or_else(|| {
        let lost = new.after.map_or_else(String::new, |_| lost_text(None));
        lost + log
    });
    let _ = write!(first, "id: {}\n\n", kept.last());
    first
}

/// The events of these kinds behind `after`; `None` if nobody knows what happened since.
fn missed_text(kept: &KeptEvents<Kind>, after: EventId, kinds: Kinds) -> Option<String> {
    let (lost, events) = kept.after(after)?;
    let wanted = events.filter(|event| kinds.has(event.kind));
    let wanted: String = wanted.map(|event| event.text.as_str()).collect();
    if lost == 0 {
        return Some(wanted);
    }
    Some(lost_text(Some(lost)) + &wanted)
}

/// Says that events are missing; `None`: nobody knows how many.
fn lost_text(count: Option<u64>) -> String {
    let count = count.map_or_else(|| "null".to_owned(), |count| count.to_string());
    format!("event: lost\ndata: {{\"lost\":{count}}}\n\n")
}

/// The found events, as server-sent events.
fn texts_of(found: WatchedEvents) -> Vec<(Kind, String)> {
    let lost = (found.left_out > 0).then(|| (Kind::Client, lost_text(Some(found.left_out))));
    let now_ms = unix_ms();
    let events = found.events.into_iter().map(|event| {
        let event = Happened::new(event, now_ms);
        let kind = match event.event {
            "dropped" | "publish_refused" => Kind::Drop,
            _ => Kind::Client,
        };
        (kind, text_of(kind, &event))
    });
    let lines = found.lines.iter().map(|line| (Kind::Log, log_text(line)));
    lost.into_iter().chain(events).chain(lines).collect()
}

fn text_of(kind: Kind, data: &impl Serialize) -> String {
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {}\ndata: {data}\n\n", kind.name())
}

/// A line of the log, with the keys of the log in JSON.
#[derive(Serialize)]
struct EventLine<'a> {
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

fn log_text(LoggedLine { at, line, .. }: &LoggedLine) -> String {
    let subject = &line.subject;
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let is_named = !line.event.is_empty();
    let shown = EventLine {
        ts_ms: whole_ms(since),
        level: match line.level {
            LogLevel::Info => "info",
            LogLevel::Warning => "warning",
            LogLevel::Error => "error",
        },
        class: line.class,
        event: if is_named { line.event } else { line.class },
        client_id: subject.client_id.as_deref(),
        username: subject.username.as_deref(),
        ip: subject.peer.map(|peer| peer.host_and_port().0),
        listener: subject.listener.as_deref(),
        reason_code: subject.reason.map(ReasonCode::value),
        text: &line.text,
        suppressed: line.suppressed,
    };
    text_of(Kind::Log, &shown)
}

/// Watches events of clients and the log while they are collected.
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
            if !events.are_collected(Instant::now()) {
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
pub(super) struct StreamedEvents(Arc<Mutex<Option<EventStream>>>);

impl StreamedEvents {
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

/// The place of `Last-Event-ID`, with which a client connects again.
pub(super) fn last_event_id<T: FromStr>(headers: &HeaderMap) -> Result<Option<T>, Problem> {
    let Some(value) = headers.get("last-event-id") else {
        return Ok(None);
    };
    let id = value.to_str().ok().and_then(|text| text.parse().ok());
    let problem = || Problem::bad("Last-Event-ID is not an id of this stream");
    let problem = || problem().hint("send the id of the last event, or leave the header out");
    id.map(Some).ok_or_else(problem)
}

/// Streams server-sent events: figures and warnings, all at first, then each second those that have changed; connections of clients, lost messages, and the log.
///
/// A reader that comes back with `Last-Event-ID` gets the events that it missed; an event `lost` says how many of them are
/// gone, with `null` if nobody knows.
#[utoipa::path(get, path = "/api/v1/events", tag = "broker", security(("key" = ["view"])),
    params(EventsQuery, ("Last-Event-ID" = Option<String>, Header, description = "The `id` of the last event")),
    responses((status = 200, body = String, content_type = "text/event-stream")))]
async fn events(
    State(state): State<ApiState>,
    Extension(identity): Extension<CallerIdentity>,
    headers: HeaderMap,
    ApiQuery(query): ApiQuery<EventsQuery>,
) -> Result<Response, Problem> {
    let kinds = query.kinds.as_deref().map(Kinds::named).transpose()?;
    let new = NewReader {
        kinds: kinds.unwrap_or(Kinds::ALL),
        key: identity.key,
        after: last_event_id(&headers)?,
    };
    let log = if new.kinds.has(Kind::Log) {
        state.broker.log_lines(0)
    } else {
        Vec::new()
    };
    let log: String = log.iter().map(log_text).collect();
    let stream = state.events.add_reader(&new, &log);
    if new.kinds != Kinds::STATS {
        state.watching.begin(&state.broker).await?;
    }
    let stream = stream.ok_or_else(|| {
        let text = format!("{READERS_MAX} clients read events, or the broker stops");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", text).retry_after(1)
    })?;
    let mut response = Response::new(Body::empty());
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
        .extensions_mut()
        .insert(StreamedEvents::new(stream));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(messages: u64) -> HashMap<String, u64> {
        [("messages".into(), messages), ("uptime".into(), 1)].into()
    }

    /// Warnings that are the same for all callers.
    fn texts(warnings: &str) -> WarningTexts {
        WarningTexts {
            for_admin: warnings.to_owned(),
            for_view: warnings.to_owned(),
        }
    }

    fn reader(kinds: Kinds) -> NewReader {
        NewReader {
            kinds,
            key: None,
            after: None,
        }
    }

    /// A reader of figures; `None` if there are too many.
    fn stats(events: &Events) -> Option<EventStream> {
        events.add_reader(&reader(Kinds::STATS), "")
    }

    /// A finding with one event `lost`, which says this number.
    fn found(number: u64) -> WatchedEvents {
        let mut found = WatchedEvents::default();
        found.left_out = number;
        found
    }

    /// The id of the last event.
    fn last_id(text: &str) -> EventId {
        let mut ids = text
            .lines()
            .rev()
            .filter_map(|line| line.strip_prefix("id: "));
        let id = ids.next().and_then(|id| id.parse().ok());
        id.expect("an id")
    }

    /// The numbers in events `lost`, and the first lines.
    fn said(text: &str) -> Vec<&str> {
        let data = text.lines().filter_map(|line| {
            let rest = line.strip_prefix("data: {\"lost\":");
            rest.map_or((line == "first").then_some(line), |rest| {
                rest.strip_suffix('}')
            })
        });
        data.collect()
    }

    fn next(stream: &mut EventStream) -> Option<String> {
        let bytes = stream.next()?;
        Some(String::from_utf8(bytes.to_vec()).expect("text"))
    }

    #[test]
    fn a_reader_gets_all_figures_and_then_those_that_change() {
        let events = Events::default();
        events.send(&figures(1), &texts("[]"), |_, _| true);
        let mut first = stats(&events).expect("room");
        events.send(&figures(2), &texts("[]"), |_, _| true);
        let mut second = stats(&events).expect("room");
        events.send(&figures(3), &texts("[]"), |_, _| true);

        let id = events.audience().kept.last();
        let all = |messages| {
            format!(
                "event: warnings\ndata: []\n\nid: {id}\nevent: stats\ndata: {{\"messages\":{messages},\"uptime\":1}}\n\n"
            )
        };
        let changed = format!("id: {id}\nevent: stats\ndata: {{\"messages\":3}}\n\n");
        assert_eq!(next(&mut first), Some(all(2)));
        assert_eq!(next(&mut first), Some(changed));
        assert_eq!(next(&mut second), Some(all(3)));
    }

    #[test]
    fn a_reader_gets_the_kinds_that_it_wants() {
        let events = Events::default();
        let kinds = |text| Kinds::named(text).expect("kinds");
        let mut log = events
            .add_reader(&reader(kinds("log")), "first\n\n")
            .expect("room");
        assert!(events.are_collected(Instant::now()));

        events.send(&figures(1), &texts("[]"), |_, _| true);

        let first = next(&mut log).expect("the latest lines");
        assert!(first.starts_with("first\n\nid: "), "{first}");
        assert_eq!(next(&mut log), None);
        assert_eq!(kinds("stats"), Kinds::STATS);
        assert_eq!(kinds("client,stats,drop,log"), Kinds::ALL);
        let problem = Kinds::named("stats,logs").expect_err("unknown");
        assert!(
            format!("{problem:?}").contains("did you mean \\\"log\\\"?"),
            "{problem:?}"
        );
    }

    #[test]
    fn a_reader_that_comes_back_gets_what_it_missed() {
        let events = Events::default();
        let come = |after| {
            let new = NewReader {
                after,
                ..reader(Kinds::named("client,log").expect("kinds"))
            };
            let mut stream = events.add_reader(&new, "first\n\n").expect("room");
            let text = next(&mut stream).expect("a first event");
            (stream, text)
        };
        let (mut stream, first) = come(None);
        assert_eq!(said(&first), ["first"]);
        events.tell(found(1));
        let seen = next(&mut stream).expect("an event");
        drop(stream);

        events.tell(found(2));
        assert_eq!(said(&come(Some(last_id(&first))).1), ["1", "2"]);
        let (_, text) = come(Some(last_id(&seen)));
        assert_eq!(said(&text), ["2"]);
        assert_eq!(said(&come(Some(last_id(&text))).1), [""; 0]);

        // What is gone is counted.
        (0..10_000).for_each(|number| events.tell(found(3 + number)));
        let (_, late) = come(Some(last_id(&seen)));
        let late = said(&late);
        let lost: u64 = late[0].parse().expect("a count");
        assert!(lost > 0);
        assert_eq!(lost + late.len() as u64 - 1, 10_001);
        assert_eq!(late.last(), Some(&"10002"));
        events.audience().kept.begin_series();
        assert_eq!(said(&come(Some(last_id(&seen))).1), ["null", "first"]);
    }

    #[test]
    fn events_are_collected_for_a_minute_after_the_last_reader() {
        let (events, start) = (Events::default(), Instant::now());
        let kinds = Kinds::named("log").expect("kinds");
        assert!(!events.are_collected(start));
        let _figures = stats(&events);
        assert!(!events.are_collected(start));

        let stream = events.add_reader(&reader(kinds), "");
        let first = next(&mut stream.expect("room")).expect("a first event");
        let left = Instant::now();

        assert!(events.are_collected(left + KEPT_FOR / 2));
        events.tell(found(1));
        assert!(!events.are_collected(left + KEPT_FOR));
        assert_eq!(
            events.audience().kept.after(last_id(&first)).map(|_| ()),
            None
        );
    }

    #[test]
    fn warnings_are_sent_when_they_change() {
        let events = Events::default();
        let mut reader = stats(&events).expect("room");
        let mut sent = |warnings| {
            events.send(&figures(1), &texts(warnings), |_, _| true);
            let event = next(&mut reader).expect("an event");
            event.split_once("\nid: ").map(|parts| parts.0.to_owned())
        };

        assert_eq!(sent("[]").as_deref(), Some("event: warnings\ndata: []\n"));
        assert_eq!(sent("[]"), None);
        assert_eq!(sent("[1]").as_deref(), Some("event: warnings\ndata: [1]\n"));
        assert_eq!(sent("[1]"), None);
    }

    #[test]
    fn a_key_gets_the_warnings_of_its_scopes_now() {
        let events = Events::default();
        let new = |key| NewReader {
            key,
            ..reader(Kinds::STATS)
        };
        let readers = [None, Some([1; 32])].map(|key| events.add_reader(&new(key), ""));
        let mut readers = readers.map(|stream| stream.expect("room"));
        let mut sent = |for_admin: &str, is_admin: bool| {
            let warnings = WarningTexts {
                for_admin: for_admin.to_owned(),
                for_view: "[]".to_owned(),
            };
            let admits = |_: &[u8; 32], scope: Scope| scope == Scope::View || is_admin;
            events.send(&figures(1), &warnings, admits);
            readers.each_mut().map(|stream| {
                let event = next(stream).expect("an event");
                let data = event
                    .lines()
                    .nth(1)
                    .and_then(|line| line.strip_prefix("data: "));
                data.unwrap_or_default().to_owned()
            })
        };

        assert_eq!(sent("[1]", false), ["[1]", "[]"]);
        assert_eq!(sent("[2]", true), ["[2]", "[2]"]);
        assert_eq!(sent("[3]", false), ["[3]", "[]"]);
    }

    #[test]
    fn a_reader_that_does_not_read_is_cut_off_and_the_others_go_on() {
        let events = Events::default();
        let mut slow = stats(&events).expect("room");
        let mut reader = stats(&events).expect("room");

        for number in 0..20 {
            events.send(&figures(number), &texts("[]"), |_, _| true);
            assert!(next(&mut reader).is_some());
        }

        let mut waiting = 0;
        while next(&mut slow).is_some() {
            waiting += 1;
        }
        assert_eq!(waiting, WAITING);
        events.send(&figures(20), &texts("[]"), |_, _| true);
        assert!(next(&mut slow).is_none(), "its stream has ended");
    }

    #[test]
    fn there_are_64_readers_at_most_and_places_of_those_that_leave_are_free() {
        let events = Events::default();
        let mut all: Vec<_> = (0..READERS_MAX).map(|_| stats(&events)).collect();
        assert!(all.iter().all(Option::is_some));
        assert!(stats(&events).is_none());

        all.pop();

        assert!(stats(&events).is_some());
        events.close();
        assert!(stats(&events).is_none());
    }

    #[test]
    fn the_stream_of_a_key_ends_when_the_key_is_not_in_force() {
        let events = Events::default();
        let mut revoked = events
            .add_reader(
                &NewReader {
                    key: Some([1; 32]),
                    ..reader(Kinds::STATS)
                },
                "",
            )
            .expect("room");
        let mut other = events
            .add_reader(
                &NewReader {
                    key: Some([2; 32]),
                    ..reader(Kinds::STATS)
                },
                "",
            )
            .expect("room");
        let mut owner = stats(&events).expect("room");

        events.send(&figures(1), &texts("[]"), |key, _| *key != [1; 32]);

        assert!(next(&mut revoked).is_none(), "it has ended");
        assert!(next(&mut other).is_some() && next(&mut owner).is_some());
        assert_eq!(events.audience().readers.len(), 2);
    }
}
