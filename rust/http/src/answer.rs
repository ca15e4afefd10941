//! HTTP responses: JSON, errors, and bodies that are produced while they are sent.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body_util::Full;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinError;

use super::event_stream::EventStream;
use super::files::FileRange;

/// Media type of JSON.
pub(super) const JSON: &str = "application/json";

/// An HTTP response.
pub(super) type HttpResponse = Response<AnswerBody>;

/// The body of a response.
pub(super) enum AnswerBody {
    Whole(Full<Bytes>),
    /// Produced in chunks, as fast as the peer reads them.
    BodyStream(Box<dyn BodyStream>),
    /// Events, as they happen.
    Events(EventStream),
    /// A byte range of a file, read from disk as fast as the peer reads it.
    File(FileRange),
}

/// A response body that is produced in chunks.
pub(super) trait BodyStream {
    /// Returns the next chunk of the body. An error aborts the response, so that the client notices the truncation.
    fn next(&mut self) -> Option<Result<Bytes, ResponseAborted>>;
}

/// The error that aborts a response after its headers were sent.
pub(super) type ResponseAborted = Box<dyn std::error::Error + Send + Sync>;

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = ResponseAborted;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseAborted>>> {
        match self.get_mut() {
            Self::Whole(whole) => Pin::new(whole)
                .poll_frame(cx)
                .map_err(|never| match never {}),
            Self::BodyStream(pieces) => {
                Poll::Ready(pieces.next().map(|piece| piece.map(Frame::data)))
            }
            Self::Events(events) => Pin::new(events)
                .poll_next(cx)
                .map(|event| event.map(|event| Ok(Frame::data(event)))),
            Self::File(part) => part
                .poll_next(cx)
                .map(|read| read.map(|read| read.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(whole) => whole.is_end_stream(),
            Self::BodyStream(_) | Self::Events(_) => false,
            Self::File(part) => part.left() == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(whole) => whole.size_hint(),
            Self::BodyStream(_) | Self::Events(_) => SizeHint::default(),
            Self::File(part) => SizeHint::with_exact(part.left()),
        }
    }
}

/// A refused request: a status, a code for programs, and a text for people.
#[derive(Debug)]
pub(super) struct HttpError {
    status: StatusCode,
    code: &'static str,
    text: String,
    allow: Option<&'static str>,
    /// Closes the connection instead of reading the rest of the request.
    closes: bool,
}

impl HttpError {
    pub(super) fn new(status: StatusCode, code: &'static str, text: impl Into<String>) -> Self {
        Self {
            status,
            code,
            text: text.into(),
            allow: None,
            closes: false,
        }
    }

    /// Status 400: the request is not valid.
    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", text)
    }

    pub(super) fn not_found(text: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", text)
    }

    pub(super) fn method(allow: &'static str) -> Self {
        Self {
            allow: Some(allow),
            ..Self::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method",
                format!("allowed: {allow}"),
            )
        }
    }

    /// Status 403: this request is not allowed over this socket.
    pub(super) fn forbidden(text: &'static str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", text)
    }

    pub(super) fn unauthorized() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "send the token or a key in the header: Authorization: Bearer <token>",
        )
    }

    /// Returns status, code and text, for a response in another format.
    pub(super) fn into_parts(self) -> (StatusCode, &'static str, String) {
        (self.status, self.code, self.text)
    }

    /// Closes the connection after the response.
    pub(super) fn closing(self) -> Self {
        Self {
            closes: true,
            ..self
        }
    }
}

impl From<JoinError> for HttpError {
    fn from(error: JoinError) -> Self {
        broken(&error)
    }
}

impl From<HttpError> for HttpResponse {
    fn from(error: HttpError) -> Self {
        let text = json!({"error": error.text, "code": error.code});
        let mut answer = json(&text);
        *answer.status_mut() = error.status;
        let headers = answer.headers_mut();
        if error.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(allow) = error.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        if error.closes {
            close_behind(&mut answer);
        }
        answer
    }
}

/// Closes the connection after `answer`.
pub(super) fn close_behind(answer: &mut HttpResponse) {
    let close = HeaderValue::from_static("close");
    answer.headers_mut().insert(CONNECTION, close);
}

/// A response with `value` as JSON.
pub(super) fn json(value: &Value) -> HttpResponse {
    let text = Bytes::from(value.to_string());
    of_type(JSON, AnswerBody::Whole(Full::new(text)))
}

/// A response with a body of chunks.
pub(super) fn pieces(media_type: &'static str, pieces: Box<dyn BodyStream>) -> HttpResponse {
    of_type(media_type, AnswerBody::BodyStream(pieces))
}

pub(super) fn of_type(media_type: &'static str, content: AnswerBody) -> HttpResponse {
    let mut answer = Response::new(content);
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// Status 500, for a fault of the broker.
pub(super) fn broken(error: &dyn std::error::Error) -> HttpError {
    HttpError::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "internal",
        error.to_string(),
    )
}
