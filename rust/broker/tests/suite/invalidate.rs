//! Rights that were invalidated: the plugins are asked again, and what they do not allow any more ends.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mqttcore_broker::{
    Action, AuthorizeDecision, Broker, Config, Data, Durability, Grant, Hooks, Invalidation,
    LoginDecision, Reply,
};
use mqttcore_codec::{Properties, QoS, ReasonCode};

use crate::common::{
    Client, DEADLINE, Hello, Home, Plugin, Received, allow, config, eventually, filter, queued,
    start_with, v5,
};

const HOUR_S: u32 = 3_600;

/// The grant of every user, which a test changes.
type Rights = Arc<Mutex<Option<Grant>>>;

fn user(name: &str) -> Invalidation {
    Invalidation::Username(name.into())
}

/// A broker whose plugin grants `rights` at CONNECT, and after an invalidation, too.
fn granting() -> (Broker, Rights) {
    let rights: Rights = Arc::new(Mutex::new(Some(Grant::everything())));
    let (at_login, later) = (Arc::clone(&rights), Arc::clone(&rights));
    let decide = |rights: &Rights| match rights.lock().expect("no panic").clone() {
        Some(grant) => allow(grant),
        None => LoginDecision::Deny {
            reason: ReasonCode::NOT_AUTHORIZED,
            text: None,
        },
    };
    let plugin = Plugin::default()
        .authenticate(move |_, reply| {
            reply.send(decide(&at_login));
        })
        .grant(move |login, reply| {
            assert!(login.password.is_none());
            reply.send(decide(&later));
        });
    (start_with(config(), plugin), rights)
}

fn change(rights: &Rights, grant: Option<Grant>) {
    *rights.lock().expect("no panic") = grant;
}

fn only(publish: &[&str], subscribe: &[&str]) -> Grant {
    let own = |rules: &[&str]| rules.iter().map(ToString::to_string).collect();
    Grant {
        publish: own(publish),
        subscribe: own(subscribe),
        ..Grant::default()
    }
}

fn disconnected(client: &mut Client) -> ReasonCode {
    match client.until_closed().pop() {
        Some(Received::Disconnect(reason)) => reason,
        other => panic!("no DISCONNECT but {other:?}"),
    }
}

#[test]
fn g11_a_smaller_grant_ends_a_live_subscription_and_another_one_stays() {
    let (broker, rights) = granting();
    let mut ann = v5("a").username("ann").connect(&broker);
    ann.subscribe("secret", QoS::AtMostOnce);
    ann.subscribe("open", QoS::AtMostOnce);
    change(&rights, Some(only(&["#"], &["open"])));

    let connected = broker.invalidate(&user("ann"));

    assert_eq!(connected, 1);
    eventually("the subscription ends", || {
        let session = broker.clients().pop().expect("a session");
        session.subscriptions == ["open"]
    });
    let mut other = v5("b").username("bob").connect(&broker);
    other.publish("secret", "1", QoS::AtMostOnce);
    other.publish("open", "2", QoS::AtMostOnce);
    assert_eq!(ann.message().text(), "2");
}

#[test]
fn g11_what_a_lost_subscription_has_queued_is_dropped() {
    let (broker, rights) = granting();
    let client = v5("a").username("ann").expiring_s(HOUR_S);
    let mut ann = client.connect(&broker);
    ann.subscribe("secret", QoS::AtLeastOnce);
    ann.disconnect();
    let mut other = v5("b").username("bob").connect(&broker);
    other.publish_acknowledged("secret", "1");
    eventually("it is queued", || queued(&broker, "a") == 1);
    change(&rights, Some(only(&[], &["open"])));

    assert_eq!(broker.invalidate(&user("ann")), 0);

    eventually("nothing is queued", || queued(&broker, "a") == 0);
}

#[test]
fn clients_that_are_not_named_keep_their_rights() {
    let (broker, rights) = granting();
    let mut ann = v5("a").username("ann").connect(&broker);
    let mut bob = v5("b").username("bob").connect(&broker);
    bob.subscribe("t", QoS::AtMostOnce);
    change(&rights, None);

    assert_eq!(broker.invalidate(&Invalidation::ClientId("a".into())), 1);

    assert_eq!(disconnected(&mut ann), ReasonCode::NOT_AUTHORIZED);
    broker
        .publish("t", b"1", QoS::AtMostOnce, false, Properties::EMPTY)
        .expect("published");
    assert_eq!(bob.message().text(), "1");
    assert_eq!(broker.invalidate(&Invalidation::Everything), 1);
    assert_eq!(disconnected(&mut bob), ReasonCode::NOT_AUTHORIZED);
}

#[test]
fn without_a_plugin_that_knows_the_grant_a_client_logs_in_again() {
    let broker = start_with(config(), Plugin::welcoming());
    let mut ann = v5("a").username("ann").connect(&broker);

    broker.invalidate(&Invalidation::Everything);

    assert_eq!(disconnected(&mut ann), ReasonCode::ADMINISTRATIVE_ACTION);
    v5("a").username("ann").connect(&broker).ping();
}

#[test]
fn a_client_that_no_plugin_let_in_keeps_the_grant_of_its_listener() {
    for plugin in [Plugin::default(), Plugin::welcoming()] {
        let broker = start_with(config(), plugin);
        let mut client = v5("a").connect(&broker);
        client.subscribe("t", QoS::AtMostOnce);

        assert_eq!(broker.invalidate(&Invalidation::Everything), 1);

        client.publish("t", "1", QoS::AtMostOnce);
        assert_eq!(client.message().text(), "1");
    }
}

#[test]
fn a_grant_hook_that_gives_no_answer_or_names_another_user_disconnects() {
    let other_user = || LoginDecision::Allow {
        grant: Box::new(Grant::everything()),
        username: Some("bob".into()),
        user_properties: Vec::new(),
    };
    for named in [false, true] {
        let plugin = Plugin::welcoming().grant(move |_, reply| {
            if named {
                reply.send(other_user());
            }
        });
        let broker = start_with(config(), plugin);
        let mut ann = v5("a").username("ann").connect(&broker);

        broker.invalidate(&user("ann"));

        let reason = disconnected(&mut ann);
        assert!(reason.is_error(), "{reason:?}");
    }
}

#[test]
fn f08_the_will_of_a_revoked_user_is_not_published() {
    let (broker, rights) = granting();
    let mut watcher = v5("w").username("bob").connect(&broker);
    watcher.subscribe("#", QoS::AtMostOnce);
    let mut ann = v5("a")
        .username("ann")
        .will("wills/ann", "boo")
        .connect(&broker);
    change(&rights, None);

    broker.invalidate(&user("ann"));

    assert_eq!(disconnected(&mut ann), ReasonCode::NOT_AUTHORIZED);
    assert_eq!(broker.stats().dropped_will, 1);
    change(&rights, Some(Grant::everything()));
    watcher.publish("after", "1", QoS::AtMostOnce);
    assert_eq!(watcher.message().topic, "after");
}

/// The store must not publish it after a restart either.
#[test]
fn f08_a_will_that_waits_for_its_delay_is_dropped_with_the_rights_of_its_client() {
    let home = Home::new();
    let rights = Arc::new(AtomicBool::new(true));
    let plugin = |rights: &Arc<AtomicBool>| {
        let rights = Arc::clone(rights);
        Plugin::welcoming().grant(move |_, reply| {
            if rights.load(Ordering::SeqCst) {
                reply.send(allow(Grant::everything()));
            }
        })
    };
    let kept = || {
        let mut config = config();
        config.data = Some(Data {
            folder: home.folder(0),
            durability: Durability::Os,
        });
        config
    };
    let broker = start_with(kept(), plugin(&rights));
    let client = v5("a")
        .username("ann")
        .expiring_s(HOUR_S)
        .will("wills/ann", "boo")
        .will_delay_s(60);
    client.connect(&broker).vanish();
    eventually("ann is offline", || {
        let session = broker.clients().pop().expect("a session");
        !session.connected
    });
    rights.store(false, Ordering::SeqCst);

    assert_eq!(broker.invalidate(&user("ann")), 0);

    eventually("the will is dropped", || broker.stats().dropped_will == 1);
    broker.stop(DEADLINE);
    let again = start_with(kept(), plugin(&rights));
    let mut watcher = v5("w").username("bob").connect(&again);
    watcher.subscribe("#", QoS::AtMostOnce);
    let ann = client.clean_start().connect(&again);
    watcher.publish("after", "1", QoS::AtMostOnce);
    assert_eq!(watcher.message().topic, "after");
    ann.disconnect();
}

#[test]
fn g11_a_cached_answer_is_asked_for_again() {
    let allowed = Arc::new(AtomicBool::new(true));
    let rights = Arc::clone(&allowed);
    let about = [(Action::Publish, "ask/#"), (Action::Subscribe, "ask/#")];
    let plugin = Plugin::default().authorize(&about, move |_, reply| {
        reply.send(if rights.load(Ordering::SeqCst) {
            AuthorizeDecision::AllowAll {
                covers: filter("ask/#"),
                until: Instant::now() + Duration::from_secs(3_600),
            }
        } else {
            AuthorizeDecision::deny(ReasonCode::NOT_AUTHORIZED)
        });
    });
    let mut config = config();
    config.listeners[0].anonymous = Some(only(&["open"], &["open"]));
    let broker = start_with(config, plugin);
    let mut client = v5("a").connect(&broker);
    client.subscribe("ask/#", QoS::AtMostOnce);
    client.subscribe("open", QoS::AtMostOnce);
    let mut publisher = v5("p").connect(&broker);
    assert!(!publisher.publish_acknowledged("ask/a", "1").is_error());
    assert_eq!(client.message().text(), "1");
    allowed.store(false, Ordering::SeqCst);

    assert_eq!(broker.invalidate(&Invalidation::Everything), 2);

    assert_eq!(
        publisher.publish_acknowledged("ask/a", "2"),
        ReasonCode::NOT_AUTHORIZED
    );
    eventually("the subscription ends", || {
        let sessions = broker.clients();
        sessions
            .iter()
            .all(|session| *session.client_id == *"p" || session.subscriptions == ["open"])
    });
    for topic in ["ask/a", "open"] {
        broker
            .publish(topic, b"3", QoS::AtMostOnce, false, Properties::EMPTY)
            .expect("published");
    }
    assert_eq!(client.message().topic, "open");
}

#[test]
fn g11_an_answer_that_comes_after_the_invalidation_is_not_cached() {
    let about = [(Action::Publish, "ask/#")];
    let (plugin, questions) = Plugin::questions(&about);
    let mut config = config();
    config.listeners[0].anonymous = Some(Grant::default());
    let broker = start_with(config, plugin);
    let mut client = v5("a").connect(&broker);
    client.publish("ask/a", "1", QoS::AtLeastOnce);
    let (_, reply) = questions.recv_timeout(DEADLINE).expect("asked");

    broker.invalidate(&Invalidation::ClientId("a".into()));
    reply.send(AuthorizeDecision::AllowAll {
        covers: filter("ask/#"),
        until: Instant::now() + Duration::from_secs(3_600),
    });

    assert!(matches!(client.receive(), Received::PubAck(..)));
    client.publish("ask/a", "2", QoS::AtLeastOnce);
    questions.recv_timeout(DEADLINE).expect("asked again");
}

#[test]
fn g11_a_login_that_was_decided_before_the_invalidation_is_refused_after_it() {
    let (plugin, logins) = Plugin::logins();
    let broker = start_with(config(), plugin);
    let mut ann = v5("a").username("ann").dial(&broker);
    let (_, reply) = logins.recv_timeout(DEADLINE).expect("asked");

    broker.invalidate(&user("ann"));
    reply.send(allow(Grant::everything()));

    assert!(matches!(
        ann.receive(),
        Received::ConnAck {
            reason: ReasonCode::SERVER_BUSY,
            ..
        }
    ));
}

#[test]
fn g11_a_subscription_that_was_allowed_before_the_invalidation_is_checked_after_it() {
    let about = [(Action::Subscribe, "ask/#")];
    let (plugin, questions) = Plugin::questions(&about);
    let mut config = config();
    config.listeners[0].anonymous = Some(Grant::default());
    let broker = start_with(config, plugin);
    let mut client = v5("a").connect(&broker);
    client.send_subscribe(&["ask/a"], QoS::AtMostOnce);
    let (_, reply) = questions.recv_timeout(DEADLINE).expect("asked");

    broker.invalidate(&Invalidation::ClientId("a".into()));
    reply.send(AuthorizeDecision::Allow);

    assert!(matches!(client.receive(), Received::SubAck(..)));
    let (_, reply) = questions.recv_timeout(DEADLINE).expect("asked again");
    reply.send(AuthorizeDecision::deny(ReasonCode::NOT_AUTHORIZED));
    eventually("the subscription ends", || {
        let session = broker.clients().pop().expect("a session");
        session.subscriptions.is_empty()
    });
}

/// The grant of its users says nothing about `ask/#`: a plugin is asked, which allows it while `allowed` is set.
fn asking(allowed: &Arc<AtomicBool>) -> Plugin {
    let rights = Arc::clone(allowed);
    let about = [(Action::Subscribe, "ask/#")];
    Plugin::default()
        .authenticate(|_, reply| {
            reply.send(allow(only(&["#"], &["open"])));
        })
        .authorize(&about, move |_, reply| {
            reply.send(if rights.load(Ordering::SeqCst) {
                AuthorizeDecision::Allow
            } else {
                AuthorizeDecision::deny(ReasonCode::NOT_AUTHORIZED)
            });
        })
}

fn has_lost_its_subscription(broker: &Broker) {
    eventually("the subscription ends", || {
        let sessions = broker.clients();
        sessions
            .iter()
            .all(|session| session.subscriptions.is_empty())
    });
}

#[test]
fn g11_without_a_grant_hook_plugins_are_asked_about_a_kept_session() {
    for is_online in [true, false] {
        let allowed = Arc::new(AtomicBool::new(true));
        let broker = start_with(config(), asking(&allowed));
        let hello = v5("a").username("ann").keeping_session_s(HOUR_S);
        let mut ann = hello.connect(&broker);
        ann.subscribe("ask/a", QoS::AtLeastOnce);
        if !is_online {
            ann.disconnect();
        }
        allowed.store(false, Ordering::SeqCst);

        broker.invalidate(&user("ann"));

        has_lost_its_subscription(&broker);
        assert!(hello.connect_or_resume(&broker).1);
    }
}

#[test]
fn g11_after_a_restart_plugins_are_asked_about_a_session_that_is_resumed() {
    let home = Home::new();
    let allowed = Arc::new(AtomicBool::new(true));
    let kept = || Config {
        data: Some(home.data(0)),
        ..config()
    };
    let broker = start_with(kept(), asking(&allowed));
    let hello = v5("a").username("ann").keeping_session_s(HOUR_S);
    let mut ann = hello.connect(&broker);
    ann.subscribe("ask/a", QoS::AtLeastOnce);
    ann.disconnect();
    broker.stop(DEADLINE);
    allowed.store(false, Ordering::SeqCst);

    let again = start_with(kept(), asking(&allowed));
    assert!(hello.connect_or_resume(&again).1);

    has_lost_its_subscription(&again);
}

/// A session with one queued message on `ask/a`, after a restart of its broker: every question goes to the receiver.
fn asked_after_a_restart(home: &Home) -> (Broker, Receiver<Reply<AuthorizeDecision>>) {
    let kept = || Config {
        data: Some(home.data(0)),
        ..config()
    };
    let broker = start_with(kept(), asking(&Arc::new(AtomicBool::new(true))));
    let mut ann = kept_ann().connect(&broker);
    ann.subscribe("ask/a", QoS::AtLeastOnce);
    ann.disconnect();
    let mut bob = v5("b").username("bob").connect(&broker);
    bob.publish_acknowledged("ask/a", "queued");
    broker.stop(DEADLINE);
    let (sender, questions) = channel();
    let about = [(Action::Subscribe, "ask/#")];
    let plugin = asking(&Arc::default()).authorize(&about, move |_, reply| {
        let _ = sender.send(reply);
    });
    (start_with(kept(), plugin), questions)
}

fn kept_ann() -> Hello {
    v5("a").username("ann").keeping_session_s(HOUR_S)
}

#[test]
fn g11_queued_messages_are_sent_after_the_plugins_have_answered_about_their_subscription() {
    for is_allowed in [true, false] {
        let home = Home::new();
        let (broker, questions) = asked_after_a_restart(&home);

        let mut ann = kept_ann().dial(&broker);
        let reply = questions.recv_timeout(DEADLINE).expect("asked");
        ann.hears_nothing_for(Duration::from_millis(50));
        reply.send(if is_allowed {
            AuthorizeDecision::Allow
        } else {
            AuthorizeDecision::deny(ReasonCode::NOT_AUTHORIZED)
        });

        assert!(ann.expect_welcome(), "the session is resumed");
        if is_allowed {
            assert_eq!(ann.take_message().topic, "ask/a");
        }
        ann.ping();
        let held = broker.clients().pop().expect("a session").subscriptions;
        assert_eq!(held.len(), usize::from(is_allowed));
        assert!(questions.try_recv().is_err(), "asked once");
    }
}

#[test]
fn g11_without_an_answer_about_its_subscription_a_client_connects_later() {
    let home = Home::new();
    let (broker, questions) = asked_after_a_restart(&home);
    let unanswered = std::thread::spawn(move || {
        for reply in questions.iter().take(4) {
            drop(reply);
        }
        questions
    });

    let refusal = kept_ann().refused(&broker);

    assert_eq!(refusal, ReasonCode::SERVER_UNAVAILABLE.value());
    let questions = unanswered.join().expect("no panic");
    let mut ann = kept_ann().dial(&broker);
    let reply = questions.recv_timeout(DEADLINE).expect("asked again");
    reply.send(AuthorizeDecision::Allow);
    assert!(ann.expect_welcome());
    assert_eq!(ann.take_message().topic, "ask/a");
}

#[test]
fn g11_a_stranger_with_the_client_identifier_ends_no_subscription_of_its_session() {
    let home = Home::new();
    let (broker, questions) = asked_after_a_restart(&home);

    let refusal = v5("a").username("bob").refused(&broker);

    assert_eq!(refusal, ReasonCode::CLIENT_IDENTIFIER_NOT_VALID.value());
    assert!(questions.try_recv().is_err());
    assert_eq!(queued(&broker, "a"), 1);
}

#[test]
fn f08_a_will_that_waits_for_its_turn_is_dropped_with_the_rights_of_its_client() {
    let broker = start_with(
        Config {
            wills_per_second: 1,
            shards: 1,
            ..config()
        },
        Plugin::welcoming(),
    );
    let clients = ["c0", "c1", "c2"].map(|id| {
        let hello = v5(id).username("ann").will("wills/ann", "boo");
        hello.connect(&broker)
    });
    clients.into_iter().for_each(Client::vanish);
    eventually("all are gone", || broker.stats().clients_connected == 0);
    let waiting = broker.stats().wills_delayed;
    assert!(waiting > 0);

    broker.invalidate(&user("ann"));

    eventually("they are dropped", || {
        broker.stats().dropped_will == waiting
    });
}

/// `back` is the number of times that the client connects again before the plugin answers.
#[test]
fn g11_a_client_that_leaves_during_the_question_loses_its_rights() {
    for back in [0, 1] {
        let allowed = Arc::new(AtomicBool::new(true));
        let (sender, questions) = channel();
        let plugin = asking(&allowed).grant(move |_, reply| {
            let _ = sender.send(reply);
        });
        let broker = start_with(config(), plugin);
        let hello = v5("a").username("ann").keeping_session_s(HOUR_S);
        let mut ann = hello.connect(&broker);
        ann.subscribe("ask/a", QoS::AtMostOnce);
        allowed.store(false, Ordering::SeqCst);
        broker.invalidate(&user("ann"));
        let reply = questions.recv_timeout(DEADLINE).expect("asked");
        ann.vanish();
        eventually("ann is offline", || !broker.clients()[0].connected);
        let returned = (back == 1).then(|| hello.connect(&broker));

        reply.send(allow(only(&["#"], &["open"])));

        has_lost_its_subscription(&broker);
        drop(returned);
    }
}

#[test]
fn f08_the_will_of_a_user_that_leaves_during_the_question_is_not_published() {
    let (sender, questions) = channel();
    let plugin = Plugin::welcoming().grant(move |_, reply| {
        let _ = sender.send(reply);
    });
    let broker = start_with(config(), plugin);
    let hello = v5("a").username("ann").expiring_s(HOUR_S);
    let ann = hello
        .will("wills/ann", "boo")
        .will_delay_s(60)
        .connect(&broker);
    broker.invalidate(&user("ann"));
    let reply = questions.recv_timeout(DEADLINE).expect("asked");
    ann.vanish();
    eventually("ann is offline", || !broker.clients()[0].connected);

    reply.send(LoginDecision::Deny {
        reason: ReasonCode::NOT_AUTHORIZED,
        text: None,
    });

    eventually("the will is dropped", || broker.stats().dropped_will == 1);
}

#[test]
fn plugins_are_asked_about_16_clients_of_all_shards_at_the_same_time() {
    let (sender, questions) = channel();
    let (open, most) = (Arc::new(AtomicUsize::new(0)), Arc::default());
    let (asked, highest): (_, Arc<AtomicUsize>) = (Arc::clone(&open), Arc::clone(&most));
    let plugin = Plugin::welcoming().grant(move |_, reply| {
        let now = asked.fetch_add(1, Ordering::SeqCst) + 1;
        highest.fetch_max(now, Ordering::SeqCst);
        let _ = sender.send(reply);
    });
    let broker = start_with(config(), plugin);
    let clients = (0..60).map(|number| v5(&format!("c{number}")).username("ann"));
    let mut clients: Vec<Client> = clients.map(|hello| hello.connect(&broker)).collect();

    assert_eq!(broker.invalidate(&Invalidation::Everything), 60);

    eventually("16 are asked about", || open.load(Ordering::SeqCst) >= 16);
    for _ in 0..60 {
        let reply = questions.recv_timeout(DEADLINE).expect("asked");
        open.fetch_sub(1, Ordering::SeqCst);
        reply.send(allow(Grant::everything()));
    }
    assert_eq!(most.load(Ordering::SeqCst), 16);
    clients.iter_mut().for_each(Client::ping);
}

#[test]
fn a_question_that_no_plugin_answers_is_asked_again() {
    let asked = AtomicUsize::new(0);
    let plugin = Plugin::welcoming().grant(move |_, reply| {
        let busy = LoginDecision::Deny {
            reason: ReasonCode::SERVER_BUSY,
            text: None,
        };
        match asked.fetch_add(1, Ordering::SeqCst) {
            0 => drop(reply),
            1 => drop(reply.send(busy)),
            _ => drop(reply.send(allow(only(&["#"], &["open"])))),
        }
    });
    let broker = start_with(config(), plugin);
    let mut ann = v5("a").username("ann").connect(&broker);
    ann.subscribe("secret", QoS::AtMostOnce);

    broker.invalidate(&user("ann"));

    has_lost_its_subscription(&broker);
    ann.ping();
}

#[test]
fn after_a_reload_a_client_that_no_plugin_let_in_keeps_the_grant_of_its_listener() {
    let broker = start_with(config(), Plugin::welcoming());
    let mut client = v5("a").connect(&broker);
    let hooks: Arc<dyn Hooks> = Arc::new(Plugin::welcoming());
    broker.reload(&config(), hooks).expect("reloaded");

    assert_eq!(broker.invalidate(&Invalidation::Everything), 1);

    // It follows the invalidation: with a user name, the client is disconnected.
    let mut ann = v5("b").username("ann").connect(&broker);
    broker.invalidate(&Invalidation::Everything);
    assert_eq!(disconnected(&mut ann), ReasonCode::ADMINISTRATIVE_ACTION);
    client.ping();
}
