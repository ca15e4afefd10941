#![no_main]

#[path = "../bounded.rs"]
mod bounded;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    bounded::within(256 * 1024 + 16 * input.len(), || mqttcore_broker::fuzzing::websocket_upgrade(input));
});
