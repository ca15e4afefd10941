//! A plugin says who may come in; the broker never waits for it with anybody but that client.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use mqttcore_broker::{Broker, Config, Grant, Listener, LoginDecision, Secret};
use mqttcore_codec::{ProtocolVersion, QoS, ReasonCode};

use crate::common::plugin::LoginQuestion;
use crate::common::{
    DEADLINE, Plugin, Received, allow, config, eventually, start, start_with, v3, v5,
};

/// One shard, so that who waits and who goes on share a thread.
fn asking() -> (Broker, Receiver<LoginQuestion>) {
    let (plugin, logins) = Plugin::logins();
    let config = Config {
        shards: 1,
        ..config()
    };
    (start_with(config, plugin), logins)
}

fn answering(verdict: impl Fn() -> LoginDecision + Send + Sync + 'static) -> Broker {
    let plugin = Plugin::default().authenticate(move |_, reply| {
        reply.send(verdict());
    });
    start_with(config(), plugin)
}

fn denying(reason: ReasonCode) -> Broker {
    answering(move || LoginDecision::Deny { reason, text: None })
}

#[test]
fn an_allowed_client_comes_in_with_its_own_grant() {
    let broker = answering(|| {
        allow(Grant {
            subscribe: vec!["mine/#".into()],
            ..Grant::default()
        })
    });
    let mut client = v5("one").username("user").connect(&broker);

    let mine = client.try_subscribe("mine/a", QoS::AtMostOnce);
    let other = client.try_subscribe("other/a", QoS::AtMostOnce);

    assert_eq!(mine, ReasonCode::GRANTED_QOS_0);
    assert_eq!(other, ReasonCode::NOT_AUTHORIZED);
}

#[test]
fn the_plugins_user_name_takes_the_place_of_the_clients() {
    let broker = answering(|| LoginDecision::Allow {
        grant: Box::new(Grant::everything()),
        username: Some("device 7".into()),
        user_properties: Vec::new(),
    });

    let _client = v5("one").username("token").connect(&broker);

    let names: Vec<_> = broker.clients().into_iter().map(|c| c.username).collect();
    assert_eq!(names, [Some("device 7".into())]);
}

fn passing(is_anonymous: bool) -> Broker {
    let plugin = Plugin::default().authenticate(|_, reply| {
        reply.send(LoginDecision::Pass);
    });
    let mut config = config();
    if !is_anonymous {
        config.listeners[0].anonymous = None;
    }
    start_with(config, plugin)
}

#[test]
fn a_client_whom_no_plugin_knows_is_refused() {
    let broker = passing(false);

    assert_eq!(v5("one").username("user").refused(&broker), 0x86);
    assert_eq!(v3("one").username("user").refused(&broker), 4);
}

/// Its user name is one that nobody vouches for.
#[test]
fn a_client_whom_no_plugin_knows_is_anonymous_where_the_listener_gives_that() {
    let broker = passing(true);

    let _client = v5("one").username("user").connect(&broker);

    let names: Vec<_> = broker.clients().into_iter().map(|c| c.username).collect();
    assert_eq!(names, [None]);
}

#[test]
fn without_plugins_a_client_with_a_user_name_is_anonymous() {
    let broker = start(config());

    let _client = v3("one").username("user").connect(&broker);

    let names: Vec<_> = broker.clients().into_iter().map(|c| c.username).collect();
    assert_eq!(names, [None]);
}

#[test]
fn a_denied_v5_client_gets_the_plugins_reason() {
    let broker = denying(ReasonCode::BANNED);

    assert_eq!(v5("one").username("user").refused(&broker), 0x8A);
    assert_eq!(broker.stats().connects_refused, 1);
}

#[test]
fn a_denied_3_1_1_client_gets_the_return_code_that_comes_nearest() {
    for (reason, code) in [
        (ReasonCode::BAD_USER_NAME_OR_PASSWORD, 4),
        (ReasonCode::NOT_AUTHORIZED, 5),
        (ReasonCode::SERVER_UNAVAILABLE, 3),
    ] {
        let broker = denying(reason);

        assert_eq!(v3("one").username("user").refused(&broker), code);
    }
}

#[test]
fn a_reason_that_no_connack_can_give_is_reported_as_unspecified() {
    let broker = denying(ReasonCode::PACKET_IDENTIFIER_NOT_FOUND);

    assert_eq!(v5("one").username("user").refused(&broker), 0x80);
}

/// A denial is one, whatever its code says.
#[test]
fn a_denial_with_a_code_of_success_lets_nobody_in() {
    let broker = denying(ReasonCode::SUCCESS);

    let packets = v5("one").username("user").dial(&broker).until_closed();

    assert!(!packets.contains(&Received::ConnAck {
        session_present: false,
        reason: ReasonCode::SUCCESS
    }));
    assert_eq!(broker.stats().sessions, 0);
}

/// Abuse C21: no answer is no.
#[test]
fn a_reply_that_is_dropped_refuses_with_0x88() {
    let broker = start_with(
        config(),
        Plugin::default().authenticate(|_, reply| drop(reply)),
    );

    assert_eq!(v5("one").username("user").refused(&broker), 0x88);
    assert_eq!(v3("one").username("user").refused(&broker), 3);
}

#[test]
fn without_plugins_and_anonymous_access_everybody_is_refused() {
    let mut config = config();
    config.listeners[0].anonymous = None;
    let broker = start(config);

    assert_eq!(v5("one").username("user").refused(&broker), 0x87);
    assert_eq!(v5("one").refused(&broker), 0x87);
}

/// Abuse C07, C08: a user name, be it empty, is asked about even where anonymous access is given.
#[test]
fn a_user_name_is_asked_about_where_anonymous_access_is_given() {
    let broker = denying(ReasonCode::NOT_AUTHORIZED);

    assert_eq!(v5("one").username("user").refused(&broker), 0x87);
    assert_eq!(v5("one").username("").refused(&broker), 0x87);
    let _anonymous = v5("one").connect(&broker);
}

#[test]
fn a_listener_without_anonymous_access_asks_about_everybody() {
    let (plugin, logins) = Plugin::logins();
    let mut config = config();
    config.listeners[0].anonymous = None;
    let broker = start_with(config, plugin);
    let mut client = v5("one").dial(&broker);

    let (login, reply) = logins.recv_timeout(DEADLINE).expect("asked");
    reply.send(allow(Grant::everything()));

    assert_eq!(login.username, None);
    client.expect_welcome();
}

#[test]
fn the_plugin_sees_what_the_client_sent() {
    let (plugin, logins) = Plugin::logins();
    let broker = start_with(
        Config {
            listeners: vec![Listener {
                name: "front door".into(),
                ..config().listeners.remove(0)
            }],
            ..config()
        },
        plugin,
    );
    let _client = v5("one")
        .username("user")
        .keep_alive_s(33)
        .expiring_s(44)
        .user_property("blue")
        .will("last/words", "")
        .dial(&broker);

    let (login, _reply) = logins.recv_timeout(DEADLINE).expect("asked");

    assert_eq!(&*login.client_id, "one");
    assert_eq!(login.version, ProtocolVersion::V5);
    assert_eq!(login.username.as_deref(), Some("user"));
    let password = login.password.as_deref();
    assert_eq!(password.map(Secret::as_bytes), Some(&b"secret"[..]));
    assert_eq!(&*login.listener, "front door");
    assert!(login.clean_start);
    assert_eq!(
        (login.keep_alive_s, login.session_expiry_interval_s),
        (33, 44)
    );
    assert_eq!(login.will_topic(), Some("last/words"));
    assert_eq!(*login.user_properties(), [(String::new(), "blue".into())]);
    assert!(!format!("{login:?}").contains("secret"));
}

/// Nobody but this test holds it then, so that it is wiped.
#[test]
fn the_password_is_forgotten_once_the_client_is_let_in() {
    for verdict in [
        allow(Grant::everything()),
        LoginDecision::Deny {
            reason: ReasonCode::BANNED,
            text: None,
        },
    ] {
        let (broker, logins) = asking();
        let mut client = v5("one").username("user").dial(&broker);
        let (login, reply) = logins.recv_timeout(DEADLINE).expect("asked");
        let password = Arc::clone(login.password.as_ref().expect("it was sent"));
        drop(login);

        reply.send(verdict);

        assert!(matches!(client.receive(), Received::ConnAck { .. }));
        assert_eq!(password.as_bytes(), b"secret");
        assert_eq!(Arc::strong_count(&password), 1);
    }
}

#[test]
fn a_client_without_a_name_is_asked_about_under_its_assigned_one() {
    let (broker, logins) = asking();
    let mut client = v5("").username("user").dial(&broker);

    let (login, reply) = logins.recv_timeout(DEADLINE).expect("asked");
    reply.send(allow(Grant::everything()));
    client.expect_welcome();

    assert!(!login.client_id.is_empty());
    assert_eq!(broker.clients()[0].client_id, login.client_id);
}

/// Abuse H12: whoever needs no answer does not wait for one.
#[test]
fn a_bystander_goes_on_while_a_plugin_thinks() {
    let (broker, logins) = asking();
    let mut waiting = v5("waiting").username("user").dial(&broker);
    let (_, reply) = logins.recv_timeout(DEADLINE).expect("asked");

    let mut bystander = v5("bystander").connect(&broker);
    bystander.subscribe("a", QoS::AtMostOnce);
    bystander.publish("a", "goes on", QoS::AtMostOnce);
    assert_eq!(bystander.message().text(), "goes on");

    reply.send(allow(Grant::everything()));
    waiting.expect_welcome();
}

#[test]
fn logins_are_answered_in_any_order() {
    let (broker, logins) = asking();
    let mut first = v5("first").username("user").dial(&broker);
    let (_, first_reply) = logins.recv_timeout(DEADLINE).expect("asked");
    let mut second = v5("second").username("user").dial(&broker);
    let (_, second_reply) = logins.recv_timeout(DEADLINE).expect("asked");

    second_reply.send(allow(Grant::everything()));
    second.expect_welcome();
    first_reply.send(allow(Grant::everything()));
    first.expect_welcome();
}

#[test]
fn what_a_client_sends_behind_connect_waits_for_the_answer() {
    let (broker, logins) = asking();
    let mut client = v5("eager").username("user").dial(&broker);
    client.send_subscribe(&["a"], QoS::AtMostOnce);
    client.publish("a", "early", QoS::AtMostOnce);

    let (_, reply) = logins.recv_timeout(DEADLINE).expect("asked");
    assert_eq!(broker.stats().messages_received, 0);
    reply.send(allow(Grant::everything()));

    client.expect_welcome();
    assert!(matches!(client.receive(), Received::SubAck(..)));
    assert_eq!(client.message().text(), "early");
}

#[test]
fn the_reply_is_abandoned_when_the_client_leaves() {
    let (broker, logins) = asking();
    let client = v5("impatient").username("user").dial(&broker);
    let (_, reply) = logins.recv_timeout(DEADLINE).expect("asked");
    assert!(!reply.is_abandoned());

    client.vanish();

    eventually("the reply is abandoned", || reply.is_abandoned());
    assert!(!reply.send(allow(Grant::everything())));
    assert_eq!(broker.stats().sessions, 0);
}

#[test]
fn an_eager_client_that_leaves_gets_no_session() {
    let (broker, logins) = asking();
    let mut client = v5("eager").username("user").dial(&broker);
    client.send_subscribe(&["a"], QoS::AtMostOnce);
    let (_, reply) = logins.recv_timeout(DEADLINE).expect("asked");

    client.vanish();
    reply.send(allow(Grant::everything()));

    eventually("nothing is left of it", || {
        let stats = broker.stats();
        (stats.sessions, stats.clients_connected, stats.subscriptions) == (0, 0, 0)
    });
}

#[test]
fn a_plugin_that_never_answers_is_cut_off_by_the_connect_deadline() {
    let (plugin, logins) = Plugin::logins();
    let config = Config {
        connect_deadline: Duration::from_millis(200),
        ..config()
    };
    let broker = start_with(config, plugin);
    let mut client = v5("one").username("user").dial(&broker);
    let (_, reply) = logins.recv_timeout(DEADLINE).expect("asked");

    let packets = client.until_closed();

    assert!(!matches!(
        packets[..],
        [Received::ConnAck {
            reason: ReasonCode::SUCCESS,
            ..
        }]
    ));
    assert!(reply.is_abandoned());
}

#[test]
fn a_grant_that_does_not_compile_lets_nobody_in() {
    let broker = answering(|| {
        allow(Grant {
            publish: vec!["a/#/b".into()],
            ..Grant::default()
        })
    });

    assert_eq!(v5("one").username("user").refused(&broker), 0x88);
}

/// Abuse F07
#[test]
fn a_will_to_a_topic_that_the_grant_does_not_cover_is_refused_at_connect() {
    let broker = answering(|| {
        allow(Grant {
            publish: vec!["mine/#".into()],
            ..Grant::default()
        })
    });
    let hello = || v5("one").username("user");

    assert_eq!(hello().will("other", "").refused(&broker), 0x87);
    hello().will("mine/end", "").connect(&broker);
}
