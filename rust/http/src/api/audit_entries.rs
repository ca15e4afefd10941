//! `GET /audit`: the audit log, the newest entry first.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use mqttcore_broker::{AuditPosition, BrokerHandle, InvalidAuditPosition, timestamp};
use serde::{Deserialize, Serialize};
use toml::value::Datetime;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::tasks::blocking;

use super::ApiState;
use super::key_time::end_s;
use super::page::{Limit, List, behind, cursor};
use super::problem::Problem;
use super::query::ApiQuery;

/// A page reads no more of the log: it ends early if few entries match.
const READ_BYTES: usize = 16 << 20;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list))
}

/// A change that an operator made, or that was refused to one.
#[derive(Default, Deserialize, Serialize, ToSchema)]
struct AuditedChange {
    /// Time in UTC.
    ts: String,
    /// The key, the user of the machine, or the program.
    who: String,
    /// The way in: `http`, `unix`, `control`, `python` or `signal`.
    how: String,
    /// The address that the request came from; null: of no HTTP request over TCP.
    ip: Option<String>,
    /// The requested action, such as `DELETE /clients/{id}` or `ban`.
    action: String,
    /// The object of the action.
    target: String,
    /// Further parameters, by name.
    #[serde(default)]
    details: BTreeMap<String, String>,
    /// The outcome.
    result: String,
    /// The id of an HTTP request.
    request_id: Option<String>,
    /// Number of entries before this one that could not be written.
    #[serde(default)]
    lost: u64,
    /// SHA-256 of the line before, in hexadecimal digits.
    prev: String,
    /// Whether the line was damaged or changed, so that it cannot be read. The other fields are empty.
    #[serde(skip_deserializing)]
    is_damaged: bool,
}

impl AuditedChange {
    fn of_line(line: &[u8]) -> Self {
        serde_json::from_slice(line).unwrap_or_else(|_| Self {
            is_damaged: true,
            ..Self::default()
        })
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct AuditQuery {
    /// Only entries from this date, or date and time, on; such as `2026-11-23` or `2026-11-23T08:00:00Z`. UTC without an offset.
    since: Option<String>,
    /// Only entries with this text in `who`.
    who: Option<String>,
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(value_type = u16, minimum = 1, maximum = 1000, default = 100, required = false)]
    limit: Limit,
    /// Position of the page: `next` of the previous page.
    after: Option<String>,
}

/// Lists the entries of the audit log, the newest first.
///
/// A page may have fewer items than `limit`, or none, before the last one. A damaged line matches each query;
/// `mqttcore audit verify` also finds lines that were changed or removed.
#[utoipa::path(get, path = "/api/v1/audit", tag = "access", params(AuditQuery), security(("key" = ["admin"])),
    responses((status = 200, body = List<AuditedChange>)))]
async fn list(
    State(state): State<ApiState>,
    ApiQuery(query): ApiQuery<AuditQuery>,
) -> Result<Json<List<AuditedChange>>, Problem> {
    let since = query.since.as_deref().map(time).transpose()?;
    let after = behind(query.after.as_deref())?;
    let after = after.map(|text| text.parse()).transpose();
    let after = after.map_err(|InvalidAuditPosition| {
        Problem::bad("after is not the position of a page of this list")
    })?;
    let wanted = Wanted {
        since: since.unwrap_or_default(),
        who: query.who.unwrap_or_default(),
        limit: query.limit.0,
    };
    let read = blocking(move || wanted.read(&state.broker, after)).await?;
    let read = read.map_err(|error| Problem::internal(&error))?;
    let (items, next) = read.ok_or_else(|| {
        Problem::conflict("the broker has no audit log")
            .hint("it keeps one once the configuration has a data folder")
    })?;
    let next = next.map(|position| cursor(&position.to_string()));
    Ok(Json(List::new(items, next, &[])))
}

/// A date, or date and time, as entries have it.
fn time(text: &str) -> Result<String, Problem> {
    let read = text.parse().ok().and_then(|at: Datetime| end_s(at));
    let at = read.and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
    let invalid = || {
        Problem::bad(format!(
            "since is neither a date nor a date and time: {text:?}"
        ))
        .hint("such as 2026-11-23 or 2026-11-23T08:00:00Z")
    };
    at.map(timestamp).ok_or_else(invalid)
}

/// The conditions of a page.
struct Wanted {
    since: String,
    who: String,
    limit: usize,
}

impl Wanted {
    fn has(&self, change: &AuditedChange) -> bool {
        change.is_damaged || (change.ts >= self.since && change.who.contains(&self.who))
    }

    /// The items of a page, and the position of the next page; `None` without an audit log.
    fn read(
        &self,
        broker: &BrokerHandle,
        after: Option<AuditPosition>,
    ) -> io::Result<Option<(Vec<AuditedChange>, Option<AuditPosition>)>> {
        let Some(lines) = broker.audit_lines(&self.since, after)? else {
            return Ok(None);
        };
        let (mut items, mut last, mut read) = (Vec::new(), None, 0);
        for line in lines {
            if read >= READ_BYTES {
                return Ok(Some((items, last)));
            }
            let (position, text) = line?;
            read += text.len();
            let change = AuditedChange::of_line(&text);
            if self.has(&change) {
                if items.len() == self.limit {
                    return Ok(Some((items, last)));
                }
                items.push(change);
            }
            last = Some(position);
        }
        Ok(Some((items, None)))
    }
}
