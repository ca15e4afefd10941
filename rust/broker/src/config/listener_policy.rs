//! The policy of one listener: name, transport, protocol versions, and the grant of anonymous clients.

use std::sync::Arc;

use mqttcore_codec::ProtocolVersion;
use mqttcore_store::Durability;
use mqttcore_tls::{TlsError, TlsServer};
use mqttcore_topics::MountPoint;

use crate::config::grants::{Grant, ListenerCaps};
use crate::config::permissions::{CompiledGrant, GrantError};
use crate::config::place::Place;
use crate::config::queue_policy::FullQueuePolicy;
use crate::config::{Config, Listener, Peer, PeerIdentity, ProxySource, WebSocketRules};

/// A listener whose configuration is not valid.
#[derive(Debug)]
pub(crate) struct InvalidListener {
    pub(crate) listener: String,
    pub(crate) error: ListenerError,
}

/// The error in the configuration of a listener.
#[derive(Debug)]
pub(crate) enum ListenerError {
    /// A rule of the anonymous grant is not a valid filter.
    Grant(GrantError),
    /// The TLS files are not valid.
    Tls(TlsError),
}

impl From<GrantError> for ListenerError {
    fn from(error: GrantError) -> Self {
        Self::Grant(error)
    }
}

impl From<TlsError> for ListenerError {
    fn from(error: TlsError) -> Self {
        Self::Tls(error)
    }
}

/// The compiled rules of one listener, shared by all of its connections.
#[derive(Clone)]
pub(crate) struct ListenerPolicy {
    pub(crate) name: Arc<String>,
    pub(crate) anonymous: Option<Arc<CompiledGrant>>,
    /// Durability of its clients' messages and requests.
    pub(crate) durability: Option<Durability>,
    /// Versions of MQTT that it accepts.
    pub(crate) protocol_versions: Box<[ProtocolVersion]>,
    /// Maximum number of connections; 0 means no limit.
    pub(crate) max_connections: usize,
    /// Restrictions on every grant of its clients.
    pub(crate) caps: Arc<ListenerCaps>,
    /// Queue policy for its clients' publishes to kept sessions with a full queue.
    pub(crate) queue_policy: Option<FullQueuePolicy>,
    /// Prefix of its clients' topics.
    pub(crate) mount_point: Option<MountPoint>,
    /// Rules for WebSocket requests; `None`: no WebSocket.
    pub(crate) websocket: Option<Arc<WebSocketRules>>,
    /// Proxies that send a PROXY header; empty: none.
    pub(crate) proxies: Box<[ProxySource]>,
    /// The source of the user name, if it is not CONNECT.
    pub(crate) identity: Option<PeerIdentity>,
    /// The current certificates; `None`: no encryption.
    pub(crate) tls: Option<Arc<TlsServer>>,
}

impl ListenerPolicy {
    /// Whether `peer` is a trusted proxy, which sends a PROXY header.
    pub(crate) fn is_proxy(&self, peer: Peer) -> bool {
        self.proxies.iter().any(|proxy| proxy.covers(peer))
    }

    /// The ALPN protocol name of its connections.
    pub(crate) fn alpn(&self) -> &'static str {
        alpn(self.websocket.is_some())
    }
}

fn alpn(is_websocket: bool) -> &'static str {
    if is_websocket { "http/1.1" } else { "mqtt" }
}

/// The rules of every listener, in the order of the configuration.
pub(crate) struct Compiled {
    pub(crate) policies: Arc<[ListenerPolicy]>,
    /// Lines for the log.
    pub(crate) warnings: Vec<String>,
}

/// Compiles the rules of every listener.
///
/// # Errors
///
/// A rule of the anonymous grant is not a valid filter, or the files are not a valid TLS configuration.
pub(crate) fn listener_policies(config: &Config) -> Result<Compiled, InvalidListener> {
    let mut warnings = Vec::new();
    let policies = config.listeners.iter().map(|listener| {
        let compiled = compile(listener, &mut warnings);
        compiled.map_err(|error| InvalidListener {
            listener: listener.name.clone(),
            error,
        })
    });
    Ok(Compiled {
        policies: policies.collect::<Result<_, _>>()?,
        warnings,
    })
}

fn compile(
    listener: &Listener,
    warnings: &mut Vec<String>,
) -> Result<ListenerPolicy, ListenerError> {
    let caps = Arc::new(listener.caps.clone());
    caps.check()?;
    let capped = |mut grant: Grant| {
        grant.granted_by = Place::new(&format!("listener {}", listener.name));
        CompiledGrant::capped(grant, &caps).map(|capped| CompiledGrant {
            is_anonymous: true,
            ..capped
        })
    };
    let anonymous = listener.anonymous.clone().map(capped).transpose()?;
    let tls = load_tls(listener, warnings)?;
    Ok(ListenerPolicy {
        name: Arc::new(listener.name.clone()),
        anonymous: anonymous.map(Arc::new),
        durability: listener.durability,
        protocol_versions: listener.protocol_versions.as_slice().into(),
        max_connections: listener.max_connections,
        caps,
        queue_policy: listener.queue_policy,
        mount_point: listener.mount_point.clone(),
        websocket: listener.websocket.clone().map(Arc::new),
        proxies: listener.proxies.as_slice().into(),
        identity: listener.identity,
        tls,
    })
}

/// Loads the TLS files of a listener. Clients without ALPN are accepted.
fn load_tls(
    listener: &Listener,
    warnings: &mut Vec<String>,
) -> Result<Option<Arc<TlsServer>>, TlsError> {
    let Some(settings) = &listener.tls else {
        return Ok(None);
    };
    let alpn = alpn(listener.websocket.is_some());
    let loaded = TlsServer::load(settings.clone(), &[alpn])?;
    let name = &listener.name;
    let lines = loaded.warnings.iter();
    warnings.extend(lines.map(|line| format!("listener {name}: {line}")));
    Ok(Some(Arc::new(loaded.server)))
}

/// Whether a bound listener and a configured one are the same.
type IsSameListener<'a> = &'a dyn Fn(&Listener, &Listener) -> bool;

/// Finds the configured listener for each bound one: with the same address and name, else with the same address, else
/// with the same name.
pub(crate) fn carried_over(bound: &[Listener], configured: &[Listener]) -> Vec<Option<usize>> {
    let is_at = |old: &Listener, new: &Listener| {
        old.address == new.address
            && old.websocket.is_some() == new.websocket.is_some()
            && old.tls.is_some() == new.tls.is_some()
    };
    let is_named = |old: &Listener, new: &Listener| old.name == new.name;
    let is_both = |old: &Listener, new: &Listener| is_at(old, new) && is_named(old, new);
    let rules: [IsSameListener<'_>; 3] = [&is_both, &is_at, &is_named];
    let mut places = vec![None; bound.len()];
    for is_same in rules {
        for (index, old) in bound.iter().enumerate() {
            if places[index].is_none() {
                let is_free = |place: &usize| !places.contains(&Some(*place));
                let mut same = (0..configured.len()).filter(|&new| is_same(old, &configured[new]));
                places[index] = same.find(is_free);
            }
        }
    }
    places
}

/// The rules of the bound listeners after a reload; `places` are their indexes in `config`. A listener that `config` no
/// longer has grants nothing to anonymous clients. The transport of a bound listener does not change: TLS stays, with
/// the certificates of `current` if `config` names none; which clients may connect may change.
///
/// # Errors
///
/// As [`listener_policies`].
pub(crate) fn policies_of(
    bound: &[Listener],
    current: &[ListenerPolicy],
    places: &[Option<usize>],
    config: &Config,
) -> Result<Compiled, InvalidListener> {
    let configured = listener_policies(config)?;
    let bound = bound.iter().zip(current).zip(places);
    let policies = bound.map(|((bound, current), place)| {
        let found = place.and_then(|place| configured.policies.get(place));
        match found {
            Some(policy) => replaced(bound, current, policy),
            None => removed(bound, current),
        }
    });
    Ok(Compiled {
        policies: policies.collect(),
        warnings: configured.warnings,
    })
}

/// The rules `policy` for a bound listener, with its transport.
fn replaced(bound: &Listener, current: &ListenerPolicy, policy: &ListenerPolicy) -> ListenerPolicy {
    let websocket = bound.websocket.as_ref().map(|own| {
        let new = policy.websocket.as_ref();
        new.map_or_else(|| Arc::new(own.clone()), Arc::clone)
    });
    let tls = current.tls.as_ref().map(|own| {
        let new = policy.tls.as_ref();
        Arc::clone(new.unwrap_or(own))
    });
    ListenerPolicy {
        websocket,
        tls,
        ..policy.clone()
    }
}

/// The rules of a bound listener that the configuration no longer has.
fn removed(bound: &Listener, current: &ListenerPolicy) -> ListenerPolicy {
    ListenerPolicy {
        name: Arc::new(bound.name.clone()),
        anonymous: None,
        durability: None,
        protocol_versions: bound.protocol_versions.as_slice().into(),
        max_connections: bound.max_connections,
        caps: Arc::new(bound.caps.clone()),
        queue_policy: None,
        mount_point: bound.mount_point.clone(),
        websocket: bound.websocket.clone().map(Arc::new),
        proxies: bound.proxies.as_slice().into(),
        identity: bound.identity,
        tls: current.tls.clone(),
    }
}
