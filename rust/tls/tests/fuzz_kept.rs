//! The body of the fuzz target of certificates, with the inputs that fuzz runs have kept and with changes of them.

#[path = "../../../fuzz/bounded.rs"]
mod bounded;
#[path = "../../../fuzz/certificates.rs"]
mod certificates;
#[path = "../../../fuzz/kept.rs"]
mod kept;

const CERTIFICATE: &str = include_str!("../../../fuzz/kept/certificate.hex");

/// Abuse row C23.
#[test]
fn c23_certificates_of_strangers_are_read_or_refused() {
    let read = |input: &[u8]| {
        let limit = 64 * 1024 + 64 * input.len();
        bounded::within(limit, || certificates::certificate(input));
    };

    assert!(kept::each_input(CERTIFICATE, read) > 30);
    kept::each_changed_input(CERTIFICATE, 5_000, read);
}
