//! Arguments and results of calls by operators: entries of the audit log, bans, invalidations.

use std::time::Duration;

use mqttcore_broker::{AuditEntry, Ban, BanReason, BanTarget, Invalidation};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The fields of `mqttcore.auditing.Entry`.
#[derive(FromPyObject)]
pub(crate) struct AuditFields {
    who: String,
    how: String,
    action: String,
    target: String,
    details: Vec<(String, String)>,
    result: String,
}

impl From<AuditFields> for AuditEntry {
    fn from(fields: AuditFields) -> Self {
        Self {
            who: fields.who,
            how: fields.how,
            action: fields.action,
            target: fields.target,
            details: fields.details,
            result: fields.result,
            ..Self::default()
        }
    }
}

/// Kind, value, user name of the kind `client_id_of_user`, reason and seconds that remain of a ban.
pub(crate) type BanFields = (
    &'static str,
    String,
    Option<String>,
    String,
    Option<String>,
    Option<f64>,
);

/// Parses the target of a ban.
pub(crate) fn ban_target(kind: &str, value: &str) -> PyResult<BanTarget> {
    match kind {
        "client_id" => Ok(BanTarget::ClientId(value.into())),
        "client_id_regex" => match value.parse() {
            Ok(pattern) => Ok(BanTarget::ClientIdPattern(pattern)),
            Err(error) => Err(PyValueError::new_err(format!("{value:?}: {error}"))),
        },
        "user" => Ok(BanTarget::Username(value.into())),
        "address" => match value.parse() {
            Ok(network) => Ok(BanTarget::Network(network)),
            Err(error) => Err(PyValueError::new_err(format!("{value:?}: {error}"))),
        },
        _ => Err(PyValueError::new_err(format!(
            "unknown kind of ban {kind:?}"
        ))),
    }
}

/// Converts a ban.
pub(crate) fn ban_fields(ban: Ban) -> BanFields {
    let mut user = None;
    let (kind, value) = match ban.target {
        BanTarget::ClientId(id) => ("client_id", id.into_string()),
        BanTarget::ClientIdOfUser {
            client_id,
            username,
        } => {
            user = username.map(Box::into);
            ("client_id_of_user", client_id.into_string())
        }
        BanTarget::ClientIdPattern(pattern) => ("client_id_regex", pattern.to_string()),
        BanTarget::Username(name) => ("user", name.into_string()),
        BanTarget::Network(network) => ("address", network.to_string()),
    };
    let remaining = ban.remaining.map(|remaining| remaining.as_secs_f64());
    let BanReason { text, by, .. } = ban.reason;
    let by = Some(by).filter(|by| !by.is_empty());
    (kind, value, user, text, by, remaining)
}

/// The duration of a ban.
pub(crate) fn ban_duration(seconds: f64) -> PyResult<Duration> {
    let duration = Duration::try_from_secs_f64(seconds);
    duration.map_err(|_| {
        let text = format!("a ban cannot last {seconds} seconds: give 0 or more, or None");
        PyValueError::new_err(text)
    })
}

/// The clients whose rights are invalidated; `value` is not used with `everything`.
pub(crate) fn invalidation(kind: &str, value: &str) -> PyResult<Invalidation> {
    match kind {
        "client_id" => Ok(Invalidation::ClientId(value.into())),
        "username" => Ok(Invalidation::Username(value.into())),
        "plugin" => Ok(Invalidation::Plugin(value.into())),
        "everything" => Ok(Invalidation::Everything),
        _ => {
            let text = format!("unknown kind of invalidation {kind:?}");
            Err(PyValueError::new_err(text))
        }
    }
}
