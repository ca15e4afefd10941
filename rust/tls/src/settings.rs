//! TLS settings of a listener.

use std::path::PathBuf;

/// A certificate chain and its key, each a PEM file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CertificateFiles {
    /// The server's certificate, followed by its intermediate certificates.
    pub certificate: PathBuf,
    /// The key of the first certificate: PKCS#8, PKCS#1 or SEC1, not encrypted.
    pub key: PathBuf,
}

/// Whether clients present certificates.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ClientCertificates {
    /// The server requests no certificate.
    #[default]
    None,
    /// The server requests a certificate. A client without one is accepted; one with an invalid certificate is refused.
    Optional,
    /// A client without a valid certificate is refused.
    Required,
}

/// The minimum TLS version.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MinVersion {
    /// TLS 1.2 and 1.3.
    #[default]
    Tls12,
    /// TLS 1.3 only.
    Tls13,
}

/// Which part of a client certificate is the client's user name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Identity {
    /// The common name of the subject.
    CommonName,
    /// The whole subject, as RFC 4514 writes it.
    Subject,
    /// The only DNS name, e-mail address or URI among the alternative names.
    AlternativeName,
}

/// TLS settings of a listener.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TlsSettings {
    /// Certificates, selected by SNI. Clients without SNI, or with an unknown name, get the first.
    pub certificates: Vec<CertificateFiles>,
    /// Whether clients present certificates.
    pub client_certificates: ClientCertificates,
    /// PEM file with the CAs that issue client certificates.
    pub client_ca: Option<PathBuf>,
    /// File with the revocation lists of those CAs: several as PEM, or one as DER.
    pub crl: Option<PathBuf>,
    /// The minimum TLS version.
    pub min_version: MinVersion,
    /// The part of a client certificate that is the user name; `None`: the user name is that of CONNECT.
    pub identity: Option<Identity>,
}

impl TlsSettings {
    /// One certificate, TLS 1.2 and 1.3, and no client certificates.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self {
            certificates: vec![CertificateFiles {
                certificate: certificate.into(),
                key: key.into(),
            }],
            client_certificates: ClientCertificates::default(),
            client_ca: None,
            crl: None,
            min_version: MinVersion::default(),
            identity: None,
        }
    }

    /// Every file that is read, in a fixed order.
    pub(crate) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let pairs = self.certificates.iter();
        pairs
            .flat_map(|pair| [&pair.certificate, &pair.key])
            .chain(&self.client_ca)
            .chain(&self.crl)
    }
}
