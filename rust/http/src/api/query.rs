//! Extractors for query, path and JSON body; errors carry a hint.

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use hyper::StatusCode;
use hyper::Uri;
use hyper::header::CONTENT_TYPE;
use hyper::http::request::Parts;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;
use utoipa::openapi::path::ParameterIn;

use crate::answer::JSON;
use crate::target::RequestTarget;

use super::keys::hex;
use super::problem::Problem;

/// The query of a request. `+` means `+`, not a space, as in topic filters.
pub(crate) struct ApiQuery<T>(pub(crate) T);

/// The variable parts of a path.
pub(crate) struct ApiPath<T>(pub(crate) T);

/// A JSON body.
pub(crate) struct ApiJson<T>(pub(crate) T);

/// A query without keys.
#[derive(serde::Deserialize, IntoParams)]
pub(crate) struct NoQuery {}

impl<S: Send + Sync, T: DeserializeOwned + IntoParams> FromRequestParts<S> for ApiQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let target = RequestTarget::parse("/", parts.uri.query());
        let invalid =
            || Problem::bad("a key comes twice, or the query is not valid percent-encoding");
        let target = target.ok_or_else(invalid)?;
        let params = T::into_params(|| Some(ParameterIn::Query));
        let known: Vec<&str> = params.iter().map(|param| param.name.as_str()).collect();
        let mut again = String::from("/?");
        for (key, value) in target.pairs() {
            if !known.contains(&key) {
                return Err(unknown_key(key, &known));
            }
            encode(key, value, &mut again);
        }
        let uri: Result<Uri, _> = again.parse();
        let uri = uri.map_err(|error| Problem::bad(error.to_string()))?;
        let read = Query::try_from_uri(&uri);
        let Query(query) = read.map_err(|error| {
            let text = error.body_text();
            Problem::bad(text.strip_prefix(LIBRARY_WORDS).unwrap_or(&text))
        })?;
        Ok(Self(query))
    }
}

/// What `axum` says first about a value that is not valid; the rest names key and fault.
const LIBRARY_WORDS: &str = "Failed to deserialize query string: ";

/// Appends a key and its value, percent-encoded.
fn encode(key: &str, value: &str, out: &mut String) {
    out.push_str(key);
    out.push('=');
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push_str(&hex(&[byte]));
        }
    }
    out.push('&');
}

fn unknown_key(key: &str, known: &[&str]) -> Problem {
    let problem = Problem::bad(format!("unknown query parameter: {key:?}"));
    if known.is_empty() {
        return problem.hint("this path takes no query");
    }
    with_near(problem, key, known)
}

/// Adds a hint: the known name that `name` was probably meant to be, or all of them.
pub(super) fn with_near(problem: Problem, name: &str, known: &[&str]) -> Problem {
    let near = known.iter().map(|known| (distance(name, known), *known));
    match near.min() {
        Some((far, name)) if far <= NEAR => problem.hint(format!("did you mean {name:?}?")),
        _ => problem.hint(format!("known: {}", known.join(", "))),
    }
}

/// Maximum edit distance of a name that a hint proposes.
const NEAR: usize = 3;

/// Levenshtein distance of `a` and `b`; only the beginning of a long text counts.
fn distance(a: &str, b: &str) -> usize {
    let [a, b] = [a, b].map(|text| text.chars().take(40).collect::<Vec<_>>());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, right) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(left != right);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for ApiPath<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = Path::from_request_parts(parts, state).await;
        let Path(path) = read.map_err(|error| Problem::bad(error.body_text()))?;
        Ok(Self(path))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for ApiJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let kind = request.headers().get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or("none");
        let media_type = kind.split(';').next().unwrap_or_default().trim();
        if !media_type.eq_ignore_ascii_case(JSON) {
            let text = format!("the media type of the body is not JSON: {kind:?}");
            let problem = Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media_type", text);
            return Err(problem.hint("send the header: Content-Type: application/json"));
        }
        // The body is in memory already, and within the limit.
        let body = axum::body::to_bytes(request.into_body(), usize::MAX).await;
        let body = body.map_err(|error| Problem::bad(error.to_string()))?;
        let read = serde_json::from_slice(&body);
        read.map(Self)
            .map_err(|error| Problem::bad(format!("invalid request body: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_offered() {
        let known = ["connected", "listener", "limit"];
        for (key, hint) in [
            ("conected", "did you mean \"connected\"?"),
            ("limits", "did you mean \"limit\"?"),
            ("something else", "known: connected, listener, limit"),
        ] {
            assert_eq!(
                unknown_key(key, &known),
                Problem::bad(format!("unknown query parameter: {key:?}")).hint(hint)
            );
        }
        let long = "x".repeat(100_000);
        assert!(distance(&long, "limit") <= 40);
    }

    #[test]
    fn a_pair_is_written_so_that_plus_stays_plus() {
        let mut out = String::new();
        encode("filter", "a/+ &ü", &mut out);

        assert_eq!(out, "filter=a%2f%2b%20%26%c3%bc&");
    }
}
