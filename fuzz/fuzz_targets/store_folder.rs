#![no_main]

#[path = "../bounded.rs"]
mod bounded;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    bounded::within(64 << 20, || mqttcore_store::fuzzing::folder(input));
});
