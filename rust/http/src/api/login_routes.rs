//! Routes for login and logout of users (ADR 0075).

use std::time::Instant;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use hyper::StatusCode;
use hyper::header::{HeaderValue, SET_COOKIE};
use mqttcore_broker::{AddressKey, AuditEntry, LoginRefusal, Operator, Peer, Secret};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::HttpLimits;
use crate::tasks::blocking;

use super::ApiState;
use super::audit::RequestSource;
use super::failures::too_many;
use super::identity::CallerIdentity;
use super::logins::{COOKIE_NAME, LASTS, name_of};
use super::problem::Problem;
use super::query::{ApiJson, ApiQuery, NoQuery};
use super::scope::{Scope, Scopes};
use super::system::CallerInfo;

/// Path of both routes.
pub(super) const PATH: &str = "/api/v1/login";
/// Name of the listener in the login that plugins see.
const LISTENER: &str = "http";
/// Maximum size of the body of a login.
const BODY_BYTES: usize = 8 << 10;
/// Logins about which plugins are asked at a time.
pub(super) const LOGINS_AT_A_TIME: usize = 16;
/// How long to wait after too many failed logins of a user.
const PAUSE_S: u64 = 60;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(log_in, log_out))
}

/// The limits of a request whose sender is not known.
pub(super) fn limits(limits: &HttpLimits) -> HttpLimits {
    HttpLimits {
        body_bytes: BODY_BYTES,
        ..*limits
    }
}

/// The credentials of an MQTT client.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Credentials {
    #[schema(min_length = 1)]
    username: String,
    password: String,
}

/// Logs a user in, by the plugins that authenticate MQTT clients. The answer sets a cookie for 12 hours.
#[utoipa::path(post, path = "/api/v1/login", tag = "access", request_body = Credentials, security(()),
    params(("X-Mqttcore" = String, Header, description = "`1`")),
    responses((status = 200, body = CallerInfo)))]
async fn log_in(
    State(state): State<ApiState>,
    Extension(source): Extension<RequestSource>,
    ApiQuery(_): ApiQuery<NoQuery>,
    ApiJson(Credentials { username, password }): ApiJson<Credentials>,
) -> Result<Response, Problem> {
    let password = Secret::from(password.as_bytes());
    if !state.has_logins {
        let text = "logins with a password are off";
        return Err(forbidden("login", text).hint("set http.login, or use a key"));
    }
    let Some(ip) = source.address else {
        let text = "the Unix socket needs no login";
        return Err(forbidden("login", text).hint("send the request without one"));
    };
    let address = AddressKey::of(ip);
    let refused = || state.failures.refused_for_s(address, Instant::now());
    if let Some(seconds) = refused() {
        return Err(too_many(seconds));
    }
    let Ok(_permit) = state.logins_at_a_time.try_acquire() else {
        let text = format!("{LOGINS_AT_A_TIME} users are logging in");
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", text);
        return Err(problem.retry_after(1));
    };
    let peer = Peer::Tcp { ip, port: 0 };
    let outcome = state.broker.log_in(LISTENER, &username, password, peer);
    let outcome = outcome.await;
    // An answer that comes after the limit was reached must not reveal whether the guess was right.
    if let Some(seconds) = refused() {
        return Err(too_many(seconds));
    }
    if matches!(outcome, Err(LoginRefusal::Denied)) {
        state.failures.count(address, Instant::now());
    }
    let operator = outcome?;
    let name = name_of(operator.name());
    let scopes = scopes_of(&operator);
    let result = if scopes == Scopes::default() {
        Err(
            forbidden("operate", format!("{name} may not operate the broker"))
                .hint("a plugin has to answer Allow(Grant(operate={\"view\"}))"),
        )
    } else {
        let user = operator.name().to_owned();
        let added = state.logins.add(&user, operator, scopes, Instant::now());
        added.map_err(|error| Problem::internal(&error))
    };
    record(&state, &source, name.clone(), &result).await;
    let caller = CallerInfo {
        name,
        scopes: scopes.names(),
    };
    Ok((cookie(&result?, LASTS.as_secs(), &source)?, Json(caller)).into_response())
}

/// Logs a user out: the cookie of the request is not valid any more.
#[utoipa::path(delete, path = "/api/v1/login", tag = "access", security(()),
    params(("X-Mqttcore" = String, Header, description = "`1`")),
    responses((status = 204, description = "The cookie is not valid any more")))]
async fn log_out(
    State(state): State<ApiState>,
    Extension(source): Extension<RequestSource>,
    Extension(identity): Extension<CallerIdentity>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Result<Response, Problem> {
    if let Some(digest) = identity.key.filter(|_| identity.is_by_cookie) {
        state.logins.end(&digest, Instant::now());
    }
    Ok((StatusCode::NO_CONTENT, cookie("", 0, &source)?).into_response())
}

/// The scopes that the plugins grant. Scopes of streams need a key: streams do not take cookies.
fn scopes_of(operator: &Operator) -> Scopes {
    let granted = operator.scopes().iter();
    let known = granted.filter_map(|name| Scope::named(name));
    known.filter(|scope| scope.is_of_api()).collect()
}

/// The header that sets the cookie.
fn cookie(
    secret: &str,
    age_s: u64,
    source: &RequestSource,
) -> Result<[(hyper::header::HeaderName, HeaderValue); 1], Problem> {
    let secure = if source.is_private { "; Secure" } else { "" };
    let text = format!(
        "{COOKIE_NAME}={secret}; Path=/api; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}"
    );
    let value = HeaderValue::from_str(&text).map_err(|error| Problem::internal(&error))?;
    Ok([(SET_COOKIE, value)])
}

/// Adds a login to the audit log. Wrong passwords are not there: anybody can send them.
async fn record(
    state: &ApiState,
    source: &RequestSource,
    who: String,
    result: &Result<String, Problem>,
) {
    let entry = AuditEntry {
        who,
        how: LISTENER.into(),
        address: source.address,
        action: "POST /login".into(),
        target: "/login".into(),
        details: Vec::new(),
        result: match result {
            Ok(_) => "200".into(),
            Err(problem) => format!("{} {}", problem.status.as_u16(), problem.slug),
        },
        request_id: Some(source.request_id.clone()),
    };
    let broker = state.broker.clone();
    // If the thread panicked, it has reported that.
    let _ = blocking(move || broker.audit(&entry)).await;
}

fn forbidden(slug: &'static str, text: impl Into<String>) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, slug, text)
}

impl From<LoginRefusal> for Problem {
    fn from(refusal: LoginRefusal) -> Self {
        let text = refusal.to_string();
        match refusal {
            LoginRefusal::NotAsked(error) => error.into(),
            LoginRefusal::NoPlugins => forbidden("login", text).hint("use a key"),
            LoginRefusal::Banned => forbidden("banned", text),
            LoginRefusal::Paused => too_many(PAUSE_S),
            LoginRefusal::Denied => Self::new(StatusCode::UNAUTHORIZED, "unauthorized", text),
            _ => Self::new(StatusCode::SERVICE_UNAVAILABLE, "unanswered", text).retry_after(1),
        }
    }
}
