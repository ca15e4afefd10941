//! Identity of a caller: the peer of a Unix socket, the token, or a key.

use hyper::StatusCode;
use mqttcore_broker::AddressKey;

use crate::access::Access;

use super::problem::Problem;
use super::scope::{Scope, Scopes};

/// An authenticated caller and its scopes.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// Name in errors and logs.
    pub(crate) name: String,
    pub(crate) scopes: Scopes,
}

impl Identity {
    pub(crate) fn new(name: impl Into<String>, scopes: Scopes) -> Self {
        Self {
            name: name.into(),
            scopes,
        }
    }

    /// The broker's own user, root, or a client with the token.
    pub(crate) fn owner() -> Self {
        Self::new("the owner", Scopes::all())
    }

    pub(crate) fn has(&self, scope: Scope) -> bool {
        self.scopes.has(scope)
    }
}

/// The sender of a request and its address.
pub(crate) struct Caller<'a> {
    pub(crate) access: &'a Access,
    /// `None` if the sender is not authenticated.
    pub(crate) identity: Option<Identity>,
    /// `None` for a Unix socket.
    pub(crate) address: Option<AddressKey>,
}

impl Caller<'_> {
    /// Whether it has full access.
    pub(crate) fn is_owner(&self) -> bool {
        let identity = self.identity.as_ref();
        identity.is_some_and(|identity| identity.scopes == Scopes::all())
    }

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
