//! Jobs: work that takes longer than a request, such as a backup or a checkpoint of the store.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::extract::State;
use hyper::StatusCode;
use mqttcore_broker::BrokerHandle;
use mqttcore_store::{CopyProgress, StoreError};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::page::{List, unix_ms};
use super::problem::Problem;
use super::query::{ApiJson, ApiPath, ApiQuery, NoQuery};

/// Maximum number of jobs that are remembered.
const REMEMBERED: usize = 16;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(backup))
        .routes(routes!(checkpoint))
        .routes(routes!(list))
        .routes(routes!(one))
}

/// The latest jobs, oldest first; one runs at a time.
#[derive(Debug, Default)]
pub(super) struct Jobs(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    jobs: VecDeque<Job>,
    started: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum JobState {
    Running,
    Done,
    Failed,
}

/// A job that was started.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct Job {
    id: u64,
    /// The kind of job: `backup` or `checkpoint`.
    kind: &'static str,
    /// The folder that a backup writes; null for a checkpoint.
    #[schema(value_type = Option<String>)]
    target: Option<PathBuf>,
    state: JobState,
    /// Bytes that a backup has copied or linked so far.
    done: u64,
    /// Bytes of the whole backup; null until all of its files are known.
    total: Option<u64>,
    /// Mean of the bytes copied in a second, without linked files; null before that, and when the job has ended.
    rate: Option<u64>,
    /// Seconds until all is copied at this rate; null as `rate`.
    eta_s: Option<u64>,
    started_ms: u64,
    ended_ms: Option<u64>,
    /// Why it failed.
    error: Option<String>,
    #[serde(skip)]
    progress: Arc<CopyProgress>,
}

impl Job {
    /// Adds how far it is.
    fn measured(mut self) -> Self {
        if self.state != JobState::Done {
            (self.done, self.total) = (self.progress.done(), self.progress.total());
        }
        if self.state == JobState::Running {
            (self.rate, self.eta_s) = (self.progress.rate(), self.progress.eta_s());
        }
        self
    }
}

impl Jobs {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job that runs.
    ///
    /// # Errors
    ///
    /// Another one runs.
    fn begin(&self, kind: &'static str, target: Option<PathBuf>) -> Result<Job, Problem> {
        let mut known = self.known();
        let is_running = |job: &&Job| job.state == JobState::Running;
        if let Some(other) = known.jobs.iter().find(is_running) {
            let text = format!("job {} is running", other.id);
            let hint = format!("GET /api/v1/jobs/{} says how far it is", other.id);
            return Err(Problem::conflict(text).hint(hint));
        }
        known.started += 1;
        let job = Job {
            id: known.started,
            kind,
            target,
            state: JobState::Running,
            done: 0,
            total: None,
            rate: None,
            eta_s: None,
            started_ms: unix_ms(),
            ended_ms: None,
            error: None,
            progress: Arc::default(),
        };
        known.jobs.push_back(job.clone());
        if known.jobs.len() > REMEMBERED {
            known.jobs.pop_front();
        }
        Ok(job)
    }

    fn end(&self, id: u64, outcome: Result<u64, String>) {
        let mut known = self.known();
        let Some(job) = known.jobs.iter_mut().find(|job| job.id == id) else {
            return;
        };
        job.ended_ms = Some(unix_ms());
        match outcome {
            Ok(bytes) => {
                job.state = JobState::Done;
                job.done = bytes;
                job.total = job.progress.total().map(|_| bytes);
            }
            Err(error) => (job.state, job.error) = (JobState::Failed, Some(error)),
        }
    }

    fn list(&self) -> Vec<Job> {
        let known = self.known();
        known.jobs.iter().cloned().map(Job::measured).collect()
    }
}

/// A backup to start.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewBackup {
    /// A new or empty folder on the broker's machine, as an absolute path.
    #[schema(value_type = String)]
    to: PathBuf,
}

/// Starts a copy of the data folder while the broker runs. It contains everything that was acknowledged before.
#[utoipa::path(post, path = "/api/v1/store/backup", tag = "broker", request_body = NewBackup, security(("key" = ["admin"])),
    responses((status = 202, body = Job, description = "`GET /api/v1/jobs/{id}` says how far it is")))]
async fn backup(
    State(state): State<ApiState>,
    ApiQuery(_): ApiQuery<NoQuery>,
    ApiJson(NewBackup { to }): ApiJson<NewBackup>,
) -> Result<(StatusCode, Json<Job>), Problem> {
    if !to.is_absolute() {
        let text = format!("to is not an absolute path: {:?}", to.display().to_string());
        return Err(Problem::bad(text));
    }
    let target = Some(to.clone());
    start(&state, "backup", target, move |broker, progress| {
        broker.backup(&to, progress)
    })
}

/// Starts a checkpoint of the store, so that the next start reads less of the log. The store writes checkpoints by itself, too.
#[utoipa::path(post, path = "/api/v1/store/checkpoint", tag = "broker", security(("key" = ["admin"])),
    responses((status = 202, body = Job, description = "`GET /api/v1/jobs/{id}` says when it is done")))]
async fn checkpoint(
    State(state): State<ApiState>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Result<(StatusCode, Json<Job>), Problem> {
    start(&state, "checkpoint", None, |broker, _| {
        broker.checkpoint().map(|()| 0)
    })
}

/// Starts a job of the store; `work` returns the bytes that it has written.
fn start(
    state: &ApiState,
    kind: &'static str,
    target: Option<PathBuf>,
    work: impl FnOnce(&BrokerHandle, &CopyProgress) -> Result<u64, StoreError> + Send + 'static,
) -> Result<(StatusCode, Json<Job>), Problem> {
    if state.broker.store_figures().is_empty() {
        return Err(Problem::conflict("the broker has no data folder"));
    }
    let job = state.jobs.begin(kind, target)?;
    if let Err(error) = spawn(state, &job, work) {
        let text = format!("cannot start a thread: {error}");
        state.jobs.end(job.id, Err(text.clone()));
        let status = StatusCode::SERVICE_UNAVAILABLE;
        return Err(Problem::new(status, "busy", text));
    }
    Ok((StatusCode::ACCEPTED, Json(job)))
}

/// Does the work on a thread of its own, which a stop of the endpoint does not wait for.
fn spawn(
    state: &ApiState,
    job: &Job,
    work: impl FnOnce(&BrokerHandle, &CopyProgress) -> Result<u64, StoreError> + Send + 'static,
) -> std::io::Result<()> {
    let (broker, jobs) = (state.broker.clone(), Arc::clone(&state.jobs));
    let (id, progress) = (job.id, Arc::clone(&job.progress));
    let on_panic = Arc::clone(&jobs);
    let run = move || {
        let outcome = work(&broker, &progress);
        jobs.end(id, outcome.map_err(|error| error.to_string()));
    };
    let failed = move |panicked: mqttcore_panics::Panicked| {
        on_panic.end(id, Err(panicked.text.to_string()));
    };
    mqttcore_panics::spawn("mqttcore-job", failed, run).map(drop)
}

/// Lists the latest jobs, oldest first.
#[utoipa::path(get, path = "/api/v1/jobs", tag = "broker", security(("key" = ["view"])),
    responses((status = 200, body = List<Job>)))]
async fn list(
    State(state): State<ApiState>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Result<Json<List<Job>>, Problem> {
    Ok(Json(List::new(state.jobs.list(), None, &[])))
}

/// Describes a job.
#[utoipa::path(get, path = "/api/v1/jobs/{id}", tag = "broker", security(("key" = ["view"])),
    params(("id" = u64, Path, description = "Number of the job")),
    responses((status = 200, body = Job)))]
async fn one(
    State(state): State<ApiState>,
    ApiPath(id): ApiPath<String>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Result<Json<Job>, Problem> {
    let is_named = |job: &Job| job.id.to_string() == id;
    let job = state.jobs.list().into_iter().find(is_named);
    let job = job.ok_or_else(|| {
        Problem::not_found(format!("there is no job {id:?}"))
            .hint("GET /api/v1/jobs lists the latest 16")
    })?;
    Ok(Json(job))
}
