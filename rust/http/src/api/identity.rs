//! Who asks: the peer of a Unix socket, the token, or a key.

use hyper::StatusCode;
use mqttcore_broker::AddressKey;

use crate::access::Access;

use super::problem::Problem;
use super::scope::{Scope, Scopes};

/// A caller of the API, and what it may do.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// For texts.
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

    /// The broker's own user, root, or who sends the token.
    pub(crate) fn owner() -> Self {
        Self::new("the owner", Scopes::all())
    }

    pub(crate) fn has(&self, scope: Scope) -> bool {
        self.scopes.has(scope)
    }
}

/// Who sends a request, and from where.
pub(crate) struct Caller<'a> {
    pub(crate) access: &'a Access,
    /// `None`: nobody who is known.
    pub(crate) identity: Option<Identity>,
    /// Of a TCP client.
    pub(crate) address: Option<AddressKey>,
}

impl Caller<'_> {
    /// Whether it may ask for everything.
    pub(crate) fn is_owner(&self) -> bool {
        let identity = self.identity.as_ref();
        identity.is_some_and(|identity| identity.scopes == Scopes::all())
    }

    /// Whether it may read figures.
    pub(crate) fn may_view(&self) -> bool {
        let identity = self.identity.as_ref();
        identity.is_some_and(|identity| identity.has(Scope::View))
    }
}

/// The answer to somebody who is not known. `has_secrets` tells whether this address has a token or keys at all.
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
