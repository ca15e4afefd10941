//! Reads the identity in a verified client certificate, and rejects names that are malformed (abuse C23).

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use x509_cert::TbsCertificate;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::certificate::Certificate;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Decode, Tag, Tagged};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use crate::settings::Identity;

pub(crate) const DAY: Duration = Duration::from_secs(24 * 3_600);
/// How long before its expiry a certificate of the broker is to be renewed.
const EXPIRES_SOON: Duration = Duration::from_secs(14 * DAY.as_secs());

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
/// Short names of subject attributes (RFC 4514 section 3, and `emailAddress`). Others are written as numbers.
const ATTRIBUTES: [(ObjectIdentifier, &str); 10] = [
    (COMMON_NAME, "CN"),
    (ObjectIdentifier::new_unwrap("2.5.4.6"), "C"),
    (ObjectIdentifier::new_unwrap("2.5.4.7"), "L"),
    (ObjectIdentifier::new_unwrap("2.5.4.8"), "ST"),
    (ObjectIdentifier::new_unwrap("2.5.4.9"), "STREET"),
    (ObjectIdentifier::new_unwrap("2.5.4.10"), "O"),
    (ObjectIdentifier::new_unwrap("2.5.4.11"), "OU"),
    (
        ObjectIdentifier::new_unwrap("0.9.2342.19200300.100.1.1"),
        "UID",
    ),
    (
        ObjectIdentifier::new_unwrap("0.9.2342.19200300.100.1.25"),
        "DC",
    ),
    (
        ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.1"),
        "emailAddress",
    ),
];

/// The fields of a verified client certificate that say who the client is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClientCertificate {
    /// The common name of the subject.
    pub common_name: Option<Box<str>>,
    /// The whole subject, as RFC 4514 writes it.
    pub subject: Box<str>,
    /// The alternative names, in the certificate's order.
    pub alternative_names: Box<[AlternativeName]>,
    /// End of its validity.
    pub not_after: SystemTime,
}

/// An alternative name of a subject.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AlternativeName {
    /// A host.
    Dns(Box<str>),
    /// An e-mail address.
    Email(Box<str>),
    /// A URI.
    Uri(Box<str>),
    /// An IP address.
    Ip(IpAddr),
}

impl AlternativeName {
    /// `dns`, `email`, `uri` or `ip`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Dns(_) => "dns",
            Self::Email(_) => "email",
            Self::Uri(_) => "uri",
            Self::Ip(_) => "ip",
        }
    }

    /// The name itself, unless it is an IP address.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Dns(text) | Self::Email(text) | Self::Uri(text) => Some(text),
            Self::Ip(_) => None,
        }
    }
}

impl fmt::Display for AlternativeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(text) | Self::Email(text) | Self::Uri(text) => f.write_str(text),
            Self::Ip(address) => write!(f, "{address}"),
        }
    }
}

/// A client certificate is rejected as an identity.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// It is not a certificate of X.509.
    #[error("client certificate: not a certificate")]
    Malformed,
    /// A name is not UTF-8 or ASCII.
    #[error("client certificate: a name is not UTF-8")]
    Encoding,
    /// A name has a NUL or another control character.
    #[error("client certificate: a name has a control character")]
    ControlCharacter,
    /// The subject has more than one common name.
    #[error("client certificate: the subject has several common names")]
    SeveralCommonNames,
    /// It lacks the name that the listener uses as user name.
    #[error("client certificate: lacks the name that the listener's `identity` asks for")]
    Missing,
    /// It has several names of the kind that the listener uses as user name.
    #[error("client certificate: has several alternative names, and `identity` asks for one")]
    SeveralAlternativeNames,
}

impl ClientCertificate {
    /// Reads a certificate whose signature was verified.
    ///
    /// # Errors
    ///
    /// [`IdentityError`]: the certificate or one of its names is malformed, or has several common names.
    pub fn parse(der: &[u8]) -> Result<Self, IdentityError> {
        let certificate = Certificate::from_der(der).map_err(|_| IdentityError::Malformed)?;
        let fields = certificate.tbs_certificate();
        let (subject, common_name) = subject(fields)?;
        Ok(Self {
            common_name,
            subject,
            alternative_names: alternative_names(fields)?,
            not_after: fields.validity().not_after.to_system_time(),
        })
    }

    /// The name that the listener uses as user name.
    ///
    /// # Errors
    ///
    /// The certificate has no such name, an empty one, or several.
    pub fn username(&self, identity: Identity) -> Result<&str, IdentityError> {
        let name = match identity {
            Identity::CommonName => self.common_name.as_deref(),
            Identity::Subject => Some(&*self.subject),
            Identity::AlternativeName => {
                let mut names = self
                    .alternative_names
                    .iter()
                    .filter_map(AlternativeName::text);
                let first = names.next();
                if names.next().is_some() {
                    return Err(IdentityError::SeveralAlternativeNames);
                }
                first
            }
        };
        name.filter(|name| !name.is_empty())
            .ok_or(IdentityError::Missing)
    }
}

/// A certificate that the broker shows to clients.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ServerCertificate {
    /// Its file.
    pub file: PathBuf,
    /// Its DNS names.
    pub names: Vec<Box<str>>,
    /// When it expires.
    pub not_after: SystemTime,
}

/// A fault of a file that does not keep the broker from running, and its remedy.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct FileWarning {
    /// The fault and the file.
    pub text: String,
    /// The remedy.
    pub fix: &'static str,
}

impl fmt::Display for FileWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.text, self.fix)
    }
}

impl ServerCertificate {
    /// Whether it has expired, or expires within 14 days.
    pub fn expires_soon(&self) -> bool {
        self.expiry_warning(SystemTime::now()).is_some()
    }

    /// A warning if it has expired at `now`, or expires within 14 days.
    pub fn expiry_warning(&self, now: SystemTime) -> Option<FileWarning> {
        let path = self.file.display();
        let (text, fix) = match self.not_after.duration_since(now) {
            Err(_) => (
                format!("certificate {path}: expired, clients will refuse it"),
                "replace it",
            ),
            Ok(left) if left < EXPIRES_SOON => {
                let days = left.as_secs() / DAY.as_secs();
                (
                    format!("certificate {path}: expires in {days} days"),
                    "renew it",
                )
            }
            Ok(_) => return None,
        };
        Some(FileWarning { text, fix })
    }
}

/// The DNS names and the expiry of a certificate of the broker.
pub(crate) fn dns_names(der: &[u8]) -> Option<(Vec<Box<str>>, SystemTime)> {
    let certificate = Certificate::from_der(der).ok()?;
    let fields = certificate.tbs_certificate();
    let names = alternative_names(fields).ok()?;
    let dns = names.iter().filter_map(|name| match name {
        AlternativeName::Dns(name) => Some(name.clone()),
        _ => None,
    });
    Some((dns.collect(), fields.validity().not_after.to_system_time()))
}

/// The subject as RFC 4514 writes it, last attribute first, and its common name.
fn subject(fields: &TbsCertificate) -> Result<(Box<str>, Option<Box<str>>), IdentityError> {
    let (mut parts, mut common_name) = (Vec::new(), None);
    for set in fields.subject().iter_rdn() {
        let mut part = String::new();
        for attribute in set.iter() {
            let text = text(attribute)?;
            if attribute.oid == COMMON_NAME && common_name.replace(Box::from(text)).is_some() {
                return Err(IdentityError::SeveralCommonNames);
            }
            if !part.is_empty() {
                part.push('+');
            }
            push_attribute(&mut part, &attribute.oid, text);
        }
        parts.push(part);
    }
    parts.reverse();
    Ok((parts.join(",").into(), common_name))
}

fn push_attribute(out: &mut String, oid: &ObjectIdentifier, text: &str) {
    match ATTRIBUTES.iter().find(|(known, _)| known == oid) {
        Some((_, name)) => out.push_str(name),
        None => out.push_str(&oid.to_string()),
    }
    out.push('=');
    let last = text.chars().count().saturating_sub(1);
    for (at, character) in text.chars().enumerate() {
        let is_edge_space = character == ' ' && (at == 0 || at == last);
        if is_edge_space || (character == '#' && at == 0) || r#""+,;<=>\"#.contains(character) {
            out.push('\\');
        }
        out.push(character);
    }
}

fn alternative_names(fields: &TbsCertificate) -> Result<Box<[AlternativeName]>, IdentityError> {
    let extension = fields.get_extension::<SubjectAltName>();
    let names = extension.map_err(|_| IdentityError::Malformed)?;
    let names = names.map_or_else(Vec::new, |(_, names)| names.0);
    let boxed = |text: &str| printable(text.as_bytes()).map(Box::from);
    let mut found = Vec::new();
    for name in &names {
        found.push(match name {
            GeneralName::Rfc822Name(text) => AlternativeName::Email(boxed(text.as_str())?),
            GeneralName::DnsName(text) => AlternativeName::Dns(boxed(text.as_str())?),
            GeneralName::UniformResourceIdentifier(text) => {
                AlternativeName::Uri(boxed(text.as_str())?)
            }
            GeneralName::IpAddress(bytes) => {
                AlternativeName::Ip(ip(bytes.as_bytes()).ok_or(IdentityError::Malformed)?)
            }
            // Other kinds, such as directory names and object identifiers, do not identify clients.
            _ => continue,
        });
    }
    Ok(found.into())
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

/// The text of an attribute, which must be UTF-8 or ASCII: older encodings are rejected.
fn text(attribute: &AttributeTypeAndValue) -> Result<&str, IdentityError> {
    let bytes = attribute.value.value();
    let may_be_utf8 = match attribute.value.tag() {
        Tag::Utf8String => true,
        Tag::PrintableString | Tag::Ia5String | Tag::NumericString => bytes.is_ascii(),
        _ => false,
    };
    if !may_be_utf8 {
        return Err(IdentityError::Encoding);
    }
    printable(bytes)
}

fn printable(bytes: &[u8]) -> Result<&str, IdentityError> {
    let text = std::str::from_utf8(bytes).map_err(|_| IdentityError::Encoding)?;
    if text.chars().any(char::is_control) {
        return Err(IdentityError::ControlCharacter);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_warned_about_two_weeks_before_its_expiry() {
        let end = SystemTime::UNIX_EPOCH + 400 * DAY;
        let expiring = |not_after| ServerCertificate {
            file: "a.pem".into(),
            names: Vec::new(),
            not_after,
        };
        let warning = |now| {
            let warning = expiring(end).expiry_warning(now);
            warning.map_or_else(String::new, |warning| warning.to_string())
        };

        assert_eq!(warning(end - 14 * DAY), "");
        assert_eq!(
            warning(end - 14 * DAY + DAY / 2),
            "certificate a.pem: expires in 13 days: renew it"
        );
        assert!(warning(end).contains("expires in 0 days"));
        assert!(warning(end + DAY).contains("expired"));
        assert!(expiring(SystemTime::now() + 13 * DAY).expires_soon());
        assert!(!expiring(SystemTime::now() + 15 * DAY).expires_soon());
    }
}
