//! Reads request bodies, with limits on size and time.

use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::{Body, Bytes, Incoming};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::HttpLimits;

use super::answer::HttpError;

/// Reads a body as JSON.
///
/// # Errors
///
/// The body is too large, too slow, incomplete, or not the expected JSON.
pub(super) async fn json<T: DeserializeOwned>(
    body: Incoming,
    limits: &HttpLimits,
) -> Result<T, HttpError> {
    let bytes = bytes(body, limits).await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| HttpError::bad(format!("invalid request body: {error}")))
}

/// Reads a whole body into memory.
///
/// # Errors
///
/// The body is too large, too slow, or incomplete.
pub(super) async fn bytes(body: Incoming, limits: &HttpLimits) -> Result<Vec<u8>, HttpError> {
    let bytes = timeout(limits.body_deadline, whole(body, limits)).await;
    bytes.unwrap_or_else(|_| Err(late()))
}

/// Reads a small body into memory.
async fn whole(mut body: Incoming, limits: &HttpLimits) -> Result<Vec<u8>, HttpError> {
    let too_large = || {
        let text = format!(
            "the request body is larger than {} bytes",
            limits.body_bytes
        );
        HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", text).closing()
    };
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limits.body_bytes {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(announced);
    while let Some(piece) = next(&mut body, limits).await? {
        if bytes.len() + piece.len() > limits.body_bytes {
            return Err(too_large());
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

fn late() -> HttpError {
    let text = "the request body was not complete before the timeout";
    HttpError::new(StatusCode::REQUEST_TIMEOUT, "timeout", text).closing()
}

/// The next bytes of a body; `None` at its end.
///
/// # Errors
///
/// The body is too slow or incomplete.
pub(super) async fn next(
    body: &mut Incoming,
    limits: &HttpLimits,
) -> Result<Option<Bytes>, HttpError> {
    loop {
        let Ok(frame) = timeout(limits.body_deadline, body.frame()).await else {
            return Err(late());
        };
        match frame {
            None => return Ok(None),
            Some(Err(error)) => {
                return Err(
                    HttpError::bad(format!("cannot read the request body: {error}")).closing(),
                );
            }
            Some(Ok(frame)) => {
                // Trailers are ignored.
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}
