//! `GET /queries`: the reports of Spark queries that read streams.

use std::time::Instant;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::page::{List, unix_ms, whole_ms};
use super::query::{ApiQuery, NoQuery};

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list))
}

/// The newest report of a query.
#[derive(Serialize, ToSchema)]
struct QueryReport {
    query: String,
    /// When the broker received it, in Unix milliseconds.
    reported_at_ms: u64,
    /// The report, as it is published at `$SYS/spark/{query}`.
    #[schema(value_type = Object)]
    report: Map<String, Value>,
}

/// Lists the newest report of each query that has sent one within five minutes, by name.
#[utoipa::path(get, path = "/api/v1/queries", tag = "broker", security(("key" = ["view"])),
    responses((status = 200, body = List<QueryReport>)))]
async fn list(
    State(state): State<ApiState>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Json<List<QueryReport>> {
    let reports = state.reports.iter();
    let newest = reports.flat_map(|reports| reports.newest(Instant::now()));
    let items = newest.map(|(query, text, age)| QueryReport {
        query,
        reported_at_ms: unix_ms().saturating_sub(whole_ms(age)),
        // INVARIANT: the endpoint has written it as an object.
        report: serde_json::from_str(&text).unwrap_or_default(),
    });
    Json(List::new(items.collect(), None, &[]))
}
