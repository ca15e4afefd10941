//! Compiled grants: plugins decide at CONNECT, the engine enforces the rules for every packet.
//!
//! Order of the rules: deny, allow, answers of plugins, then deny by default. A grant with an access list has the order
//! of that list instead (ADR 0050).

use std::sync::Arc;

use mqttcore_topics::{TopicError, TopicFilter, TopicLimits, TopicName};

use crate::config::grants::{Access, AccessRule, Grant, ListenerCaps, OrderedRule, OrderedRules};

impl Grant {
    /// Compiles the rules.
    ///
    /// # Errors
    ///
    /// The first rule that is not a topic filter, with the error.
    pub fn compile(&self) -> Result<Permissions, GrantError> {
        Ok(Permissions {
            publish: compile(&self.publish)?,
            subscribe: compile(&self.subscribe)?,
            deny: compile(&self.deny)?,
            ordered: self.ordered()?.map(Arc::new),
        })
    }

    fn ordered(&self) -> Result<Option<Ordered>, GrantError> {
        match (&self.ordered, &self.access_list) {
            (Some(rules), _) => Ordered::of(rules).map(Some),
            (None, Some(list)) => Ordered::of_access_list(list).map(Some),
            (None, None) => Ok(None),
        }
    }
}

impl ListenerCaps {
    /// Checks the rules.
    ///
    /// # Errors
    ///
    /// As [`Grant::compile`].
    pub(crate) fn check(&self) -> Result<(), GrantError> {
        compile(&self.deny).map(|_| ())
    }
}

/// A grant and its compiled rules; all clients with the same grant share it.
#[derive(Debug)]
pub(crate) struct CompiledGrant {
    pub(crate) grant: Grant,
    pub(crate) permissions: Permissions,
    /// The restrictions of the listener.
    pub(crate) caps: Arc<ListenerCaps>,
    /// It is the grant of a listener for clients that no plugin let in.
    pub(crate) is_anonymous: bool,
}

impl CompiledGrant {
    /// An empty grant with `permissions` that were not compiled from texts.
    pub(crate) fn of(permissions: Permissions) -> Self {
        Self {
            grant: Grant::default(),
            permissions,
            caps: Arc::default(),
            is_anonymous: false,
        }
    }

    /// The grant of a client whose rights are revoked: every topic is denied, in both directions.
    pub(crate) fn revoked(&self) -> Self {
        // INVARIANT: both are rules.
        let every = ["#", "$#"].map(|rule| Rule::parse(rule).expect("a rule"));
        self.with(Permissions {
            deny: every.into(),
            ..Permissions::default()
        })
    }

    /// The grant of a client whose rights are unknown until it logs in again: it allows no publish, and messages are
    /// still queued for its session.
    pub(crate) fn without_publish(&self) -> Self {
        let mut permissions = self.permissions.clone();
        permissions.publish = Box::default();
        if let Some(ordered) = &mut permissions.ordered {
            Arc::make_mut(ordered).publish = Box::default();
        }
        self.with(permissions)
    }

    fn with(&self, permissions: Permissions) -> Self {
        Self {
            grant: self.grant.clone(),
            permissions,
            caps: Arc::clone(&self.caps),
            is_anonymous: self.is_anonymous,
        }
    }

    /// Compiles `grant` with the restrictions of its listener.
    pub(crate) fn capped(mut grant: Grant, caps: &Arc<ListenerCaps>) -> Result<Self, GrantError> {
        grant.deny.extend_from_slice(&caps.deny);
        Ok(Self {
            permissions: grant.compile()?,
            grant,
            caps: Arc::clone(caps),
            is_anonymous: false,
        })
    }
}

/// A rule of a grant is not a topic filter.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("grant rule {rule:?}: {error}")]
pub struct GrantError {
    /// The rule as written.
    pub rule: String,
    /// The error.
    pub error: TopicError,
}

fn compile(rules: &[String]) -> Result<Box<[Rule]>, GrantError> {
    rules.iter().map(|rule| compile_rule(rule)).collect()
}

/// Compiled rules in their order, each with its answer.
type RuleList = Box<[(bool, Rule)]>;

/// Compiled ordered rules.
#[derive(Clone, Debug)]
struct Ordered {
    publish: RuleList,
    receive: RuleList,
    subscribe: RuleList,
    unsubscribe: RuleList,
}

impl Ordered {
    fn of(rules: &OrderedRules) -> Result<Self, GrantError> {
        let topics = |rules: &[OrderedRule]| compile_ordered(rules, Rule::Filter);
        let filters = |rules: &[OrderedRule]| compile_ordered(rules, Rule::Pattern);
        Ok(Self {
            publish: topics(&rules.publish)?,
            receive: topics(&rules.receive)?,
            subscribe: filters(&rules.subscribe)?,
            unsubscribe: filters(&rules.unsubscribe)?,
        })
    }

    /// The rules of an access list, with which every filter may be subscribed.
    fn of_access_list(list: &[AccessRule]) -> Result<Self, GrantError> {
        let every: RuleList = [(true, Rule::Every)].into();
        Ok(Self {
            publish: compile_action(list, Access::Write)?,
            receive: compile_action(list, Access::Read)?,
            subscribe: every.clone(),
            unsubscribe: every,
        })
    }
}

fn compile_ordered(
    rules: &[OrderedRule],
    kind: fn(TopicFilter) -> Rule,
) -> Result<RuleList, GrantError> {
    let compiled = |rule: &OrderedRule| {
        let parsed = match compile_rule(&rule.filter)? {
            Rule::Filter(filter) if rule.is_exact => Rule::Exact(filter),
            Rule::Filter(filter) => kind(filter),
            other => other,
        };
        Ok((rule.is_allowed, parsed))
    };
    rules.iter().map(compiled).collect()
}

/// The rules of an access list that decide about `action`.
fn compile_action(list: &[AccessRule], action: Access) -> Result<RuleList, GrantError> {
    let decides = |rule: &&AccessRule| rule.access.decides(action).is_some();
    let compiled = |rule: &AccessRule| {
        let is_allowed = rule.access.decides(action) == Some(true);
        Ok((is_allowed, compile_rule(&rule.filter)?))
    };
    list.iter().filter(decides).map(compiled).collect()
}

fn compile_rule(rule: &str) -> Result<Rule, GrantError> {
    Rule::parse(rule).map_err(|error| GrantError {
        rule: rule.into(),
        error,
    })
}

/// One rule of a grant.
#[derive(Clone, Debug)]
enum Rule {
    Filter(TopicFilter),
    /// `$#`: every topic that begins with `$`; filters that begin with a wildcard do not match these.
    Dollar,
    /// A filter that covers filters beginning with `$`, too, if it begins with a wildcard.
    Pattern(TopicFilter),
    /// This text alone.
    Exact(TopicFilter),
    /// Every topic and filter.
    Every,
}

impl Rule {
    fn parse(text: &str) -> Result<Self, TopicError> {
        if text == "$#" {
            return Ok(Self::Dollar);
        }
        TopicFilter::parse(text, &TopicLimits::WIDEST).map(Self::Filter)
    }

    fn matches(&self, topic: TopicName<'_>) -> bool {
        match self {
            Self::Filter(filter) | Self::Pattern(filter) => filter.matches(topic),
            Self::Dollar => topic.is_dollar(),
            Self::Exact(filter) => filter.as_str() == topic.as_str(),
            Self::Every => true,
        }
    }

    fn covers(&self, asked: &TopicFilter) -> bool {
        match self {
            Self::Filter(filter) => filter.covers(asked),
            Self::Dollar => asked.as_str().starts_with('$'),
            Self::Pattern(filter) => filter.covers(asked) || covers_dollar(filter, asked),
            Self::Exact(filter) => filter == asked,
            Self::Every => true,
        }
    }

    fn as_str(&self) -> &str {
        match self {
            Self::Filter(filter) | Self::Pattern(filter) | Self::Exact(filter) => filter.as_str(),
            Self::Dollar => "$#",
            Self::Every => ANY_FILTER,
        }
    }
}

/// Whether `filter` begins with a wildcard and covers `asked`, which begins with `$`, but for this character.
fn covers_dollar(filter: &TopicFilter, asked: &TopicFilter) -> bool {
    let Some(rest) = asked.as_str().strip_prefix('$') else {
        return false;
    };
    // Only the first level of `asked` differs, and a wildcard is compared with that.
    let plain = TopicFilter::parse(&format!("_{rest}"), &TopicLimits::WIDEST);
    filter.as_str().starts_with(['+', '#']) && plain.is_ok_and(|plain| filter.covers(&plain))
}

/// Compiled rules of one client.
#[derive(Clone, Debug, Default)]
pub struct Permissions {
    publish: Box<[Rule]>,
    subscribe: Box<[Rule]>,
    deny: Box<[Rule]>,
    ordered: Option<Arc<Ordered>>,
}

/// Checks one rule before it is added to a grant.
///
/// # Errors
///
/// Why the rule is neither a topic filter nor `$#`.
pub fn check_grant_rule(rule: &str) -> Result<(), TopicError> {
    Rule::parse(rule).map(|_| ())
}

/// The answer of the rules alone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RuleAnswer {
    /// An allow rule covers it.
    Allowed,
    /// A deny rule covers it.
    Denied,
    /// No rule covers it: plugins may be asked; without an answer it is denied.
    Silent,
}

/// The rule that decides.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum DecidingRule<'a> {
    /// The topic is in a namespace reserved for broker functions.
    Reserved,
    /// This deny rule.
    Deny(&'a str),
    /// This allow rule.
    Allow(&'a str),
    /// No rule.
    None,
}

impl DecidingRule<'_> {
    pub(crate) fn answer(self) -> RuleAnswer {
        match self {
            Self::Reserved | Self::Deny(_) => RuleAnswer::Denied,
            Self::Allow(_) => RuleAnswer::Allowed,
            Self::None => RuleAnswer::Silent,
        }
    }
}

/// The first deny rule that matches, else the first allow rule.
fn deciding<'a>(
    deny: &'a [Rule],
    allow: &'a [Rule],
    matches: impl Fn(&Rule) -> bool,
) -> DecidingRule<'a> {
    let first = |rules: &'a [Rule]| rules.iter().find(|rule| matches(rule));
    if let Some(rule) = first(deny) {
        DecidingRule::Deny(rule.as_str())
    } else if let Some(rule) = first(allow) {
        DecidingRule::Allow(rule.as_str())
    } else {
        DecidingRule::None
    }
}

impl Permissions {
    /// Permissions to publish to topics that match `filter`, and nothing else.
    pub(crate) fn publishing(filter: TopicFilter) -> Self {
        Self {
            publish: [Rule::Filter(filter)].into(),
            ..Self::default()
        }
    }

    /// Whether the client may publish to `topic`.
    ///
    /// Namespaces reserved for broker functions are denied whatever the rules are. `$SYS` is denied unless a rule names
    /// it: `#` does not match it (abuse D06).
    pub fn publish(&self, topic: TopicName<'_>) -> RuleAnswer {
        self.publish_rule(topic).answer()
    }

    /// The rule that decides whether the client may publish to `topic`.
    pub(crate) fn publish_rule(&self, topic: TopicName<'_>) -> DecidingRule<'_> {
        if topic.is_dollar() && is_reserved(topic.as_str()) {
            return DecidingRule::Reserved;
        }
        self.control_rule(topic)
    }

    /// The rule that decides whether the client may make requests on `topic`, which a plugin answers.
    pub(crate) fn control_rule(&self, topic: TopicName<'_>) -> DecidingRule<'_> {
        let ruled = deciding(&self.deny, &self.publish, |rule| rule.matches(topic));
        self.unless_ordered(ruled, |rules| &rules.publish, |rule| rule.matches(topic))
    }

    /// Whether the client may subscribe to `filter`. A filter wider than every allow rule is denied (abuse G06). A
    /// filter that overlaps a deny rule is allowed; denied messages are dropped at delivery (G07). An access list
    /// allows every filter; ordered rules have their own.
    pub fn subscribe(&self, filter: &TopicFilter) -> RuleAnswer {
        self.subscribe_rule(filter).answer()
    }

    /// The rule that decides whether the client may subscribe to `filter`.
    pub(crate) fn subscribe_rule(&self, filter: &TopicFilter) -> DecidingRule<'_> {
        let covers = |rule: &Rule| rule.covers(filter);
        let ruled = deciding(&self.deny, &self.subscribe, covers);
        self.unless_ordered(ruled, |rules| &rules.subscribe, covers)
    }

    /// Whether the client may end its subscription to `filter`. Only ordered rules can deny that.
    pub fn unsubscribe(&self, filter: &TopicFilter) -> bool {
        let covers = |rule: &Rule| rule.covers(filter);
        let rule = self.unless_ordered(DecidingRule::None, |rules| &rules.unsubscribe, covers);
        rule.answer() != RuleAnswer::Denied
    }

    /// Whether a message on `topic` may reach the client.
    pub fn receives(&self, topic: TopicName<'_>) -> bool {
        self.receive_denial(topic).is_none()
    }

    /// The deny rule that keeps messages on `topic` from the client.
    pub(crate) fn receive_denial(&self, topic: TopicName<'_>) -> Option<&str> {
        match self.receive_rule(topic) {
            DecidingRule::Deny(rule) => Some(rule),
            _ => None,
        }
    }

    /// The rule that decides whether messages on `topic` may reach the client; without one they may.
    pub(crate) fn receive_rule(&self, topic: TopicName<'_>) -> DecidingRule<'_> {
        let ruled = deciding(&self.deny, &[], |rule| rule.matches(topic));
        let matches = |rule: &Rule| rule.matches(topic);
        self.unless_ordered(ruled, |rules| &rules.receive, matches)
    }

    /// Whether deliveries have to be checked at all.
    pub fn checks_deliveries(&self) -> bool {
        !self.deny.is_empty() || self.ordered.is_some()
    }

    /// `ruled`, if a rule decides; else the first ordered rule that `is_about` the question, if there are such rules.
    fn unless_ordered<'a>(
        &'a self,
        ruled: DecidingRule<'a>,
        list: impl FnOnce(&'a Ordered) -> &'a RuleList,
        is_about: impl Fn(&Rule) -> bool,
    ) -> DecidingRule<'a> {
        let (DecidingRule::None, Some(ordered)) = (ruled, &self.ordered) else {
            return ruled;
        };
        let mut listed = list(ordered).iter();
        match listed.find(|(_, rule)| is_about(rule)) {
            Some((true, rule)) => DecidingRule::Allow(rule.as_str()),
            Some((false, rule)) => DecidingRule::Deny(rule.as_str()),
            None => DecidingRule::Deny(UNLISTED),
        }
    }
}

/// The rule that denies what ordered rules and access lists do not name.
const UNLISTED: &str = "(no rule names it)";
/// The rule that allows every filter.
const ANY_FILTER: &str = "(any filter, with an access list)";

/// Whether the topic is in a namespace reserved for broker functions: nobody may publish there.
fn is_reserved(topic: &str) -> bool {
    ["$share", "$queue", "$CONTROL", "$exclusive", "$delayed"]
        .iter()
        .any(|prefix| {
            topic
                .strip_prefix(prefix)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(publish: &[&str], subscribe: &[&str], deny: &[&str]) -> Permissions {
        let own = |rules: &[&str]| rules.iter().map(ToString::to_string).collect();
        Grant {
            publish: own(publish),
            subscribe: own(subscribe),
            deny: own(deny),
            ..Grant::default()
        }
        .compile()
        .unwrap()
    }

    fn topic(text: &str) -> TopicName<'_> {
        TopicName::parse(text, &TopicLimits::default()).unwrap()
    }

    fn filter(text: &str) -> TopicFilter {
        TopicFilter::parse(text, &TopicLimits::default()).unwrap()
    }

    #[test]
    fn an_empty_grant_is_silent_about_everything() {
        let rules = Permissions::default();

        assert_eq!(rules.publish(topic("a")), RuleAnswer::Silent);
        assert_eq!(rules.subscribe(&filter("a")), RuleAnswer::Silent);
    }

    #[test]
    fn everything_is_all_topics_and_what_the_broker_says_of_itself() {
        let rules = Grant::everything().compile().unwrap();

        assert_eq!(rules.publish(topic("a")), RuleAnswer::Allowed);
        assert_eq!(rules.publish(topic("$SYS/a")), RuleAnswer::Silent);
        assert_eq!(rules.subscribe(&filter("#")), RuleAnswer::Allowed);
        assert_eq!(rules.subscribe(&filter("$SYS/#")), RuleAnswer::Allowed);
    }

    #[test]
    fn permissions_to_publish_are_for_one_filter() {
        let rules = Permissions::publishing(filter("a/+"));

        assert_eq!(rules.publish(topic("a/b")), RuleAnswer::Allowed);
        assert_eq!(rules.publish(topic("a")), RuleAnswer::Silent);
        assert_eq!(rules.subscribe(&filter("a/b")), RuleAnswer::Silent);
    }

    #[test]
    fn deliveries_are_checked_where_something_is_denied() {
        let (open, closed) = (grant(&[], &["#"], &[]), grant(&[], &["#"], &["a"]));

        assert!(!open.checks_deliveries() && closed.checks_deliveries());
        assert!(open.receives(topic("a")) && closed.receives(topic("b")));
    }

    #[test]
    fn a_rule_is_a_filter_or_all_dollar_topics() {
        for rule in ["a/+/#", "$#"] {
            assert_eq!(check_grant_rule(rule), Ok(()));
        }
        assert!(check_grant_rule("a/#/b").is_err());
    }

    #[test]
    fn a_rule_may_be_as_deep_as_any_configuration_allows_topics_to_be() {
        let deep = vec!["a"; 1_000].join("/");
        let rules = grant(&[&deep], &[], &[]);

        let deep = TopicName::parse(&deep, &TopicLimits::WIDEST).unwrap();
        assert_eq!(rules.publish(deep), RuleAnswer::Allowed);
    }

    #[test]
    fn a_deny_rule_beats_an_allow_rule() {
        let rules = grant(&["a/#"], &["a/#"], &["a/secret"]);

        assert_eq!(rules.publish(topic("a/b")), RuleAnswer::Allowed);
        assert_eq!(rules.publish(topic("a/secret")), RuleAnswer::Denied);
        assert_eq!(rules.subscribe(&filter("a/secret")), RuleAnswer::Denied);
        assert_eq!(rules.subscribe(&filter("a/#")), RuleAnswer::Allowed);
        assert!(!rules.receives(topic("a/secret")));
    }

    #[test]
    fn the_rule_that_decides_is_the_first_deny_rule_else_the_first_allow_rule() {
        let rules = grant(&["a/#", "a/b", "$#"], &["a/#"], &["a/secret", "a/+/x"]);

        let published = |text| rules.publish_rule(topic(text));
        assert_eq!(published("a/b"), DecidingRule::Allow("a/#"));
        assert_eq!(published("a/secret"), DecidingRule::Deny("a/secret"));
        assert_eq!(published("$SYS/x"), DecidingRule::Allow("$#"));
        assert_eq!(published("$share/x"), DecidingRule::Reserved);
        assert_eq!(published("b"), DecidingRule::None);
        let subscribed = |text| rules.subscribe_rule(&filter(text));
        assert_eq!(subscribed("a/+"), DecidingRule::Allow("a/#"));
        assert_eq!(subscribed("a/b/x"), DecidingRule::Deny("a/+/x"));
        assert_eq!(rules.receive_denial(topic("a/b/x")), Some("a/+/x"));
        assert_eq!(rules.receive_denial(topic("a/b")), None);
    }

    #[test]
    fn a_filter_wider_than_the_grant_is_not_allowed() {
        let rules = grant(&[], &["a/+"], &[]);

        assert_eq!(rules.subscribe(&filter("#")), RuleAnswer::Silent);
        assert_eq!(rules.subscribe(&filter("a/b")), RuleAnswer::Allowed);
    }

    #[test]
    fn namespaces_for_functions_of_brokers_are_closed_for_publishing() {
        let rules = grant(&["#", "$#", "$share/#", "$queue/#"], &[], &[]);

        for reserved in [
            "$share",
            "$share/g/t",
            "$queue/t",
            "$CONTROL/x",
            "$delayed/1/t",
        ] {
            assert_eq!(
                rules.publish(topic(reserved)),
                RuleAnswer::Denied,
                "{reserved}"
            );
        }
        assert_eq!(rules.publish(topic("$shared/t")), RuleAnswer::Allowed);
    }

    #[test]
    fn a_rule_that_names_sys_opens_it_for_publishing() {
        let open = grant(&["$SYS/mine/#"], &[], &[]);
        let closed = grant(&["#", "+/mine/#"], &[], &[]);

        assert_eq!(open.publish(topic("$SYS/mine/x")), RuleAnswer::Allowed);
        assert_eq!(open.publish(topic("$SYS/broker")), RuleAnswer::Silent);
        assert_eq!(closed.publish(topic("$SYS/mine/x")), RuleAnswer::Silent);
    }

    #[test]
    fn one_rule_stands_for_all_topics_that_begin_with_a_dollar() {
        let rules = grant(&["$#"], &["$#"], &[]);

        assert_eq!(rules.publish(topic("$SYS/broker")), RuleAnswer::Allowed);
        assert_eq!(rules.publish(topic("$")), RuleAnswer::Allowed);
        assert_eq!(rules.publish(topic("a/$b")), RuleAnswer::Silent);
        assert_eq!(rules.subscribe(&filter("$SYS/#")), RuleAnswer::Allowed);
        assert_eq!(rules.subscribe(&filter("$mine/+")), RuleAnswer::Allowed);
        assert_eq!(rules.subscribe(&filter("#")), RuleAnswer::Silent);
    }

    #[test]
    fn a_denial_of_all_dollar_topics_beats_every_rule() {
        let rules = grant(&["$SYS/#", "a"], &["$SYS/#", "a"], &["$#"]);

        assert_eq!(rules.publish(topic("$SYS/x")), RuleAnswer::Denied);
        assert_eq!(rules.subscribe(&filter("$SYS/x")), RuleAnswer::Denied);
        assert!(!rules.receives(topic("$SYS/x")));
        assert_eq!(rules.publish(topic("a")), RuleAnswer::Allowed);
        assert_eq!(rules.subscribe(&filter("a")), RuleAnswer::Allowed);
    }

    #[test]
    fn a_wildcard_grant_does_not_reach_dollar_topics() {
        let rules = grant(&["#"], &["#"], &[]);

        assert_eq!(rules.publish(topic("$mine/x")), RuleAnswer::Silent);
        assert_eq!(rules.subscribe(&filter("$SYS/#")), RuleAnswer::Silent);
    }

    fn listed(rules: &[(Access, &str)], deny: &[&str]) -> Permissions {
        let rule = |&(access, filter): &(Access, &str)| AccessRule {
            access,
            filter: filter.into(),
        };
        Grant {
            deny: deny.iter().map(ToString::to_string).collect(),
            access_list: Some(rules.iter().map(rule).collect()),
            ..Grant::default()
        }
        .compile()
        .unwrap()
    }

    #[test]
    fn the_first_rule_of_an_access_list_that_names_topic_and_action_decides() {
        let rules = listed(
            &[
                (Access::Write, "a/b"),
                (Access::Deny, "a/+"),
                (Access::Read, "a/b"),
                (Access::ReadWrite, "a/#"),
            ],
            &[],
        );

        assert_eq!(rules.publish(topic("a/b")), RuleAnswer::Allowed);
        assert!(!rules.receives(topic("a/b")));
        assert_eq!(rules.publish(topic("a/c")), RuleAnswer::Denied);
        assert_eq!(rules.publish(topic("a/c/d")), RuleAnswer::Allowed);
        assert!(rules.receives(topic("a/c/d")));
    }

    #[test]
    fn an_access_list_denies_what_it_does_not_name_but_every_filter_may_be_subscribed() {
        let (some, none) = (listed(&[(Access::Read, "a")], &[]), listed(&[], &[]));

        for rules in [&some, &none] {
            assert_eq!(rules.publish(topic("a")), RuleAnswer::Denied);
            assert_eq!(rules.subscribe(&filter("#")), RuleAnswer::Allowed);
            assert_eq!(rules.subscribe(&filter("$SYS/#")), RuleAnswer::Allowed);
            assert!(rules.checks_deliveries() && !rules.receives(topic("b")));
        }
        assert!(some.receives(topic("a")) && !none.receives(topic("a")));
    }

    #[test]
    fn a_revoked_grant_allows_no_message_in_either_direction() {
        let open = grant(&["#"], &["#"], &["a"]);
        let list = listed(&[(Access::ReadWrite, "#")], &[]);

        for permissions in [open, list] {
            let revoked = CompiledGrant::of(permissions).revoked().permissions;

            assert!(revoked.checks_deliveries() && !revoked.receives(topic("b")));
            assert_eq!(revoked.publish(topic("b")), RuleAnswer::Denied);
            assert_eq!(revoked.subscribe(&filter("$SYS/+")), RuleAnswer::Denied);
        }
    }

    #[test]
    fn a_grant_without_publish_receives_as_before() {
        let open = grant(&["#"], &["#"], &["a"]);
        let rules = [
            (Access::Deny, "a"),
            (Access::Write, "b/c"),
            (Access::ReadWrite, "b/#"),
        ];

        for permissions in [open, listed(&rules, &[])] {
            let rest = CompiledGrant::of(permissions).without_publish().permissions;

            assert!(rest.receives(topic("b/c")) && !rest.receives(topic("a")));
            assert_ne!(rest.publish(topic("b/c")), RuleAnswer::Allowed);
            assert_eq!(rest.subscribe(&filter("b/#")), RuleAnswer::Allowed);
        }
    }

    #[test]
    fn deny_rules_and_reserved_namespaces_come_before_an_access_list() {
        let rules = listed(
            &[(Access::ReadWrite, "#"), (Access::ReadWrite, "$#")],
            &["a"],
        );

        assert_eq!(rules.publish(topic("a")), RuleAnswer::Denied);
        assert_eq!(rules.subscribe(&filter("a")), RuleAnswer::Denied);
        assert!(!rules.receives(topic("a")) && rules.receives(topic("b")));
        assert_eq!(rules.publish(topic("$CONTROL/x")), RuleAnswer::Denied);
    }

    #[test]
    fn an_access_list_with_a_wrong_filter_is_refused() {
        let rule = AccessRule {
            access: Access::Deny,
            filter: "a/#/b".into(),
        };
        let grant = Grant {
            access_list: Some(vec![rule]),
            ..Grant::default()
        };

        assert_eq!(grant.compile().unwrap_err().rule, "a/#/b");
    }

    /// The rights of a grant: one number for each question; a lower number allows less.
    fn rights(rules: &Permissions) -> Vec<u8> {
        let rank = |answer| match answer {
            RuleAnswer::Denied => 0,
            RuleAnswer::Silent => 1,
            RuleAnswer::Allowed => 2,
        };
        let topics = ["a", "a/b", "a/secret", "c/b", "c/d/e", "$SYS/x", "$mine"];
        let filters = ["#", "+", "a/#", "a/+", "a/secret", "+/b", "c/#", "$SYS/#"];
        let publish = topics.iter().map(|text| rank(rules.publish(topic(text))));
        let receive = topics
            .iter()
            .map(|text| u8::from(rules.receives(topic(text))));
        let subscribe = filters
            .iter()
            .map(|text| rank(rules.subscribe(&filter(text))));
        publish.chain(receive).chain(subscribe).collect()
    }

    /// Whether `less` allows no more than `more`.
    fn is_within(less: &Permissions, more: &Permissions) -> bool {
        let (less, more) = (rights(less), rights(more));
        less.iter().zip(&more).all(|(less, more)| less <= more)
    }

    /// (abuse G16) This holds whatever the other rules are.
    #[test]
    fn rights_do_not_grow_with_a_deny_rule_more_an_allow_rule_less_or_another_order() {
        let pool = ["#", "a/#", "a/+", "a/secret", "+/b", "$SYS/#", "$#"];
        for (first, second, denied, other) in (0..pool.len().pow(4)).map(|number| {
            let rule = |place: u32| pool[number / pool.len().pow(place) % pool.len()];
            (rule(0), rule(1), rule(2), rule(3))
        }) {
            let whole = grant(&[first, second], &[first, second], &[denied]);

            let denied_more = grant(&[first, second], &[first, second], &[denied, other]);
            let allowed_less = grant(&[first], &[second], &[denied]);
            let nothing_denied = grant(&[second, first], &[second, first], &[]);
            let reordered = grant(&[second, first], &[second, first], &[denied]);

            assert!(
                is_within(&denied_more, &whole),
                "{first} {second} {denied} {other}"
            );
            assert!(
                is_within(&allowed_less, &whole),
                "{first} {second} {denied}"
            );
            assert!(
                is_within(&whole, &nothing_denied),
                "{first} {second} {denied}"
            );
            assert_eq!(rights(&reordered), rights(&whole));
        }
    }

    /// Rules for all four actions: `+word` allows, `-word` denies, `=` in front of the filter is exact.
    fn ordered(rules: &[&str]) -> Permissions {
        let rule = |text: &&str| {
            let (sign, rest) = text.split_at(1);
            OrderedRule {
                is_allowed: sign == "+",
                is_exact: rest.starts_with('='),
                filter: rest.trim_start_matches('=').into(),
            }
        };
        let rules: Vec<_> = rules.iter().map(rule).collect();
        Grant {
            deny: vec!["never/#".into()],
            ordered: Some(OrderedRules {
                publish: rules.clone(),
                receive: rules.clone(),
                subscribe: rules.clone(),
                unsubscribe: rules,
            }),
            ..Grant::default()
        }
        .compile()
        .unwrap()
    }

    #[test]
    fn the_first_ordered_rule_that_matches_decides_about_each_action() {
        let rules = ordered(&["+a/b", "-a/+", "+a/#", "-=c/+", "+c/#", "+never/x"]);
        let table = [
            ("a/b", true),
            ("a/c", false),
            ("a/c/d", true),
            ("a", true),
            ("c/d", true),
            ("d", false),
        ];

        for (name, is_allowed) in table {
            let answer = rules.publish(topic(name)) == RuleAnswer::Allowed;
            assert_eq!(answer, is_allowed, "publish {name}");
            assert_eq!(rules.receives(topic(name)), is_allowed, "receive {name}");
            let answer = rules.subscribe(&filter(name)) == RuleAnswer::Allowed;
            assert_eq!(answer, is_allowed, "subscribe {name}");
            assert_eq!(rules.unsubscribe(&filter(name)), is_allowed, "{name}");
        }
        assert_eq!(rules.subscribe(&filter("c/+")), RuleAnswer::Denied);
        assert_eq!(rules.subscribe(&filter("c/+/e")), RuleAnswer::Allowed);
        assert_eq!(rules.subscribe(&filter("a/#")), RuleAnswer::Allowed);
        assert_eq!(rules.subscribe(&filter("#")), RuleAnswer::Denied);
        assert_eq!(rules.publish(topic("never/x")), RuleAnswer::Denied);
    }

    #[test]
    fn a_wildcard_of_ordered_rules_covers_dollar_filters_and_matches_no_dollar_topics() {
        for wide in ["#", "+/#", "+/a"] {
            let rules = ordered(&[&format!("+{wide}")]);
            assert_eq!(
                rules.subscribe(&filter("$SYS/a")),
                RuleAnswer::Allowed,
                "{wide}"
            );
            assert_eq!(rules.publish(topic("$SYS/a")), RuleAnswer::Denied);
            assert!(!rules.receives(topic("$SYS/a")));
        }
        for narrow in ["a/#", "$mine/#", "+/b", "+"] {
            let rules = ordered(&[&format!("+{narrow}")]);
            assert_eq!(
                rules.subscribe(&filter("$SYS/a")),
                RuleAnswer::Denied,
                "{narrow}"
            );
        }
    }

    #[test]
    fn a_client_without_publish_rights_keeps_its_other_ordered_rules() {
        let granted = CompiledGrant::of(ordered(&["+#"]))
            .without_publish()
            .permissions;

        assert_eq!(granted.publish(topic("a")), RuleAnswer::Denied);
        assert!(granted.receives(topic("a")));
        assert_eq!(granted.subscribe(&filter("a")), RuleAnswer::Allowed);
    }

    #[test]
    fn unsubscribing_is_denied_by_ordered_rules_only() {
        assert!(grant(&[], &[], &["a"]).unsubscribe(&filter("a")));
        assert!(listed(&[], &["a"]).unsubscribe(&filter("a")));
    }

    #[test]
    fn requests_on_control_topics_need_a_rule_that_names_them() {
        let answer = |rules: Permissions| rules.control_rule(topic("$CONTROL/x/v1")).answer();

        assert_eq!(answer(grant(&["#"], &[], &[])), RuleAnswer::Silent);
        assert_eq!(
            answer(grant(&["$CONTROL/#"], &[], &[])),
            RuleAnswer::Allowed
        );
        assert_eq!(
            answer(grant(&["$CONTROL/#"], &[], &["$#"])),
            RuleAnswer::Denied
        );
        assert_eq!(answer(ordered(&["+#"])), RuleAnswer::Denied);
    }
}
