//! What the fuzz target of PROXY headers does with its bytes, and what has to hold of the answer.
//!
//! Part of `rust/broker`, in its tests and under a fuzzer: what it calls is not public.

use super::{COMMON_NAME_BYTES, FIXED_BYTES, LINE_BYTES, ProxyHeader, REST_BYTES};

/// Parses the header at the front: the answer is that of a reader that gets one byte at a time.
pub fn header(input: &[u8]) {
    let answer = ProxyHeader::parse(input);
    let mut parts = (0..=input.len()).map(|len| ProxyHeader::parse(&input[..len]));
    let slow = parts.find(|part| *part != Ok(None)).unwrap_or(Ok(None));
    assert_eq!(slow, answer);

    let longest = LINE_BYTES.max(FIXED_BYTES + REST_BYTES);
    match answer {
        Ok(None) => assert!(input.len() < longest),
        Ok(Some((header, len))) => {
            assert!(len <= input.len() && len <= longest);
            let certificate = header.certificate.as_ref();
            let name = certificate.and_then(|certificate| certificate.common_name.as_deref());
            let fits = |name: &str| (1..=COMMON_NAME_BYTES).contains(&name.len());
            assert!(name.is_none_or(|name| fits(name) && !name.chars().any(char::is_control)));
        }
        Err(fault) => assert!(!fault.to_string().is_empty()),
    }
}
