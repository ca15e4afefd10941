//! Bans by operators outlive the broker.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use mqttcore_broker::{
    Ban, BanReason, BanTarget, Broker, Config, FlappingLimits, Grant, SessionPolicy, Takeover,
};
use mqttcore_store::files::{Files, Folder};
use mqttcore_store::{DurableStore, Store, StoreOptions};

use crate::common::{Hello, Home, Plugin, allow, config, start, start_with, v5};

const HOUR: Duration = Duration::from_secs(3_600);

fn id(text: &str) -> BanTarget {
    BanTarget::ClientId(text.into())
}

/// The bans in force, by target.
fn bans(broker: &Broker) -> Vec<Ban> {
    let mut bans = broker.bans();
    bans.sort_by_key(|ban| format!("{:?}", ban.target));
    bans
}

#[test]
fn bans_outlive_the_broker_with_their_reasons_and_their_ends() {
    let home = Home::new();
    let first = home.start(0);
    first
        .ban(
            id("a/b"),
            BanReason::new("hostile".to_owned(), "user 7"),
            None,
        )
        .expect("banned");
    first
        .ban(BanTarget::Username("joe".into()), "left".into(), Some(HOUR))
        .expect("banned");
    let network = BanTarget::Network("192.0.2.0/24".parse().expect("a network"));
    first.ban(network.clone(), "".into(), None).expect("banned");
    let pattern = BanTarget::ClientIdPattern(r"bot-\d+".parse().expect("a pattern"));
    first
        .ban(pattern.clone(), "bots".into(), None)
        .expect("banned");
    first
        .ban(id("lifted"), "by mistake".into(), None)
        .expect("banned");
    assert!(first.unban(&id("lifted")));

    let second = home.crash(first, 0);

    let [of_id, of_ids, of_network, of_user] = bans(&second).try_into().expect("four bans");
    assert_eq!((of_ids.target, of_ids.reason), (pattern, "bots".into()));
    assert_eq!(v5("bot-7").refused(&second), 0x8A);
    v5("no bot-7").connect(&second).ping();
    assert_eq!(
        (of_id.target, of_id.reason),
        (id("a/b"), BanReason::new("hostile".to_owned(), "user 7"))
    );
    assert_eq!((of_network.target, of_network.remaining), (network, None));
    assert_eq!(of_user.target, BanTarget::Username("joe".into()));
    let remaining = of_user.remaining.expect("an end");
    assert!(remaining <= HOUR && remaining > HOUR / 2, "{remaining:?}");
    assert_eq!(v5("a/b").refused(&second), 0x8A);
    v5("lifted").connect(&second).ping();
    assert!(second.unban(&id("a/b")));
    let third = home.crash(second, 1);
    v5("a/b").connect(&third).ping();
    assert_eq!(bans(&third).len(), 3);
}

/// Keys of the notes about bans in the store in `folder`.
fn noted(folder: &Path) -> Vec<String> {
    let files: Arc<dyn Files> = Arc::new(Folder::open(folder).expect("a folder"));
    let (store, _) = DurableStore::open(&files, &StoreOptions::default()).expect("a store");
    let mut keys = Vec::new();
    let notes = store.notes(&mut |key, _| keys.push(key.to_owned()));
    notes.expect("notes");
    keys.retain(|key| key.starts_with("ban/"));
    keys
}

#[test]
fn the_next_ban_removes_those_that_have_ended_from_the_store() {
    let home = Home::new();
    let broker = home.start(0);
    let network = BanTarget::Network("192.0.2.0/24".parse().expect("a network"));
    broker
        .ban(id("ended"), "".into(), Some(Duration::ZERO))
        .expect("banned");
    broker
        .ban(network, "".into(), Some(Duration::ZERO))
        .expect("banned");

    broker
        .ban(id("in force"), "".into(), Some(HOUR))
        .expect("banned");

    drop(broker);
    assert_eq!(noted(&home.folder(0)), ["ban/c/in force"]);
}

fn in_half_an_hour() -> SystemTime {
    SystemTime::now() + HOUR / 2
}

#[test]
fn the_time_that_the_broker_is_down_counts() {
    let home = Home::new();
    let first = home.start(0);
    first
        .ban(id("short"), "".into(), Some(HOUR / 4))
        .expect("banned");
    first
        .ban(id("long"), "".into(), Some(HOUR))
        .expect("banned");

    let later = Config {
        system_time: in_half_an_hour,
        ..config()
    };
    let second = home.crash_with(first, 0, later);

    let [long] = bans(&second).try_into().expect("one ban");
    assert_eq!(long.target, id("long"));
    assert!(long.remaining.expect("an end") <= HOUR / 2);
    v5("short").connect(&second).ping();
}

#[test]
fn a_ban_by_regular_expression_disconnects_replaces_and_is_lifted() {
    let broker = start(config());
    let bots = || BanTarget::ClientIdPattern(r"bot-\d+".parse().expect("a pattern"));
    let mut bot = v5("bot-1").connect(&broker);
    let mut other = v5("robot-1").connect(&broker);

    assert_eq!(broker.ban(bots(), "first".into(), None), Ok(1));
    assert_eq!(bot.until_closed().len(), 1);
    broker.ban(bots(), "second".into(), None).expect("banned");

    other.ping();
    assert_eq!(bans(&broker).len(), 1);
    assert!(broker.unban(&bots()) && !broker.unban(&bots()));
    v5("bot-1").connect(&broker).ping();
}

/// The client `truck-7` of a user; `None`: without user name.
fn truck(username: Option<&str>) -> Hello {
    let hello = v5("truck-7");
    username.map_or(hello.clone(), |name| hello.username(name))
}

/// Abuse C25: nobody bans the identifier of another, whether its owner is connected or not.
#[test]
fn a_user_that_flaps_bans_no_client_identifier_of_others() {
    let home = Home::new();
    let limited = || {
        let mut config = without_exemption();
        config.data = Some(home.data(0));
        config
    };
    let most = FlappingLimits::default().connects_per_minute;
    let (eve, ann, nobody) = (truck(Some("eve")), truck(Some("ann")), truck(None));
    for (hostile, owners) in [(&eve, [&ann, &nobody]), (&nobody, [&ann, &eve])] {
        let broker = start_with(limited(), Plugin::welcoming());
        for _ in 0..most {
            hostile.connect(&broker).disconnect();
        }
        assert_eq!(hostile.refused(&broker), 0x8A);
        assert_eq!(hostile.refused(&broker), 0x8A);

        for owner in owners {
            owner.connect(&broker).disconnect();
        }
        let [ban] = bans(&broker).try_into().expect("one ban");
        assert!(matches!(ban.target, BanTarget::ClientIdOfUser { .. }));
        drop(broker);
        assert_eq!(noted(&home.folder(0)), [""; 0], "it is not kept");
        let broker = start_with(limited(), Plugin::welcoming());
        for anyone in [&eve, &ann, &nobody] {
            anyone.connect(&broker).disconnect();
        }
    }
}

/// Abuse C25: where any user may take over, takeovers between users are limited, and nobody has another banned by them.
#[test]
fn users_that_take_over_from_each_other_are_not_banned_and_the_last_one_stays() {
    let most = FlappingLimits::default().connects_per_minute;
    let broker = start_with(without_exemption(), where_anyone_takes_over());
    let (eve, ann) = (truck(Some("eve")), truck(Some("ann")));
    let mut last = ann.connect(&broker);

    for takeover in 0..most {
        let next = if takeover % 2 == 0 { &eve } else { &ann };
        last = next.connect(&broker);
    }
    for _ in 0..2 * most {
        assert_eq!(ann.refused(&broker), 0x9F);
    }

    last.ping();
    assert!(bans(&broker).is_empty());
    // Connections that replace one of the same user still count.
    for _ in 0..most - 1 {
        last = eve.connect(&broker);
    }
    assert_eq!(eve.refused(&broker), 0x8A);
    last.ping();
}

/// Abuse C25: a client that another user takes over is not banned, though that user leaves at once.
#[test]
fn a_stranger_that_takes_over_and_leaves_is_refused_and_the_owner_is_not() {
    let most = FlappingLimits::default().connects_per_minute;
    let broker = start_with(without_exemption(), where_anyone_takes_over());
    let (eve, ann) = (truck(Some("eve")), truck(Some("ann")));

    let mut owner = ann.connect(&broker);
    for _ in 0..most {
        eve.connect(&broker).disconnect();
        owner = ann.connect(&broker);
    }

    assert_eq!(eve.refused(&broker), 0x9F);
    owner.ping();
    ann.connect(&broker).ping();
}

/// The limits of strangers, but for the rate of connections.
fn without_exemption() -> Config {
    let mut config = config();
    config.address_limits.exempt = Vec::new();
    config.address_limits.connects_per_second = 0;
    config
}

/// Everybody may take over the session of everybody.
fn where_anyone_takes_over() -> Plugin {
    Plugin::default().authenticate(|_, reply| {
        let session = SessionPolicy {
            takeover: Takeover::Anyone,
            ..SessionPolicy::default()
        };
        reply.send(allow(Grant {
            session,
            ..Grant::everything()
        }));
    })
}

#[test]
fn a_ban_for_flapping_is_lifted_by_its_client_identifier() {
    let mut config = config();
    config.address_limits.exempt = Vec::new();
    config.flapping.connects_per_minute = 1;
    let broker = start_with(config, Plugin::welcoming());
    let eve = truck(Some("eve"));
    eve.connect(&broker).disconnect();
    assert_eq!(eve.refused(&broker), 0x8A);

    assert!(broker.unban(&id("truck-7")) && !broker.unban(&id("truck-7")));

    eve.connect(&broker).ping();
}

/// The broker bans an identifier that connects too often, but the client that has it stays connected.
#[test]
fn a_ban_disconnects_no_client_that_only_another_ban_covers() {
    let mut config = config();
    config.address_limits.exempt = Vec::new();
    config.flapping.connects_per_minute = 1;
    let broker = start(config);
    let mut client = v5("c").connect(&broker);
    assert_eq!(v5("c").refused(&broker), 0x8A);

    assert_eq!(broker.ban(id("other"), "".into(), None), Ok(0));

    client.ping();
}

#[test]
fn without_a_data_folder_bans_end_with_the_broker() {
    let first = start(config());
    first.ban(id("a"), "".into(), None).expect("banned");
    drop(first);

    let second = start(config());

    assert!(second.bans().is_empty());
}
