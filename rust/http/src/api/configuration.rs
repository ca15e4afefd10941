//! Routes of the configuration, which the program that runs the broker reads.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use hyper::StatusCode;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};
use tokio::time::timeout;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::program::Program;

use super::ApiState;
use super::page::List;
use super::problem::Problem;
use super::query::{ApiJson, ApiQuery, NoQuery};

/// Deadline of an action: a reload starts plugins.
const DEADLINE: Duration = Duration::from_secs(60);

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(config))
        .routes(routes!(check))
        .routes(routes!(reload))
}

/// Calls of the program, for operators one at a time, on threads of their own: a program that hangs does not hold up the endpoint, and
/// a stop does not wait for it.
pub(super) struct ProgramCalls {
    program: Arc<dyn Program>,
    turn: Arc<Mutex<()>>,
    /// For what only reads: a call that hangs, perhaps on a file system that is away, is the only one of its kind.
    reading: Arc<Mutex<()>>,
}

impl ProgramCalls {
    pub(super) fn new(program: Arc<dyn Program>) -> Self {
        Self {
            program,
            turn: Arc::default(),
            reading: Arc::default(),
        }
    }

    /// Does `action` for an operator.
    async fn call(&self, action: &'static str, argument: String) -> Result<String, Problem> {
        let busy = |_| {
            let problem = Problem::conflict("a reload or another request of this kind is running");
            problem.retry_after(1)
        };
        let turn = Arc::clone(&self.turn).try_lock_owned().map_err(busy)?;
        self.run(action, argument, turn).await
    }

    /// Does `action`, which only reads, beside what operators want.
    pub(super) async fn ask(&self, action: &'static str) -> Result<String, Problem> {
        let busy = |_| Problem::conflict("an earlier search has not ended");
        let turn = Arc::clone(&self.reading).try_lock_owned().map_err(busy)?;
        self.run(action, String::new(), turn).await
    }

    async fn run(
        &self,
        action: &'static str,
        argument: String,
        turn: OwnedMutexGuard<()>,
    ) -> Result<String, Problem> {
        let program = Arc::clone(&self.program);
        let (sender, answer) = oneshot::channel();
        let run = move || {
            let done = program.call(action, &argument);
            // Whoever gets the answer may ask again at once.
            drop(turn);
            // The receiver may be gone.
            let _ = sender.send(done);
        };
        // A panic drops the sender.
        let thread = mqttcore_panics::spawn("mqttcore-program", drop, run);
        thread.map_err(|error| Problem::internal(&error))?;
        match timeout(DEADLINE, answer).await {
            Ok(Ok(done)) => done.map_err(Problem::conflict),
            Ok(Err(error)) => Err(Problem::internal(&error)),
            Err(_) => {
                let text = format!(
                    "no answer within {} s: it may still happen",
                    DEADLINE.as_secs()
                );
                Err(Problem::new(
                    StatusCode::GATEWAY_TIMEOUT,
                    "unknown_outcome",
                    text,
                ))
            }
        }
    }
}

/// Has the program do `action`; see [`Program::call`].
pub(super) async fn ask_program<T: DeserializeOwned>(
    state: &ApiState,
    action: &'static str,
    argument: String,
) -> Result<T, Problem> {
    let program = state.program.as_ref().ok_or_else(|| {
        Problem::conflict("the program that runs this broker takes no requests of operators")
    })?;
    let text = program.call(action, argument).await?;
    serde_json::from_str(&text).map_err(|error| Problem::internal(&error))
}

/// A key of the configuration.
#[derive(Deserialize, Serialize, ToSchema)]
struct ConfigKey {
    /// As in the file, such as `limits.connections` or `listeners[0].address`.
    key: String,
    /// The value; `***` for a secret.
    value: Value,
    /// File, line and column, a variable, a flag, or `default`.
    source: String,
}

/// Lists the configuration as it was read last: each key with its value and its source. Secrets are masked.
#[utoipa::path(get, path = "/api/v1/config", tag = "broker", security(("key" = ["admin"])),
    responses((status = 200, body = List<ConfigKey>)))]
async fn config(
    State(state): State<ApiState>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Result<Json<List<ConfigKey>>, Problem> {
    let keys = ask_program(&state, "config", String::new()).await?;
    Ok(Json(List::new(keys, None, &[])))
}

/// A configuration to check.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Candidate {
    /// The text of a file; without it, the configuration that a reload would read.
    text: Option<String>,
}

/// Errors and warnings of a configuration, and what a reload with it would change.
#[derive(Deserialize, Serialize, ToSchema)]
struct Checked {
    /// Empty if it can be used.
    errors: Vec<ConfigFault>,
    warnings: Vec<String>,
    /// Keys whose new values a reload would take into force; empty if there are errors.
    changed: Vec<String>,
    /// Keys whose new values need a restart; empty if there are errors.
    needs_restart: Vec<String>,
}

/// An error of a configuration. Its place is null if it is not in a file, or not known.
#[derive(Deserialize, Serialize, ToSchema)]
struct ConfigFault {
    file: Option<String>,
    line: Option<u64>,
    column: Option<u64>,
    /// The key, what is wrong with it, and what is allowed.
    text: String,
}

/// Checks a configuration, and compares it with the one in force; nothing changes. Its plugins are started and stopped.
#[utoipa::path(post, path = "/api/v1/config/check", tag = "broker", request_body = Candidate, security(("key" = ["admin"])),
    responses((status = 200, body = Checked)))]
async fn check(
    State(state): State<ApiState>,
    ApiQuery(_): ApiQuery<NoQuery>,
    ApiJson(candidate): ApiJson<Candidate>,
) -> Result<Json<Checked>, Problem> {
    let text = candidate.text.unwrap_or_default();
    Ok(Json(ask_program(&state, "check", text).await?))
}

/// The changes of a reload.
#[derive(Deserialize, Serialize, ToSchema)]
struct Reloaded {
    /// Keys whose new values are in force.
    changed: Vec<String>,
    /// Keys whose new values need a restart.
    needs_restart: Vec<String>,
}

/// Reads the configuration again, as SIGHUP does. If anything in it is wrong, nothing changes.
#[utoipa::path(post, path = "/api/v1/reload", tag = "broker", security(("key" = ["admin"])),
    responses((status = 200, body = Reloaded)))]
async fn reload(
    State(state): State<ApiState>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Result<Json<Reloaded>, Problem> {
    let reloaded = ask_program(&state, "reload", String::new()).await?;
    state.risks.search_again();
    Ok(Json(reloaded))
}
