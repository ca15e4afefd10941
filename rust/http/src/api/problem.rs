//! Errors of the API as `application/problem+json` (RFC 9457).

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::http::response::Parts;
use mqttcore_broker::{AskError, BrokerStopped};
use serde::Serialize;
use tokio::task::JoinError;
use utoipa::ToSchema;

use crate::answer::HttpError;

/// Media type of a problem.
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// A refused request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    /// Code for programs.
    pub(crate) slug: &'static str,
    detail: String,
    hint: Option<String>,
    retry_after_s: Option<u64>,
}

/// A problem as it is sent.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemText {
    /// `/errors/` and the code of the error.
    #[schema(example = "/errors/not_found")]
    r#type: String,
    /// Name of the HTTP status.
    title: String,
    /// The HTTP status.
    status: u16,
    /// Description of the problem.
    detail: String,
    /// A remedy.
    hint: Option<String>,
    /// The number of the request, as in the header `X-Request-Id`.
    request_id: String,
}

impl Problem {
    /// A request of a web page that is not the broker's own.
    pub(super) fn another_page() -> Self {
        let text = "the request comes from a web page of another origin, or Host is a name";
        Self::new(StatusCode::FORBIDDEN, "origin", text)
            .hint("over a Unix socket, ask for an IP address, localhost or one of http.hosts")
    }

    pub(crate) fn new(status: StatusCode, slug: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            slug,
            detail: detail.into(),
            hint: None,
            retry_after_s: None,
        }
    }

    pub(crate) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", detail)
    }

    pub(crate) fn internal(error: &dyn std::error::Error) -> Self {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self::new(status, "internal", error.to_string())
    }

    pub(crate) fn no_client(client_id: &str) -> Self {
        Self::not_found(format!("no client {client_id:?} has a session"))
            .hint("GET /api/v1/clients?q= finds clients by a part of their identifier")
    }

    pub(super) fn detail(&self) -> &str {
        &self.detail
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// The problem of one part of a request.
    pub(crate) fn about(self, part: &str) -> Self {
        Self {
            detail: format!("{part}: {}", self.detail),
            ..self
        }
    }

    pub(crate) fn retry_after(self, seconds: u64) -> Self {
        Self {
            retry_after_s: Some(seconds),
            ..self
        }
    }

    /// The body of the response to the request with this id.
    pub(crate) fn text(&self, request_id: &str) -> ProblemText {
        ProblemText {
            r#type: format!("/errors/{}", self.slug),
            title: self.status.canonical_reason().unwrap_or_default().into(),
            status: self.status.as_u16(),
            detail: self.detail.clone(),
            hint: self.hint.clone(),
            request_id: request_id.into(),
        }
    }
}

/// Leaves the body empty: [`finish`](super::finish), which knows the request id, writes it.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        response.extensions_mut().insert(self);
        response
    }
}

impl From<AskError> for Problem {
    fn from(error: AskError) -> Self {
        let slug = match error {
            // A client that sends the request again may make the change twice.
            AskError::Unconfirmed { .. } => {
                let (status, slug) = (StatusCode::GATEWAY_TIMEOUT, "unknown_outcome");
                return Self::new(status, slug, error.to_string())
                    .hint("read what it was to change before you send it again");
            }
            AskError::Stopped(_) => "stopped",
            AskError::Loading => "loading",
            _ => "busy",
        };
        Self::new(StatusCode::SERVICE_UNAVAILABLE, slug, error.to_string()).retry_after(1)
    }
}

impl From<BrokerStopped> for Problem {
    fn from(error: BrokerStopped) -> Self {
        AskError::from(error).into()
    }
}

impl From<JoinError> for Problem {
    fn from(error: JoinError) -> Self {
        Self::internal(&error)
    }
}

impl From<HttpError> for Problem {
    fn from(error: HttpError) -> Self {
        let (status, slug, detail) = error.into_parts();
        Self::new(status, slug, detail)
    }
}

/// Converts an error response of the router itself, such as 404 or 405.
pub(crate) fn of_router(head: &Parts) -> Problem {
    match head.status {
        StatusCode::METHOD_NOT_ALLOWED => {
            let allow = head.headers.get(ALLOW);
            let allow = allow.and_then(|allow| allow.to_str().ok()).unwrap_or("");
            Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method",
                format!("allowed: {allow}"),
            )
        }
        status => Problem::new(status, "refused", "the request was refused"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A client that sends an unconfirmed change again may make it twice.
    #[test]
    fn only_a_question_that_changes_nothing_may_be_sent_again() {
        let (shard, deadline) = (0, Duration::from_secs(30));
        let of = |error: AskError| {
            let problem = Problem::from(error);
            (problem.status.as_u16(), problem.slug, problem.retry_after_s)
        };

        let unconfirmed = AskError::Unconfirmed { shard, deadline };
        assert_eq!(of(unconfirmed), (504, "unknown_outcome", None));
        assert_eq!(
            of(AskError::Late { shard, deadline }),
            (503, "busy", Some(1))
        );
        assert_eq!(of(AskError::Loading), (503, "loading", Some(1)));
        assert_eq!(of(BrokerStopped.into()), (503, "stopped", Some(1)));
    }
}
