//! Loads a rustls configuration from PEM files.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring as provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{InconsistentKeys, RootCertStore, ServerConfig, SupportedProtocolVersion};

use crate::certificate::{ServerCertificate, dns_names};
use crate::config::TlsConfig;
use crate::error::TlsError;
use crate::settings::{CertificateFiles, ClientCertificates, MinVersion, TlsSettings};

/// Maximum size in bytes of a file of certificates or keys.
const PEM_BYTES: u64 = 1 << 20;
/// Maximum size in bytes of a file of revocation lists (abuse I04).
const CRL_BYTES: u64 = 64 << 20;
/// The mode bits for users other than owner and group.
const OTHERS: u32 = 0o007;

/// A configuration, and warnings about its files.
pub(crate) struct Made {
    pub(crate) config: TlsConfig,
    pub(crate) certificates: Vec<ServerCertificate>,
    pub(crate) warnings: Vec<String>,
}

/// Reads all files of `settings` and builds a configuration.
pub(crate) fn make(settings: &TlsSettings, alpn: &[&str]) -> Result<Made, TlsError> {
    let provider = Arc::new(provider::default_provider());
    let library = |error: rustls::Error| TlsError::Library(error.to_string());
    let (resolver, warnings) = resolver(&settings.certificates, &provider)?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions(settings.min_version))
        .map_err(library)?;
    let verifier = verifier(settings, provider)?;
    let builder = match &verifier {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
    };
    let certificates = resolver.0.iter().map(|named| named.shown.clone());
    let certificates = certificates.collect();
    let mut config = builder.with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    // Sessions are resumed by tickets only: the ticket keys are dropped with this configuration (abuse I03).
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = provider::Ticketer::new().map_err(library)?;
    config.send_tls13_tickets = 1;
    debug_assert_eq!(config.max_early_data_size, 0, "no 0-RTT (abuse I02)");
    let server = Arc::new(config);
    Ok(Made {
        config: TlsConfig { server, verifier },
        certificates,
        warnings,
    })
}

fn versions(min: MinVersion) -> &'static [&'static SupportedProtocolVersion] {
    const ALL: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];
    match min {
        MinVersion::Tls12 => ALL,
        MinVersion::Tls13 => ALL.get(..1).unwrap_or_default(),
    }
}

/// Selects the certificate for the client's SNI, else the first.
#[derive(Debug)]
struct Resolver(Vec<Named>);

#[derive(Debug)]
struct Named {
    key: Arc<CertifiedKey>,
    shown: ServerCertificate,
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        let signs = |named: &&Named| named.key.key.choose_scheme(schemes).is_some();
        let usable = || self.0.iter().filter(signs);
        let asked = hello.server_name();
        let is_for = |host: &str| usable().find(|named| named.is_for(host));
        let found = asked.and_then(is_for).or_else(|| usable().next());
        found.map(|named| Arc::clone(&named.key))
    }
}

impl Named {
    fn is_for(&self, host: &str) -> bool {
        let fits = |name: &str| match name.strip_prefix("*.") {
            None => name.eq_ignore_ascii_case(host),
            Some(domain) => host
                .split_once('.')
                .is_some_and(|(_, rest)| domain.eq_ignore_ascii_case(rest)),
        };
        self.shown.names.iter().any(|name| fits(name))
    }
}

fn resolver(
    files: &[CertificateFiles],
    provider: &CryptoProvider,
) -> Result<(Resolver, Vec<String>), TlsError> {
    let mut warnings = Vec::new();
    let named: Result<Vec<Named>, _> = files
        .iter()
        .map(|pair| certificate(pair, provider, &mut warnings))
        .collect();
    match named? {
        none if none.is_empty() => Err(TlsError::Settings("TLS needs a certificate and its key")),
        named => Ok((Resolver(named), warnings)),
    }
}

fn certificate(
    files: &CertificateFiles,
    provider: &CryptoProvider,
    warnings: &mut Vec<String>,
) -> Result<Named, TlsError> {
    let chain = certificates("certificate", &files.certificate)?;
    let first = chain.first().and_then(|first| dns_names(first));
    let key = private_key(&files.key, warnings)?;
    let key = CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsError::Mismatch {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
        },
        error => content(
            "certificate",
            &files.certificate,
            format!("not usable with key {}: {error}", files.key.display()),
        ),
    })?;
    let (names, not_after) = first.ok_or_else(|| {
        let why = "its first certificate cannot be read".to_owned();
        content("certificate", &files.certificate, why)
    })?;
    let shown = ServerCertificate {
        file: files.certificate.clone(),
        names,
        not_after,
    };
    let expiry = shown.expiry_warning(SystemTime::now());
    warnings.extend(expiry.map(|warning| warning.to_string()));
    Ok(Named {
        key: Arc::new(key),
        shown,
    })
}

fn private_key(
    path: &Path,
    warnings: &mut Vec<String>,
) -> Result<PrivateKeyDer<'static>, TlsError> {
    let (bytes, mode) = read("key", path, PEM_BYTES)?;
    if mode & OTHERS != 0 {
        let (path, mode) = (path.display(), mode & 0o777);
        warnings.push(format!(
            "key {path}: others on this machine may use it (mode {mode:04o}): chmod 600 it"
        ));
    }
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| {
        let why = format!("no unencrypted private key in PEM format: {error}");
        content("key", path, why)
    })
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let (bytes, _) = read(what, path, PEM_BYTES)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(content(
            what,
            path,
            "no certificate in PEM format".to_owned(),
        )),
        Err(error) => Err(content(what, path, format!("not PEM: {error}"))),
    }
}

/// The verifier of client certificates, if the listener requests them.
fn verifier(
    settings: &TlsSettings,
    provider: Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let asks = settings.client_certificates != ClientCertificates::None;
    let Some(ca) = &settings.client_ca else {
        if asks {
            return Err(TlsError::Settings(
                "client_certificates: nothing is trusted: client_ca names the CAs that issue them",
            ));
        }
        return Ok(None);
    };
    if !asks {
        return Err(TlsError::Settings(
            "client_ca: does nothing unless client_certificates is optional or required",
        ));
    }
    let roots = trusted_roots(ca)?;
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    if let Some(path) = &settings.crl {
        // An expired list is out of date: fail closed (abuse I04).
        builder = builder
            .with_crls(revocation_lists(path)?)
            .enforce_revocation_expiration();
    }
    if settings.client_certificates == ClientCertificates::Optional {
        builder = builder.allow_unauthenticated();
    }
    let place = settings
        .crl
        .as_ref()
        .map_or(("client_ca", ca), |path| ("crl", path));
    let built = builder.build();
    built
        .map(Some)
        .map_err(|error| content(place.0, place.1, error.to_string()))
}

/// The CAs that issue certificates of clients.
fn trusted_roots(ca: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for root in certificates("client_ca", ca)? {
        let added = roots.add(root);
        added.map_err(|error| content("client_ca", ca, error.to_string()))?;
    }
    Ok(roots)
}

fn revocation_lists(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let (bytes, _) = read("crl", path, CRL_BYTES)?;
    if !bytes.trim_ascii_start().starts_with(b"-----BEGIN") {
        return Ok(vec![CertificateRevocationListDer::from(bytes)]);
    }
    let all: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&bytes).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(content(
            "crl",
            path,
            "no certificate revocation list".to_owned(),
        )),
        Err(error) => Err(content("crl", path, format!("not PEM: {error}"))),
    }
}

fn content(what: &'static str, path: &Path, why: String) -> TlsError {
    TlsError::Content {
        what,
        path: path.to_owned(),
        why,
    }
}

/// The contents of a file, and its mode.
fn read(what: &'static str, path: &Path, limit: u64) -> Result<(Vec<u8>, u32), TlsError> {
    let unreadable = |error: io::Error| TlsError::Unreadable {
        what,
        path: path.to_owned(),
        error,
    };
    let file = File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.mode();
    let mut bytes = Vec::new();
    file.take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > limit {
        let path = PathBuf::from(path);
        return Err(TlsError::TooLong { what, path, limit });
    }
    Ok((bytes, mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_early_data_and_no_session_outlives_its_configuration() {
        let params = rcgen::CertificateParams::new(["localhost".to_owned()]).expect("a name");
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let folder = std::env::temp_dir().join(format!("mqttcore-load-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (chain_file, key_file) = (folder.join("a.pem"), folder.join("a.key"));
        std::fs::write(&chain_file, certificate.pem()).expect("written");
        std::fs::write(&key_file, key.serialize_pem()).expect("written");
        let settings = TlsSettings::new(chain_file, key_file);

        let made = make(&settings, &["mqtt"]).expect("a configuration");
        std::fs::remove_dir_all(&folder).expect("removed");

        let config = made.config.server();
        assert_eq!(config.max_early_data_size, 0);
        assert!(!config.session_storage.can_cache());
        assert!(config.ticketer.enabled());
        assert_eq!(config.alpn_protocols, [b"mqtt".to_vec()]);
        let [shown] = &made.certificates[..] else {
            panic!("one certificate: {:?}", made.certificates);
        };
        assert_eq!(shown.file, folder.join("a.pem"));
        assert_eq!(shown.names, ["localhost".into()]);
        assert_eq!(shown.not_after, SystemTime::from(params.not_after));
        // The umask decides the mode of the test's files.
        assert!(made.warnings.iter().all(|line| line.contains("chmod 600")));
    }
}
