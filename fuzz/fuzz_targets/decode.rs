#![no_main]

#[path = "../bodies.rs"]
#[expect(dead_code, reason = "each target runs one body")]
mod bodies;

libfuzzer_sys::fuzz_target!(|input: &[u8]| bodies::decode_bytes(input));
