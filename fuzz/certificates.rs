//! What the fuzz target of certificates does with its bytes, and what has to hold of the answer.
//!
//! Shared with `rust/tls/tests/fuzz_kept.rs`, which runs the same body without a fuzzer.

use mqttcore_tls::{ClientCertificate, Identity};

/// Reads the names of a client certificate: none has a control character, and none is empty as a user name.
pub(crate) fn certificate(input: &[u8]) {
    let Ok(certificate) = ClientCertificate::parse(input) else {
        return;
    };
    let texts = certificate
        .alternative_names
        .iter()
        .filter_map(|name| name.text());
    let texts = texts
        .chain(certificate.common_name.as_deref())
        .chain([&*certificate.subject]);
    for text in texts {
        assert!(!text.chars().any(char::is_control), "{text:?}");
        // Each byte of a name may need a backslash, and each number of an attribute several digits.
        assert!(text.len() <= 8 * input.len());
    }
    for identity in [
        Identity::CommonName,
        Identity::Subject,
        Identity::AlternativeName,
    ] {
        if let Ok(name) = certificate.username(identity) {
            assert!(!name.is_empty());
        }
    }
}
