//! Reason strings: refusals say why to clients that ask and have room, successes say nothing.

use std::sync::Arc;

use mqttcore_broker::{Action, AuthorizeDecision, Broker, Config, Grant, LoginDecision};
use mqttcore_codec::{QoS, ReasonCode};
use mqttcore_session::ServerLimits;

use crate::common::{Plugin, Received, allow, config, start, start_with, v5};

/// Everything is asked about, and refused in these words.
fn refusing(text: &str) -> Broker {
    let text = text.to_owned();
    let about = [(Action::Publish, "#"), (Action::Subscribe, "#")];
    let plugin = Plugin::default()
        .authenticate(|_, reply| {
            reply.send(allow(Grant::default()));
        })
        .authorize(&about, move |_, reply| {
            reply.send(AuthorizeDecision::Deny {
                reason: ReasonCode::NOT_AUTHORIZED,
                text: Some(text.clone()),
            });
        });
    start_with(config(), plugin)
}

/// Nobody may do anything, and no plugin is asked.
fn closed() -> Broker {
    let plugin = Plugin::default().authenticate(|_, reply| {
        reply.send(allow(Grant::default()));
    });
    start_with(config(), plugin)
}

#[test]
fn reason_strings_of_plugins_are_in_puback_pubrec_and_suback() {
    let broker = refusing("after hours");
    let mut client = v5("one").username("user").connect(&broker);

    let puback = client.publish_acknowledged("a", "");
    let first = client.reason_string();
    client.publish("a", "", QoS::ExactlyOnce);
    let pubrec = client.receive();
    let second = client.reason_string();
    let suback = client.try_subscribe("a", QoS::AtMostOnce);

    assert_eq!(
        (puback, &*first),
        (ReasonCode::NOT_AUTHORIZED, "after hours")
    );
    assert!(matches!(
        pubrec,
        Received::PubRec(_, ReasonCode::NOT_AUTHORIZED)
    ));
    assert_eq!(second, "after hours");
    assert_eq!(suback, ReasonCode::NOT_AUTHORIZED);
    assert_eq!(client.reason_string(), "after hours");
}

#[test]
fn reason_strings_of_plugins_are_in_connack() {
    let plugin = Plugin::default().authenticate(|_, reply| {
        reply.send(LoginDecision::Deny {
            reason: ReasonCode::BANNED,
            text: Some("until Monday".into()),
        });
    });
    let broker = start_with(config(), plugin);
    let mut client = v5("one").username("user").dial(&broker);

    client.until_closed();

    assert_eq!(client.reason_string(), "until Monday");
}

#[test]
fn reason_strings_of_plugins_are_in_disconnect() {
    let plugin = Plugin::default()
        .authenticate(|_, reply| {
            reply.send(allow(Grant::default()));
        })
        .authorize(&[(Action::Publish, "#")], |_, reply| {
            reply.send(AuthorizeDecision::Disconnect {
                reason: ReasonCode::ADMINISTRATIVE_ACTION,
                text: Some("go away".into()),
            });
        });
    let broker = start_with(config(), plugin);
    let mut client = v5("one").username("user").connect(&broker);

    client.publish("a", "", QoS::AtMostOnce);

    let told = client.until_closed();
    let reason = ReasonCode::ADMINISTRATIVE_ACTION;
    assert_eq!(told, [Received::Disconnect(reason)]);
    assert_eq!(client.reason_string(), "go away");
}

#[test]
fn refusals_of_the_broker_itself_have_reason_strings() {
    let broker = closed();
    let mut client = v5("one").username("user").connect(&broker);

    client.publish_acknowledged("a", "");
    let publish = client.reason_string();
    client.try_subscribe("a", QoS::AtMostOnce);
    let subscribe = client.reason_string();

    assert_eq!(publish, "not allowed to publish to this topic");
    assert_eq!(subscribe, "not allowed to subscribe to this filter");
}

#[test]
fn successes_say_nothing() {
    let broker = start(config());
    let mut client = v5("one").connect(&broker);
    let mut said = vec![client.reason_string()];

    client.try_subscribe("a", QoS::AtMostOnce);
    said.push(client.reason_string());
    client.publish_acknowledged("b", "");
    said.push(client.reason_string());

    assert_eq!(said, ["", "", ""]);
}

/// [MQTT-3.1.2-29]
#[test]
fn mqtt_3_1_2_29_a_client_that_does_not_ask_gets_no_reason_string() {
    let broker = refusing("after hours");
    let mut client = v5("one")
        .username("user")
        .without_problem_information()
        .connect(&broker);

    client.publish_acknowledged("a", "");
    let puback = client.reason_string();
    client.try_subscribe("a", QoS::AtMostOnce);

    assert_eq!((&*puback, &*client.reason_string()), ("", ""));
}

/// [MQTT-3.4.2-2], [MQTT-3.9.2-1] The code comes all the same.
#[test]
fn mqtt_3_4_2_2_a_reason_string_that_does_not_fit_is_left_out() {
    let broker = refusing(&"why ".repeat(100));
    let mut client = v5("one")
        .username("user")
        .maximum_packet_size(400)
        .connect(&broker);

    let puback = client.publish_acknowledged("a", "");
    let suback = client.try_subscribe("a", QoS::AtMostOnce);

    assert_eq!(puback, ReasonCode::NOT_AUTHORIZED);
    assert_eq!(suback, ReasonCode::NOT_AUTHORIZED);
    assert_eq!(client.reason_string(), "");
}

/// [MQTT-3.2.2-19] The refusal of a CONNECT obeys the limit that it names.
#[test]
fn mqtt_3_2_2_19_a_refusal_without_room_for_a_reason_string_has_none() {
    let broker = start(config());
    let mut client = v5("one")
        .method("m", "")
        .maximum_packet_size(20)
        .dial(&broker);

    let told = client.until_closed();

    let reason = ReasonCode::BAD_AUTHENTICATION_METHOD;
    let session_present = false;
    assert_eq!(
        told,
        [Received::ConnAck {
            session_present,
            reason
        }]
    );
    assert_eq!(client.reason_string(), "");
}

#[test]
fn a_violation_has_a_reason_string() {
    let broker = start(config());
    let mut client = v5("one").connect(&broker);

    client.send_bytes(b"\x32\x07\x00\x02\x61\x2b\x00\x01\x00");

    let told = client.until_closed();
    let reason = ReasonCode::TOPIC_NAME_INVALID;
    assert_eq!(told, [Received::Disconnect(reason)]);
    assert_eq!(client.reason_string(), "topic name is not valid");
}

#[test]
fn a_takeover_has_a_reason_string() {
    let broker = start(config());
    let mut first = v5("one").connect(&broker);

    let _second = v5("one").connect(&broker);

    let told = first.until_closed();
    let reason = ReasonCode::SESSION_TAKEN_OVER;
    assert_eq!(told, [Received::Disconnect(reason)]);
    assert_eq!(
        first.reason_string(),
        "another connection took the session over"
    );
}

#[test]
fn a_filter_too_many_has_a_reason_string() {
    let limits = ServerLimits {
        subscriptions: 1,
        ..ServerLimits::default()
    };
    let broker = start(Config {
        limits: Arc::new(limits),
        ..config()
    });
    let mut client = v5("one").connect(&broker);
    client.try_subscribe("a", QoS::AtMostOnce);

    let reason = client.try_subscribe("b", QoS::AtMostOnce);

    assert_eq!(reason, ReasonCode::QUOTA_EXCEEDED);
    assert_eq!(client.reason_string(), "too many subscriptions");
}
