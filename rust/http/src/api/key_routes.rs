//! Routes of keys.

use axum::Json;
use axum::extract::State;
use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::tasks::blocking;

use super::ApiState;
use super::key_file::{Entry, KeysError};
use super::page::List;
use super::problem::Problem;
use super::query::{ApiJson, ApiPath, ApiQuery, NoQuery};
use super::scope::Scope;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(list, add))
        .routes(routes!(revoke))
}

/// A key, without its secret.
#[derive(Serialize, ToSchema)]
struct KeyInfo {
    name: String,
    scopes: Vec<Scope>,
    /// Names of the streams that it may ask for; null: all.
    streams: Option<Vec<String>>,
    /// A date, or date and time.
    expires: Option<String>,
}

impl From<Entry> for KeyInfo {
    fn from(entry: Entry) -> Self {
        Self {
            name: entry.name,
            scopes: entry.scopes,
            streams: entry.streams,
            expires: entry.expires.map(|at| at.to_string()),
        }
    }
}

impl From<KeysError> for Problem {
    fn from(error: KeysError) -> Self {
        let text = error.to_string();
        match error {
            KeysError::NoFile => Self::conflict(text).hint("POST works once [http] has keys_file"),
            KeysError::Exists(_) => Self::conflict(text),
            KeysError::Invalid(_) => Self::bad(text),
            KeysError::File { .. } => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "keys_file", text)
            }
        }
    }
}

/// Lists the keys, expired ones too.
#[utoipa::path(get, path = "/api/v1/keys", tag = "access", security(("key" = ["admin"])),
    responses((status = 200, body = List<KeyInfo>)))]
async fn list(
    State(state): State<ApiState>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Json<List<KeyInfo>> {
    let keys = state.keys.list().into_iter().map(Into::into).collect();
    Json(List::new(keys, None, &[]))
}

/// A key to add.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewKey {
    #[schema(min_length = 1, max_length = 128)]
    name: String,
    #[schema(min_items = 1)]
    scopes: Vec<Scope>,
    /// Names of the streams below `/v1/streams` that it may ask for. Default: all.
    #[schema(min_items = 1)]
    streams: Option<Vec<String>>,
    /// A date, or date and time, such as `2027-01-01T00:00:00Z`.
    expires: Option<String>,
}

/// A new key.
#[derive(Serialize, ToSchema)]
struct AddedKey {
    name: String,
    /// The secret. It is not sent again: the file has only its hash.
    secret: String,
}

/// Adds a key to the key file.
#[utoipa::path(post, path = "/api/v1/keys", tag = "access", request_body = NewKey, security(("key" = ["admin"])),
    responses((status = 201, body = AddedKey)))]
async fn add(
    State(state): State<ApiState>,
    ApiQuery(_): ApiQuery<NoQuery>,
    ApiJson(new): ApiJson<NewKey>,
) -> Result<(StatusCode, Json<AddedKey>), Problem> {
    let expires = new.expires.as_ref().map(|text| {
        let parsed = text.parse();
        parsed.map_err(|_| {
            Problem::bad(format!(
                "expires is neither a date nor a date and time: {text:?}"
            ))
        })
    });
    let (expires, name) = (expires.transpose()?, new.name.clone());
    let add = move || {
        let keys = &state.keys;
        keys.add(&new.name, &new.scopes, new.streams, expires)
    };
    let secret = blocking(add).await??;
    Ok((StatusCode::CREATED, Json(AddedKey { name, secret })))
}

/// Removes a key from the key file.
#[utoipa::path(delete, path = "/api/v1/keys/{name}", tag = "access", security(("key" = ["admin"])),
    params(("name" = String, Path, description = "Name of the key")),
    responses((status = 204, description = "The key is not valid any more")))]
async fn revoke(
    State(state): State<ApiState>,
    ApiPath(name): ApiPath<String>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Result<StatusCode, Problem> {
    let text = format!("there is no key named {name:?}");
    if blocking(move || state.keys.revoke(&name)).await?? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(Problem::not_found(text))
}
