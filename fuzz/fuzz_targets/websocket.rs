#![no_main]

#[path = "../bounded.rs"]
mod bounded;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    bounded::within(64 * 1024 + 8 * input.len(), || mqttcore_broker::fuzzing::websocket_frames(input));
});
