#![no_main]

#[path = "../bounded.rs"]
mod bounded;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    bounded::within(64 * 1024 + 128 * input.len(), || mqttcore_store::fuzzing::row(input));
});
