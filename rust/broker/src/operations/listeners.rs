//! Listeners: their connections, and pausing them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mqttcore_tls::{ServerCertificate, TlsServer};

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
    /// The listeners that are bound, by socket. Waits for no shard.
    ///
    /// # Errors
    ///
    /// [`BrokerStopped`]
    pub fn listeners(&self) -> Result<Vec<ListenerStatus>, BrokerStopped> {
        let engine = self.engine().ok_or(BrokerStopped)?;
        let shown = engine.tls_servers.shown();
        let certificates = |name: &Arc<str>| {
            let own = shown
                .iter()
                .find(|shown| !shown.is_service && shown.name == *name);
            own.map_or_else(Vec::new, |shown| shown.certificates.clone())
        };
        let counts = engine.connections.by_listener().into_iter();
        let counts = counts.chain(std::iter::repeat(0));
        let all = engine.listeners.iter().zip(counts).zip(&engine.paused);
        Ok(all
            .map(|((name, connections), paused)| ListenerStatus {
                name: Arc::clone(name),
                connections,
                // ORDERING: nothing else is read because of it.
                is_paused: paused.load(Ordering::Relaxed),
                certificates: certificates(name),
            })
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
    /// listener with this name. A restart ends the pause. Waits for no shard.
    ///
    /// # Errors
    ///
    /// [`BrokerStopped`]
    pub fn pause_listener(&self, name: &str, is_paused: bool) -> Result<bool, BrokerStopped> {
        let engine = self.engine().ok_or(BrokerStopped)?;
        let mut listeners = engine.listeners.iter();
        let Some(index) = listeners.position(|listener| **listener == *name) else {
            return Ok(false);
        };
        // ORDERING: as above.
        engine.paused[index].store(is_paused, Ordering::Relaxed);
        Ok(true)
    }
}
