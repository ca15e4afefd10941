//! Pages of lists.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mqttcore_broker::MissingPart;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::problem::Problem;

/// A page of a list.
#[derive(Serialize, ToSchema)]
pub(crate) struct List<T> {
    /// The items of this page.
    pub(crate) items: Vec<T>,
    /// The value of `after` for the next page; null on the last one.
    pub(crate) next: Option<String>,
    /// Time of the list, in Unix milliseconds.
    pub(crate) as_of_ms: u64,
    /// Shards whose part is missing or incomplete; empty if the list is whole.
    pub(crate) partial: Vec<Partial>,
}

/// A shard whose part is missing or incomplete.
#[derive(Serialize, ToSchema)]
pub(crate) struct Partial {
    /// Number of the shard.
    shard: usize,
    /// The reason.
    why: String,
}

impl From<&MissingPart> for Partial {
    fn from(part: &MissingPart) -> Self {
        Self {
            shard: part.shard,
            why: part.why.to_string(),
        }
    }
}

/// A number from 1 to `MOST` in a query; `USUAL` if it is missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounded<const MOST: usize, const USUAL: usize>(pub(crate) usize);

/// The number of items of a page.
pub(crate) type Limit = Bounded<1_000, 100>;

impl<const MOST: usize, const USUAL: usize> Default for Bounded<MOST, USUAL> {
    fn default() -> Self {
        Self(USUAL)
    }
}

impl<'de, const MOST: usize, const USUAL: usize> Deserialize<'de> for Bounded<MOST, USUAL> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = usize::deserialize(deserializer)?;
        let text = || serde::de::Error::custom(format!("must be a number from 1 to {MOST}"));
        (1..=MOST)
            .contains(&number)
            .then_some(Self(number))
            .ok_or_else(text)
    }
}

/// The query of a list that has no other parameters.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PageQuery {
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(value_type = u16, minimum = 1, maximum = 1000, default = 100, required = false)]
    pub(super) limit: Limit,
    /// Position of the page: `next` of the previous page.
    pub(super) after: Option<String>,
}

impl<T> List<T> {
    /// A page; it is the last one if `next` is `None`.
    pub(crate) fn new(items: Vec<T>, next: Option<String>, missing: &[MissingPart]) -> Self {
        Self {
            items,
            next,
            as_of_ms: unix_ms(),
            partial: missing.iter().map(Partial::from).collect(),
        }
    }
}

/// The cursor of the page that begins after `text`.
pub(crate) fn cursor(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(text)
}

/// Reads a [`cursor`].
///
/// # Errors
///
/// The text is not a cursor.
pub(crate) fn behind(after: Option<&str>) -> Result<Option<String>, Problem> {
    let read = |text: &str| {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        String::from_utf8(bytes).ok()
    };
    match after {
        None => Ok(None),
        Some(after) => read(after).map(Some).ok_or_else(|| {
            Problem::bad("after is not the position of a page")
                .hint("use the field next of the previous page, or leave after out")
        }),
    }
}

/// The system's clock.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, whole_ms)
}

/// The time `age` ago, in Unix milliseconds.
pub(crate) fn ago_ms(age: Duration) -> u64 {
    unix_ms().saturating_sub(whole_ms(age))
}

/// Whole milliseconds.
pub(crate) fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
