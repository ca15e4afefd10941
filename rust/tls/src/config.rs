//! The configuration of one handshake: that of rustls, and the verifier of client certificates in it.

use std::sync::Arc;

use rustls::pki_types::UnixTime;
use rustls::server::danger::ClientCertVerifier;
use rustls::{Error, HandshakeKind, ServerConfig, ServerConnection};

/// A rustls configuration, and its verifier of client certificates.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) verifier: Option<Arc<dyn ClientCertVerifier>>,
}

impl TlsConfig {
    /// The configuration for rustls. Call [`Self::verify_resumed`] after the handshake.
    pub fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    /// Verifies the client certificate of a resumed session, which rustls takes from the ticket without verification: a
    /// client could resume its session again and again after its certificate or the revocation list has expired
    /// (abuse I03).
    ///
    /// # Errors
    ///
    /// The certificate would not be accepted in a full handshake now.
    pub fn verify_resumed(&self, session: &ServerConnection) -> Result<(), Error> {
        if session.handshake_kind() != Some(HandshakeKind::Resumed) {
            return Ok(());
        }
        let certificates = session.peer_certificates().unwrap_or_default();
        let (Some((first, chain)), Some(verifier)) = (certificates.split_first(), &self.verifier)
        else {
            return Ok(());
        };
        let outcome = verifier.verify_client_cert(first, chain, UnixTime::now());
        outcome.map(|_| ())
    }
}
