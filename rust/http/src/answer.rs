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

use super::files::FileRange;

/// Media type of JSON.
pub(super) const JSON: &str = "application/json";

/// The answer to a request.
pub(super) type HttpResponse = Response<Content>;

/// The body of an answer.
pub(super) enum Content {
    Whole(Full<Bytes>),
    /// Made piece by piece, as fast as the peer takes it.
    BodyStream(Box<dyn BodyStream>),
    /// Bytes of a file, read as fast as the peer takes them.
    File(FileRange),
}

/// What an answer is made of that does not have to be in memory as a whole.
pub(super) trait BodyStream {
    /// Returns the next piece of the body; an error aborts the response, so that a part is not mistaken for the whole.
    fn next(&mut self) -> Option<Result<Bytes, ResponseAborted>>;
}

/// Why an answer that was begun cannot be ended.
pub(super) type ResponseAborted = Box<dyn std::error::Error + Send + Sync>;

impl Body for Content {
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
            Self::File(part) => part
                .poll_next(cx)
                .map(|read| read.map(|read| read.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(whole) => whole.is_end_stream(),
            Self::BodyStream(_) => false,
            Self::File(part) => part.left() == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(whole) => whole.size_hint(),
            Self::BodyStream(_) => SizeHint::default(),
            Self::File(part) => SizeHint::with_exact(part.left()),
        }
    }
}

/// Why a request is refused: a status, a word for programs, and a sentence for people.
#[derive(Debug)]
pub(super) struct HttpError {
    status: StatusCode,
    code: &'static str,
    text: String,
    allow: Option<&'static str>,
    /// The rest of the request is not worth to be read.
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

    /// The request makes no sense.
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

    /// Nobody may ask for it here.
    pub(super) fn forbidden(text: &'static str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", text)
    }

    pub(super) fn unauthorized() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "send the token in the header: Authorization: Bearer <token>",
        )
    }

    /// Status, word for programs and sentence for people, for an answer in another form.
    pub(super) fn into_parts(self) -> (StatusCode, &'static str, String) {
        (self.status, self.code, self.text)
    }

    /// Ends the connection behind the answer.
    pub(super) fn closing(self) -> Self {
        Self {
            closes: true,
            ..self
        }
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

/// Ends the connection behind `answer`.
pub(super) fn close_behind(answer: &mut HttpResponse) {
    let close = HeaderValue::from_static("close");
    answer.headers_mut().insert(CONNECTION, close);
}

/// `value` as an answer.
pub(super) fn json(value: &Value) -> HttpResponse {
    let text = Bytes::from(value.to_string());
    of_type(JSON, Content::Whole(Full::new(text)))
}

/// `pieces` as an answer.
pub(super) fn pieces(media_type: &'static str, pieces: Box<dyn BodyStream>) -> HttpResponse {
    of_type(media_type, Content::BodyStream(pieces))
}

pub(super) fn of_type(media_type: &'static str, content: Content) -> HttpResponse {
    let mut answer = Response::new(content);
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// Our own fault.
pub(super) fn broken(error: &dyn std::error::Error) -> HttpError {
    HttpError::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "internal",
        error.to_string(),
    )
}
