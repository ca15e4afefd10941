//! Status reports of queries that read streams, published at `$SYS/spark/<query>`.
//!
//! The HTTP endpoint receives the reports. `$SYS` publishes the newest of each query, and removes the topics of
//! queries that have sent none for five minutes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;

/// Maximum number of queries with a status report.
const QUERIES: usize = 64;
/// Maximum length of a report in bytes.
const REPORT_BYTES: usize = 8 << 10;
/// Maximum length of a query's name in bytes.
const NAME_BYTES: usize = 128;
/// Time without a report after which a query has ended.
const SILENCE: Duration = Duration::from_secs(5 * 60);

/// The newest report of each query.
#[derive(Default)]
pub struct QueryReports {
    queries: Mutex<BTreeMap<String, Report>>,
}

struct Report {
    text: String,
    at: Instant,
    /// Whether [`QueryReports::new_reports`] has returned it.
    is_told: bool,
}

/// A rejected status report.
#[derive(Debug, Error)]
pub enum ReportError {
    /// The query's name is not valid.
    #[error(
        "invalid query name {0:?}: 1 to {NAME_BYTES} letters, digits, '.', '-' and '_' are allowed"
    )]
    Name(String),
    /// The report has this many bytes.
    #[error("the status report has {0} bytes; at most {REPORT_BYTES} are allowed")]
    Large(usize),
    /// There are too many queries.
    #[error("{QUERIES} queries have status reports already, which is the limit")]
    Many,
}

impl QueryReports {
    /// Stores the report of `query`, received at `now`.
    ///
    /// # Errors
    ///
    /// The name is not valid, the text is too long, or there are too many queries.
    pub fn take(&self, query: &str, text: String, now: Instant) -> Result<(), ReportError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        if !(1..=NAME_BYTES).contains(&query.len()) || !query.bytes().all(is_plain) {
            return Err(ReportError::Name(query.to_owned()));
        }
        if text.len() > REPORT_BYTES {
            return Err(ReportError::Large(text.len()));
        }
        let mut queries = self.queries.lock().unwrap_or_else(PoisonError::into_inner);
        if queries.len() >= QUERIES && !queries.contains_key(query) {
            return Err(ReportError::Many);
        }
        let report = Report {
            text,
            at: now,
            is_told: false,
        };
        queries.insert(query.to_owned(), report);
        Ok(())
    }

    /// The newest report of each query that has not ended, by name, with its age.
    pub fn newest(&self, now: Instant) -> Vec<(String, String, Duration)> {
        let queries = self.queries.lock().unwrap_or_else(PoisonError::into_inner);
        let aged = queries.iter().map(|(query, report)| {
            let age = now.saturating_duration_since(report.at);
            (query.clone(), report.text.clone(), age)
        });
        aged.filter(|(.., age)| *age < SILENCE).collect()
    }

    /// Changes since the last call: each query with its new report, or `None` if it has ended.
    pub fn new_reports(&self, now: Instant) -> Vec<(String, Option<String>)> {
        let mut queries = self.queries.lock().unwrap_or_else(PoisonError::into_inner);
        let mut reports = Vec::new();
        queries.retain(|query, report| {
            let is_silent = now.saturating_duration_since(report.at) >= SILENCE;
            if is_silent {
                reports.push((query.clone(), None));
            } else if !std::mem::replace(&mut report.is_told, true) {
                reports.push((query.clone(), Some(report.text.clone())));
            }
            !is_silent
        });
        reports
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(reports: &QueryReports, query: &str, now: Instant) -> Result<(), ReportError> {
        reports.take(query, format!("{{\"of\":\"{query}\"}}"), now)
    }

    #[test]
    fn the_newest_report_is_reported_once() {
        let (reports, now) = (QueryReports::default(), Instant::now());
        report(&reports, "a", now).expect("taken");
        reports.take("a", "{}".into(), now).expect("taken");

        assert_eq!(reports.new_reports(now), [("a".into(), Some("{}".into()))]);
        assert_eq!(reports.new_reports(now), []);
        let newest = |age| reports.newest(now + age);
        assert_eq!(
            newest(SILENCE / 2),
            [("a".into(), "{}".into(), SILENCE / 2)]
        );
        assert_eq!(newest(SILENCE), []);
    }

    #[test]
    fn a_query_that_fell_silent_is_reported_once_more_and_makes_room() {
        let (reports, now) = (QueryReports::default(), Instant::now());
        for number in 0..QUERIES {
            report(&reports, &number.to_string(), now).expect("taken");
        }
        let refused = report(&reports, "another", now).expect_err("there is no room");
        assert!(matches!(refused, ReportError::Many));
        report(&reports, "7", now + SILENCE / 2).expect("one that is known");

        let fresh = reports.new_reports(now + SILENCE);

        let silent = fresh.iter().filter(|(_, text)| text.is_none());
        assert_eq!(silent.count(), QUERIES - 1);
        assert!(
            fresh
                .iter()
                .any(|(query, text)| query == "7" && text.is_some())
        );
        report(&reports, "another", now + SILENCE).expect("there is room");
    }

    #[test]
    fn what_is_no_name_or_too_long_is_refused() {
        let (reports, now) = (QueryReports::default(), Instant::now());

        for name in ["", "a/b", "+", "#", "\u{e4}", &"x".repeat(NAME_BYTES + 1)] {
            let refused = report(&reports, name, now).expect_err(name);
            assert!(matches!(refused, ReportError::Name(text) if text == name));
        }
        let refused = reports.take("a", "x".repeat(REPORT_BYTES + 1), now);
        assert!(matches!(refused, Err(ReportError::Large(_))));
        assert_eq!(reports.new_reports(now), []);
    }
}
