//! Payloads of every format become columns, or are told to be corrupt: never a panic.
#![no_main]

#[path = "../payloads.rs"]
mod payloads;

libfuzzer_sys::fuzz_target!(|input: &[u8]| payloads::decode_payloads(input));
