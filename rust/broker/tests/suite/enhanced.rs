//! Enhanced authentication: the exchange before CONNACK, and the one of a connected client.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};

use mqttcore_broker::{
    Action, AuthorizeDecision, Broker, Config, EventKind, ExchangeReply, Grant, GrantLimits,
    LoginDecision, Reply,
};
use mqttcore_codec::{Packet, QoS, ReasonCode};

use crate::common::{
    AuthFields, Client, DEADLINE, Hello, Plugin, Received, Said, allow, challenge, config, end,
    eventually, start, start_with, v3, v5,
};

const CONTINUE: ReasonCode = ReasonCode::CONTINUE_AUTHENTICATION;
const AGAIN: ReasonCode = ReasonCode::RE_AUTHENTICATE;

/// One shard, so that who waits and who goes on share a thread.
fn single() -> Config {
    Config {
        shards: 1,
        ..config()
    }
}

/// Offers the method `m`: one challenge, and the right answer to it is `right`.
fn guarded(verdict: impl Fn(&Said) -> LoginDecision + Send + Sync + 'static) -> Plugin {
    Plugin::default().method("m", move |said, reply| {
        let turn = match (said.step, &said.data[..]) {
            (0, _) => challenge("who?"),
            (_, b"right") => end(verdict(&said), "welcome"),
            _ => end(deny(ReasonCode::BAD_USER_NAME_OR_PASSWORD), ""),
        };
        reply.send(turn);
    })
}

fn everything(_: &Said) -> LoginDecision {
    allow(Grant::everything())
}

fn deny(reason: ReasonCode) -> LoginDecision {
    LoginDecision::Deny { reason, text: None }
}

/// Turns land in the receiver, and nobody answers but the test.
fn talking() -> (Broker, Receiver<(Said, Reply<ExchangeReply>)>) {
    let (sender, receiver) = channel();
    let plugin = Plugin::welcoming().method("m", move |said, reply| {
        let _ = sender.send((said, reply));
    });
    (start_with(single(), plugin), receiver)
}

fn hello() -> Hello {
    v5("one").method("m", "hello")
}

fn step(data: &str) -> Received {
    Received::Auth(CONTINUE, fields(data))
}

fn fields(data: &str) -> AuthFields {
    AuthFields {
        method: "m".into(),
        data: data.into(),
    }
}

/// Goes through the whole exchange of [`guarded`].
fn let_in(broker: &Broker, hello: &Hello) -> Client {
    let mut client = hello.dial(broker);
    assert_eq!(client.receive(), step("who?"));
    client.auth(CONTINUE, "right");
    client.expect_welcome();
    client
}

/// [MQTT-4.12.0-2], [MQTT-4.12.0-5]
#[test]
fn mqtt_4_12_0_2_the_exchange_goes_to_and_fro_before_connack() {
    let broker = start_with(single(), guarded(everything));
    let mut client = hello().dial(&broker);

    let asked = client.receive();
    client.auth(CONTINUE, "right");
    client.expect_welcome();

    assert_eq!(asked, step("who?"));
    assert_eq!(client.auth_fields(), fields("welcome"));
    assert_eq!(
        client.try_subscribe("a", QoS::AtMostOnce),
        ReasonCode::SUCCESS
    );
}

#[test]
fn the_plugin_sees_method_data_and_client() {
    let (broker, turns) = talking();
    let _client = hello().username("user").dial(&broker);

    let (said, _reply) = turns.recv_timeout(DEADLINE).expect("asked");

    assert_eq!(
        (&*said.opening.method, &said.data[..]),
        ("m", &b"hello"[..])
    );
    assert_eq!(said.opening.login.username.as_deref(), Some("user"));
    assert!(!said.opening.again);
}

/// What comes behind the last AUTH is handled once the client is in.
#[test]
fn packets_behind_the_last_auth_are_handled_afterwards() {
    let broker = start_with(single(), guarded(everything));
    let mut client = hello().dial(&broker);
    client.receive();

    client.auth(CONTINUE, "right");
    client.send(&Packet::PingReq);
    client.expect_welcome();

    assert_eq!(client.receive(), Received::PingResp);
}

/// [MQTT-4.12.0-1]
#[test]
fn mqtt_4_12_0_1_a_method_that_nobody_offers_is_refused() {
    let broker = start_with(single(), guarded(everything));

    assert_eq!(v5("one").method("n", "").refused(&broker), 0x8C);
    assert_eq!(v5("one").method("m", "").refused(&start(config())), 0x8C);
}

/// [MQTT-4.12.0-4] A listener that lets everybody in does not let in who fails.
#[test]
fn mqtt_4_12_0_4_a_failure_is_a_connack_and_the_end() {
    let broker = start_with(single(), guarded(everything));
    let mut client = hello().dial(&broker);
    client.receive();

    client.auth(CONTINUE, "wrong");

    assert_eq!(
        client.until_closed(),
        [refusal(ReasonCode::BAD_USER_NAME_OR_PASSWORD)]
    );
    assert_eq!(broker.stats().connects_refused, 1);
}

#[test]
fn a_reply_that_is_dropped_refuses_with_0x83() {
    let plugin = Plugin::default().method("m", |said, reply| {
        if said.step == 0 {
            reply.send(challenge("who?"));
        }
    });
    let broker = start_with(single(), plugin);
    let mut client = hello().dial(&broker);
    client.receive();

    client.auth(CONTINUE, "right");

    let told = client.until_closed();
    assert_eq!(told, [refusal(ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR)]);
}

/// [MQTT-3.1.2-30], and abuse C19: nothing but AUTH, of the same method, at its turn.
#[test]
fn mqtt_3_1_2_30_another_packet_in_the_exchange_is_a_protocol_error() {
    for bytes in [
        &b"\xc0\x00"[..],
        b"\x30\x04\x00\x01t\x00",
        b"\xf0\x06\x18\x04\x15\x00\x01n",
        b"\xf0\x06\x19\x04\x15\x00\x01m",
    ] {
        let broker = start_with(single(), guarded(everything));
        let mut client = hello().dial(&broker);
        client.receive();

        client.send_bytes(bytes);

        let told = client.until_closed();
        assert_eq!(told, [refusal(ReasonCode::PROTOCOL_ERROR)], "{bytes:x?}");
    }
}

#[test]
fn a_malformed_packet_in_the_exchange_is_reported_as_such() {
    let broker = start_with(single(), guarded(everything));
    let mut client = hello().dial(&broker);
    client.receive();

    client.send_bytes(b"\xf1\x00");

    assert_eq!(
        client.until_closed(),
        [refusal(ReasonCode::MALFORMED_PACKET)]
    );
}

#[test]
fn a_client_may_give_up() {
    let broker = start_with(single(), guarded(everything));
    let mut client = hello().dial(&broker);
    client.receive();

    client.send_bytes(b"\xe0\x00");

    assert_eq!(client.until_closed(), []);
}

/// Abuse C13: the whole exchange has as long as CONNECT.
#[test]
fn an_exchange_that_goes_nowhere_ends_at_the_connect_deadline() {
    let config = Config {
        connect_deadline: Duration::from_millis(200),
        ..single()
    };
    let broker = start_with(config, guarded(everything));
    let mut client = hello().dial(&broker);

    assert_eq!(client.until_closed(), [step("who?")]);
}

#[test]
fn a_client_that_leaves_abandons_its_question() {
    let (broker, turns) = talking();
    let client = hello().dial(&broker);
    let (_, reply) = turns.recv_timeout(DEADLINE).expect("asked");

    client.vanish();

    eventually("the reply is abandoned", || reply.is_abandoned());
}

/// [MQTT-3.1.2-24] A step that the client cannot take ends the exchange.
#[test]
fn mqtt_3_1_2_24_an_auth_above_the_clients_maximum_is_not_sent() {
    let broker = start_with(single(), guarded(everything));

    assert_eq!(hello().maximum_packet_size(12).refused(&broker), 0x95);
}

#[test]
fn the_plugins_user_name_and_user_properties_count() {
    let verdict = |_: &Said| LoginDecision::Allow {
        grant: Box::new(Grant::everything()),
        username: Some("device 7".into()),
        user_properties: vec![("region".into(), "north".into())],
    };
    let broker = start_with(single(), guarded(verdict));

    let client = let_in(&broker, &hello());

    let names: Vec<_> = broker.clients().into_iter().map(|c| c.username).collect();
    assert_eq!(names, [Some("device 7".into())]);
    let told = ("region".to_owned(), "north".to_owned());
    assert_eq!(client.user_property(), Some(told));
}

/// [MQTT-4.12.0-6], [MQTT-4.12.0-7]
/// The exchange says nothing of the user name in CONNECT: whoever passes it could take anybody's.
#[test]
fn a_user_name_that_the_plugin_does_not_confirm_is_dropped() {
    let broker = start_with(single(), guarded(everything));

    let _client = let_in(&broker, &hello().username("victim"));

    let names: Vec<_> = broker.clients().into_iter().map(|c| c.username).collect();
    assert_eq!(names, [None]);
}

#[test]
fn mqtt_4_12_0_6_a_client_without_a_method_sees_and_sends_no_auth() {
    let broker = start_with(single(), guarded(everything));
    let mut client = v5("one").connect(&broker);
    assert_eq!(client.auth_fields(), AuthFields::default());

    client.auth(AGAIN, "");

    let told = client.until_closed();
    assert_eq!(told, [Received::Disconnect(ReasonCode::PROTOCOL_ERROR)]);
}

#[test]
fn a_3_x_client_is_not_bothered() {
    let broker = start_with(single(), guarded(everything));

    let mut client = v3("one").connect(&broker);

    client.ping();
}

/// [MQTT-4.12.1-1]
#[test]
fn mqtt_4_12_1_1_a_connected_client_authenticates_again() {
    let broker = start_with(single(), guarded(everything));
    let mut client = let_in(&broker, &hello());

    for _ in 0..2 {
        client.auth(AGAIN, "me again");
        assert_eq!(client.receive(), step("who?"));
        client.auth(CONTINUE, "right");
        let done = client.receive();
        assert_eq!(done, Received::Auth(ReasonCode::SUCCESS, fields("welcome")));
    }
    client.ping();
}

/// The rest of its traffic goes on under the old permissions.
#[test]
fn other_packets_pass_while_a_client_authenticates_again() {
    let (broker, turns) = talking();
    let mut client = hello().dial(&broker);
    let (_, reply) = turns.recv_timeout(DEADLINE).expect("asked");
    reply.send(end(allow(Grant::everything()), ""));
    client.expect_welcome();

    client.auth(AGAIN, "again");
    let (said, reply) = turns.recv_timeout(DEADLINE).expect("asked");
    let acknowledged = client.publish_acknowledged("a", "b");
    reply.send(end(allow(Grant::everything()), "done"));

    assert!(said.opening.again);
    assert_eq!(said.data, b"again");
    assert_eq!(acknowledged, ReasonCode::NO_MATCHING_SUBSCRIBERS);
    let done = client.receive();
    assert_eq!(done, Received::Auth(ReasonCode::SUCCESS, fields("done")));
}

/// [MQTT-4.12.1-2] DISCONNECT has no code for bad credentials.
#[test]
fn mqtt_4_12_1_2_a_failure_disconnects() {
    let (sender, events) = channel();
    let plugin = guarded(everything).events(&[EventKind::AuthFailed], move |event| {
        let _ = sender.send(event);
    });
    let broker = start_with(single(), plugin);
    let mut client = let_in(&broker, &hello());
    client.auth(AGAIN, "");
    client.receive();

    client.auth(CONTINUE, "wrong");

    let told = client.until_closed();
    assert_eq!(told, [Received::Disconnect(ReasonCode::NOT_AUTHORIZED)]);
    let event = events.recv_timeout(DEADLINE).expect("told");
    assert_eq!(event.reason, Some(ReasonCode::NOT_AUTHORIZED));
}

/// Abuse C16: as at CONNECT, a wrong proof counts, and another user is a wrong proof; overload and errors are not.
#[test]
fn c16_a_re_authentication_is_a_failed_login_for_the_same_reasons_as_connect() {
    let other_user = LoginDecision::Allow {
        grant: Box::new(Grant::everything()),
        username: Some("other".into()),
        user_properties: Vec::new(),
    };
    for (verdict, failed) in [
        (deny(ReasonCode::BAD_USER_NAME_OR_PASSWORD), 1),
        (deny(ReasonCode::NOT_AUTHORIZED), 1),
        (deny(ReasonCode::SUCCESS), 1),
        (LoginDecision::Pass, 1),
        (other_user, 1),
        (deny(ReasonCode::SERVER_BUSY), 0),
        (deny(ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR), 0),
        (deny(ReasonCode::QUOTA_EXCEEDED), 0),
    ] {
        let answer = verdict.clone();
        let again = move |said: &Said| {
            if said.opening.again {
                answer.clone()
            } else {
                everything(said)
            }
        };
        let broker = start_with(single(), guarded(again));
        let mut client = let_in(&broker, &hello().username("user"));
        client.auth(AGAIN, "");
        client.receive();

        client.auth(CONTINUE, "right");
        client.until_closed();

        assert_eq!(broker.stats().logins_failed, failed, "{verdict:?}");
    }
}

/// Abuse C16: who has too many failures is not asked again, and an answer that comes then lets nobody in.
#[test]
fn c16_guesses_of_connected_clients_end_at_the_limit() {
    let mut config = single();
    config.failed_logins.per_minute = 2;
    let confirmed = |_: &Said| LoginDecision::Allow {
        grant: Box::new(Grant::everything()),
        username: Some("user".into()),
        user_properties: Vec::new(),
    };
    let broker = start_with(config, guarded(confirmed));
    let mut clients =
        ["a", "b", "c", "d"].map(|id| let_in(&broker, &v5(id).method("m", "").username("user")));
    let [first, second, waiting, late] = &mut clients;
    for client in [&mut *first, &mut *second, &mut *waiting] {
        client.auth(AGAIN, "");
        assert_eq!(client.receive(), step("who?"));
    }
    for client in [first, second] {
        client.auth(CONTINUE, "wrong");
        client.until_closed();
    }

    waiting.auth(CONTINUE, "right");
    late.auth(AGAIN, "");

    for client in [waiting, late] {
        let told = client.until_closed();
        assert_eq!(told, [Received::Disconnect(ReasonCode::NOT_AUTHORIZED)]);
        assert_eq!(client.reason_string(), "too many failed logins");
    }
    assert_eq!(broker.stats().logins_failed, 2);
    let refused = v5("e").method("m", "").username("user").refused(&broker);
    assert_eq!(refused, 0x8A);
}

/// Asks who the client is, whom its data name, and then says that its proof is wrong; empty data are no message.
fn naming() -> Plugin {
    Plugin::default().method("m", |said, reply| {
        let named = String::from_utf8_lossy(&said.data);
        let turn = match (said.step, &*named) {
            (0, "") => end(deny(ReasonCode::NOT_AUTHORIZED), ""),
            (0, _) => ExchangeReply::Challenge {
                data: Some(b"who?"[..].into()),
                text: None,
                username: Some(named.into()),
            },
            (_, "right") => end(everything(&said), ""),
            _ => end(deny(ReasonCode::BAD_USER_NAME_OR_PASSWORD), ""),
        };
        reply.send(turn);
    })
}

/// Abuse C16: guesses count for the user whom the exchange names, whether CONNECT names nobody or somebody else.
#[test]
fn c16_guesses_count_for_the_user_that_the_exchange_names() {
    let mut config = single();
    config.failed_logins.per_minute = 2;
    let broker = start_with(config, naming());
    let guesses = |user: &str| v5("guesser").method("m", user);
    for hello in [guesses("user"), guesses("user").username("nobody")] {
        let mut guessing = hello.dial(&broker);
        assert_eq!(guessing.receive(), step("who?"));
        guessing.auth(CONTINUE, "wrong");
        guessing.until_closed();
    }

    assert_eq!(guesses("user").refused(&broker), 0x8A);
    assert_eq!(guesses("user").username("nobody").refused(&broker), 0x8A);

    assert_eq!(guesses("other").dial(&broker).receive(), step("who?"));
    assert_eq!(broker.stats().logins_failed, 2);
    assert_eq!(broker.stats().connects_refused_failed_logins, 2);
}

/// Abuse C16: data that are no message of the method guess nothing, and lock nobody out whom CONNECT names.
#[test]
fn c16_an_exchange_that_ends_before_its_first_challenge_does_not_count_for_the_user_of_connect() {
    let mut config = single();
    config.failed_logins.per_minute = 2;
    let broker = start_with(config, naming());

    for _ in 0..4 {
        let refused = v5("guesser").method("m", "").username("user");
        assert_eq!(refused.refused(&broker), 0x87);
    }

    assert_eq!(broker.stats().logins_failed, 4);
    let user = v5("device").method("m", "user").username("user");
    assert_eq!(user.dial(&broker).receive(), step("who?"));
}

/// Abuse C16: a client guesses for another user when it authenticates again.
#[test]
fn c16_guesses_of_a_re_authentication_count_for_the_user_that_the_exchange_names() {
    let mut config = single();
    config.failed_logins.per_minute = 2;
    let broker = start_with(config, naming());
    for id in ["a", "b", "c"] {
        let mut client = v5(id).method("m", id).username(id).dial(&broker);
        assert_eq!(client.receive(), step("who?"));
        client.auth(CONTINUE, "right");
        client.expect_welcome();
        client.auth(AGAIN, "user");
        if id == "c" {
            client.until_closed();
            assert_eq!(client.reason_string(), "too many failed logins");
            break;
        }
        assert_eq!(client.receive(), step("who?"));
        client.auth(CONTINUE, "wrong");
        client.until_closed();
    }

    let refused = |user: &str| {
        v5("stranger")
            .method("m", user)
            .username(user)
            .refused(&broker)
    };
    assert_eq!(refused("user"), 0x8A);
    let own = v5("a")
        .method("m", "a")
        .username("a")
        .dial(&broker)
        .receive();
    assert_eq!(own, step("who?"), "its own user has no failures");
}

#[test]
fn another_exchange_before_the_end_of_one_is_a_protocol_error() {
    let broker = start_with(single(), guarded(everything));
    let mut client = let_in(&broker, &hello());
    client.auth(AGAIN, "");
    client.receive();

    client.auth(AGAIN, "");

    let told = client.until_closed();
    assert_eq!(told, [Received::Disconnect(ReasonCode::PROTOCOL_ERROR)]);
}

#[test]
fn a_client_that_begins_again_and_stops_there_is_disconnected() {
    let config = Config {
        connect_deadline: Duration::from_millis(200),
        ..single()
    };
    let broker = start_with(config, guarded(everything));
    let mut client = let_in(&broker, &hello());

    client.auth(AGAIN, "");

    assert_eq!(client.receive(), step("who?"));
    let told = client.until_closed();
    assert_eq!(told, [Received::Disconnect(ReasonCode::NOT_AUTHORIZED)]);
    assert_eq!(client.reason_string(), "authentication timed out");
}

#[test]
fn a_plugin_that_fails_when_asked_again_disconnects_with_0x83() {
    let plugin = Plugin::default().method("m", |said, reply| {
        if !said.opening.again {
            reply.send(end(allow(Grant::everything()), ""));
        }
    });
    let broker = start_with(single(), plugin);
    let mut client = hello().connect(&broker);

    client.auth(AGAIN, "");

    let told = client.until_closed();
    let failed = ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR;
    assert_eq!(told, [Received::Disconnect(failed)]);
}

/// The new grant counts, and what it no longer covers is gone.
#[test]
fn the_new_grant_takes_the_place_of_the_old_one() {
    let reduced = |said: &Said| {
        allow(if said.opening.again {
            Grant {
                subscribe: vec!["kept".into()],
                ..Grant::default()
            }
        } else {
            Grant::everything()
        })
    };
    let broker = start_with(single(), guarded(reduced));
    let mut client = let_in(&broker, &hello());
    client.try_subscribe("kept", QoS::AtMostOnce);
    client.try_subscribe("lost", QoS::AtMostOnce);
    client.auth(AGAIN, "");
    client.receive();
    client.auth(CONTINUE, "right");
    client.receive();

    let published = client.publish_acknowledged("kept", "x");
    let mut other = v5("two").connect(&broker);
    let lost = other.publish_acknowledged("lost", "x");
    let kept = other.publish_acknowledged("kept", "y");

    assert_eq!(published, ReasonCode::NOT_AUTHORIZED);
    assert_eq!(lost, ReasonCode::NO_MATCHING_SUBSCRIBERS);
    assert_eq!(kept, ReasonCode::SUCCESS);
    assert!(matches!(client.receive(), Received::Publish(message) if message.text() == "y"));
}

/// It is what authenticating again is for.
#[test]
fn authenticating_again_in_time_keeps_a_client_whose_grant_ends() {
    let ending = |said: &Said| {
        let lasting = Duration::from_millis(if said.opening.again { 3_600_000 } else { 700 });
        allow(Grant {
            expires_at: Some(SystemTime::now() + lasting),
            ..Grant::everything()
        })
    };
    let broker = start_with(single(), guarded(ending));
    let mut renewed = let_in(&broker, &hello());
    let mut other = let_in(&broker, &v5("two").method("m", ""));

    renewed.auth(AGAIN, "");
    renewed.receive();
    renewed.auth(CONTINUE, "right");
    renewed.receive();

    let told = other.until_closed();
    assert_eq!(
        told,
        [Received::Disconnect(ReasonCode::MAXIMUM_CONNECT_TIME)]
    );
    renewed.ping();
}

#[test]
fn a_new_allowance_counts_at_once() {
    let slower = |said: &Said| {
        allow(Grant {
            limits: GrantLimits {
                messages_per_second: said.opening.again.then_some(1),
                ..GrantLimits::default()
            },
            ..Grant::everything()
        })
    };
    let broker = start_with(single(), guarded(slower));
    let mut client = let_in(&broker, &hello());
    client.publish_numbers("a", QoS::AtLeastOnce, 100);
    client.auth(AGAIN, "");
    client.receive();
    client.auth(CONTINUE, "right");
    client.receive();

    let begun = Instant::now();
    client.publish_numbers("a", QoS::AtLeastOnce, 3);

    assert!(begun.elapsed() >= Duration::from_millis(500));
}

/// The wait for the old allowance ends with it: unread packets are read nevertheless, and use the rate limit.
#[test]
fn a_client_that_was_held_back_is_read_on_after_it_authenticated_again() {
    let (broker, turns) = talking();
    let slow = || {
        allow(Grant {
            limits: GrantLimits {
                messages_per_second: Some(10),
                ..GrantLimits::default()
            },
            ..Grant::everything()
        })
    };
    let mut client = hello().dial(&broker);
    let (_, reply) = turns.recv_timeout(DEADLINE).expect("asked");
    reply.send(end(slow(), ""));
    client.expect_welcome();
    let mut subscriber = v5("subscriber").connect(&broker);
    subscriber.subscribe("a", QoS::AtMostOnce);
    client.auth(AGAIN, "");
    let (_, reply) = turns.recv_timeout(DEADLINE).expect("asked again");
    let begun = Instant::now();
    let burst = client.numbered("a", QoS::AtMostOnce, 0..25);
    client.send_bytes(&burst);
    assert_eq!(subscriber.take_message().number(), 0);

    reply.send(end(slow(), ""));

    assert!(matches!(client.receive(), Received::Auth(..)));
    for number in 1..25 {
        assert_eq!(subscriber.take_message().number(), number);
    }
    // One second's worth is free, once.
    assert!(begun.elapsed() >= Duration::from_secs(1));
    client.ping();
}

/// Queued messages of a session are for the user that it belongs to.
#[test]
fn nobody_becomes_somebody_else() {
    let other = |said: &Said| LoginDecision::Allow {
        grant: Box::new(Grant::everything()),
        username: Some(if said.opening.again { "eve" } else { "ann" }.into()),
        user_properties: Vec::new(),
    };
    let broker = start_with(single(), guarded(other));
    let mut client = let_in(&broker, &hello());
    client.auth(AGAIN, "");
    client.receive();

    client.auth(CONTINUE, "right");

    let told = client.until_closed();
    assert_eq!(told, [Received::Disconnect(ReasonCode::NOT_AUTHORIZED)]);
}

#[test]
fn a_client_that_leaves_while_it_authenticates_again_abandons_its_question() {
    let (broker, turns) = talking();
    let mut client = hello().dial(&broker);
    let (_, reply) = turns.recv_timeout(DEADLINE).expect("asked");
    reply.send(end(allow(Grant::everything()), ""));
    client.expect_welcome();
    client.auth(AGAIN, "");
    let (_, reply) = turns.recv_timeout(DEADLINE).expect("asked");

    client.vanish();

    eventually("the reply is abandoned", || reply.is_abandoned());
}

/// A reload may take a method away.
#[test]
fn a_method_that_is_gone_disconnects_a_client_that_authenticates_again() {
    let broker = start_with(single(), guarded(everything));
    let mut client = let_in(&broker, &hello());
    let hooks: std::sync::Arc<dyn mqttcore_broker::Hooks> = std::sync::Arc::new(Plugin::default());
    broker.reload(&single(), hooks).expect("reloaded");

    client.auth(AGAIN, "");

    let told = client.until_closed();
    let gone = ReasonCode::BAD_AUTHENTICATION_METHOD;
    assert_eq!(told, [Received::Disconnect(gone)]);
}

fn refusal(reason: ReasonCode) -> Received {
    Received::ConnAck {
        session_present: false,
        reason,
    }
}

/// What a plugin is still asked about is judged by the grant that is in force when it answers.
#[test]
fn rights_that_end_while_a_plugin_thinks_are_not_used_afterwards() {
    let about = [(Action::Subscribe, "ask/#"), (Action::Publish, "ask/#")];
    let (asked, questions) = channel();
    let (said, turns) = channel();
    let plugin = Plugin::default()
        .method("m", move |what, reply| {
            let _ = said.send((what, reply));
        })
        .authorize(&about, move |ask, reply| {
            let _ = asked.send((ask, reply));
        });
    let broker = start_with(single(), plugin);
    let conclude = |grant: Grant| {
        let (_, reply) = turns.recv_timeout(DEADLINE).expect("asked");
        reply.send(end(allow(grant), "welcome"));
    };
    let mut client = hello().dial(&broker);
    conclude(Grant {
        subscribe: vec!["free/#".into()],
        ..Grant::default()
    });
    client.expect_welcome();

    client.auth(AGAIN, "hello");
    client.send_subscribe(&["free/a", "ask/a", "ask/b"], QoS::AtMostOnce);
    let (_, first) = questions.recv_timeout(DEADLINE).expect("asked");
    conclude(Grant {
        deny: vec!["ask/b".into()],
        ..Grant::default()
    });
    let again = client.receive();
    first.send(AuthorizeDecision::Allow);
    let (_, second) = questions.recv_timeout(DEADLINE).expect("asked");
    second.send(AuthorizeDecision::Allow);

    assert_eq!(
        again,
        Received::Auth(ReasonCode::SUCCESS, fields("welcome"))
    );
    let refused = ReasonCode::NOT_AUTHORIZED;
    let granted = ReasonCode::SUCCESS;
    let Received::SubAck(_, reasons) = client.receive() else {
        panic!("no SUBACK");
    };
    assert_eq!(reasons, [refused, granted, refused]);
}

/// The same of a message that waits for the plugin's word.
#[test]
fn a_message_is_not_published_where_its_client_may_no_longer() {
    let (asked, questions) = channel();
    let (said, turns) = channel();
    let plugin = Plugin::default()
        .method("m", move |what, reply| {
            let _ = said.send((what, reply));
        })
        .authorize(&[(Action::Publish, "ask/#")], move |ask, reply| {
            let _ = asked.send((ask, reply));
        });
    let broker = start_with(single(), plugin);
    let conclude = |grant: Grant| {
        let (_, reply) = turns.recv_timeout(DEADLINE).expect("asked");
        reply.send(end(allow(grant), "welcome"));
    };
    let mut client = hello().dial(&broker);
    conclude(Grant::default());
    client.expect_welcome();

    client.auth(AGAIN, "hello");
    let id = client.publish("ask/a", "1", QoS::AtLeastOnce);
    let (_, reply) = questions.recv_timeout(DEADLINE).expect("asked");
    conclude(Grant {
        deny: vec!["ask/#".into()],
        ..Grant::default()
    });
    let again = client.receive();
    reply.send(AuthorizeDecision::Allow);

    assert_eq!(
        again,
        Received::Auth(ReasonCode::SUCCESS, fields("welcome"))
    );
    let refused = ReasonCode::NOT_AUTHORIZED;
    assert_eq!(client.receive(), Received::PubAck(id, refused));
}
