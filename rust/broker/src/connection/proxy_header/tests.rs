use super::*;

/// A header of version 2, made by hand.
fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a".to_vec();
    let len = u16::try_from(rest.len()).unwrap();
    bytes.extend([command, family]);
    bytes.extend(len.to_be_bytes());
    bytes.extend(rest);
    bytes
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(value.len()).unwrap();
    [&[kind][..], &len.to_be_bytes(), value].concat()
}

/// 192.0.2.7 port 4660 to 192.0.2.9 port 1883.
const TCP4: [u8; 12] = [192, 0, 2, 7, 192, 0, 2, 9, 0x12, 0x34, 0x07, 0x5b];

/// A header over TCP/IPv4 with TLVs.
fn with_tlvs(tlvs: &[u8]) -> Vec<u8> {
    v2(0x21, 0x11, &[&TCP4[..], tlvs].concat())
}

fn ssl(flags: u8, verified: u32, tlvs: &[u8]) -> Vec<u8> {
    tlv(
        0x20,
        &[&[flags][..], &verified.to_be_bytes(), tlvs].concat(),
    )
}

fn whole(bytes: &[u8]) -> ProxyHeader {
    let (header, len) = ProxyHeader::parse(bytes).unwrap().unwrap();
    assert_eq!(len, bytes.len());
    header
}

fn source(bytes: &[u8]) -> Option<String> {
    whole(bytes).source.map(|source| source.to_string())
}

fn why(bytes: &[u8]) -> &'static str {
    ProxyHeader::parse(bytes).unwrap_err().0
}

#[test]
fn version_1_says_the_address_of_the_client() {
    let line = b"PROXY TCP4 192.0.2.7 192.0.2.9 56324 443\r\n";
    assert_eq!(source(line).as_deref(), Some("192.0.2.7:56324"));
    let line = b"PROXY TCP6 2001:db8::7 2001:db8::9 0 65535\r\n";
    assert_eq!(source(line).as_deref(), Some("[2001:db8::7]:0"));
    assert_eq!(source(b"PROXY UNKNOWN\r\n"), None);
    assert_eq!(source(b"PROXY UNKNOWN ffff:: ffff:: 65535 65535\r\n"), None);
}

#[test]
fn i13_a_line_that_breaks_a_rule_is_refused() {
    for line in [
        "PROXY TCP4 192.0.2.7 192.0.2.9 56324\r\n",
        "PROXY TCP4 192.0.2.7 192.0.2.9 56324 443 1\r\n",
        "PROXY TCP4  192.0.2.7 192.0.2.9 56324 443\r\n",
        "PROXY TCP4 192.0.2.7 192.0.2.9 56324 443 \r\n",
        "PROXY TCP4 2001:db8::7 2001:db8::9 1 2\r\n",
        "PROXY TCP6 192.0.2.7 192.0.2.9 1 2\r\n",
        "PROXY TCP4 192.0.2.07 192.0.2.9 1 2\r\n",
        "PROXY TCP4 192.0.2.7 example.org 1 2\r\n",
        "PROXY TCP4 192.0.2.7 192.0.2.9 01 2\r\n",
        "PROXY TCP4 192.0.2.7 192.0.2.9 +1 2\r\n",
        "PROXY TCP4 192.0.2.7 192.0.2.9 65536 2\r\n",
        "PROXY TCP4 192.0.2.7 192.0.2.9 1 \r\n",
        "PROXY UDP4 192.0.2.7 192.0.2.9 1 2\r\n",
        "PROXY tcp4 192.0.2.7 192.0.2.9 1 2\r\n",
        "PROXY \r\n",
    ] {
        assert!(ProxyHeader::parse(line.as_bytes()).is_err(), "{line}");
    }
    assert_eq!(why(b"PROXY \xff\r\n"), "version 1 is not text");
}

#[test]
fn i13_version_1_has_107_bytes_at_most() {
    let line = |len: usize| [b"PROXY UNKNOWN ", &vec![b'x'; len - 16][..], b"\r\n"].concat();
    assert_eq!(source(&line(107)), None);
    assert_eq!(why(&line(108)), "version 1 is longer than 107 bytes");
    assert_eq!(
        why(&line(107)[..106].repeat(2)),
        "version 1 is longer than 107 bytes"
    );
}

#[test]
fn version_2_says_the_address_of_the_client() {
    assert_eq!(source(&with_tlvs(&[])).as_deref(), Some("192.0.2.7:4660"));
    let mut rest = [0; 36];
    rest[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    rest[15] = 7;
    rest[33] = 9;
    let header = v2(0x21, 0x21, &rest);
    assert_eq!(source(&header).as_deref(), Some("[2001:db8::7]:9"));
}

#[test]
fn i13_local_and_unknown_connections_have_the_address_of_the_socket() {
    // What comes with LOCAL is skipped, whatever it is.
    assert_eq!(whole(&v2(0x20, 0x11, &TCP4)), ProxyHeader::default());
    assert_eq!(whole(&v2(0x20, 0xff, b"?")), ProxyHeader::default());
    assert_eq!(whole(&v2(0x21, 0x00, &[])), ProxyHeader::default());
    assert_eq!(whole(&v2(0x21, 0x31, &[b'/'; 216])), ProxyHeader::default());
}

#[test]
fn i13_a_header_of_version_2_that_breaks_a_rule_is_refused() {
    let unknown = "unknown address family or protocol";
    for family in [0x01, 0x10, 0x12, 0x22, 0x32, 0x41, 0xff] {
        assert_eq!(why(&v2(0x21, family, &TCP4)), unknown);
    }
    for command in [0x11, 0x22, 0x31, 0x2f] {
        assert_eq!(why(&v2(command, 0x11, &TCP4)), "unknown version or command");
    }
    let short = "version 2 is shorter than its addresses";
    assert_eq!(why(&v2(0x21, 0x11, &TCP4[..11])), short);
    assert_eq!(why(&v2(0x21, 0x21, &[0; 35])), short);
    assert_eq!(why(&v2(0x21, 0x31, &[0; 215])), short);
    let long = v2(0x21, 0x11, &[0; 8 * 1024 + 1]);
    // The length alone is enough.
    assert_eq!(why(&long[..16]), "version 2 is longer than 8 KiB");
}

#[test]
fn i13_a_tlv_beyond_the_length_is_refused() {
    let beyond = "a TLV goes beyond the length of the header";
    assert_eq!(why(&with_tlvs(&[0x05])), beyond);
    assert_eq!(why(&with_tlvs(&[0x05, 0, 2, b'x'])), beyond);
    assert_eq!(
        why(&with_tlvs(
            &[&tlv(0x05, b"x")[..], &[0xee, 0xff, 0xff]].concat()
        )),
        beyond
    );
    // In an SSL TLV, too.
    assert_eq!(why(&with_tlvs(&ssl(7, 0, &[0x22, 0, 9, b'x']))), beyond);
    assert_eq!(
        why(&with_tlvs(&tlv(0x20, &[7, 0, 0, 0]))),
        "an SSL TLV is too short"
    );
}

#[test]
fn a_verified_certificate_has_its_common_name() {
    let cn = tlv(0x22, "träger-1".as_bytes());
    let named = |flags, verified, tlvs: &[u8]| {
        let certificate = whole(&with_tlvs(&ssl(flags, verified, tlvs))).certificate;
        certificate.map(|certificate| certificate.common_name)
    };
    let version = tlv(0x21, b"TLSv1.3");
    assert_eq!(
        named(0b011, 0, &[version, cn.clone()].concat()),
        Some(Some("träger-1".into()))
    );
    assert_eq!(named(0b101, 0, &cn), Some(Some("träger-1".into())));
    assert_eq!(named(0b011, 0, &[]), Some(None));
    // Not presented, or not verified.
    assert_eq!(named(0b001, 0, &cn), None);
    assert_eq!(named(0b011, 1, &cn), None);
}

#[test]
fn i13_a_common_name_that_is_no_name_is_refused() {
    for name in [
        &b""[..],
        b"nul\0",
        b"line\n",
        b"\xff",
        "\u{85}".as_bytes(),
        &[b'x'; 257],
    ] {
        let bytes = with_tlvs(&ssl(7, 0, &tlv(0x22, name)));
        assert!(why(&bytes).starts_with("the common name is"), "{name:?}");
    }
    let two = [tlv(0x22, b"a"), tlv(0x22, b"b")].concat();
    assert_eq!(why(&with_tlvs(&ssl(7, 0, &two))), "a TLV is there twice");
    let two = [ssl(7, 0, &[]), ssl(7, 0, &[])].concat();
    assert_eq!(why(&with_tlvs(&two)), "a TLV is there twice");
}

#[test]
fn the_protocol_of_alpn_is_taken_over() {
    assert_eq!(
        whole(&with_tlvs(&tlv(1, b"mqtt"))).alpn.as_deref(),
        Some(&b"mqtt"[..])
    );
}

#[test]
fn each_part_of_a_header_waits_for_the_rest_and_what_follows_is_left() {
    let headers = [
        b"PROXY TCP4 192.0.2.7 192.0.2.9 56324 443\r\n".to_vec(),
        with_tlvs(&ssl(7, 0, &tlv(0x22, b"truck-1"))),
    ];
    for header in headers {
        for len in 0..header.len() {
            assert_eq!(ProxyHeader::parse(&header[..len]), Ok(None), "{len}");
        }
        let followed = [&header[..], b"\x10\x0c"].concat();
        let (_, len) = ProxyHeader::parse(&followed).unwrap().unwrap();
        assert_eq!(len, header.len());
    }
}

#[test]
fn what_is_no_header_is_refused_with_its_first_byte() {
    for bytes in [
        &b"\x10\x0c\0\x04MQTT"[..],
        b"\x16\x03\x01",
        b"GET ",
        b"PROXY\t",
        b"\r\n\r\n\0\r\nQUIZ",
    ] {
        assert!(why(bytes).starts_with("there is none"), "{bytes:?}");
    }
}

/// Random changes of valid headers: no panic, no header that is longer than what there is, and the same answer for
/// the header alone as for the header with bytes behind it.
#[test]
fn i13_headers_with_random_bytes_are_read_or_refused() {
    let seeds = [
        b"PROXY TCP6 2001:db8::7 2001:db8::9 1 65535\r\n".to_vec(),
        with_tlvs(&[ssl(7, 0, &tlv(0x22, b"truck-1")), tlv(1, b"mqtt")].concat()),
        v2(0x21, 0x21, &[7; 60]),
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap() % below
    };
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..200_000 {
        let mut bytes = seeds[random(seeds.len())].clone();
        for _ in 0..random(4) {
            let at = random(bytes.len());
            bytes[at] = u8::try_from(random(256)).unwrap();
        }
        bytes.truncate(1 + random(bytes.len() + 20));
        match ProxyHeader::parse(&bytes) {
            Ok(None) => {}
            Err(_) => refused += 1,
            Ok(Some((header, len))) => {
                assert!(len <= bytes.len());
                assert_eq!(ProxyHeader::parse(&bytes[..len]), Ok(Some((header, len))));
                accepted += 1;
            }
        }
    }
    assert!(accepted > 1_000 && refused > 1_000, "{accepted} {refused}");
}
