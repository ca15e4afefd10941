//! Listeners: their connections, and pausing them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mqttcore_tls::{ServerCertificate, TlsServer};

use crate::operations::asking::AskError;
use crate::runtime::tls_servers::ShownCertificates;
use crate::service::{BrokerHandle, BrokerStopped};

/// A bound listener.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ListenerStatus {
    /// Its name.
    pub name: Arc<str>,
    /// Number of its connections.
    pub connections: usize,
    /// Whether it refuses new connections.
    pub is_paused: bool,
    /// The certificates in use; none without TLS.
    pub certificates: Vec<ServerCertificate>,
}

impl BrokerHandle {
    /// The listeners that are bound, by socket.
    ///
    /// # Errors
    ///
    /// [`AskError`]
    pub async fn listeners(&self) -> Result<Vec<ListenerStatus>, AskError> {
        let named = self.read(0, |shard| {
            let policies = shard.listener_policies();
            let named = policies.iter().map(|policy| {
                let tls = policy.tls.as_ref().map(|tls| tls.certificates());
                (Arc::clone(&policy.name), tls.unwrap_or_default())
            });
            named.collect::<Vec<_>>()
        });
        let named = named.await?;
        let engine = self.engine().ok_or(BrokerStopped)?;
        let counts = engine.connections.by_listener().into_iter();
        let counts = counts.chain(std::iter::repeat(0));
        let all = named.into_iter().zip(counts).zip(&engine.paused);
        Ok(all
            .map(
                |(((name, certificates), connections), paused)| ListenerStatus {
                    name,
                    connections,
                    // ORDERING: nothing else is read because of it.
                    is_paused: paused.load(Ordering::Relaxed),
                    certificates,
                },
            )
            .collect())
    }

    /// The certificates in use, by bound listener with TLS and by service. Waits for no shard; empty once the broker has
    /// ended.
    pub fn certificates(&self) -> Vec<ShownCertificates> {
        let engine = self.engine();
        engine.map_or_else(Vec::new, |engine| engine.tls_servers.shown())
    }

    /// Adds the certificates of the service with this name to [`certificates`](Self::certificates).
    pub fn show_certificates(&self, service: &str, server: Arc<TlsServer>) {
        if let Some(engine) = self.engine() {
            engine.tls_servers.add_service(service, server);
        }
    }

    /// Has a listener refuse new connections, or accept them again; its connections stay. Returns false if there is no
    /// listener with this name. A restart ends the pause.
    ///
    /// # Errors
    ///
    /// [`AskError`]
    pub async fn pause_listener(&self, name: &str, is_paused: bool) -> Result<bool, AskError> {
        let listeners = self.listeners().await?;
        let is_named = |listener: &ListenerStatus| *listener.name == *name;
        let Some(index) = listeners.iter().position(is_named) else {
            return Ok(false);
        };
        let engine = self.engine().ok_or(BrokerStopped)?;
        // ORDERING: as above.
        engine.paused[index].store(is_paused, Ordering::Relaxed);
        Ok(true)
    }
}
