//! Routes of the broker as a whole: overview, version, `$SYS`, and the description of the API.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::SystemTime;

use axum::extract::State;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use hyper::header::CONTENT_TYPE;
use mqttcore_broker::{Health, Pressure, RetainedItem, ShownCertificates};
use mqttcore_topics::{TopicFilter, TopicLimits};
use rustix::system::uname;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::document;
use super::identity::CallerIdentity;
use super::page::unix_ms;
use super::problem::Problem;
use super::query::{ApiQuery, NoQuery};
use super::rates::Rates;
use super::scope::Scope;
use crate::health;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(overview))
        .routes(routes!(caller))
        .routes(routes!(version))
        .routes(routes!(systree))
        .routes(routes!(openapi))
}

/// Overview of the broker. Counters begin at its start.
#[derive(Serialize, ToSchema)]
struct Overview {
    version: &'static str,
    /// Host name of the machine.
    node: String,
    uptime_s: u64,
    now_ms: u64,
    /// The configured durability of messages, as text.
    durability: String,
    clients: Clients,
    subscriptions: u64,
    retained_messages: u64,
    /// PUBLISH packets.
    messages: InAndOut,
    bytes: InAndOut,
    rates: Rates,
    /// Dropped messages, by reason.
    dropped: BTreeMap<String, u64>,
    /// Refused messages and clients, by reason.
    refused: BTreeMap<String, u64>,
    memory: Memory,
    /// How short space is on the disk of the data folder: `none`, `soft` or `hard`.
    disk_pressure: &'static str,
    /// Null without a data folder.
    store: Option<StoreFigures>,
    /// Conditions that an operator should mend.
    warnings: Vec<Warning>,
}

#[derive(Serialize, ToSchema)]
struct Clients {
    connected: u64,
    /// Sessions, with or without a connection.
    sessions: u64,
    /// Kept sessions that are not loaded yet.
    to_come: u64,
}

#[derive(Serialize, ToSchema)]
struct InAndOut {
    received: u64,
    sent: u64,
}

#[derive(Serialize, ToSchema)]
struct Memory {
    budget_bytes: u64,
    used_bytes: u64,
}

/// The figures of the store that tell whether the disk is fast enough, and large enough.
#[derive(Serialize, ToSchema)]
struct StoreFigures {
    /// What half of the syncs took at most, in microseconds.
    sync_p50_us: u64,
    /// What 99 of 100 syncs took at most.
    sync_p99_us: u64,
    /// Bytes of the log.
    log_bytes: u64,
    /// Those that are still needed.
    live_bytes: u64,
}

impl StoreFigures {
    fn of(figures: &HashMap<String, u64>) -> Option<Self> {
        let figure = |name: &str| figures.get(name).copied();
        Some(Self {
            sync_p50_us: figure("store_sync_p50_us")?,
            sync_p99_us: figure("store_sync_p99_us")?,
            log_bytes: figure("store_log_bytes")?,
            live_bytes: figure("store_live_bytes")?,
        })
    }
}

#[derive(Clone, Deserialize, Serialize, ToSchema)]
pub(super) struct Warning {
    /// The name of the check, as in the response of `/readyz`, `certificates`, or the subject of a risk that `mqttcore doctor`
    /// prints.
    pub(super) code: Cow<'static, str>,
    /// What is wrong. Only callers with the scope `admin` see more than the last part of a path.
    pub(super) text: String,
    /// A remedy.
    pub(super) fix: Cow<'static, str>,
}

pub(super) fn pressure_name(pressure: Pressure) -> &'static str {
    match pressure {
        Pressure::None => "none",
        Pressure::Soft => "soft",
        Pressure::Hard => "hard",
    }
}

/// A warning, and its text for callers without the scope `admin` if that is another one: they see no paths (ADR 0124).
#[derive(Clone, Deserialize)]
pub(super) struct Finding {
    #[serde(flatten)]
    pub(super) warning: Warning,
    pub(super) view_text: Option<String>,
}

impl Finding {
    /// The warning for a caller.
    fn shown(self, is_admin: bool) -> Warning {
        match self.view_text {
            Some(text) if !is_admin => Warning {
                text,
                ..self.warning
            },
            _ => self.warning,
        }
    }
}

/// Failed checks, certificates that expire, and risks of the configuration.
fn findings(state: &ApiState, health: &Health) -> Vec<Finding> {
    let failed = health::failed(health).map(|check| Finding {
        warning: Warning {
            code: check.name.into(),
            text: check.detail.unwrap_or_default(),
            fix: check.fix.into(),
        },
        view_text: None,
    });
    let mut all: Vec<_> = failed.collect();
    for shown in state.broker.certificates() {
        all.extend(expiring(&shown));
    }
    all.extend(state.risks.findings());
    all
}

/// The warnings for a caller.
fn shown(findings: Vec<Finding>, is_admin: bool) -> Vec<Warning> {
    let findings = findings.into_iter();
    findings.map(|finding| finding.shown(is_admin)).collect()
}

fn expiring(shown: &ShownCertificates) -> impl Iterator<Item = Finding> {
    let now = SystemTime::now();
    let place = if shown.is_service { "" } else { "listener " };
    let certificates = shown.certificates.iter();
    certificates.filter_map(move |certificate| {
        let warning = certificate.expiry_warning(now)?;
        let text = format!("{place}{}: {}", shown.name, warning.text);
        let path = certificate.file.display().to_string();
        Some(Finding {
            view_text: Some(text.replace(&path, &last_part(&certificate.file))),
            warning: Warning {
                code: "certificates".into(),
                text,
                fix: warning.fix.into(),
            },
        })
    })
}

/// What callers without the scope `admin` see of a path: its last part.
pub(super) fn last_part(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Warnings as JSON.
pub(super) struct WarningTexts {
    pub(super) for_admin: String,
    /// For callers without the scope `admin`.
    pub(super) for_view: String,
}

/// The warnings in force.
pub(super) fn warning_texts(state: &ApiState) -> WarningTexts {
    let health = state.broker.health().unwrap_or_default();
    let findings = findings(state, &health);
    let text =
        |is_admin| serde_json::to_string(&shown(findings.clone(), is_admin)).unwrap_or_default();
    WarningTexts {
        for_admin: text(true),
        for_view: text(false),
    }
}

/// The figures whose names begin with `prefix`; the prefix is removed.
fn reasons(figures: &HashMap<String, u64>, prefix: &str) -> BTreeMap<String, u64> {
    let own = figures.iter();
    own.filter_map(|(name, value)| Some((name.strip_prefix(prefix)?.to_owned(), *value)))
        .collect()
}

/// Returns an overview of the broker.
#[utoipa::path(get, path = "/api/v1/overview", tag = "broker", security(("key" = ["view"])),
    responses((status = 200, body = Overview)))]
async fn overview(
    State(state): State<ApiState>,
    Extension(identity): Extension<CallerIdentity>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Result<Json<Overview>, Problem> {
    let figures: HashMap<_, _> = state.broker.figures().into_iter().collect();
    let figure = |name: &str| figures.get(name).copied().unwrap_or(0);
    let in_and_out = |what| InAndOut {
        received: figure(&format!("{what}_received")),
        sent: figure(&format!("{what}_sent")),
    };
    let health = state.broker.health().unwrap_or_default();
    Ok(Json(Overview {
        version: env!("CARGO_PKG_VERSION"),
        node: uname().nodename().to_string_lossy().into_owned(),
        uptime_s: figure("uptime_s"),
        now_ms: unix_ms(),
        durability: state.broker.guarantees()?,
        clients: Clients {
            connected: figure("clients_connected"),
            sessions: figure("sessions"),
            to_come: figure("sessions_to_come"),
        },
        subscriptions: figure("subscriptions"),
        retained_messages: figure("retained_messages"),
        messages: in_and_out("messages"),
        bytes: in_and_out("bytes"),
        rates: state.samples.rates(),
        dropped: reasons(&figures, "dropped_"),
        refused: reasons(&figures, "refused_"),
        memory: Memory {
            budget_bytes: figure("memory_budget_bytes"),
            used_bytes: figure("memory_used_bytes"),
        },
        disk_pressure: pressure_name(health.pressure),
        store: StoreFigures::of(&figures),
        warnings: shown(findings(&state, &health), identity.has(Scope::Admin)),
    }))
}

/// The caller of a request.
#[derive(Serialize, ToSchema)]
pub(super) struct CallerInfo {
    /// Its name in the audit log.
    pub(super) name: String,
    pub(super) scopes: Vec<Scope>,
}

/// Returns the name and the scopes of the caller.
#[utoipa::path(get, path = "/api/v1/caller", tag = "access", security(("key" = ["view"])),
    responses((status = 200, body = CallerInfo)))]
async fn caller(
    Extension(identity): Extension<CallerIdentity>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Json<CallerInfo> {
    Json(CallerInfo {
        scopes: identity.scopes.names(),
        name: identity.name,
    })
}

/// Returns the version of the broker, as text.
#[utoipa::path(get, path = "/api/v1/version", tag = "broker", security(("key" = ["view"])),
    responses((status = 200, body = String, content_type = "text/plain")))]
async fn version(ApiQuery(_): ApiQuery<NoQuery>) -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Maximum number of `$SYS` topics in one response.
const SYS_TOPICS_MAX: usize = 10_000;

/// Returns the `$SYS` topics and their values, as numbers where possible. Empty if `sys_interval` is 0.
#[utoipa::path(get, path = "/api/v1/systree", tag = "broker", security(("key" = ["view"])),
    responses((status = 200, body = BTreeMap<String, Value>)))]
async fn systree(
    State(state): State<ApiState>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Result<Json<BTreeMap<String, Value>>, Problem> {
    let filter = TopicFilter::parse("$SYS/#", &TopicLimits::WIDEST);
    let filter = filter.map_err(|error| Problem::internal(&error))?;
    let page = state
        .broker
        .list_retained(&filter, None, SYS_TOPICS_MAX)
        .await?;
    let values = page.messages.iter().map(|RetainedItem { message, .. }| {
        let text = String::from_utf8_lossy(message.payload()).into_owned();
        let value = serde_json::from_str::<serde_json::Number>(&text);
        (
            message.topic().to_owned(),
            value.map_or(text.into(), Value::from),
        )
    });
    Ok(Json(values.collect()))
}

/// Returns this description, as OpenAPI 3.1.
#[utoipa::path(get, path = "/api/v1/openapi.json", tag = "broker", security(("key" = ["view"])),
    responses((status = 200, body = Value)))]
async fn openapi(ApiQuery(_): ApiQuery<NoQuery>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], document::text())
}
