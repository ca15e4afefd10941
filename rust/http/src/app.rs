//! HTTP routes of streams, sink and reports, and their handlers.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use hyper::body::Incoming;
use hyper::{HeaderMap, Method, Request, StatusCode};
use mqttcore_store::stream::{Bounds, StreamError, TierReport};
use mqttcore_streams::{QueryReports, ReportError, Rows, Sink};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::HttpLimits;

use super::answer::{AnswerBody, HttpError, HttpResponse, JSON, broken, json, of_type, pieces};
use super::api::identity::CallerIdentity;
use super::api::scope::Scope;
use super::body;
use super::request_times::{AnswerCounts, RequestTimes};
use super::target::{RequestTarget, finish, number};
use super::tasks::blocking;
use super::{files, rows, sink};

/// Media type of an Arrow IPC stream.
const ARROW_STREAM: &str = "application/vnd.apache.arrow.stream";

/// Handlers of the routes of streams, sink and reports.
pub(crate) struct App {
    rows: Rows,
    sink: Arc<Sink>,
    /// The folder of the streams, as an absolute path for other processes.
    folder: PathBuf,
    reports: Arc<QueryReports>,
}

/// Counters of requests and connections.
#[derive(Debug, Default)]
pub(crate) struct HttpCounters {
    answered: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
    refused_address: AtomicU64,
    /// Durations of requests.
    pub(super) times: RequestTimes,
    /// Answers by method and status.
    pub(super) answers: AnswerCounts,
}

impl HttpCounters {
    /// Counts a request.
    pub(super) fn answered(&self, is_well: bool) {
        let counter = if is_well {
            &self.answered
        } else {
            &self.failed
        };
        // ORDERING: readers want some recent value.
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// The counters, in this order: successful requests, failed requests, connections refused because the endpoint was
    /// full, and connections refused or displaced because of their address.
    pub(crate) fn values(&self) -> [u64; 4] {
        let counters = [
            &self.answered,
            &self.failed,
            &self.refused,
            &self.refused_address,
        ];
        // ORDERING: as above.
        counters.map(|counter| counter.load(Ordering::Relaxed))
    }

    /// Counts a connection that was refused because the endpoint was full.
    pub(super) fn refused(&self) {
        // ORDERING: as above.
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that was refused or displaced because its address had too many.
    pub(super) fn refused_address(&self) {
        // ORDERING: as above.
        self.refused_address.fetch_add(1, Ordering::Relaxed);
    }
}

/// The offsets from which a consumer still needs rows.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HoldRequest {
    consumer: String,
    offsets: Vec<u64>,
}

/// Maximum length of a consumer's name in bytes.
const CONSUMER_BYTES: usize = 256;

impl App {
    pub(crate) fn new(rows: Rows, sink: Sink, folder: PathBuf, reports: Arc<QueryReports>) -> Self {
        Self {
            rows,
            sink: Arc::new(sink),
            folder,
            reports,
        }
    }

    /// The streams and their store.
    pub(super) fn rows_of_streams(&self) -> Rows {
        self.rows.clone()
    }

    /// The reports of queries.
    pub(super) fn reports(&self) -> Arc<QueryReports> {
        Arc::clone(&self.reports)
    }

    /// Path of the Unix socket that readers of rows connect to.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("endpoint.sock")
    }

    /// Background work: see [`Sink::resume`].
    pub(super) fn work(&self) -> impl Future<Output = ()> + use<> {
        Arc::clone(&self.sink).resume()
    }

    /// Bytes of memory that batches of requests take.
    pub(super) fn memory_bytes(&self) -> usize {
        self.sink.memory_bytes()
    }

    /// Handles one request of `caller`. Longer than other functions: it is the table of routes with their scopes, one
    /// of which is needed.
    ///
    /// # Errors
    ///
    /// Why it is refused.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        limits: &HttpLimits,
        caller: &CallerIdentity,
    ) -> Result<HttpResponse, HttpError> {
        let (head, body) = request.into_parts();
        let target = RequestTarget::parse(head.uri.path(), head.uri.query());
        let mut target =
            target.ok_or_else(|| HttpError::bad("the path is not valid percent-encoding"))?;
        let steps = std::mem::take(&mut target.steps);
        let steps: Vec<&str> = steps.iter().map(|step| &**step).collect();
        let is = |method: Method, allow, scopes: &[Scope]| {
            expect(&head.method, &method, allow)?;
            caller.needs_one_of(scopes)
        };
        if let ["v1", "streams", name, ..] = steps[..] {
            caller.needs_stream(name)?;
        }
        match steps[..] {
            ["v1", "streams"] => {
                is(Method::GET, "GET", &[Scope::Rows, Scope::Publish])?;
                finish(&target)?;
                self.names(caller)
            }
            ["v1", "streams", name] => {
                is(Method::GET, "GET", &[Scope::Rows, Scope::Publish])?;
                finish(&target)?;
                self.describe(name)
            }
            ["v1", "streams", name, "rows"] => {
                is(Method::GET, "GET", &[Scope::Rows])?;
                self.rows(name, target)
            }
            ["v1", "streams", name, "files"] => {
                is(Method::GET, "GET", &[Scope::Rows])?;
                finish(&target)?;
                self.files(name)
            }
            ["v1", "streams", name, "files", file] => {
                is(Method::GET, "GET", &[Scope::Rows])?;
                finish(&target)?;
                self.file(name, file, &head.headers).await
            }
            ["v1", "streams", name, "offsets"] => {
                is(Method::GET, "GET", &[Scope::Rows])?;
                self.offsets(name, target).await
            }
            ["v1", "streams", name, "holds"] => {
                is(Method::POST, "POST", &[Scope::Rows])?;
                finish(&target)?;
                self.hold(name, body::json(body, limits).await?, caller)
                    .await
            }
            ["v1", "streams", name, "holds", consumer] => {
                is(Method::DELETE, "DELETE", &[Scope::Operate])?;
                finish(&target)?;
                self.release(name, consumer).await
            }
            ["v1", "streams", name, "seal"] => {
                is(Method::POST, "POST", &[Scope::Operate])?;
                finish(&target)?;
                self.seal(name).await
            }
            ["v1", "sink", "stage"] => {
                is(Method::POST, "POST", &[Scope::Publish])?;
                sink::stage(&self.sink, target, body, limits, caller).await
            }
            ["v1", "sink", "commit"] => {
                is(Method::POST, "POST", &[Scope::Publish])?;
                finish(&target)?;
                sink::commit(&self.sink, body, limits, caller).await
            }
            ["v1", "sink", "abort"] => {
                is(Method::POST, "POST", &[Scope::Publish])?;
                finish(&target)?;
                sink::abort(&self.sink, body, limits, caller).await
            }
            ["v1", "spark", query] => {
                is(Method::PUT, "PUT", &[Scope::Rows, Scope::Publish])?;
                finish(&target)?;
                self.report(query, body::json(body, limits).await?)
            }
            _ => Err(HttpError::not_found("unknown path")),
        }
    }

    /// Lists the streams that `caller` may ask for.
    fn names(&self, caller: &CallerIdentity) -> Result<HttpResponse, HttpError> {
        let mut listed = Vec::new();
        let names = self.rows.streams.names().into_iter();
        for name in names.filter(|name| caller.reaches(name)) {
            let description = self
                .rows
                .streams
                .describe(name)
                .map_err(|error| stream_error_response(&error))?;
            listed.push(json!({
                "name": description.name,
                "partitions": description.partitions.len(),
                "epoch": description.epoch,
            }));
        }
        Ok(json(&Value::from(listed)))
    }

    /// The description of each stream, as JSON.
    pub(super) fn streams(&self) -> Vec<String> {
        let names = self.rows.streams.names().into_iter();
        let described = names.filter_map(|name| self.description(name).ok());
        described.map(|value| value.to_string()).collect()
    }

    fn describe(&self, name: &str) -> Result<HttpResponse, HttpError> {
        self.description(name).map(|value| json(&value))
    }

    fn description(&self, name: &str) -> Result<Value, HttpError> {
        let description = self
            .rows
            .streams
            .describe(name)
            .map_err(|error| stream_error_response(&error))?;
        let schema = serde_json::from_str::<Value>(&description.schema);
        let schema = schema.map_err(|error| broken(&error))?;
        Ok(json!({
            "name": description.name,
            "epoch": description.epoch,
            // As text: not every JSON parser reads 64-bit numbers.
            "seed": description.seed.to_string(),
            "filters": description.filters,
            "configured": description.is_configured,
            "partitions": description.partitions.iter().map(bounds).collect::<Vec<_>>(),
            "path": self.folder.join(name).to_string_lossy(),
            "schema": schema,
            "tier": description.tier.as_ref().map(tier),
        }))
    }

    fn rows(&self, name: &str, mut target: RequestTarget<'_>) -> Result<HttpResponse, HttpError> {
        let partition = number(&mut target, "partition")?;
        let (from, to) = (number(&mut target, "from")?, number(&mut target, "to")?);
        finish(&target)?;
        if from > to {
            return Err(HttpError::bad(format!(
                "from = {from} is greater than to = {to}"
            )));
        }
        let batches = self.rows.streams.tail(name, partition, from, to);
        let rows = rows::RowsBody::new(batches.map_err(|error| stream_error_response(&error))?)
            .map_err(|error| broken(&error))?;
        Ok(pieces(ARROW_STREAM, Box::new(rows)))
    }

    /// Lists the files of the sealed rows.
    fn files(&self, name: &str) -> Result<HttpResponse, HttpError> {
        let sealed = self.rows.streams.sealed(name);
        let sealed = sealed.map_err(|error| stream_error_response(&error))?;
        Ok(of_type(JSON, AnswerBody::Whole(sealed.into())))
    }

    /// Serves a file, or a range of it. A file that retention removes stays readable for a while.
    async fn file(
        &self,
        name: &str,
        file: &str,
        headers: &HeaderMap,
    ) -> Result<HttpResponse, HttpError> {
        self.known(name)?;
        let object = self.rows.streams.object(name, file);
        let object = object.map_err(|error| stream_error_response(&error));
        files::answer(self.folder.join(name).join("data"), file, object, headers).await
    }

    /// Refuses an unknown stream: the name becomes a part of a path.
    fn known(&self, name: &str) -> Result<(), HttpError> {
        let known = self.rows.streams.find(name);
        let unknown = || stream_error_response(&StreamError::Unknown(name.to_owned()));
        known.map(|_| ()).ok_or_else(unknown)
    }

    async fn offsets(
        &self,
        name: &str,
        mut target: RequestTarget<'_>,
    ) -> Result<HttpResponse, HttpError> {
        let timestamp_us = number(&mut target, "timestamp_us")?;
        finish(&target)?;
        let offsets = self.blocking(name, move |rows, name| {
            rows.streams.offsets_at(name, timestamp_us)
        });
        Ok(json(&json!({"offsets": offsets.await?})))
    }

    async fn hold(
        &self,
        name: &str,
        hold: HoldRequest,
        caller: &CallerIdentity,
    ) -> Result<HttpResponse, HttpError> {
        if hold.consumer.is_empty() || hold.consumer.len() > CONSUMER_BYTES {
            let text = format!("the name of a consumer must have 1 to {CONSUMER_BYTES} bytes");
            return Err(HttpError::bad(text));
        }
        let owner = caller.owner_of_holds();
        let HoldRequest { consumer, offsets } = hold;
        self.blocking(name, move |rows, name| match owner {
            Some(owner) => rows
                .streams
                .hold_of_owner(name, &owner, &consumer, &offsets),
            None => rows.streams.hold(name, &consumer, &offsets),
        })
        .await?;
        Ok(json(&json!({})))
    }

    async fn release(&self, name: &str, consumer: &str) -> Result<HttpResponse, HttpError> {
        let consumer = consumer.to_owned();
        let had = self.blocking(name, move |rows, name| {
            rows.streams.release(name, &consumer)
        });
        if had.await? {
            Ok(json(&json!({})))
        } else {
            Err(HttpError::new(
                StatusCode::NOT_FOUND,
                "not_held",
                "this consumer has no hold",
            ))
        }
    }

    async fn seal(&self, name: &str) -> Result<HttpResponse, HttpError> {
        self.blocking(name, |rows, name| rows.store.seal(name))
            .await?;
        self.describe(name)
    }

    fn report(&self, query: &str, report: Map<String, Value>) -> Result<HttpResponse, HttpError> {
        let text = Value::Object(report).to_string();
        let taken = self.reports.take(query, text, Instant::now());
        taken.map_err(|error| match error {
            ReportError::Many => {
                HttpError::new(StatusCode::TOO_MANY_REQUESTS, "many", error.to_string())
            }
            ReportError::Name(_) | ReportError::Large(_) => HttpError::bad(error.to_string()),
        })?;
        Ok(json(&json!({})))
    }

    /// Runs work that may wait for a disk on a thread for blocking calls.
    async fn blocking<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce(&Rows, &str) -> Result<T, StreamError> + Send + 'static,
    ) -> Result<T, HttpError> {
        let (rows, name) = (self.rows.clone(), name.to_owned());
        let done = blocking(move || work(&rows, &name)).await?;
        done.map_err(|error| stream_error_response(&error))
    }
}

/// Object storage of a stream, for readers and operators.
fn tier(report: &TierReport) -> Value {
    json!({
        "url": report.url,
        "waiting_files": report.waiting_files,
        "remote_files": report.remote_files,
        "uploaded_bytes": report.uploaded_bytes,
        "problem": report.problem,
    })
}

fn bounds(bounds: &Bounds) -> Value {
    json!({
        "earliest": bounds.earliest,
        "sealed_end": bounds.sealed_end,
        "end": bounds.end,
    })
}

fn expect(method: &Method, wanted: &Method, allow: &'static str) -> Result<(), HttpError> {
    if method == wanted {
        Ok(())
    } else {
        Err(HttpError::method(allow))
    }
}

fn stream_error_response(error: &StreamError) -> HttpError {
    let (status, code) = match error {
        StreamError::Unknown(_) => (StatusCode::NOT_FOUND, "unknown_stream"),
        StreamError::Partition { .. } => (StatusCode::NOT_FOUND, "unknown_partition"),
        StreamError::Remote { .. } => (StatusCode::NOT_FOUND, "remote_file"),
        StreamError::Sealed { .. } => (StatusCode::CONFLICT, "sealed"),
        StreamError::Beyond { .. } => (StatusCode::RANGE_NOT_SATISFIABLE, "beyond"),
        StreamError::Gone { .. } => (StatusCode::GONE, "gone"),
        StreamError::Missing { .. } => (StatusCode::GONE, "missing"),
        StreamError::Consumers { .. } => (StatusCode::CONFLICT, "too_many_consumers"),
        StreamError::Argument { .. } => (StatusCode::BAD_REQUEST, "bad_request"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "store"),
    };
    HttpError::new(status, code, error.to_string())
}
