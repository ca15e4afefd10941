//! Access control of a socket: by the user of the peer, or by token.

use std::sync::Arc;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue, ORIGIN};
use hyper::http::uri::Authority;
use mqttcore_broker::names_an_address;
use subtle::ConstantTimeEq;

use crate::MetricsAccess;
use crate::answer::HttpError;

/// Access rule of one socket.
#[derive(Clone)]
pub(super) enum SocketAccess {
    /// A Unix socket: the peer has full access, since the system reported a trusted user.
    Known,
    /// A TCP socket: requests with the token have full access, those with a key as its scopes say, others to health
    /// and, as `metrics` says, to metrics.
    Token {
        /// `None`: no token is configured.
        token: Option<Arc<str>>,
        metrics: MetricsAccess,
        is_tls: bool,
    },
}

impl SocketAccess {
    /// Whether a request with `headers` has full access.
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

    /// Whether each request has full access, also one that a browser sends for a page.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Known)
    }

    /// Whether the connection is encrypted or local.
    pub(super) fn is_private(&self) -> bool {
        matches!(self, Self::Known | Self::Token { is_tls: true, .. })
    }

    /// Whether some request can have full access.
    pub(super) fn has_token(&self) -> bool {
        !matches!(self, Self::Token { token: None, .. })
    }
}

/// Names of the endpoint in the configuration. The owner of any other name can make it resolve to this machine, so that a
/// browser treats a page of that owner as one of the broker (DNS rebinding).
#[derive(Clone, Debug, Default)]
pub(super) struct HostNames(Arc<[String]>);

impl HostNames {
    pub(super) fn new(names: &[String]) -> Self {
        Self(names.into())
    }

    /// Whether the host of `authority` (`HOST` or `HOST:PORT`) is an IP address, `localhost` or one of the names.
    fn have(&self, authority: &str) -> bool {
        let host = || authority.parse::<Authority>().ok();
        let is_listed = |host: &Authority| {
            let mut names = self.0.iter();
            names.any(|name| name.eq_ignore_ascii_case(host.host()))
        };
        names_an_address(authority) || host().as_ref().is_some_and(is_listed)
    }

    /// Whether the only `Host` is one of them. With another name, a web page could read the response.
    pub(super) fn have_that_of(&self, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return false;
        };
        host.to_str().is_ok_and(|host| self.have(host))
    }
}

/// Whether a browser may have sent the request for a page that is not the broker's own. Such pages reach a socket that
/// is forwarded to a port: `Origin` names another one (CSRF), or their name resolves to this machine (DNS rebinding).
pub(super) fn is_of_another_page(headers: &HeaderMap, names: &HostNames) -> bool {
    let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
    let mut hosts = headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (None, _) => return headers.contains_key(ORIGIN),
        (Some(host), None) => text(host).filter(|host| names.have(host)),
        _ => None,
    };
    let Some(host) = host else {
        return true;
    };
    headers.get_all(ORIGIN).iter().any(|origin| {
        let origin = text(origin);
        let authority = origin.as_ref().and_then(|origin| origin.split_once("://"));
        authority.is_none_or(|(_, authority)| !authority.eq_ignore_ascii_case(&host))
    })
}

/// The credentials of the request, if it has exactly one `Authorization` header and that has the scheme `Bearer`.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut brought = headers.get_all(AUTHORIZATION).iter();
    let (Some(header), None) = (brought.next(), brought.next()) else {
        return None;
    };
    let (scheme, brought) = header.as_bytes().split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then_some(brought)
}

impl SocketAccess {
    /// The access to metrics.
    pub(super) fn metrics(&self) -> MetricsAccess {
        match self {
            Self::Known => MetricsAccess::Token,
            Self::Token { metrics, .. } => *metrics,
        }
    }

    /// The error for a request without access. `has_keys`: there are keys of the API.
    pub(super) fn refusal(&self, has_keys: bool) -> HttpError {
        if self.has_token() || has_keys {
            return HttpError::unauthorized();
        }
        let text = "this address has neither a token nor keys: set http.keys_file or http.token_file, or use a Unix \
                    socket in the data folder";
        HttpError::forbidden(text)
    }
}

const SCHEME: &[u8] = b"Bearer ";
