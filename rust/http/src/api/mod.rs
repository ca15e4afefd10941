//! The HTTP API for operators, below `/api/v1` (ADR 0044).
//!
//! Each handler carries the OpenAPI description of its route, which also names the scope.
#![expect(
    unused_qualifications,
    reason = "utoipa writes paths in full for query parameters"
)]

mod acl_trial;
mod audit;
mod audit_entries;
mod bans;
mod client_facts;
mod client_items;
mod client_measures;
mod client_queue;
mod clients;
mod configuration;
mod confirmed;
mod connection_bytes;
mod deliveries;
mod delivery_latency;
mod document;
mod events;
mod explain;
mod failures;
mod history;
pub(crate) mod identity;
mod invalidate;
mod jobs;
mod kept_events;
mod key_file;
mod key_routes;
mod key_time;
pub(crate) mod keys;
mod login_routes;
mod logins;
mod page;
mod parts;
mod permissions;
mod plugins;
mod problem;
mod publish;
mod queries;
mod query;
mod rates;
mod readers;
mod retained;
mod risks;
pub(crate) mod scope;
mod sessions;
mod subscriptions;
mod system;
mod topics;
mod traces;

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use axum::body::{Body, to_bytes};
use axum::response::IntoResponse;
use axum::{Router, middleware};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, StatusCode};
use mqttcore_broker::{AddressKey, BrokerHandle, LogLevel, Operator};
use mqttcore_streams::{QueryReports, Rows};
use tokio::sync::Semaphore;
use tower_service::Service;
use utoipa_axum::router::OpenApiRouter;

use crate::HttpLimits;
use crate::access::{self, HostNames};
use crate::answer::{AnswerBody, HttpResponse};
use crate::body;
use crate::program::Program;

use audit::{Recorder, RequestSource};
use configuration::ProgramCalls;
use delivery_latency::DeliveryLatency;
use events::{Events, StreamedEvents, Watching};
use failures::Failures;
use history::FigureHistory;
use identity::{Caller, CallerIdentity};
use jobs::Jobs;
use keys::Keys;
use logins::Logins;
use problem::Problem;
use rates::Samples;
use readers::Readers;
use risks::Risks;
use scope::{RouteScopes, Scope};

/// Path prefix of the API.
pub(crate) const PREFIX: &str = "/api/";

/// Handles requests below [`PREFIX`].
pub(crate) struct Api {
    /// Made for the first request: the descriptions of all routes take milliseconds and megabytes.
    router: OnceLock<Router>,
    state: ApiState,
    hosts: HostNames,
    /// Seed of the request ids.
    seed: RandomState,
    requests: AtomicU64,
}

/// How callers become known.
pub(crate) struct ApiAccess {
    pub(crate) keys: Arc<Keys>,
    /// Users may log in.
    pub(crate) has_logins: bool,
    pub(crate) hosts: HostNames,
}

/// State that all handlers share.
#[derive(Clone)]
pub(crate) struct ApiState {
    broker: BrokerHandle,
    rows: Option<Rows>,
    /// Reports of queries; `None` without streams.
    reports: Option<Arc<QueryReports>>,
    keys: Arc<Keys>,
    /// Users may log in.
    has_logins: bool,
    logins: Arc<Logins>,
    logins_at_a_time: Arc<Semaphore>,
    failures: Arc<Failures>,
    jobs: Arc<Jobs>,
    samples: Arc<Samples>,
    history: Arc<FigureHistory>,
    events: Arc<Events>,
    watching: Arc<Watching>,
    readers: Arc<Readers>,
    risks: Arc<Risks>,
    program: Option<Arc<ProgramCalls>>,
}

/// The routes of each part of the API.
const PARTS: [fn() -> OpenApiRouter<ApiState>; 27] = [
    system::routes,
    parts::routes,
    queries::routes,
    plugins::routes,
    events::routes,
    history::routes,
    jobs::routes,
    configuration::routes,
    clients::routes,
    client_items::routes,
    client_measures::routes,
    client_queue::routes,
    permissions::routes,
    sessions::routes,
    subscriptions::routes,
    retained::routes,
    topics::routes,
    publish::routes,
    bans::routes,
    key_routes::routes,
    login_routes::routes,
    invalidate::routes,
    acl_trial::routes,
    audit_entries::routes,
    explain::routes,
    deliveries::routes,
    traces::routes,
];

async fn unknown_path() -> Problem {
    Problem::not_found("unknown path").hint("GET /api/v1/openapi.json lists the paths")
}

impl ApiState {
    /// Whether the key or the login with this SHA-256 is in force, still with this scope.
    pub(in crate::api) fn admits(&self, digest: &[u8; 32], scope: Scope) -> bool {
        let may_stay = |operator: &Operator| self.broker.may_stay(operator);
        self.keys.admits(digest, scope, SystemTime::now())
            || self.logins.admits(digest, scope, Instant::now(), may_stay)
    }
}

impl Api {
    /// Longer than other functions: it names each part of the state.
    pub(crate) fn new(
        broker: &BrokerHandle,
        (rows, reports): (Option<Rows>, Option<Arc<QueryReports>>),
        access: ApiAccess,
        program: Option<Arc<dyn Program>>,
        data: Option<&Path>,
    ) -> Self {
        let state = ApiState {
            broker: broker.clone(),
            rows,
            reports,
            keys: access.keys,
            has_logins: access.has_logins,
            logins: Arc::default(),
            logins_at_a_time: Arc::new(Semaphore::new(login_routes::LOGINS_AT_A_TIME)),
            failures: Arc::default(),
            jobs: Arc::default(),
            samples: Arc::default(),
            history: Arc::new(FigureHistory::new(data)),
            events: Arc::default(),
            watching: Arc::default(),
            readers: Arc::default(),
            risks: Arc::default(),
            program: program.map(|program| Arc::new(ProgramCalls::new(program))),
        };
        Self {
            router: OnceLock::new(),
            state,
            hosts: access.hosts,
            seed: RandomState::new(),
            requests: AtomicU64::new(0),
        }
    }

    /// The router of all requests.
    fn router(&self) -> Router {
        let make = || {
            let (mut all, mut scopes) = (Router::new(), RouteScopes::default());
            for part in PARTS {
                // Descriptions take much more memory than routes: no more than those of a part are there.
                let (routes, document) = part().split_for_parts();
                scopes.add(document.paths.paths);
                all = all.merge(routes);
            }
            let scopes = Arc::new(scopes);
            let recorder = Recorder::new(&self.state.broker, &scopes);
            // Not at the start: it loads modules of the program.
            self.state.risks.search_again();
            all.route_layer(middleware::from_fn_with_state(scopes, scope::check))
                .route_layer(middleware::from_fn_with_state(recorder, audit::record))
                .fallback(unknown_path)
                .with_state(self.state.clone())
        };
        self.router.get_or_init(make).clone()
    }

    /// Takes samples of the figures for rates and events, until it is dropped.
    pub(crate) async fn sample(&self) {
        let broker = self.state.broker.clone();
        let warn = move |what, error| {
            let text = format!("http: the history cannot be {what}: {error}");
            broker.log(LogLevel::Warning, text);
        };
        if let Err(error) = self.state.history.restore().await {
            warn("read", error);
        }
        let mut latency = DeliveryLatency::default();
        loop {
            let mut figures = self.state.broker.figures().into_iter().collect();
            latency.add(&self.state.broker.tallies().deliveries, &mut figures);
            let now = Instant::now();
            self.state.samples.add(now, &figures);
            self.state.history.add(now, &figures);
            let warn = warn.clone();
            self.state.history.save(move |error| warn("saved", error));
            let admits = |key: &[u8; 32], scope| self.state.admits(key, scope);
            let warnings = system::warning_texts(&self.state);
            self.state.events.send(&figures, &warnings, admits);
            tokio::time::sleep(rates::SAMPLED_EVERY).await;
        }
    }

    /// Looks for risks of the configuration, if a program knows it, until it is dropped.
    pub(crate) async fn search_risks(&self) {
        if let Some(program) = &self.state.program {
            self.state.risks.search(program).await;
        }
    }

    /// Passes events to their readers, until the broker stops.
    pub(crate) async fn watch(&self) {
        let state = &self.state;
        state.watching.run(&state.broker, &state.events).await;
    }

    /// Bytes of the figures that are kept.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.state.history.memory_bytes()
    }

    /// Ends responses that do not end by themselves, and saves the history.
    pub(crate) fn close(&self) {
        self.state.history.save_rest();
        self.state.events.close();
        self.state.readers.close();
    }

    /// The keys in force.
    pub(crate) fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.state.keys)
    }

    /// Whether users can log in: a plugin authenticates them. If the broker is busy, they cannot.
    pub(crate) async fn has_logins(&self) -> bool {
        self.state.has_logins && self.state.broker.has_logins().await.unwrap_or(false)
    }

    /// The identity of the key in the request's headers, or of the login whose cookie is there, if cookies count.
    pub(crate) fn identify(
        &self,
        headers: &HeaderMap,
        with_cookies: bool,
    ) -> Option<CallerIdentity> {
        if let Some(secret) = access::bearer(headers) {
            return self.state.keys.identify(secret, SystemTime::now());
        }
        let counts = with_cookies && !headers.contains_key(AUTHORIZATION);
        let may_stay = |operator: &Operator| self.state.broker.may_stay(operator);
        let logins = counts.then_some(&self.state.logins)?;
        logins.identify(headers, Instant::now(), may_stay)
    }

    /// Handles a request.
    pub(crate) async fn answer(
        &self,
        request: Request<Incoming>,
        limits: &HttpLimits,
        caller: &Caller<'_>,
    ) -> HttpResponse {
        let id = self.request_id();
        let headers = request.headers();
        let response = match &caller.identity {
            Some(_)
                if caller.access.is_open() && access::is_of_another_page(headers, &self.hosts) =>
            {
                Err(Problem::another_page())
            }
            Some(identity) if identity.is_by_cookie && !is_by_the_page(&request) => {
                Err(without_header())
            }
            Some(identity) => {
                let source = RequestSource::of(caller, &id);
                self.route(request, limits, identity.clone(), source).await
            }
            None if request.uri().path() == login_routes::PATH => {
                let (limits, source) =
                    (login_routes::limits(limits), RequestSource::of(caller, &id));
                if is_by_the_page(&request) {
                    self.route(request, &limits, CallerIdentity::nobody(), source)
                        .await
                } else {
                    Err(without_header())
                }
            }
            None => self.refuse(headers, caller),
        };
        let response = response.unwrap_or_else(IntoResponse::into_response);
        finish(response, &id).await
    }

    async fn route(
        &self,
        request: Request<Incoming>,
        limits: &HttpLimits,
        identity: CallerIdentity,
        source: RequestSource,
    ) -> Result<axum::response::Response, Problem> {
        let (mut head, body) = request.into_parts();
        let body = body::bytes(body, limits).await?;
        head.extensions.insert(identity);
        head.extensions.insert(source);
        let request = Request::from_parts(head, Body::from(body));
        let routed = self.router().call(request).await;
        routed.map_err(|never| match never {})
    }

    /// Refuses a caller that is not authenticated.
    fn refuse<T>(&self, headers: &HeaderMap, caller: &Caller<'_>) -> Result<T, Problem> {
        if let Some(address) = caller.address.map(AddressKey::of) {
            let now = Instant::now();
            if let Some(seconds) = self.state.failures.refused_for_s(address, now) {
                return Err(failures::too_many(seconds));
            }
            if headers.contains_key(AUTHORIZATION) {
                self.state.failures.count(address, now);
            }
        }
        Err(identity::unknown(
            caller.access.has_token() || self.state.keys.has_any(),
        ))
    }

    /// A unique id for a request.
    fn request_id(&self) -> String {
        // ORDERING: only uniqueness matters.
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        format!("{:016x}", self.seed.hash_one(number))
    }
}

/// Whether a request with a cookie comes from the page itself, or changes nothing: a browser adds the header for pages of
/// other origins only if the broker allows it, which it does not (CSRF).
fn is_by_the_page(request: &Request<Incoming>) -> bool {
    let has_header = || {
        request
            .headers()
            .get(OF_THE_PAGE)
            .is_some_and(|value| value == "1")
    };
    matches!(*request.method(), Method::GET | Method::HEAD) || has_header()
}

/// The header of requests that change something by a cookie.
const OF_THE_PAGE: &str = "x-mqttcore";

fn without_header() -> Problem {
    let text = "a request with a cookie, and a login, need a header that forms and other pages cannot send";
    Problem::new(StatusCode::FORBIDDEN, "header", text).hint("send the header: X-Mqttcore: 1")
}

/// Converts a response of the router to one of the endpoint; writes the body of a problem.
async fn finish(response: axum::response::Response, request_id: &str) -> HttpResponse {
    let (mut head, body) = response.into_parts();
    let streamed = head.extensions.remove::<StreamedEvents>();
    // INVARIANT: bodies of handlers are in memory, so that reading them does not fail.
    let mut bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
    if head.status.is_client_error() || head.status.is_server_error() {
        let problem = head.extensions.remove::<Problem>();
        let problem = problem.unwrap_or_else(|| problem::of_router(&head));
        bytes = serde_json::to_vec(&problem.text(request_id))
            .unwrap_or_default()
            .into();
        let kind = HeaderValue::from_static(problem::PROBLEM_JSON);
        head.headers.insert(hyper::header::CONTENT_TYPE, kind);
        head.headers.remove(CONTENT_LENGTH);
    }
    let cache = HeaderValue::from_static("no-store");
    head.headers.entry(CACHE_CONTROL).or_insert(cache);
    if let Ok(value) = HeaderValue::from_str(request_id) {
        head.headers
            .insert(HeaderName::from_static("x-request-id"), value);
    }
    let content = match streamed.and_then(|streamed| streamed.take()) {
        Some(events) => {
            // That of the empty body.
            head.headers.remove(CONTENT_LENGTH);
            AnswerBody::Events(events)
        }
        None => AnswerBody::Whole(bytes.into()),
    };
    HttpResponse::from_parts(head, content)
}
