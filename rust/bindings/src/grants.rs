//! Converts grants of plugins and of the configuration (`Grant`, `SessionPolicy`, ...) to values of the engine.

use std::time::{Duration, SystemTime};

use mqttcore_broker::{
    Access, AccessRule, Durability, FullQueuePolicy, Grant, GrantLimits, OrderedRule, OrderedRules,
    Place, RuleAnswer, RulePlaces, SessionPolicy, Takeover,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::topics::{parse_filter, parse_name, qos_of};

/// `mqttcore.sessions.SessionLimits`.
#[derive(FromPyObject)]
struct SessionLimitsFields {
    subscriptions: Option<usize>,
    queue_messages: Option<usize>,
    queue_bytes: Option<usize>,
}

/// `mqttcore.sessions.SessionPolicy`.
#[derive(FromPyObject)]
struct SessionPolicyFields {
    resume: bool,
    expiry_max_s: Option<f64>,
    takeover: String,
    limits: SessionLimitsFields,
}

/// `mqttcore.plugin.Limits`.
#[derive(FromPyObject)]
pub(crate) struct GrantLimitsFields {
    pub(crate) max_qos: Option<u8>,
    pub(crate) messages_per_second: Option<u32>,
}

/// `mqttcore.plugin.Grant`.
#[derive(FromPyObject)]
struct GrantFields<'py> {
    publish: Vec<PlacedText>,
    subscribe: Vec<PlacedText>,
    deny: Vec<PlacedText>,
    access_list: Option<Vec<(AccessWord, PlacedText)>>,
    ordered: Option<OrderedFields>,
    limits: GrantLimitsFields,
    session: Option<SessionTerms>,
    durability: Option<DurabilityWord>,
    queue_policy: Option<FullQueuePolicyWord>,
    expires_at: Option<Bound<'py, PyAny>>,
    operate: Vec<String>,
}

/// `mqttcore.plugin.OrderedRules`.
#[derive(FromPyObject)]
struct OrderedFields {
    publish: Vec<(OrderedWord, PlacedText)>,
    receive: Vec<(OrderedWord, PlacedText)>,
    subscribe: Vec<(OrderedWord, PlacedText)>,
    unsubscribe: Vec<(OrderedWord, PlacedText)>,
}

impl OrderedFields {
    /// The rules; notes their places.
    fn rules(self, places: &mut RulePlaces) -> OrderedRules {
        let rule = |(word, filter): (OrderedWord, String)| OrderedRule {
            is_allowed: word.is_allowed,
            is_exact: word.is_exact,
            filter,
        };
        let rules = |list: Vec<(OrderedWord, PlacedText)>, places: &mut Vec<Place>| {
            split(list, places).into_iter().map(rule).collect()
        };
        OrderedRules {
            publish: rules(self.publish, &mut places.ordered_publish),
            receive: rules(self.receive, &mut places.ordered_receive),
            subscribe: rules(self.subscribe, &mut places.ordered_subscribe),
            unsubscribe: rules(self.unsubscribe, &mut Vec::new()),
        }
    }
}

/// The text of a rule, and where that is written if it is a `mqttcore._placed.PlacedRule`.
struct PlacedText {
    text: String,
    place: Place,
}

impl<'a, 'py> FromPyObject<'a, 'py> for PlacedText {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let text = object.extract()?;
        if object.is_exact_instance_of::<PyString>() {
            let place = Place::default();
            return Ok(Self { text, place });
        }
        let place = object.getattr_opt("place")?;
        let place: Option<String> = place.map(|place| place.extract()).transpose()?;
        let place = place.map_or_else(Place::default, |place| Place::new(&place));
        Ok(Self { text, place })
    }
}

/// The rules as texts; their places go to `places`.
fn texts(rules: Vec<PlacedText>, places: &mut Vec<Place>) -> Vec<String> {
    let rule = |rule: PlacedText| {
        places.push(rule.place);
        rule.text
    };
    rules.into_iter().map(rule).collect()
}

/// The same, for rules that begin with a word.
fn split<W>(rules: Vec<(W, PlacedText)>, places: &mut Vec<Place>) -> Vec<(W, String)> {
    let rule = |(word, rule): (W, PlacedText)| {
        places.push(rule.place);
        (word, rule.text)
    };
    rules.into_iter().map(rule).collect()
}

/// One of the words of `mqttcore.plugin.answers.OrderedWord`.
#[derive(Clone, Copy)]
struct OrderedWord {
    is_allowed: bool,
    is_exact: bool,
}

impl<'a, 'py> FromPyObject<'a, 'py> for OrderedWord {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let word = |is_allowed, is_exact| Self {
            is_allowed,
            is_exact,
        };
        let values = [
            ("allow", word(true, false)),
            ("deny", word(false, false)),
            ("allow_exactly", word(true, true)),
            ("deny_exactly", word(false, true)),
        ];
        value_of("rule", object.extract()?, &values)
    }
}

/// The value that `word` stands for; `what` names the field in the error.
fn value_of<T: Copy>(what: &str, word: &str, values: &[(&str, T)]) -> PyResult<T> {
    let found = values.iter().find(|(name, _)| *name == word);
    let found = found.map(|(_, value)| *value);
    found.ok_or_else(|| PyValueError::new_err(format!("unknown {what} {word:?}")))
}

/// One of the words of `mqttcore.plugin.answers.AccessWord`.
struct AccessWord(Access);

impl<'a, 'py> FromPyObject<'a, 'py> for AccessWord {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let values = [
            ("read", Access::Read),
            ("write", Access::Write),
            ("readwrite", Access::ReadWrite),
            ("deny", Access::Deny),
        ];
        value_of("access", object.extract()?, &values).map(Self)
    }
}

/// One of the words of `mqttcore.sessions.policy.Durability`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DurabilityWord(pub(crate) Durability);

impl<'a, 'py> FromPyObject<'a, 'py> for DurabilityWord {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let values = [
            ("memory", Durability::Memory),
            ("os", Durability::Os),
            ("fsync", Durability::Fsync),
        ];
        value_of("durability", object.extract()?, &values).map(Self)
    }
}

/// One of the words of `mqttcore.sessions.policy.FullQueuePolicy`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FullQueuePolicyWord(pub(crate) FullQueuePolicy);

impl<'a, 'py> FromPyObject<'a, 'py> for FullQueuePolicyWord {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let values = [
            ("drop", FullQueuePolicy::Drop),
            ("refuse", FullQueuePolicy::Refuse),
        ];
        value_of("queue_policy", object.extract()?, &values).map(Self)
    }
}

/// A session policy and its limits; each listener has a default for grants without one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionTerms {
    policy: SessionPolicy,
    subscriptions: Option<usize>,
    queue_messages: Option<usize>,
    queue_bytes: Option<usize>,
}

impl<'a, 'py> FromPyObject<'a, 'py> for SessionTerms {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let fields: SessionPolicyFields = object.extract()?;
        let takeovers = [
            ("same_user", Takeover::SameUser),
            ("anyone", Takeover::Anyone),
            ("never", Takeover::Never),
        ];
        let takeover = value_of("takeover", &fields.takeover, &takeovers)?;
        let expiry_max = fields.expiry_max_s.map(Duration::try_from_secs_f64);
        Ok(Self {
            policy: SessionPolicy {
                resume: fields.resume,
                expiry_max: expiry_max.transpose()?,
                takeover,
            },
            subscriptions: fields.limits.subscriptions,
            queue_messages: fields.limits.queue_messages,
            queue_bytes: fields.limits.queue_bytes,
        })
    }
}

impl SessionTerms {
    /// Copies the policy and its limits to a grant.
    pub(crate) fn apply(self, grant: &mut Grant) {
        grant.session = self.policy;
        grant.limits.subscriptions = self.subscriptions;
        grant.limits.queue_messages = self.queue_messages;
        grant.limits.queue_bytes = self.queue_bytes;
    }
}

/// Converts `mqttcore.plugin.Grant`; `default` is the session policy of a grant without one.
pub(crate) fn grant(object: &Bound<'_, PyAny>, default: Option<&SessionTerms>) -> PyResult<Grant> {
    let fields: GrantFields<'_> = object.extract()?;
    let mut places = RulePlaces::default();
    let access_rule = |(access, filter): (AccessWord, String)| AccessRule {
        access: access.0,
        filter,
    };
    let access_list = fields.access_list;
    let access_list = access_list.map(|rules| split(rules, &mut places.access_list));
    let mut grant = Grant {
        publish: texts(fields.publish, &mut places.publish),
        subscribe: texts(fields.subscribe, &mut places.subscribe),
        deny: texts(fields.deny, &mut places.deny),
        access_list: access_list.map(|rules| rules.into_iter().map(access_rule).collect()),
        ordered: fields.ordered.map(|rules| rules.rules(&mut places)),
        limits: GrantLimits {
            max_qos: fields.limits.max_qos.map(qos_of).transpose()?,
            messages_per_second: fields.limits.messages_per_second,
            ..GrantLimits::default()
        },
        durability: fields.durability.map(|level| level.0),
        queue_policy: fields.queue_policy.map(|policy| policy.0),
        expires_at: fields.expires_at.as_ref().map(moment).transpose()?,
        operate: fields.operate,
        places: Some(places)
            .filter(|places| !places.is_empty())
            .map(Box::new),
        ..Grant::default()
    };
    if let Some(terms) = fields.session.as_ref().or(default) {
        terms.apply(&mut grant);
    }
    Ok(grant)
}

/// A `datetime` with a time zone.
fn moment(object: &Bound<'_, PyAny>) -> PyResult<SystemTime> {
    let seconds: f64 = object.call_method0("timestamp")?.extract()?;
    let since = Duration::try_from_secs_f64(seconds.max(0.0))?;
    let moment = SystemTime::UNIX_EPOCH.checked_add(since);
    moment.ok_or_else(|| PyValueError::new_err("expires_at is out of range"))
}

/// Whether the rules of a `Grant` let its client publish to a topic, subscribe to a filter, end a subscription, or
/// receive a message on a topic; a request that they do not name is denied.
#[pyfunction]
#[pyo3(signature = (grant, /, *, action, topic))]
pub(crate) fn grant_allows(grant: &Bound<'_, PyAny>, action: &str, topic: &str) -> PyResult<bool> {
    let rules = self::grant(grant, None)?.compile();
    let rules = rules.map_err(|error| PyValueError::new_err(error.to_string()))?;
    match action {
        "publish" => Ok(rules.publish(parse_name(topic)?) == RuleAnswer::Allowed),
        "subscribe" => Ok(rules.subscribe(&parse_filter(topic)?) == RuleAnswer::Allowed),
        "unsubscribe" => Ok(rules.unsubscribe(&parse_filter(topic)?)),
        "receive" => Ok(rules.receives(parse_name(topic)?)),
        _ => Err(PyValueError::new_err(format!("unknown action {action:?}"))),
    }
}

/// Converts `mqttcore.config.Access` to a grant.
pub(crate) fn access(object: &Bound<'_, PyAny>, terms: SessionTerms) -> PyResult<Grant> {
    let mut places = RulePlaces::default();
    let rules = |name| object.getattr(name)?.extract::<Vec<PlacedText>>();
    let mut grant = Grant {
        publish: texts(rules("publish")?, &mut places.publish),
        subscribe: texts(rules("subscribe")?, &mut places.subscribe),
        deny: texts(rules("deny")?, &mut places.deny),
        ..Grant::default()
    };
    grant.places = Some(places)
        .filter(|places| !places.is_empty())
        .map(Box::new);
    terms.apply(&mut grant);
    Ok(grant)
}
