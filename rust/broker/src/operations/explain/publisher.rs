//! Explains the checks of a message before its receivers, on the shard of its publisher.

use std::rc::Rc;

use mqttcore_codec::QoS;
use mqttcore_session::Message;
use mqttcore_topics::SubscriptionFilter;

use super::access::publish_steps;
use super::receiver::{ForeseenReceiver, ReceiverPosition, position};
use super::step::{ExplainedStep, verdict_of};
use super::verdict::Verdict;
use crate::clients::client::Client;
use crate::clients::handle::{Handle, RowStream};
use crate::clients::target::Target;
use crate::config::durability;
use crate::connection::full_queue;
use crate::routing::publication::{Publication, Retention, Unroutable};
use crate::routing::router::ForeseenRoute;
use crate::routing::{external, message_records, retain, router};
use crate::shard::Shard;

/// Which receivers are asked about.
#[derive(Clone)]
pub(super) struct AskedReceivers {
    pub(super) after: Option<ReceiverPosition>,
    pub(super) limit: usize,
    /// Only this one, and its shared subscriptions that match.
    pub(super) one: Option<(Handle, Vec<SubscriptionFilter>)>,
}

impl AskedReceivers {
    /// Whether a target is asked about.
    fn covers(&self, target: &Target) -> bool {
        let (one, after) = (self.one.as_ref(), self.after.as_ref());
        !target.is_stream()
            && one.is_none_or(|(one, _)| target.handle == *one)
            && after.is_none_or(|after| position(target) > *after)
    }

    /// The members that are chosen in the groups of the only receiver that is asked about.
    fn chosen(&self, targets: &[Target]) -> Vec<Handle> {
        let Some((_, groups)) = &self.one else {
            return Vec::new();
        };
        let is_chosen = |target: &&Target| {
            let choice = target.choice.as_ref();
            choice.is_some_and(|choice| groups.contains(choice.group()))
        };
        let chosen = targets.iter().filter(is_chosen);
        chosen.map(|target| target.handle).collect()
    }
}

/// The way of a message up to its receivers.
#[derive(Default)]
pub(super) struct ForeseenPublish {
    pub(super) steps: Vec<ExplainedStep>,
    pub(super) receivers: Vec<ForeseenReceiver>,
    pub(super) has_more: bool,
    /// Members that are chosen in the groups of [`AskedReceivers::one`].
    pub(super) chosen: Vec<Handle>,
}

/// Walks the steps; stops at the first one that refuses the message.
pub(super) fn foresee(
    shard: &Shard,
    client: Option<&Rc<Client>>,
    message: &Message,
    wanted: &AskedReceivers,
) -> ForeseenPublish {
    let mut publish = ForeseenPublish {
        steps: publisher_steps(shard, client, message),
        ..ForeseenPublish::default()
    };
    if verdict_of(&publish.steps).is_refusal() {
        return publish;
    }
    let mut publication = Publication::new(client, message.topic_name(), message, None);
    publish
        .steps
        .extend(admission_refusal(shard, client, &publication));
    if verdict_of(&publish.steps).is_refusal() {
        return publish;
    }
    publication.retaining.outcome = retain::foresee(shard, &publication);
    let retained = retain_step(client, &publication);
    let is_refused = retained.verdict.is_refusal() && is_told_of_retain(client, message);
    publish.steps.push(retained);
    if is_refused {
        return publish;
    }
    let route = router::foresee(shard, &publication);
    publish.steps.push(durability_step(shard, &publication));
    publish.steps.extend(streams_step(&route.targets));
    publish.steps.push(match_step(&route));
    if route.refused.is_none() {
        choose_page(shard, &publication, route, wanted, &mut publish);
    }
    publish
}

/// The rights of the publisher.
fn publisher_steps(
    shard: &Shard,
    client: Option<&Rc<Client>>,
    message: &Message,
) -> Vec<ExplainedStep> {
    let Some(client) = client else {
        return vec![ExplainedStep::new("rules", Verdict::Passed).by("the broker itself")];
    };
    let rules = publish_steps(shard, client, message.topic_name());
    limit_step(client, message)
        .into_iter()
        .chain(rules)
        .collect()
}

/// The limits of the publisher's connection.
fn limit_step(client: &Client, message: &Message) -> Option<ExplainedStep> {
    let session = client.session.borrow();
    let limits = session.limits();
    let hidden = session
        .mount_point()
        .and_then(|mount_point| mount_point.hidden_bytes(message.topic()));
    let version = session.version();
    let packet_bytes = message.packet_bytes(version, hidden.unwrap_or(0));
    let refused = |by: String| Some(ExplainedStep::new("limits", Verdict::RefusedLimit).by(by));
    if message.qos() > limits.maximum_qos {
        refused(format!("Maximum QoS is {}", limits.maximum_qos as u8))
    } else if message.retain() && !limits.retain_available {
        refused("retained messages are not available".into())
    } else if packet_bytes > u64::from(limits.maximum_packet_size) {
        let most = limits.maximum_packet_size;
        refused(format!(
            "the PUBLISH has {packet_bytes} bytes, and the Maximum Packet Size is {most}"
        ))
    } else {
        Some(ExplainedStep::new("limits", Verdict::Passed))
    }
}

/// Why the message is not routed, or not yet.
fn admission_refusal(
    shard: &Shard,
    client: Option<&Rc<Client>>,
    publication: &Publication<'_>,
) -> Option<ExplainedStep> {
    let is_held_back = match client {
        Some(client) => full_queue::must_wait_for(shard, client, publication).is_some(),
        None => false,
    };
    if is_held_back {
        let step = ExplainedStep::new("room", Verdict::WaitingQueueRoom);
        return Some(step.detail(
            "the queue of a subscriber is full; a client of MQTT 3.x waits until it has room",
        ));
    }
    let is_above_qos0 = publication.message.qos() > QoS::AtMostOnce;
    let kafka = external::backpressure_reason(shard, publication).filter(|_| is_above_qos0);
    let kafka = kafka.map(Unroutable::NotLogged);
    let queue = || {
        let is_full = client.is_none() && router::full_queue(shard, publication).is_some();
        is_full.then_some(Unroutable::QueueFull)
    };
    let retained = || router::check_retained(shard, publication).err();
    let refusal = kafka.or_else(queue).or_else(retained)?;
    Some(refusal_step("room", refusal))
}

fn refusal_step(step: &'static str, refusal: Unroutable) -> ExplainedStep {
    let verdict = match refusal {
        Unroutable::NoRoom => Verdict::RefusedDisk,
        Unroutable::NoMemory => Verdict::RefusedMemory,
        Unroutable::QueueFull => Verdict::RefusedQueueFull,
        Unroutable::TooManyFilters => Verdict::RefusedFilters,
        Unroutable::NotLogged(_) => Verdict::RefusedKafka,
    };
    ExplainedStep::new(step, verdict).detail(refusal.text())
}

fn retain_step(client: Option<&Rc<Client>>, publication: &Publication<'_>) -> ExplainedStep {
    let passed = ExplainedStep::new("retain", Verdict::Passed);
    match publication.retaining.outcome {
        Retention::None => passed.detail("the message is not retained"),
        Retention::Kept => passed.detail("the message becomes the retained one of its topic"),
        Retention::Cleared => passed.detail("the retained message of the topic is removed"),
        Retention::Refused => {
            let step = ExplainedStep::new("retain", Verdict::RefusedLimit);
            let step = step.by("no room for retained messages: limits, memory or disk");
            step.detail(if is_told_of_retain(client, publication.message) {
                "the publisher gets 0x97, and nobody gets the message"
            } else {
                "the message is delivered and not retained"
            })
        }
    }
}

/// Whether a publisher gets a failure code if the message cannot be retained.
fn is_told_of_retain(client: Option<&Rc<Client>>, message: &Message) -> bool {
    let has_codes = client.is_some_and(|client| client.login().version.has_properties());
    has_codes && message.qos() > QoS::AtMostOnce
}

fn durability_step(shard: &Shard, publication: &Publication<'_>) -> ExplainedStep {
    let durability = message_records::durability_of(shard, publication);
    ExplainedStep::new("durability", Verdict::Passed).by(durability::name(durability))
}

fn streams_step(targets: &[Target]) -> Option<ExplainedStep> {
    let count = |is_stored: bool| {
        let streams = targets
            .iter()
            .filter_map(|target| target.handle.row_stream());
        streams
            .filter(|stream| matches!(stream, RowStream::Stored(_)) == is_stored)
            .count()
    };
    let (stored, external) = (count(true), count(false));
    let step = ExplainedStep::new("streams", Verdict::Passed);
    let detail =
        format!("stored streams that get it as a row: {stored}; streams of Kafka: {external}");
    (stored + external > 0).then(|| step.detail(detail))
}

fn match_step(route: &ForeseenRoute) -> ExplainedStep {
    if let Some(refusal) = route.refused {
        return refusal_step("match", refusal);
    }
    let receivers = route
        .targets
        .iter()
        .filter(|target| !target.is_stream())
        .count();
    ExplainedStep::new("match", Verdict::Passed).detail(format!("receivers: {receivers}"))
}

/// Puts the receivers of the page into `publish`, by position.
fn choose_page(
    shard: &Shard,
    publication: &Publication<'_>,
    route: ForeseenRoute,
    wanted: &AskedReceivers,
    publish: &mut ForeseenPublish,
) {
    let mut targets = route.targets;
    publish.chosen = wanted.chosen(&targets);
    targets.retain(|target| wanted.covers(target));
    publish.has_more = targets.len() > wanted.limit;
    if publish.has_more {
        // Only the page is sorted: a message may have many receivers.
        targets.select_nth_unstable_by_key(wanted.limit, position);
        targets.truncate(wanted.limit);
    }
    targets.sort_unstable_by_key(position);
    publish.receivers = targets
        .into_iter()
        .map(|mut target| {
            let is_left_out = route.leaves_out_full
                && message_records::lacks_queue_room(shard, publication, &target);
            message_records::foresee_record(shard, publication, &mut target);
            ForeseenReceiver {
                target,
                is_left_out,
            }
        })
        .collect();
}
