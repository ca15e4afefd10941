//! Which clients a list has, or an operation changes.

use std::time::{Duration, Instant};

use mqttcore_codec::ProtocolVersion;

use crate::clients::client::Client;
use crate::config::Network;

/// Conditions for clients. `None` matches all.
#[derive(Clone, Debug, Default)]
pub struct ClientFilter {
    /// A part of the client identifier.
    pub id_contains: Option<String>,
    /// Whether it has a connection.
    pub connected: Option<bool>,
    /// The user name.
    pub username: Option<String>,
    /// A network that contains its address.
    pub network: Option<Network>,
    /// Protocol version.
    pub version: Option<ProtocolVersion>,
    /// Name of the listener.
    pub listener: Option<String>,
    /// Minimum number of queued messages.
    pub min_queued: usize,
    /// Minimum number of messages in flight.
    pub min_in_flight: usize,
    /// Offline for at least this time.
    pub min_away: Option<Duration>,
    /// Ends within this time, if it stays offline.
    pub expires_within: Option<Duration>,
}

impl ClientFilter {
    pub(super) fn covers(&self, client: &Client, now: Instant) -> bool {
        let contained = |part: &String| client.id.contains(part.as_str());
        self.id_contains.as_ref().is_none_or(contained)
            && self
                .connected
                .is_none_or(|wanted| wanted == client.is_online())
            && self.covers_login(client)
            && self.covers_session(client)
            && self.covers_times(client, now)
    }

    fn covers_login(&self, client: &Client) -> bool {
        if self.username.is_none() && self.network.is_none() && self.listener.is_none() {
            return true;
        }
        let login = client.login();
        let in_network = |network: &Network| {
            let address = login.peer.ip().filter(|_| client.was_here());
            address.is_some_and(|address| network.contains(address))
        };
        let is_user = |name: &String| login.username.as_deref() == Some(name.as_str());
        self.username.as_ref().is_none_or(is_user)
            && self.network.as_ref().is_none_or(in_network)
            && self
                .listener
                .as_ref()
                .is_none_or(|name| **name == *login.listener)
    }

    fn covers_session(&self, client: &Client) -> bool {
        let session = client.session.borrow();
        session.queued() >= self.min_queued
            && session.in_flight() >= self.min_in_flight
            && self
                .version
                .is_none_or(|version| version == session.version())
    }

    fn covers_times(&self, client: &Client, now: Instant) -> bool {
        let session = client.session.borrow();
        let is_away = |wanted: Duration| {
            let since = session.away_since();
            since.is_some_and(|since| now.saturating_duration_since(since) >= wanted)
        };
        let expires = |wanted: Duration| {
            let at = session.expires_at();
            at.is_some_and(|at| at.saturating_duration_since(now) <= wanted)
        };
        self.min_away.is_none_or(is_away) && self.expires_within.is_none_or(expires)
    }
}
