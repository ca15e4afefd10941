//! What goes back: JSON, or a body that is made as it leaves.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body_util::Full;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use super::files::Part;

/// Media type of JSON.
pub(super) const JSON: &str = "application/json";

/// The answer to a request.
pub(super) type Answer = Response<Content>;

/// The body of an answer.
pub(super) enum Content {
    Whole(Full<Bytes>),
    /// Made piece by piece, as fast as the peer takes it.
    Pieces(Box<dyn Pieces>),
    /// Bytes of a file, read as fast as the peer takes them.
    File(Part),
}

/// What an answer is made of that does not have to be in memory as a whole.
pub(super) trait Pieces {
    /// The next one; an error breaks the answer off, so that nobody takes a part for the whole.
    fn next(&mut self) -> Option<Result<Bytes, Broken>>;
}

/// Why an answer that was begun cannot be ended.
pub(super) type Broken = Box<dyn std::error::Error + Send + Sync>;

impl Body for Content {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self.get_mut() {
            Self::Whole(whole) => Pin::new(whole)
                .poll_frame(cx)
                .map_err(|never| match never {}),
            Self::Pieces(pieces) => Poll::Ready(pieces.next().map(|piece| piece.map(Frame::data))),
            Self::File(part) => part
                .poll_next(cx)
                .map(|read| read.map(|read| read.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(whole) => whole.is_end_stream(),
            Self::Pieces(_) => false,
            Self::File(part) => part.left() == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(whole) => whole.size_hint(),
            Self::Pieces(_) => SizeHint::default(),
            Self::File(part) => SizeHint::with_exact(part.left()),
        }
    }
}

/// Why a request is refused: a status, a word for programs, and a sentence for people.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    code: &'static str,
    text: String,
    allow: Option<&'static str>,
    /// The rest of the request is not worth to be read.
    closes: bool,
}

impl Refusal {
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

    pub(super) fn unauthorized() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "bring the token: Authorization: Bearer ...",
        )
        .closing()
    }

    /// Ends the connection behind the answer.
    pub(super) fn closing(self) -> Self {
        Self {
            closes: true,
            ..self
        }
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        let text = json!({"error": refusal.text, "code": refusal.code});
        let mut answer = json(&text);
        *answer.status_mut() = refusal.status;
        let headers = answer.headers_mut();
        if refusal.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(allow) = refusal.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        if refusal.closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }
}

/// `value` as an answer.
pub(super) fn json(value: &Value) -> Answer {
    let text = Bytes::from(value.to_string());
    of_type(JSON, Content::Whole(Full::new(text)))
}

/// `pieces` as an answer.
pub(super) fn pieces(media_type: &'static str, pieces: Box<dyn Pieces>) -> Answer {
    of_type(media_type, Content::Pieces(pieces))
}

pub(super) fn of_type(media_type: &'static str, content: Content) -> Answer {
    let mut answer = Response::new(content);
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// Our own fault.
pub(super) fn broken(error: &dyn std::error::Error) -> Refusal {
    Refusal::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "internal",
        error.to_string(),
    )
}
