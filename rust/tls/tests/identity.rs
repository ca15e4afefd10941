//! What a client certificate says of its client, and which certificates are no identity (abuse C23).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime};

use mqttcore_tls::{AlternativeName, ClientCertificate, Identity, IdentityError};
use rcgen::string::BmpString;
use rcgen::{CertificateParams, DnType, DnValue, KeyPair, SanType, date_time_ymd};

/// A certificate with these attributes and alternative names, as DER.
fn der(attributes: &[(DnType, DnValue)], names: Vec<SanType>) -> Vec<u8> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    for (kind, value) in attributes {
        params.distinguished_name.push(kind.clone(), value.clone());
    }
    params.subject_alt_names = names;
    params.not_after = date_time_ymd(2030, 2, 28);
    let key = KeyPair::generate().expect("a key");
    params
        .self_signed(&key)
        .expect("a certificate")
        .der()
        .to_vec()
}

fn utf8(text: &str) -> DnValue {
    DnValue::Utf8String(text.to_owned())
}

fn named(name: &str) -> Vec<u8> {
    der(&[(DnType::CommonName, utf8(name))], Vec::new())
}

#[test]
fn the_names_of_a_certificate_are_read() {
    let bytes = der(
        &[
            (
                DnType::CountryName,
                DnValue::PrintableString("NL".try_into().unwrap()),
            ),
            (DnType::OrganizationName, utf8("Fleet, Ltd.")),
            (DnType::CommonName, utf8("trück 1 ")),
        ],
        vec![
            SanType::DnsName("truck.example".try_into().unwrap()),
            SanType::Rfc822Name("truck@example.org".try_into().unwrap()),
            SanType::URI("urn:truck:1".try_into().unwrap()),
            SanType::IpAddress(Ipv4Addr::LOCALHOST.into()),
            SanType::IpAddress(Ipv6Addr::LOCALHOST.into()),
        ],
    );

    let found = ClientCertificate::parse(&bytes).expect("an identity");

    assert_eq!(found.common_name.as_deref(), Some("trück 1 "));
    assert_eq!(&*found.subject, r"CN=trück 1\ ,O=Fleet\, Ltd.,C=NL");
    let wanted = [
        AlternativeName::Dns("truck.example".into()),
        AlternativeName::Email("truck@example.org".into()),
        AlternativeName::Uri("urn:truck:1".into()),
        AlternativeName::Ip(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        AlternativeName::Ip(IpAddr::V6(Ipv6Addr::LOCALHOST)),
    ];
    assert_eq!(*found.alternative_names, wanted);
    // `date -ud 2030-02-28 +%s`
    let end = SystemTime::UNIX_EPOCH + Duration::from_secs(1_898_467_200);
    assert_eq!(found.not_after, end);
}

#[test]
fn an_attribute_without_a_name_is_written_in_numbers() {
    let kind = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 99_999, 1]);
    let bytes = der(&[(kind, utf8("#x"))], Vec::new());

    let found = ClientCertificate::parse(&bytes).expect("an identity");

    assert_eq!(&*found.subject, r"1.3.6.1.4.1.99999.1=\#x");
    assert_eq!(found.common_name, None);
}

#[test]
fn names_with_control_characters_are_refused() {
    for name in ["a\0b", "\n", "a\u{7F}", "a\u{85}b", "\u{1B}[31m"] {
        assert_eq!(
            ClientCertificate::parse(&named(name)),
            Err(IdentityError::ControlCharacter),
            "{name:?}"
        );
    }
}

#[test]
fn names_that_are_not_utf_8_are_refused() {
    let bmp = DnValue::BmpString(BmpString::try_from("truck").unwrap());
    let bytes = der(&[(DnType::CommonName, bmp)], Vec::new());
    assert_eq!(
        ClientCertificate::parse(&bytes),
        Err(IdentityError::Encoding)
    );

    let mut bytes = named("truck");
    let at = bytes
        .windows(5)
        .rposition(|five| five == b"truck")
        .expect("the subject");
    bytes[at] = 0xFF;
    assert_eq!(
        ClientCertificate::parse(&bytes),
        Err(IdentityError::Encoding)
    );
}

#[test]
fn two_common_names_are_no_identity() {
    let second = DnType::CustomDnType(vec![2, 5, 4, 3]);
    let bytes = der(
        &[(DnType::CommonName, utf8("a")), (second, utf8("b"))],
        Vec::new(),
    );

    assert_eq!(
        ClientCertificate::parse(&bytes),
        Err(IdentityError::SeveralCommonNames)
    );
}

#[test]
fn a_certificate_that_is_cut_anywhere_is_no_identity() {
    let bytes = named("truck");

    for len in 0..bytes.len() {
        assert_eq!(
            ClientCertificate::parse(&bytes[..len]),
            Err(IdentityError::Malformed),
            "{len}"
        );
    }
}

#[test]
fn a_certificate_with_any_byte_changed_does_not_panic() {
    let good = named("truck");
    for at in 0..good.len() {
        for value in [0, 1, 0x30, 0x7F, 0x80, 0x84, 0xFF] {
            let mut bytes = good.clone();
            bytes[at] = value;
            let _ = ClientCertificate::parse(&bytes);
        }
    }
}

#[test]
fn the_user_name_is_the_only_name_of_its_kind() {
    let dns = |name: &str| SanType::DnsName(name.try_into().unwrap());
    let common = [(DnType::CommonName, utf8("cn"))];
    let ip = SanType::IpAddress(Ipv4Addr::LOCALHOST.into());
    let parse = |names| ClientCertificate::parse(&der(&common, names)).expect("an identity");

    let one = parse(vec![ip.clone(), dns("a.example")]);
    assert_eq!(one.username(Identity::AlternativeName), Ok("a.example"));
    assert_eq!(one.username(Identity::CommonName), Ok("cn"));
    assert_eq!(one.username(Identity::Subject), Ok("CN=cn"));
    let two = parse(vec![dns("a.example"), dns("b.example")]);
    assert_eq!(
        two.username(Identity::AlternativeName),
        Err(IdentityError::SeveralAlternativeNames)
    );
    assert_eq!(
        parse(vec![ip]).username(Identity::AlternativeName),
        Err(IdentityError::Missing)
    );
    let nobody = ClientCertificate::parse(&der(&[], Vec::new())).expect("an identity");
    assert_eq!(
        nobody.username(Identity::CommonName),
        Err(IdentityError::Missing)
    );
    assert_eq!(
        nobody.username(Identity::Subject),
        Err(IdentityError::Missing)
    );
}
