//! Removals of many objects: only with the number that a dry run has found.

use serde::Serialize;
use utoipa::ToSchema;

use super::problem::Problem;

/// Maximum number of names in the result of a dry run.
pub(super) const SAMPLE: usize = 20;

/// Removed objects, or those that would be removed: retained messages or sessions.
#[derive(Serialize, ToSchema)]
pub(super) struct Removed {
    /// Number of objects.
    pub(super) count: usize,
    pub(super) dry_run: bool,
    /// Some of their topics or client identifiers.
    pub(super) sample: Vec<String>,
}

/// Whether a request only counts objects. `told`: how many there are, in words, and what the request does to them.
///
/// # Errors
///
/// It is no dry run, and its `count` is not the number of objects that are `found` now.
pub(super) fn is_dry_run(
    dry_run: Option<bool>,
    count: Option<usize>,
    found: usize,
    told: impl FnOnce() -> (String, &'static str),
) -> Result<bool, Problem> {
    let dry_run = dry_run.unwrap_or(true);
    if !dry_run && count != Some(found) {
        let (text, action) = told();
        let hint = format!("to {action}, send dry_run=false&count={found}");
        return Err(Problem::conflict(text).hint(hint));
    }
    Ok(dry_run)
}
