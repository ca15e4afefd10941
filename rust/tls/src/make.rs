//! Writes a CA and certificates for trials of TLS, as PEM files.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// The files that [`make_files`] wrote.
#[derive(Clone, Debug)]
pub struct MadeFiles {
    /// The certificate of the CA, which clients and the broker trust.
    pub ca: PathBuf,
    /// The certificate of the server.
    pub server: PathBuf,
    /// The key of that certificate.
    pub server_key: PathBuf,
    /// The certificate of the client.
    pub client: PathBuf,
    /// The key of that certificate.
    pub client_key: PathBuf,
}

/// Writes a new CA, a server certificate for `hosts` and a client certificate named `client` into `folder`, which is
/// created if it is missing. The key of the CA is not stored, so that no certificate can be issued later.
///
/// # Errors
///
/// A host is neither a name nor an address, a file exists already, or the file system fails.
pub fn make_files(folder: &Path, hosts: &[String], client: &str) -> io::Result<MadeFiles> {
    let other =
        |error: rcgen::Error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string());
    let ca_key = KeyPair::generate().map_err(other)?;
    let ca = authority();
    let ca_certificate = ca.self_signed(&ca_key).map_err(other)?;
    let issuer = Issuer::new(ca, ca_key);
    let server_key = KeyPair::generate().map_err(other)?;
    let server = leaf(hosts, "mqttcore", ExtendedKeyUsagePurpose::ServerAuth).map_err(other)?;
    let server = server.signed_by(&server_key, &issuer).map_err(other)?;
    let client_key = KeyPair::generate().map_err(other)?;
    let client = leaf(&[], client, ExtendedKeyUsagePurpose::ClientAuth).map_err(other)?;
    let client = client.signed_by(&client_key, &issuer).map_err(other)?;
    let files = MadeFiles {
        ca: folder.join("ca.pem"),
        server: folder.join("server.pem"),
        server_key: folder.join("server.key"),
        client: folder.join("client.pem"),
        client_key: folder.join("client.key"),
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    write(&files.ca, 0o644, &ca_certificate.pem())?;
    write(&files.server, 0o644, &server.pem())?;
    write(&files.server_key, 0o600, &server_key.serialize_pem())?;
    write(&files.client, 0o644, &client.pem())?;
    write(&files.client_key, 0o600, &client_key.serialize_pem())?;
    Ok(files)
}

fn authority() -> CertificateParams {
    let mut ca = CertificateParams::default();
    ca.distinguished_name
        .push(DnType::CommonName, "mqttcore CA for trying");
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    limit(&mut ca);
    ca
}

fn leaf(
    hosts: &[String],
    name: &str,
    purpose: ExtendedKeyUsagePurpose,
) -> Result<CertificateParams, rcgen::Error> {
    let mut leaf = CertificateParams::new(hosts)?;
    leaf.distinguished_name.push(DnType::CommonName, name);
    leaf.extended_key_usages = vec![purpose];
    leaf.use_authority_key_identifier_extension = true;
    limit(&mut leaf);
    Ok(leaf)
}

/// Sets a validity that is long enough for any trial.
fn limit(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2026, 1, 1);
    params.not_after = date_time_ymd(2040, 1, 1);
}

/// Writes a new file; fails if it exists.
fn write(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    let opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path);
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}
