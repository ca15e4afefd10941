//! Deliver hooks: one question has up to 64 messages of a subscriber, retained or queued while it was away.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use mqttcore_broker::{Broker, Config, PublishBatch, PublishDecision, Reply};
use mqttcore_codec::{QoS, ReasonCode};
use mqttcore_session::{Message, MessageChanges, QueuePolicy, ServerLimits};

use crate::common::{
    Client, DEADLINE, HOUR_S, Home, Plugin, back, config, config_with_limits, eventually, queued,
    start_with, v3, v5,
};

const MANY: usize = 500;
/// Questions about 500 messages: 64 in one at most, and a step of the walk takes the place of a message or two.
const FEW: usize = MANY / 60 + 1;

type Questions = Arc<Mutex<Vec<Vec<String>>>>;
type Batches = Receiver<(PublishBatch, Reply<Vec<PublishDecision>>)>;

/// A plugin that decides about topics of `filter`, and the topics of each question.
fn deciding(
    filter: &str,
    decide: impl Fn(&Message) -> PublishDecision + Send + Sync + 'static,
) -> (Plugin, Questions) {
    let questions = Questions::default();
    let asked = Arc::clone(&questions);
    let plugin = Plugin::default().deliver(&[filter], move |batch, reply| {
        let topics = batch.messages.iter().map(|message| message.topic().into());
        asked.lock().expect("no panic").push(topics.collect());
        reply.send(batch.messages.iter().map(&decide).collect());
    });
    (plugin, questions)
}

/// A plugin whose questions about `hook/#` land in the receiver, and nobody answers but the test.
fn asking() -> (Plugin, Batches) {
    let (sender, batches) = channel();
    let sender = Mutex::new(sender);
    let plugin = Plugin::default().deliver(&["hook/#"], move |batch, reply| {
        let _ = sender.lock().expect("no panic").send((batch, reply));
    });
    (plugin, batches)
}

fn next(batches: &Batches) -> (PublishBatch, Reply<Vec<PublishDecision>>) {
    batches.recv_timeout(DEADLINE).expect("asked")
}

fn as_they_are(batch: &PublishBatch) -> Vec<PublishDecision> {
    vec![PublishDecision::Publish; batch.messages.len()]
}

fn stamped(message: &Message) -> PublishDecision {
    let changes = MessageChanges {
        payload: Some([message.payload(), b"!"].concat()),
        ..MessageChanges::default()
    };
    let limits = ServerLimits::default();
    let stamped = message.changed(&changes, Instant::now(), &limits);
    PublishDecision::Replace(stamped.expect("a message"), None)
}

fn one_shard(config: Config) -> Config {
    Config {
        shards: 1,
        ..config
    }
}

/// Retains a message on each topic.
fn retain(broker: &Broker, topics: impl Iterator<Item = String>, payload: &str) {
    let mut publisher = v3("publisher").connect(broker);
    for topic in topics {
        publisher.publish_retained(&topic, payload, QoS::ExactlyOnce);
        publisher.see_through(QoS::ExactlyOnce);
    }
    publisher.disconnect();
}

fn hooked() -> impl Iterator<Item = String> {
    (0..MANY).map(|number| format!("hook/{number}"))
}

/// Topic and payload of the next messages, which are acknowledged.
fn take(client: &mut Client, count: usize) -> Vec<(String, String)> {
    let next = |_| {
        let message = client.take_message();
        (message.topic.clone(), message.text().to_owned())
    };
    (0..count).map(next).collect()
}

/// The retained messages that a new subscriber gets, in their order.
fn replayed(broker: &Broker, filter: &str, qos: QoS) -> Vec<(String, String)> {
    let mut client = v5("reader").connect(broker);
    client.subscribe(filter, qos);
    take(&mut client, MANY)
}

/// A broker with a retained message on each topic, and the order in which they are replayed without plugins.
fn keeping(topics: impl Iterator<Item = String>, filter: &str) -> (Broker, Vec<String>) {
    let broker = start_with(one_shard(config()), Plugin::default());
    retain(&broker, topics, "x");
    let found = replayed(&broker, filter, QoS::AtLeastOnce).into_iter();
    (broker, found.map(|(topic, _)| topic).collect())
}

fn use_plugin(broker: &Broker, plugin: Plugin) {
    let loaded = broker.reload(&one_shard(config()), Arc::new(plugin));
    loaded.expect("reloaded");
}

#[test]
fn retained_messages_are_asked_about_in_batches_and_keep_their_order() {
    let (broker, order) = keeping(hooked(), "hook/+");
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let (plugin, questions) = deciding("hook/#", stamped);
        use_plugin(&broker, plugin);

        let found = replayed(&broker, "hook/+", qos);

        assert!(found.iter().map(|(topic, _)| topic).eq(&order));
        assert!(found.iter().all(|(_, payload)| payload == "x!"));
        let questions = questions.lock().expect("no panic");
        assert_eq!(questions.concat(), order);
        assert!(questions.len() <= FEW, "{}", questions.len());
    }
}

#[test]
fn retained_messages_that_no_hook_wants_keep_their_places_between_the_others() {
    let topics = (0..MANY).map(|number| format!("{number}/{}", number % 2));
    let (broker, order) = keeping(topics, "#");
    let (plugin, questions) = deciding("+/0", stamped);
    use_plugin(&broker, plugin);

    let found = replayed(&broker, "#", QoS::AtLeastOnce);

    assert!(found.iter().map(|(topic, _)| topic).eq(&order));
    for (topic, payload) in &found {
        assert_eq!(payload == "x!", topic.ends_with("/0"), "{topic}");
    }
    let questions = questions.lock().expect("no panic");
    assert_eq!(questions.concat().len(), MANY / 2);
    // The walk looks at a node more for each message.
    assert!(questions.len() <= FEW + 2, "{}", questions.len());
}

#[test]
fn a_retained_message_is_dropped_alone_and_a_batch_without_an_answer_as_a_whole() {
    let (plugin, batches) = asking();
    let broker = start_with(one_shard(config()), plugin);
    retain(&broker, hooked(), "x");
    let mut client = v5("reader").connect(&broker);
    client.subscribe("hook/+", QoS::AtLeastOnce);

    let (silent, reply) = next(&batches);
    drop(reply);
    let (second, reply) = next(&batches);
    let mut decisions = as_they_are(&second);
    decisions[1] = PublishDecision::Drop {
        reason: ReasonCode::SUCCESS,
    };
    reply.send(decisions);

    let dropped = second.messages[1].topic();
    let kept = second.messages.iter().map(Message::topic);
    let kept: Vec<&str> = kept.filter(|topic| *topic != dropped).collect();
    let found = take(&mut client, kept.len());
    assert!(found.iter().map(|(topic, _)| topic).eq(kept));
    let count = silent.messages.len() as u64 + 1;
    eventually("they are counted", || broker.stats().dropped_hook == count);
    let mut left = MANY - silent.messages.len() - second.messages.len();
    while left > 0 {
        let (batch, reply) = next(&batches);
        reply.send(as_they_are(&batch));
        left -= take(&mut client, batch.messages.len()).len();
    }
    client.ping();
}

/// A batch takes half of the queue at most, and drops nothing.
#[test]
fn a_small_queue_has_room_for_live_messages_beside_a_batch() {
    let limits: [fn(&mut ServerLimits); 4] = [
        |limits| limits.queue_messages = 10,
        |limits| limits.queue_messages = 1,
        |limits| limits.queue_bytes = 8_000,
        |limits| (limits.queue_messages, limits.queue_policy) = (10, QueuePolicy::DropOldest),
    ];
    for limit in limits {
        let (plugin, questions) = deciding("hook/#", stamped);
        let broker = start_with(one_shard(config_with_limits(limit)), plugin);
        retain(&broker, hooked(), &"x".repeat(1_000));

        let found = replayed(&broker, "hook/+", QoS::AtLeastOnce);

        assert!(found.iter().all(|(_, payload)| payload.ends_with('!')));
        let questions = questions.lock().expect("no panic");
        assert!(questions.iter().all(|question| question.len() <= 5));
        assert_eq!(broker.stats().dropped_queue_full, 0);
    }
}

/// It was retained before, so it comes before, whatever its QoS is.
#[test]
fn a_live_message_comes_behind_the_retained_one_that_waits_for_its_decision() {
    let (plugin, batches) = asking();
    let broker = start_with(one_shard(config()), plugin);
    retain(
        &broker,
        ["hook/a".to_owned(), "hook/b".to_owned()].into_iter(),
        "old",
    );
    let mut client = v5("reader").connect(&broker);
    client.subscribe("hook/+", QoS::AtLeastOnce);
    let (batch, reply) = next(&batches);
    assert_eq!(batch.messages.len(), 2);

    let mut publisher = v5("publisher").connect(&broker);
    publisher.publish("hook/b", "new", QoS::AtMostOnce);
    publisher.ping();
    reply.send(as_they_are(&batch));
    let (batch, reply) = next(&batches);
    reply.send(as_they_are(&batch));

    let found = take(&mut client, 3).into_iter();
    let payloads: Vec<String> = found.map(|(_, payload)| payload).collect();
    assert_eq!(payloads, ["old", "old", "new"]);
}

/// From memory, and from the store after a restart.
#[test]
fn messages_that_were_queued_for_an_offline_client_are_asked_about_in_batches() {
    for is_restarted in [false, true] {
        let (plugin, questions) = deciding("hook/#", stamped);
        let home = Home::new();
        // Otherwise messages that wait for acknowledgements have places in the questions.
        let quota = |limits: &mut ServerLimits| limits.inflight_max = 1_000;
        let kept = || Config {
            data: Some(home.data(0)),
            ..one_shard(config_with_limits(quota))
        };
        let mut broker = start_with(kept(), plugin);
        let mut reader = v5("reader").keeping_session_s(HOUR_S).connect(&broker);
        reader.subscribe("hook/+", QoS::AtLeastOnce);
        reader.vanish();
        eventually("it is away", || broker.stats().clients_connected == 0);
        let mut publisher = v5("publisher").connect(&broker);
        publisher.publish_numbers("hook/a", QoS::AtLeastOnce, MANY);
        eventually("they are queued", || queued(&broker, "reader") == MANY);
        let questions = if is_restarted {
            let (plugin, later) = deciding("hook/#", stamped);
            drop(broker);
            broker = start_with(kept(), plugin);
            later
        } else {
            questions
        };

        let mut reader = back(&broker, "reader");

        for number in 0..MANY {
            assert_eq!(reader.take_message().text(), format!("{number}!"));
        }
        let questions = questions.lock().expect("no panic");
        assert_eq!(questions.concat().len(), MANY);
        assert!(questions.len() <= FEW, "{}", questions.len());
    }
}
