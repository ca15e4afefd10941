//! The sessions of a shard, listed, and a client found by its identifier.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mqttcore_codec::{ProtocolVersion, ReasonCode};
use mqttcore_session::Cause;

use crate::clients::bans::BanTarget;
use crate::clients::client::Client;
use crate::config::Peer;
use crate::shard::Shard;

/// One session, as [`crate::Broker::clients`] lists it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientInfo {
    /// Client identifier.
    pub client_id: Arc<str>,
    /// User name in force.
    pub username: Option<Arc<str>>,
    /// Whether it has a connection now.
    pub connected: bool,
    /// Where it connected from last.
    pub peer: Peer,
    /// Name of the listener that it came through last.
    pub listener: Arc<String>,
    /// Protocol version of its last connection.
    pub version: ProtocolVersion,
    /// Keep-alive that it asked for, in seconds.
    pub keep_alive_s: u16,
    /// How long this connection has lasted; zero without one.
    pub connected_for: Duration,
    /// Filters that it subscribed to, as it wrote them.
    pub subscriptions: Vec<String>,
    /// Messages that wait for it.
    pub queued: usize,
    /// Messages sent to it and not acknowledged.
    pub in_flight: usize,
}

/// Lists the sessions of `shard`.
pub(crate) fn list(shard: &Rc<Shard>) -> Vec<ClientInfo> {
    let since_start = shard.since_start();
    let clients = shard.clients();
    clients
        .iter()
        .map(|client| info(client, since_start))
        .collect()
}

fn info(client: &Client, since_start: Duration) -> ClientInfo {
    let login = client.login();
    let session = client.session.borrow();
    let link = client.link();
    ClientInfo {
        client_id: Arc::clone(&client.id),
        username: login.username.clone(),
        connected: link.is_some(),
        peer: login.peer,
        listener: Arc::clone(&login.listener),
        version: login.version,
        keep_alive_s: login.keep_alive_s,
        connected_for: link.map_or(Duration::ZERO, |link| link.age(since_start)),
        subscriptions: session
            .subscriptions()
            .iter()
            .map(|subscription| subscription.filter.as_str().to_owned())
            .collect(),
        queued: session.queued(),
        in_flight: session.in_flight(),
    }
}

/// Disconnects the clients that a new ban covers; returns how many.
pub(crate) fn disconnect_banned(shard: &Rc<Shard>, target: &BanTarget) -> usize {
    let clients = shard.clients();
    let banned = clients
        .iter()
        .filter(|client| client.is_online() && target.covers(&client.login()));
    let links = banned.filter_map(|client| client.link());
    links
        .map(|link| link.close(Cause::Administrative, ReasonCode::ADMINISTRATIVE_ACTION))
        .count()
}

/// Disconnects the client with this id; false when it has no connection.
pub(crate) fn disconnect(shard: &Rc<Shard>, id: &str, reason: ReasonCode) -> bool {
    let client = shard.find_client(id);
    let Some(link) = client.and_then(|client| client.link()) else {
        return false;
    };
    link.close(Cause::Administrative, reason);
    true
}
