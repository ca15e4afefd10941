//! Questions about the subscriptions of a session before its client resumes it: queued messages are sent after the answers.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use mqttcore_codec::ReasonCode;
use mqttcore_session::Subscription;
use mqttcore_topics::{SubscriptionFilter, TopicFilter};

use crate::clients::client::Client;
use crate::clients::flags::Flag;
use crate::clients::link::Link;
use crate::config::hooks::{Action, AuthorizeDecision, Login, refusing};
use crate::config::permissions::CompiledGrant;
use crate::connection::authorize::{Denial, UNANSWERED, ask_plugins};
use crate::connection::renewal::{about, allowed_by_plugins, end_subscription, until_answered};
use crate::shard::Shard;

/// Answers of the plugins about the subscriptions of a session.
#[derive(Default)]
pub(crate) struct ResumeAnswers {
    asked: HashSet<Box<str>>,
    denied: Vec<(SubscriptionFilter, Denial)>,
    allowed: Vec<(TopicFilter, Instant)>,
}

/// Reason code and reason string for a client that may not connect.
pub(crate) type ResumeRefusal = (ReasonCode, String);

impl ResumeAnswers {
    /// The subscriptions of `client` that plugins have allowed before its rights were invalidated or the broker was
    /// restarted, and that they have not been asked about since.
    pub(crate) fn left(
        &self,
        shard: &Shard,
        client: &Client,
        access: &CompiledGrant,
    ) -> Vec<Subscription> {
        if !client.flags.has(Flag::Unchecked) {
            return Vec::new();
        }
        let mut left = allowed_by_plugins(shard, client, access);
        left.retain(|subscription| !self.asked.contains(subscription.filter.as_str()));
        left
    }

    /// Asks the plugins whether the client that logged in as `login` keeps `subscription`.
    ///
    /// # Errors
    ///
    /// No plugin answered, or one refuses the connection: the session stays as it is.
    pub(crate) async fn ask(
        &mut self,
        shard: &Shard,
        login: &Arc<Login>,
        subscription: Subscription,
    ) -> Result<(), ResumeRefusal> {
        self.asked.insert(subscription.filter.as_str().into());
        let (filter, now) = (subscription.filter.filter(), Instant::now());
        let mut allowed = self.allowed.iter();
        if allowed.any(|(covers, until)| now < *until && covers.covers(filter)) {
            return Ok(());
        }
        let ask = async || ask_plugins(shard, Arc::clone(login), about(&subscription)).await;
        match until_answered(ask, Option::is_none).await {
            Some(AuthorizeDecision::Allow) => {}
            Some(AuthorizeDecision::AllowAll { covers, until }) => {
                self.allowed.push((covers, until));
            }
            Some(AuthorizeDecision::Deny { reason, .. }) => {
                let denial = Denial::new(refusing(reason), "");
                self.denied.push((subscription.filter, denial));
            }
            Some(AuthorizeDecision::Disconnect { reason, text }) => {
                return Err((refusing(reason), text.unwrap_or_default()));
            }
            None => return Err((ReasonCode::SERVER_UNAVAILABLE, UNANSWERED.to_owned())),
        }
        Ok(())
    }

    /// Ends the subscriptions that were denied, and drops what they have queued. `client` has resumed its session.
    pub(crate) fn apply(self, shard: &Rc<Shard>, client: &Rc<Client>, link: &Link) {
        for (filter, denial) in &self.denied {
            end_subscription(shard, client, filter, denial);
        }
        for (covers, until) in self.allowed {
            link.cache_allow(Action::Subscribe, covers, until);
        }
        let is_due = client.flags.has(Flag::AwaitsRenewal);
        client.flags.set(Flag::Unchecked, is_due);
    }
}
