//! Listeners on Unix sockets: permissions, stale and live sockets, and the peer's user as identity.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mqttcore_broker::{
    Broker, Config, Hooks, ListenAddress, Listener, Peer, PeerIdentity, ProxySource, StartError,
    UnixAddress, WebSocketRules,
};

use mqttcore_codec::QoS;

use crate::common::{
    Client, DEADLINE, Hello, Home, Plugin, config, start, start_with, told_logins, v5,
};

fn address(path: &Path) -> UnixAddress {
    UnixAddress {
        path: path.to_owned(),
        mode: 0o660,
        group: None,
    }
}

/// A listener at `path` beside the one of TCP.
fn config_at(path: &Path) -> Config {
    let mut config = config();
    let listener = Listener {
        name: "local".into(),
        address: ListenAddress::Unix(address(path)),
        ..config.listeners[0].clone()
    };
    config.listeners.push(listener);
    config
}

fn socket_in(home: &Home) -> PathBuf {
    home.path().join("mqtt.sock")
}

/// Connects to the socket at `path` and says nothing.
fn open(hello: &Hello, path: &Path) -> Client {
    let stream = UnixStream::connect(path).expect("the broker listens");
    hello.over(TcpStream::from(OwnedFd::from(stream)))
}

fn connect(hello: &Hello, path: &Path) -> Client {
    let mut client = open(hello, path);
    client.send_bytes(&hello.bytes());
    client.expect_welcome();
    client
}

fn own_uid() -> u32 {
    fs::metadata("/proc/self").expect("a process").uid()
}

fn refused(config: Config) -> std::io::Error {
    let hooks: Arc<dyn Hooks> = Arc::new(Plugin::default());
    match Broker::start(config, &hooks) {
        Err(StartError::Bind { error, .. }) => error,
        Err(error) => panic!("not about the socket: {error}"),
        Ok(_) => panic!("started"),
    }
}

/// A listener at `path` for a proxy of the user `uid`.
fn proxied_at(path: &Path, uid: u32) -> Config {
    let mut config = config_at(path);
    config.listeners[1].proxies = vec![ProxySource::Uid(uid)];
    config
}

#[test]
fn i13_a_proxy_of_a_listed_user_says_who_the_client_is() {
    let home = Home::new();
    let path = socket_in(&home);
    let (plugin, logins) = told_logins();
    let _broker = start_with(proxied_at(&path, own_uid()), plugin);
    let hello = v5("c").username("user");
    let mut client = open(&hello, &path);

    client.send_bytes(b"PROXY TCP4 192.0.2.7 192.0.2.9 56324 1883\r\n");
    client.send_bytes(&hello.bytes());

    client.expect_welcome();
    let login = logins.recv_timeout(DEADLINE).expect("a login");
    assert_eq!(
        login.peer,
        Peer::from(SocketAddr::from(([192, 0, 2, 7], 56324)))
    );
}

#[test]
fn i13_a_proxy_of_another_user_and_one_without_a_header_are_refused() {
    let home = Home::new();
    let path = socket_in(&home);
    for (uid, header) in [
        (
            own_uid() + 1,
            "PROXY TCP4 192.0.2.7 192.0.2.9 56324 1883\r\n",
        ),
        (own_uid(), ""),
    ] {
        let broker = start(proxied_at(&path, uid));
        let mut client = open(&v5("c"), &path);

        client.try_send_bytes(header.as_bytes());
        client.try_send_bytes(&v5("c").bytes());

        assert_eq!(client.until_closed(), []);
        assert_eq!(broker.stats().clients_connected, 0);
    }
}

#[test]
fn clients_of_a_unix_socket_and_of_tcp_exchange_messages() {
    let home = Home::new();
    let path = socket_in(&home);
    let broker = start(config_at(&path));
    let mut local = connect(&v5("local"), &path);
    let mut remote = v5("remote").connect(&broker);
    local.subscribe("a", QoS::AtMostOnce);
    remote.subscribe("b", QoS::AtMostOnce);

    remote.publish("a", "to the socket", QoS::AtMostOnce);
    assert_eq!(local.message().text(), "to the socket");
    // Behind it: the broker reads nothing from a client for which so much waits.
    local.publish("b", "x".repeat(500_000), QoS::AtMostOnce);
    assert_eq!(remote.message().payload.len(), 500_000);
    assert_eq!(broker.addresses().len(), 1);
    local.disconnect();
}

#[test]
fn a_plugin_sees_the_user_at_the_other_end() {
    let home = Home::new();
    let path = socket_in(&home);
    for (identity, wanted) in [
        (Some(PeerIdentity::Uid), Some(own_uid().to_string())),
        (None, None),
    ] {
        let (plugin, logins) = told_logins();
        let mut config = config_at(&path);
        config.listeners[1].anonymous = None;
        config.listeners[1].identity = identity;
        let broker = start_with(config, plugin);

        let _client = connect(&v5("c"), &path);

        let login = logins.recv_timeout(DEADLINE).expect("a login");
        assert_eq!(login.peer, Peer::Unix { uid: own_uid() });
        assert_eq!(login.is_certified, wanted.is_some());
        assert_eq!(login.username.as_deref(), wanted.as_deref());
        assert_eq!(broker.clients()[0].peer, login.peer);
    }
}

#[test]
fn the_user_at_the_other_end_beats_the_user_name_in_connect() {
    let home = Home::new();
    let path = socket_in(&home);
    let (plugin, logins) = told_logins();
    let mut config = config_at(&path);
    config.listeners[1].identity = Some(PeerIdentity::Uid);
    let _broker = start_with(config, plugin);

    let _client = connect(&v5("c").username("root"), &path);

    let login = logins.recv_timeout(DEADLINE).expect("a login");
    assert_eq!(login.username.as_deref(), Some(&*own_uid().to_string()));
}

#[test]
fn a_socket_has_its_mode_and_group_and_is_removed_at_the_end() {
    let home = Home::new();
    let path = socket_in(&home);
    let group = fs::metadata("/proc/self").expect("a process").gid();
    let mut config = config_at(&path);
    config.listeners[1].address = ListenAddress::Unix(UnixAddress {
        mode: 0o620,
        group: Some(group),
        ..address(&path)
    });
    let broker = start(config);

    let found = fs::metadata(&path).expect("a socket");
    assert_eq!(found.permissions().mode() & 0o7777, 0o620);
    assert_eq!(found.gid(), group);
    let files = |home: &Home| fs::read_dir(home.path()).expect("a folder").count();
    assert_eq!(files(&home), 1, "nothing else is left in the folder");

    broker.stop(DEADLINE);
    assert_eq!(files(&home), 0);
}

#[test]
fn the_socket_of_a_dead_broker_is_replaced() {
    let home = Home::new();
    let path = socket_in(&home);
    drop(UnixListener::bind(&path).expect("a socket"));
    // A broker that died while it started.
    let left = home.path().join("mqtt.sock.new");
    fs::create_dir(&left).expect("a folder");
    drop(UnixListener::bind(left.join("socket")).expect("a socket"));

    let _broker = start(config_at(&path));

    connect(&v5("c"), &path).ping();
    assert!(!left.exists());
}

#[test]
fn a_socket_that_is_in_use_is_not_replaced() {
    let home = Home::new();
    let path = socket_in(&home);
    let broker = start(config_at(&path));

    let error = refused(config_at(&path));

    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    connect(&v5("c"), &path).ping();
    Broker::check(&config_at(&path)).expect("an address in use passes");
    connect(&v5("c"), &path).ping();
    broker.stop(DEADLINE);
    assert!(!path.exists());
}

#[test]
fn a_process_that_listens_and_does_not_accept_delays_no_start() {
    let home = Home::new();
    let path = socket_in(&home);
    let hung = UnixListener::bind(&path).expect("a socket");
    let full = socket2::SockRef::from(&hung);
    full.listen(0).expect("a short queue");
    let _waiting = UnixStream::connect(&path).expect("the first one waits");

    assert_eq!(refused(config_at(&path)).kind(), ErrorKind::AddrInUse);
}

#[test]
fn a_broker_that_starts_at_the_same_path_at_once_is_refused() {
    let home = Home::new();
    let path = socket_in(&home);
    let folder = home.path().join("mqtt.sock.new");
    fs::create_dir(&folder).expect("a folder");
    let other = fs::File::open(&folder).expect("the folder");
    other.lock().expect("the lock");

    assert_eq!(refused(config_at(&path)).kind(), ErrorKind::AddrInUse);
    assert!(folder.exists());
}

#[test]
fn a_file_that_is_no_socket_is_not_replaced() {
    let home = Home::new();
    let path = socket_in(&home);
    fs::write(&path, "a file").expect("written");

    assert_eq!(refused(config_at(&path)).kind(), ErrorKind::AlreadyExists);

    assert_eq!(fs::read(&path).expect("still there"), b"a file");
}

#[test]
fn a_broker_that_ends_does_not_remove_the_socket_of_another() {
    let home = Home::new();
    let path = socket_in(&home);
    let broker = start(config_at(&path));
    fs::remove_file(&path).expect("somebody removes it");
    let _other = UnixListener::bind(&path).expect("and listens there");

    broker.stop(DEADLINE);

    assert!(path.exists());
}

#[test]
fn a_check_leaves_no_socket_behind() {
    let home = Home::new();
    let path = socket_in(&home);

    Broker::check(&config_at(&path)).expect("valid");

    assert!(!path.exists());
}

#[test]
fn a_path_may_be_longer_than_that_of_a_socket() {
    let home = Home::new();
    let folder = home.path().join("f".repeat(120));
    fs::create_dir(&folder).expect("a folder");
    let broker = start(config_at(&folder.join("mqtt.sock")));

    // A client that is in the folder needs no long path.
    let open = fs::File::open(&folder).expect("the folder");
    let short = format!(
        "/proc/self/fd/{}/mqtt.sock",
        std::os::fd::AsRawFd::as_raw_fd(&open)
    );
    connect(&v5("c"), Path::new(&short)).ping();

    assert_eq!(
        refused(config_at(&folder.join("mqtt.sock"))).kind(),
        ErrorKind::AddrInUse
    );
    broker.stop(DEADLINE);
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 0);
}

#[test]
fn a_client_that_is_refused_hears_why_before_the_end() {
    let home = Home::new();
    let path = socket_in(&home);
    let mut config = config_at(&path);
    config.listeners[1].anonymous = None;
    let _broker = start(config);

    let mut client = open(&v5("c"), &path);
    client.send_bytes(&v5("c").bytes());

    assert_eq!(client.until_closed().len(), 1);
}

#[test]
fn web_sockets_are_served_on_unix_sockets() {
    let home = Home::new();
    let path = socket_in(&home);
    let mut config = config_at(&path);
    config.listeners[1].websocket = Some(WebSocketRules {
        path: "/mqtt".into(),
        origins: Vec::new(),
    });
    let _broker = start(config);

    let mut stream = UnixStream::connect(&path).expect("the broker listens");
    let request = "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Protocol: mqtt\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("sent");
    let mut line = [0; 12];
    stream.read_exact(&mut line).expect("an answer");
    assert_eq!(&line, b"HTTP/1.1 101");
}
