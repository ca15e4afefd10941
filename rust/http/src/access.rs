//! Access to a socket of the endpoint, by its peer or by token.

use std::sync::Arc;

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use subtle::ConstantTimeEq;

use crate::MetricsAccess;
use crate::answer::HttpError;

/// Who may ask over a socket, and for what.
#[derive(Clone)]
pub(super) enum Access {
    /// Everything: the system has told who it is.
    Known,
    /// Whoever sends the token, everything; others, health and what `metrics` says.
    Token {
        /// `None`: nobody has one.
        token: Option<Arc<str>>,
        metrics: MetricsAccess,
    },
}

impl Access {
    /// Whether the sender of a request with `headers` may ask for everything.
    ///
    /// The comparison takes as long for a wrong token as for the right one of the same length.
    pub(super) fn admits(&self, headers: &HeaderMap) -> bool {
        let token = match self {
            Self::Known => return true,
            Self::Token { token: None, .. } => return false,
            Self::Token {
                token: Some(token), ..
            } => token,
        };
        bearer(headers).is_some_and(|brought| brought.ct_eq(token.as_bytes()).into())
    }

    /// Whether there is a token that admits its sender.
    pub(super) fn has_token(&self) -> bool {
        !matches!(self, Self::Token { token: None, .. })
    }
}

/// What a request brings in its one `Authorization` header, if that is of the scheme `Bearer`.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut brought = headers.get_all(AUTHORIZATION).iter();
    let (Some(header), None) = (brought.next(), brought.next()) else {
        return None;
    };
    let (scheme, brought) = header.as_bytes().split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then_some(brought)
}

impl Access {
    /// Who may read metrics.
    pub(super) fn metrics(&self) -> MetricsAccess {
        match self {
            Self::Known => MetricsAccess::Token,
            Self::Token { metrics, .. } => *metrics,
        }
    }

    /// The answer to those who are not admitted.
    pub(super) fn refusal(&self) -> HttpError {
        match self {
            Self::Token { token: None, .. } => HttpError::forbidden(
                "this address has no token: set http.token_file, or use a Unix socket in the data folder",
            ),
            _ => HttpError::unauthorized(),
        }
    }
}

const SCHEME: &[u8] = b"Bearer ";
