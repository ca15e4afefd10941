//! Shared groups over several shards: what one member cannot take goes to another, as long as there is one that can.
//!
//! Where a session lives is a keyed hash that no test can foresee, so there are always several members. Publishers send
//! many messages in one write: most of them are in the mailboxes of other shards when the first member there is full.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use mqttcore_broker::{Broker, Config, Grant};
use mqttcore_codec::QoS;
use mqttcore_topics::Strategy;

use crate::common::{
    Client, Dice, HOUR_S, Hello, Home, Plugin, Received, allow, config_with_limits, deep_queues,
    eventually, start, start_with, v5,
};

const WORK: &str = "$share/team/work/#";

/// Queues of so many messages, and windows as wide as clients ask for.
fn small_queues(queue_messages: usize) -> Config {
    config_with_limits(|limits| {
        limits.queue_messages = queue_messages;
        limits.queue_disk_messages = queue_messages;
        limits.inflight_max = 10_000;
    })
}

fn hello(index: usize, window: u16) -> Hello {
    v5(&format!("member-{index}"))
        .receive_maximum(window)
        .keeping_session_s(HOUR_S)
}

/// Members of one group with these windows.
fn members(broker: &Broker, windows: &[u16]) -> Vec<Client> {
    let join = |(index, &window): (usize, &u16)| {
        let mut client = hello(index, window).connect(broker);
        client.subscribe(WORK, QoS::ExactlyOnce);
        client
    };
    windows.iter().enumerate().map(join).collect()
}

/// How many messages each member has or waits for.
fn held(broker: &Broker, members: usize) -> Vec<usize> {
    let clients = broker.clients();
    let of = |index| {
        let id = format!("member-{index}");
        let client = clients.iter().find(|client| *client.client_id == *id);
        client.map_or(0, |client| client.queued + client.in_flight)
    };
    (0..members).map(of).collect()
}

fn dropped(broker: &Broker) -> usize {
    usize::try_from(broker.stats().dropped_queue_full).expect("small")
}

/// Takes `count` messages to their end, and has the broker know that there is room again.
fn drain(member: &mut Client, count: usize) -> Vec<usize> {
    let (mut taken, mut unreleased) = (Vec::new(), 0);
    while taken.len() < count || unreleased > 0 {
        match member.receive() {
            Received::Publish(message) => {
                member.acknowledge(&message);
                unreleased += usize::from(message.qos == QoS::ExactlyOnce);
                taken.push(message.number());
            }
            Received::PubRel(id, _) => {
                member.pubcomp(id);
                unreleased -= 1;
            }
            other => panic!("no message: {other:?}"),
        }
    }
    // The second answer comes behind the turn that the first one left in.
    (0..2).for_each(|_| member.ping());
    taken
}

#[test]
fn what_a_member_on_another_shard_cannot_take_goes_to_one_that_can() {
    const MESSAGES: usize = 600;
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let broker = start(small_queues(3));
        let windows = [1, 1, 1, 1, 1, 1, 1, 1, 1_000];
        let mut members = members(&broker, &windows);

        let mut publisher = v5("publisher").connect(&broker);
        publisher.publish_numbers("work/item", qos, MESSAGES);

        eventually("all are dealt out", || {
            held(&broker, windows.len()).iter().sum::<usize>() == MESSAGES
        });
        assert!(broker.stats().shared_handed_on > 0);
        assert_eq!(dropped(&broker), 0);
        let shares = held(&broker, windows.len());
        let all = members.iter_mut().zip(shares);
        let taken: Vec<usize> = all
            .flat_map(|(member, share)| drain(member, share))
            .collect();
        assert_eq!(taken.len(), MESSAGES);
        assert_eq!(taken.into_iter().collect::<BTreeSet<_>>().len(), MESSAGES);
    }
}

/// A group whose members may not have `work/secret`, beside clients without a user name that may.
fn denied_members(members: usize) -> (Broker, Vec<Client>) {
    let plugin = Plugin::default().authenticate(|_, reply| {
        reply.send(allow(Grant {
            deny: vec!["work/secret".into()],
            ..Grant::everything()
        }));
    });
    let broker = start_with(deep_queues(), plugin);
    let join = |index| {
        let hello = v5(&format!("denied-{index}")).username("user");
        let mut client = hello.connect(&broker);
        client.subscribe(WORK, QoS::ExactlyOnce);
        client
    };
    let members = (0..members).map(join).collect();
    (broker, members)
}

/// Deny wins at delivery (abuse G07), for one member: the others get the message.
#[test]
fn a_message_that_the_grants_of_some_members_deny_goes_to_one_that_may_have_it() {
    const MESSAGES: usize = 12;
    let (broker, _denied) = denied_members(5);
    let mut free = v5("free").connect(&broker);
    free.subscribe(WORK, QoS::ExactlyOnce);
    let mut publisher = v5("publisher").connect(&broker);

    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        publisher.publish_numbers("work/secret", qos, MESSAGES);

        let taken: BTreeSet<usize> = drain(&mut free, MESSAGES).into_iter().collect();
        assert_eq!(taken.len(), MESSAGES);
    }
    assert_eq!(broker.stats().dropped_denied, 0);

    free.disconnect();
    let mut publisher = v5("another").connect(&broker);
    publisher.publish_acknowledged("work/secret", "");

    eventually("nobody may have it", || broker.stats().dropped_denied == 1);
}

/// A denial says nothing about the next message, so each message has its bound.
#[test]
fn a_message_that_all_grants_deny_tries_32_members() {
    let (broker, _denied) = denied_members(40);
    let mut publisher = v5("publisher").connect(&broker);

    for count in 1..4 {
        publisher.publish_acknowledged("work/secret", "");

        eventually("it is dropped", || broker.stats().dropped_denied == count);
        assert_eq!(broker.stats().shared_handed_on, count * 31);
    }
}

/// The books of a group: who has room for how many, and what has to be dropped.
struct Books {
    windows: Vec<u16>,
    queue: usize,
    /// Publishes so far, and those that nobody had room for.
    published: usize,
    dropped: usize,
    taken: Vec<usize>,
}

impl Books {
    fn new(dice: &mut Dice) -> Self {
        let window = |dice: &mut Dice| u16::try_from(1 + dice.below(20)).expect("small");
        Self {
            windows: (0..2 + dice.below(7)).map(|_| window(dice)).collect(),
            queue: 1 + dice.below(10),
            published: 0,
            dropped: 0,
            taken: Vec::new(),
        }
    }

    /// How many messages all of them can hold.
    fn capacity(&self) -> usize {
        let capacity = |window: &u16| usize::from(*window) + self.queue;
        self.windows.iter().map(capacity).sum()
    }

    /// Publishes so many from some publishers at once, and looks what became of them.
    fn publish(&mut self, broker: &Broker, dice: &mut Dice, count: usize) {
        let before: usize = held(broker, self.windows.len()).iter().sum();
        let qos = [QoS::AtLeastOnce, QoS::ExactlyOnce][dice.below(2)];
        let publishers = 1 + dice.below(3);
        let (first, each) = (self.published, count.div_ceil(publishers));
        thread::scope(|scope| {
            for index in 0..publishers {
                let numbers =
                    first + (index * each).min(count)..first + ((index + 1) * each).min(count);
                scope.spawn(move || {
                    let mut publisher = v5(&format!("publisher-{index}")).connect(broker);
                    publisher.publish_range("work/item", qos, numbers);
                    publisher.disconnect();
                });
            }
        });
        self.published += count;
        let fit = count.min(self.capacity() - before);
        self.dropped += count - fit;
        eventually("everything is held or dropped", || {
            let now: usize = held(broker, self.windows.len()).iter().sum();
            now - before + dropped(broker) >= count + self.dropped - (count - fit)
        });
        let now: usize = held(broker, self.windows.len()).iter().sum();
        assert_eq!((now - before, dropped(broker)), (fit, self.dropped));
    }

    /// Some of the members take what they have.
    fn drain(&mut self, broker: &Broker, members: &mut [Client], takes: impl FnMut() -> bool) {
        let shares = held(broker, members.len());
        let mut takes = takes;
        for (member, share) in members.iter_mut().zip(shares) {
            if takes() {
                self.taken.extend(drain(member, share));
            }
        }
    }
}

/// Whatever the members can hold, whoever takes something in between: nothing is dropped while one of them has room,
/// and each message comes once.
#[test]
fn nothing_is_dropped_while_any_member_has_room() {
    for seed in 1..=12 {
        let mut dice = Dice::new(seed * 7_919);
        let mut books = Books::new(&mut dice);
        let broker = start(small_queues(books.queue));
        let mut members = members(&broker, &books.windows);

        for _ in 0..4 {
            let count = 1 + dice.below(books.capacity() * 3 / 2);
            books.publish(&broker, &mut dice, count);
            books.drain(&broker, &mut members, || dice.below(2) == 0);
        }

        books.drain(&broker, &mut members, || true);
        assert_eq!(books.taken.len(), books.published - books.dropped, "{seed}");
        let distinct: BTreeSet<usize> = books.taken.iter().copied().collect();
        assert_eq!(distinct.len(), books.taken.len(), "{seed}");
    }
}

/// Messages are in the mailboxes of sessions that end meanwhile: each is taken by the member that stays, or told to be lost
/// with a session that had it.
#[test]
fn what_comes_too_late_for_a_session_goes_to_another_member() {
    const MESSAGES: usize = 20_000;
    let broker = start(small_queues(100_000));
    let mut rock = v5("rock").receive_maximum(10_000).connect(&broker);
    rock.subscribe(WORK, QoS::AtLeastOnce);
    let (is_over, count) = (AtomicBool::new(false), AtomicUsize::new(0));

    let taken = thread::scope(|scope| {
        for index in 0..4 {
            let (broker, is_over) = (&broker, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let mut passing = v5(&format!("passing-{index}")).connect(broker);
                    passing.send_subscribe(&[WORK], QoS::AtLeastOnce);
                    passing.read_a_little();
                    passing.vanish();
                }
            });
        }
        let count = &count;
        let taker = scope.spawn(move || {
            let mut taken = BTreeSet::new();
            loop {
                let message = rock.take_message();
                if message.topic == "work/end" {
                    return taken;
                }
                let number = message.number();
                assert!(taken.insert(number), "{number} came twice");
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut publisher = v5("publisher").connect(&broker);
        publisher.publish_numbers("work/item", QoS::AtLeastOnce, MESSAGES);
        is_over.store(true, Ordering::Relaxed);
        eventually("the books add up", || {
            let lost = usize::try_from(broker.stats().dropped_session_ended).expect("small");
            broker.stats().sessions == 2 && count.load(Ordering::Relaxed) + lost == MESSAGES
        });
        publisher.publish_acknowledged("work/end", "");
        taker.join().expect("the rock")
    });

    assert!(broker.stats().shared_handed_on > 0);
    assert!(taken.len() > MESSAGES / 10, "{} were taken", taken.len());
    assert_eq!(dropped(&broker), 0);
}

/// The store's record of who is to get it moves with the message: after a crash nobody else gets it, and somebody does.
#[test]
fn what_moved_to_another_member_is_there_once_after_a_crash() {
    const MESSAGES: usize = 400;
    let windows = [1, 1, 1, 1, 1, 1, 1, 1, 1_000];
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let home = Home::new();
        let first = home.start_with(0, small_queues(3));
        // What they hear before the crash, they forget.
        let before = members(&first, &windows);
        let mut publisher = v5("publisher").connect(&first);
        publisher.publish_numbers("work/item", qos, MESSAGES);
        eventually("all are dealt out", || {
            held(&first, windows.len()).iter().sum::<usize>() == MESSAGES
        });
        assert!(first.stats().shared_handed_on > 0);
        let shares = held(&first, windows.len());

        let second = home.crash_with(first, 0, small_queues(3));
        drop(before);

        let mut taken = Vec::new();
        for (index, (&window, share)) in windows.iter().zip(shares).enumerate() {
            let (mut member, present) = hello(index, window).connect_or_resume(&second);
            assert!(present);
            taken.extend(drain(&mut member, share));
        }
        assert_eq!(taken.len(), MESSAGES);
        assert_eq!(taken.into_iter().collect::<BTreeSet<_>>().len(), MESSAGES);
    }
}

/// From a session that is kept to one that is not, and back: the store has what it has to, and no more.
#[test]
fn only_what_a_kept_member_has_comes_back() {
    const MESSAGES: usize = 300;
    let home = Home::new();
    let first = home.start_with(0, small_queues(2));
    let join = |id: String, window, kept: bool| {
        let hello = v5(&id).receive_maximum(window);
        let hello = if kept {
            hello.keeping_session_s(HOUR_S)
        } else {
            hello
        };
        let mut client = hello.connect(&first);
        client.subscribe(WORK, QoS::AtLeastOnce);
        client
    };
    let small: Vec<Client> = (0..8)
        .map(|index| join(format!("small-{index}"), 1, index % 2 == 0))
        .collect();
    let large: Vec<Client> = (0..2)
        .map(|index| join(format!("member-{index}"), 400, index == 0))
        .collect();
    let mut publisher = v5("publisher").connect(&first);
    publisher.publish_numbers("work/item", QoS::AtLeastOnce, MESSAGES);
    let waiting = |broker: &Broker| -> usize {
        let clients = broker.clients();
        clients
            .iter()
            .map(|client| client.queued + client.in_flight)
            .sum()
    };
    eventually("all are dealt out", || waiting(&first) == MESSAGES);
    let kept: usize = first
        .clients()
        .iter()
        .filter(|client| client.client_id.ends_with(['0', '2', '4', '6']))
        .map(|client| client.queued + client.in_flight)
        .sum();
    assert!(first.stats().shared_handed_on > 0);

    let second = home.crash_with(first, 0, small_queues(2));
    drop((small, large));

    eventually("all are back", || second.stats().sessions_to_come == 0);
    assert_eq!(waiting(&second), kept);
}

/// A member that is away keeps nothing that it would get at QoS 0.
#[test]
fn a_message_goes_to_the_absent_member_that_keeps_it() {
    let upgrading = |upgrades| config_with_limits(|limits| limits.upgrade_outgoing_qos = upgrades);
    for (upgrades, published) in [(false, QoS::AtLeastOnce), (true, QoS::AtMostOnce)] {
        let broker = start(upgrading(upgrades));
        for (index, granted) in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::AtMostOnce]
            .into_iter()
            .enumerate()
        {
            let mut client = hello(index, 1).connect(&broker);
            client.subscribe(WORK, granted);
            client.disconnect();
        }

        let mut publisher = v5("publisher").connect(&broker);
        publisher.publish_numbers("work/item", published, 12);

        eventually("one has all", || held(&broker, 3) == [0, 12, 0]);
    }
}

/// The text of the one message that each publisher sends, by the member that has it.
fn dealt(broker: &Broker, order: &[usize]) -> Vec<BTreeSet<String>> {
    let mut members: Vec<(usize, Client)> = order
        .iter()
        .map(|&index| {
            let mut client = hello(index, 100).connect(broker);
            client.subscribe("$share/team/work", QoS::AtLeastOnce);
            client.subscribe("end", QoS::AtLeastOnce);
            (index, client)
        })
        .collect();
    for index in 0..24 {
        let name = format!("publisher-{index}");
        v5(&name).connect(broker).publish_acknowledged("work", name);
    }
    v5("last")
        .connect(broker)
        .publish_acknowledged("end", "end");
    members.sort_by_key(|(index, _)| *index);
    let heard = |(_, member): &mut (usize, Client)| {
        let next = || Some(member.take_message().text().to_owned()).filter(|text| text != "end");
        let heard = std::iter::from_fn(next).collect();
        // Its acknowledgements are in.
        member.ping();
        heard
    };
    members.iter_mut().map(heard).collect()
}

/// ADR 0027. Members come back in another order, and a stranger with kept sessions of its own is before them.
#[test]
fn a_publisher_has_the_same_member_after_a_restart_on_the_same_folder() {
    let home = Home::new();
    let by_client = || Config {
        shared_strategy: Strategy::ClientHash,
        ..config_with_limits(|_| ())
    };
    let first = home.start_with(0, by_client());
    let before = dealt(&first, &[0, 1, 2, 3]);
    assert!(before.iter().filter(|heard| !heard.is_empty()).count() > 1);

    let second = home.crash_with(first, 0, by_client());
    v5("stranger")
        .keeping_session_s(HOUR_S)
        .connect(&second)
        .disconnect();

    assert_eq!(dealt(&second, &[2, 0, 3, 1]), before);
}
