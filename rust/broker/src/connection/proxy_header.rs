//! Parser for the PROXY header, versions 1 and 2: a proxy sends it with the address of its client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use mqttcore_tls::ClientCertificate;

/// Signature of version 1.
const SIGNATURE_1: &[u8] = b"PROXY ";
/// Signature of version 2.
const SIGNATURE_2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Maximum bytes of a header of version 1, with its end of line.
const LINE_BYTES: usize = 107;
/// Bytes of a header of version 2 before its addresses.
const FIXED_BYTES: usize = 16;
/// Maximum bytes of the rest; some proxies send the client's certificate.
const REST_BYTES: usize = 8 * 1024;

/// A PROXY header.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ProxyHeader {
    /// The client's address; `None`: that of the socket, for a connection of the proxy itself.
    pub(crate) source: Option<SocketAddr>,
    /// The protocol that the client has negotiated by ALPN.
    pub(crate) alpn: Option<Box<[u8]>>,
    /// The client's certificate, if the proxy has verified one.
    pub(crate) certificate: Option<ProxiedCertificate>,
}

/// A client certificate that the proxy has verified.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ProxiedCertificate {
    /// Its common name, without control characters.
    pub(crate) common_name: Option<Box<str>>,
    /// The certificate itself, if the proxy sends it.
    pub(crate) whole: Option<Arc<ClientCertificate>>,
}

/// The bytes are not a valid PROXY header.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("PROXY header: {0}")]
pub(crate) struct InvalidProxyHeader(pub(crate) &'static str);

type Parsed<T> = Result<T, InvalidProxyHeader>;

impl ProxyHeader {
    /// Parses the header at the front of `bytes`; returns it with its length, or `None` if it is incomplete.
    ///
    /// # Errors
    ///
    /// [`InvalidProxyHeader`], as soon as further bytes cannot change the result.
    pub(crate) fn parse(bytes: &[u8]) -> Parsed<Option<(Self, usize)>> {
        if is_start_of(bytes, SIGNATURE_2) {
            parse_2(bytes)
        } else if is_start_of(bytes, SIGNATURE_1) {
            parse_1(bytes)
        } else {
            Err(InvalidProxyHeader(
                "there is none; addresses in proxy_from have to send one",
            ))
        }
    }

    /// Whether `bytes` begins with a complete signature.
    pub(crate) fn begins(bytes: &[u8]) -> bool {
        bytes.starts_with(SIGNATURE_1) || bytes.starts_with(SIGNATURE_2)
    }

    fn from(source: SocketAddr) -> Self {
        Self {
            source: Some(source),
            ..Self::default()
        }
    }
}

/// Whether one of `bytes` and `signature` is a prefix of the other.
fn is_start_of(bytes: &[u8], signature: &[u8]) -> bool {
    bytes.iter().zip(signature).all(|(a, b)| a == b)
}

/// `PROXY TCP4 192.0.2.1 192.0.2.9 56324 1883` and an end of line.
fn parse_1(bytes: &[u8]) -> Parsed<Option<(ProxyHeader, usize)>> {
    let invalid = |what| Err(InvalidProxyHeader(what));
    let line = bytes.get(..LINE_BYTES).unwrap_or(bytes);
    let Some(len) = line.windows(2).position(|end| end == b"\r\n") else {
        return match bytes.len() {
            ..LINE_BYTES => Ok(None),
            _ => invalid("version 1 is longer than 107 bytes"),
        };
    };
    let Ok(text) = str::from_utf8(&line[..len]) else {
        return invalid("version 1 is not text");
    };
    let words: Vec<&str> = text.split(' ').skip(1).collect();
    let header =
        match words[..] {
            // The rest of the line is ignored.
            ["UNKNOWN", ..] => ProxyHeader::default(),
            ["TCP4", source, destination, source_port, destination_port] => ProxyHeader::from(
                ends::<Ipv4Addr>([source, destination], [source_port, destination_port])?,
            ),
            ["TCP6", source, destination, source_port, destination_port] => ProxyHeader::from(
                ends::<Ipv6Addr>([source, destination], [source_port, destination_port])?,
            ),
            ["TCP4" | "TCP6", ..] => {
                return invalid("version 1 has not two addresses and two ports");
            }
            _ => return invalid("unknown protocol in version 1"),
        };
    Ok(Some((header, len + 2)))
}

/// The source address, if the destination is valid, too.
fn ends<Ip: FromStr + Into<IpAddr>>(addresses: [&str; 2], ports: [&str; 2]) -> Parsed<SocketAddr> {
    let port = |text: &str| match text.as_bytes() {
        [b'0', _, ..] => None,
        digits if digits.iter().all(u8::is_ascii_digit) => text.parse::<u16>().ok(),
        _ => None,
    };
    let [source, destination] = addresses.map(|text| text.parse::<Ip>().ok());
    let (Some(source), Some(_)) = (source, destination) else {
        return Err(InvalidProxyHeader("invalid address in version 1"));
    };
    let [Some(source_port), Some(_)] = ports.map(port) else {
        return Err(InvalidProxyHeader("invalid port in version 1"));
    };
    Ok(SocketAddr::new(source.into(), source_port))
}

/// The signature, version and command, family, length; then addresses and TLVs.
fn parse_2(bytes: &[u8]) -> Parsed<Option<(ProxyHeader, usize)>> {
    let invalid = |what| Err(InvalidProxyHeader(what));
    let Some((fixed, rest)) = bytes.split_at_checked(FIXED_BYTES) else {
        return Ok(None);
    };
    let &[version_and_command, family, high, low] = &fixed[SIGNATURE_2.len()..] else {
        return Ok(None);
    };
    let is_local = match version_and_command {
        0x20 => true,
        0x21 => false,
        _ => return invalid("unknown version or command"),
    };
    let len = usize::from(u16::from_be_bytes([high, low]));
    if len > REST_BYTES {
        return invalid("version 2 is longer than 8 KiB");
    }
    let Some(rest) = rest.get(..len) else {
        return Ok(None);
    };
    let header = if is_local {
        ProxyHeader::default()
    } else {
        let (source, tlvs) = addresses_2(family, rest)?;
        let certificate = only(tlvs, SSL)?.map(certificate).transpose()?;
        ProxyHeader {
            source,
            alpn: only(tlvs, ALPN)?.map(Into::into),
            certificate: certificate.flatten(),
        }
    };
    Ok(Some((header, FIXED_BYTES + len)))
}

/// The source address, and the bytes after the addresses.
fn addresses_2(family: u8, rest: &[u8]) -> Parsed<(Option<SocketAddr>, &[u8])> {
    let short = InvalidProxyHeader("version 2 is shorter than its addresses");
    match family {
        // The proxy does not know the address, or its client used a Unix socket.
        0x00 => Ok((None, rest)),
        0x31 => Ok((None, rest.get(216..).ok_or(short)?)),
        0x11 => {
            let ([a, b, c, d, _, _, _, _, high, low, _, _], rest) =
                rest.split_first_chunk::<12>().ok_or(short)?;
            let port = u16::from_be_bytes([*high, *low]);
            let address = Ipv4Addr::new(*a, *b, *c, *d);
            Ok((Some(SocketAddr::new(address.into(), port)), rest))
        }
        0x21 => {
            let (addresses, rest) = rest.split_first_chunk::<36>().ok_or(short)?;
            let source = addresses.first_chunk::<16>().ok_or(short)?;
            let port = u16::from_be_bytes([addresses[32], addresses[33]]);
            let address = Ipv6Addr::from(*source);
            Ok((Some(SocketAddr::new(address.into(), port)), rest))
        }
        _ => Err(InvalidProxyHeader("unknown address family or protocol")),
    }
}

/// Removes the first TLV from `tlvs`; returns its type and value.
fn next_tlv<'a>(tlvs: &mut &'a [u8]) -> Parsed<Option<(u8, &'a [u8])>> {
    if tlvs.is_empty() {
        return Ok(None);
    }
    let beyond = InvalidProxyHeader("a TLV goes beyond the length of the header");
    let ([kind, high, low], rest) = tlvs.split_first_chunk::<3>().ok_or(beyond)?;
    let len = usize::from(u16::from_be_bytes([*high, *low]));
    let (value, rest) = rest.split_at_checked(len).ok_or(beyond)?;
    *tlvs = rest;
    Ok(Some((*kind, value)))
}

const ALPN: u8 = 0x01;
const SSL: u8 = 0x20;
/// Type of the common name in an SSL TLV.
const COMMON_NAME: u8 = 0x22;
/// Type of the client's certificate in an SSL TLV, as DER.
const CLIENT_CERTIFICATE: u8 = 0x28;
/// Flags of an SSL TLV: the client presented a certificate, in this connection or in its session.
const HAS_CERTIFICATE: u8 = 0b110;
/// Maximum bytes of a common name; more than X.520 allows.
const COMMON_NAME_BYTES: usize = 256;

/// The value of the TLV with this type, if there is one; all TLVs are checked.
fn only(mut tlvs: &[u8], kind: u8) -> Parsed<Option<&[u8]>> {
    let mut found = None;
    while let Some((each, value)) = next_tlv(&mut tlvs)? {
        if each == kind && found.replace(value).is_some() {
            return Err(InvalidProxyHeader("a TLV is there twice"));
        }
    }
    Ok(found)
}

/// The certificate in an SSL TLV: flags, the result of the verification, and TLVs of its own.
fn certificate(value: &[u8]) -> Parsed<Option<ProxiedCertificate>> {
    let short = InvalidProxyHeader("an SSL TLV is too short");
    let ([flags, verified @ ..], tlvs) = value.split_first_chunk::<5>().ok_or(short)?;
    let common_name = only(tlvs, COMMON_NAME)?.map(name).transpose()?;
    let whole = only(tlvs, CLIENT_CERTIFICATE)?;
    if flags & HAS_CERTIFICATE == 0 || verified != &[0; 4] {
        return Ok(None);
    }
    Ok(Some(ProxiedCertificate {
        common_name,
        whole: whole.map(parsed).transpose()?.map(Arc::new),
    }))
}

fn parsed(der: &[u8]) -> Parsed<ClientCertificate> {
    ClientCertificate::parse(der).map_err(|_| {
        InvalidProxyHeader("the client's certificate is malformed, or has malformed names")
    })
}

fn name(value: &[u8]) -> Parsed<Box<str>> {
    let name = str::from_utf8(value).ok().filter(|name| {
        (1..=COMMON_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control)
    });
    name.map(Into::into).ok_or(InvalidProxyHeader(
        "the common name is empty, too long, or has control characters",
    ))
}

#[cfg(any(test, fuzzing))]
#[path = "../../../../fuzz/proxy.rs"]
pub(crate) mod fuzzing;
#[cfg(test)]
#[path = "proxy_header/tests.rs"]
mod tests;
