//! Jobs: work that takes longer than a request, such as a backup or a checkpoint of the store.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::extract::State;
use hyper::StatusCode;
use mqttcore_broker::BrokerHandle;
use mqttcore_store::StoreError;
use mqttcore_store::files::Folder;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::tasks::blocking;

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
    /// Bytes that a backup has written so far.
    bytes: u64,
    started_ms: u64,
    ended_ms: Option<u64>,
    /// Why it failed.
    error: Option<String>,
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
            bytes: 0,
            started_ms: unix_ms(),
            ended_ms: None,
            error: None,
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
            Ok(bytes) => (job.state, job.bytes) = (JobState::Done, bytes),
            Err(error) => (job.state, job.error) = (JobState::Failed, Some(error)),
        }
    }

    fn list(&self) -> Vec<Job> {
        self.known().jobs.iter().cloned().collect()
    }
}

/// Adds the bytes that a running backup has written so far.
async fn measured(mut job: Job) -> Result<Job, Problem> {
    if let (JobState::Running, Some(target)) = (job.state, &job.target) {
        let folder = Folder::unfinished(target);
        job.bytes = blocking(move || bytes_below(&folder)).await?;
    }
    Ok(job)
}

/// Size of the files in a folder and below; a file that cannot be read counts as nothing.
fn bytes_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_below(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    });
    bytes.sum()
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
    start(&state, "backup", target, move |broker| broker.backup(&to))
}

/// Starts a checkpoint of the store, so that the next start reads less of the log. The store writes checkpoints by itself, too.
#[utoipa::path(post, path = "/api/v1/store/checkpoint", tag = "broker", security(("key" = ["admin"])),
    responses((status = 202, body = Job, description = "`GET /api/v1/jobs/{id}` says when it is done")))]
async fn checkpoint(
    State(state): State<ApiState>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Result<(StatusCode, Json<Job>), Problem> {
    start(&state, "checkpoint", None, |broker| {
        broker.checkpoint().map(|()| 0)
    })
}

/// Starts a job of the store; `work` returns the bytes that it has written.
fn start(
    state: &ApiState,
    kind: &'static str,
    target: Option<PathBuf>,
    work: impl FnOnce(&BrokerHandle) -> Result<u64, StoreError> + Send + 'static,
) -> Result<(StatusCode, Json<Job>), Problem> {
    if state.broker.store_figures().is_empty() {
        return Err(Problem::conflict("the broker has no data folder"));
    }
    let job = state.jobs.begin(kind, target)?;
    if let Err(error) = spawn(state, job.id, work) {
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
    id: u64,
    work: impl FnOnce(&BrokerHandle) -> Result<u64, StoreError> + Send + 'static,
) -> std::io::Result<()> {
    let (broker, jobs) = (state.broker.clone(), Arc::clone(&state.jobs));
    let on_panic = Arc::clone(&jobs);
    let run = move || jobs.end(id, work(&broker).map_err(|error| error.to_string()));
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
    let mut jobs = Vec::new();
    for job in state.jobs.list() {
        jobs.push(measured(job).await?);
    }
    Ok(Json(List::new(jobs, None, &[])))
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
    Ok(Json(measured(job).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_backup_says_how_many_bytes_it_has_written() {
        let folder = std::env::temp_dir().join(format!("mqttcore-jobs-{}", std::process::id()));
        let target = folder.join("copy");
        let written = Folder::unfinished(&target).join("streams");
        fs::create_dir_all(&written).unwrap();
        fs::write(written.join("rows"), "four").unwrap();
        fs::write(Folder::unfinished(&target).join("log"), "three").unwrap();
        let job = Jobs::default().begin("backup", Some(target)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();

        let job = runtime.block_on(measured(job)).unwrap();

        fs::remove_dir_all(&folder).unwrap();
        assert_eq!((job.state, job.bytes), (JobState::Running, 9));
    }
}
