//! The OpenAPI document of the API.

use std::sync::OnceLock;

use axum::body::Bytes;
use serde_json::{Value, json};
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;

use super::{PARTS, problem, scope};

#[derive(OpenApi)]
#[openapi(
    components(schemas(problem::ProblemText)),
    info(
        title = "mqttcore",
        description = "Operators' API of a broker. Errors are application/problem+json.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    tags(
        (name = "clients", description = "Connections, sessions and subscriptions"),
        (name = "messages", description = "Retained messages, and publishing"),
        (name = "broker", description = "The broker itself"),
        (name = "access", description = "Bans, keys and the audit log"),
        (name = "traces", description = "Packets of chosen clients"),
    ),
)]
struct Document;

/// The document as JSON. It is made when it is first asked for.
pub(super) fn text() -> Bytes {
    static TEXT: OnceLock<Bytes> = OnceLock::new();
    TEXT.get_or_init(|| {
        let mut routes = OpenApiRouter::with_openapi(Document::openapi());
        for part in PARTS {
            routes = routes.merge(part());
        }
        let mut document = routes.into_openapi();
        add_scheme(&mut document);
        let document = with_problems(serde_json::to_value(&document).unwrap_or_default());
        document.to_string().into()
    })
    .clone()
}

/// Adds the scheme of authentication: a key as bearer token.
fn add_scheme(document: &mut utoipa::openapi::OpenApi) {
    let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer);
    let scheme = SecurityScheme::Http(scheme.build());
    let components = document.components.get_or_insert_default();
    components.add_security_scheme(scope::SCHEME, scheme);
}

/// Adds a default response to each route: any other status has a problem as its body.
fn with_problems(mut document: Value) -> Value {
    let schema = json!({"$ref": "#/components/schemas/Problem"});
    let content = json!({problem::PROBLEM_JSON: {"schema": schema}});
    let problem = json!({"description": "The request failed", "content": content});
    let paths = document["paths"].as_object_mut();
    let items = paths.into_iter().flat_map(|paths| paths.values_mut());
    let operations = items.filter_map(Value::as_object_mut).flatten();
    for (_, operation) in operations {
        operation["responses"]["default"] = problem.clone();
    }
    document
}
