//! Certificates that the broker shows to its clients: of bound listeners and of services.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mqttcore_tls::{ServerCertificate, TlsServer};

use crate::config::listener_policy::ListenerPolicy;

/// The certificates in use at one listener, or of a service.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ShownCertificates {
    /// Name of the listener, or of the service.
    pub name: Arc<str>,
    /// Whether `name` is that of a service.
    pub is_service: bool,
    /// The certificates.
    pub certificates: Vec<ServerCertificate>,
}

/// The TLS servers of bound listeners and of services.
#[derive(Default)]
pub(crate) struct TlsServers(Mutex<Servers>);

#[derive(Default)]
struct Servers {
    listeners: Vec<NamedServer>,
    services: Vec<NamedServer>,
}

type NamedServer = (Arc<str>, Arc<TlsServer>);

impl TlsServers {
    /// Replaces those of the listeners.
    pub(crate) fn set_listeners(&self, policies: &[ListenerPolicy]) {
        let servers = policies.iter().filter_map(|policy| {
            let server = policy.tls.as_ref()?;
            Some((policy.name.as_str().into(), Arc::clone(server)))
        });
        self.lock().listeners = servers.collect();
    }

    /// Adds that of a service.
    pub(crate) fn add_service(&self, name: &str, server: Arc<TlsServer>) {
        self.lock().services.push((Arc::from(name), server));
    }

    /// Whether a listener has TLS.
    pub(crate) fn has_listeners(&self) -> bool {
        !self.lock().listeners.is_empty()
    }

    /// The certificates of all of them.
    pub(crate) fn shown(&self) -> Vec<ShownCertificates> {
        let servers = self.lock();
        let listeners = servers.listeners.iter().map(|server| (server, false));
        let services = servers.services.iter().map(|server| (server, true));
        let shown = listeners.chain(services);
        shown
            .map(|((name, server), is_service)| ShownCertificates {
                name: Arc::clone(name),
                is_service,
                certificates: server.certificates(),
            })
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Servers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
