//! The identity that a client certificate gives, checked before anybody sees it (abuse C23).

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use crate::der::{Reader, Value, tag};
use crate::settings::Identity;

/// 2.5.29.17
const SUBJECT_ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1D, 0x11];
/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// Attributes of a subject that have names (RFC 4514 section 3, and `emailAddress`).
const ATTRIBUTES: [(&[u8], &str); 10] = [
    (COMMON_NAME, "CN"),
    (&[0x55, 0x04, 0x06], "C"),
    (&[0x55, 0x04, 0x07], "L"),
    (&[0x55, 0x04, 0x08], "ST"),
    (&[0x55, 0x04, 0x09], "STREET"),
    (&[0x55, 0x04, 0x0A], "O"),
    (&[0x55, 0x04, 0x0B], "OU"),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xF2, 0x2C, 0x64, 0x01, 0x01],
        "UID",
    ),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xF2, 0x2C, 0x64, 0x01, 0x19],
        "DC",
    ),
    (
        &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x09, 0x01],
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
    /// The alternative names, in their order.
    pub alternative_names: Box<[AlternativeName]>,
    /// When it ends.
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

/// A certificate is not an identity.
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
    /// It is no longer valid: a session that was resumed outlived it.
    #[error("client certificate: expired")]
    Expired,
    /// It lacks the name that the listener takes as user name.
    #[error("client certificate: lacks the name that the listener's `identity` asks for")]
    Missing,
    /// It has several names of the kind that the listener takes as user name.
    #[error("client certificate: has several alternative names, and `identity` asks for one")]
    SeveralAlternativeNames,
}

impl ClientCertificate {
    /// Reads a certificate whose signature was verified.
    ///
    /// # Errors
    ///
    /// [`IdentityError`]: a field that names the client is not fit to be shown or compared.
    pub fn parse(der: &[u8]) -> Result<Self, IdentityError> {
        let fields = Fields::of(der).ok_or(IdentityError::Malformed)?;
        let (subject, common_name) = subject(fields.subject)?;
        let names = fields.alternative_names.map(alternative_names);
        Ok(Self {
            common_name,
            subject,
            alternative_names: names.transpose()?.unwrap_or_default(),
            not_after: fields.not_after,
        })
    }

    /// The user name that it gives.
    ///
    /// # Errors
    ///
    /// It has no such name, an empty one, or several.
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

/// The DNS names and the end of a certificate of our own.
pub(crate) fn dns_names(der: &[u8]) -> Option<(Vec<Box<str>>, SystemTime)> {
    let fields = Fields::of(der)?;
    let names = fields.alternative_names.map(alternative_names);
    let names = names.transpose().ok()?.unwrap_or_default();
    let dns = names.iter().filter_map(|name| match name {
        AlternativeName::Dns(name) => Some(name.clone()),
        _ => None,
    });
    Some((dns.collect(), fields.not_after))
}

/// The fields of a certificate that are looked at (RFC 5280 section 4.1).
struct Fields<'a> {
    not_after: SystemTime,
    subject: Reader<'a>,
    alternative_names: Option<Reader<'a>>,
}

impl<'a> Fields<'a> {
    fn of(der: &'a [u8]) -> Option<Self> {
        let mut certificate = Reader(der).expect(tag::SEQUENCE)?;
        let mut fields = certificate.expect(tag::SEQUENCE)?;
        fields.optional(tag::VERSION);
        let (_serial, _signature, _issuer) = (fields.next()?, fields.next()?, fields.next()?);
        let mut validity = fields.expect(tag::SEQUENCE)?;
        let (_not_before, not_after) = (validity.next()?, moment(validity.next()?)?);
        let subject = fields.expect(tag::SEQUENCE)?;
        let _public_key = fields.next()?;
        let mut alternative_names = None;
        while let Some(field) = fields.next() {
            if field.tag == tag::EXTENSIONS {
                alternative_names = extension(Reader(field.contents), SUBJECT_ALTERNATIVE_NAME)?;
            }
        }
        Some(Self {
            not_after,
            subject,
            alternative_names,
        })
    }
}

/// The sequence inside of an extension; `Some(None)`: it is not there.
#[expect(
    clippy::option_option,
    reason = "the outer one is a malformed certificate"
)]
fn extension<'a>(mut extensions: Reader<'a>, oid: &[u8]) -> Option<Option<Reader<'a>>> {
    let mut list = extensions.expect(tag::SEQUENCE)?;
    while !list.is_empty() {
        let mut extension = list.expect(tag::SEQUENCE)?;
        if extension.expect(tag::OBJECT_IDENTIFIER)?.0 != oid {
            continue;
        }
        while !extension.is_empty() {
            let value = extension.next()?;
            if value.tag == tag::OCTET_STRING {
                return Reader(value.contents).expect(tag::SEQUENCE).map(Some);
            }
        }
        return None;
    }
    Some(None)
}

/// The subject as RFC 4514 writes it, last attribute first, and its common name.
fn subject(mut name: Reader<'_>) -> Result<(Box<str>, Option<Box<str>>), IdentityError> {
    let (mut parts, mut common_name) = (Vec::new(), None);
    while !name.is_empty() {
        let mut set = name.expect(tag::SET).ok_or(IdentityError::Malformed)?;
        let mut part = String::new();
        while !set.is_empty() {
            let mut attribute = set.expect(tag::SEQUENCE).ok_or(IdentityError::Malformed)?;
            let oid = attribute.expect(tag::OBJECT_IDENTIFIER);
            let (oid, value) = oid.zip(attribute.next()).ok_or(IdentityError::Malformed)?;
            let text = text(value)?;
            if oid.0 == COMMON_NAME && common_name.replace(Box::from(text)).is_some() {
                return Err(IdentityError::SeveralCommonNames);
            }
            if !part.is_empty() {
                part.push('+');
            }
            push_attribute(&mut part, oid.0, text);
        }
        parts.push(part);
    }
    parts.reverse();
    Ok((parts.join(",").into(), common_name))
}

fn push_attribute(out: &mut String, oid: &[u8], text: &str) {
    match ATTRIBUTES.iter().find(|(known, _)| *known == oid) {
        Some((_, name)) => out.push_str(name),
        None => out.push_str(&dotted(oid)),
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

/// An object identifier in numbers.
fn dotted(oid: &[u8]) -> String {
    let (mut numbers, mut number) = (Vec::new(), 0_u64);
    for &byte in oid {
        number = number << 7 | u64::from(byte & 0x7F);
        if byte & 0x80 == 0 {
            if numbers.is_empty() {
                let first = (number / 40).min(2);
                numbers.push(first);
                number -= first * 40;
            }
            numbers.push(number);
            number = 0;
        }
    }
    let texts: Vec<String> = numbers.iter().map(u64::to_string).collect();
    texts.join(".")
}

fn alternative_names(mut names: Reader<'_>) -> Result<Box<[AlternativeName]>, IdentityError> {
    let mut found = Vec::new();
    while !names.is_empty() {
        let name = names.next().ok_or(IdentityError::Malformed)?;
        let boxed = || ascii(name.contents).map(Box::from);
        found.push(match name.tag {
            tag::EMAIL => AlternativeName::Email(boxed()?),
            tag::DNS => AlternativeName::Dns(boxed()?),
            tag::URI => AlternativeName::Uri(boxed()?),
            tag::IP => AlternativeName::Ip(ip(name.contents).ok_or(IdentityError::Malformed)?),
            // Directory names, object identifiers and the like name no client.
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

fn ascii(bytes: &[u8]) -> Result<&str, IdentityError> {
    let text = printable(bytes)?;
    text.is_ascii()
        .then_some(text)
        .ok_or(IdentityError::Encoding)
}

/// The text of an attribute; of the encodings that are not UTF-8, none is taken.
fn text(value: Value<'_>) -> Result<&str, IdentityError> {
    match value.tag {
        tag::UTF8_STRING => printable(value.contents),
        tag::PRINTABLE_STRING | tag::IA5_STRING | tag::NUMERIC_STRING => ascii(value.contents),
        _ => Err(IdentityError::Encoding),
    }
}

fn printable(bytes: &[u8]) -> Result<&str, IdentityError> {
    let text = std::str::from_utf8(bytes).map_err(|_| IdentityError::Encoding)?;
    if text.chars().any(char::is_control) {
        return Err(IdentityError::ControlCharacter);
    }
    Ok(text)
}

/// A time of X.509, which is in UTC and has seconds (RFC 5280 section 4.1.2.5).
fn moment(value: Value<'_>) -> Option<SystemTime> {
    let text = std::str::from_utf8(value.contents).ok()?;
    let (year, rest) = match value.tag {
        tag::UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: u64 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        tag::GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let two = |at: usize| rest.get(at..at + 2)?.parse::<u64>().ok();
    let (month, day) = (two(0)?, two(2)?);
    let (hour, minute, second) = (two(4)?, two(6)?, two(8)?);
    let days = days_since_1970(year, month, day)?;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Days from 1 January 1970 to a date of the Gregorian calendar; none before.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || year < 1970 {
        return None;
    }
    // Years that begin in March, so that the leap day ends one.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    days.checked_sub(719_468)
}
