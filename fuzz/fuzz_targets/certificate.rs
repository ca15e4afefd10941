#![no_main]

#[path = "../bounded.rs"]
mod bounded;
#[path = "../certificates.rs"]
mod certificates;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    bounded::within(64 * 1024 + 64 * input.len(), || certificates::certificate(input));
});
