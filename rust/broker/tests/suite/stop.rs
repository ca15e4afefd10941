//! The end of a broker: everybody is told, nobody can hold it up, nothing stays bound.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use mqttcore_broker::{Broker, Config, Listener, PublishError, StartError};
use mqttcore_codec::{Properties, QoS, ReasonCode};

use crate::common::{
    Client, DEADLINE, Plugin, Received, config, config_with_limits, eventually, start, start_with,
    v3, v5, within,
};

const GOODBYE: Received = Received::Disconnect(ReasonCode::SERVER_SHUTTING_DOWN);

fn config_at(address: SocketAddr) -> Config {
    let mut config = config();
    config.listeners[0].address = address.into();
    config
}

/// What one try to start says.
fn try_start(config: Config) -> Result<Broker, StartError> {
    let hooks: Arc<dyn mqttcore_broker::Hooks> = Arc::new(Plugin::default());
    Broker::start(config, &hooks)
}

/// Stops with a deadline, and fails when the stop does not keep it, on the slowest machine.
fn stop(broker: Broker, deadline: Duration) {
    within(deadline + DEADLINE, "stop", move || broker.stop(deadline));
}

/// Stops, and fails when something holds that up: the stop has no deadline that could end it.
fn stop_unhindered(broker: Broker) {
    const FAR: Duration = Duration::from_secs(3_600);
    within(DEADLINE, "stop", move || broker.stop(FAR));
}

/// [MQTT-3.14.4-3]: every shard tells its clients (docs/decisions.md, 16).
#[test]
fn every_v5_client_is_told_that_the_broker_stops() {
    let broker = start(config());
    let clients: Vec<Client> = (0..16)
        .map(|index| v5(&format!("client-{index}")).connect(&broker))
        .collect();

    let stopping = thread::spawn(move || stop_unhindered(broker));

    for mut client in clients {
        assert_eq!(client.until_closed(), [GOODBYE]);
    }
    stopping.join().expect("stopped");
}

#[test]
fn a_3_1_1_client_is_closed_without_a_disconnect() {
    let broker = start(config());
    let mut client = v3("one").connect(&broker);

    stop(broker, DEADLINE);

    assert_eq!(client.until_closed(), []);
}

#[test]
fn acknowledged_messages_are_delivered_before_the_disconnect_of_a_stop() {
    let broker = start(config());
    let mut subscriber = v5("subscriber").connect(&broker);
    subscriber.subscribe("a", QoS::AtMostOnce);
    let mut publisher = v5("publisher").connect(&broker);
    for number in 0..20 {
        publisher.publish_acknowledged("a", number.to_string());
    }

    let stopping = thread::spawn(move || stop(broker, DEADLINE));

    for number in 0..20 {
        assert_eq!(subscriber.message().number(), number);
    }
    assert_eq!(subscriber.until_closed(), [GOODBYE]);
    publisher.until_closed();
    stopping.join().expect("stopped");
}

#[test]
fn every_will_reaches_all_connected_subscribers_whatever_their_shard() {
    const MORTALS: usize = 4;
    let broker = start(Config {
        shards: 4,
        ..config()
    });
    let heirs: Vec<Client> = (0..16)
        .map(|index| {
            let mut heir = v5(&format!("heir-{index}")).connect(&broker);
            heir.subscribe("will", QoS::AtMostOnce);
            heir
        })
        .collect();
    let _mortals: Vec<Client> = (0..MORTALS)
        .map(|index| {
            let id = format!("mortal-{index}");
            v5(&id).will("will", "at the end").connect(&broker)
        })
        .collect();

    let stopping = thread::spawn(move || stop(broker, DEADLINE));

    for mut heir in heirs {
        for _ in 0..MORTALS {
            assert_eq!(heir.message().text(), "at the end");
        }
        assert_eq!(heir.until_closed(), [GOODBYE]);
    }
    stopping.join().expect("stopped");
}

#[test]
fn a_client_that_leaves_meanwhile_does_not_hold_up_the_stop() {
    for _ in 0..20 {
        let broker = start(Config {
            shards: 2,
            ..config()
        });
        for index in 0..4 {
            v5(&format!("client-{index}")).connect(&broker).vanish();
        }

        stop_unhindered(broker);
    }
}

/// Abuse H01: a client that takes nothing cannot hold up the end.
#[test]
fn a_client_that_reads_nothing_does_not_hold_up_the_stop() {
    let broker = start(config_with_limits(|limits| {
        limits.qos0_backlog_bytes = 16 << 20;
    }));
    let mut stalled = v5("stalled").small_buffer().connect(&broker);
    stalled.subscribe("flood", QoS::AtMostOnce);
    let mut publisher = v5("publisher").connect(&broker);
    for _ in 0..12 {
        publisher.publish("flood", vec![0; 1_000_000], QoS::AtMostOnce);
    }
    publisher.ping();

    stop(broker, Duration::from_millis(500));
}

#[test]
fn half_open_handshakes_do_not_hold_up_the_stop() {
    let (plugin, logins) = Plugin::logins();
    let broker = start_with(config(), plugin);
    let address = broker.addresses()[0];
    let mut silent: Vec<Client> = (0..4).map(|_| v5("").open(address)).collect();
    let mut halfway = v5("halfway").open(address);
    halfway.send_bytes(&v5("halfway").bytes()[..5]);
    let mut waiting = v5("waiting").username("user").dial(&broker);
    let (_, reply) = logins.recv_timeout(DEADLINE).expect("asked");

    stop_unhindered(broker);

    assert!(reply.is_abandoned());
    silent.push(halfway);
    for client in &mut silent {
        assert_eq!(client.until_closed(), []);
    }
    waiting.until_closed();
}

/// 0x8B is for DISCONNECT alone; whoever comes too late is told 0x88, or nothing.
#[test]
fn a_client_that_comes_while_the_broker_stops_finds_it_unavailable() {
    for _ in 0..20 {
        let broker = start(config());
        let address = broker.addresses()[0];
        let hello = v5("late").bytes();
        let begun = Arc::new(AtomicBool::new(false));
        let comers: Vec<_> = (0..4)
            .map(|_| {
                let (hello, begun) = (hello.clone(), Arc::clone(&begun));
                thread::spawn(move || {
                    let mut answers = Vec::new();
                    while let Ok(mut stream) = TcpStream::connect(address) {
                        let mut head = [0; 4];
                        let answered = stream
                            .write_all(&hello)
                            .and_then(|()| stream.read_exact(&mut head));
                        answers.extend(answered.is_ok().then_some(head[3]));
                        begun.store(true, Ordering::Relaxed);
                    }
                    answers
                })
            })
            .collect();
        eventually("they come", || begun.load(Ordering::Relaxed));

        stop(broker, DEADLINE);

        for comer in comers {
            let answers = comer.join().expect("it ends");
            assert!(
                answers.iter().all(|&reason| reason == 0 || reason == 0x88),
                "{answers:02x?}"
            );
        }
    }
}

#[test]
fn a_stop_under_load_keeps_its_deadline() {
    let broker = start(config());
    let done = Arc::new(AtomicBool::new(false));
    let publishers: Vec<_> = (0..2)
        .map(|index| {
            let mut client = v3(&format!("publisher-{index}")).connect(&broker);
            client.subscribe("load", QoS::AtMostOnce);
            let batch = client.numbered("load", QoS::AtMostOnce, 0..100);
            let done = Arc::clone(&done);
            thread::spawn(move || {
                while !done.load(Ordering::Relaxed) && client.try_send_bytes(&batch) {}
                client.vanish();
            })
        })
        .collect();
    eventually("there is load", || broker.stats().messages_sent > 1_000);

    stop(broker, Duration::from_millis(500));

    done.store(true, Ordering::Relaxed);
    for publisher in publishers {
        publisher.join().expect("the publisher ends");
    }
}

#[test]
fn the_port_is_free_after_the_stop() {
    let broker = start(config());
    let address = broker.addresses()[0];
    let mut client = v5("one").connect(&broker);

    let stopping = thread::spawn(move || stop(broker, DEADLINE));
    client.until_closed();
    stopping.join().expect("stopped");

    let again = start(config_at(address));
    assert_eq!(again.addresses(), [address]);
    v5("one").connect(&again).ping();
}

#[test]
fn a_dropped_broker_has_stopped() {
    let broker = start(config());
    let address = broker.addresses()[0];
    let mut client = v5("one").connect(&broker);

    drop(broker);

    assert_eq!(client.until_closed(), [GOODBYE]);
    assert!(TcpStream::connect(address).is_err());
}

/// Decision 16
#[test]
fn a_second_broker_on_the_same_port_does_not_start() {
    let broker = start(config());
    let address = broker.addresses()[0];

    let Err(error) = try_start(config_at(address)) else {
        panic!("two brokers on one port");
    };

    let StartError::Bind {
        name,
        address: refused,
        error,
    } = error
    else {
        panic!("not about the port: {error}");
    };
    assert_eq!((&*name, refused), ("test", address.into()));
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    v5("one").connect(&broker).ping();
}

#[test]
fn a_broker_that_does_not_start_leaves_nothing_bound() {
    let busy = TcpListener::bind("127.0.0.1:0").expect("a port");
    let free = {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
        socket.local_addr().expect("an address")
    };
    let listener = |address: SocketAddr| Listener {
        address: address.into(),
        ..config().listeners.remove(0)
    };
    let listeners = vec![
        listener(free),
        listener(busy.local_addr().expect("an address")),
    ];

    let refused = try_start(Config {
        listeners,
        ..config()
    });

    assert!(matches!(refused, Err(StartError::Bind { .. })));
    start(config_at(free));
}

#[test]
fn a_grant_that_does_not_compile_does_not_start() {
    let mut config = config();
    let grant = config.listeners[0].anonymous.as_mut().expect("a grant");
    grant.subscribe.push("a/#/b".into());

    assert!(matches!(try_start(config), Err(StartError::Grant { .. })));
}

#[test]
fn every_listener_serves_its_own_address() {
    let mut config = config();
    let second = config.listeners[0].clone();
    config.listeners.push(second);
    let broker = start(config);

    for &address in broker.addresses() {
        let mut client = v5(&address.port().to_string()).open(address);
        client.send_bytes(&v5(&address.port().to_string()).bytes());
        client.expect_welcome();
        client.disconnect();
    }

    assert_eq!(broker.addresses().len(), 2);
}

#[test]
fn a_stopped_broker_answers_at_once_that_it_is_stopped() {
    let broker = start(config());
    let _client = v5("one").connect(&broker);
    broker.stop(DEADLINE);

    broker.stop(DEADLINE);
    let published = broker.publish("a", b"", QoS::AtMostOnce, false, Properties::EMPTY);

    assert_eq!(published, Err(PublishError::Stopped));
    assert!(!broker.disconnect("one", ReasonCode::ADMINISTRATIVE_ACTION));
    assert!(broker.clients().is_empty());
}
