//! Names of queries, each with the caller that it belongs to, and of stages.

use std::collections::BTreeMap;

use super::{LastCommit, SinkError};

/// The name of a query. Each owner has names of its own: queries of two owners never are the same query.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct QueryName {
    /// `<owner>.<query>`, or `<query>` without an owner. It is the key of the query in the log, and a part of the names
    /// of its files.
    text: String,
}

impl QueryName {
    /// The query `query` of `owner`; `None`: of callers that may operate the broker, who share their queries.
    ///
    /// # Errors
    ///
    /// A name is not valid.
    pub fn new(owner: Option<&str>, query: &str) -> Result<Self, SinkError> {
        check_name(query)?;
        let Some(owner) = owner else {
            return Ok(Self { text: query.into() });
        };
        check_name(owner)?;
        Ok(Self {
            text: format!("{owner}.{query}"),
        })
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// The name that the log of an earlier version has for it, if it is another one: queries had no owners.
    pub(super) fn earlier(&self) -> Option<&str> {
        self.text.split_once('.').map(|(_, query)| query)
    }
}

/// The owner in the text of a [`QueryName`].
fn owner_of(text: &str) -> Option<&str> {
    text.split_once('.').map(|(owner, _)| owner)
}

/// Checks the name of a query, an owner or a stage.
pub(super) fn check_name(text: &str) -> Result<(), SinkError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if (1..=64).contains(&text.len()) && text.bytes().all(is_plain) {
        return Ok(());
    }
    Err(SinkError::Name(text.to_owned()))
}

/// The file of a stage.
pub(super) fn file_name(query: &str, batch: u64, stage: &str) -> String {
    format!("{query}.{batch}.{stage}.arrow")
}

/// The last commit of a query. A commit of an earlier version counts for all owners of a query of its name: the log
/// does not tell whose it is.
pub(super) fn last_commit<'a>(
    queries: &'a BTreeMap<String, LastCommit>,
    query: &QueryName,
) -> Option<&'a LastCommit> {
    let earlier = || queries.get(query.earlier()?).filter(|last| !last.has_owner);
    queries.get(query.as_str()).or_else(earlier)
}

/// The query to evict when there are too many: the oldest one of the owner with the most queries, so that no owner
/// evicts the queries of others.
pub(super) fn evicted(queries: &BTreeMap<String, LastCommit>) -> Option<String> {
    let over = || queries.iter().filter(|(_, last)| last.is_over());
    let mut counts = BTreeMap::<Option<&str>, usize>::new();
    for (name, _) in over() {
        *counts.entry(owner_of(name)).or_default() += 1;
    }
    let (most, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    let oldest = over().filter(|(name, _)| owner_of(name) == most);
    oldest
        .min_by_key(|(_, last)| last.at_s)
        .map(|(name, _)| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(batch: u64, at_s: u64, has_owner: bool) -> LastCommit {
        LastCommit {
            batch,
            at_s,
            has_owner,
            ..LastCommit::default()
        }
    }

    fn name(owner: Option<&str>, query: &str) -> QueryName {
        QueryName::new(owner, query).expect("a valid name")
    }

    fn notes(notes: &[(&str, LastCommit)]) -> BTreeMap<String, LastCommit> {
        let notes = notes.iter();
        notes
            .map(|(name, last)| ((*name).to_owned(), last.clone()))
            .collect()
    }

    #[test]
    fn a_name_with_a_separator_is_refused() {
        for (owner, query) in [
            (None, "a.q"),
            (Some("a.b"), "q"),
            (Some(""), "q"),
            (Some("a"), "b.q"),
        ] {
            let refused = QueryName::new(owner, query).map_err(|error| error.to_string());
            assert!(
                refused.is_err_and(|text| text.contains("invalid name")),
                "{owner:?} {query}"
            );
        }
    }

    #[test]
    fn a_commit_of_an_earlier_version_counts_until_the_owner_commits() {
        let earlier = notes(&[("q", last(7, 0, false))]);
        let found = last_commit(&earlier, &name(Some("a"), "q")).map(|last| last.batch);
        assert_eq!(found, Some(7));

        let both = notes(&[("q", last(7, 0, false)), ("a.q", last(9, 0, true))]);
        let found = |owner| last_commit(&both, &name(owner, "q")).map(|last| last.batch);
        assert_eq!(
            [found(Some("a")), found(Some("b")), found(None)],
            [Some(9), Some(7), Some(7)]
        );
    }

    #[test]
    fn a_commit_of_an_operator_counts_for_no_other_owner() {
        let queries = notes(&[("q", last(7, 0, true))]);

        assert!(last_commit(&queries, &name(Some("a"), "q")).is_none());
    }

    #[test]
    fn the_owner_of_the_most_queries_loses_its_oldest() {
        let queries = notes(&[
            ("kept", last(0, 1, true)),
            ("a.kept", last(0, 2, true)),
            ("b.one", last(0, 5, true)),
            ("b.two", last(0, 4, true)),
            ("b.three", last(0, 6, true)),
        ]);

        assert_eq!(evicted(&queries).as_deref(), Some("b.two"));
    }
}
