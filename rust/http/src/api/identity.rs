//! Identity of a caller: the peer of a Unix socket, the token, or a key.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::StatusCode;
use sha2::{Digest, Sha256};

use crate::access::SocketAccess;
use crate::answer::HttpError;

use super::keys::hex;
use super::problem::Problem;
use super::scope::{Scope, Scopes};

/// Bytes of the SHA-256 of a key's name that tell the owners of queries apart.
const OWNER_BYTES: usize = 16;

/// An authenticated caller and its scopes.
#[derive(Clone, Debug)]
pub(crate) struct CallerIdentity {
    /// Name in errors and logs.
    pub(crate) name: String,
    pub(crate) scopes: Scopes,
    /// The streams below `/v1/streams` that it may ask for; `None`: all.
    streams: Option<Arc<[String]>>,
    /// SHA-256 of its key, or of the secret in its cookie; `None`: the owner, or the token.
    pub(crate) key: Option<[u8; 32]>,
    /// A browser sent the cookie of a login, perhaps for another page.
    pub(crate) is_by_cookie: bool,
}

impl CallerIdentity {
    pub(crate) fn new(name: impl Into<String>, scopes: Scopes) -> Self {
        Self {
            name: name.into(),
            scopes,
            streams: None,
            key: None,
            is_by_cookie: false,
        }
    }

    /// A caller that is not authenticated, for public routes.
    pub(crate) fn nobody() -> Self {
        Self::new("nobody", Scopes::default())
    }

    /// The identity of a key with this SHA-256.
    pub(crate) fn with_key(self, digest: [u8; 32]) -> Self {
        let key = Some(digest);
        Self { key, ..self }
    }

    /// The identity by a cookie whose secret has this SHA-256.
    pub(crate) fn with_cookie(self, digest: [u8; 32]) -> Self {
        Self {
            key: Some(digest),
            is_by_cookie: true,
            ..self
        }
    }

    /// Limits it to these streams; `None`: all.
    pub(crate) fn limited_to(self, streams: Option<Arc<[String]>>) -> Self {
        Self { streams, ..self }
    }

    /// The peer of a Unix socket, or a client with the token: each has full access.
    pub(crate) fn of(access: &SocketAccess) -> Self {
        let name = match access {
            SocketAccess::Known => "the owner",
            SocketAccess::Token { .. } => "the token",
        };
        Self::new(name, Scopes::all())
    }

    pub(crate) fn has(&self, scope: Scope) -> bool {
        self.scopes.has(scope)
    }

    /// Checks that it has one of `scopes`.
    ///
    /// # Errors
    ///
    /// Status 403, with the scopes.
    pub(crate) fn needs_one_of(&self, scopes: &[Scope]) -> Result<(), HttpError> {
        if scopes.iter().any(|scope| self.has(*scope)) {
            return Ok(());
        }
        let names: Vec<_> = scopes
            .iter()
            .map(|scope| format!("{:?}", scope.name()))
            .collect();
        let text = format!(
            "{} lacks the scope {}: use a key whose scopes in http.keys_file have it",
            self.name,
            names.join(" or ")
        );
        Err(HttpError::new(StatusCode::FORBIDDEN, "scope", text))
    }

    /// Whether it may ask for this stream.
    pub(crate) fn reaches(&self, stream: &str) -> bool {
        let listed = |streams: &Arc<[String]>| streams.iter().any(|name| name == stream);
        self.streams.as_ref().is_none_or(listed)
    }

    /// Checks that it may ask for this stream.
    ///
    /// # Errors
    ///
    /// Status 403, whether the stream exists or not.
    pub(crate) fn needs_stream(&self, stream: &str) -> Result<(), HttpError> {
        if self.reaches(stream) {
            return Ok(());
        }
        let text = format!(
            "{} lacks the stream {stream:?}: use a key whose streams in http.keys_file have it",
            self.name
        );
        Err(HttpError::new(StatusCode::FORBIDDEN, "stream", text))
    }

    /// The owner of its consumers' holds. A caller without the scope `operate` has holds of its own: with the names of
    /// others it could move their holds.
    pub(crate) fn owner_of_holds(&self) -> Option<String> {
        (!self.has(Scope::Operate)).then(|| self.name.clone())
    }

    /// The owner of its queries of the sink. A caller without the scope `operate` has queries of its own: with the names
    /// of others it could commit their batches. A hash, since the owner becomes a part of the name of a file.
    pub(crate) fn queries(&self) -> Option<String> {
        if self.has(Scope::Operate) {
            return None;
        }
        let digest = Sha256::digest(self.name.as_bytes());
        Some(hex(&digest[..OWNER_BYTES]))
    }
}

/// The sender of a request and its address.
pub(crate) struct Caller<'a> {
    pub(crate) access: &'a SocketAccess,
    /// `None` if the sender is not authenticated.
    pub(crate) identity: Option<CallerIdentity>,
    /// `None` for a Unix socket.
    pub(crate) address: Option<IpAddr>,
}

impl Caller<'_> {
    /// Whether it has the scope `view`.
    pub(crate) fn may_view(&self) -> bool {
        let identity = self.identity.as_ref();
        identity.is_some_and(|identity| identity.has(Scope::View))
    }
}

/// The response to a caller that is not authenticated. `has_secrets`: a token or keys exist for this socket.
pub(crate) fn unknown(has_secrets: bool) -> Problem {
    if has_secrets {
        let text = "the request has no valid key";
        Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", text)
            .hint("send a key or the token in the header: Authorization: Bearer mq_...")
    } else {
        let text = "this address has no keys";
        Problem::new(StatusCode::FORBIDDEN, "forbidden", text).hint(
            "set http.keys_file or http.token_file, or use the Unix socket in the data folder",
        )
    }
}
