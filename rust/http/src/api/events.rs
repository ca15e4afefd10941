//! `GET /events`: figures and warnings of the broker as server-sent events, once a second.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use tokio::sync::mpsc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::event_stream::EventStream;

use super::ApiState;
use super::identity::Identity;
use super::problem::Problem;
use super::query::{ApiQuery, NoQuery};

/// Maximum number of event readers.
const READERS_MAX: usize = 64;
/// Events that wait for a reader; one that is further behind is cut off.
const WAITING: usize = 16;

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

#[derive(Debug)]
struct Reader {
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

    /// Adds a reader; `None` if there are too many, or the endpoint stops.
    fn add_reader(&self, key: Option<[u8; 32]>) -> Option<EventStream> {
        let mut audience = self.audience();
        audience.readers.retain(|reader| !reader.sender.is_closed());
        if audience.is_closed || audience.readers.len() >= READERS_MAX {
            return None;
        }
        let (sender, stream) = EventStream::new(WAITING);
        audience.readers.push(Reader {
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
            let event = if reader.is_informed { &update } else { &whole };
            reader.is_informed = true;
            reader.sender.try_send(event.clone()).is_ok()
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

/// Streams the figures and the warnings of the broker as server-sent events: all at first, then each second those that have changed.
#[utoipa::path(get, path = "/api/v1/events", tag = "broker", security(("key" = ["view"])),
    responses((status = 200, body = String, content_type = "text/event-stream")))]
async fn events(
    State(state): State<ApiState>,
    Extension(identity): Extension<Identity>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Result<Response, Problem> {
    let stream = state.events.add_reader(identity.key).ok_or_else(|| {
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
        let mut first = events.add_reader(None).expect("room");
        events.send(&figures(2), "[]", |_| true);
        let mut second = events.add_reader(None).expect("room");
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
    fn warnings_are_sent_when_they_change() {
        let events = Events::default();
        let mut reader = events.add_reader(None).expect("room");
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
        let mut slow = events.add_reader(None).expect("room");
        let mut reader = events.add_reader(None).expect("room");

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
        let mut all: Vec<_> = (0..READERS_MAX).map(|_| events.add_reader(None)).collect();
        assert!(all.iter().all(Option::is_some));
        assert!(events.add_reader(None).is_none());

        all.pop();

        assert!(events.add_reader(None).is_some());
        events.close();
        assert!(events.add_reader(None).is_none());
    }

    #[test]
    fn the_stream_of_a_key_ends_when_the_key_is_not_in_force() {
        let events = Events::default();
        let mut revoked = events.add_reader(Some([1; 32])).expect("room");
        let mut other = events.add_reader(Some([2; 32])).expect("room");
        let mut owner = events.add_reader(None).expect("room");

        events.send(&figures(1), "[]", |key| *key != [1; 32]);

        assert!(next(&mut revoked).is_none(), "it has ended");
        assert!(next(&mut other).is_some() && next(&mut owner).is_some());
        assert_eq!(events.audience().readers.len(), 2);
    }
}
