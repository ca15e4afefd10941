//! Explains permissions: which rule decides whether a client may publish, subscribe or receive.

use mqttcore_topics::{MountPoint, SubscriptionFilter, TopicName};

use super::error::ExplainError;
use super::step::{ExplainedStep, verdict_of};
use super::trial::{self, Trying};
use super::verdict::Verdict;
use crate::clients::client::Client;
use crate::config::grants::Grant;
use crate::config::permissions::{DecidingRule, RuleAnswer};
use crate::config::place::RuleAction;
use crate::connection::publish::may_publish;
use crate::connection::subscribe::may_subscribe;
use crate::service::BrokerHandle;
use crate::shard::Shard;

/// An action of a client.
#[derive(Clone, Debug)]
pub enum AccessQuestion {
    /// Publish to this topic.
    Publish(String),
    /// Subscribe to this filter.
    Subscribe(SubscriptionFilter),
    /// Receive messages on this topic.
    Receive(String),
}

impl BrokerHandle {
    /// Explains whether a client may do something. Topics and filters begin with its mount point. Of the plugins, only
    /// `authorize` hooks are asked that may be tried (ADR 0102).
    ///
    /// # Errors
    ///
    /// [`ExplainError`]
    pub async fn explain_access(
        &self,
        client_id: &str,
        question: AccessQuestion,
    ) -> Result<(Verdict, Vec<ExplainedStep>), ExplainError> {
        let found = self.read_client_on_shard(client_id, move |shard, client| {
            let steps = match &question {
                AccessQuestion::Publish(topic) => {
                    of_topic(shard, topic, |topic| publish_steps(shard, client, topic))
                }
                AccessQuestion::Receive(topic) => {
                    of_topic(shard, topic, |topic| receive_steps(client, topic))
                }
                AccessQuestion::Subscribe(filter) => subscribe_steps(shard, client, filter),
            };
            (steps, Trying::new(shard, client, &question))
        });
        let found = found.await?;
        let (mut steps, trying) = found.ok_or_else(|| ExplainError::NoClient(client_id.into()))?;
        if verdict_of(&steps) == Verdict::DependsOnPlugin
            && let Some(trying) = trying
        {
            steps.pop();
            steps.extend(trying.steps().await);
        }
        Ok((verdict_of(&steps), steps))
    }
}

fn of_topic(
    shard: &Shard,
    topic: &str,
    explain: impl FnOnce(TopicName<'_>) -> Vec<ExplainedStep>,
) -> Vec<ExplainedStep> {
    match TopicName::parse(topic, &shard.config().limits.topic) {
        Ok(topic) => explain(topic),
        Err(error) => {
            let refused = ExplainedStep::new("topic", Verdict::RefusedTopic);
            vec![refused.detail(error.to_string())]
        }
    }
}

/// The steps that decide whether `client` may publish to `topic`.
pub(super) fn publish_steps(
    shard: &Shard,
    client: &Client,
    topic: TopicName<'_>,
) -> Vec<ExplainedStep> {
    let denied = Verdict::DeniedPublish;
    let mut steps = identity_steps(client, |mount_point| {
        mount_point.hidden_bytes(topic.as_str()).is_none()
    });
    let access = client.access();
    let rule = if shard.has_control_hook(topic) {
        access.permissions.control_rule(topic)
    } else {
        access.permissions.publish_rule(topic)
    };
    let whole = || may_publish(shard, client, topic);
    steps.extend(rule_steps(
        &access.grant,
        (RuleAction::Publish, rule),
        denied,
        whole,
    ));
    trial::name_hooks(&mut steps, shard, || trial::of_publish(client, topic));
    steps
}

fn subscribe_steps(
    shard: &Shard,
    client: &Client,
    subscription: &SubscriptionFilter,
) -> Vec<ExplainedStep> {
    let (denied, filter) = (Verdict::DeniedSubscribe, subscription.filter());
    let mut steps = identity_steps(client, |mount_point| !mount_point.holds(filter));
    let access = client.access();
    let rule = access.permissions.subscribe_rule(filter);
    let whole = || may_subscribe(shard, client, filter);
    steps.extend(rule_steps(
        &access.grant,
        (RuleAction::Subscribe, rule),
        denied,
        whole,
    ));
    trial::name_hooks(&mut steps, shard, || {
        trial::of_subscribe(client, subscription)
    });
    steps
}

fn receive_steps(client: &Client, topic: TopicName<'_>) -> Vec<ExplainedStep> {
    let mut steps = identity_steps(client, |mount_point| {
        mount_point.hidden_bytes(topic.as_str()).is_none()
    });
    let access = client.access();
    let rule = access.permissions.receive_rule(topic);
    let step = |verdict| ExplainedStep::new("rules", verdict);
    let step = match rule {
        DecidingRule::Deny(text) => step(Verdict::DeniedReceive).by(format!("deny {text}")),
        DecidingRule::Allow(text) => step(Verdict::Passed).by(format!("allow {text}")),
        DecidingRule::Reserved | DecidingRule::None => {
            step(Verdict::Passed).detail("no deny rule matches the topic")
        }
    };
    steps.push(step.of(&access.grant, RuleAction::Receive, rule));
    steps
}

/// Whether the client's rules are known, and whether its mount point covers the question.
fn identity_steps(
    client: &Client,
    is_outside: impl FnOnce(&MountPoint) -> bool,
) -> Vec<ExplainedStep> {
    let mut steps = Vec::new();
    if !client.was_here() {
        let unknown = ExplainedStep::new("identity", Verdict::UnknownRights);
        let text = "the client has not connected since the broker started; the rules of its kept session follow";
        steps.push(unknown.detail(text));
    } else if !client.is_online() {
        let known = ExplainedStep::new("identity", Verdict::Passed);
        steps.push(known.detail("the client is offline; the rules of its last connection follow"));
    }
    let session = client.session.borrow();
    if let Some(mount_point) = session.mount_point() {
        let verdict = if is_outside(mount_point) {
            Verdict::DeniedMountPoint
        } else {
            Verdict::Passed
        };
        let step = ExplainedStep::new("mount_point", verdict);
        steps.push(step.by(format!("mount point {}", mount_point.as_str())));
    }
    steps
}

/// The step of the rules; and, if no rule decides, that of the plugins, whose part is in `whole_answer`.
fn rule_steps(
    grant: &Grant,
    (action, rule): (RuleAction, DecidingRule<'_>),
    denied: Verdict,
    whole_answer: impl FnOnce() -> RuleAnswer,
) -> Vec<ExplainedStep> {
    let step = |verdict| ExplainedStep::new("rules", verdict).of(grant, action, rule);
    match rule {
        DecidingRule::Reserved => {
            vec![step(denied).by("the namespace is reserved for functions of brokers")]
        }
        DecidingRule::Deny(rule) => vec![step(denied).by(format!("deny {rule}"))],
        DecidingRule::Allow(rule) => vec![step(Verdict::Passed).by(format!("allow {rule}"))],
        DecidingRule::None => {
            let plugins = |verdict| ExplainedStep::new("plugins", verdict);
            let plugins = match whole_answer() {
                RuleAnswer::Allowed => plugins(Verdict::Passed)
                    .by("an earlier answer of a plugin, which is still valid"),
                RuleAnswer::Silent => {
                    plugins(Verdict::DependsOnPlugin).detail("a plugin is asked each time")
                }
                RuleAnswer::Denied => plugins(denied)
                    .by("deny by default")
                    .detail("no rule matches, and no plugin is asked about it"),
            };
            vec![step(Verdict::Passed).detail("no rule matches"), plugins]
        }
    }
}
