//! The rules of a grant as a list for people.

use std::sync::Arc;

use crate::config::grants::{Access, Grant, OrderedRule};
use crate::config::place::{Place, RulePlaces};

/// A rule of a grant.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct GrantRule {
    /// The actions that it decides about: `publish`, `receive`, `subscribe`, `unsubscribe`.
    pub actions: &'static [&'static str],
    /// It allows the actions; otherwise it denies them.
    pub is_allowed: bool,
    /// Only the same text matches.
    pub is_exact: bool,
    /// Topic filter, or `$#`.
    pub filter: Box<str>,
    /// Where it is written: file and line.
    pub place: Option<Arc<str>>,
}

const PUBLISH: &[&str] = &["publish"];
const RECEIVE: &[&str] = &["receive"];
const SUBSCRIBE: &[&str] = &["subscribe"];
const UNSUBSCRIBE: &[&str] = &["unsubscribe"];
const BOTH: &[&str] = &["publish", "receive"];

/// A rule before its texts are copied: a grant may have many of them.
struct RuleLine<'a> {
    actions: &'static [&'static str],
    is_allowed: bool,
    is_exact: bool,
    filter: &'a str,
    places: &'a [Place],
    index: usize,
}

impl RuleLine<'_> {
    fn rule(self) -> GrantRule {
        GrantRule {
            actions: self.actions,
            is_allowed: self.is_allowed,
            is_exact: self.is_exact,
            filter: self.filter.into(),
            place: self.places.get(self.index).and_then(|place| place.text()),
        }
    }
}

type Lines<'a> = Box<dyn Iterator<Item = RuleLine<'a>> + 'a>;

impl Grant {
    /// At most `limit` rules from position `from` on, in the order in which they decide: those that deny in any case, then
    /// those of each action; and whether more follow.
    pub fn rules(&self, from: usize, limit: usize) -> (Vec<GrantRule>, bool) {
        let mut lines = self.lines().skip(from);
        let rules = lines.by_ref().take(limit).map(RuleLine::rule);
        (rules.collect(), lines.next().is_some())
    }

    fn lines(&self) -> Lines<'_> {
        let denied = lines_of(
            BOTH,
            false,
            &self.deny,
            self.places_of(|places| &places.deny),
        );
        let others: Lines<'_> = if let Some(ordered) = &self.ordered {
            let publish = self.places_of(|places| &places.ordered_publish);
            let receive = self.places_of(|places| &places.ordered_receive);
            let subscribe = self.places_of(|places| &places.ordered_subscribe);
            let lines = ordered_lines(PUBLISH, &ordered.publish, publish)
                .chain(ordered_lines(RECEIVE, &ordered.receive, receive))
                .chain(ordered_lines(SUBSCRIBE, &ordered.subscribe, subscribe))
                .chain(ordered_lines(UNSUBSCRIBE, &ordered.unsubscribe, &[]));
            Box::new(lines)
        } else if let Some(list) = &self.access_list {
            let places = self.places_of(|places| &places.access_list);
            let list = list.iter().enumerate();
            Box::new(list.map(move |(index, rule)| RuleLine {
                actions: match rule.access {
                    Access::Read => RECEIVE,
                    Access::Write => PUBLISH,
                    Access::ReadWrite | Access::Deny => BOTH,
                },
                is_allowed: rule.access != Access::Deny,
                is_exact: false,
                filter: &rule.filter,
                places,
                index,
            }))
        } else {
            let publish = self.places_of(|places| &places.publish);
            let subscribe = self.places_of(|places| &places.subscribe);
            let published = lines_of(PUBLISH, true, &self.publish, publish);
            Box::new(published.chain(lines_of(SUBSCRIBE, true, &self.subscribe, subscribe)))
        };
        Box::new(denied.chain(others))
    }

    fn places_of(&self, list: impl Fn(&RulePlaces) -> &Vec<Place>) -> &[Place] {
        self.places.as_deref().map_or(&[], |places| list(places))
    }
}

fn lines_of<'a>(
    actions: &'static [&'static str],
    is_allowed: bool,
    filters: &'a [String],
    places: &'a [Place],
) -> impl Iterator<Item = RuleLine<'a>> {
    let filters = filters.iter().enumerate();
    filters.map(move |(index, filter)| RuleLine {
        actions,
        is_allowed,
        is_exact: false,
        filter,
        places,
        index,
    })
}

fn ordered_lines<'a>(
    actions: &'static [&'static str],
    rules: &'a [OrderedRule],
    places: &'a [Place],
) -> impl Iterator<Item = RuleLine<'a>> {
    let rules = rules.iter().enumerate();
    rules.map(move |(index, rule)| RuleLine {
        actions,
        is_allowed: rule.is_allowed,
        is_exact: rule.is_exact,
        filter: &rule.filter,
        places,
        index,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::grants::{AccessRule, OrderedRules};

    /// Actions, answer, filter and place of each rule, in a line.
    fn lines(grant: &Grant) -> Vec<String> {
        let line = |rule: GrantRule| {
            let answer = if rule.is_allowed { "may" } else { "may not" };
            let exact = if rule.is_exact { " exactly" } else { "" };
            let place = rule.place.as_deref().unwrap_or("-").to_owned();
            format!(
                "{answer} {} {}{exact} {place}",
                rule.actions.join("+"),
                rule.filter
            )
        };
        grant.rules(0, 100).0.into_iter().map(line).collect()
    }

    fn denying(filter: &str) -> Grant {
        Grant {
            deny: vec![filter.into()],
            publish: vec!["a".into()],
            subscribe: vec!["b".into()],
            ..Grant::default()
        }
    }

    #[test]
    fn lists_of_topics_come_behind_those_that_deny() {
        let places = RulePlaces {
            publish: vec![Place::new("f:1")],
            ..RulePlaces::default()
        };
        let grant = Grant {
            places: Some(Box::new(places)),
            ..denying("x")
        };

        let wanted = [
            "may not publish+receive x -",
            "may publish a f:1",
            "may subscribe b -",
        ];
        assert_eq!(lines(&grant), wanted);
        let (second, has_more) = grant.rules(1, 1);
        assert_eq!((&*second[0].filter, has_more), ("a", true));
        assert!(!grant.rules(2, 1).1, "the last one");
        assert_eq!(grant.rules(3, 1), (Vec::new(), false));
    }

    #[test]
    fn an_access_list_replaces_lists_of_topics() {
        let rule = |access, filter: &str| AccessRule {
            access,
            filter: filter.into(),
        };
        let grant = Grant {
            access_list: Some(vec![
                rule(Access::Deny, "c"),
                rule(Access::Read, "d"),
                rule(Access::Write, "e"),
                rule(Access::ReadWrite, "f"),
            ]),
            ..denying("x")
        };

        let wanted = [
            "may not publish+receive x -",
            "may not publish+receive c -",
            "may receive d -",
            "may publish e -",
            "may publish+receive f -",
        ];
        assert_eq!(lines(&grant), wanted);
    }

    #[test]
    fn ordered_rules_replace_all_but_those_that_deny() {
        let rule = |is_allowed, is_exact, filter: &str| {
            vec![OrderedRule {
                is_allowed,
                is_exact,
                filter: filter.into(),
            }]
        };
        let ordered = OrderedRules {
            publish: rule(true, false, "p"),
            receive: rule(false, false, "r"),
            subscribe: rule(true, true, "s"),
            unsubscribe: rule(false, false, "u"),
        };
        let grant = Grant {
            ordered: Some(ordered),
            access_list: Some(Vec::new()),
            ..denying("x")
        };

        let wanted = [
            "may not publish+receive x -",
            "may publish p -",
            "may not receive r -",
            "may subscribe s exactly -",
            "may not unsubscribe u -",
        ];
        assert_eq!(lines(&grant), wanted);
    }
}
