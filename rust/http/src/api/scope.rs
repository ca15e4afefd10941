//! Scopes: permissions of a caller, and the scopes that each route needs.
//!
//! Only the OpenAPI description of a route names its scopes. A route without scopes is refused to everybody.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::identity::CallerIdentity;
use super::problem::Problem;

/// The name of the security scheme in the OpenAPI document.
pub(crate) const SCHEME: &str = "key";

/// A part of what the API can do.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scope {
    /// Reads figures, names and topics, but no payloads.
    View,
    /// Reads payloads.
    Payload,
    /// Disconnects, subscribes, publishes, bans.
    Operate,
    /// Configuration, keys, backup.
    Admin,
    /// Reads rows of streams, and holds them for consumers of its own.
    Rows,
    /// Publishes rows through the sink.
    Publish,
}

impl Scope {
    pub(crate) const ALL: [Self; 6] = [
        Self::View,
        Self::Payload,
        Self::Operate,
        Self::Admin,
        Self::Rows,
        Self::Publish,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Payload => "payload",
            Self::Operate => "operate",
            Self::Admin => "admin",
            Self::Rows => "rows",
            Self::Publish => "publish",
        }
    }

    /// Whether it is a scope of the API, not of streams.
    pub(super) fn is_of_api(self) -> bool {
        !matches!(self, Self::Rows | Self::Publish)
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == name)
    }
}

/// A set of scopes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Scopes(u8);

impl Scopes {
    pub(crate) fn all() -> Self {
        Scope::ALL.into_iter().collect()
    }

    pub(crate) fn has(self, scope: Scope) -> bool {
        self.0 & 1 << scope as u8 != 0
    }

    pub(crate) fn names(self) -> Vec<Scope> {
        let all = Scope::ALL.into_iter();
        all.filter(|scope| self.has(*scope)).collect()
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(
            scopes
                .into_iter()
                .fold(0, |set, scope| set | 1 << scope as u8),
        )
    }
}

/// The scopes of each route; a caller needs all of them.
#[derive(Debug, Default)]
pub(crate) struct RouteScopes(HashMap<String, HashMap<String, Option<Scopes>>>);

impl RouteScopes {
    /// Adds those of paths of an OpenAPI document. A path that cannot be read has no scope.
    pub(crate) fn add<P: Into<String>>(
        &mut self,
        paths: impl IntoIterator<Item = (P, impl Serialize)>,
    ) {
        for (path, item) in paths {
            if let Ok(item) = serde_json::to_value(item) {
                let of_path = self.0.entry(path.into()).or_default();
                of_path.extend(methods(&item));
            }
        }
    }

    /// Whether a request may change something: its route needs another scope than `view`. Public routes do not count:
    /// they only log in and out.
    pub(crate) fn may_change(&self, path: &str, method: &Method) -> bool {
        let needed = self.0.get(path).and_then(|item| item.get(method.as_str()));
        let reads = |needed: Scopes| matches!(*needed.names(), [] | [Scope::View]);
        !matches!(*method, Method::GET | Method::HEAD)
            && needed.is_some_and(|needed| !needed.is_some_and(reads))
    }

    /// Checks that `identity` may call `method` on `path`.
    ///
    /// # Errors
    ///
    /// A scope is missing, or the route has none.
    fn check(&self, path: &str, method: &Method, identity: &CallerIdentity) -> Result<(), Problem> {
        let method = if method == Method::HEAD {
            &Method::GET
        } else {
            method
        };
        let needed = match self.0.get(path).map(|item| item.get(method.as_str())) {
            // The router answers 405.
            Some(None) => return Ok(()),
            Some(Some(needed)) => *needed,
            None => None,
        };
        let Some(needed) = needed else {
            let text = format!("{method} {path} has no scope: nobody may ask for it");
            return Err(Problem::new(StatusCode::FORBIDDEN, "no_scope", text));
        };
        let lacks = |scope: &Scope| !identity.scopes.has(*scope);
        let Some(lacking) = needed.names().into_iter().find(lacks) else {
            return Ok(());
        };
        let name = lacking.name();
        let text = format!("{} lacks the scope {name:?}", identity.name);
        let hint = format!("use a key whose scopes in http.keys_file have {name:?}");
        Err(Problem::new(StatusCode::FORBIDDEN, "scope", text).hint(hint))
    }
}

/// The scopes of each method of a path; the method is in upper case.
fn methods(item: &Value) -> HashMap<String, Option<Scopes>> {
    let operations = item.as_object().into_iter().flatten();
    operations
        .map(|(method, operation)| (method.to_uppercase(), needed(&operation["security"][0])))
        .collect()
}

/// The scopes of a security requirement; an empty list for a public route. `None` if the requirement is missing or
/// has an unknown name.
fn needed(requirement: &Value) -> Option<Scopes> {
    if *requirement == json!({}) {
        return Some(Scopes::default());
    }
    let names = requirement[SCHEME].as_array();
    let names = names.filter(|names| !names.is_empty())?;
    let scopes = names.iter().map(|name| Scope::named(name.as_str()?));
    scopes.collect()
}

/// Middleware that refuses requests for which the caller lacks a scope.
pub(crate) async fn check(
    State(scopes): State<Arc<RouteScopes>>,
    path: MatchedPath,
    request: Request,
    next: Next,
) -> Response {
    let refusal = match request.extensions().get::<CallerIdentity>() {
        Some(identity) => scopes.check(path.as_str(), request.method(), identity),
        None => Err(Problem::new(StatusCode::FORBIDDEN, "scope", "nobody asks")),
    };
    match refusal {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_without_a_scope_is_refused_to_everybody() {
        let item = json!({
            "get": {"security": [{"key": ["view"]}]},
            "post": {},
            "put": {"security": [{"key": ["view", "no such scope"]}]},
            "delete": {"security": [{"key": []}]},
            "patch": {"security": [{}]},
        });
        let mut scopes = RouteScopes::default();
        scopes.add([("/a", item)]);
        let all = CallerIdentity::new("test", Scopes::all());
        let check = |path, method| scopes.check(path, &method, &all).map_err(|why| why.status);

        assert!(scopes.may_change("/a", &Method::POST));
        for method in [Method::GET, Method::HEAD, Method::PATCH] {
            assert!(!scopes.may_change("/a", &method), "{method}");
        }
        assert_eq!(check("/a", Method::GET), Ok(()));
        assert_eq!(check("/a", Method::HEAD), Ok(()));
        for (path, method) in [
            ("/a", Method::POST),
            ("/a", Method::PUT),
            ("/a", Method::DELETE),
            ("/b", Method::GET),
        ] {
            assert_eq!(check(path, method), Err(StatusCode::FORBIDDEN), "{path}");
        }
        let nobody = CallerIdentity::nobody();
        let check = |method| scopes.check("/a", &method, &nobody).is_ok();
        assert!(check(Method::PATCH), "the route is for everybody");
        assert!(check(Method::TRACE), "the router answers 405");
        assert!(!check(Method::GET) && !check(Method::POST));
    }

    #[test]
    fn a_route_with_two_scopes_needs_both() {
        let item = json!({"get": {"security": [{"key": ["operate", "payload"]}]}});
        let mut routes = RouteScopes::default();
        routes.add([("/a", item)]);
        let is_admitted = |scopes: &[Scope]| {
            let identity = CallerIdentity::new("test", scopes.iter().copied().collect());
            routes.check("/a", &Method::GET, &identity).is_ok()
        };

        assert!(is_admitted(&[Scope::Payload, Scope::Operate]));
        assert!(!is_admitted(&[Scope::Payload, Scope::View, Scope::Admin]));
        assert!(!is_admitted(&[Scope::Operate]));
    }

    #[test]
    fn each_scope_stands_for_itself() {
        for scope in Scope::ALL {
            let one: Scopes = [scope].into_iter().collect();

            assert_eq!(one.names(), [scope]);
            assert_eq!(Scope::named(scope.name()), Some(scope));
        }
        assert_eq!(Scopes::all().names(), Scope::ALL);
    }
}
