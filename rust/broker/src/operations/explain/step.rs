//! Steps of an explanation.

use std::sync::Arc;

use super::verdict::Verdict;
use crate::config::grants::Grant;
use crate::config::permissions::DecidingRule;
use crate::config::place::RuleAction;

/// One step of an explanation.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ExplainedStep {
    /// The name of the check.
    pub step: &'static str,
    /// The result.
    pub verdict: Verdict,
    /// The rule or the limit that decides.
    pub by: Option<String>,
    /// A sentence for people.
    pub detail: Option<String>,
    /// The hook, or the listener, whose grant has the rule.
    pub granted_by: Option<Arc<str>>,
    /// Where the rule is written: file and line.
    pub place: Option<Arc<str>>,
}

impl ExplainedStep {
    pub(super) fn new(step: &'static str, verdict: Verdict) -> Self {
        Self {
            step,
            verdict,
            by: None,
            detail: None,
            granted_by: None,
            place: None,
        }
    }

    /// The same, and whose grant has `rule`, and where that is written.
    pub(super) fn of(self, grant: &Grant, action: RuleAction, rule: DecidingRule<'_>) -> Self {
        Self {
            granted_by: grant.granted_by.text(),
            place: grant.place_of(action, rule),
            ..self
        }
    }

    pub(super) fn by(self, by: impl Into<String>) -> Self {
        Self {
            by: Some(by.into()),
            ..self
        }
    }

    pub(super) fn detail(self, detail: impl Into<String>) -> Self {
        Self {
            detail: Some(detail.into()),
            ..self
        }
    }
}

/// The verdict of all steps: the first refusal, else the first one that is not [`Verdict::Passed`].
pub(super) fn verdict_of(steps: &[ExplainedStep]) -> Verdict {
    let mut verdicts = steps.iter().map(|step| step.verdict);
    let refusal = verdicts.clone().find(|verdict| verdict.is_refusal());
    let other = || verdicts.find(|verdict| *verdict != Verdict::Passed);
    refusal.or_else(other).unwrap_or(Verdict::Passed)
}
