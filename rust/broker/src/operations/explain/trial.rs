//! Explains what `authorize` hooks decide: names them, and asks those that may be tried (ADR 0102).

use std::sync::Arc;

use mqttcore_codec::QoS;
use mqttcore_topics::{ShareName, SubscriptionFilter, TopicName};
use tokio::sync::Semaphore;

use super::access::AccessQuestion;
use super::step::ExplainedStep;
use super::verdict::Verdict;
use crate::clients::client::Client;
use crate::config::hooks::{
    Action, AuthorizeDecision, AuthorizeRequest, DecidingHook, Hooks, Reply, Trial, refusing,
};
use crate::shard::Shard;

/// A request that plugins decide about, with their hooks.
pub(super) struct Trying {
    hooks: Arc<dyn Hooks>,
    deciding: Vec<DecidingHook>,
    request: AuthorizeRequest,
    turn: Arc<Semaphore>,
}

/// A publish of `client`, at QoS 0 and without RETAIN.
pub(super) fn of_publish(client: &Client, topic: TopicName<'_>) -> AuthorizeRequest {
    AuthorizeRequest {
        login: client.login(),
        action: Action::Publish,
        topic: topic.into(),
        qos: QoS::AtMostOnce,
        retain: false,
        share: None,
    }
}

/// A subscription of `client`, at QoS 0.
pub(super) fn of_subscribe(client: &Client, subscription: &SubscriptionFilter) -> AuthorizeRequest {
    AuthorizeRequest {
        login: client.login(),
        action: Action::Subscribe,
        topic: subscription.filter().clone(),
        qos: QoS::AtMostOnce,
        retain: false,
        share: subscription.share().map(ShareName::as_str).map(Arc::from),
    }
}

/// Names the hooks in the last step, if they decide.
pub(super) fn name_hooks(
    steps: &mut [ExplainedStep],
    shard: &Shard,
    request: impl FnOnce() -> AuthorizeRequest,
) {
    if let Some(last) = steps.last_mut()
        && last.verdict == Verdict::DependsOnPlugin
    {
        let deciding = shard.hooks().deciding_hooks(&request());
        last.by = titles(&deciding);
        last.place = deciding.into_iter().next().and_then(|hook| hook.place);
    }
}

impl Trying {
    /// `None`: no hook is asked about the question, or the client has not connected since the broker started.
    pub(super) fn new(shard: &Shard, client: &Client, question: &AccessQuestion) -> Option<Self> {
        let request = match question {
            AccessQuestion::Publish(topic) => {
                let topic = TopicName::parse(topic, &shard.config().limits.topic).ok()?;
                of_publish(client, topic)
            }
            AccessQuestion::Subscribe(subscription) => of_subscribe(client, subscription),
            AccessQuestion::Receive(_) => return None,
        };
        let hooks = shard.hooks();
        let deciding = hooks.deciding_hooks(&request);
        let is_known = client.was_here() && !deciding.is_empty();
        is_known.then(|| Self {
            hooks,
            deciding,
            request,
            turn: Arc::clone(&shard.engine.trials),
        })
    }

    /// Asks the hooks, and returns a step for each one up to the first that decides or must not be tried.
    pub(super) async fn steps(self) -> Vec<ExplainedStep> {
        let denied = match self.request.action {
            Action::Publish => Verdict::DeniedPublish,
            Action::Subscribe => Verdict::DeniedSubscribe,
        };
        let deciding = self.deciding.iter();
        let tried = deciding.take_while(|hook| hook.may_be_tried).count();
        let (tried, untried) = self.deciding.split_at(tried);
        let Some(trial) = self.ask(tried).await else {
            return vec![failed(tried, denied)];
        };
        let mut steps: Vec<_> = tried.iter().take(trial.passed).map(passed).collect();
        steps.push(match trial.decision {
            Some(decision) => {
                let hook = tried.get(trial.passed).map(std::slice::from_ref);
                decided(of_hooks(hook.unwrap_or_default()), decision, denied)
            }
            None if untried.is_empty() => {
                let step = ExplainedStep::new("plugins", denied).by("deny by default");
                step.detail("no plugin allows it")
            }
            None => {
                let detail = "asked about each request, and not tried: a call may have effects";
                of_hooks(untried).detail(detail)
            }
        });
        steps
    }

    /// Asks the hooks of `tried` for their answers; `None`: they failed.
    async fn ask(&self, tried: &[DecidingHook]) -> Option<Trial> {
        if tried.is_empty() {
            return Some(Trial {
                passed: 0,
                decision: None,
            });
        }
        // The semaphore is never closed.
        let _turn = self.turn.acquire().await;
        let (reply, answer) = Reply::new();
        self.hooks.try_authorize(self.request.clone(), reply);
        answer.await.ok()
    }
}

/// The step of these hooks, which depends on them.
fn of_hooks(hooks: &[DecidingHook]) -> ExplainedStep {
    ExplainedStep {
        by: titles(hooks),
        place: hooks.first().and_then(|hook| hook.place.clone()),
        ..ExplainedStep::new("plugins", Verdict::DependsOnPlugin)
    }
}

fn titles(hooks: &[DecidingHook]) -> Option<String> {
    let titles: Vec<&str> = hooks.iter().map(|hook| &*hook.title).collect();
    (!titles.is_empty()).then(|| titles.join(", "))
}

fn passed(hook: &DecidingHook) -> ExplainedStep {
    let step = of_hooks(std::slice::from_ref(hook)).detail("no answer: the next hook is asked");
    ExplainedStep {
        verdict: Verdict::Passed,
        ..step
    }
}

/// A request would be denied, too.
fn failed(tried: &[DecidingHook], denied: Verdict) -> ExplainedStep {
    let detail = "the hook failed, took too long or is not called now: requests are denied";
    ExplainedStep {
        verdict: denied,
        ..of_hooks(tried).detail(detail)
    }
}

fn decided(step: ExplainedStep, decision: AuthorizeDecision, denied: Verdict) -> ExplainedStep {
    let (verdict, detail) = match decision {
        AuthorizeDecision::Allow => (Verdict::Passed, "allows it".into()),
        AuthorizeDecision::AllowAll { covers, .. } => (Verdict::Passed, format!("allows {covers}")),
        AuthorizeDecision::Deny { reason, text } => {
            let text = text.map_or_else(String::new, |text| format!(": {text}"));
            (denied, format!("{}{text}", refusing(reason).name()))
        }
        AuthorizeDecision::Disconnect { reason, text } => {
            let text = text.map_or_else(String::new, |text| format!(": {text}"));
            let reason = refusing(reason).name();
            (denied, format!("disconnects the client, {reason}{text}"))
        }
    };
    ExplainedStep { verdict, ..step }.detail(detail)
}
