//! Explains the delivery of a message to all receivers or to one.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use mqttcore_codec::{PropertiesBuf, QoS};
use mqttcore_session::{Message, ServerLimits};
use mqttcore_topics::TopicName;

use super::error::{EXPLAINED_BYTES_MAX, ExplainError};
use super::publisher::{self, AskedReceivers, ForeseenPublish};
use super::receiver::{self, AskedReceiver, ExplainedReceiver, ForeseenReceiver, ReceiverPosition};
use super::step::{ExplainedStep, verdict_of};
use super::verdict::Verdict;
use crate::operations::asking::{AskError, MissingPart};
use crate::service::{BrokerHandle, BrokerStopped};
use crate::shard::Shard;

/// Receivers that a shard judges for one question.
const JUDGED_A_TURN: usize = 256;

/// A message that is asked about.
#[derive(Clone, Debug, Default)]
pub struct DeliveryQuestion {
    /// The publisher; `None` is the broker itself.
    pub from: Option<String>,
    /// The topic, with the mount point of the publisher in front.
    pub topic: String,
    /// The QoS.
    pub qos: QoS,
    /// The RETAIN flag.
    pub retain: bool,
    /// Bytes of the payload, at most [`EXPLAINED_BYTES_MAX`].
    pub bytes: usize,
    /// The only receiver that is asked about.
    pub to: Option<String>,
    /// Only receivers after this one.
    pub after: Option<ReceiverPosition>,
    /// Maximum number of receivers.
    pub limit: usize,
}

/// The explanation of a delivery.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ExplainedDelivery {
    /// The steps before the receivers.
    pub steps: Vec<ExplainedStep>,
    /// The receivers, by position.
    pub receivers: Vec<ExplainedReceiver>,
    /// Whether more receivers follow.
    pub has_more: bool,
    /// Shards that did not judge their receivers.
    pub missing: Vec<MissingPart>,
}

impl ExplainedDelivery {
    /// The verdict of the steps.
    pub fn verdict(&self) -> Verdict {
        verdict_of(&self.steps)
    }

    fn refused(step: ExplainedStep) -> Self {
        Self {
            steps: vec![step],
            ..Self::default()
        }
    }
}

impl BrokerHandle {
    /// Explains what would happen to a message. Nothing is sent, nothing changes, and no plugin is asked.
    ///
    /// # Errors
    ///
    /// [`ExplainError`]
    pub async fn explain_delivery(
        &self,
        question: DeliveryQuestion,
    ) -> Result<ExplainedDelivery, ExplainError> {
        if question.bytes > EXPLAINED_BYTES_MAX {
            return Err(ExplainError::TooLarge(question.bytes));
        }
        let config = self.config()?;
        let message = match message(&question, &config.limits) {
            Ok(message) => message,
            Err(step) => return Ok(ExplainedDelivery::refused(step)),
        };
        self.explain_message(question, &message).await
    }

    async fn explain_message(
        &self,
        question: DeliveryQuestion,
        message: &Message,
    ) -> Result<ExplainedDelivery, ExplainError> {
        let to = match &question.to {
            Some(to) => Some(self.asked_receiver(to, message).await?),
            None => None,
        };
        let wanted = AskedReceivers {
            after: question.after,
            limit: question.limit,
            one: to.as_ref().map(|to| (to.handle, to.groups())),
        };
        let publish = self.foresee_publish(question.from, message, wanted).await?;
        let has_more = publish.has_more;
        let chosen = publish.chosen.first().copied();
        let is_refused = verdict_of(&publish.steps).is_refusal();
        let is_absent = publish.receivers.is_empty() && !is_refused;
        let (mut receivers, missing) = self.judge_receivers(message, publish.receivers).await?;
        if let (Some(to), Some(id), true) = (&to, &question.to, is_absent) {
            let (verdict, detail) = to.absence();
            let chosen = match chosen.filter(|_| verdict == Verdict::SharedWentTo) {
                Some(chosen) => self.name_of(chosen.word()).await?,
                None => None,
            };
            let detail = match chosen {
                Some(name) => Some(format!("{} chose {name}", detail.unwrap_or_default())),
                None => detail,
            };
            receivers.push(ExplainedReceiver::none(id, verdict, detail));
        }
        Ok(ExplainedDelivery {
            steps: publish.steps,
            receivers,
            has_more,
            missing,
        })
    }

    async fn asked_receiver(
        &self,
        id: &str,
        message: &Message,
    ) -> Result<AskedReceiver, ExplainError> {
        let message = message.clone();
        let asked =
            self.read_client_on_shard(id, move |_, client| AskedReceiver::new(client, &message));
        asked
            .await?
            .ok_or_else(|| ExplainError::NoClient(id.into()))
    }

    /// Walks the steps on the shard of the publisher; those of the broker's own message on any shard that answers.
    async fn foresee_publish(
        &self,
        from: Option<String>,
        message: &Message,
        wanted: AskedReceivers,
    ) -> Result<ForeseenPublish, ExplainError> {
        let engine = self.engine().ok_or(BrokerStopped)?;
        let publisher = from.as_ref().map(|id| engine.shard_of(id));
        drop(engine);
        let shards = publisher.map_or(0..self.shards(), |shard| shard..shard + 1);
        let message = message.clone();
        let ask = move |shard: &Rc<Shard>| -> Result<ForeseenPublish, ExplainError> {
            // The directory may lack sessions that are not loaded yet.
            if shard.engine.loading.remaining() != Some(0) {
                return Err(ExplainError::Ask(AskError::Loading));
            }
            let find = |id: String| {
                let client = shard.find_client(&id);
                client.ok_or(ExplainError::NoClient(id))
            };
            let client = from.clone().map(find).transpose()?;
            Ok(publisher::foresee(
                shard,
                client.as_ref(),
                &message,
                &wanted,
            ))
        };
        let mut late = AskError::Stopped(BrokerStopped);
        for shard in shards {
            match self.read(shard, ask.clone()).await {
                Err(error @ AskError::Late { .. }) => late = error,
                answer => return answer?,
            }
        }
        Err(late.into())
    }

    /// Asks the shards of the receivers, [`JUDGED_A_TURN`] at a time.
    async fn judge_receivers(
        &self,
        message: &Message,
        receivers: Vec<ForeseenReceiver>,
    ) -> Result<(Vec<ExplainedReceiver>, Vec<MissingPart>), BrokerStopped> {
        let unknown = |receiver: &ForeseenReceiver| ExplainedReceiver::unknown(&receiver.target);
        let mut explained: Vec<_> = receivers.iter().map(unknown).collect();
        let mut missing = Vec::new();
        let mut own: Vec<Vec<(usize, ForeseenReceiver)>> = Vec::new();
        own.resize_with(self.shards(), Vec::new);
        for (index, receiver) in receivers.into_iter().enumerate() {
            let shard = receiver.target.handle.shard();
            if let Some(own) = own.get_mut(shard) {
                own.push((index, receiver));
            }
        }
        for (shard, mut rest) in own.into_iter().enumerate() {
            while !rest.is_empty() {
                let part = rest.split_off(rest.len().saturating_sub(JUDGED_A_TURN));
                let message = message.clone();
                let ask = move |shard: &Rc<Shard>| {
                    let judge = |(index, one): (usize, ForeseenReceiver)| {
                        (index, receiver::judge(shard, &message, &one))
                    };
                    part.into_iter().map(judge).collect::<Vec<_>>()
                };
                match self.read(shard, ask).await {
                    Ok(judged) => judged
                        .into_iter()
                        .for_each(|(index, judged)| explained[index].fill(judged)),
                    Err(AskError::Stopped(stopped)) => return Err(stopped),
                    Err(why) => {
                        missing.push(MissingPart { shard, why });
                        break;
                    }
                }
            }
        }
        Ok((explained, missing))
    }

    async fn name_of(&self, handle: u64) -> Result<Option<Arc<str>>, BrokerStopped> {
        let (mut names, _) = self.names(vec![handle]).await?;
        Ok(names.remove(&handle))
    }
}

/// The message of a question, with zeros as its payload.
fn message(question: &DeliveryQuestion, limits: &ServerLimits) -> Result<Message, ExplainedStep> {
    let refused = |step: &'static str, verdict, error: String| {
        Err(ExplainedStep::new(step, verdict).detail(error))
    };
    let topic = match TopicName::parse(&question.topic, &limits.topic) {
        Ok(topic) => topic,
        Err(error) => return refused("topic", Verdict::RefusedTopic, error.to_string()),
    };
    let (payload, properties) = (vec![0; question.bytes], PropertiesBuf::default());
    let (properties, retain) = (properties.as_properties(), question.retain);
    match Message::composed(topic, properties, &payload, question.qos, retain, limits) {
        Ok(message) => Ok(message.published_at(Instant::now())),
        Err(error) => refused("limits", Verdict::RefusedLimit, error.to_string()),
    }
}
