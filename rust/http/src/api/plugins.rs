//! Routes of plugins: their hooks, with what became of their calls; reading the files of one again.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use mqttcore_broker::{BrokerHandle, Histogram, HookCalls, is_plugin_named};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::configuration::ask_program;
use super::page::List;
use super::problem::Problem;
use super::query::{ApiPath, ApiQuery, NoQuery};

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(metrics))
        .routes(routes!(reload))
}

/// A hook of a plugin. Counts begin at 0 with the broker and with a reload that replaces the plugins.
#[derive(Serialize, ToSchema)]
#[schema(as = PluginHook)]
struct PluginHook {
    /// The name of the plugin's class, with its module.
    plugin: String,
    /// The name of the method.
    hook: String,
    /// Numbers of calls by result, and of questions that were refused without a call.
    results: BTreeMap<&'static str, u64>,
    /// Calls that have not come back yet.
    in_flight: u64,
    /// Questions that a cache answered.
    cache_hits: u64,
    /// Questions that wait for the hook. Of hooks that share a queue, the first one has them.
    waiting: u64,
    /// It is not called, because it keeps failing or blocks threads: questions are refused as `shut_out`. It is tried again
    /// every five seconds.
    paused: bool,
    /// Durations of calls.
    run: Spread,
    /// Times from the question to its call.
    wait: Spread,
}

/// Durations: limits that half of them, and 99 of 100, did not exceed; null: there were none, or they took longer than any
/// limit.
#[derive(Debug, Eq, PartialEq, Serialize, ToSchema)]
struct Spread {
    count: u64,
    p50_us: Option<u64>,
    p99_us: Option<u64>,
}

impl Spread {
    fn of(durations: &Histogram) -> Self {
        let count = durations.buckets.iter().map(|(_, count)| count).sum();
        Self {
            count,
            p50_us: limit_of(durations, count, 50),
            p99_us: limit_of(durations, count, 99),
        }
    }
}

/// The limit of the bucket in which so many hundredths of the durations are complete.
pub(super) fn limit_of(durations: &Histogram, count: u64, hundredths: u64) -> Option<u64> {
    let wanted = (count * hundredths).div_ceil(100).max(1);
    let mut seen = 0;
    let bucket = durations.buckets.iter().find(|(_, more)| {
        seen += more;
        seen >= wanted
    });
    bucket.map(|(limit, _)| *limit).filter(|us| *us < u64::MAX)
}

impl From<HookCalls> for PluginHook {
    fn from(calls: HookCalls) -> Self {
        Self {
            plugin: calls.plugin.to_string(),
            hook: calls.hook.to_string(),
            results: calls.results.into_iter().collect(),
            in_flight: calls.in_flight,
            cache_hits: calls.cache_hits,
            waiting: calls.waiting,
            paused: calls.is_paused,
            run: Spread::of(&calls.run),
            wait: Spread::of(&calls.wait),
        }
    }
}

/// Lists the hooks of the plugins in force, in the order in which they are asked.
#[utoipa::path(get, path = "/api/v1/plugins", tag = "broker", security(("key" = ["view"])),
    responses((status = 200, body = List<PluginHook>)))]
async fn list(
    State(state): State<ApiState>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Json<List<PluginHook>> {
    let calls = state.broker.hook_calls().into_iter();
    Json(List::new(calls.map(PluginHook::from).collect(), None, &[]))
}

/// Lists the hooks of one plugin.
#[utoipa::path(get, path = "/api/v1/plugins/{name}/metrics", tag = "broker", security(("key" = ["view"])),
    params(("name" = String, Path, description = "Name of the plugin as in the list, or its module")),
    responses((status = 200, body = List<PluginHook>)))]
async fn metrics(
    State(state): State<ApiState>,
    ApiPath(name): ApiPath<String>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Result<Json<List<PluginHook>>, Problem> {
    check_name(&state.broker, &name)?;
    let calls = state.broker.hook_calls().into_iter();
    let own = calls.filter(|calls| is_plugin_named(&calls.plugin, &name));
    Ok(Json(List::new(
        own.map(PluginHook::from).collect(),
        None,
        &[],
    )))
}

/// A plugin that has read its files again.
#[derive(Deserialize, Serialize, ToSchema)]
struct ReloadedPlugin {
    /// Number of users whose rights may have changed, and are asked for again; null: those of everybody.
    changed_users: Option<u64>,
}

/// Refuses a name that is neither that of a plugin nor of its module.
pub(super) fn check_name(broker: &BrokerHandle, name: &str) -> Result<(), Problem> {
    let calls = broker.hook_calls();
    if calls
        .iter()
        .any(|calls| is_plugin_named(&calls.plugin, name))
    {
        return Ok(());
    }
    let problem = Problem::not_found(format!("no plugin {name:?} runs"));
    Err(problem.hint("GET /api/v1/plugins lists them"))
}

/// Has a plugin read its files again, while its hooks are asked. Its configuration and other plugins stay as they are.
#[utoipa::path(post, path = "/api/v1/plugins/{name}/reload", tag = "broker", security(("key" = ["admin"])),
    params(("name" = String, Path, description = "Name of the plugin as in the list, or its module")),
    responses((status = 200, body = ReloadedPlugin)))]
async fn reload(
    State(state): State<ApiState>,
    ApiPath(name): ApiPath<String>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Result<Json<ReloadedPlugin>, Problem> {
    check_name(&state.broker, &name)?;
    Ok(Json(ask_program(&state, "reload_plugin", name).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_limits_of_its_buckets() {
        let of = |counts: [u64; 3]| {
            let limits = [10, 20, u64::MAX];
            let buckets = limits.into_iter().zip(counts).collect();
            Spread::of(&Histogram::new(0, buckets))
        };
        let spread = |count, p50_us, p99_us| Spread {
            count,
            p50_us,
            p99_us,
        };

        assert_eq!(of([0, 0, 0]), spread(0, None, None));
        assert_eq!(of([1, 0, 0]), spread(1, Some(10), Some(10)));
        assert_eq!(of([50, 50, 0]), spread(100, Some(10), Some(20)));
        assert_eq!(of([49, 50, 1]), spread(100, Some(20), Some(20)));
        assert_eq!(of([0, 1, 2]), spread(3, None, None));
    }
}
