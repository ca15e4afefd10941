//! Where the rules of grants come from, for explanations: hooks, files and lines, each text once.
//!
//! Rules carry a number each beside the list that packets are compared with. The texts are looked up only to explain.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use crate::config::grants::{Access, Grant, OrderedRule};
use crate::config::permissions::DecidingRule;

/// Different texts; later ones are not kept.
const PLACES_MAX: usize = 65_536;
/// Bytes of a text; longer ones are not kept.
const TEXT_MAX: usize = 1_024;

/// A text that many grants share, such as the file and line of a rule.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Place(u32);

/// The texts, by number and by text. Number 0 is none.
#[derive(Default)]
struct Places {
    numbers: HashMap<Arc<str>, u32>,
    texts: Vec<Arc<str>>,
}

static PLACES: LazyLock<Mutex<Places>> = LazyLock::new(Mutex::default);

impl Place {
    /// The place with this text; an unknown one if the text is too long or there are too many.
    pub fn new(text: &str) -> Self {
        let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&number) = places.numbers.get(text) {
            return Self(number);
        }
        let number = u32::try_from(places.texts.len() + 1).unwrap_or(0);
        if text.len() > TEXT_MAX || places.texts.len() >= PLACES_MAX {
            return Self::default();
        }
        let text: Arc<str> = text.into();
        places.texts.push(Arc::clone(&text));
        places.numbers.insert(text, number);
        Self(number)
    }

    /// The text; `None` if the place is unknown.
    pub fn text(self) -> Option<Arc<str>> {
        let index = usize::try_from(self.0.checked_sub(1)?).ok()?;
        let places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        places.texts.get(index).cloned()
    }
}

/// The places of the rules of a [`Grant`], each list in the order of its rules; a missing place is unknown.
#[derive(Clone, Debug, Default)]
pub struct RulePlaces {
    /// Of `publish`.
    pub publish: Vec<Place>,
    /// Of `subscribe`.
    pub subscribe: Vec<Place>,
    /// Of `deny`.
    pub deny: Vec<Place>,
    /// Of `access_list`.
    pub access_list: Vec<Place>,
    /// Of `ordered.publish`.
    pub ordered_publish: Vec<Place>,
    /// Of `ordered.receive`.
    pub ordered_receive: Vec<Place>,
    /// Of `ordered.subscribe`.
    pub ordered_subscribe: Vec<Place>,
}

impl RulePlaces {
    /// Whether no place is known.
    pub fn is_empty(&self) -> bool {
        let lists = [
            &self.publish,
            &self.subscribe,
            &self.deny,
            &self.access_list,
            &self.ordered_publish,
            &self.ordered_receive,
            &self.ordered_subscribe,
        ];
        let mut places = lists.into_iter().flatten();
        places.all(|place| *place == Place::default())
    }
}

/// The action that a rule decides.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RuleAction {
    Publish,
    Subscribe,
    Receive,
}

impl Grant {
    /// Where the rule is written that decides about `action`. Of rules with the same text, the first one counts: it
    /// decides.
    pub(crate) fn place_of(&self, action: RuleAction, rule: DecidingRule<'_>) -> Option<Arc<str>> {
        let places = self.places.as_deref()?;
        let (is_allowed, text) = match rule {
            DecidingRule::Allow(text) => (true, text),
            DecidingRule::Deny(text) => (false, text),
            DecidingRule::Reserved | DecidingRule::None => return None,
        };
        let position = |list: &[String]| list.iter().position(|one| one == text);
        if !is_allowed && let Some(index) = position(&self.deny) {
            return place_at(&places.deny, index);
        }
        if let Some(rules) = &self.ordered {
            let (rules, places) = match action {
                RuleAction::Publish => (&rules.publish, &places.ordered_publish),
                RuleAction::Subscribe => (&rules.subscribe, &places.ordered_subscribe),
                RuleAction::Receive => (&rules.receive, &places.ordered_receive),
            };
            let decides = |rule: &OrderedRule| rule.is_allowed == is_allowed && rule.filter == text;
            return place_at(places, rules.iter().position(decides)?);
        }
        if let Some(rules) = &self.access_list {
            let about = match action {
                RuleAction::Publish => Access::Write,
                RuleAction::Receive => Access::Read,
                RuleAction::Subscribe => return None,
            };
            let index = rules.iter().position(|rule| {
                rule.access.decides(about) == Some(is_allowed) && rule.filter == text
            });
            return place_at(&places.access_list, index?);
        }
        match action {
            RuleAction::Publish => place_at(&places.publish, position(&self.publish)?),
            RuleAction::Subscribe => place_at(&places.subscribe, position(&self.subscribe)?),
            RuleAction::Receive => None,
        }
    }
}

fn place_at(places: &[Place], index: usize) -> Option<Arc<str>> {
    places.get(index).and_then(|place| place.text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::grants::AccessRule;

    fn listed() -> Grant {
        let rule = |access, filter: &str| AccessRule {
            access,
            filter: filter.into(),
        };
        let rules = vec![
            rule(Access::Deny, "a/#"),
            rule(Access::Read, "b"),
            rule(Access::ReadWrite, "b"),
        ];
        Grant {
            access_list: Some(rules),
            deny: vec!["c".into()],
            places: Some(Box::new(RulePlaces {
                access_list: ["f:1", "f:2", "f:3"].map(Place::new).into(),
                deny: vec![Place::new("f:9")],
                ..RulePlaces::default()
            })),
            ..Grant::default()
        }
    }

    #[test]
    fn a_text_has_one_number_and_long_ones_none() {
        assert_eq!(Place::new("x:1"), Place::new("x:1"));
        assert_ne!(Place::new("x:1"), Place::new("x:2"));
        assert_eq!(Place::new("x:1").text().as_deref(), Some("x:1"));
        assert_eq!(Place::new(&"x".repeat(TEXT_MAX + 1)), Place::default());
        assert_eq!(Place::default().text(), None);
    }

    #[test]
    fn the_place_is_that_of_the_first_rule_that_decides_about_the_action() {
        let grant = listed();
        let place = |action, rule| grant.place_of(action, rule);

        let read = place(RuleAction::Receive, DecidingRule::Allow("b"));
        let written = place(RuleAction::Publish, DecidingRule::Allow("b"));
        let denied = place(RuleAction::Publish, DecidingRule::Deny("a/#"));

        assert_eq!(read.as_deref(), Some("f:2"));
        assert_eq!(written.as_deref(), Some("f:3"));
        assert_eq!(denied.as_deref(), Some("f:1"));
        let kept_away = place(RuleAction::Publish, DecidingRule::Deny("c"));
        assert_eq!(kept_away.as_deref(), Some("f:9"));
        assert_eq!(place(RuleAction::Publish, DecidingRule::None), None);
    }
}
